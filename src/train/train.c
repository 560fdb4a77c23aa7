/* The training loop: batches in, programs run, metrics and checkpoints out. */
#include "train/run.h"
#include "train/space.h"

#include "base/sys.h"
#include "base/units.h"
#include "engine/source.h"
#include "engine/weights.h"
#include "offload/drives.h"
#include "plan/report/refuse.h"
#include "settings/curriculum.h"
#include "settings/read.h"
#include "train/evaluate.h"
#include "train/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SKIPS_ALLOWED 3 /* steps in a row without a finite gradient norm; after them the run ends */

/* Adds to the message of a checkpoint or an export that was not made that training diverged. */
static enum status say_diverged(const struct run *r, enum status st, const char *not_made)
{
    char cause[1024];
    if (st != ERR_DIVERGED)
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(st, "training diverged: %s after step %lld, %s; a lower --lr may help", cause, (long long)r->at.step,
                       not_made);
}

static enum status save(struct run *r, enum save_when when)
{
    if ((r->signal || when == SAVE_TO_GO_ON) && r->saved == r->at.step)
        return OK; /* saved already */
    /* An older, good checkpoint is worth more than one after a skipped step. At a stop both are kept: the next step may be a good
     * one. */
    const int keeps_older = r->skipped_in_row > 0 && r->saved >= 0;
    if (keeps_older && !r->signal && when != SAVE_TO_GO_ON) {
        printf("step %lld not saved: it was skipped\n", (long long)r->at.step);
        fflush(stdout);
        return OK;
    }
    TRY(run_flush(r));
    enum status st = run_check_place(r);
    if (st == OK)
        st = checkpoint_save(r->session, r->s->out, &r->at, &r->texts, (int)max_i64(1, r->s->keep) + keeps_older);
    st = say_diverged(r, st, "which was not saved");
    if (st != OK)
        return run_save_failed(r, st, when);
    run_note_saved(r, r->at.step);
    return OK;
}

static enum status export(struct run *r, const char *path) {
    enum status st = run_check_place(r); if (st == OK) st = run_export(r, path);
    st = say_diverged(r, st, "which was not exported");
    return st == OK ? OK : run_export_failed(r, st);
}

/* Closes the run's log; its failure does not hide another one. */
static enum status close_log(struct run *r, enum status st)
{
    char cause[1024];
    struct run_log *log = r->metrics;
    r->metrics = NULL;
    if (st == OK)
        return comm_agree(r->comm, run_log_close(log));
    snprintf(cause, sizeof cause, "%s", status_message());
    if (r->taken_over)
        run_log_abandon(log);
    else
        (void)run_log_close(log);
    return status_fail(st, "%s", cause);
}

/* Reports that the last steps were skipped: the exported model is that of the step before them. */
static enum status check_last_steps(struct run *r, const char *model_path)
{
    if (r->skipped_in_row == 0)
        return OK;
    return comm_agree(r->comm,
                      status_fail(ERR_DIVERGED,
                                  "the gradient norm was not finite in the last %lld of %lld steps, which were "
                                  "skipped: %s has the model of step %lld, which may be of no use; a lower --lr may help",
                                  (long long)r->skipped_in_row, (long long)r->at.step, model_path,
                                  (long long)(r->at.step - r->skipped_in_row)));
}

/* Adds up the bytes that all ranks have moved since the last step: on drives, and in messages of the comm lanes. */
static enum status sum_moved(struct run *r, const struct lane_stats lanes[LANES], struct step_metrics *m)
{
    double sum[2 + 2 * LANES] = {(double)lanes[LANE_READ].bytes, (double)lanes[LANE_WRITE].bytes};
    for (int l = LANE_WORLD; l < LANES; l++) {
        struct comm_traffic own = comm_bytes_sent(r->comm, (enum lane)l);
        sum[2 + 2 * l] = (double)own.same_host;
        sum[3 + 2 * l] = (double)own.other_hosts;
    }
    TRY(comm_sum(r->comm, sum, 2 + 2 * LANES));
    m->read_bytes = (int64_t)sum[0];
    m->written_bytes = (int64_t)sum[1];
    for (int l = LANE_WORLD; l < LANES; l++) {
        struct comm_traffic all = {.same_host = (int64_t)sum[2 + 2 * l], .other_hosts = (int64_t)sum[3 + 2 * l]};
        m->sent.same_host += all.same_host - r->sent[l].same_host;
        m->sent.other_hosts += all.other_hosts - r->sent[l].other_hosts;
        r->sent[l] = all;
    }
    return OK;
}

static void add_alike(struct run *r, const struct lane_stats lanes[LANES], const struct step_metrics *m)
{
    if (m->updated && !r->alike.updated)
        memset(&r->alike, 0, sizeof r->alike);
    if (!m->updated && r->alike.updated)
        return;
    r->alike.updated = m->updated;
    for (int l = 0; l < LANES; l++) {
        r->alike.lanes[l].bytes += lanes[l].bytes;
        r->alike.lanes[l].busy_ns += lanes[l].busy_ns;
        r->alike.lanes[l].waited_ns += lanes[l].waited_ns;
        for (int c = 0; c < CLASSES; c++)
            r->alike.lanes[l].stalled[c] += lanes[l].stalled[c];
    }
    r->alike.seconds += m->seconds;
    r->alike.steps++;
}

static enum status finish_metrics(struct run *r, struct step_metrics *m)
{
    struct lane_stats lanes[LANES];
    executor_take_stats(r->session->executor, lanes);
    add_alike(r, lanes, m);
    const struct plan *p = r->session->plan;
    TRY(sum_moved(r, lanes, m));
    m->peak_flops = r->peak_flops;
    m->peak_reference = r->peak_reference;
    m->submission = executor_take_submission(r->session->executor);
    m->device_bytes = p->arena[TIER_DEVICE];
    m->device_limit = r->limit[TIER_DEVICE];
    m->host_bytes = p->arena[TIER_HOST];
    m->nvme_bytes = p->arena[TIER_NVME];
    m->hidden = metrics_hidden(lanes, m->seconds);
    m->stall_seconds = (double)lanes[LANE_COMPUTE].waited_ns * 1e-9;
    for (int l = 0; l < LANES; l++)
        memcpy(m->stalled[l], lanes[l].stalled, sizeof m->stalled[l]);
    m->planned_seconds = p->seconds;
    r->run_seconds += m->seconds;
    r->steps_here++;
    r->planned_here += p->seconds;
    m->eta_seconds = r->run_seconds / r->planned_here * run_planned_seconds(r);
    return OK;
}

/* Goes on training without a reader of the steps' lines, or with their file full. */
static void check_output(struct run *r)
{
    if (!ferror(stdout))
        return;
    clearerr(stdout);
    if (!r->mute)
        fprintf(stderr, "ltrain: standard output is closed or full: training goes on, and %s/metrics.jsonl has every step\n",
                r->s->out);
    r->mute = 1;
}

/* Adds a line to the log, after a check of the directory. If another run has it now, nothing is written there, and this run ends,
 * saved elsewhere. A directory out of its place is left to the next save to report. */
static enum status add_line(struct run *r, const struct step_metrics *m)
{
    char cause[1024];
    enum status st = run_check_place(r);
    if (!r->taken_over)
        return comm_broken(r->comm) ? st : r->metrics ? run_log_add(r->metrics, m) : OK;
    snprintf(cause, sizeof cause, "%s", status_message());
    TRY(run_flush(r));
    status_fail(st, "%s", cause);
    return run_save_failed(r, st, SAVE_LAST);
}

/* Saves and reads the state again into the homes of the next length's plan, so that training goes on as a resumed run would. */
static enum status follow_lengths(struct run *r)
{
    if (run_length_changes(r)) {
        TRY(save(r, SAVE_TO_GO_ON));
        return run_change_length(r);
    }
    r->stretch = curriculum_at(r->s, r->at.step);
    return OK;
}

/* Evaluates the model before the first step. */
static enum status evaluate_before(struct run *r)
{
    struct step_metrics m = {.step = 0, .evaluated = 1};
    int cut;
    if (!r->s->plan.eval_before || r->at.step > 0)
        return OK;
    TRY(run_evaluate(r, &m.eval, &cut));
    if (cut)
        return OK;
    metrics_print_evaluation(&m, stdout);
    return add_line(r, &m);
}

static enum status loop(struct run *r)
{
    const struct settings *s = r->s;
    int terminal = isatty(STDOUT_FILENO) && comm_size(r->comm) == 1; /* mpiexec gives its ranks a terminal of their own */
    TRY(evaluate_before(r));
    for (;;) {
        TRY(signals_agree(r->comm, &r->signal));
        if (r->at.step >= s->plan.steps || r->signal)
            break;
        TRY(follow_lengths(r));
        struct step_metrics m = {0};
        struct lane_stats between[LANES]; /* statistics of evaluations and checkpoints */
        executor_take_stats(r->session->executor, between);
        (void)executor_take_submission(r->session->executor);
        int cut;
        TRY(run_step(r, &m, &cut));
        if (cut) {
            run_print_thrown(r, m.seconds, terminal);
            continue;
        }
        TRY(finish_metrics(r, &m));
        m.evaluated = s->plan.eval_every > 0 && r->at.step % s->plan.eval_every == 0;
        if (m.evaluated) {
            TRY(run_evaluate(r, &m.eval, &cut));
            if (cut)
                printf("%sthe evaluation after step %lld is left out\n", terminal ? "\n" : "", (long long)r->at.step);
            m.evaluated = !cut;
        }
        metrics_print(&m, stdout, terminal);
        check_output(r);
        TRY(add_line(r, &m));
        if (r->skipped_in_row >= SKIPS_ALLOWED)
            return comm_agree(
                r->comm, status_fail(ERR_DIVERGED,
                                     "training diverged: the gradient norm was not finite in the %d steps up to %lld; a lower "
                                     "--lr may help",
                                     SKIPS_ALLOWED, (long long)r->at.step));
        if (s->save_every > 0 && r->at.step % s->save_every == 0 && r->at.step < s->plan.steps)
            TRY(save(r, SAVE_ON_THE_WAY));
    }
    if (terminal)
        printf("\n");
    return OK;
}

/* Notes tensors that are in more than one file; other programs take the copy of the last file. */
static void say_left_out(const struct st_file *f, FILE *notes)
{
    const char *first;
    int n = st_left_out(f, &first);
    const char *more = n > 1 ? ", and more tensors," : "";
    if (n > 0 && st_has(f, first))
        fprintf(
            notes,
            "note: %s%s in more than one file: the copy in %s counts, as the index says; transformers 5.24 takes that of the last shard\n",
            first, more, st_path(f, first));
    else if (n > 0)
        fprintf(notes, "note: %s%s in another file than the index says: left out\n", first, more);
}

static enum status say_others(const struct st_file *f, const struct model *m, FILE *notes)
{
    struct weights_others x;
    char bytes[32], first[WRAPPED_NAME];
    TRY(weights_others(f, m, &x));
    if (x.n > 0) {
        snprintf(first, sizeof first, "%s", x.names[0]);
        fprintf(notes, "note: only the text model is trained: %d other tensors (%s and so on, %s) are exported as they are\n",
                x.n, first, units_format_bytes(x.bytes, bytes));
    }
    weights_others_free(&x);
    return OK;
}

/* Checks a new run's weights; they are read later, once there is room for them. */
enum status run_check_weights(const struct settings *s, const struct model *m, FILE *notes)
{
    struct st_file *f;
    if (s->resume)
        return OK;
    if (model_is_preset(s->model))
        return s->ignore_tensors.n == 0 ? OK
                                        : status_fail(ERR_INVALID,
                                                      "--ignore-tensors: --model %s is a preset, without files: "
                                                      "leave it out",
                                                      s->model);
    TRY(st_open(s->model, &f));
    enum status st = weights_check(f, m, (const char *const *)s->ignore_tensors.item, s->ignore_tensors.n);
    if (st == OK && notes)
        say_left_out(f, notes);
    if (st == OK && notes && !s->plan.evaluation)
        st = say_others(f, m, notes);
    st_close(f);
    return st;
}

static enum status check_adapter(const struct settings *s, const struct model *m)
{
    struct source src;
    if (s->resume || !s->adapter)
        return OK;
    TRY(source_open(m, NULL, s->adapter, 0, &src));
    enum status st = source_check_adapter(&src);
    source_close(&src);
    return st;
}

static enum status open_inputs(struct run *r)
{
    TRY(train_open_model(r->s, &r->model));
    TRY(run_check_weights(r->s, r->model, stdout));
    TRY(check_adapter(r->s, r->model));
    return drives_check((const char *const *)r->s->nvme_path.item, r->s->nvme_path.n, r->s->out);
}

enum status run_start(struct run *r)
{
    const struct settings *s = r->s;
    const char *path[SETTINGS_MAX_LIST] = {s->out};
    int index[SETTINGS_MAX_LIST], n = 1;
    if (s->nvme_path.n > 0) {
        n = drives_of_rank(s->nvme_path.n, comm_local_rank(r->comm), comm_local_size(r->comm), index);
        for (int i = 0; i < n; i++)
            path[i] = s->nvme_path.item[index[i]];
    }
    r->plans.owned = 0;
    TRY(comm_agree(r->comm, session_create(r->model, r->plans.plan, r->plans.n, s, r->comm, path, n, &r->session)));
    if (s->plan.grad_accum > 1) /* a step's data are read once, so that no step begins in vain */
        TRY(comm_agree(r->comm, corpus_keep(r->corpus, s->plan.grad_accum)));
    return run_use_stretch(r, 0);
}

enum status run_open(struct run *r)
{
    struct comm *c = r->comm;
    if (r->s->mode == MODE_CHAOS && comm_size(c) > 1)
        return comm_agree(
            c, status_fail(ERR_INVALID,
                           "mode chaos executes a program out of order, which one rank alone can do: leave out --ranks"));
    if (r->s->plan.machine)
        return comm_agree(c,
                          status_fail(ERR_INVALID, "--machine: %s is planned for, not trained on: `ltrain plan` takes --machine",
                                      r->s->plan.machine));
    int asked = train_planned_ranks(r->s);
    if (asked > 1 && comm_size(c) == 1)
        return status_fail(
            ERR_INVALID, "the mesh is of %d ranks, and this is a single process: add --ranks %d, or start it with mpiexec -n %d",
            asked, asked, asked);
    run_begin_reading(r);
    enum status st = comm_agree(c, open_inputs(r));
    if (st == OK)
        st = run_open_data(r);
    if (st == OK)
        st = comm_agree(c, run_describe_data(r));
    if (st == OK)
        st = run_compare_inputs(r);
    run_end_reading();
    return st;
}

/* Returns the bytes beside the plan's memory and beyond those set aside for the program. */
static int64_t bytes_beside(const struct run *r, const struct plan *plan)
{
    return (r->s->staged ? session_message_bytes(plan) : 0) +
           max_i64(0, session_staging_bytes(r->model, plan) - MEMORY_ASIDE_STAGING);
}

/* Checks a length's plan: it is equal on all ranks, it fits, and its memory is free. */
static enum status check_plan(struct run *r, const struct plan *plan)
{
    struct comm *c = r->comm;
    struct plan_request request = r->s->plan;
    request.seq_len = plan_length(plan);
    TRY(run_compare_plans(c, plan));
    if (!plan->fits)
        return comm_agree(c, train_say_length(r->s, request.seq_len, refuse_plan(plan, r->model, &request)));
    return comm_agree(c,
                      train_say_length(r->s, request.seq_len, memory_check(&r->memory, plan, bytes_beside(r, plan), &request)));
}

/* Checks the plans together: arenas are as large as the largest plan's, in each tier, and need room at once. */
static enum status check_together(const struct run *r)
{
    struct plan all = *r->plans.plan[0];
    int64_t beside = 0;
    for (int i = 0; i < r->plans.n; i++) {
        beside = max_i64(beside, bytes_beside(r, r->plans.plan[i]));
        for (int t = 0; t < TIERS; t++)
            all.arena[t] = max_i64(all.arena[t], r->plans.plan[i]->arena[t]);
    }
    return memory_check(&r->memory, &all, beside, &r->s->plan);
}

enum status run_plan(struct run *r)
{
    struct comm *c = r->comm;
    struct settings *s = r->s;
    TRY(comm_agree(c, train_plan(s, c, comm_size(c), r->model, &r->plans, r->limit)));
    TRY(memory_part_find(c, 1, s->plan.threads, &r->memory)); /* given budgets may exceed the memory */
    for (int i = 0; i < r->plans.n; i++)
        TRY(check_plan(r, r->plans.plan[i]));
    TRY(comm_agree(c, check_together(r)));
    TRY(comm_set_mesh(c, &s->plan.mesh));
    const struct strategy *grid = &r->plans.plan[0]->strategy;
    s->plan.group = grid->group;
    if (s->curriculum.n == 0) {
        s->plan.row_chunk = grid->row_chunk;
        s->plan.head_tile = grid->head_tile;
        s->plan.loss_tile = grid->loss_tile;
    }
    enum status st = OK;
    for (int i = 0; i < r->plans.n && s->curriculum.n > 0 && st == OK; i++) {
        grid = &r->plans.plan[i]->strategy;
        st = curriculum_note_tiles(s, plan_length(r->plans.plan[i]), grid->row_chunk, grid->head_tile, grid->loss_tile);
    }
    return comm_agree(c, st);
}

/* Turns --epochs into steps, once the number of sequences a step is known. */
static enum status count_steps(struct run *r)
{
    struct settings *s = r->s;
    char sequences[32];
    if (s->epochs == 0)
        return OK;
    const int64_t n = corpus_get_report(r->corpus)->train_sequences;
    const double steps =
        fmax(1, ceil(s->epochs * (double)n / (double)s->plan.batch * (1 - 1e-12))); /* 0.1 * 30 is 3, not above it */
    if (steps > (double)SETTINGS_MOST_STEPS)
        return status_fail(ERR_INVALID, "--epochs %g are %.3g steps, and a run has at most %lld: give fewer", s->epochs, steps,
                           (long long)SETTINGS_MOST_STEPS);
    s->plan.steps = (int64_t)steps;
    r->plans.stretches[0].end = s->plan.steps; /* the only stretch: settings allow one length */
    printf("steps: %lld: %g epoch%s of %s sequence%s, %lld a step\n", (long long)s->plan.steps, s->epochs,
           s->epochs == 1 ? "" : "s", units_format_count(n, sequences), n == 1 ? "" : "s", (long long)s->plan.batch);
    s->epochs = 0;
    if (s->trace != AUTO && s->trace > s->plan.steps)
        return status_fail(ERR_INVALID, "--trace: step %lld is after the last one, %lld", (long long)s->trace,
                           (long long)s->plan.steps);
    return OK;
}

/* Prepares a run up to its first step. Every rank reaches the same points, or all fail. */
static enum status prepare(struct run *r)
{
    struct comm *c = r->comm;
    int leads = comm_rank(c) == 0;
    TRY(curriculum_check(r->s));
    TRY(run_open(r));
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
    TRY(comm_agree(c, run_print_lengths(r)));
    TRY(comm_agree(c, run_load_state(r)));
    TRY(comm_agree(c, run_print_epochs(r)));
    TRY(comm_agree(c, leads ? run_open_files(r) : OK));
    if (leads)
        run_remember_data(r);
    return OK;
}

/* Saves the trained state and ends the run after its data have gone or changed. */
static enum status save_unread(struct run *r, enum status st)
{
    char cause[768], left[512];
    snprintf(cause, sizeof cause, "%s", status_message());
    enum status saved = r->saved == r->at.step ? OK : save(r, SAVE_LAST);
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
    int begun = r->metrics != NULL; /* 1: something may be left; a rank alone has nothing before that */
    if (r->told || (st != ERR_DIVERGED && (comm_size(r->comm) == 1 ? !begun : comm_agreed(r->comm))))
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    run_describe_left(r, left, sizeof left);
    return status_fail(st, "%s; %s", cause, left);
}

enum status train_run(struct settings *s, struct comm *comm, const struct train_hooks *hooks, int *signal_number)
{
    struct run r = {
        .s = s,
        .comm = comm,
        .hooks = hooks,
    };
    enum status st;
    char model_path[4096];
    *signal_number = 0;
    run_note_saved(&r, -1);
    signals_before_first_step(comm_rank(comm) == 0);
    TRY_GOTO(prepare(&r), out);
    signals_stop_run(s->stop);
    const int stops_at_once = s->stop == STOP_NOW && s->mode == MODE_RUN;
    if (stops_at_once)
        comm_cut_for(comm, signals_first());
    run_say_rereading(&r, stops_at_once ? signals_first() : NULL);
    TRY_GOTO(loop(&r), out);
    if (!r.signal)
        signals_training_done();
    TRY_GOTO(run_flush(&r), out);
    *signal_number = r.signal;
    if (*signal_number)
        TRY_GOTO(run_print_saving(&r), out);
    if (*signal_number || s->save_every > 0)
        TRY_GOTO(save(&r, SAVE_LAST), out);
    TRY_GOTO(comm_agree(comm, session_check_memory(r.session)), out);
    snprintf(model_path, sizeof model_path, "%s/hf", s->out);
    if (!*signal_number) /* a later signal ends nothing any more */
        TRY_GOTO(export(&r, model_path), out);
    TRY_GOTO(run_print_after(&r, *signal_number ? NULL : model_path), out);
    if (!*signal_number)
        TRY_GOTO(check_last_steps(&r, model_path), out);
    TRY_GOTO(close_log(&r, OK), out);
out:
    if (st != OK)
        signals_run_failed();
    if (st != OK)
        st = r.unread ? save_unread(&r, st) : failed(&r, st);
    if (r.metrics)
        st = close_log(&r, st);
    batch_destroy(r.batch);
    session_destroy(r.session);
    train_plans_destroy(&r.plans);
    corpus_close(r.corpus);
    free(r.texts.data);
    free(r.texts.settings);
    model_destroy(r.model);
    run_lock_release(r.lock);
    return st;
}
