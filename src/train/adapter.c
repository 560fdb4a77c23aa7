/* Resolving --model and --adapter: a model, an adapter on top of one, or a run, whose newest state counts. */
#include "train/train.h"

#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "model/config/adapter_config.h"
#include "model/config/token_rows.h"
#include "settings/read.h"
#include "train/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACE = 4096 };

static int has(const char *dir, const char *name)
{
    char path[PLACE];
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path && sys_access(path, F_OK) == 0;
}

static int is_model(const char *dir)
{
    return has(dir, "config.json");
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

/* ---- a run's newest state ---- */

/* Looks for RUN/hf and reads the step that it was exported at. *step: -1 if hf/ is absent or does not say. */
static enum status look_at_hf(const char *run, char path[PLACE], int *there, int64_t *step)
{
    json_t *facts = NULL;
    *step = -1;
    *there = snprintf(path, PLACE, "%s/hf", run) < PLACE && (is_model(path) || adapter_config_is_there(path));
    if (*there)
        TRY(facts_of_export(path, &facts));
    *step = facts_step(facts);
    json_decref(facts);
    return OK;
}

/* Finds the newest state of a run's directory; any other directory is returned itself. notes: gets a line that says which state
 * is taken; NULL: says nothing. */
static enum status find_newest(const char *dir, char found[PLACE], FILE *notes)
{
    char hf[PLACE], saved[PLACE];
    int64_t exported, step = -1;
    int there;
    snprintf(found, PLACE, "%s", dir);
    if (is_model(dir) || adapter_config_is_there(dir))
        return OK;
    TRY(look_at_hf(dir, hf, &there, &exported));
    if (!has(dir, "checkpoints") || checkpoint_count(dir, &step) == 0) {
        if (there)
            snprintf(found, PLACE, "%s", hf);
        return OK;
    }
    if (there && (exported < 0 || step <= exported)) {
        snprintf(found, PLACE, "%s", hf);
        if (notes && exported < 0)
            fprintf(notes, "note: %s does not say of which step it is; the newest checkpoint is of step %lld\n", hf,
                    (long long)step);
        return OK;
    }
    TRY(checkpoint_newest(dir, saved, sizeof saved));
    snprintf(found, PLACE, "%s", saved);
    if (notes && there)
        fprintf(notes, "note: the state of %s is taken, the newest one: %s has step %lld\n", saved, hf, (long long)exported);
    else if (notes)
        fprintf(notes, "note: the state of %s is taken: the run has not ended, so there is no %s\n", saved, hf);
    return OK;
}

/* ---- an adapter's description ---- */

struct described {
    struct lora lora;
    char base[PLACE];
    char *rope;            /* rotary positions it was trained with, or NULL */
    double rope_base;      /* base of the rotary frequencies; 0: that of config.json */
    enum frozen_base kept; /* format of the frozen base during training */
};

/* Reads a checkpoint's settings; paths of a run that was moved are looked for beside the run. */
static enum status read_settings(const char *checkpoint, struct settings *out)
{
    struct checkpoint_texts texts;
    char run[PLACE + 8];
    snprintf(run, sizeof run, "%s/../..", checkpoint);
    TRY(checkpoint_read_texts(checkpoint, &texts));
    enum status st = settings_read_text(checkpoint, texts.settings, out);
    free(texts.settings);
    free(texts.data);
    TRY(st);
    st = settings_move_paths(out, run);
    if (st != OK)
        settings_free(out);
    return st;
}

#define MOST_ROPE_BASE 1e15 /* same limit as --rope-base */

static enum status take_rope(struct described *out, const char *dir, const char *rope, double base)
{
    if (!(base >= 0 && base <= MOST_ROPE_BASE))
        return status_fail(ERR_INVALID,
                           "%s/" FACTS_FILE ": rope_base is %g, and a base of rotary positions is above 0 and at most 1e15", dir,
                           base);
    out->rope_base = base;
    out->rope = rope ? strdup(rope) : NULL;
    return rope && !out->rope ? status_fail(ERR_NOMEM, "out of memory") : OK;
}

static enum status describe_checkpoint(const char *dir, struct described *out)
{
    struct settings s;
    TRY(read_settings(dir, &s));
    out->lora = s.plan.lora;
    out->kept = s.plan.base;
    snprintf(out->base, sizeof out->base, "%s", s.model ? s.model : "");
    enum status st = take_rope(out, dir, s.rope, s.rope_base);
    settings_free(&s);
    return st;
}

/* Describes a PEFT adapter or a checkpoint in `dir`. lora.rank is 0 for a checkpoint of a whole model. */
static enum status describe(const char *dir, struct described *out)
{
    json_t *facts;
    enum model_base kept;
    *out = (struct described){.rope = NULL};
    if (!adapter_config_is_there(dir) && checkpoint_is_there(dir))
        return describe_checkpoint(dir, out);
    TRY(adapter_config_read(dir, &out->lora, out->base, sizeof out->base));
    TRY(token_rows_text(dir, &out->lora));
    TRY(checkpoint_adapter_beside(dir, &kept));
    out->kept = kept == BASE_NF4 ? FROZEN_NF4 : kept == BASE_INT8 ? FROZEN_INT8 : FROZEN_AUTO;
    TRY(facts_of_export(dir, &facts));
    const json_t *rope = json_object_get(facts, "rope"), *base = json_object_get(facts, "rope_base");
    enum status st = OK;
    if (rope && !json_is_null(rope) && !json_is_string(rope))
        st = status_fail(ERR_INVALID, "%s/" FACTS_FILE ": rope is no string: it is what --rope takes, or null", dir);
    else if (base && !json_is_null(base) && !json_is_number(base))
        st = status_fail(ERR_INVALID, "%s/" FACTS_FILE ": rope_base is no number: it is what --rope-base takes, or null", dir);
    if (st == OK)
        st = take_rope(out, dir, json_string_value(rope), json_number_value(base));
    json_decref(facts);
    return st;
}

/* Finds the base model that the adapter names: a path relative to the working directory, or to the adapter's directory. instead:
 * advice for when the base is absent. */
static enum status find_base(const char *adapter, const char *name, const char *instead, char **out)
{
    char beside[PLACE];
    if (!name[0])
        return status_fail(ERR_INVALID, "--model: %s holds an adapter, and does not say of which model: %s", adapter, instead);
    int fits = snprintf(beside, sizeof beside, "%s/%s", adapter, name) < (int)sizeof beside;
    const char *base = is_model(name) ? name : name[0] != '/' && fits && is_model(beside) ? beside : NULL;
    if (!base && model_is_preset(name))
        return status_fail(
            ERR_INVALID,
            "--model: %s holds an adapter of the preset %s, whose random weights lie in no directory: only --resume of its "
            "run goes on with it; adapters that are to be used elsewhere are trained beside a model's directory",
            adapter, name);
    if (!base)
        return status_fail(ERR_INVALID, "--model: %s holds an adapter of %s, which is not there: %s", adapter, name, instead);
    return replace(out, base);
}

/* Tells whether a and b give the same matrices of the model adapters of equal shapes, even if their targets name the matrices
 * differently. */
static enum status put_alike(const char *model, const struct lora *a, const struct lora *b, int *alike)
{
    struct model_config config;
    struct model *x = NULL, *y = NULL;
    *alike = 0;
    TRY(model_is_preset(model) ? model_preset(model, &config) : model_config_read(model, &config));
    config.lora = *a;
    enum status st = model_create(&config, NULL, 0, &x);
    config.lora = *b;
    if (st == OK)
        st = model_create(&config, NULL, 0, &y);
    *alike = st == OK && x->n_params == y->n_params;
    for (int i = 0; *alike && i < x->n_params; i++)
        *alike = strcmp(x->params[i].name, y->params[i].name) == 0 && x->params[i].shape[0] == y->params[i].shape[0] &&
                 x->params[i].shape[1] == y->params[i].shape[1];
    model_destroy(x);
    model_destroy(y);
    return st;
}

/* Replaces the given targets with the adapter's if both select the same matrices (as "all-linear" and a list of all names do). */
static enum status take_targets(const char *model, const struct lora *is, struct lora *given)
{
    struct lora same = *given;
    int alike;
    memcpy(same.targets, is->targets, sizeof same.targets);
    if (given->rank == 0 || strcmp(given->targets, is->targets) == 0 || given->rank != is->rank)
        return OK;
    TRY(put_alike(model, &same, given, &alike));
    if (alike)
        *given = same;
    return OK;
}

/* Refuses a --lora that differs from the adapter in more than dropout. notes: gets a line if dropout differs; NULL: says nothing. */
static enum status take_lora(struct settings *s, const struct lora *was, FILE *notes)
{
    struct lora is = *was, given = s->plan.lora;
    if (given.rank == 0 && settings_is_typed(s, "lora"))
        return status_fail(ERR_INVALID, "--lora none: %s holds an adapter: leave out --lora; without its adapter the model is %s",
                           s->adapter, s->model);
    TRY(take_targets(s->model, was, &given));
    if (given.rank > 0 && (given.dropout > 0 || given.no_dropout)) {
        is.dropout = given.dropout;
        is.no_dropout = given.no_dropout;
    }
    given.dropout = is.dropout;
    given.no_dropout = is.no_dropout;
    char *said = lora_text(&given), *found = lora_text(&is);
    enum status st = said && found ? OK : status_fail(ERR_NOMEM, "out of memory");
    if (st == OK && given.rank > 0 && strcmp(said, found) != 0)
        st = status_fail(ERR_INVALID, "--lora: %s: the adapter in %s is %s: leave out --lora", said, s->adapter, found);
    if (st == OK && notes && is.dropout != was->dropout)
        fprintf(notes, "note: dropout=%g of --lora, where the adapter in %s was trained with %g\n", is.dropout, s->adapter,
                was->dropout);
    if (st == OK)
        s->plan.lora = is;
    free(said);
    free(found);
    return st;
}

/* Notes that the base's format or the rotary positions differ from those that the adapter was trained with. */
static void note_others(const struct settings *s, const struct described *d, FILE *f)
{
    static const char *const word[] = {"auto", "none", "nf4", "int8", "mxfp4"};
    if (d->kept > FROZEN_STORED && s->plan.base != FROZEN_AUTO && s->plan.base != d->kept)
        fprintf(f, "note: --base %s, where the adapter in %s was trained beside its base in %s\n", word[s->plan.base], s->adapter,
                word[d->kept]);
    if (adapter_config_froze_b(s->adapter))
        fprintf(
            f,
            "note: the adapter in %s was begun by MiCA, of which PEFT trains A alone: a run that goes on with it trains A and B\n",
            s->adapter);
    if (s->rope && d->rope && strcmp(s->rope, d->rope) != 0)
        fprintf(f, "note: --rope %s, where the adapter in %s was trained with %s\n", s->rope, s->adapter, d->rope);
    if (s->rope_base > 0 && d->rope_base > 0 && s->rope_base != d->rope_base)
        fprintf(f, "note: --rope-base %g, where the adapter in %s was trained with %g\n", s->rope_base, s->adapter, d->rope_base);
}

/* Fills in rotary positions and the base's format from the adapter unless settings give them. notes: gets remarks about
 * differences; NULL: says nothing. */
static enum status take_described(struct settings *s, struct described *d, FILE *notes)
{
    struct model_config base;
    if (d->lora.modules_only) {
        TRY(model_is_preset(s->model) ? model_preset(s->model, &base) : model_config_read(s->model, &base));
        TRY(adapter_config_fit(&base, &d->lora));
    }
    TRY(take_lora(s, &d->lora, notes));
    if (notes)
        note_others(s, d, notes);
    if (s->plan.base == FROZEN_AUTO)
        s->plan.base = d->kept;
    if (!s->rope && d->rope) {
        s->rope = d->rope;
        d->rope = NULL;
    }
    if (s->rope_base == 0)
        s->rope_base = d->rope_base;
    return OK;
}

/* ---- settings ---- */

/* Takes the tokenizer that the run copied from its first model and keeps beside its checkpoints. */
static enum status take_tokenizer(struct settings *s, const char *checkpoint)
{
    char path[PLACE];
    const char *step = strrchr(checkpoint, '/'), *all = step ? memrchr(checkpoint, '/', (size_t)(step - checkpoint)) : NULL;
    if (all && step[1]) /* the path must not lead through the checkpoint's own directory, which the run may remove meanwhile */
        snprintf(path, sizeof path, "%.*s/original", (int)(all - checkpoint), checkpoint);
    else
        snprintf(path, sizeof path, "%.4000s/../../original", checkpoint);
    return !s->tokenizer && tokenizer_is_in(path) ? replace(&s->tokenizer, path) : OK;
}

/* Selects "bytes" for an adapter that was trained on bytes, so that its base's tokenizer is not used. */
static enum status take_bytes(struct settings *s)
{
    struct settings was;
    json_t *facts = NULL;
    int bytes = 0;
    if (has(s->adapter, FACTS_FILE)) {
        TRY(facts_of_export(s->adapter, &facts));
        const char *tokenizer = json_string_value(json_object_get(json_object_get(facts, "data"), "tokenizer"));
        bytes = tokenizer && strcmp(tokenizer, "bytes") == 0;
        json_decref(facts);
    } else if (checkpoint_is_there(s->adapter)) {
        TRY(read_settings(s->adapter, &was));
        bytes = was.tokenizer && strcmp(was.tokenizer, "bytes") == 0;
        settings_free(&was);
    }
    return bytes ? replace(&s->tokenizer, "bytes") : OK;
}

enum status train_take_texts(struct settings *s)
{
    if (!s->adapter || s->tokenizer)
        return OK;
    if (has(s->adapter, FACTS_FILE) && tokenizer_is_in(s->adapter))
        return replace(&s->tokenizer, s->adapter);
    if (checkpoint_is_there(s->adapter))
        TRY(take_tokenizer(s, s->adapter));
    return s->tokenizer ? OK : take_bytes(s);
}

/* Splits s->model, an adapter's directory or a checkpoint, into base and adapter. */
static enum status split_model(struct settings *s, const char *instead, FILE *notes)
{
    struct described d;
    TRY(describe(s->model, &d));
    enum status st = OK;
    if (d.lora.rank == 0) {
        st = take_tokenizer(s, s->model);
    } else {
        s->adapter = s->model;
        s->model = NULL;
        st = find_base(s->adapter, d.base, instead, &s->model);
        if (st == OK)
            st = take_described(s, &d, notes);
    }
    free(d.rope);
    return st;
}

static int is_same_place(const char *a, const char *b)
{
    struct stat x, y;
    return strcmp(a, b) == 0 || (sys_stat(a, &x) == 0 && sys_stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Takes model and adapter from the checkpoint if a resumed job names the same adapter as when the job began. adapter: the adapter
 * named now; key: the option that names it. */
static enum status take_as_begun(struct settings *s, const char *adapter, const char *key)
{
    char saved[PLACE];
    struct settings was;
    if (checkpoint_is_there(s->resume)) /* --resume names a checkpoint instead of a run, which run_open refuses */
        return OK;
    TRY(checkpoint_newest(s->resume, saved, sizeof saved));
    TRY(read_settings(saved, &was));
    enum status st =
        !was.adapter || !was.model || !is_same_place(adapter, was.adapter)
            ? status_fail(ERR_INVALID,
                          "--%s: %s is not the adapter that the run began with, and a run that is resumed goes on with what "
                          "its checkpoint has: leave it out; without --resume it begins a run with that adapter",
                          key, adapter)
            : replace(&s->adapter, was.adapter);
    if (st == OK && strcmp(key, "model") == 0)
        st = replace(&s->model, was.model);
    settings_free(&was);
    return st;
}

/* Takes the adapter that --adapter names. */
static enum status take_adapter(struct settings *s, FILE *notes)
{
    char found[PLACE];
    struct described d;
    if (s->resume)
        TRY(settings_absolute_path(&s->adapter)); /* absolute, as in the checkpoint: the adapter may be gone */
    TRY(find_newest(s->adapter, found, notes));
    if (s->resume && settings_is_typed(s, "adapter"))
        TRY(take_as_begun(s, found, "adapter"));
    if (s->resume && !adapter_config_is_there(found)) /* the trained state is in the checkpoint */
        return OK;
    TRY(replace(&s->adapter, found));
    TRY(describe(s->adapter, &d));
    enum status st = d.lora.rank > 0 ? take_described(s, &d, notes)
                                     : status_fail(ERR_INVALID, "--adapter: %s is a checkpoint of a whole model", s->adapter);
    free(d.rope);
    return st;
}

/* Resolves s->model and s->adapter as they are named now. */
static enum status resolve(struct settings *s, const char *instead, FILE *notes)
{
    char found[PLACE];
    if (!s->model)
        return OK;
    if (!model_is_preset(s->model)) {
        TRY(find_newest(s->model, found, notes));
        TRY(replace(&s->model, found));
    }
    const int adapted = adapter_config_is_there(s->model), saved = !adapted && checkpoint_is_there(s->model);
    if (!s->adapter)
        return adapted || saved ? split_model(s, instead, notes) : OK;
    if (s->resume && !settings_is_typed(s, "adapter") && (adapted || (saved && is_same_place(s->model, s->adapter))))
        TRY(take_as_begun(s, s->model, "model"));
    else if (adapted)
        return status_fail(ERR_INVALID, "--adapter: %s holds an adapter, too: one at a time; --model is to be its base",
                           s->model);
    return take_adapter(s, notes);
}

/* ---- checkpoints that go ---- */

/* Tells whether `path` is a checkpoint's (RUN/checkpoints/step-000100) that does not exist any more. */
static int is_gone(const char *path)
{
    long long step;
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash && sscanf(slash, "/step-%lld", &step) == 1 && sys_access(path, F_OK) != 0 && sys_is_absent(errno);
}

enum status train_blame_pruned(const struct settings *s, enum status st)
{
    const char *const read[] = {s->adapter, s->model};
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    for (int i = 0; i < 2; i++)
        if (st != OK && is_gone(read[i]) && strstr(why, read[i]))
            return status_fail(
                st,
                "%s: it is not, or not any more, among the checkpoints that its run keeps (--keep); the run's directory stands for the "
                "newest: give the command again",
                why);
    return st;
}

static enum status name_again(char **text, const char *given)
{
    if (given)
        return replace(text, given);
    free(*text);
    *text = NULL;
    return OK;
}

/* Resolves again if the run removed the checkpoint meanwhile: the run has a newer one then. */
enum status train_resolve_model(struct settings *s, const char *instead, FILE *notes)
{
    enum { TRIES = 5 };
    char *model = s->model ? strdup(s->model) : NULL, *adapter = s->adapter ? strdup(s->adapter) : NULL;
    enum status st =
        (s->model && !model) || (s->adapter && !adapter) ? status_fail(ERR_NOMEM, "out of memory") : resolve(s, instead, notes);
    for (int i = 1; i < TRIES && st != ERR_NOMEM && (is_gone(s->model) || is_gone(s->adapter)); i++) {
        st = name_again(&s->model, model);
        if (st == OK)
            st = name_again(&s->adapter, adapter);
        if (st == OK)
            st = resolve(s, instead, notes);
    }
    free(model);
    free(adapter);
    return st;
}
