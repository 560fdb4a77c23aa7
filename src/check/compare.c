/* Comparing the state of all ranks with that of a rank that holds everything, unit by unit; shards go to rank 0 in small
 * messages. */
#include "check/compare.h"

#include "base/blocks8.h"
#include "base/sys.h"
#include "plan/lower/groups.h"

#include <stdlib.h>
#include <string.h>

#define PIECE (1 << 16) /* elements of a message */

struct message {
    int64_t first, n; /* elements of the unit; n = 0: this rank has no more */
    float data[PIECE];
};

struct piece {
    int64_t first, n, at; /* at: index of the piece's first element in `own` */
};

/* State of one unit's comparison. */
struct compare {
    const struct session *given;
    const struct model *m;
    enum state_kind kind;
    int unit;
    struct difference *d; /* rank 0 */
    float *alone;         /* rank 0: the unit's state in the reference run (alone.h) */
    float *gradient;      /* rank 0, if parameters are compared: the unit's gradient in the reference run */
    struct excuse excuse; /* rank 0: allowed differences of the unit */
    float *own;           /* this rank's shards, one after the other */
    struct piece *piece;
    int64_t room, used, piece_room, n_pieces;
    uint64_t *hash; /* hash by parameter of the unit, if several ranks hold the same */
    int ranks;
    enum state_holding holding;
    enum lane lane; /* lane whose members hold the same, if there are copies */
    int is_copy;    /* 1: the same shards are on another rank, which sends them */
};

static const struct model_param *param_of(const struct compare *c, int i)
{
    return &c->m->params[c->m->units[c->unit].first_param + i];
}

/* Visits n elements, from the unit's element `first` on, all of the unit's i-th parameter. each_part cuts a range of elements at
 * the parameters' borders. */
typedef void part_visitor(struct compare *c, int i, int64_t first, int64_t n, const float *data);
static void each_part(struct compare *c, int64_t first, int64_t n, const float *data, part_visitor *visit)
{
    for (int i = 0; i < c->m->units[c->unit].n_params; i++) {
        const struct model_param *p = param_of(c, i);
        int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        if (a < b)
            visit(c, i, a, b - a, data + (a - first));
    }
}

static void compare_part(struct compare *c, int i, int64_t first, int64_t n, const float *data)
{
    difference_add(&c->d[c->m->units[c->unit].first_param + i], first - param_of(c, i)->offset, n, data, c->alone + first,
                   (struct excuse){c->excuse.slack ? c->excuse.slack + first : NULL, c->excuse.turn});
    if (c->gradient)
        difference_add_felt(&c->d[c->m->units[c->unit].first_param + i], n, data, c->alone + first, c->gradient + first);
}

static void hash_part(struct compare *c, int i, int64_t first, int64_t n, const float *data)
{
    (void)first;
    for (int64_t k = 0; k < n; k++) { /* FNV-1a, by words */
        uint32_t bits;
        memcpy(&bits, &data[k], sizeof bits);
        c->hash[i] = (c->hash[i] ^ bits) * 0x100000001b3u;
    }
}

static enum status take_alone(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct compare *c = user;
    (void)unit;
    memcpy(c->alone + first, data, (size_t)n * sizeof *data);
    return OK;
}

static enum status take_gradient(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct compare *c = user;
    (void)unit;
    memcpy(c->gradient + first, data, (size_t)n * sizeof *data);
    return OK;
}

/* Tells whether another rank sends the elements of a piece, which are all of one parameter if there are slices. */
static int is_repeated(const struct compare *c, int64_t first)
{
    const struct model_unit *u = &c->m->units[c->unit];
    int i = u->first_param;
    while (i + 1 < u->first_param + u->n_params && first >= c->m->params[i + 1].offset)
        i++;
    return session_repeats(c->given, i, c->kind);
}

/* Makes room for a piece more: a slice's columns are a piece in every row. */
static enum status more_pieces(struct compare *c)
{
    if (c->n_pieces < c->piece_room)
        return OK;
    struct piece *more = sys_realloc(c->piece, (size_t)(2 * c->piece_room) * sizeof *more);
    if (!more)
        return status_fail(ERR_NOMEM, "check: out of memory for unit %d", c->unit);
    c->piece = more;
    c->piece_room *= 2;
    return OK;
}

static enum status take_shard(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct compare *c = user;
    if (c->holding == HELD_IN_COPIES)
        each_part(c, first, n, data, hash_part);
    if (c->is_copy || is_repeated(c, first))
        return OK;
    if (c->used + n > c->room)
        return status_fail(ERR_CORRUPT, "this rank's shards of unit %d hold more than its share", unit);
    TRY(more_pieces(c));
    memcpy(c->own + c->used, data, (size_t)n * sizeof *data);
    c->piece[c->n_pieces++] = (struct piece){first, n, c->used};
    c->used += n;
    return OK;
}

static enum status take_whole(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct compare *c = user;
    (void)unit;
    if (c->ranks > 1)
        each_part(c, first, n, data, hash_part);
    if (c->alone)
        each_part(c, first, n, data, compare_part);
    return OK;
}

/* Tells how a pipeline's ranks hold a unit of the whole model: those of a stage, or of the model's ends all. */
static enum state_holding held_by_stages(const struct model *m, const struct strategy *s, int unit, enum state_kind kind)
{
    return plan_unit_zero(m, s, unit) >= (kind == STATE_PARAM ? 3 : 1) ? HELD_IN_SHARDS : HELD_IN_COPIES;
}

/* Prepares this rank's share in memory and, on rank 0, the unit to compare with. */
static enum status prepare(struct compare *c, struct session *given, struct session *alone, enum state_kind kind)
{
    const struct strategy *s = &given->plan->strategy;
    const struct model_unit *u = &c->m->units[c->unit];
    int64_t elements = u->elements, groups = elements / s->key.group + u->n_params + 4;
    const int local = session_unit(given, c->unit), stages = strategy_stages(s);
    c->lane = stages > 1 ? plan_unit_lane(c->m, s, c->unit) : session_copies_lane(given);
    c->holding = stages > 1 ? held_by_stages(c->m, s, c->unit, kind) : session_holding(given, c->unit, kind);
    c->is_copy = c->holding == HELD_IN_COPIES && comm_member(given->comm, c->lane) > 0;
    int sharded = c->holding != HELD_BY_ALL;
    c->ranks = s->ranks;
    c->piece_room = groups;
    c->room = given->slice || stages > 1 ? elements
              : c->holding == HELD_IN_COPIES
                  ? elements / mesh_degree(&s->key.mesh, MESH_EP) + groups * (s->key.moments == I8 ? BLOCK8 : 1)
                  : elements / s->ranks + groups * (s->key.moments == I8 ? BLOCK8 : 1);
    c->hash = sys_calloc((size_t)c->m->units[c->unit].n_params + 1, sizeof *c->hash);
    c->piece = sys_calloc((size_t)groups, sizeof *c->piece);
    c->own = sharded ? sys_malloc((size_t)c->room * sizeof *c->own) : NULL;
    c->alone = alone ? sys_calloc((size_t)elements, sizeof *c->alone) : NULL;
    c->gradient = alone && kind == STATE_PARAM ? sys_calloc((size_t)elements, sizeof *c->gradient) : NULL;
    if (!c->hash || !c->piece || (sharded && !c->own) || (alone && !c->alone) || (alone && kind == STATE_PARAM && !c->gradient))
        return status_fail(ERR_NOMEM, "check: out of memory for unit %d", c->unit);
    for (int i = 0; alone && i < c->m->units[c->unit].n_params; i++)
        c->d[c->m->units[c->unit].first_param + i] = (struct difference){0};
    if (alone)
        TRY(session_visit(alone, c->unit, kind, STATE_READ, take_alone, c));
    if (c->gradient)
        TRY(session_visit(alone, c->unit, STATE_GRAD, STATE_READ, take_gradient, c));
    return local >= 0 ? session_visit(given, local, kind, STATE_READ, sharded ? take_shard : take_whole, c) : OK;
}

/* Compares every rank's hashes with those of the first rank that holds the same: rank 0 or, of experts, one with the same ones. */
static enum status compare_copies(struct compare *c, struct comm *comm)
{
    const struct mesh mesh = comm_mesh(comm);
    int n = c->m->units[c->unit].n_params, ranks = comm_size(comm);
    uint64_t *all = sys_calloc((size_t)(n * ranks), sizeof *all);
    enum status st = comm_agree(comm, all ? OK : status_fail(ERR_NOMEM, "check: out of memory for hashes"));
    if (st == OK)
        st = comm_gather(comm, c->hash, n * (int64_t)sizeof *all, all);
    for (int place = 0; place < ranks && st == OK && c->alone; place++) {
        const int r = comm_rank_at(comm, place),
                  like = c->holding == HELD_BY_ALL ? 0 : comm_rank_at(comm, mesh_group_of(&mesh, c->lane, place).first);
        for (int i = 0; i < n; i++) {
            struct difference *d = &c->d[c->m->units[c->unit].first_param + i];
            if (all[r * n + i] != all[like * n + i] && (d->rank == 0 || r < d->rank)) {
                d->rank = r;
                d->like = like;
            }
        }
    }
    free(all);
    return st;
}

/* Fills a message with this rank's next elements, from *from on in piece *k. */
static void fill(const struct compare *c, int64_t *k, int64_t *from, struct message *out)
{
    out->n = 0;
    if (*k >= c->n_pieces)
        return;
    const struct piece *p = &c->piece[*k];
    out->n = min_i64(PIECE, p->n - *from);
    out->first = p->first + *from;
    memcpy(out->data, c->own + p->at + *from, (size_t)out->n * sizeof *out->data);
    *from += out->n;
    if (*from == p->n) {
        *from = 0;
        ++*k;
    }
}

/* Compares shards in rounds of one message from every rank until none is left. */
static enum status compare_shards(struct compare *c, struct comm *comm)
{
    int ranks = comm_size(comm), left = 1;
    int64_t k = 0, from = 0;
    struct message *own = sys_calloc(1, sizeof *own), *all = sys_calloc((size_t)ranks, sizeof *all);
    enum status st = comm_agree(comm, own && all ? OK : status_fail(ERR_NOMEM, "check: out of memory for messages"));
    while (st == OK && left) {
        fill(c, &k, &from, own);
        st = comm_gather(comm, own, sizeof *own, all);
        left = 0;
        for (int r = 0; r < ranks && st == OK; r++) {
            left |= all[r].n > 0;
            if (c->alone && all[r].n > 0)
                each_part(c, all[r].first, all[r].n, all[r].data, compare_part);
        }
    }
    free(all);
    free(own);
    return st;
}

enum status check_unit(struct session *given, struct session *alone, int unit, enum state_kind kind, struct excuse excuse,
                       struct difference *d)
{
    struct compare c = {.given = given, .m = given->model->whole, .kind = kind, .unit = unit, .d = d, .excuse = excuse};
    enum status st = comm_agree(given->comm, prepare(&c, given, alone, kind));
    if (st == OK && c.holding != HELD_BY_ALL)
        st = compare_shards(&c, given->comm);
    if (st == OK && c.holding != HELD_IN_SHARDS)
        st = compare_copies(&c, given->comm);
    free(c.alone);
    free(c.gradient);
    free(c.own);
    free(c.piece);
    free(c.hash);
    return st;
}

/* ---- slack ---- */

struct moments {
    struct compare parts; /* parameter that each element belongs to */
    struct reach reach;
    const double *noise; /* noise of each parameter of the model */
    double *sum;         /* sum of v of each parameter of the unit; NULL: slack is added instead */
    const double *mean;
    float *slack; /* slack of each element of the unit */
};

static enum status add_moments(void *user, int unit, int64_t first, int64_t n, float *v)
{
    struct moments *m = user;
    const struct model_unit *u = &m->parts.m->units[unit];
    for (int i = 0; i < u->n_params; i++) {
        const struct model_param *p = param_of(&m->parts, i);
        int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        if (m->sum)
            for (int64_t k = a; k < b; k++)
                m->sum[i] += (double)v[k - first] / (double)p->elements;
        if (m->sum || a >= b)
            continue;
        m->reach.relative = m->noise[u->first_param + i];
        reach_add(&m->reach, v + (a - first), b - a, m->mean[i], m->slack + a);
    }
    return OK;
}

enum status check_reach(struct session *alone, int unit, const struct reach *r, const double *noise, float *slack)
{
    double *mean = sys_calloc((size_t)alone->model->units[unit].n_params + 1, sizeof *mean);
    struct moments m = {
        .parts = {.m = alone->model, .unit = unit}, .reach = *r, .noise = noise, .sum = mean, .mean = mean, .slack = slack};
    if (!mean)
        return status_fail(ERR_NOMEM, "check: out of memory for unit %d", unit);
    enum status st = session_visit(alone, unit, STATE_V, STATE_READ, add_moments, &m);
    m.sum = NULL;
    if (st == OK)
        st = session_visit(alone, unit, STATE_V, STATE_READ, add_moments, &m);
    free(mean);
    return st;
}
