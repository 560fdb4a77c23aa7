/* Moving and clearing bytes within host-addressable memory. */
#ifndef LTRAIN_OPS_MEMORY_H
#define LTRAIN_OPS_MEMORY_H

#include <stdint.h>

void ops_copy(void *dst, const void *src, int64_t bytes); /* dst may be src (then nothing happens); no other overlap */
void ops_zero(void *dst, int64_t bytes);

#endif
