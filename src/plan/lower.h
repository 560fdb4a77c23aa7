/* Lowering: from a model's layer graph to a flat list of instructions, in compute order, fetches just before their use and
 * write-backs just after their producer. Private to src/plan.
 *
 * A `value` is a tensor under lowering: its rows are cut into tiles, and each tile knows its version and where its current copies
 * are. Everything is demand-driven: value_get() finds a tile on the device, fetches it from its home, or computes it. Recomputing
 * in the backward pass therefore emits the very instructions of the forward pass. */
#ifndef LTRAIN_PLAN_LOWER_H
#define LTRAIN_PLAN_LOWER_H

#include "model/model.h"
#include "plan/hazards.h"
#include "program/program.h"

/* Where a tile stays between the visits that use it. */
enum residency { RES_DEVICE, RES_HOST, RES_NVME, RES_NONE /* dropped; computed again when needed */ };

#define PLACE_KEEP TIERS /* a device copy in a chunk buffer of its own, while the working copy is elsewhere */
#define PLACES (TIERS + 1)

struct place {
    int buffer; /* -1: no copy here */
    int64_t offset;
};

struct tile {
    int64_t row0, row1;
    int version;
    enum residency residency;
    int fresh; /* a gradient that this program has not written yet */
    struct place place[PLACES];
    struct place home;                   /* fixed address of a persistent value's tile; buffer -1: none */
    int64_t extent_offset, extent_bytes; /* of its group there */
};

enum value_kind { VALUE_TEMP, VALUE_Q, VALUE_K, VALUE_V, VALUE_XMID, VALUE_GATE, VALUE_UP };

struct value {
    int tensor;
    enum tensor_class class;
    enum value_kind kind;
    int layer, index; /* what computes it again (kind) */
    int64_t rows, row_bytes;
    struct tile *tiles;
    int n_tiles;
    int full;        /* device copies lie in one buffer of all rows (while open_full) */
    int full_buffer; /* -1: not open */
};

/* What the planner decided: everything here is placement except the tile grid. */
struct strategy {
    int64_t seq_len, row_chunk, loss_tile;
    int head_tile; /* query heads per attention tile */
    int64_t group; /* elements per update group and per parameter transfer */
    enum dtype dtype;
    enum residency params, grads, optim, acts;
    int kept_chunks; /* alpha: so many of the row chunks keep what could be recomputed */
    int update_on_host;
    int discrete;
    double prefetch; /* row chunks of compute, < 0: as far as memory allows */
};

enum program_role {
    ROLE_UPDATE = 1, /* a pending update, woven into the forward (or alone) */
    ROLE_FORWARD = 2,
    ROLE_BACKWARD = 4,
    ROLE_FIRST = 8, /* the first micro-batch of a step: gradients start anew */
    ROLE_LAST = 16, /* the last one: the gradient norm follows */
};

/* Persistent values of one unit. */
struct unit_values {
    struct value param;  /* storage dtype */
    struct value master; /* BF16 only */
    struct value m, v;
    struct value grad;    /* of the global batch so far */
    struct value micro;   /* of this micro-batch, when it is not the first */
    struct value *target; /* which of the two the backward pass writes */
    int updated;
    int64_t first_sum; /* its first row in the sums of squares */
};

/* The host side of a program: persistent host buffers that the engine fills before and reads after. */
struct io_buffers {
    int tokens, targets, positions, lo, hi, inv_freq, record, norm, loss;
};

struct lowering {
    const struct model *m;
    struct strategy s;
    int role;
    struct program *p;
    int n_chunks, n_tiles_q, n_tiles_kv, q_per_kv; /* q tiles per kv tile */
    int kv_heads_tile;
    int64_t n_sums, n_loss;
    struct unit_values *units;
    struct io_buffers io;
    struct value tokens, targets, positions, lo, hi, inv_freq, record, norm, loss, sums;
    struct value *x;                   /* [layers + 1] */
    struct value *q, *k, *v, *o, *lse; /* [layers][tiles] */
    struct value *xmid, *gate, *up;    /* [layers] */
    struct value n1, n2, acc, act, dact, dgate, dup, dn, final_n, logits, dx;
    struct value *d_o, *dq, *dk, *dv; /* [tiles] */
    char phase;
    int layer;
    enum status st; /* sticky */
};

/* values.c */
void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r);
void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r);
void value_destroy(struct value *v);
/* A device copy of the tile to be written next: a new buffer, or its part of the open full buffer. The version goes up; other
 * copies are gone. */
void value_new(struct lowering *L, struct value *v, int tile);
/* Makes sure that the tile is on the device: fetched or computed. */
void value_get(struct lowering *L, struct value *v, int tile);
/* After production: writes it home if it lives off the device. */
void value_put(struct lowering *L, struct value *v, int tile);
/* End of a visit: forgets the device copy unless it lives there. */
void value_drop(struct lowering *L, struct value *v, int tile);
void value_drop_all(struct lowering *L, struct value *v);
/* Forgets an open full buffer, so that the next one is new. */
void value_reset_full(struct value *v);
void value_open_full(struct lowering *L, struct value *v);
void value_close_full(struct lowering *L, struct value *v);
int value_on_device(const struct value *v, int tile);
int value_tile_at(const struct value *v, int64_t row);
int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class);

/* Copies rows [row0, row1) (whole tiles) between tiers, by way of a host slot where the device is out of reach of the drive; sets
 * the place of the target. */
void value_copy(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from, int to, int buffer, int64_t offset,
                int depth);
/* The tier that holds a current copy of the tile at `row`, nearest first. */
int value_where(const struct value *v, int64_t row);

/* Emission. emit() starts an instruction; arguments follow. Rows of reads are arbitrary, of writes whole tiles. */
struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane);
void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_scratch(struct lowering *L, int arg, int64_t bytes); /* 0: no argument */
void emit_done(struct lowering *L, double pairs);             /* FLOPs and bytes */

/* Persistent values: rows [row0, row1) to the device or to the host in one contiguous piece, and back to their home. */
void value_bring(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int tier, int depth);
void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from);
/* Forgets every copy of the rows except the home. */
void value_keep_home(struct value *v, int64_t row0, int64_t row1);

/* maps.c */
/* Element offsets at which gradients of the unit are written piecewise, appended to cuts (room for max). */
int lower_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);

/* model.c */
void lower_forward(struct lowering *L);
void lower_backward(struct lowering *L);
void lower_value_produce(struct lowering *L, struct value *v, int tile);

/* update.c */
void unit_fetch(struct lowering *L, int unit); /* parameters to the device, after the pending update if the role has one */
void unit_drop(struct lowering *L, int unit);
void unit_update(struct lowering *L, int unit);
void grads_begin(struct lowering *L, int unit);
void grads_finish(struct lowering *L, int unit);
void lower_norm(struct lowering *L);

/* lower.c: one program of the set. Persistent buffers come first and are the same for every role. */
enum status lower_program(const struct model *m, const struct strategy *s, int role, struct io_buffers *io, struct program **out);
/* Elements of the group that starts at `at`: groups do not straddle the border between trained and frozen parameters. */
int64_t group_end(const struct lowering *L, int unit, int64_t at);

#endif
