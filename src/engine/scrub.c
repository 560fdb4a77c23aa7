/* Scrubbing: a table of pieces with their checksums. */
#include "engine/scrub.h"

#include "base/num.h"
#include "base/parallel.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/xxh3.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PIECE = 256 << 10 }; /* bytes of a piece at most; pieces end at its multiples, too */

/* Bytes of one kind of state of a unit. */
struct piece {
    int64_t at, end; /* place in the host arena */
    int16_t unit;
    uint8_t kind;                 /* enum binding_kind */
    _Atomic uint8_t known;        /* 1: `sum` is the checksum of its bytes */
    _Atomic uint32_t begun, done; /* writes; a checksum holds only while they are equal */
    _Atomic uint64_t sum;
};

struct scrub {
    const struct model *model;
    const char *host;
    struct piece *pieces; /* sorted, without overlap */
    int64_t n;
    int threads;             /* threads that sum all pieces */
    _Atomic int64_t checked; /* bytes */
};

/* ---- the pieces of a plan ---- */

static int is_state(const struct program *p, const struct binding *b)
{
    const int kinds = 1 << BINDING_PARAM | 1 << BINDING_MASTER | 1 << BINDING_M | 1 << BINDING_V | 1 << BINDING_PACKED;
    return p->buffers[b->buffer].tier == TIER_HOST && (kinds >> b->kind & 1);
}

static int64_t bytes_of(const struct program *p, const struct binding *b)
{
    return (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
}

/* Adds a binding's pieces. pieces NULL: only counts them. Returns the number so far. */
static int64_t add_pieces(const struct program *p, const struct binding *b, struct piece *pieces, int64_t n)
{
    const int64_t first = p->buffers[b->buffer].address + b->offset, last = first + bytes_of(p, b);
    for (int64_t at = first, end; at < last; at = end, n++) {
        end = min_i64(last, (at / PIECE + 1) * PIECE);
        if (pieces)
            pieces[n] = (struct piece){.at = at, .end = end, .unit = b->unit, .kind = b->kind};
    }
    return n;
}

static int64_t add_plan(const struct plan *plan, struct piece *pieces)
{
    int64_t n = 0;
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *p = plan->programs[k];
        for (int i = 0; p && i < p->n_live_in; i++)
            if (is_state(p, &p->live_in[i]))
                n = add_pieces(p, &p->live_in[i], pieces, n);
    }
    return n;
}

static int by_place(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->end > y->end) - (x->end < y->end);
}

/* Leaves one of equal pieces, as several programs bind the same state. Where programs cut it differently, pieces would overlap:
 * the one that begins later is left out. Returns the number left. */
static int64_t leave_unlike(struct piece *x, int64_t n)
{
    int64_t left = 0, end = -1;
    qsort(x, (size_t)n, sizeof *x, by_place);
    for (int64_t i = 0; i < n; i++) {
        if (x[i].at < end)
            continue;
        end = x[i].end;
        x[left++] = x[i];
    }
    return left;
}

int64_t scrub_plan_bytes(const struct plan *plan)
{
    const struct program *flush = plan->programs[PLAN_FLUSH], *p = flush ? flush : plan_any(plan);
    int64_t bytes = 0;
    for (int i = 0; i < p->n_live_in; i++)
        if (is_state(p, &p->live_in[i]))
            bytes += bytes_of(p, &p->live_in[i]);
    return bytes;
}

enum status scrub_create(const struct model *m, const char *host, struct scrub **out)
{
    struct scrub *s = sys_calloc(1, sizeof *s);
    if (!s)
        return status_fail(ERR_NOMEM, "--scrub: out of memory for checksums");
    s->model = m;
    s->host = host;
    *out = s;
    return OK;
}

enum status scrub_use(struct scrub *s, const struct plan *plan)
{
    const int64_t n = s ? add_plan(plan, NULL) : 0;
    struct piece *pieces = s ? sys_calloc((size_t)n + 1, sizeof *pieces) : NULL;
    if (!s)
        return OK;
    if (!pieces)
        return status_fail(ERR_NOMEM, "--scrub: out of memory for checksums");
    (void)add_plan(plan, pieces);
    free(s->pieces);
    s->pieces = pieces;
    s->n = leave_unlike(pieces, n);
    s->threads = plan->strategy.target->threads;
    return OK;
}

void scrub_destroy(struct scrub *s)
{
    if (!s)
        return;
    free(s->pieces);
    free(s);
}

int64_t scrub_checked_bytes(const struct scrub *s)
{
    return s ? atomic_load(&s->checked) : 0;
}

/* ---- checksums ---- */

/* Returns the first piece that ends behind a place. */
static int64_t find(const struct scrub *s, int64_t at)
{
    int64_t low = 0, high = s->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (s->pieces[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t sum_of(const struct scrub *s, const struct piece *x)
{
    return XXH3_64bits(s->host + x->at, (size_t)(x->end - x->at));
}

/* Tells whether a write is under way; the number of writes begun goes to *begun. */
static int is_written(struct piece *x, uint32_t *begun)
{
    *begun = atomic_load(&x->begun);
    return *begun != atomic_load(&x->done);
}

static enum status blame(const struct scrub *s, const struct piece *x)
{
    static const char *const kinds[] = {[BINDING_PARAM] = "parameters",
                                        [BINDING_MASTER] = "fp32 masters",
                                        [BINDING_M] = "first moments",
                                        [BINDING_V] = "second moments",
                                        [BINDING_PACKED] = "quantised matrices"};
    const struct model_unit *u = &s->model->units[x->unit];
    struct process self;
    process_self(&self);
    return status_fail(ERR_CORRUPT,
                       "host memory changed although nothing wrote there: %s of the unit that begins with %s, bytes %lld to %lld "
                       "of the host arena (host %s): memory erred, or something wrote astray; nothing of this step was saved",
                       kinds[x->kind], s->model->params[u->first_param].name, (long long)x->at, (long long)x->end - 1, self.host);
}

static enum status check_piece(struct scrub *s, struct piece *x)
{
    uint32_t before, after;
    if (!atomic_load(&x->known) || is_written(x, &before))
        return OK;
    const uint64_t noted = atomic_load(&x->sum), sum = sum_of(s, x);
    if (is_written(x, &after) || after != before) /* a device's copy has overtaken this check */
        return OK;
    atomic_fetch_add(&s->checked, x->end - x->at);
    return sum == noted ? OK : blame(s, x);
}

static void sum_piece(struct scrub *s, struct piece *x)
{
    uint32_t before, after;
    if (is_written(x, &before))
        return;
    const uint64_t sum = sum_of(s, x);
    if (is_written(x, &after) || after != before)
        return;
    atomic_store(&x->sum, sum);
    atomic_store(&x->known, 1);
}

enum status scrub_check(struct scrub *s, int64_t at, int64_t bytes)
{
    for (int64_t i = s ? find(s, at) : 0; s && i < s->n && s->pieces[i].end <= at + bytes; i++)
        if (s->pieces[i].at >= at)
            TRY(check_piece(s, &s->pieces[i]));
    return OK;
}

void scrub_forget(struct scrub *s, int64_t at, int64_t bytes)
{
    for (int64_t i = s ? find(s, at) : 0; s && i < s->n && s->pieces[i].at < at + bytes; i++)
        atomic_store(&s->pieces[i].known, 0);
}

/* Pieces [first, end), for one thread. */
struct taking {
    struct scrub *s;
    int64_t first, end;
};

static enum status take(void *job)
{
    const struct taking *t = job;
    for (int64_t i = t->first; i < t->end; i++)
        if (!atomic_load(&t->s->pieces[i].known))
            sum_piece(t->s, &t->s->pieces[i]);
    return OK;
}

void scrub_take(struct scrub *s)
{
    enum { EACH = 256 }; /* pieces that are worth a thread */
    struct taking jobs[PARALLEL_MOST];
    int64_t unknown = 0;
    for (int64_t i = 0; s && i < s->n; i++) {
        struct piece *x = &s->pieces[i];
        atomic_store(&x->done, atomic_load(&x->begun)); /* a program that was cut leaves none under way */
        unknown += !atomic_load(&x->known);
    }
    if (unknown == 0)
        return;
    const int64_t threads = min_i64(min_i64(s->threads, PARALLEL_MOST), ceil_div(unknown, EACH));
    for (int64_t k = 0; k < threads; k++)
        jobs[k] = (struct taking){s, s->n * k / threads, s->n * (k + 1) / threads};
    (void)parallel_run(take, jobs, sizeof *jobs, (int)threads);
}

/* ---- instructions ---- */

static int64_t place(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].address + o->offset;
}

/* Tells whether an operand may be state in host memory. */
static int is_of_host(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].tier == TIER_HOST && o->buffer < p->n_persistent;
}

enum status scrub_check_read(struct scrub *s, const struct program *p, const struct instr *in)
{
    for (int k = 0; s && k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (is_of_host(p, o) && (o->access & ACCESS_READ))
            TRY(scrub_check(s, place(p, o), o->bytes));
    }
    return OK;
}

void scrub_begin_write(struct scrub *s, const struct program *p, const struct instr *in)
{
    for (int k = 0; s && k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (!is_of_host(p, o) || !(o->access & ACCESS_WRITE))
            continue;
        const int64_t at = place(p, o);
        for (int64_t i = find(s, at); i < s->n && s->pieces[i].at < at + o->bytes; i++) {
            atomic_fetch_add(&s->pieces[i].begun, 1);
            atomic_store(&s->pieces[i].known, 0);
        }
    }
}

void scrub_end_write(struct scrub *s, const struct program *p, const struct instr *in)
{
    for (int k = 0; s && k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (!is_of_host(p, o) || !(o->access & ACCESS_WRITE))
            continue;
        const int64_t at = place(p, o), end = at + o->bytes;
        for (int64_t i = find(s, at); i < s->n && s->pieces[i].at < end; i++) {
            struct piece *x = &s->pieces[i];
            atomic_fetch_add(&x->done, 1);
            if (x->at >= at && x->end <= end)
                sum_piece(s, x);
        }
    }
}
