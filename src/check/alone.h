/* The reference run that a check compares with: one rank, everything resident. Private to src/check. */
#ifndef LTRAIN_CHECK_ALONE_H
#define LTRAIN_CHECK_ALONE_H

#include "plan/plan.h"

enum check_tiles {
    TILES_SAME /* TILES_SAME: the given settings' tiles, for equal bits on one rank; TILES_OWN: tiles are chosen anew */,
    TILES_OWN
};

/* Sets the settings of the same steps and sequences on one rank, zero 0, offload none. Borrows the strings of `given`. */
void check_alone_settings(const struct settings *given, enum check_tiles tiles, struct settings *out);
/* Plans the reference run in `bytes` of memory; the device is the host's memory. ERR_NOFIT names a length that would fit, else a
 * preset. */
enum status check_alone_plan(const struct model *m, const struct settings *s, int64_t bytes, struct plan **out);

#endif
