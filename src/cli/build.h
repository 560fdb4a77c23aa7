/* Which build of ltrain this is. */
#ifndef LTRAIN_CLI_BUILD_H
#define LTRAIN_CLI_BUILD_H

#include "base/status.h"
#include "comm/comm.h"

/* What `ltrain --version` prints; and in one line, with the commit. */
extern const char build_text[], build_version[];

/* All ranks run the same program: ERR_INVALID, agreed, names a rank whose version, or whose executable's bytes, are not rank
 * 0's. */
enum status build_compare(struct comm *c);

#endif
