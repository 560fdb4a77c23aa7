/* Opening and closing sessions. */
#include "api/session.h"

#include "api/options.h"
#include "base/sys.h"
#include "base/tell.h"
#include "settings/keys.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

enum status api_enter(ltrain *s, FILE **before)
{
    if (!s)
        return status_fail(ERR_INVALID, "the session is NULL: ltrain_open makes one");
    if (s->failed != OK)
        return status_fail(ERR_INVALID, "the session has failed (%.900s): close it", s->sentence);
    *before = tell_to(s->tells);
    return OK;
}

enum status api_leave(ltrain *s, FILE *before, enum status st)
{
    tell_to(before);
    if (st != OK && st != ERR_INVALID && st != ERR_STOPPED && st != ERR_DIVERGED && !s->run.inputs.unread) {
        s->failed = st;
        snprintf(s->sentence, sizeof s->sentence, "%s", status_message());
    }
    return st;
}

/* ---- opening ---- */

/* Writes the settings as a text for the card. */
static enum status write_command(int n, const char *const *options, char **out)
{
    size_t size;
    FILE *f = open_memstream(out, &size);
    if (f)
        fputs("ltrain_open:", f);
    for (int i = 0; f && i < n; i++)
        fprintf(f, " %s", options[i]);
    return f && fclose(f) == 0 ? OK : status_fail(ERR_NOMEM, "out of memory: the settings of a session");
}

/* Refuses settings by which the command starts or ends processes, or handles signals: those are the program's. */
static enum status check_settings(const ltrain *s)
{
    const struct settings *x = &s->settings;
    const char *key = settings_is_typed(x, "walltime") ? "walltime" : settings_is_typed(x, "stop") ? "stop" : NULL;
    if (key)
        return status_fail(ERR_INVALID, "%s: signals and timers are the program's own: leave it out, and save by ltrain_save",
                           key);
    if (x->plan.ranks > 1 && comm_size(s->comm) == 1)
        return status_fail(ERR_INVALID, "ranks %d: a session starts no processes: start the program by mpiexec -n %d",
                           x->plan.ranks, x->plan.ranks);
    if ((s->flags & LTRAIN_FROZEN) && (x->resume || s->flags & (LTRAIN_BATCHES | LTRAIN_WEIGHTS)))
        return status_fail(ERR_INVALID, "a frozen session trains nothing: open it %s",
                           x->resume ? "with `model = RUN` in place of resume" : "without LTRAIN_BATCHES and LTRAIN_WEIGHTS");
    return OK;
}

/* Opens a session that only evaluates, as ltrain eval does. */
static enum status prepare_frozen(ltrain *s)
{
    struct run *r = &s->run;
    struct plan_request *p = &s->settings.plan;
    char *everything = strdup(MODEL_FREEZE_ALL), *here = strdup(".");
    if (!everything || !here) {
        free(everything);
        free(here);
        return comm_agree(s->comm, status_fail(ERR_NOMEM, "out of memory: the settings of a session"));
    }
    settings_list_clear(settings_key_find("freeze"), &s->settings);
    p->freeze = (struct string_list){{everything}, 1};
    p->evaluation = 1;
    p->grad_accum = p->steps = 1;
    p->batch = AUTO;
    free(s->settings.out);
    s->settings.out = here;
    r->place.saved = -1;
    TRY(comm_agree(s->comm, train_open_model(r->s, &r->model)));
    TRY(comm_agree(s->comm, run_check_weights(r->s, r->model, NULL)));
    TRY(run_plan(r));
    TRY(run_start(r));
    return comm_agree(s->comm, run_load_state(r));
}

static enum status prepare(ltrain *s)
{
    struct settings *x = &s->settings;
    TRY(comm_agree(s->comm, train_resolve_model(x, "give the model's directory by model, and the adapter by adapter", NULL)));
    TRY(comm_agree(s->comm, check_settings(s)));
    TRY(comm_agree(s->comm, walltime_begin("none", &s->run.walltime)));
    x->plan.scores = (s->flags & LTRAIN_LOGPROBS) != 0;
    x->plan.weighted = (s->flags & LTRAIN_WEIGHTS) != 0;
    if (s->flags & LTRAIN_FROZEN)
        return prepare_frozen(s);
    TRY(run_prepare(&s->run));
    run_say_rereading(&s->run, NULL);
    TRY(comm_agree(s->comm, api_keep(s)));
    return run_evaluate_before(&s->run);
}

/* Opens the session's parts in their order. After a failure, close_parts closes the open ones. */
static enum status open_parts(ltrain *s, int n, char **options)
{
    struct settings_flags *flags;
    TRY(settings_flags_parse(n, options, &flags));
    if (s->flags & (LTRAIN_BATCHES | LTRAIN_FROZEN))
        settings_flags_take_no_data(flags);
    enum status st = api_join(flags, s);
    if (st == OK) {
        if (!(s->flags & LTRAIN_PRINT) || comm_rank(s->comm) != 0)
            s->tells = fopen("/dev/null", "w");
        tell_to(s->tells);
        st = train_read_settings(s->comm, flags, SETTINGS_TRAIN, &s->settings);
    }
    settings_flags_free(flags);
    if (st != OK)
        return st;
    s->hooks = (struct train_hooks){.write_config = settings_write_yaml, .version = ltrain_version(), .command = s->command};
    if (s->flags & LTRAIN_BATCHES) {
        s->hooks.take = api_take;
        s->hooks.user = s;
    }
    s->run = (struct run){.s = &s->settings, .comm = s->comm, .hooks = &s->hooks};
    return prepare(s);
}

/* Closes the open parts of a session. Returns st, or if st is OK a failure of closing. */
static enum status close_parts(ltrain *s, enum status st)
{
    char cause[1024];
    snprintf(cause, sizeof cause, "%s", status_message());
    enum status closed = s->run.s ? run_close(&s->run, OK) : OK;
    if (s->comm)
        settings_free(&s->settings);
    api_part(s);
    api_forget(s);
    if (s->tells)
        fclose(s->tells);
    free(s->command);
    free(s);
    return st == OK ? closed : status_fail(st, "%s", cause);
}

int ltrain_open_options(int n, const char *const *options, unsigned flags, ltrain **out)
{
    const unsigned known = LTRAIN_BATCHES | LTRAIN_WEIGHTS | LTRAIN_LOGPROBS | LTRAIN_FROZEN | LTRAIN_PRINT;
    if (!out || n < 0 || (n > 0 && !options))
        return status_fail(ERR_INVALID, "ltrain_open: there is no place for %s", out ? "options" : "the session");
    for (int i = 0; i < n; i++)
        if (!options[i])
            return status_fail(ERR_INVALID, "ltrain_open: option %d of %d is NULL", i + 1, n);
    if (flags & ~known)
        return status_fail(ERR_INVALID, "ltrain_open: flags %#x: this library (interface %d) knows %#x", flags, LTRAIN_API,
                           known);
    ltrain *s = sys_calloc(1, sizeof *s);
    if (!s)
        return status_fail(ERR_NOMEM, "out of memory: a session");
    s->flags = flags;
    FILE *before = tell_to(NULL);
    enum status st = write_command(n, options, &s->command);
    if (st == OK)
        st = open_parts(s, n, (char **)options);
    if (st != OK)
        st = close_parts(s, st);
    tell_to(before);
    if (st == OK)
        *out = s;
    return st;
}

int ltrain_open(const char *settings, unsigned flags, ltrain **out)
{
    struct api_options x;
    if (!settings)
        return status_fail(ERR_INVALID, "ltrain_open: the settings are NULL: give lines such as \"model = tiny\"");
    TRY(api_options_read(settings, &x));
    const int st = ltrain_open_options(x.n, (const char *const *)x.option, flags, out);
    api_options_free(&x);
    return st;
}

int ltrain_close(ltrain *s)
{
    if (!s)
        return OK;
    FILE *before = tell_to(s->tells);
    const enum status st = close_parts(s, OK);
    tell_to(before);
    return st;
}

/* ---- facts about a session ---- */

int64_t ltrain_get(const ltrain *s, int number)
{
    if (!s)
        return -1;
    const struct run *r = &s->run;
    switch (number) {
    case LTRAIN_STEP:
        return r->progress.at.step;
    case LTRAIN_STEPS:
        return r->s->plan.steps;
    case LTRAIN_SEQ_LEN:
        return run_length(r);
    case LTRAIN_SEQUENCES:
        return r->s->plan.batch;
    case LTRAIN_VOCABULARY:
        return r->model->config.vocab;
    case LTRAIN_RANK:
        return comm_rank(s->comm);
    case LTRAIN_RANKS:
        return comm_size(s->comm);
    case LTRAIN_PARAMETERS:
        return r->model->n_params;
    default:
        return -1;
    }
}

const char *ltrain_directory(const ltrain *s)
{
    return !s || (s->flags & LTRAIN_FROZEN) ? "" : s->settings.out;
}
