/* Log-probabilities of given tokens, by the evaluation program. */
#include "api/session.h"

#include "base/num.h"
#include "base/sys.h"
#include "train/sequences.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct run *run;
    int64_t n;
    const int64_t *length;
    const int32_t *const *tokens;
    float *const *out;
};

static enum status check_one(const struct request *x, int64_t k)
{
    const int64_t room = run_length(x->run), vocab = x->run->model->config.vocab;
    if (x->length[k] < 1 || x->length[k] > room)
        return status_fail(ERR_INVALID,
                           "ltrain_logprobs: sequence %lld has %lld tokens, and the session takes 1 to %lld (seq-len)",
                           (long long)k, (long long)x->length[k], (long long)room);
    if (!x->tokens[k] || !x->out[k])
        return status_fail(ERR_INVALID, "ltrain_logprobs: sequence %lld has no %s", (long long)k,
                           x->tokens[k] ? "room for its results" : "tokens");
    for (int64_t i = 0; i < x->length[k]; i++)
        if (x->tokens[k][i] < 0 || x->tokens[k][i] >= vocab)
            return status_fail(ERR_INVALID, "ltrain_logprobs: sequence %lld: token %lld is %d, and ids are 0 to %lld",
                               (long long)k, (long long)i, x->tokens[k][i], (long long)vocab - 1);
    return OK;
}

static enum status check(const ltrain *s, const struct request *x)
{
    if (!(s->flags & (LTRAIN_LOGPROBS | LTRAIN_FROZEN)))
        return status_fail(ERR_INVALID, "ltrain_logprobs: open the session with LTRAIN_LOGPROBS, or with LTRAIN_FROZEN to train "
                                        "nothing");
    if (x->n < 0 || (x->n > 0 && (!x->length || !x->tokens || !x->out)))
        return status_fail(ERR_INVALID, "ltrain_logprobs: %lld sequences, and an array is NULL", (long long)x->n);
    for (int64_t k = 0; k < x->n; k++)
        TRY(check_one(x, k));
    return OK;
}

/* Lays out sequence `number`: one document, each token being the target of the token before. */
static enum status take(void *request, int64_t number, struct sequence *out, int64_t *used)
{
    const struct request *x = request;
    const int64_t n = x->length[number], window = x->run->model->mask_window[0];
    *used = n;
    out->n_targets = n - 1;
    out->n_tokens = n;
    out->pairs = 0;
    for (int64_t i = 0; i < n; i++) {
        out->tokens[i] = x->tokens[number][i];
        out->targets[i] = i + 1 < n ? x->tokens[number][i + 1] : -1;
        out->positions[i] = (int32_t)i;
        out->lo[i] = (int32_t)(window > 0 ? max_i64(0, i - window + 1) : 0);
        out->hi[i] = (int32_t)i;
        out->pairs += (double)(i - out->lo[i] + 1);
    }
    return OK;
}

/* Collects the results of sequence k from the ranks that computed them. place: the sequence's place in this rank's micro-batch, -1: none.
 * Each token's loss is on one rank and 0 on the others, so that sums of doubles are exact. */
static enum status collect(const struct request *x, int64_t k, int64_t place)
{
    struct run *r = x->run;
    const int64_t n = x->length[k];
    const struct io_buffers *io = &r->session->plan->io;
    const int32_t *targets = session_io(r->session, io->targets);
    const float *each = session_io(r->session, io->each);
    double *loss = sys_calloc((size_t)n, sizeof *loss);
    TRY(comm_agree(r->comm, loss ? OK : status_fail(ERR_NOMEM, "out of memory: the results of %lld tokens", (long long)n)));
    for (int64_t i = 0; place >= 0 && i < batch_targets(r->batch); i++) {
        const int64_t token = batch_token(r->batch, i) - place * run_length(r);
        if (targets[i] >= 0 && token >= 0 && token < n)
            loss[token] = (double)each[i];
    }
    enum status st = OK;
    for (int64_t i = 0; i < n && st == OK; i += INT_MAX)
        st = comm_sum(r->comm, loss + i, (int)min_i64(INT_MAX, n - i));
    x->out[k][0] = 0;
    for (int64_t i = 1; i < n && st == OK; i++)
        x->out[k][i] = -(float)loss[i - 1];
    free(loss);
    return st;
}

static enum status score(struct request *x)
{
    struct run *r = x->run;
    const struct sequence_source source = {.take = take, .user = x};
    const enum plan_program which = r->session->plan->programs[PLAN_EVAL] ? PLAN_EVAL : PLAN_UPDATE_STEP;
    const int64_t packed = r->session->plan->strategy.key.packed,
                  together = r->session->plan->strategy.key.mesh.degree[MESH_DP] * packed;
    if (strategy_stages(&r->session->plan->strategy) > 1)
        return status_fail(ERR_INVALID, "texts are not scored by stages yet: open the trainer on a mesh without pp");
    TRY(run_flush(r));
    for (int64_t i = 0; i < sequences_micro_batches(r, x->n); i++) {
        struct tally ignored = {0};
        int cut;
        const int64_t own = sequences_own(r, x->n, i);
        TRY(sequences_publish(r, &source, own, x->n, &ignored));
        run_fill_record(r, 1, 0);
        TRY(session_run(r->session, which, NULL));
        TRY(comm_section_end(r->comm, &cut));
        for (int64_t k = i * together; k < min_i64(x->n, (i + 1) * together); k++)
            TRY(collect(x, k, own >= 0 && k >= own && k < own + packed ? k - own : -1));
    }
    return OK;
}

int ltrain_logprobs(ltrain *s, int64_t n, const int64_t *length, const int32_t *const *tokens, float *const *out)
{
    FILE *before;
    TRY(api_enter(s, &before));
    struct request x = {.run = &s->run, .n = n, .length = length, .tokens = tokens, .out = out};
    enum status st = comm_agree(s->comm, check(s, &x));
    if (st == OK)
        st = score(&x);
    return api_leave(s, before, st);
}
