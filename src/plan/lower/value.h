/* A `value` is a tensor under lowering: its rows are cut into tiles, and each tile knows its version and where its current copies
 * are. What is here emits no instruction. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_VALUE_H
#define LTRAIN_PLAN_LOWER_VALUE_H

#include "plan/lower/strategy.h"
#include "program/program.h"

struct block;
struct lowering;

#define PLACE_KEEP TIERS /* a device copy in a chunk buffer of its own, while the working copy is elsewhere */
#define PLACES (TIERS + 1)

struct place {
    int buffer; /* -1: no copy here */
    int64_t offset;
};

#define NOWHERE ((struct place){-1, 0})

struct tile {
    int64_t row0, row1;
    int version;
    enum residency residency;
    int fresh; /* a gradient that this program has not written yet */
    struct place place[PLACES];
    struct place home;                   /* fixed address of a persistent value's tile; buffer -1: none */
    int64_t extent_offset, extent_bytes; /* of its group there */
};

struct value;
/* Computes a tile whose copies are nowhere, on the device, from others that it gets. */
typedef void value_produce(struct lowering *L, struct value *v, int tile);

struct value {
    int tensor;
    enum tensor_class class;
    value_produce *produce; /* NULL: it is not computed on demand */
    struct block *block;    /* whose value it is (blocks/block.h); of the residual stream: the block that computes it */
    int index;              /* tile of heads, for the block */
    int64_t rows, row_bytes;
    struct tile *tiles;
    int n_tiles;
    int sharded;     /* rows are those of shards, not elements of the unit */
    int packed;      /* moments in blocks, quantised matrices: rows are bytes, a tile for each group (plan_moments_row, plan_packed_group) */
    int staged;      /* copies that come by way of the host stay there until value_leave */
    int lingers;     /* copies on the device stay there between visits until value_leave */
    int brief;       /* made again after value_leave: while it lingers, and where copies are staged, it needs no home */
    int full;        /* device copies lie in one buffer of all rows (while value_open_full) */
    int full_buffer; /* -1: not open */
};

static inline enum tier residency_tier(enum residency r)
{
    return r == RES_HOST ? TIER_HOST : r == RES_NVME ? TIER_NVME : TIER_DEVICE;
}

/* Tiles of `cut` rows, or between the cuts. Values live as long as the lowering; out of memory, which its status says, there are
 * no tiles. */
void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r);
void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r);
/* A device copy of the tile to be written next: a new buffer, or its part of the open full buffer. Other copies are gone. */
void value_new(struct lowering *L, struct value *v, int tile);
/* End of a visit: forgets the device copy unless it lives there. */
void value_drop(struct lowering *L, struct value *v, int tile);
/* Forgets all copies of a transient tile: it is computed again when it is needed. */
void value_forget(struct value *v, int tile);
/* End of a visit that others follow: forgets the device copy unless it lives or lingers there. */
void value_pause(struct lowering *L, struct value *v, int tile);
/* After the last visit of the forward pass: forgets what a staged or lingering value left nearer than its home. It lingers no
 * more. */
void value_leave(struct lowering *L, struct value *v);
/* From here on, device copies lie in one buffer of all rows. */
void value_open_full(struct lowering *L, struct value *v);
/* End of a visit of all tiles, after which the next full buffer is a new one. */
void value_close_full(struct lowering *L, struct value *v);
/* Forgets an open full buffer, so that the next one is new. */
void value_reset_full(struct value *v);
/* Whether all tiles live on the device, so that the full buffer itself is their home. */
int value_lives_full(const struct value *v);
int value_on_device(const struct value *v, int tile);
/* The index of the tile that holds `row`. */
int value_tile_at(const struct value *v, int64_t row);
int64_t value_tile_bytes(const struct value *v, int tile);
/* Where the next device copy of the tile goes. */
struct place value_device_place(struct lowering *L, struct value *v, int tile);
int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class);

/* The nearest tier that holds a current copy of the tile at `row`; -1: none does. */
int value_where(const struct value *v, int64_t row);

/* Forgets every copy of the rows except the home. */
void value_keep_home(struct value *v, int64_t row0, int64_t row1);

#endif
