#include "eval/eval.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "base/units.h"
#include "eval/eval_results.h"
#include "eval/eval_tasks.h"
#include "eval/result_file.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/signals.h"
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lengths and tasks ---- */

static enum status add_length(struct eval *x, int64_t length)
{
    if (x->n == MOST_LENGTHS)
        return status_fail(ERR_INVALID, "--lengths: more than %d lengths", MOST_LENGTHS);
    for (int i = 0; i < x->n; i++)
        if (x->length[i] == length)
            return status_fail(ERR_INVALID, "--lengths: %lld is there twice", (long long)length);
    x->length[x->n++] = length;
    return OK;
}

/* Adds the lengths that an item such as "8192" or "8k..128k" names. */
static enum status add_lengths(struct eval *x, const char *item)
{
    char text[64];
    int64_t a, b;
    snprintf(text, sizeof text, "%s", item);
    char *dots = strstr(text, "..");
    if (dots)
        *dots = 0;
    TRY(units_parse_count("--lengths", text, &a));
    b = a;
    if (dots)
        TRY(units_parse_count("--lengths", dots + 2, &b));
    const int64_t outside = a < 2 || a > SETTINGS_MOST_TOKENS ? a : b;
    if (outside < 2 || outside > SETTINGS_MOST_TOKENS)
        return status_fail(ERR_INVALID, "--lengths: %s: %lld is not between 2 and %d", item, (long long)outside,
                           SETTINGS_MOST_TOKENS);
    if (b < a)
        return status_fail(ERR_INVALID, "--lengths: %s: N..M goes from the shorter to the longer one", item);
    for (; a < b; a *= 2)
        TRY(add_length(x, a));
    return add_length(x, b);
}

static enum status read_lengths(struct eval *x)
{
    const struct settings *s = x->s;
    for (int i = 0; i < s->lengths.n; i++)
        TRY(add_lengths(x, s->lengths.item[i]));
    if (x->n == 0 && s->plan.seq_len <= 0)
        return status_fail(ERR_INVALID, "how long are the windows? give --lengths, as 8k or 8k..128k");
    return x->n == 0 ? add_length(x, s->plan.seq_len) : OK;
}

static enum status add_task(struct task_results *r, enum task t)
{
    for (int i = 0; i < r->n_tasks; i++)
        if (r->task[i] == t)
            return status_fail(ERR_INVALID, "--tasks: %s is there twice", task_name(t));
    r->task[r->n_tasks++] = t;
    return OK;
}

static enum status refuse_task(const char *name)
{
    char names[256] = "ppl, position";
    for (int t = 0; t < TASKS; t++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", t == TASKS - 1 ? " and " : ", ", task_name((enum task)t));
    }
    return status_fail(ERR_INVALID, "--tasks: there is no task '%s'; the tasks are %s", name, names);
}

static enum status read_tasks(struct eval *x)
{
    const struct string_list *t = &x->s->tasks;
    x->perplexity = x->position = t->n == 0;
    for (int i = 0; i < t->n; i++) {
        int is_ppl = strcmp(t->item[i], "ppl") == 0, is_position = strcmp(t->item[i], "position") == 0;
        enum task task = task_find(t->item[i]);
        if (!is_ppl && !is_position && task == TASKS)
            return refuse_task(t->item[i]);
        x->perplexity |= is_ppl;
        x->position |= is_position;
        if (task != TASKS)
            TRY(add_task(&x->tasks, task));
    }
    return OK;
}

/* Prepares lengths and depths of the tasks that are answered. */
static enum status prepare_tasks(struct eval *x)
{
    struct task_results *r = &x->tasks;
    const struct settings *s = x->s;
    const char *given = s->depths.n ? "depths" : s->write_samples ? "write-samples" : s->svg ? "svg" : s->chat ? "chat" : NULL;
    if (r->n_tasks == 0)
        return given ? status_fail(ERR_INVALID, "--%s is for tasks that are answered: give --tasks needle, or others", given)
                     : OK;
    if (s->write_samples && (x->perplexity || x->position))
        return status_fail(ERR_INVALID, "--write-samples writes samples and evaluates nothing: leave out ppl and position");
    if (s->write_samples && s->svg)
        return status_fail(ERR_INVALID, "--write-samples writes samples, and there is nothing to draw: leave out --svg");
    if (s->write_samples && s->json)
        return status_fail(ERR_INVALID, "--write-samples writes samples, and there are no results: leave out --json");
    if (s->samples == 0)
        return status_fail(ERR_INVALID, "--samples: a cell needs one answer at least");
    r->depth = sys_calloc(EVAL_MOST_DEPTHS, sizeof *r->depth);
    r->length = sys_calloc(MOST_LENGTHS, sizeof *r->length);
    if (!r->depth || !r->length)
        return status_fail(ERR_NOMEM, "out of memory");
    memcpy(r->length, x->length, sizeof x->length);
    r->n_lengths = x->n;
    return eval_tasks_depths(s, r->depth, &r->n_depths);
}

static enum status replace(char **text, const char *by)
{
    char *copy = strdup(by);
    if (!copy)
        return status_fail(ERR_NOMEM, "out of memory");
    free(*text);
    *text = copy;
    return OK;
}

/* ---- one length ---- */

struct opening {
    struct run *run;
    int is_first; /* 1: no result before this one */
    int64_t stride;
    const struct held_out *held_out;
    struct windows *windows;
};

static enum status open_windows(void *user, const struct corpus_config *config)
{
    struct opening *x = user;
    snprintf(x->run->inputs.tokenizer, sizeof x->run->inputs.tokenizer, "%s",
             config->tokenizer ? tokenizer_path(config->tokenizer) : "");
    return x->held_out->taken ? held_out_open(x->held_out, config, x->stride, &x->windows)
                              : windows_open(config, x->stride, &x->windows);
}

/* Reads the texts: one rank of each host tokenizes, and the others take the tokens from the cache. */
static enum status read_texts(struct run *r, struct opening *x)
{
    const int first = comm_local_rank(r->comm) == 0;
    run_begin_reading(r);
    enum status st = comm_agree(r->comm, first ? data_read(r->s, r->model, open_windows, x) : OK);
    if (st == OK)
        st = comm_agree(r->comm, first ? OK : data_read(r->s, r->model, open_windows, x));
    run_end_reading();
    return st;
}

static enum status take_window(void *user, int64_t number, struct sequence *out, int64_t *used)
{
    return windows_take(user, number, out, used);
}

static enum status evaluate(struct run *r, const struct windows *w, struct evaluation *out, int *cut)
{
    struct tokenizer *t = NULL;
    struct sequence_source source = {.take = take_window, .user = (void *)w, .counts_bytes = windows_get_report(w)->has_text};
    TRY(comm_agree(r->comm, r->inputs.tokenizer[0] ? tokenizer_open(r->inputs.tokenizer, &t) : OK));
    source.tokenizer = t;
    enum status st = run_evaluate_source(r, &source, windows_get_report(w)->windows, out, cut);
    tokenizer_close(t);
    return st;
}

static enum status evaluate_length(struct run *r, struct opening *x, struct result *out)
{
    int cut = 0;
    TRY(run_plan(r));
    TRY(run_start(r));
    TRY(comm_agree(r->comm, run_load_state(r)));
    out->texts = *windows_get_report(x->windows);
    if (x->is_first)
        TRY(signals_stop_evaluation(r->comm, comm_rank(r->comm) == 0));
    comm_cut_for(r->comm, signals_first());
    TRY(evaluate(r, x->windows, &out->found, &cut));
    if (cut)
        return OK;
    if (out->found.targets == 0)
        return comm_agree(r->comm, status_fail(ERR_INVALID, "--eval-data: its documents have one token each or nothing that is "
                                                            "trained, so there is nothing to predict"));
    return comm_agree(r->comm, session_check_memory(r->session));
}

/* Returns the stream for notes, which are written once and never into the printed results; NULL: none. */
static FILE *notes_of(const struct eval *x)
{
    return x->text_is_said || comm_rank(x->comm) != 0 ? NULL : x->s->json ? stderr : stdout;
}

/* Tells on the notes' stream which text is evaluated, before the evaluation, which may take long, and the model's unknown keys. */
static void say_text(struct eval *x, const struct model *m, const struct windows_report *texts)
{
    FILE *f = notes_of(x);
    if (f) {
        if (x->held_out.taken)
            held_out_print(&x->held_out, f);
        if (texts->left_out)
            fprintf(f, "text: --data-exclude leaves out %lld file%s\n", (long long)texts->left_out,
                    texts->left_out == 1 ? "" : "s");
        train_print_unknown(m, f);
    }
    fflush(stdout);
    x->text_is_said = 1;
}

/* Checks the settings, the model's files and the texts before anything is computed. */
static enum status check_length(struct eval *x, struct run *r, struct opening *o)
{
    TRY(comm_agree(r->comm, train_open_model(r->s, &r->model)));
    TRY(comm_agree(r->comm, run_check_weights(r->s, r->model, notes_of(x))));
    TRY(read_texts(r, o));
    say_text(x, r->model, windows_get_report(o->windows));
    x->positions = train_made_for(r->s, r->model);
    return OK;
}

/* Evaluates one length. out NULL: only reads and checks the input. */
static enum status one_length(struct eval *x, int64_t length, struct result *out)
{
    struct settings s = *x->s;
    char everything[] = MODEL_FREEZE_ALL;
    struct run r = {.s = &s, .comm = x->comm, .place.saved = -1};
    struct opening opening = {.run = &r,
                              .is_first = x->done == 0 && x->tasks.n_tasks == 0,
                              .stride = s.stride == AUTO ? length : s.stride,
                              .held_out = &x->held_out};
    if (x->held_out.taken)
        held_out_apply(&x->held_out, &s);
    s.plan.seq_len = length;
    s.curriculum.n = 0;
    s.plan.evaluation = 1;
    s.plan.grad_accum = 1;
    s.plan.batch = AUTO;
    s.plan.steps = 1;
    s.plan.freeze = (struct string_list){{everything}, 1};
    if (out)
        *out = (struct result){.length = length, .stride = opening.stride};
    enum status st = check_length(x, &r, &opening);
    if (st == OK && out)
        st = evaluate_length(&r, &opening, out);
    batch_destroy(r.batch);
    session_destroy(r.session);
    train_plans_destroy(&r.plans.all);
    windows_close(opening.windows);
    model_destroy(r.stage);
    model_destroy(r.model);
    free(s.plan.hardware);
    free(s.plan.target);
    return st;
}

/* Prints the results found before a failure, then returns the failure. */
static enum status print_finished(struct eval *x, enum status st)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    (void)eval_print(x); /* only the first failure is reported */
    return status_fail(st, "%s", why);
}

/* Checks output files before the evaluation, which may take long. */
static enum status check_files(const struct settings *s, const struct held_out *text)
{
    TRY(s->svg ? result_file_check("svg", s->svg, s) : OK);
    TRY(s->svg && text->taken ? result_file_check("svg", s->svg, &text->settings) : OK);
    return s->write_samples ? result_file_check("write-samples", s->write_samples, s) : OK;
}

static enum status begin(struct eval *x)
{
    snprintf(x->model, sizeof x->model, "%s", x->s->adapter ? x->s->adapter : x->s->model);
    if (x->s->explain || x->s->max_seq)
        return status_fail(ERR_INVALID,
                           "--%s is an option of ltrain plan; what ltrain eval finds is printed, as JSON with --json",
                           x->s->explain ? "explain" : "max-seq");
    if (x->s->resume)
        return status_fail(ERR_INVALID, "--resume goes on with training; evaluate a run by --model %s", x->s->resume);
    TRY(read_tasks(x));
    if ((x->perplexity || x->position) && x->s->eval_data.n == 0)
        TRY(held_out_find(x->s, &x->held_out));
    TRY(read_lengths(x));
    TRY(prepare_tasks(x));
    TRY(check_files(x->s, &x->held_out));
    return x->s->out_is_default ? replace(&x->s->out, ".")
                                : OK; /* place of the nvme tier unless --nvme-path or a run's file gives another one */
}

/* Returns the shortest length, which a --stride is most likely to exceed. */
static int64_t shortest(const struct eval *x)
{
    int64_t length = x->length[0];
    for (int i = 1; i < x->n; i++)
        length = min_i64(length, x->length[i]);
    return length;
}

/* Evaluates one length after the other until a signal comes. */
static enum status evaluate_lengths(struct eval *x)
{
    char length[32];
    while (x->done < x->n && x->signal == 0) {
        struct result *r = &x->result[x->done];
        TRY(one_length(x, x->length[x->done], r));
        TRY(signals_agree(x->comm, &x->signal));
        x->done += r->found.sequences > 0;
        if (r->found.sequences == 0 && comm_rank(x->comm) == 0)
            fprintf(stderr, "ltrain: %s before the first window of %s tokens%s\n", signals_name(x->signal),
                    units_format_count(r->length, length),
                    x->done == 0 && !eval_has_answers(x) ? ": there is nothing to show" : "");
    }
    return OK;
}

static enum status evaluate_all(struct eval *x)
{
    /* answers take long, so whatever may be refused is checked before them */
    if (x->tasks.n_tasks > 0 && (x->perplexity || x->position))
        TRY(one_length(x, shortest(x), NULL));
    if (x->tasks.n_tasks > 0)
        TRY(eval_tasks_run(x->s, x->comm, &x->tasks, &x->signal));
    if (eval_has_answers(x) && !x->s->json) /* printed before the losses, which may take long and be stopped */
        TRY(comm_agree(x->comm, comm_rank(x->comm) == 0 ? eval_print(x) : OK));
    return x->perplexity || x->position ? evaluate_lengths(x) : OK;
}

/* Fails if a printed loss is not finite. */
static enum status check_finite(const struct eval *x)
{
    char length[32];
    for (int i = 0; i < x->done; i++)
        if (!isfinite(x->result[i].found.loss))
            return status_fail(
                ERR_DIVERGED,
                "eval: the loss of windows of %s tokens is not finite: the weights of %s are damaged, or its numbers overflow",
                units_format_count(x->result[i].length, length), x->model);
    return OK;
}

enum status eval_run(struct settings *s, struct comm *comm, int *signal_number)
{
    struct eval *x = sys_calloc(1, sizeof *x);
    if (!x)
        return comm_agree(comm, status_fail(ERR_NOMEM, "out of memory"));
    x->s = s;
    x->comm = comm;
    signals_before_first_result(comm_rank(comm) == 0);
    enum status st = comm_agree(comm, begin(x));
    if (st == OK)
        st = evaluate_all(x);
    if (st != OK)
        signals_run_failed();
    *signal_number = x->signal;
    const int found = x->done > 0 || eval_has_answers(x);
    if (st == OK)
        st = comm_agree(comm, found && comm_rank(comm) == 0 ? eval_print(x) : OK);
    else if (found && comm_rank(comm) == 0)
        st = print_finished(x, st);
    if (st == OK)
        st = check_finite(x);
    eval_tasks_destroy(&x->tasks);
    held_out_free(&x->held_out);
    free(x);
    return st;
}
