#include "export/export.h"

#include "base/progress.h"
#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/merge.h"
#include "comm/comm.h"
#include "engine/source.h"
#include "model/config/adapter_config.h"
#include "text/tokenizer.h"
#include "train/facts.h"
#include "train/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One export. */
struct job {
    struct settings s; /* model, and adapter on top of it */
    const char *to;
    enum export_form form;
    int base_given; /* 1: --base names the base, instead of the adapter */
    json_t *facts;  /* facts of the adapter, or NULL */
};

/* ---- facts and base ---- */

/* Splits RUN/checkpoints/step-000100 into RUN and step. */
static int find_run(const char *checkpoint, char run[4096], int64_t *step)
{
    const char *slash = strrchr(checkpoint, '/');
    long long number;
    if (!slash || sscanf(slash, "/step-%lld", &number) != 1)
        return 0;
    *step = number;
    return snprintf(run, 4096, "%s/../..", checkpoint) < 4096;
}

static enum status find_facts(struct job *j)
{
    char run[4096];
    int64_t step;
    if (!checkpoint_is_there(j->s.adapter))
        return facts_of_export(j->s.adapter, &j->facts);
    return find_run(j->s.adapter, run, &step) ? facts_of_run(run, step, &j->facts) : OK;
}

/* Returns the form of the base's weights that the adapter was trained beside. */
static enum model_base kept_as(const struct settings *s)
{
    return s->plan.base == FROZEN_NF4 ? BASE_NF4 : s->plan.base == FROZEN_INT8 ? BASE_INT8 : BASE_STORED;
}

/* Chooses the weights that the adapter was trained beside, unless the original ones are asked for. */
static enum status choose_base(const struct job *j, struct model_config *config)
{
    if (j->form == EXPORT_MERGED_ORIGINAL && config->quantised)
        return status_fail(ERR_INVALID, "export: --original: the files of %s hold %s, and no weights from before; leave it out",
                           j->s.model, model_base_name(config->base));
    if (j->form != EXPORT_MERGED_ORIGINAL && !config->quantised)
        config->base = kept_as(&j->s);
    return OK;
}

/* Creates the model with all rows of its embedding, and adapters by the settings. */
static enum status make_model(const struct job *j, struct model **m)
{
    struct model_config config;
    TRY(model_config_read(j->s.model, &config));
    TRY(model_config_set_rope(&config, j->s.rope, j->s.rope_base));
    config.lora = j->s.plan.lora;
    config.lora.tokens_put = j->form != EXPORT_ADAPTER;
    TRY(choose_base(j, &config));
    TRY(train_blame_adapter(&j->s, model_create(&config, NULL, 0, m)));
    return train_blame_adapter(&j->s, model_check_adapters(*m));
}

static enum status check_base(const struct settings *s, uint64_t *xxh3)
{
    struct launch alone;
    struct comm *c = NULL;
    launch_alone(&alone);
    TRY(comm_create(&alone, 600, &c));
    progress_begin(STDERR_FILENO, PROGRESS_AFTER_NS);
    if (!isatty(STDERR_FILENO))
        progress_begin_lines(STDOUT_FILENO, progress_silence_ns(), PROGRESS_LINE_NS);
    enum status st = checkpoint_hash_base(c, s->model, xxh3);
    progress_end();
    if (st == OK)
        st = checkpoint_check_base(s->adapter, s->model, *xxh3);
    comm_destroy(c);
    return st;
}

/* ---- the adapter alone ---- */

static enum status copy_adapter(const struct job *j)
{
    uint64_t xxh3;
    if (j->base_given)
        TRY(check_base(&j->s, &xxh3));
    return checkpoint_copy_adapter(j->s.adapter, j->to, j->base_given ? j->s.model : NULL);
}

const char *export_original(const char *checkpoint, char original[EXPORT_PATH])
{
    struct stat there;
    snprintf(original, EXPORT_PATH, "%s/../../original", checkpoint);
    return checkpoint_is_there(checkpoint) && sys_stat(original, &there) == 0 ? original : NULL;
}

/* Finds the directory of the tokenizer used in training: beside the checkpoint's run, or the adapter's own. NULL: the base's. */
static const char *find_texts(const struct job *j, char original[EXPORT_PATH])
{
    if (export_original(j->s.adapter, original))
        return original;
    return tokenizer_is_in(j->s.adapter) ? j->s.adapter : NULL;
}

static enum status write_adapter(const struct job *j, const struct model *m)
{
    char original[EXPORT_PATH];
    struct facts_texts own = {NULL, NULL};
    uint64_t xxh3;
    TRY(check_base(&j->s, &xxh3));
    TRY(j->facts ? facts_write(j->facts, CARD_ADAPTER, &own) : OK);
    const struct export_texts texts = {.like = find_texts(j, original), .facts = own.facts, .card = own.card};
    enum status st = checkpoint_write_adapter(m, j->s.model, xxh3, j->s.adapter, j->to, &texts);
    facts_texts_free(&own);
    return st;
}

static enum status export_adapter(const struct job *j)
{
    struct model *m = NULL;
    enum status st;
    if (adapter_config_is_there(j->s.adapter)) {
        st = copy_adapter(j);
    } else {
        st = make_model(j, &m);
        if (st == OK)
            st = write_adapter(j, m);
        model_destroy(m);
    }
    if (st == OK)
        printf("adapter: %s, as it is in %s; its base is %s\n", j->to, j->s.adapter, j->s.model);
    return st;
}

/* ---- merged ---- */

static void say_merged(const struct settings *s, const char *to, const struct model_config *c, const struct merge_report *r)
{
    printf("merged: %s has W + s B A of %lld matrices, of %lld tensors; the base is %s, as its files are now\n", to,
           (long long)r->merged, (long long)r->tensors, s->model);
    if (r->untied)
        printf("merged: head and embedding are one matrix of the base, and two now, as the adapter changes them by themselves\n");
    if (r->rows > 0)
        printf("merged: %lld rows of embedding or head are the adapter's\n", (long long)r->rows);
    if (r->dequantised > 0)
        printf("merged: W is what %s has kept of %d matrices, which the adapter was trained beside, not what was there before\n",
               model_base_name(c->base), r->dequantised);
    else if (kept_as(s) != BASE_STORED)
        printf(
            "note: the adapter was trained beside %s, and W is the original: the merged model is not the one that was trained\n",
            model_base_name(kept_as(s)));
    printf(
        "rounding: sums are fp32, rounded once to the type of the base's tensor; s B A is %.3g (root mean square), and rounding takes %.3g "
        "(%.2g%%)\n",
        r->change, r->lost, r->change > 0 ? 100 * r->lost / r->change : 0.0);
    if (r->lost > 0.1 * r->change)
        printf("note: much of what was learnt is rounded away: the adapter keeps it, on the base as it is\n");
    if (r->fp16)
        printf("note: %d tensors were fp16 and are fp32 now\n", r->fp16);
    printf("adapter: it stays in %s; export --adapter writes it alone\n", s->adapter);
}

static enum status same_place(const char *a, const char *b)
{
    struct stat x, y;
    if (sys_stat(a, &x) != 0 || sys_stat(b, &y) != 0 || x.st_dev != y.st_dev || x.st_ino != y.st_ino)
        return OK;
    return status_fail(ERR_INVALID, "--to: %s is the directory that is read: give another one", b);
}

enum status export_check_place(const char *model, const char *to)
{
    TRY(same_place(model, to));
    return checkpoint_check_vacant(to);
}

static enum status merge(const struct job *j)
{
    char original[EXPORT_PATH];
    struct merge_report report;
    struct facts_texts own = {NULL, NULL};
    struct model *m = NULL;
    uint64_t xxh3;
    enum status st = check_base(&j->s, &xxh3);
    if (st == OK)
        st = make_model(j, &m);
    if (st == OK && j->facts)
        st = facts_write(j->facts, CARD_MERGED, &own);
    const struct export_texts texts = {.like = find_texts(j, original), .facts = own.facts, .card = own.card};
    if (st == OK)
        st = checkpoint_merge(m, j->s.model, j->s.adapter, j->to, &texts, &report);
    if (st == OK)
        say_merged(&j->s, j->to, &m->config, &report);
    facts_texts_free(&own);
    model_destroy(m);
    return st;
}

/* ---- either form ---- */

/* Refuses a whole model and says what to do instead. */
static enum status refuse_whole(const char *model, const char *found)
{
    char run[4096];
    int64_t step;
    if (sys_access(model, F_OK) != 0 && sys_is_absent(errno))
        return status_fail(ERR_INVALID, "--model: no such directory: %s", model);
    if (checkpoint_is_there(found) && find_run(found, run, &step))
        return status_fail(
            ERR_INVALID,
            "--model: %s holds no adapter but checkpoints of a whole model: ltrain --resume %s finishes it, and with --steps "
            "%lld writes the model of the newest one to %s/hf at once",
            model, model, (long long)step, model);
    return status_fail(ERR_INVALID,
                       "--model: %s holds no adapter: what a full run has trained is a whole model in RUN/hf already", model);
}

/* Resolves the model; if a base is given, `model` is an adapter on top of it. */
static enum status resolve(struct job *j, const char *model, const char *base)
{
    struct settings *s = &j->s;
    s->model = strdup(base ? base : model);
    s->adapter = base ? strdup(model) : NULL;
    if (!s->model || (base && !s->adapter))
        return status_fail(ERR_NOMEM, "out of memory");
    TRY(train_resolve_model(s, "give the model's directory by --base", stdout));
    return s->adapter ? find_facts(j) : refuse_whole(model, s->model);
}

enum status export_model(const char *model, const char *base, const char *to, enum export_form form)
{
    struct job j = {.to = to, .form = form, .base_given = base != NULL};
    enum status st = resolve(&j, model, base);
    if (st == OK)
        st = same_place(j.s.adapter, to);
    if (st == OK)
        st = form != EXPORT_ADAPTER ? export_check_place(j.s.model, to) : checkpoint_check_vacant(to);
    if (st == OK)
        st = form != EXPORT_ADAPTER ? merge(&j) : export_adapter(&j);
    st = train_blame_pruned(&j.s, st);
    json_decref(j.facts);
    free(j.s.model);
    free(j.s.adapter);
    free(j.s.rope);
    return st;
}
