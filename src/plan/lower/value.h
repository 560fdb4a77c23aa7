/* A `value` is a tensor under lowering: its rows are cut into tiles, and each tile knows its version and the places of its
 * current copies. No function here emits an instruction. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_VALUE_H
#define LTRAIN_PLAN_LOWER_VALUE_H

#include "plan/lower/strategy.h"
#include "program/program.h"

#include <stddef.h>

struct block;
struct lowering;

#define PLACE_KEEP TIERS /* a device copy in a chunk buffer of its own, while the working copy is elsewhere */
#define PLACES (TIERS + 1)

struct place {
    int buffer; /* -1: no copy here */
    int64_t offset;
};

#define NOWHERE ((struct place){-1, 0})
_Static_assert(PLACES == 4, "value_create_cuts begins with no copy anywhere");

struct tile {
    int64_t row0, row1;
    int version;
    enum residency residency;
    int fresh; /* 1: a gradient that this program has not written yet */
    struct place place[PLACES];
    struct place home;                   /* fixed address of a persistent value's tile; buffer -1: none */
    int64_t extent_offset, extent_bytes; /* place of the tile's group at home */
};

struct value;
/* Computes on the device a tile that has no copy anywhere, from other values that it gets. */
typedef void value_produce(struct lowering *L, struct value *v, int tile);

struct value {
    int tensor;
    enum tensor_class class;
    value_produce *produce; /* NULL: the value is not computed on demand */
    struct block *block;    /* block that owns the value (blocks/block.h); residual stream: the block that computes it */
    int index;              /* index of the value's tile of heads within the block */
    int64_t rows, row_bytes;
    struct tile *tiles;
    int n_tiles;
    int sharded; /* 1: rows are those of shards, not elements of the unit */
    /* 1: rows are bytes (moments in blocks, quantised matrices), a tile for each group (plan_moments_row, plan_packed_group) */
    int packed;
    int staged;  /* 1: copies that pass through the host stay there until value_leave */
    int lingers; /* 1: copies on the device stay there between visits until value_leave */
    int brief; /* 1: recomputed after value_leave, so that no home is written while the value lingers or its copies are staged */
    int full;  /* 1: device copies lie in one buffer of all rows (while value_open_full) */
    int full_buffer; /* the buffer of all rows; -1: not open */
    int changes;     /* times that copies or versions of tiles changed, for reads that are repeated (emit.h) */
};

static inline enum tier residency_tier(enum residency r)
{
    return r == RES_HOST ? TIER_HOST : r == RES_NVME ? TIER_NVME : TIER_DEVICE;
}

/* Creates a value with tiles of `cut` rows, or with tiles between the given cuts. Values live as long as the lowering. If memory
 * is short, there are no tiles, and the lowering's status says so. */
void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r);
void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r);
/* Makes room on the device for the tile, which is written next: a new buffer, or its part of the open full buffer. Other copies
 * are forgotten. */
void value_new(struct lowering *L, struct value *v, int tile);
/* Ends a visit: forgets the device copy unless the tile's home is there. */
void value_drop(struct lowering *L, struct value *v, int tile);
/* Forgets all copies of a transient tile, which is computed again when it is needed. */
void value_forget(struct value *v, int tile);
/* Ends a visit that others follow: forgets the device copy unless the tile's home is there or the value lingers. */
void value_pause(struct lowering *L, struct value *v, int tile);
/* Ends the last visit of the forward pass: forgets copies that a staged or lingering value left nearer than its home. The value
 * lingers no more. */
void value_leave(struct lowering *L, struct value *v);
/* Lets device copies lie in one buffer of all rows from here on. */
void value_open_full(struct lowering *L, struct value *v);
/* Ends a visit of all tiles. The next full buffer is a new one, unless the value's home is on the device. */
void value_close_full(struct lowering *L, struct value *v);
/* Forgets an open full buffer, so that the next one is new. */
void value_reset_full(struct value *v);
/* Tells whether all tiles live on the device, so that the full buffer itself is their home. */
int value_lives_full(const struct value *v);
int value_on_device(const struct value *v, int tile);
/* Returns the index of the tile that holds `row`. */
int value_tile_at(const struct value *v, int64_t row);
int64_t value_tile_bytes(const struct value *v, int tile);
/* Returns the place for the next device copy of the tile. */
struct place value_device_place(struct lowering *L, struct value *v, int tile);
int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class);

/* Returns the nearest tier that holds a current copy of the tile at `row`; -1: none does. */
int value_where(const struct value *v, int64_t row);

/* Forgets every copy of the rows except the home. */
void value_keep_home(struct value *v, int64_t row0, int64_t row1);

struct lowering;
struct memory;

/* Returns n zeroed objects of `size` bytes each, at least one. NULL if memory is short; the lowering's status then says so. */
void *memory_new(struct lowering *L, int n, size_t size);
void memory_free(struct lowering *L);

#endif
