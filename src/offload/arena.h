/* One contiguous block of memory with canaries before and after it: the host tier, and the device tier of the CPU backend. */
#ifndef LTRAIN_OFFLOAD_ARENA_H
#define LTRAIN_OFFLOAD_ARENA_H

#include "base/status.h"

#include <stdint.h>

struct arena;

enum arena_kind {
    ARENA_PLAIN,
    ARENA_PLACED, /* by hwloc near this rank's cores; whoever copies from it pins it */
    ARENA_PINNED  /* placed, and mlock where the limit allows */
};

/* bytes may be 0. Pages are touched before it returns (first touch is slow and must not fall into the first step).
 * `name` appears in messages ("host arena"). Errors name the size and what to change. */
enum status arena_create(const char *name, int64_t bytes, enum arena_kind kind, struct arena **out);
void arena_destroy(struct arena *a); /* NULL is fine */
void *arena_base(const struct arena *a); /* aligned to 4096 (2 MiB pages where available) */
int64_t arena_bytes(const struct arena *a);
/* "256 MiB, pinned" or "256 MiB, not pinned: memlock limit is 8 MiB (ulimit -l)". Owned by the arena. */
const char *arena_describe(const struct arena *a);
/* ERR_CORRUPT naming the side and distance if a guard byte changed. */
enum status arena_check(const struct arena *a);

#endif
