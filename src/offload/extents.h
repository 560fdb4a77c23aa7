/* The table of extents that were written whole, with their checksums. Sorted by offset; no two overlap. */
#ifndef LTRAIN_OFFLOAD_EXTENTS_H
#define LTRAIN_OFFLOAD_EXTENTS_H

#include "base/status.h"

#include <stdint.h>

struct extents;

struct extents *extents_create(void); /* NULL if out of memory */
void extents_destroy(struct extents *e);

/* Begins a write of [offset, offset + bytes): forgets the extents that it overlaps, and reserves its place. ERR_NOMEM. This and
 * the functions below may be called from any thread. */
enum status extents_begin(struct extents *e, int64_t offset, int64_t bytes);
/* Notes that the write is complete. Cannot fail; without effect if an overlapping write has begun since. */
void extents_finish(struct extents *e, int64_t offset, int64_t bytes, uint64_t hash);
/* Returns 1 and the checksum if exactly this extent was written whole, else 0. */
int extents_find(struct extents *e, int64_t offset, int64_t bytes, uint64_t *hash);

#endif
