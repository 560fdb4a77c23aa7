/* Identifying this build of ltrain. */
#ifndef LTRAIN_CLI_BUILD_H
#define LTRAIN_CLI_BUILD_H

#include "base/status.h"
#include "comm/comm.h"

/* Text of `ltrain --version`; and one line with the commit. */
extern const char build_text[], build_version[];

/* Makes sure that all ranks run the same program. ERR_INVALID, agreed, names a rank whose version or executable differs from rank
 * 0's. */
enum status build_compare(struct comm *c);

#endif
