/* Values: tiles, and the places of their copies. */
#include "plan/lower/value.h"

#include "base/sys.h"
#include "plan/lower/lowering.h"

#include <stdlib.h>
#include <string.h>

struct memory {
    struct memory *next;
    max_align_t objects[];
};

/* Keeps memory until the lowering ends. Returns its objects; NULL, and sets the status, if there is none. */
static void *keep_memory(struct lowering *L, struct memory *m)
{
    if (!m) {
        if (L->st == OK)
            L->st = status_no_memory("while planning");
        return NULL;
    }
    m->next = L->memory;
    L->memory = m;
    return m->objects;
}

void *memory_new(struct lowering *L, int n, size_t size)
{
    return keep_memory(L, sys_calloc(1, sizeof(struct memory) + (size_t)(n > 0 ? n : 1) * size));
}

/* Returns n objects as memory_new does, but with any contents. */
static void *memory_unset(struct lowering *L, int n, size_t size)
{
    return keep_memory(L, sys_malloc(sizeof(struct memory) + (size_t)(n > 0 ? n : 1) * size));
}

void memory_free(struct lowering *L)
{
    while (L->memory) {
        struct memory *m = L->memory;
        L->memory = m->next;
        free(m);
    }
}

void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r)
{
    memset(v, 0, sizeof *v);
    v->class = class;
    v->rows = cuts[n_cuts];
    v->row_bytes = row_bytes;
    v->full_buffer = -1;
    v->tensor = program_add_tensor(L->p, name, class, v->rows, row_bytes);
    v->tiles = memory_unset(L, n_cuts, sizeof *v->tiles);
    if (!v->tiles)
        return;
    v->n_tiles = n_cuts;
    for (int i = 0; i < n_cuts; i++)
        v->tiles[i] = (struct tile){
            .row0 = cuts[i], .row1 = cuts[i + 1], .residency = r, .place = {NOWHERE, NOWHERE, NOWHERE, NOWHERE}, .home = NOWHERE};
}

void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r)
{
    int n = (int)ceil_div(rows, cut);
    int64_t *cuts = memory_unset(L, n + 1, sizeof *cuts);
    memset(v, 0, sizeof *v);
    if (!cuts)
        return;
    for (int i = 0; i <= n; i++)
        cuts[i] = min_i64(i * cut, rows);
    value_create_cuts(L, v, name, class, row_bytes, cuts, n, r);
}

int value_tile_at(const struct value *v, int64_t row)
{
    int lo = 0, hi = v->n_tiles - 1;
    if (hi <= 0)
        return 0;
    int64_t guess = row / v->tiles[0].row1; /* most tiles are of one size */
    if (guess <= hi && v->tiles[guess].row0 <= row && row < v->tiles[guess].row1)
        return (int)guess;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (v->tiles[mid].row0 <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class)
{
    return program_add_buffer(L->p, tier, bytes, class, 0);
}

int64_t value_tile_bytes(const struct value *v, int tile)
{
    return (v->tiles[tile].row1 - v->tiles[tile].row0) * v->row_bytes;
}

int value_on_device(const struct value *v, int tile)
{
    return v->tiles[tile].place[TIER_DEVICE].buffer >= 0;
}

struct place value_device_place(struct lowering *L, struct value *v, int tile)
{
    if (v->full_buffer >= 0)
        return (struct place){v->full_buffer, v->tiles[tile].row0 * v->row_bytes};
    return (struct place){buffer_new(L, TIER_DEVICE, value_tile_bytes(v, tile), v->class), 0};
}

void value_new(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    for (int k = 0; k < PLACES; k++)
        t->place[k] = NOWHERE;
    v->changes++;
    t->place[TIER_DEVICE] = value_device_place(L, v, tile);
}

int value_where(const struct value *v, int64_t row)
{
    const struct tile *t = &v->tiles[value_tile_at(v, row)];
    for (int k = 0; k < TIERS; k++)
        if (t->place[k].buffer >= 0)
            return k;
    return -1;
}

int value_lives_full(const struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (v->tiles[i].residency != RES_DEVICE)
            return 0;
    return v->full;
}

void value_drop(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    (void)L;
    if (t->residency != RES_DEVICE || t->place[PLACE_KEEP].buffer >= 0) {
        t->place[TIER_DEVICE] = NOWHERE;
        v->changes++;
    }
}

void value_forget(struct value *v, int tile)
{
    v->changes++;
    for (int k = 0; k < PLACES; k++)
        v->tiles[tile].place[k] = NOWHERE;
}

void value_pause(struct lowering *L, struct value *v, int tile)
{
    if (!v->lingers)
        value_drop(L, v, tile);
}

static void value_drop_all(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        value_drop(L, v, i);
}

void value_leave(struct lowering *L, struct value *v)
{
    for (int i = 0; v->staged && i < v->n_tiles; i++)
        v->tiles[i].place[TIER_HOST] = NOWHERE;
    v->changes++;
    if (v->lingers)
        value_drop_all(L, v);
    v->lingers = 0;
}

void value_reset_full(struct value *v)
{
    v->full_buffer = -1;
}

void value_open_full(struct lowering *L, struct value *v)
{
    if (v->full_buffer < 0)
        v->full_buffer = buffer_new(L, TIER_DEVICE, v->rows * v->row_bytes, v->class);
}

void value_close_full(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        value_pause(L, v, i);
    if (!value_lives_full(v))
        v->full_buffer = -1;
}

void value_keep_home(struct value *v, int64_t row0, int64_t row1)
{
    v->changes++;
    for (int i = value_tile_at(v, row0); i < v->n_tiles && v->tiles[i].row0 < row1; i++) {
        struct tile *t = &v->tiles[i];
        for (int k = 0; k < PLACES; k++)
            if (k != (int)residency_tier(t->residency) || t->place[k].buffer != t->home.buffer)
                t->place[k] = NOWHERE;
    }
}
