/* Computing a step a second time: digests of gradients, their comparison, and what a difference is called. */
#include "train/twice.h"

#include "base/process.h"
#include "base/sys.h"
#include "engine/session_state.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Elements of a tensor that have a digest of their own: 1/8192 of the gradients' bytes in host memory. */
enum { BLOCK = 1 << 14 };

/* Digests of what this rank holds of the gradients after a computation. */
struct digest {
    const struct model *m;
    int64_t *begin;  /* [n_params + 1]: each tensor's first block */
    uint64_t *block; /* sums of hashes; 0: nothing is held */
    double loss, norm;
};

/* Results of a step's computations; the third only after a difference. */
enum { FIRST, SECOND, THIRD, COMPUTATIONS };
struct twice {
    struct run *r;
    struct digest of[COMPUTATIONS];
};

int twice_is_due(const struct run *r)
{
    return r->s->verify_every > 0 && (r->progress.at.step + 1) % r->s->verify_every == 0;
}

/* ---- digests ---- */

static enum status digest_create(const struct model *m, struct digest *d)
{
    *d = (struct digest){.m = m, .begin = sys_calloc((size_t)m->n_params + 1, sizeof *d->begin)};
    if (d->begin) {
        for (int i = 0; i < m->n_params; i++)
            d->begin[i + 1] = d->begin[i] + (m->params[i].trained ? ceil_div(m->params[i].elements, BLOCK) : 0);
        d->block = sys_calloc((size_t)d->begin[m->n_params] + 1, sizeof *d->block);
    }
    return d->block ? OK : status_fail(ERR_NOMEM, "--verify-every: out of memory for digests of gradients");
}

static void digest_free(struct digest *d)
{
    free(d->begin);
    free(d->block);
}

/* Adds elements [a, b) of a unit, all of parameter i, to its blocks. data: element a. */
static void add_to_blocks(struct digest *d, int i, int64_t a, int64_t b, const float *data)
{
    const int64_t offset = d->m->params[i].offset;
    for (int64_t at = a, end; at < b; at = end) {
        const int64_t block = (at - offset) / BLOCK;
        end = min_i64(b, offset + (block + 1) * BLOCK);
        d->block[d->begin[i] + block] += XXH3_64bits_withSeed(data + (at - a), (size_t)(end - at) * sizeof *data, (uint64_t)at);
    }
}

static enum status add_piece(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct digest *d = user;
    const struct model_unit *u = &d->m->units[unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &d->m->params[i];
        const int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        if (p->trained && a < b)
            add_to_blocks(d, i, a, b, data + (a - first));
    }
    return OK;
}

/* Takes the digests of a computation that has just ended. */
static enum status take(struct twice *t, int which, double loss)
{
    struct digest *d = &t->of[which];
    struct session *s = t->r->session;
    TRY(digest_create(s->model, d));
    d->loss = loss;
    d->norm = ((const struct norm_result *)session_io(s, s->plan->io.norm))->norm;
    for (int u = 0; u < d->m->n_units; u++)
        TRY(session_visit(s, u, STATE_GRAD, STATE_READ, add_piece, d));
    return OK;
}

static int same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static int are_equal(const struct digest *a, const struct digest *b)
{
    return same_number(a->loss, b->loss) && same_number(a->norm, b->norm) &&
           memcmp(a->block, b->block, (size_t)a->begin[a->m->n_params] * sizeof *a->block) == 0;
}

/* ---- differences ---- */

/* A tensor whose gradient differs. */
struct place {
    int param, others;   /* others: number of further tensors that differ */
    int64_t first, last; /* blocks of the tensor that differ */
};

/* Finds the differing matrix whose gradient is computed first, which is mostly the last in the model's order; a vector, which stands
 * behind all matrices of its layer, where no matrix differs. Returns 0 if all agree. */
static int find_place(const struct digest *a, const struct digest *b, struct place *out)
{
    int found = 0, matrices = 0;
    for (int i = 0; i < a->m->n_params; i++) {
        const int matrix = a->m->params[i].shape[1] > 0;
        int64_t first = -1, last = -1;
        for (int64_t k = a->begin[i]; k < a->begin[i + 1]; k++)
            if (a->block[k] != b->block[k]) {
                first = first < 0 ? k - a->begin[i] : first;
                last = k - a->begin[i];
            }
        if (first < 0)
            continue;
        if (matrix || matrices == 0)
            *out = (struct place){i, 0, first, last};
        matrices += matrix;
        found++;
    }
    out->others = found - 1;
    return found > 0;
}

/* Writes the differing gradient: "the gradient of NAME, rows 0 to 127 of 256 (and of 3 other tensors)". */
static void name_place(const struct digest *d, const struct place *x, char *text, size_t bytes)
{
    const struct model_param *p = &d->m->params[x->param];
    const int64_t columns = max_i64(1, p->shape[1]), rows = p->elements / columns,
                  end = min_i64(p->elements, (x->last + 1) * BLOCK);
    int n = snprintf(text, bytes, "the gradient of %s", p->name);
    if (x->first > 0 || end < p->elements)
        n += snprintf(text + n, bytes - (size_t)n, ", rows %lld to %lld of %lld", (long long)(x->first * BLOCK / columns),
                      (long long)((end - 1) / columns), (long long)rows);
    if (x->others > 0)
        snprintf(text + n, bytes - (size_t)n, " (and of %d other tensor%s)", x->others, x->others == 1 ? "" : "s");
}

/* Says with which of two unlike computations the third one agrees. cut: it was ended early. */
static const char *judge(const struct twice *t, int cut)
{
    const struct digest *third = &t->of[THIRD];
    if (cut)
        return "a signal ended the third one";
    return are_equal(third, &t->of[SECOND])  ? "a third one agrees with the second"
           : are_equal(third, &t->of[FIRST]) ? "a third one agrees with the first"
                                             : "a third one agrees with neither";
}

/* Fails with the sentence about a difference on this rank. ranks: number of ranks with one. */
static enum status blame(const struct twice *t, int ranks, int cut)
{
    const struct run *r = t->r;
    const struct digest *a = &t->of[FIRST], *b = &t->of[SECOND];
    char what[256] = "the loss alone", on[64] = "", left[512] = "";
    struct place place;
    struct process self;
    process_self(&self);
    if (find_place(a, b, &place))
        name_place(a, &place, what, sizeof what);
    else if (!same_number(a->norm, b->norm))
        snprintf(what, sizeof what, "the gradients' norm alone");
    if (comm_size(r->comm) > 1) { /* run_close says what is left of a run alone */
        snprintf(on, sizeof on, ", on %d of %d ranks", ranks, comm_size(r->comm));
        left[0] = ';';
        left[1] = ' ';
        run_describe_left(r, left + 2, sizeof left - 2);
    }
    return status_fail(
        ERR_CORRUPT,
        "step %lld: %s differs between two computations of the same state%s (host %s, %s); the loss %s; %s: memory, "
        "processor or drive erred without a word, and nothing of this step was saved%s",
        (long long)r->progress.at.step + 1, what, on, self.host, r->s->gpu_name[0] ? r->s->gpu_name : r->session->backend->name,
        same_number(a->loss, b->loss) ? "is the same" : "differs, too", judge(t, cut), left);
}

/* Computes a third time, and says on all ranks what differed. */
static enum status find_culprit(struct twice *t, int differs, int ranks, twice_computer *again, void *user)
{
    double loss;
    int cut;
    TRY(again(user, &loss, &cut));
    TRY(comm_agree(t->r->comm, cut ? OK : take(t, THIRD, loss)));
    return comm_agree(t->r->comm, differs ? blame(t, ranks, cut) : OK);
}

static enum status compare(struct twice *t, double loss, twice_computer *again, void *user, int *cut)
{
    double differs;
    TRY(comm_agree(t->r->comm, take(t, FIRST, loss)));
    session_displace(t->r->session, 1); /* memory that errs at one address errs in other values then */
    const enum status computed = again(user, &loss, cut);
    session_displace(t->r->session, -1);
    TRY(computed);
    if (*cut)
        return OK;
    TRY(comm_agree(t->r->comm, take(t, SECOND, loss)));
    const int own = !are_equal(&t->of[FIRST], &t->of[SECOND]);
    differs = own;
    TRY(comm_sum(t->r->comm, &differs, 1));
    return differs > 0 ? find_culprit(t, own, (int)differs, again, user) : OK;
}

enum status twice_compare(struct run *r, double loss, twice_computer *again, void *user, int *cut)
{
    struct twice t = {.r = r};
    const enum status st = compare(&t, loss, again, user, cut);
    for (int i = 0; i < COMPUTATIONS; i++)
        digest_free(&t.of[i]);
    r->measured.verified += st == OK && !*cut;
    return st;
}
