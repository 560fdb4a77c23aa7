/* Values that pass from row chunk to row chunk: creation, and visits. */
#include "plan/lower/blocks/passing.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <stdio.h>

#define DEV TIER_DEVICE

/* --- Creation --- */

void passing_kept(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency without)
{
    char name[48];
    snprintf(name, sizeof name, "layer%d.%s", b->layer, what);
    value_create(L, v, name, CLASS_ACT, rows, row_bytes, cut,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, b->layer) : without);
}

void passing_create(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes)
{
    char name[48];
    p->absent = bytes == 0;
    if (p->absent)
        return;
    if (!passing_reads_on(L))
        passing_kept(L, b, &p->after, what, max_i64(L->n_chunks - 1, 1), bytes, 1, RES_DEVICE);
    if (!passing_is_sliced(L))
        return;
    snprintf(name, sizeof name, "entering_%s", what);
    passing_kept(L, b, &p->before, name, 1, bytes, 1, RES_DEVICE);
    p->rows = p->stride = 1;
}

void passing_create_carry(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes,
                          int gradients)
{
    struct value *v = gradients ? &p->dcarry : &p->carry;
    char name[48];
    p->absent = bytes == 0;
    if (p->absent)
        return;
    snprintf(name, sizeof name, "layer%d.%s_%s", b->layer, gradients ? "dkept" : "kept", what);
    value_create(L, v, name, CLASS_ACT, 1, bytes, 1, RES_DEVICE);
    home_create(L, v, -1, RES_DEVICE);
}

void passing_bind_carry(struct lowering *L, struct passing *p, int end)
{
    if (p->absent)
        return;
    value_bind(L, &p->carry, end);
    value_bind(L, &p->dcarry, end);
}

void passing_create_home(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes)
{
    const enum residency r = L->s.placement.cached == RES_NVME ? RES_HOST : L->s.placement.cached;
    char name[48];
    p->absent = bytes == 0;
    if (p->absent)
        return;
    snprintf(name, sizeof name, "layer%d.%s", b->layer, what);
    value_create(L, &p->after, name, CLASS_ACT, 1, bytes, 1, r);
    home_create_apart(L, &p->after, r);
}

void passing_bind(struct lowering *L, const struct block *b, struct passing *p, int end)
{
    if (!p->absent)
        value_bind_as(L, &p->after, BINDING_STATE, model_unit_of_layer(b->layer), end);
}

/* --- Visits --- */

/* Finds the rows that enter chunk c. Returns NULL if no rows enter the chunk. */
static struct value *find_before(const struct lowering *L, struct passing *p, int c, int64_t *row0, int64_t *row1)
{
    if (p->absent)
        return NULL;
    if (passing_reads_on(L) || !passing_begins_piece(L, c)) {
        *row0 = passing_reads_on(L) ? 0 : c - 1;
        *row1 = *row0 + 1;
        return &p->after;
    }
    *row0 = passing_piece(L, c) * p->stride;
    *row1 = *row0 + p->rows;
    return passing_is_shared(L) || passing_is_sliced(L) ? &p->before : NULL;
}

void passing_arg_before(struct lowering *L, int arg, struct passing *p, int c)
{
    int64_t row0, row1;
    struct value *v = find_before(L, p, c, &row0, &row1);
    if (v)
        arg_read(L, arg, v, row0, row1, DEV);
}

void passing_get_before(struct lowering *L, struct passing *p, int c)
{
    int64_t row0, row1;
    struct value *v = find_before(L, p, c, &row0, &row1);
    if (v)
        value_get(L, v, value_tile_at(v, row0));
}

void passing_drop_before(struct lowering *L, struct passing *p, int c)
{
    int64_t row0, row1;
    struct value *v = find_before(L, p, c, &row0, &row1);
    if (!v)
        return;
    value_drop(L, v, value_tile_at(v, row0));
    if (!(L->duties & DUTY_BACKWARD) && v == &p->after && !passing_is_shared(L) && !passing_reads_on(L)) /* visited once */
        value_forget(v, c - 1);
}

/* Copies the only row of a value, in a type that changes no number. */
static void copy_row(struct lowering *L, struct value *to, struct value *from)
{
    const enum dtype type = to->row_bytes % 4 ? BF16 : F32;
    lower_cast_rows(L, to, 0, type, from, 0, type, 1);
}

void passing_enter(struct lowering *L, struct passing *p)
{
    if (p->absent || !passing_is_sliced(L))
        return;
    value_new(L, &p->before, 0);
    copy_row(L, &p->before, &p->carry);
    value_put(L, &p->before, 0);
    value_pause(L, &p->before, 0);
}

void passing_enter_gradient(struct lowering *L, struct passing *p, struct value *gradient)
{
    if (p->absent)
        return;
    value_new(L, gradient, 0);
    if (passing_is_sliced(L) && !(L->duties & (DUTY_FIRST | DUTY_NEXT))) {
        copy_row(L, gradient, &p->dcarry);
        return;
    }
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = gradient->row_bytes;
    arg_write(L, 0, gradient, 0, 1, DEV);
    emit_done(L, 0);
}

void passing_leave_gradient(struct lowering *L, struct passing *p, struct value *gradient)
{
    if (p->absent)
        return;
    if (passing_is_sliced(L))
        copy_row(L, &p->dcarry, gradient);
    value_drop(L, gradient, 0);
}

/* Tells whether the slice hands the state behind chunk c on. */
static int hands_on(const struct lowering *L, int c)
{
    return passing_is_sliced(L) && c == L->n_chunks - 1 && L->phase != PHASE_BACKWARD;
}

/* Returns the value whose tile `c` is written after chunk c. */
static struct value *after_of(const struct lowering *L, struct passing *p)
{
    return passing_reads_on(L) ? p->room : &p->after;
}

int passing_begin_after(struct lowering *L, struct passing *p, int c)
{
    if (p->absent)
        return 0;
    if (hands_on(L, c))
        return 1;
    if (!passing_reads_on(L) && (passing_ends_piece(L, c) || value_where(&p->after, c) >= 0))
        return 0;
    value_new(L, after_of(L, p), c);
    return 1;
}

void passing_arg_after(struct lowering *L, int arg, struct passing *p, int c)
{
    if (hands_on(L, c))
        arg_write(L, arg, &p->carry, 0, 1, DEV);
    else
        arg_write(L, arg, after_of(L, p), c, c + 1, DEV);
}

void passing_end_after(struct lowering *L, struct passing *p, int c)
{
    struct value *v = &p->after, *after = after_of(L, p);
    const enum dtype type = v->row_bytes % 4 ? BF16 : F32; /* for a copy: no number is changed */
    if (hands_on(L, c))
        return;
    if (passing_reads_on(L)) {
        lower_cast_rows(L, v, c, type, after, c, type, 1);
        value_put_home(L, v, c, c + 1, DEV);
    } else {
        value_put(L, v, c);
    }
    value_drop(L, after, c);
}

void passing_keep_chunk(struct lowering *L, struct value *to, struct value *from, int c)
{
    const enum dtype T = L->s.key.dtype;
    const int64_t r0 = to->tiles[c].row0, r1 = to->tiles[c].row1;
    value_new(L, to, c);
    lower_cast_rows(L, to, r0, T, from, r0, T, r1 - r0);
    value_put(L, to, c);
    value_drop(L, to, c);
}
