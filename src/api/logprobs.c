/* Log-probabilities of given tokens, by the evaluation program. */
#include "api/session.h"

#include "base/num.h"
#include "base/sys.h"
#include "train/pipeline.h"

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

/* A pass over all sequences. */
struct scoring {
    const struct request *of;
    double *loss; /* [this rank's micro-batches][tokens of one]: 0 for other ranks' tokens */
    int64_t tokens;
};

/* Notes this rank's losses of the program that ran last. */
static void note(struct scoring *x, int64_t micro_batch)
{
    struct run *r = x->of->run;
    const struct io_buffers *io = &r->session->plan->io;
    const int32_t *targets = session_io(r->session, io->targets);
    const float *each = session_io(r->session, io->each);
    for (int64_t i = 0; i < batch_targets(r->batch); i++)
        if (targets[i] >= 0)
            x->loss[micro_batch * x->tokens + batch_token(r->batch, i)] = (double)each[i];
}

/* Collects the results of sequence k from the ranks that computed them. Each token's loss is on one rank and 0 on the others, so that
 * sums of doubles are exact. */
static enum status collect(struct scoring *x, int64_t k)
{
    struct run *r = x->of->run;
    const int64_t n = x->of->length[k], packed = r->session->plan->strategy.key.packed,
                  together = r->session->plan->strategy.key.mesh.degree[MESH_DP] * packed, micro_batch = k / together,
                  own = sequences_own(r, x->of->n, micro_batch);
    double *loss = sys_calloc((size_t)n, sizeof *loss);
    enum status st = loss ? OK : status_fail(ERR_NOMEM, "ltrain_logprobs: out of memory");
    if (st == OK && own >= 0 && k >= own && k < own + packed)
        memcpy(loss, &x->loss[micro_batch * x->tokens + (k - own) * run_length(r)], (size_t)n * sizeof *loss);
    for (int64_t i = 0; i < n && st == OK; i += INT_MAX)
        st = comm_sum(r->comm, loss + i, (int)min_i64(INT_MAX, n - i));
    x->of->out[k][0] = 0;
    for (int64_t i = 1; i < n && st == OK; i++)
        x->of->out[k][i] = -(float)loss[i - 1];
    free(loss);
    return st;
}

/* Computes the micro-batches one after another. */
static enum status run_each(struct scoring *x, const struct sequence_source *source)
{
    struct run *r = x->of->run;
    const enum plan_program which = r->session->plan->programs[PLAN_EVAL] ? PLAN_EVAL : PLAN_UPDATE_STEP;
    for (int64_t i = 0; i < sequences_micro_batches(r, x->of->n); i++) {
        struct tally ignored = {0};
        int cut;
        TRY(sequences_publish(r, source, sequences_own(r, x->of->n, i), x->of->n, &ignored));
        run_fill_record(r, 1, 0);
        TRY(session_run(r->session, which, NULL));
        TRY(comm_section_end(r->comm, &cut));
        note(x, i);
    }
    return OK;
}

static enum status run_half(void *user, const struct tick_work *w, int64_t micro_batch, const struct half_run *half)
{
    struct scoring *x = user;
    TRY(session_run_half(x->of->run->session, w->program, half, NULL));
    if (w->program == PLAN_EVAL)
        note(x, micro_batch);
    return OK;
}

/* Passes all micro-batches through a pipeline. */
static enum status run_stages(struct scoring *x, const struct sequence_source *source)
{
    struct run *r = x->of->run;
    const struct ticks t = plan_evaluation_ticks(r->session->plan, sequences_micro_batches(r, x->of->n));
    const struct pipeline_pass pass = {source, x->of->n, 1, 0, run_half, x, NULL};
    int cut;
    TRY(pipeline_run(r, &t, &pass));
    return comm_section_end(r->comm, &cut);
}

static enum status score(struct request *of)
{
    struct run *r = of->run;
    const struct sequence_source source = {.take = take, .user = of};
    struct scoring x = {.of = of, .tokens = r->session->plan->strategy.seq_len};
    TRY(run_flush(r));
    x.loss = sys_calloc((size_t)(sequences_micro_batches(r, of->n) * x.tokens) + 1, sizeof *x.loss);
    enum status st = x.loss ? OK : status_fail(ERR_NOMEM, "ltrain_logprobs: out of memory");
    if (st == OK)
        st = (strategy_stages(&r->session->plan->strategy) > 1 ? run_stages : run_each)(&x, &source);
    for (int64_t k = 0; k < of->n && st == OK; k++)
        st = collect(&x, k);
    free(x.loss);
    return st;
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
