/* Steps of a run: sequences in, programs run, loss and norm out. */
#include "train/run.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/sys.h"

#include <math.h>
#include <stdlib.h>

double run_learning_rate(const struct settings *s, int64_t step)
{
    double warm = s->warmup > 0 && step < s->warmup ? (double)(step + 1) / (double)s->warmup : 1;
    double total = (double)max_i64(1, s->plan.steps - s->warmup), t = (double)max_i64(0, step - s->warmup) / total;
    switch (s->schedule) {
    case SCHEDULE_LINEAR:
        return s->lr * warm * (1 - t);
    case SCHEDULE_COSINE:
        return s->lr * warm * 0.5 * (1 + cos(3.14159265358979 * (t < 1 ? t : 1)));
    case SCHEDULE_WSD: /* warm-up, stable, the last fifth decays */
        return s->lr * warm * (t < 0.8 ? 1 : (1 - t) / 0.2);
    default:
        return s->lr * warm;
    }
}

static void fill_record(struct run *r, int64_t targets)
{
    const struct settings *s = r->s;
    struct step_record *record = session_io(r->session, r->session->plan->io.record);
    double t = (double)r->at.updates;
    uint32_t random[4];
    rng_block(s->seed, rng_stream("moments"), (uint64_t)r->at.updates, random);
    *record = (struct step_record){.inv_targets = targets > 0 ? 1.0f / (float)targets : 0,
                                   .clip = (float)s->clip,
                                   .lr = (float)r->lr_pending,
                                   .weight_decay = (float)s->weight_decay,
                                   .beta1 = (float)s->beta1,
                                   .beta2 = (float)s->beta2,
                                   .eps = (float)s->eps,
                                   .bias1 = (float)(1 - pow((double)(float)s->beta1, t)), /* of the beta that is used */
                                   .bias2 = (float)(1 - pow((double)(float)s->beta2, t)),
                                   .rounding = random[0],
                                   .place = comm_place(r->comm)};
}

enum status run_flush(struct run *r)
{
    if (!r->pending)
        return OK;
    fill_record(r, 0);
    TRY(session_run(r->session, PLAN_FLUSH, NULL));
    r->pending = 0;
    return OK;
}

/* ---- sequences of this rank, and what all ranks' come to ---- */

/* Ranks that share their sequences count them once. */
struct tally {
    int64_t sequences, targets, tokens; /* tokens: without padding */
    double pairs[MODEL_MASKS];
    uint64_t digest; /* of the layouts: equal on ranks that share their sequences */
};

enum source { TRAINING, HELD_OUT };

/* Which of a step's `total` sequences this rank computes in its i-th micro-batch; -1: none is left for it. */
static int64_t own_sequence(const struct run *r, int64_t total, int64_t i)
{
    const struct strategy *s = &r->session->plan->strategy;
    int64_t n = i * s->mesh.degree[MESH_DP] + comm_place(r->comm) / (s->mesh.degree[MESH_ULYSSES] * s->mesh.degree[MESH_RING]);
    return n < total ? n : -1;
}

/* Attended pairs under a narrower window than that of q's mask. */
static double narrower_pairs(const struct sequence *q, int64_t tokens, int64_t window)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < tokens; i++)
        pairs += min_i64(i - q->lo[i] + 1, window);
    return (double)pairs;
}

/* Makes the sequence this rank's input, and counts it. */
static enum status publish(struct run *r, enum source source, int64_t number, struct tally *t)
{
    struct sequence q = batch_arrays(r->batch);
    if (number < 0)
        return batch_publish(r->batch, 0);
    TRY(source == TRAINING ? corpus_train_sequence(r->corpus, r->at.cursor + (uint64_t)number, &q)
                           : corpus_eval_sequence(r->corpus, number, &q));
    t->pairs[0] += q.pairs;
    for (int k = 1; k < r->model->n_masks; k++)
        t->pairs[k] += narrower_pairs(&q, q.n_tokens, r->model->mask_window[k]);
    TRY(batch_publish(r->batch, run_length(r)));
    t->sequences++;
    t->targets += q.n_targets;
    t->tokens += q.n_tokens;
    t->digest = t->digest * 0x9e3779b97f4a7c15u + batch_digest(r->batch);
    return OK;
}

/* Sums over the ranks. */
static enum status add_up(struct run *r, const struct tally *own, struct tally *sum)
{
    int n = comm_size(r->comm),
        sharing = r->session->plan->strategy.mesh.degree[MESH_ULYSSES] * r->session->plan->strategy.mesh.degree[MESH_RING];
    struct tally *all = sys_calloc((size_t)n, sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    enum status st = comm_gather(r->comm, own, sizeof *own, all);
    *sum = (struct tally){0};
    for (int place = 0; place < n && st == OK; place++) {
        int k = comm_rank_at(r->comm, place), first = comm_rank_at(r->comm, place / sharing * sharing);
        if (all[k].digest != all[first].digest)
            st = comm_agree(r->comm, status_fail(ERR_INVALID,
                                                 "ranks %d and %d read different data for the same sequence: do all hosts "
                                                 "see the same files?",
                                                 first, k));
        if (k != first)
            continue;
        sum->sequences += all[k].sequences;
        sum->targets += all[k].targets;
        sum->tokens += all[k].tokens;
        for (int i = 0; i < MODEL_MASKS; i++)
            sum->pairs[i] += all[k].pairs[i];
    }
    free(all);
    return st;
}

/* What reading the data says, as one: nothing has been computed from them. */
static enum status agree_read(struct run *r, enum status st)
{
    st = comm_agree(r->comm, st);
    r->unread = st != OK && st != ERR_STOPPED && !comm_broken(r->comm);
    return st;
}

/* Whether nothing more has to be run of a section that is cut. */
static int is_over(const struct run *r)
{
    int over = comm_is_cut(r->comm);
    for (int l = LANE_WORLD; l < LANES && over; l++)
        over = !comm_owes(r->comm, (enum lane)l);
    return over;
}

enum status run_evaluate(struct run *r, double *loss, int *cut)
{
    int64_t n = corpus_get_report(r->corpus)->eval_sequences;
    double sum = 0;
    struct tally own = {0}, all;
    const atomic_int *stop = r->rereading.stop;
    TRY(run_flush(r));
    enum status st = agree_read(r, corpus_check_eval(r->corpus));
    *cut = st == ERR_STOPPED; /* before anything was computed */
    if (*cut)
        return OK;
    TRY(st);
    if (comm_size(r->comm) > 1) /* others are computing already */
        r->rereading.stop = NULL;
    for (int64_t i = 0; i < ceil_div(n, r->session->plan->strategy.mesh.degree[MESH_DP]); i++) {
        st = publish(r, HELD_OUT, own_sequence(r, n, i), &own);
        if (st == ERR_STOPPED)
            break;
        r->unread = st != OK && comm_size(r->comm) == 1;
        TRY(st);
        fill_record(r, 1);
        TRY(session_run(r->session, PLAN_EVAL, NULL));
        sum += session_loss(r->session);
        if (is_over(r))
            break;
    }
    r->rereading.stop = stop;
    TRY(comm_section_end(r->comm, cut));
    *cut |= st == ERR_STOPPED;
    if (*cut)
        return OK;
    TRY(add_up(r, &own, &all));
    *loss = sum / (double)all.targets;
    return OK;
}

/* ---- steps ---- */

static enum status run_traced(struct run *r, enum plan_program which, int64_t step)
{
    const struct program *p = r->session->plan->programs[which];
    char path[4096];
    struct trace_event *events = sys_calloc((size_t)p->n_instrs, sizeof *events);
    if (!events)
        return status_fail(ERR_NOMEM, "out of memory for the trace");
    enum status st = session_run(r->session, which, events);
    snprintf(path, sizeof path, "%s/trace-%06lld.json", r->s->out, (long long)step);
    if (st == OK && comm_rank(r->comm) == 0 && !comm_is_cut(r->comm)) {
        enum status kept = r->lock ? run_lock_check(r->lock) : OK;
        if (kept == OK)
            kept = metrics_write_trace(path, p, events);
        if (kept != OK)
            printf("step %lld: there is no trace: %s\n", (long long)step, status_message());
    }
    free(events);
    return st;
}

/* The step's sequences, counted: the loss is a mean over the whole batch. Leaves the last one published; the others are kept. */
static enum status count(struct run *r, struct tally *all)
{
    struct tally own = {0};
    enum status st = OK;
    for (int64_t i = 0; i < r->s->plan.grad_accum && st == OK; i++)
        st = publish(r, TRAINING, own_sequence(r, r->s->plan.batch, i), &own);
    TRY(agree_read(r, st));
    return add_up(r, &own, all);
}

/* What a signal leaves of the step: the first time that it is seen to be cut. */
static void note_thrown(struct run *r, int64_t micro_batch)
{
    enum phase reached = executor_reached(r->session->executor);
    if (!comm_is_cut(r->comm) || r->thrown.micro_batch > 0)
        return;
    if (micro_batch > 1 || reached == PHASE_FORWARD || reached == PHASE_LOSS || reached == PHASE_BACKWARD)
        r->thrown = (struct thrown_away){micro_batch, reached};
}

static enum status run_programs(struct run *r, int64_t targets, double *sum)
{
    const struct settings *s = r->s;
    for (int64_t i = 0; i < s->plan.grad_accum; i++) {
        struct tally ignored = {0};
        if (s->plan.grad_accum > 1)
            TRY(publish(r, TRAINING, own_sequence(r, s->plan.batch, i), &ignored));
        fill_record(r, targets);
        enum plan_program which = i == 0                        ? (r->pending ? PLAN_UPDATE_STEP : PLAN_STEP)
                                  : i == s->plan.grad_accum - 1 ? PLAN_LAST
                                                                : PLAN_MORE;
        if (i == 0 && s->trace == r->at.step + 1)
            TRY(run_traced(r, which, s->trace));
        else
            TRY(session_run(r->session, which, NULL));
        *sum += session_loss(r->session);
        note_thrown(r, i + 1);
        if (is_over(r))
            break;
    }
    return OK;
}

enum status run_step(struct run *r, struct step_metrics *m, int *cut)
{
    const struct settings *s = r->s;
    struct tally all;
    double sum = 0, began = clock_seconds();
    enum status st = count(r, &all);
    *cut = st == ERR_STOPPED; /* before anything was computed */
    if (*cut)
        return OK;
    TRY(st);
    m->step = r->at.step + 1;
    m->steps = s->plan.steps;
    m->seq_len = run_length(r);
    m->tokens = all.tokens;
    m->target_tokens = all.targets;
    m->lr = run_learning_rate(s, r->at.step);
    if (all.targets == 0) {
        r->at.step++;
        r->at.cursor += (uint64_t)s->plan.batch;
        m->loss = m->grad_norm = NAN;
        m->seconds = clock_seconds() - began;
        r->empty++;
        m->skipped = "its documents have one token each or nothing that is trained, so there is nothing to predict";
        return OK;
    }
    m->updated = r->pending;
    TRY(run_programs(r, all.targets, &sum));
    TRY(comm_section_end(r->comm, cut));
    m->seconds = clock_seconds() - began;
    if (*cut) { /* the first program has finished the update */
        r->pending = 0;
        return OK;
    }
    r->at.step++;
    const struct norm_result *norm = session_io(r->session, r->session->plan->io.norm);
    r->lr_pending = m->lr;
    r->at.cursor += (uint64_t)s->plan.batch;
    r->at.updates += !norm->skip;
    r->pending = 1;
    r->skipped_in_row = norm->skip ? r->skipped_in_row + 1 : 0;
    r->skipped += norm->skip;
    m->model_flops = model_flops(r->model, all.tokens, all.pairs);
    m->loss = r->last_loss = sum / (double)all.targets;
    m->grad_norm = norm->norm;
    m->skipped = norm->skip ? "the gradient norm is not finite" : NULL;
    return OK;
}
