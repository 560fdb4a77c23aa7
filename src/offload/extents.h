/* Which extents were written whole, and their checksums. Sorted by offset; never two that overlap. */
#ifndef LTRAIN_OFFLOAD_EXTENTS_H
#define LTRAIN_OFFLOAD_EXTENTS_H

#include "base/status.h"

#include <stdint.h>

struct extents;

struct extents *extents_create(void); /* NULL if out of memory */
void extents_destroy(struct extents *e);

/* All are called from any thread.
 * A write of [offset, offset + bytes) begins: what it overlaps is forgotten, its place is reserved. ERR_NOMEM. */
enum status extents_begin(struct extents *e, int64_t offset, int64_t bytes);
/* That write is complete. Cannot fail; without effect if an overlapping write has begun since. */
void extents_finish(struct extents *e, int64_t offset, int64_t bytes, uint64_t hash);
/* 1 and the checksum if exactly this extent was written whole, else 0. */
int extents_find(struct extents *e, int64_t offset, int64_t bytes, uint64_t *hash);

#endif
