/* The training loop: batches in, programs run, metrics and checkpoints out. */
#include "engine/run.h"

#include "base/clock.h"
#include "base/sys.h"
#include "engine/metrics.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal;

#define SKIPS_ALLOWED 3 /* steps in a row without a finite gradient norm; after them the run ends */

/* The first signal ends the run after the step, the second at once. */
static void on_signal(int number)
{
    static const char text[] = "\nltrain: stopping after this step and saving; once more to stop at once\n";
    if (stop_signal) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    stop_signal = number;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) {
        /* nobody reads */
    }
}

static double learning_rate(const struct settings *s, int64_t step)
{
    double warm = s->warmup > 0 && step < s->warmup ? (double)(step + 1) / (double)s->warmup : 1;
    double total = (double)max_i64(1, s->steps - s->warmup), t = (double)max_i64(0, step - s->warmup) / total;
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

static struct step_record *fill_record(struct run *r, int64_t targets)
{
    const struct settings *s = r->s;
    struct step_record *record = session_io(r->session, r->session->plan->io.record);
    double t = (double)r->at.updates;
    *record = (struct step_record){.inv_targets = targets > 0 ? 1.0f / (float)targets : 0,
                                   .clip = (float)s->clip,
                                   .lr = (float)r->lr_pending,
                                   .weight_decay = (float)s->weight_decay,
                                   .beta1 = (float)s->beta1,
                                   .beta2 = (float)s->beta2,
                                   .eps = (float)s->eps,
                                   .bias1 = (float)(1 - pow((double)(float)s->beta1, t)), /* of the beta that is used */
                                   .bias2 = (float)(1 - pow((double)(float)s->beta2, t))};
    return record;
}

static struct sequence input_arrays(struct run *r)
{
    const struct io_buffers *io = &r->session->plan->io;
    return (struct sequence){.tokens = session_io(r->session, io->tokens),
                             .targets = session_io(r->session, io->targets),
                             .positions = session_io(r->session, io->positions),
                             .lo = session_io(r->session, io->lo),
                             .hi = session_io(r->session, io->hi)};
}

static enum status flush(struct run *r)
{
    if (!r->pending)
        return OK;
    fill_record(r, 0);
    TRY(session_run(r->session, PLAN_FLUSH, NULL));
    r->pending = 0;
    return OK;
}

static enum status evaluate(struct run *r, double *loss)
{
    int64_t targets = 0, n = corpus_get_report(r->corpus)->eval_sequences;
    double sum = 0;
    TRY(flush(r));
    for (int64_t i = 0; i < n; i++) {
        struct sequence q = input_arrays(r);
        TRY(corpus_eval_sequence(r->corpus, i, &q));
        fill_record(r, q.n_targets);
        TRY(session_run(r->session, PLAN_EVAL, NULL));
        sum += session_loss(r->session);
        targets += q.n_targets;
    }
    *loss = sum / (double)targets;
    return OK;
}

static enum status save(struct run *r)
{
    if (r->skipped_in_row > 0) { /* an older, good checkpoint is worth more */
        printf("step %lld not saved: it was skipped\n", (long long)r->at.step);
        return OK;
    }
    TRY(flush(r));
    return checkpoint_save(r->session, r->s->out, &r->at, (int)max_i64(1, r->s->keep));
}

static enum status run_traced(struct run *r, enum plan_program which, int64_t step)
{
    const struct program *p = r->session->plan->programs[which];
    char path[4096];
    struct trace_event *events = sys_calloc((size_t)p->n_instrs, sizeof *events);
    if (!events)
        return status_fail(ERR_NOMEM, "out of memory for the trace");
    enum status st = session_run(r->session, which, events);
    snprintf(path, sizeof path, "%s/trace-%06lld.json", r->s->out, (long long)step);
    if (st == OK)
        st = metrics_write_trace(path, p, events);
    free(events);
    return st;
}

/* One optimizer step: all micro-batches; its update stays pending. */
static enum status step(struct run *r, struct step_metrics *m)
{
    const struct settings *s = r->s;
    int64_t accum = s->grad_accum, targets = 0;
    double sum = 0, began = clock_seconds();
    struct sequence q = input_arrays(r);
    for (int64_t i = 0; i < accum; i++) { /* the loss is a mean over the whole batch: count first */
        TRY(corpus_train_sequence(r->corpus, r->at.cursor + (uint64_t)i, &q));
        targets += q.n_targets;
    }
    m->step = ++r->at.step;
    m->steps = s->steps;
    m->tokens = accum * s->seq_len;
    m->target_tokens = targets;
    m->lr = learning_rate(s, r->at.step - 1);
    if (targets == 0) {
        r->at.cursor += (uint64_t)accum;
        m->loss = m->grad_norm = NAN;
        m->seconds = clock_seconds() - began;
        m->skipped = "its documents have one token each, so there is nothing to predict";
        return OK;
    }
    for (int64_t i = 0; i < accum; i++) {
        if (accum > 1)
            TRY(corpus_train_sequence(r->corpus, r->at.cursor + (uint64_t)i, &q));
        fill_record(r, targets);
        enum plan_program which = i == 0 ? (r->pending ? PLAN_UPDATE_STEP : PLAN_STEP) : i == accum - 1 ? PLAN_LAST : PLAN_MORE;
        if (i == 0 && s->trace == r->at.step)
            TRY(run_traced(r, which, s->trace));
        else
            TRY(session_run(r->session, which, NULL));
        sum += session_loss(r->session);
        m->model_flops += model_flops(r->model, s->seq_len, q.pairs);
    }
    const struct norm_result *norm = session_io(r->session, r->session->plan->io.norm);
    r->lr_pending = m->lr;
    r->at.cursor += (uint64_t)accum;
    r->at.updates += !norm->skip;
    r->pending = 1;
    r->skipped_in_row = norm->skip ? r->skipped_in_row + 1 : 0;
    m->loss = r->last_loss = sum / (double)targets;
    m->grad_norm = norm->norm;
    m->skipped = norm->skip ? "the gradient norm is not finite" : NULL;
    m->seconds = clock_seconds() - began;
    return OK;
}

static void finish_metrics(struct run *r, struct step_metrics *m)
{
    struct lane_stats lanes[LANES];
    executor_take_stats(r->session->executor, lanes);
    for (int l = 0; l < LANES; l++) {
        r->total[l].bytes += lanes[l].bytes;
        r->total[l].busy_ns += lanes[l].busy_ns;
        r->total[l].waited_ns += lanes[l].waited_ns;
    }
    const struct plan *p = r->session->plan;
    m->peak_flops = r->peak_flops;
    m->device_bytes = p->arena[TIER_DEVICE];
    m->device_limit = r->limit[TIER_DEVICE];
    m->host_bytes = p->arena[TIER_HOST];
    m->nvme_bytes = p->arena[TIER_NVME];
    m->read_bytes = lanes[LANE_READ].bytes;
    m->written_bytes = lanes[LANE_WRITE].bytes;
    m->hidden = metrics_hidden(lanes);
    r->run_seconds += m->seconds;
    r->steps_here++;
    m->eta_seconds = r->run_seconds / (double)r->steps_here * (double)(r->s->steps - r->at.step);
}

static enum status loop(struct run *r)
{
    const struct settings *s = r->s;
    int terminal = isatty(STDOUT_FILENO);
    while (r->at.step < s->steps && !stop_signal) {
        struct step_metrics m = {0};
        TRY(step(r, &m));
        finish_metrics(r, &m);
        m.evaluated = s->eval_every > 0 && r->at.step % s->eval_every == 0;
        if (m.evaluated)
            TRY(evaluate(r, &m.eval_loss));
        metrics_print(&m, stdout, terminal);
        TRY(metrics_append(&m, r->metrics));
        if (r->skipped_in_row >= SKIPS_ALLOWED)
            return status_fail(
                ERR_DIVERGED,
                "training diverged: the gradient norm was not finite in the %d steps up to %lld; resume from the last "
                "checkpoint with a lower --lr, or start again with one",
                SKIPS_ALLOWED, (long long)r->at.step);
        if (s->save_every > 0 && r->at.step % s->save_every == 0 && r->at.step < s->steps)
            TRY(save(r));
    }
    if (terminal)
        printf("\n");
    return OK;
}

enum status train_run(struct settings *s, const struct train_hooks *hooks, int *signal_number)
{
    struct run r = {.s = s};
    struct plan *plan = NULL;
    enum status st;
    char model_path[4096];
    *signal_number = 0;
    stop_signal = 0;
    TRY(train_plan(s, &r.model, &plan, r.limit));
    if (!plan->fits) {
        st = plan_refuse(plan, r.model, s, r.limit);
        plan_destroy(plan);
        goto out;
    }
    struct corpus_config data = {.paths = (const char *const *)s->data.item,
                                 .n_paths = s->data.n,
                                 .eval_paths = (const char *const *)s->eval_data.item,
                                 .n_eval_paths = s->eval_data.n,
                                 .eval_fraction = s->eval_fraction,
                                 .seq_len = s->seq_len,
                                 .vocab = r.model->config.vocab,
                                 .seed = s->seed,
                                 .window = r.model->config.window};
    st = corpus_open(&data, &r.corpus);
    if (st == OK)
        st = run_refuse_old(s);
    if (st == OK)
        st = run_make_directory(s->out);
    if (st != OK) {
        plan_destroy(plan);
        goto out;
    }
    r.peak_flops = run_measure_sgemm(s->threads);
    const char *run_directory[] = {s->out};
    int own = s->nvme_path.n == 0;
    TRY_GOTO(session_create(r.model, plan, s, NULL, own ? run_directory : (const char *const *)s->nvme_path.item,
                            own ? 1 : s->nvme_path.n, &r.session),
             out);
    run_print_before(&r, hooks);
    TRY_GOTO(run_load_state(&r), out);
    TRY_GOTO(run_open_files(&r, hooks), out);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    TRY_GOTO(loop(&r), out);
    TRY_GOTO(flush(&r), out);
    *signal_number = stop_signal;
    if (*signal_number || s->save_every > 0)
        TRY_GOTO(save(&r), out);
    TRY_GOTO(session_check_memory(r.session), out);
    snprintf(model_path, sizeof model_path, "%s/hf", s->out);
    if (!*signal_number) /* one that comes later than this ends nothing any more */
        TRY_GOTO(checkpoint_export(r.session, model_path), out);
    run_print_after(&r, *signal_number ? NULL : model_path);
out:
    if (r.metrics)
        fclose(r.metrics);
    session_destroy(r.session);
    corpus_close(r.corpus);
    model_destroy(r.model);
    return st;
}
