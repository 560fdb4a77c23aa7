/* Losses of sequences that are not trained, overall and by the number of tokens that a prediction sees. */
#include "train/evaluate.h"

#include "data/stream.h"
#include "train/pipeline.h"

#include <math.h>

/* Sums over all ranks. */
struct sums {
    double loss[EVALUATION_BUCKETS], targets[EVALUATION_BUCKETS];
};

/* Adds this rank's tokens of the sequence that was evaluated last. */
static void add_tokens(struct run *r, struct sums *x)
{
    const struct io_buffers *io = &r->session->plan->io;
    const int32_t *targets = session_io(r->session, io->targets), *positions = session_io(r->session, io->positions);
    const float *each = session_io(r->session, io->each);
    for (int64_t i = 0; i < batch_targets(r->batch); i++) {
        if (targets[i] < 0)
            continue;
        const int k = 31 - __builtin_clz((unsigned)positions[batch_position(r->batch, i)] + 1u);
        x->loss[k] += (double)each[i];
        x->targets[k]++;
    }
}

static void summarise(const struct sums *x, double sum, const struct tally *all, struct evaluation *out)
{
    *out = (struct evaluation){.sequences = all->sequences,
                               .targets = all->targets,
                               .bytes = all->bytes,
                               .loss = sum / (double)all->targets,
                               .bits_per_byte = NAN};
    if (all->bytes > 0)
        out->bits_per_byte = sum / M_LN2 / (double)all->bytes;
    for (int k = 0; k < EVALUATION_BUCKETS; k++) {
        out->seen[k].targets = (int64_t)x->targets[k];
        out->seen[k].loss = x->targets[k] > 0 ? x->loss[k] / x->targets[k] : NAN;
    }
}

/* An evaluation's sums so far, and counts of the sequences that are done. */
struct evaluated {
    double sum;
    struct sums sums;
    struct tally done;
};

/* An evaluation of n sequences. whole: in a pipeline, what is found of the micro-batches whose slices are all done. */
struct evaluating {
    struct run *r;
    const struct sequence_source *source;
    int64_t n;
    struct evaluated now, whole;
};

/* Evaluates the micro-batches one after another. *cut: a signal ended this. */
static enum status run_each(struct evaluating *x, int *cut)
{
    struct run *r = x->r;
    const enum plan_program which = r->session->plan->programs[PLAN_EVAL] ? PLAN_EVAL : PLAN_UPDATE_STEP;
    for (int64_t i = 0; i < sequences_micro_batches(r, x->n); i++) {
        struct tally done = x->now.done;
        const enum status st = sequences_publish(r, x->source, sequences_own(r, x->n, i), x->n, &done);
        *cut = st == ERR_STOPPED;
        if (*cut)
            return OK;
        r->inputs.unread = st != OK && comm_size(r->comm) == 1;
        TRY(st);
        run_fill_record(r, 1, 0);
        TRY(session_run(r->session, which, NULL));
        TRY(comm_section_end(r->comm, cut));
        if (*cut)
            return OK;
        x->now.done = done;
        x->now.sum += session_loss(r->session);
        add_tokens(r, &x->now.sums);
    }
    return OK;
}

static enum status run_half(void *user, const struct tick_work *w, int64_t micro_batch, const struct half_run *half)
{
    struct evaluating *x = user;
    const int slices = strategy_slices(&x->r->session->plan->strategy);
    (void)micro_batch;
    TRY(session_run_half(x->r->session, w->program, half, NULL));
    if (w->program != PLAN_EVAL || comm_is_cut(x->r->comm))
        return OK;
    x->now.sum += session_loss(x->r->session);
    add_tokens(x->r, &x->now.sums);
    if (w->piece % slices == slices - 1)
        x->whole = x->now;
    return OK;
}

/* Passes all micro-batches through a pipeline. *cut: a signal ended this. */
static enum status run_stages(struct evaluating *x, int *cut)
{
    const struct ticks t = plan_evaluation_ticks(x->r->session->plan, sequences_micro_batches(x->r, x->n));
    const struct pipeline_pass pass = {x->source, x->n, 1, 0, run_half, x, &x->now.done};
    TRY(pipeline_run(x->r, &t, &pass));
    TRY(comm_section_end(x->r->comm, cut));
    if (*cut)
        x->now = x->whole;
    return OK;
}

enum status run_evaluate_source(struct run *r, const struct sequence_source *source, int64_t n, struct evaluation *out, int *cut)
{
    struct evaluating x = {.r = r, .source = source, .n = n};
    struct tally all;
    const atomic_int *stop = r->inputs.rereading.stop;
    *cut = 0;
    if (comm_size(r->comm) > 1) /* no signal ends the rereading then, since the other ranks are computing already */
        r->inputs.rereading.stop = NULL;
    TRY((strategy_stages(&r->session->plan->strategy) > 1 ? run_stages : run_each)(&x, cut));
    r->inputs.rereading.stop = stop;
    TRY(sequences_add_up(r, &x.now.done, &all));
    TRY(comm_sum(r->comm, (double *)&x.now.sums, sizeof x.now.sums / sizeof(double)));
    summarise(&x.now.sums, x.now.sum, &all, out);
    return OK;
}

static enum status take_held_out(void *run, int64_t number, struct sequence *out, int64_t *used)
{
    struct run *r = run;
    *used = run_length(r);
    return corpus_eval_sequence(r->inputs.corpus, number, out);
}

/* Opens the tokenizer to count the bytes of held-out targets, once, if it is still there on every rank. */
static enum status open_text(struct run *r, struct sequence_source *source, struct tokenizer **t)
{
    double missing = 0;
    *t = NULL;
    if (r->inputs.held_out_bytes > 0)
        return OK;
    if (r->inputs.tokenizer[0])
        missing = tokenizer_open(r->inputs.tokenizer, t) != OK;
    TRY(comm_sum(r->comm, &missing, 1));
    source->tokenizer = *t;
    source->counts_bytes = missing == 0 && !stream_has_ids(corpus_get_source(r->inputs.corpus, 0).documents);
    return OK;
}

enum status run_evaluate(struct run *r, struct evaluation *out, int *cut)
{
    struct sequence_source source = {.take = take_held_out, .user = r};
    struct tokenizer *t;
    TRY(run_flush(r));
    enum status st = sequences_agree_read(r, corpus_check_eval(r->inputs.corpus));
    *cut = st == ERR_STOPPED; /* the signal came before anything was computed */
    if (*cut)
        return OK;
    TRY(st);
    TRY(open_text(r, &source, &t));
    st = run_evaluate_source(r, &source, corpus_get_report(r->inputs.corpus)->eval_sequences, out, cut);
    tokenizer_close(t);
    if (st != OK || *cut)
        return st;
    if (source.counts_bytes)
        r->inputs.held_out_bytes = out->bytes;
    out->bytes = r->inputs.held_out_bytes;
    if (out->bytes > 0)
        out->bits_per_byte = out->loss * (double)out->targets / M_LN2 / (double)out->bytes;
    return OK;
}
