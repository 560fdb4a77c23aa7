/* Reasons for which commands refuse options that they would ignore. */
#include "settings/flags.h"

#include <string.h>

/* ---- conditions ---- */

/* Tells whether ltrain eval evaluates texts as they are (texts 1), or tasks that it generates with texts of --data (texts 0). */
static int evaluates(const struct settings *s, int texts)
{
    int any = texts && s->tasks.n == 0;
    for (int i = 0; i < s->tasks.n; i++)
        any |= (strcmp(s->tasks.item[i], "ppl") == 0 || strcmp(s->tasks.item[i], "position") == 0) == texts;
    return any;
}

static int has_no_tasks(const struct settings *s)
{
    return !evaluates(s, 0);
}

static int has_only_tasks(const struct settings *s)
{
    return evaluates(s, 0) && s->eval_data.n == 0 && !evaluates(s, 1);
}

static int has_only_tasks_without_data(const struct settings *s)
{
    return has_only_tasks(s) && s->data.n == 0;
}

static int has_only_tasks_unwritten(const struct settings *s)
{
    return has_only_tasks(s) && !s->write_samples;
}

static int has_only_tasks_without_chat(const struct settings *s)
{
    return has_only_tasks(s) && !s->chat;
}

static int has_no_length(const struct settings *s)
{
    return s->plan.seq_len == 0;
}

static int has_no_adapter(const struct settings *s)
{
    return !s->adapter;
}

static int begins(const struct settings *s)
{
    return !s->resume;
}

static int wants_json(const struct settings *s)
{
    return s->json;
}

static int wants_longest(const struct settings *s)
{
    return s->max_seq;
}

static int wants_explanation(const struct settings *s)
{
    return s->explain;
}

/* ---- reasons ---- */

#define BUT(commands) (SETTINGS_ANY & ~(unsigned)(commands))
#define FOR(command) "is for ltrain " command ": leave it out, or write ltrain " command " ..."
#define FOR_PLAN(does) "is for ltrain plan, and this " does ": leave it out, or write ltrain plan ..."
#define TRAINS_NOTHING(command) "is for training, and ltrain " command " trains nothing: leave it out"
#define MAKES_ADAPTERS(command) \
    "makes new adapters, and ltrain " command " trains none: give the trained ones by --adapter DIR, or leave it out"
#define NO_RUN(command) \
    "is the directory of a run, and ltrain " command " makes none: give --nvme-path DIR if drives are meant, or leave it out"
#define NO_DATA "is of data, and ltrain sample reads none: leave it out"
#define READ_ONCE "is for training, and ltrain eval reads --eval-data once: leave it out"
#define IDLE_WITHOUT(option) "does nothing to these tasks without " option ": leave it out"
#define NO_ANSWERS "is for tasks that are answered: give --tasks needle, or others, or leave it out"

/* clang-format off */
static const struct {
    enum key_scope scope;
    unsigned by;                            /* commands that refuse the option */
    const char *why;                        /* end of the message, after the option's name */
    int (*when)(const struct settings *s);  /* condition under which they refuse; NULL: always */
} refusals[] = {
    {SCOPE_TRAINING, SETTINGS_EVAL, TRAINS_NOTHING("eval")},
    {SCOPE_TRAINING, SETTINGS_SAMPLE, TRAINS_NOTHING("sample")},
    {SCOPE_STEPS, SETTINGS_SAMPLE, "is of steps and their ranks, of which ltrain sample has none: leave it out"},
    {SCOPE_OUT, SETTINGS_SAMPLE, NO_RUN("sample")},
    {SCOPE_OUT, SETTINGS_EVAL, NO_RUN("eval")},
    {SCOPE_EVALUATION, SETTINGS_EVAL, READ_ONCE},
    {SCOPE_ADAPTERS, SETTINGS_EVAL, MAKES_ADAPTERS("eval"), has_no_adapter},
    {SCOPE_ADAPTERS, SETTINGS_SAMPLE, MAKES_ADAPTERS("sample"), has_no_adapter},
    {SCOPE_RESUMED, SETTINGS_ANY, "is for a run that is resumed: leave it out, or name the run by --resume", begins},
    {SCOPE_DATA, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_TRAINING_DATA, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_TRAINING_DATA, SETTINGS_EVAL, READ_ONCE, has_no_tasks},
    {SCOPE_ROWS, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_ROWS, SETTINGS_EVAL, IDLE_WITHOUT("--data"), has_only_tasks_without_data},
    {SCOPE_TEXTS, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_TEXTS, SETTINGS_EVAL, IDLE_WITHOUT("--eval-data"), has_only_tasks},
    {SCOPE_TRAIN_ON, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_TRAIN_ON, SETTINGS_EVAL, IDLE_WITHOUT("--write-samples"), has_only_tasks_unwritten},
    {SCOPE_CHATS, SETTINGS_EVAL, IDLE_WITHOUT("--chat"), has_only_tasks_without_chat},
    {SCOPE_PACKING, SETTINGS_SAMPLE, NO_DATA},
    {SCOPE_PACKING, SETTINGS_EVAL,
     "is for training: ltrain eval reads all of --eval-data, in windows (--lengths, --stride); leave it out"},
    {SCOPE_PACKING, SETTINGS_DATA, "is of documents in sequences: say how long these are by --seq-len, or leave it out", has_no_length},
    {SCOPE_SAMPLE, BUT(SETTINGS_SAMPLE), FOR("sample")},
    {SCOPE_ANSWERING, BUT(SETTINGS_SAMPLE | SETTINGS_EVAL), FOR("sample")},
    {SCOPE_ANSWERS, BUT(SETTINGS_SAMPLE | SETTINGS_EVAL), FOR("sample")},
    {SCOPE_ANSWERS, SETTINGS_EVAL, NO_ANSWERS, has_no_tasks},
    {SCOPE_EVAL, BUT(SETTINGS_EVAL), FOR("eval")},
    {SCOPE_STRIDE, BUT(SETTINGS_EVAL), FOR("eval")},
    {SCOPE_STRIDE, SETTINGS_EVAL, IDLE_WITHOUT("--eval-data"), has_only_tasks},
    {SCOPE_SAMPLES, BUT(SETTINGS_DATA | SETTINGS_EVAL), FOR("data")},
    {SCOPE_SAMPLES, SETTINGS_EVAL, NO_ANSWERS, has_no_tasks},
    {SCOPE_MAX_SEQ, BUT(SETTINGS_PLAN), "is for ltrain plan; give --seq-len what that finds", wants_longest},
    {SCOPE_EXPLAIN, SETTINGS_TRAIN, FOR_PLAN("trains"), wants_explanation},
    {SCOPE_EXPLAIN, SETTINGS_DATA, FOR_PLAN("shows data"), wants_explanation},
    {SCOPE_EXPLAIN, SETTINGS_SAMPLE, FOR_PLAN("samples"), wants_explanation},
    {SCOPE_EXPLAIN, SETTINGS_EVAL, FOR_PLAN("evaluates"), wants_explanation},
    {SCOPE_JSON, SETTINGS_TRAIN, FOR_PLAN("trains"), wants_json},
    {SCOPE_JSON, SETTINGS_DATA, FOR_PLAN("shows data"), wants_json},
    {SCOPE_REPLAY, BUT(SETTINGS_REPLAY), FOR("replay")},
    {SCOPE_SVG, SETTINGS_TRAIN, FOR_PLAN("trains")},
    {SCOPE_SVG, SETTINGS_DATA, FOR_PLAN("shows data")},
    {SCOPE_SVG, SETTINGS_SAMPLE, FOR_PLAN("samples")},
};
/* clang-format on */

/* Refuses options of a replay that would change what the run has done. */
static enum status refuse_other_steps(const struct settings_flags *f, const struct settings *s)
{
    if (!s->resume)
        return status_fail(ERR_INVALID, "replay: which run? give its directory, as ltrain replay runs/kjv");
    for (int i = 0; i < f->n; i++) {
        const struct settings_key *k = f->flag[i].key;
        if (!(k->shown & SETTINGS_REPLAY) && k->scope != SCOPE_REPLAY && strcmp(k->name, "resume") != 0)
            return status_fail(
                ERR_INVALID,
                "--%s: ltrain replay does what the run has done, and takes only what may be another here: leave it out; ltrain "
                "replay --help lists the others",
                k->name);
    }
    return OK;
}

enum status flags_refuse(const struct settings_flags *f, const struct settings *s, enum settings_use use)
{
    if (use == SETTINGS_REPLAY)
        TRY(refuse_other_steps(f, s));
    for (int i = 0; i < f->n; i++)
        for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++)
            if (refusals[k].scope == f->flag[i].key->scope && (refusals[k].by & use) &&
                (!refusals[k].when || refusals[k].when(s)))
                return status_fail(ERR_INVALID, "--%s %s", f->flag[i].key->name, refusals[k].why);
    return OK;
}
