/* A contiguous block of memory with canaries before and after it: the host tier, and the device tier of the CPU backend. */
#ifndef LTRAIN_OFFLOAD_ARENA_H
#define LTRAIN_OFFLOAD_ARENA_H

#include "base/status.h"

#include <stdint.h>

struct arena;

enum arena_kind {
    ARENA_PLAIN,
    ARENA_PLACED, /* placed by hwloc near this rank's cores; the device that copies from it pins it */
    ARENA_PINNED  /* ARENA_PLACED, and pinned by mlock if the limit allows */
};

/* Creates an arena; bytes may be 0. Touches all pages, since first touch is slow and must not fall into the first step. `name`
 * appears in messages ("host arena"). Errors name the size and what to change. */
enum status arena_create(const char *name, int64_t bytes, enum arena_kind kind, struct arena **out);
void arena_destroy(struct arena *a);     /* NULL is fine */
void *arena_base(const struct arena *a); /* aligned to 4096 (2 MiB pages if available) */
int64_t arena_bytes(const struct arena *a);
/* Describes the arena: "256 MiB, pinned" or "256 MiB, not pinned: memlock limit is 8 MiB (ulimit -l)". Owned by the arena. */
const char *arena_describe(const struct arena *a);
/* Checks the guard bytes. ERR_CORRUPT: names the side and distance of a changed one. */
enum status arena_check(const struct arena *a);

#endif
