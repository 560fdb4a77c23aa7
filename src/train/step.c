/* Steps of a run: sequences in, programs run, loss and norm out. */
#include "train/sequences.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/tell.h"
#include "engine/expert_load.h"
#include "engine/expert_stages.h"
#include "train/observe.h"
#include "train/pipeline.h"
#include "train/router_bias.h"
#include "train/twice.h"

#include <math.h>
#include <stdlib.h>

enum status run_flush(struct run *r)
{
    if (!r->progress.pending)
        return OK;
    run_fill_record(r, 0, 0);
    TRY(session_run(r->session, PLAN_FLUSH, NULL));
    r->progress.pending = 0;
    return OK;
}

/* Finishes the update of the step just made, and computes a part of it a second time. */
static enum status flush_checked(struct run *r)
{
    run_fill_record(r, 0, 0);
    TRY(session_flush_checked(r->session, r->progress.at.step / r->s->verify_every));
    r->progress.pending = 0;
    return OK;
}

/* ---- steps ---- */

/* A step's trace, which rank 0 writes; a fault ends the trace and not the run. */
struct tracing {
    struct trace_file file;
    char path[4096];
    int64_t step, began; /* began: ns of clock_ns at the first program's start; 0: none has begun */
    int open;
};

/* Notes how writing the trace went. */
static void note_trace(struct tracing *x, enum status st)
{
    if (st == OK)
        return;
    if (x->open)
        fclose(x->file.f);
    x->open = 0;
    tell("step %lld: there is no trace: %s\n", (long long)x->step, status_message());
}

static void begin_trace(struct run *r, int64_t step, struct tracing *x)
{
    *x = (struct tracing){.step = step};
    if (comm_rank(r->comm) != 0)
        return;
    snprintf(x->path, sizeof x->path, "%s/trace-%06lld.json", r->s->out, (long long)step);
    enum status st = r->place.lock ? run_lock_check(r->place.lock) : OK;
    if (st == OK)
        st = metrics_trace_begin(x->path, &x->file);
    x->open = st == OK;
    note_trace(x, st);
}

static void end_trace(struct tracing *x)
{
    if (!x->open)
        return;
    x->open = 0;
    note_trace(x, metrics_trace_end(&x->file, x->path));
    if (x->file.instrs == 0) /* the step was cut before any program ended */
        sys_unlink(x->path);
}

/* Runs a program, of a pipeline with the operands of `half` (else NULL), and adds it to the trace. trace: NULL if the step is not
 * traced. */
static enum status run_program(struct run *r, enum plan_program which, const struct half_run *half, struct tracing *trace)
{
    const struct program *p = r->session->plan->programs[which];
    const int64_t began = clock_ns();
    struct trace_event *events = NULL;
    if (trace) {
        trace->began = trace->began ? trace->began : began;
        events = sys_calloc((size_t)p->n_instrs, sizeof *events);
        if (!events)
            return status_fail(ERR_NOMEM, "out of memory for the trace");
    }
    const enum status st = half ? session_run_half(r->session, which, half, events) : session_run(r->session, which, events);
    if (st == OK && trace && trace->open && !comm_is_cut(r->comm))
        note_trace(trace, metrics_trace_add(&trace->file, p, events, began - trace->began));
    free(events);
    return st;
}

static enum status take_training(void *run, int64_t number, struct sequence *out, int64_t *used)
{
    struct run *r = run;
    *used = run_length(r);
    return corpus_train_sequence(r->inputs.corpus, r->progress.at.cursor + (uint64_t)number, out);
}

static struct sequence_source training(struct run *r)
{
    return run_has_no_corpus(r) ? (struct sequence_source){.take = r->hooks->take, .user = r->hooks->user}
                                : (struct sequence_source){.take = take_training, .user = r};
}

/* Counts the targets of all the step's sequences, since the loss is a mean over the whole batch. The inputs then hold the last
 * sequence; the corpus keeps the others. */
static enum status count(struct run *r, struct tally *all)
{
    const struct sequence_source source = training(r);
    struct tally own = {0};
    enum status st = OK;
    for (int64_t i = 0; i < r->s->plan.grad_accum && st == OK; i++)
        st = sequences_publish(r, &source, sequences_own(r, r->s->plan.batch, i), r->s->plan.batch, &own);
    TRY(sequences_agree_read(r, st));
    return sequences_add_up(r, &own, all);
}

/* Notes the part of the step that a signal throws away, when the cut is first seen. */
static void note_thrown(struct run *r, int64_t micro_batch)
{
    enum phase reached = executor_reached(r->session->executor);
    if (!comm_is_cut(r->comm) || r->progress.thrown.micro_batch > 0)
        return;
    if (micro_batch > 1 || reached == PHASE_FORWARD || reached == PHASE_LOSS || reached == PHASE_BACKWARD)
        r->progress.thrown = (struct thrown_away){micro_batch, reached};
}

/* Sums of a step's programs. experts: counts of experts' tokens, and behind them the balancing loss. */
struct sums {
    double loss, *experts;
    struct tracing *trace; /* NULL: the step is not traced */
};

/* Computation of a pipeline's step. */
struct ticking {
    struct run *r;
    struct sums *sum;
    struct expert_stages *experts; /* NULL: nothing balances experts */
};

static enum status run_half(void *user, const struct tick_work *w, int64_t micro_batch, const struct half_run *half)
{
    const struct ticking *x = user;
    expert_stages_fill(x->experts, x->r->session, w->program, w->piece);
    TRY(run_program(x->r, w->program, half, x->sum->trace));
    const double balance = expert_stages_take(x->experts, x->r->session, w->program, w->piece);
    if (w->program >= PLAN_HEAD_FIRST && w->program <= PLAN_HEAD_LAST)
        x->sum->loss += session_loss(x->r->session);
    if (x->sum->experts)
        x->sum->experts[expert_counts(x->r->session)] += balance;
    if (w->program == PLAN_FORWARD && x->sum->experts)
        expert_counts_add(x->r->session, x->sum->experts);
    note_thrown(x->r, 1 + micro_batch);
    return OK;
}

/* Runs a pipeline's step: the pending update, then all ticks. */
static enum status run_ticks(struct run *r, int64_t targets, struct sums *sum)
{
    const struct ticks t = plan_ticks(r->session->plan);
    const struct sequence_source source = training(r);
    struct ticking x = {r, sum, NULL};
    const struct pipeline_pass pass = {&source, r->s->plan.batch, targets, r->progress.at.cursor, run_half, &x, NULL};
    if (r->progress.pending) {
        run_fill_record(r, 0, 0);
        TRY(run_program(r, PLAN_FLUSH, NULL, sum->trace));
    }
    TRY(expert_stages_create(r->session, &x.experts));
    const enum status st = pipeline_run(r, &t, &pass);
    expert_stages_destroy(x.experts);
    return st;
}

static enum status run_micro_batches(struct run *r, int64_t targets, struct sums *sum)
{
    const struct settings *s = r->s;
    for (int64_t i = 0; i < s->plan.grad_accum; i++) {
        const struct sequence_source source = training(r);
        const int64_t own = sequences_own(r, s->plan.batch, i);
        struct tally ignored = {0};
        if (s->plan.grad_accum > 1)
            TRY(sequences_publish(r, &source, own, s->plan.batch, &ignored));
        run_fill_record(r, targets, r->progress.at.cursor + (uint64_t)own);
        enum plan_program which = i == 0                        ? (r->progress.pending ? PLAN_UPDATE_STEP : PLAN_STEP)
                                  : i == s->plan.grad_accum - 1 ? PLAN_LAST
                                                                : PLAN_MORE;
        TRY(run_program(r, which, NULL, i == 0 ? sum->trace : NULL));
        observe_program(r);
        sum->loss += session_loss(r->session);
        if (sum->experts) {
            expert_counts_add(r->session, sum->experts);
            sum->experts[expert_counts(r->session)] += expert_balance(r->session);
        }
        note_thrown(r, i + 1);
        if (run_is_over(r))
            break;
    }
    return OK;
}

/* Adds up the step's counts and balancing loss over all ranks, and notes what follows from them. */
static enum status add_up_experts(struct run *r, struct sums *sum, struct step_metrics *m)
{
    const int n = expert_counts(r->session), experts = (int)r->model->config.experts;
    if (!sum->experts)
        return OK;
    TRY(comm_sum(r->comm, sum->experts, n + 1));
    expert_stats_of(sum->experts, n / experts, experts, &m->experts);
    if (r->choices)
        memcpy(r->choices, sum->experts, (size_t)n * sizeof *r->choices);
    m->experts.coefficient = model_aux(&r->model->config);
    m->experts.aux = sum->experts[n] / (double)strategy_micro_batches(&r->session->plan->strategy);
    m->loss += m->experts.coefficient * m->experts.aux;
    return OK;
}

/* Moves the biases that choose experts, unless the step is skipped. */
static enum status move_biases(struct run *r, const struct sums *sum)
{
    const struct norm_result *norm = session_io(r->session, r->session->plan->io.norm);
    return r->s->router_bias_rate > 0 && !norm->skip ? router_bias_move(r->session, r->s->router_bias_rate, sum->experts) : OK;
}

/* Runs the step's programs, which the ranks begin together. A traced step's trace has all of a pipeline's, else the first micro-batch's.
 * *cut: a signal ended them. */
static enum status run_programs(struct run *r, int64_t targets, struct sums *sum, int *cut)
{
    struct tracing trace;
    if (r->s->trace == r->progress.at.step + 1) {
        begin_trace(r, r->s->trace, &trace);
        sum->trace = &trace;
    }
    enum status st = (strategy_stages(&r->session->plan->strategy) > 1 ? run_ticks : run_micro_batches)(r, targets, sum);
    if (sum->trace)
        end_trace(&trace);
    sum->trace = NULL;
    TRY(st);
    return comm_section_end(r->comm, cut);
}

/* A step to be computed again; experts' tokens are counted once. */
struct again {
    struct run *r;
    int64_t targets;
};

static enum status compute_again(void *user, double *loss, int *cut)
{
    const struct again *x = user;
    struct sums sum = {0};
    enum status st = run_programs(x->r, x->targets, &sum, cut);
    *loss = sum.loss;
    return st;
}

/* Computes the step, and what belongs to it outside programs. *cut: a signal ended it. */
static enum status run_section(struct run *r, const struct tally *all, struct step_metrics *m, int *cut)
{
    const int verified = twice_is_due(r);
    struct sums sum = {0};
    enum status st = OK;
    if (expert_counts(r->session) > 0) {
        sum.experts = sys_calloc((size_t)expert_counts(r->session) + 1, sizeof *sum.experts);
        st = sum.experts ? OK : status_fail(ERR_NOMEM, "out of memory for the counts of experts' tokens");
    }
    if (st == OK && verified)
        st = run_flush(r); /* all computations begin with the same state */
    if (st == OK)
        st = run_programs(r, all->targets, &sum, cut);
    if (st == OK && !*cut && verified)
        st = twice_compare(r, sum.loss, compute_again, &(struct again){r, all->targets}, cut);
    m->loss = sum.loss / (double)all->targets;
    if (st == OK && !*cut)
        st = add_up_experts(r, &sum, m);
    if (st == OK && !*cut)
        st = move_biases(r, &sum);
    free(sum.experts);
    return st;
}

enum status run_step(struct run *r, struct step_metrics *m, int *cut)
{
    const struct settings *s = r->s;
    struct tally all;
    const double began = clock_seconds();
    enum status st = count(r, &all);
    *cut = st == ERR_STOPPED; /* the signal came before anything was computed */
    if (*cut)
        return OK;
    TRY(st);
    m->step = r->progress.at.step + 1;
    m->steps = s->plan.steps;
    m->seq_len = run_length(r);
    m->tokens = all.tokens;
    m->target_tokens = all.targets;
    m->lr = run_learning_rate(s, r->progress.at.step);
    if (all.targets == 0) {
        r->progress.at.step++;
        r->progress.at.cursor += (uint64_t)s->plan.batch;
        m->loss = m->grad_norm = NAN;
        m->seconds = clock_seconds() - began;
        r->measured.empty++;
        m->skipped = "its documents have one token each or nothing that is trained, so there is nothing to predict";
        return OK;
    }
    m->verified = twice_is_due(r);
    m->updated = r->progress.pending;
    TRY(run_section(r, &all, m, cut));
    m->seconds = clock_seconds() - began;
    if (*cut) { /* the first program has finished the update */
        r->progress.pending = 0;
        return OK;
    }
    r->progress.at.step++;
    const struct norm_result *norm = session_io(r->session, r->session->plan->io.norm);
    r->progress.lr_pending = m->lr;
    r->progress.at.cursor += (uint64_t)s->plan.batch;
    r->progress.at.updates += !norm->skip;
    r->progress.pending = 1;
    r->progress.skipped_in_row = norm->skip ? r->progress.skipped_in_row + 1 : 0;
    r->measured.skipped += norm->skip;
    m->model_flops = model_flops(r->model, all.tokens, all.pairs);
    m->grad_norm = norm->norm;
    m->skipped = norm->skip ? "the gradient norm is not finite" : NULL;
    if (!m->verified)
        return OK;
    TRY(flush_checked(r));
    m->seconds = clock_seconds() - began;
    return OK;
}
