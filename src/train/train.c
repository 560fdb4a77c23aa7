/* A run from its settings to its model: preparation, the training loop, the end. */
#include "train/run.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "settings/curriculum.h"
#include "settings/read.h"
#include "train/board.h"
#include "train/evaluate.h"
#include "train/live.h"
#include "train/metrics_file.h"
#include "train/nonfinite.h"
#include "train/observe.h"
#include "train/signals.h"
#include "train/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SKIPS_ALLOWED 3 /* steps in a row without a finite gradient norm; after them the run ends */

/* Adds "training diverged" to the message about a checkpoint or an export that was not made for that reason. */
static enum status say_diverged(const struct run *r, enum status st, const char *not_made)
{
    char cause[1024];
    if (st != ERR_DIVERGED)
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(st, "training diverged: %s after step %lld, %s; a lower --lr may help", cause,
                       (long long)r->progress.at.step, not_made);
}

static enum status save(struct run *r, enum save_when when)
{
    if ((r->progress.signal || when == SAVE_TO_GO_ON) && r->place.saved == r->progress.at.step)
        return OK; /* saved already */
    /* An older, good checkpoint is worth more than one after a skipped step. At a stop both are kept: the next step may be a good
     * one. */
    const int keeps_older = r->progress.skipped_in_row > 0 && r->place.saved >= 0;
    if (keeps_older && !r->progress.signal && when != SAVE_TO_GO_ON) {
        tell("step %lld not saved: it was skipped\n", (long long)r->progress.at.step);
        fflush(tell_stream());
        return OK;
    }
    TRY(run_flush(r));
    const double begun = clock_seconds();
    enum status st = run_check_place(r);
    if (st == OK)
        run_log_sync(r->place.log); /* the steps before a checkpoint have their lines */
    if (st == OK)
        st = checkpoint_save(r->session, r->s->out, &r->progress.at, &r->inputs.texts, (int)max_i64(1, r->s->keep) + keeps_older);
    st = say_diverged(r, st, "which was not saved");
    if (st != OK)
        return run_save_failed(r, st, when);
    run_note_saved(r, r->progress.at.step);
    walltime_after_save(&r->walltime, clock_seconds() - begun);
    return OK;
}

static enum status export(struct run *r, const char *path) {
    enum status st = run_check_place(r); if (st == OK) st = run_export(r, path);
    st = say_diverged(r, st, "which was not exported");
    return st == OK ? OK : run_export_failed(r, st);
}

/* Closes the run's log, which rank 0 has; its failure does not hide another one. */
static enum status close_log(struct run *r, enum status st)
{
    char cause[1024];
    struct run_log *log = r->place.log;
    r->place.log = NULL;
    if (st == OK)
        return run_log_close(log);
    snprintf(cause, sizeof cause, "%s", status_message());
    if (r->place.taken_over)
        run_log_abandon(log);
    else
        (void)run_log_close(log);
    return status_fail(st, "%s", cause);
}

/* Reports that the last steps were skipped: the exported model is that of the step before them. */
static enum status check_last_steps(struct run *r, const char *model_path)
{
    if (r->progress.skipped_in_row == 0)
        return OK;
    return comm_agree(r->comm,
                      status_fail(ERR_DIVERGED,
                                  "the gradient norm was not finite in the last %lld of %lld steps, which were "
                                  "skipped: %s has the model of step %lld, which may be of no use; a lower --lr may help",
                                  (long long)r->progress.skipped_in_row, (long long)r->progress.at.step, model_path,
                                  (long long)(r->progress.at.step - r->progress.skipped_in_row)));
}

/* Goes on training without a reader of the steps' lines, or with their file full. */
static void check_output(struct run *r)
{
    if (!ferror(tell_stream()))
        return;
    clearerr(tell_stream());
    if (!r->mute)
        fprintf(stderr, "ltrain: standard output is closed or full: training goes on, and so does %s/metrics.jsonl\n", r->s->out);
    r->mute = 1;
}

/* Adds a line to the log, after a check of the directory. If another run has it now, nothing is written there, and this run ends,
 * saved elsewhere. A directory out of its place is left to the next save to report. */
static enum status add_line(struct run *r, const struct step_metrics *m)
{
    char cause[1024];
    enum status st = run_check_place(r);
    if (!r->place.taken_over) {
        if (r->place.log && run_log_is_due(r->place.log, m))
            board_add(r->place.board, m);
        metrics_file_add(r->place.metrics_file, m);
        return comm_broken(r->comm) ? st : r->place.log ? run_log_add(r->place.log, m) : OK;
    }
    snprintf(cause, sizeof cause, "%s", status_message());
    TRY(run_flush(r));
    status_fail(st, "%s", cause);
    return run_save_failed(r, st, SAVE_LAST);
}

enum status run_follow_lengths(struct run *r)
{
    if (run_length_changes(r)) {
        TRY(save(r, SAVE_TO_GO_ON));
        return run_change_length(r);
    }
    r->plans.stretch = curriculum_at(r->s, r->progress.at.step);
    return OK;
}

enum status run_evaluate_before(struct run *r)
{
    struct step_metrics m = {.step = 0, .evaluated = 1};
    int cut;
    if (!r->s->plan.eval_before || r->progress.at.step > 0)
        return OK;
    TRY(run_evaluate(r, &m.eval, &cut));
    if (cut)
        return OK;
    metrics_print_evaluation(&m, tell_stream());
    return add_line(r, &m);
}

/* Saves and ends a run after a step that was skipped, as --on-nan stop wants. bad: tensors whose gradient is not finite, or "". */
static enum status stop_at_nan(struct run *r, const struct step_metrics *m, const char *bad)
{
    TRY(save(r, SAVE_TO_GO_ON));
    return comm_agree(r->comm,
                      status_fail(ERR_DIVERGED,
                                  "step %lld: the gradient norm is not finite (loss %g%s%s), and --on-nan stop ends the run; "
                                  "nothing was updated by this step",
                                  (long long)m->step, fabs(m->loss), bad[0] ? "; gradients of " : "", bad));
}

/* Ends a run whose gradients are not finite any more. */
static enum status check_skipped(const struct run *r)
{
    if (r->progress.skipped_in_row < SKIPS_ALLOWED)
        return OK;
    return comm_agree(r->comm, status_fail(ERR_DIVERGED,
                                           "training diverged: the gradient norm was not finite in the %d steps up to %lld; a "
                                           "lower --lr may help",
                                           SKIPS_ALLOWED, (long long)r->progress.at.step));
}

/* Adds the numerics key, and settings of updates, to the first line of a process and wherever the key changes. */
static void say_numerics(struct run *r, struct step_metrics *m)
{
    if (strcmp(r->progress.said, r->progress.at.numerics) == 0)
        return;
    memcpy(r->progress.said, r->progress.at.numerics, sizeof r->progress.said);
    m->numerics = r->progress.said;
    m->settings = r->s;
}

/* Prints a step for people, or for a dashboard, which is told all steps and keeps the last one's line. */
static void print_step(const struct run *r, const struct step_metrics *m, int terminal)
{
    const int live = live_is_read() && comm_rank(r->comm) == 0;
    if (live)
        live_print_step(m);
    if (live && m->step < m->steps)
        metrics_print_events(m, tell_stream(), 0);
    else
        metrics_print(m, tell_stream(), terminal);
}

enum status run_next(struct run *r, struct step_metrics *m, int *cut)
{
    const struct settings *s = r->s;
    const int terminal = tell_is_terminal() && comm_size(r->comm) == 1; /* mpiexec gives its ranks a terminal of their own */
    int unevaluated, stops;
    char bad[256];
    struct lane_stats between[LANES]; /* statistics of evaluations and checkpoints */
    *m = (struct step_metrics){0};
    TRY(run_follow_lengths(r));
    executor_take_stats(r->session->executor, between);
    (void)executor_take_submission(r->session->executor);
    TRY(run_step(r, m, cut));
    if (*cut) {
        run_print_thrown(r, m->seconds, terminal);
        return OK;
    }
    stops = s->on_nan == ON_NAN_STOP && r->progress.skipped_in_row > 0;
    if (stops)
        TRY(nonfinite_name(r, bad, sizeof bad));
    TRY(run_finish_metrics(r, m));
    m->resumed = r->progress.resumes;
    r->progress.resumes = 0;
    say_numerics(r, m);
    m->evaluated = s->plan.eval_every > 0 && !stops && r->progress.at.step % s->plan.eval_every == 0;
    if (m->evaluated) {
        TRY(run_evaluate(r, &m->eval, &unevaluated));
        if (unevaluated)
            tell("%sthe evaluation after step %lld is left out\n", terminal ? "\n" : "", (long long)r->progress.at.step);
        m->evaluated = !unevaluated;
    }
    print_step(r, m, terminal);
    check_output(r);
    TRY(add_line(r, m));
    TRY(stops ? stop_at_nan(r, m, bad) : check_skipped(r));
    walltime_after_step(&r->walltime);
    if (s->save_every > 0 && r->progress.at.step % s->save_every == 0 && r->progress.at.step < s->plan.steps)
        TRY(save(r, SAVE_ON_THE_WAY));
    return OK;
}

static enum status loop(struct run *r)
{
    for (;;) {
        struct step_metrics m;
        int cut;
        if (comm_rank(r->comm) == 0)
            walltime_before_step(&r->walltime);
        TRY(signals_agree(r->comm, &r->progress.signal));
        if (r->progress.at.step >= r->s->plan.steps || r->progress.signal)
            break;
        TRY(run_next(r, &m, &cut));
    }
    walltime_over(&r->walltime);
    if (tell_is_terminal() && comm_size(r->comm) == 1)
        tell("\n");
    return OK;
}

/* Turns --epochs into steps, once the number of sequences a step is known. */
static enum status count_steps(struct run *r)
{
    struct settings *s = r->s;
    char sequences[32];
    if (s->epochs == 0)
        return OK;
    const int64_t n = corpus_get_report(r->inputs.corpus)->train_sequences;
    const double steps =
        /* the factor allows for rounding: 0.1 * 30 must count as 3, not 4 */
        fmax(1, ceil(s->epochs * (double)n / (double)s->plan.batch * (1 - 1e-12)));
    if (steps > (double)SETTINGS_MOST_STEPS)
        return status_fail(ERR_INVALID, "--epochs %g are %.3g steps, and a run has at most %lld: give fewer", s->epochs, steps,
                           (long long)SETTINGS_MOST_STEPS);
    s->plan.steps = (int64_t)steps;
    r->plans.all.stretches[0].end = s->plan.steps; /* the only stretch: settings allow one length */
    tell("steps: %lld: %g epoch%s of %s sequence%s, %lld a step\n", (long long)s->plan.steps, s->epochs,
         s->epochs == 1 ? "" : "s", units_format_count(n, sequences), n == 1 ? "" : "s", (long long)s->plan.batch);
    s->epochs = 0;
    if (s->trace != AUTO && s->trace > s->plan.steps)
        return status_fail(ERR_INVALID, "--trace: step %lld is after the last one, %lld", (long long)s->trace,
                           (long long)s->plan.steps);
    return OK;
}

enum status run_prepare(struct run *r)
{
    struct comm *c = r->comm;
    int leads = comm_rank(c) == 0;
    r->progress.resumes = r->s->resume != NULL;
    run_note_saved(r, -1);
    TRY(curriculum_check(r->s));
    TRY(run_open(r));
    walltime_expect(&r->walltime, checkpoint_bytes(r->model, r->s->plan.dtype, r->s->plan.optim_dtype));
    TRY(comm_agree(c, settings_absolute_paths(r->s, model_is_preset(r->s->model))));
    TRY(run_claim_directory(r));
    TRY(comm_agree(c, leads ? run_space_check(r->s, r->model) : OK));
    TRY(run_plan(r));
    TRY(comm_agree(c, count_steps(r)));
    TRY(run_make_directory(r));
    TRY(comm_agree(c, run_find_peak(r)));
    run_print_taking(r);
    TRY(run_start(r));
    run_print_before(r);
    walltime_print(&r->walltime);
    TRY(comm_agree(c, run_print_lengths(r)));
    TRY(comm_agree(c, run_load_state(r)));
    TRY(comm_agree(c, run_print_epochs(r)));
    TRY(comm_agree(c, leads ? run_open_files(r) : OK));
    if (leads)
        run_remember_data(r);
    if (leads)
        live_print_run(r);
    return OK;
}

/* Saves the trained state and ends the run after its data have gone or changed. */
static enum status save_unread(struct run *r, enum status st)
{
    char cause[768], left[512];
    snprintf(cause, sizeof cause, "%s", status_message());
    enum status saved = r->place.saved == r->progress.at.step ? OK : save(r, SAVE_LAST);
    if (saved != OK) {
        char why[512];
        snprintf(why, sizeof why, "%.500s", status_message());
        return status_fail(st, "%s; and saving failed: %s", cause, why);
    }
    run_describe_left(r, left, sizeof left);
    return comm_agree(r->comm, status_fail(st, "%s; %s", cause, left));
}

/* Completes the message of a failure, of this rank or another, with the state that is left of the run. */
static enum status failed(const struct run *r, enum status st)
{
    char cause[1024], left[512];
    int begun = r->place.log != NULL; /* 1: the log is open, so that a state may be left */
    if (r->place.told || (st != ERR_DIVERGED && (comm_size(r->comm) == 1 ? !begun : comm_agreed(r->comm))))
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    run_describe_left(r, left, sizeof left);
    return status_fail(st, "%s; %s", cause, left);
}

enum status run_save(struct run *r)
{
    return r->place.saved == r->progress.at.step ? OK : save(r, SAVE_LAST);
}

enum status run_finish(struct run *r)
{
    char model_path[4096];
    const int stopped = r->progress.signal != 0;
    TRY(run_flush(r));
    if (stopped)
        TRY(run_print_saving(r));
    if (stopped || r->s->save_every > 0)
        TRY(save(r, SAVE_LAST));
    TRY(comm_agree(r->comm, session_check_memory(r->session)));
    snprintf(model_path, sizeof model_path, "%s/hf", r->s->out);
    if (!stopped) /* a later signal ends nothing any more */
        TRY(export(r, model_path));
    TRY(run_print_after(r, stopped ? NULL : model_path));
    observe_write(r);
    if (!stopped)
        TRY(check_last_steps(r, model_path));
    return comm_agree(r->comm, r->place.log ? close_log(r, OK) : OK);
}

enum status run_close(struct run *r, enum status st)
{
    if (st != OK)
        st = r->inputs.unread ? save_unread(r, st) : failed(r, st);
    if (r->place.log)
        st = close_log(r, st);
    board_close(r->place.board);
    metrics_file_close(r->place.metrics_file);
    batch_destroy(r->batch);
    session_destroy(r->session);
    train_plans_destroy(&r->plans.all);
    corpus_close(r->inputs.corpus);
    free(r->inputs.texts.data);
    free(r->inputs.texts.settings);
    model_destroy(r->stage);
    model_destroy(r->model);
    run_lock_release(r->place.lock);
    return st;
}

/* Takes a run from its first step to its end, or to a signal. */
static enum status run_to_end(struct run *r)
{
    const struct settings *s = r->s;
    const int stops_at_once = s->stop == STOP_NOW && s->mode == MODE_RUN;
    TRY(signals_stop_run(r->comm, s->stop));
    if (stops_at_once)
        comm_cut_for(r->comm, signals_first());
    run_say_rereading(r, stops_at_once ? signals_first() : NULL);
    TRY(run_evaluate_before(r));
    TRY(loop(r));
    if (!r->progress.signal)
        signals_training_done();
    return run_finish(r);
}

enum status train_run(struct settings *s, struct comm *comm, const struct train_hooks *hooks, int *signal_number)
{
    struct run r = {
        .s = s,
        .comm = comm,
        .hooks = hooks,
    };
    signals_before_first_step(comm_rank(comm) == 0);
    enum status st = comm_agree(comm, walltime_begin(s->walltime, &r.walltime));
    if (st == OK)
        st = run_prepare(&r);
    if (st == OK)
        st = run_to_end(&r);
    if (st != OK)
        signals_run_failed();
    *signal_number = r.progress.signal;
    return run_close(&r, st);
}
