/* Accessing a session's state in its homes: visiting piece by piece, or filling by several threads. */
#include "engine/session_state.h"

#include "base/blocks8.h"
#include "base/parallel.h"
#include "engine/scrub.h"
#include "model/part.h"
#include "model/share.h"
#include "plan/lower/groups.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A piece of state in its home, and its range in the unit. */
struct piece {
    struct binding at;
    enum dtype type;
    int unit;
    enum state_kind kind;
    int64_t first, n;          /* n: elements; the binding's rows beyond n are a shard's padding */
    int64_t room;              /* elements including padding */
    enum blocks8_kind packing; /* packing of I8 */
};

static void unpack(const struct piece *x, const void *stored, float *data)
{
    if (x->type == I8) {
        blocks8_unpack(x->packing, stored, x->room, data);
        return;
    }
    for (int64_t i = 0; i < x->n; i++)
        data[i] = x->type == F32 ? ((const float *)stored)[i] : bf16_to_float(((const bf16 *)stored)[i]);
}

static void pack(const struct piece *x, const float *data, void *stored)
{
    if (x->type == I8) {
        blocks8_pack(x->packing, data, x->room, stored);
        return;
    }
    for (int64_t i = 0; i < x->room; i++) {
        if (x->type == F32)
            ((float *)stored)[i] = data[i];
        else
            ((bf16 *)stored)[i] = bf16_from_float(data[i]);
    }
}

/* Returns the number of ranks that share the unit's experts out; 1: none do. */
static int shared_out(const struct session *s, int unit)
{
    return model_share_of(s->model, mesh_degree(&s->plan->strategy.key.mesh, MESH_EP), unit);
}

/* Returns the model whose elements the rank holds: its slice, or the session's. */
static const struct model *held(const struct session *s)
{
    return s->slice ? s->slice : s->model;
}

static int is_sharded(const struct session *s, int unit, enum state_kind kind)
{
    return plan_unit_zero(held(s), &s->plan->strategy, unit) >= (kind == STATE_PARAM ? 3 : 1);
}

enum lane session_copies_lane(const struct session *s)
{
    return s->slice ? LANE_ZERO : LANE_EXPERTS;
}

enum state_holding session_holding(const struct session *s, int unit, enum state_kind kind)
{
    const struct strategy *st = &s->plan->strategy;
    if (is_sharded(s, unit, kind))
        return HELD_IN_SHARDS;
    if (shared_out(s, unit) == 1 && !(s->slice && model_unit_in_layer(s->slice, unit)))
        return HELD_BY_ALL;
    return mesh_members(&st->key.mesh, session_copies_lane(s)) > 1 ? HELD_IN_COPIES : HELD_IN_SHARDS;
}

int session_repeats(const struct session *s, int param, enum state_kind kind)
{
    const struct model *m = s->slice;
    int i = 0;
    if (!m || comm_member(s->comm, LANE_TP) == 0)
        return 0;
    while (i < m->n_params && m->params[i].whole != param)
        i++;
    return i < m->n_params && m->params[i].n_ranges == 0 && model_unit_in_layer(m, m->params[i].unit) &&
           !is_sharded(s, m->params[i].unit, kind);
}

int session_answers_for(const struct session *s, int unit)
{
    return unit != MODEL_EMBEDDING_UNIT || s->model->part.first_layer == 0 || !model_first_embeds(s->model);
}

int session_unit(const struct session *s, int of_whole)
{
    const struct model *m = s->model;
    for (int u = 0; u < m->n_units; u++)
        if (m->whole->params[m->params[m->units[u].first_param].whole].unit == of_whole)
            return session_answers_for(s, u) ? u : -1;
    return -1;
}

enum dtype session_state_type(const struct session *s, const struct model_unit *unit, enum state_kind kind)
{
    const struct strategy *st = &s->plan->strategy;
    return kind == STATE_PARAM ? plan_unit_type(st, unit) : kind == STATE_M || kind == STATE_V ? st->key.moments : F32;
}

/* Returns the kind of binding by which the flush program binds a kind of state. At ZeRO stage 1 the update reads sums of gradients, not
 * gradients. In bf16 runs, which have masters, an fp32 unit is its own. */
static enum binding_kind binding_of(const struct session *s, int unit, enum state_kind kind)
{
    static const enum binding_kind kinds[] = {BINDING_PARAM, BINDING_MASTER, BINDING_M, BINDING_V, BINDING_GRAD};
    const struct strategy *st = &s->plan->strategy;
    if (kind == STATE_MASTER && st->key.dtype != F32 && !plan_has_masters(held(s), st, unit))
        return BINDING_PARAM;
    return kind == STATE_GRAD && plan_unit_zero(held(s), st, unit) == 1 ? BINDING_GRAD_SUM : kinds[kind];
}

/* Sets the piece to the rank's elements of the unit's index-th group. */
static void locate(const struct session *s, struct piece *x, int index)
{
    struct group g = plan_group(held(s), &s->plan->strategy, x->unit, index);
    int64_t share = g.shard_end - g.shard_first;
    if (!x->at.sharded)
        share = g.end - g.first;
    x->first = x->at.sharded ? min_i64(g.end, g.first + comm_member(s->comm, g.lane) * share) : g.first;
    x->n = min_i64(share, g.end - x->first);
    x->room = share;
}

/* ---- pieces of a range ---- */

struct walk {
    const struct session *s;
    struct state_range range;
    int unit, kind; /* unit and kind of state that the next piece is taken from */
    int at, index;  /* at: position in the program's live_in; index: next group */
};

static struct walk walk_begin(const struct session *s, struct state_range range)
{
    return (struct walk){.s = s, .range = range, .unit = range.unit, .kind = (int)range.first_kind};
}

/* Joins the pieces of a group's gradients, which are cut finer than groups. The group is one extent wherever it lies. */
static void join(struct walk *w, const struct program *p, struct piece *x)
{
    for (; w->at < p->n_live_in; w->at++) {
        const struct binding *next = &p->live_in[w->at];
        if (next->tensor != x->at.tensor || next->extent_offset != x->at.extent_offset)
            return;
        x->at.row1 = next->row1;
    }
}

/* Finds the unit's next piece of the walk's kind of state. Returns 0 if there is none. */
static int next_of_kind(struct walk *w, struct piece *x)
{
    const struct program *flush = w->s->plan->programs[PLAN_FLUSH], *p = flush ? flush : plan_any(w->s->plan);
    const enum state_kind kind = (enum state_kind)w->kind;
    const enum binding_kind as = binding_of(w->s, w->unit, kind);
    while (w->at < p->n_live_in) {
        x->at = p->live_in[w->at++];
        if (x->at.kind != as || x->at.unit != w->unit)
            continue;
        if (!x->at.sharded && kind == STATE_GRAD)
            join(w, p, x);
        x->first = x->at.row0;
        x->n = x->room = x->at.row1 - x->at.row0;
        if (x->at.sharded || x->type == I8)
            locate(w->s, x, w->index++);
        return 1;
    }
    return 0;
}

static int next_piece(struct walk *w, struct piece *x)
{
    for (; w->unit < w->range.unit + w->range.n_units; w->unit++, w->kind = (int)w->range.first_kind)
        for (; w->kind <= (int)w->range.last_kind; w->kind++, w->at = w->index = 0) {
            *x = (struct piece){.type = session_state_type(w->s, &w->s->model->units[w->unit], (enum state_kind)w->kind),
                                .unit = w->unit,
                                .kind = (enum state_kind)w->kind,
                                .packing = w->kind == STATE_V ? BLOCKS8_SQUARES : BLOCKS8_SIGNED};
            if (next_of_kind(w, x))
                return 1;
        }
    return 0;
}

/* ---- visiting ---- */

/* Returns this rank's share of the experts. */
static struct model_share share_of(const struct session *s)
{
    const int ep = mesh_degree(&s->plan->strategy.key.mesh, MESH_EP);
    return (struct model_share){ep, ep > 1 ? comm_member(s->comm, LANE_EP) : 0};
}

/* Finds the elements from `first` on of a piece in the whole unit, of which the rank may have a slice or a share of the experts.
 * Returns how many of the n elements follow each other there. */
static int64_t place_in_unit(const struct session *s, int unit, int64_t first, int64_t n, int64_t *there)
{
    const struct model_share share = share_of(s);
    int same;
    if (s->slice)
        return model_part_piece(s->slice, unit, first, n, &same, there);
    return model_share_piece(s->model, &share, unit, first, n, there);
}

/* Visits a piece's elements, which lie at `data`, as elements of the whole unit. */
static enum status visit_elements(const struct session *s, const struct piece *x, state_visitor *visit, void *user, float *data)
{
    for (int64_t done = 0, there, n; done < x->n; done += n) {
        n = place_in_unit(s, x->unit, x->first + done, x->n - done, &there);
        TRY(visit(user, x->unit, there, n, data + done));
    }
    return OK;
}

/* Returns the address of the piece in its tier; on nvme, its place in the store. */
static int64_t place_of(const struct session *s, const struct piece *x, enum tier *tier, int64_t *bytes)
{
    const struct buffer *b = &plan_any(s->plan)->buffers[x->at.buffer];
    *tier = b->tier;
    *bytes = (x->at.row1 - x->at.row0) * dtype_size(x->type);
    return b->address + x->at.offset;
}

/* Copies bytes at a tier's address to `stored`; host memory is used in place. */
static enum status read_stored(struct session *s, enum tier tier, int64_t at, void *stored, int64_t bytes)
{
    if (tier == TIER_NVME)
        return store_read(s->store, at, stored, bytes);
    return tier == TIER_DEVICE ? exec_read(&s->context, TIER_DEVICE, at, stored, bytes) : OK;
}

static enum status write_stored(struct session *s, enum tier tier, int64_t at, void *stored, int64_t bytes)
{
    if (tier == TIER_NVME)
        return store_write(s->store, at, stored, bytes);
    return tier == TIER_DEVICE ? exec_write(&s->context, TIER_DEVICE, at, stored, bytes) : OK;
}

/* Checks state in host memory that is read, and forgets the checksums of what is written. */
static enum status scrub_visit(struct session *s, enum tier tier, enum state_access access, int64_t at, int64_t bytes)
{
    if (tier != TIER_HOST)
        return OK;
    if (access == STATE_READ)
        return scrub_check(s->scrub, at, bytes);
    scrub_forget(s->scrub, at, bytes);
    return OK;
}

/* Visits a piece in the staging memory, or in place. */
static enum status visit_piece(struct session *s, const struct piece *x, enum state_access access, state_visitor *visit,
                               void *user)
{
    enum tier tier;
    int64_t bytes, at = place_of(s, x, &tier, &bytes);
    float *data = s->staging;
    void *stored = tier == TIER_HOST ? s->context.host + at : (char *)s->staging + s->staging_bytes;
    TRY(scrub_visit(s, tier, access, at, bytes));
    if (access == STATE_READ) {
        TRY(read_stored(s, tier, at, stored, bytes));
        unpack(x, stored, data);
        return visit_elements(s, x, visit, user, data);
    }
    memset(data, 0, (size_t)x->room * sizeof *data);
    TRY(visit_elements(s, x, visit, user, data));
    pack(x, data, stored);
    return write_stored(s, tier, at, stored, bytes);
}

enum status session_visit(struct session *s, int unit, enum state_kind kind, enum state_access access, state_visitor *visit,
                          void *user)
{
    struct walk w = walk_begin(s, (struct state_range){unit, 1, kind, kind});
    struct piece x;
    while (next_piece(&w, &x))
        TRY(visit_piece(s, &x, access, visit, user));
    return OK;
}

/* Visits bytes of quantised matrices, of which the rank may have a share of the experts', as bytes of the whole unit. */
static enum status visit_bytes(const struct session *s, int unit, int64_t first, int64_t n, bytes_visitor *visit, void *user,
                               uint8_t *bytes)
{
    const struct model_share share = share_of(s);
    for (int64_t done = 0, there, part; done < n; done += part) {
        part = model_share_bytes(s->model, &share, unit, first + done, n - done, &there);
        TRY(visit(user, unit, there, part, bytes + done));
    }
    return OK;
}

/* Visits the rank's bytes of the unit's index-th packed group, whose home the binding names. */
static enum status visit_packed_group(struct session *s, const struct binding *b, int index, enum state_access access,
                                      bytes_visitor *visit, void *user)
{
    const struct buffer *buf = &plan_any(s->plan)->buffers[b->buffer];
    const struct group g = plan_packed_group(held(s), &s->plan->strategy, b->unit, index);
    const int64_t room = b->row1 - b->row0, at = buf->address + b->offset,
                  first = b->sharded ? min_i64(g.end, g.first + comm_member(s->comm, g.lane) * room) : g.first,
                  n = min_i64(room, g.end - first);
    uint8_t *stored = buf->tier == TIER_HOST ? (uint8_t *)s->context.host + at : s->staging;
    TRY(scrub_visit(s, (enum tier)buf->tier, access, at, room));
    if (access == STATE_READ) {
        TRY(read_stored(s, (enum tier)buf->tier, at, stored, room));
        return visit_bytes(s, b->unit, first, n, visit, user, stored);
    }
    memset(stored, 0, (size_t)room);
    TRY(visit_bytes(s, b->unit, first, n, visit, user, stored));
    return write_stored(s, (enum tier)buf->tier, at, stored, room);
}

enum status session_visit_packed(struct session *s, int unit, enum state_access access, bytes_visitor *visit, void *user)
{
    const struct program *p = plan_any(s->plan);
    int index = 0;
    for (int i = 0; i < p->n_live_in; i++)
        if (p->live_in[i].kind == BINDING_PACKED && p->live_in[i].unit == unit)
            TRY(visit_packed_group(s, &p->live_in[i], index++, access, visit, user));
    return OK;
}

/* ---- filling ---- */

/* Division of the staging memory: two halves for whole groups, smaller slots for parts. */
enum { PART = 1 << 19, HALVES = 2, LEAST_SLOT = 64 << 10 };

/* State that the filling threads share. */
struct filling {
    struct session *s;
    state_filler *fill;
    void *user;
    int64_t slot_bytes;
    pthread_mutex_t lock, way; /* lock: of the fields below; way: of transfers to drives and devices */
    struct walk walk;
    struct piece piece;
    int64_t done;          /* elements of the piece taken by threads */
    int64_t parts, failed; /* parts: number taken; failed: the first that failed */
    enum status st;
    char message[1024];
};

struct filler {
    struct filling *f;
    char *slot; /* slot_bytes of scratch, for what is not made in place */
};

/* Returns the piece's memory if parts of it can be written there, else NULL. */
static char *reach(const struct session *s, const struct piece *x)
{
    enum tier tier;
    int64_t bytes, at = place_of(s, x, &tier, &bytes);
    if (x->type == I8 || tier == TIER_NVME || (tier == TIER_DEVICE && !s->backend->host_reaches))
        return NULL;
    return (tier == TIER_HOST ? s->context.host : s->backend->base) + at;
}

/* Tells whether a piece is written as a whole: drives take whole extents, and the blocks of I8 are packed together. */
static int is_whole(const struct session *s, const struct piece *x)
{
    enum tier tier;
    int64_t bytes;
    (void)place_of(s, x, &tier, &bytes);
    return x->type == I8 || tier == TIER_NVME;
}

/* Returns the most elements of the piece that one thread takes. */
static int64_t part_of(const struct filling *f, const struct piece *x)
{
    if (is_whole(f->s, x))
        return x->room;
    return reach(f->s, x) ? PART : f->slot_bytes / dtype_size(x->type);
}

/* Takes elements [*from, *end) of a piece for one thread. Returns the part's number, or -1 if nothing is left. */
static int64_t take(struct filling *f, struct piece *x, int64_t *from, int64_t *end)
{
    int64_t number = -1;
    pthread_mutex_lock(&f->lock);
    if (f->st == OK && (f->done < f->piece.room || (f->done = 0, next_piece(&f->walk, &f->piece)))) {
        *x = f->piece;
        *from = f->done;
        *end = f->done = min_i64(x->room, f->done + part_of(f, x));
        number = f->parts++;
    } else {
        f->piece.room = f->done = 0;
    }
    pthread_mutex_unlock(&f->lock);
    return number;
}

static void fail(struct filling *f, int64_t part, enum status st)
{
    pthread_mutex_lock(&f->lock);
    if (f->st == OK || part < f->failed) {
        f->st = st;
        f->failed = part;
        snprintf(f->message, sizeof f->message, "%s", status_message());
    }
    pthread_mutex_unlock(&f->lock);
}

/* Makes elements [from, end) of the piece, in `type`; a shard's padding is zero. */
static enum status make(const struct filling *f, const struct piece *x, int64_t from, int64_t end, enum dtype type, char *data)
{
    const int64_t used = max_i64(from, min_i64(end, x->n)), size = dtype_size(type);
    memset(data + (used - from) * size, 0, (size_t)((end - used) * size));
    if (used == from)
        return OK;
    if (!f->fill) {
        memset(data, 0, (size_t)((used - from) * size));
        return OK;
    }
    for (int64_t done = from, there, n; done < used; done += n) {
        n = place_in_unit(f->s, x->unit, x->first + done, used - done, &there);
        TRY(f->fill(f->user, &(struct state_part){x->unit, x->kind, there, n, type, data + (done - from) * size}));
    }
    return OK;
}

/* Makes an I8 piece; one thread uses both halves of the staging memory. */
static enum status make_packed(struct filler *own, const struct piece *x)
{
    struct session *s = own->f->s;
    char *stored = own->slot + s->staging_bytes;
    enum tier tier;
    int64_t bytes, at = place_of(s, x, &tier, &bytes);
    TRY(make(own->f, x, 0, x->room, F32, own->slot));
    pack(x, (const float *)own->slot, stored);
    if (tier != TIER_HOST)
        return write_stored(s, tier, at, stored, bytes);
    memcpy(s->context.host + at, stored, (size_t)bytes);
    return OK;
}

static enum status zero_device(struct filling *f, int64_t at, int64_t bytes)
{
    struct backend *b = f->s->backend;
    pthread_mutex_lock(&f->way);
    enum status st = backend_status(b, b->fill(b, b->base + at, 0, bytes));
    pthread_mutex_unlock(&f->way);
    return st;
}

/* Fills part of a piece in the thread's slot, then transfers that part to its place. */
static enum status make_and_put(struct filler *own, const struct piece *x, int64_t from, int64_t end)
{
    struct filling *f = own->f;
    enum tier tier;
    int64_t bytes, at = place_of(f->s, x, &tier, &bytes), size = dtype_size(x->type);
    if (!f->fill && tier == TIER_DEVICE)
        return zero_device(f, at + from * size, (end - from) * size);
    TRY(make(f, x, from, end, x->type, own->slot));
    pthread_mutex_lock(&f->way);
    enum status st = write_stored(f->s, tier, at + from * size, own->slot, is_whole(f->s, x) ? bytes : (end - from) * size);
    pthread_mutex_unlock(&f->way);
    return st;
}

static enum status make_part(struct filler *own, const struct piece *x, int64_t from, int64_t end)
{
    char *memory = reach(own->f->s, x);
    enum tier tier;
    int64_t bytes, at = place_of(own->f->s, x, &tier, &bytes);
    if (tier == TIER_HOST)
        scrub_forget(own->f->s->scrub, at, bytes);
    if (memory)
        return make(own->f, x, from, end, x->type, memory + from * dtype_size(x->type));
    return x->type == I8 ? make_packed(own, x) : make_and_put(own, x, from, end);
}

static enum status fill_parts(void *job)
{
    struct filler *own = job;
    struct filling *f = own->f;
    struct piece x;
    int64_t from = 0, end = 0, part;
    TRY(backend_status(f->s->backend, f->s->backend->enter(f->s->backend)));
    while ((part = take(f, &x, &from, &end)) >= 0) {
        enum status st = make_part(own, &x, from, end);
        if (st != OK)
            fail(f, part, st);
    }
    return OK;
}

/* Returns how many threads have something to do and get a slot if they need one. *slot_bytes: bytes of a slot. */
static int threads_for(struct session *s, struct state_range range, int64_t *slot_bytes)
{
    struct walk w = walk_begin(s, range);
    struct piece x;
    const int64_t staging = HALVES * s->staging_bytes, slots = max_i64(HALVES, staging / LEAST_SLOT);
    int64_t parts = 0, most = min_i64(s->plan->strategy.target->threads, PARALLEL_MOST);
    const int64_t part = min_i64(PART, staging / min_i64(most, slots) / (int64_t)sizeof(float));
    while (next_piece(&w, &x)) {
        parts += is_whole(s, &x) ? 1 : ceil_div(x.room, part);
        if (!reach(s, &x))
            most = min_i64(most, x.type == I8 ? 1 : is_whole(s, &x) ? HALVES : slots);
    }
    *slot_bytes = staging / most / BUFFER_ALIGN * BUFFER_ALIGN;
    return (int)max_i64(1, min_i64(most, parts));
}

enum status session_fill(struct session *s, struct state_range range, state_filler *fill, void *user)
{
    struct filling f = {.s = s, .fill = fill, .user = user, .walk = walk_begin(s, range)};
    struct filler job[PARALLEL_MOST];
    const int n = threads_for(s, range, &f.slot_bytes);
    for (int i = 0; i < n; i++)
        job[i] = (struct filler){&f, (i + 1) * f.slot_bytes <= HALVES * s->staging_bytes ? (char *)s->staging + i * f.slot_bytes
                                                                                         : NULL};
    pthread_mutex_init(&f.lock, NULL);
    pthread_mutex_init(&f.way, NULL);
    enum status st = parallel_run(fill_parts, job, sizeof *job, n);
    pthread_mutex_destroy(&f.lock);
    pthread_mutex_destroy(&f.way);
    TRY(st);
    return f.st == OK ? OK : status_fail(f.st, "%s", f.message);
}
