#include "train/export.h"

#include "base/progress.h"
#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/merge.h"
#include "comm/comm.h"
#include "engine/source.h"
#include "model/adapter_config.h"
#include "train/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- as it is ---- */

static enum status copy_adapter(const char *from, const char *to)
{
    enum status st = sys_mkdir(to, 0777) == 0 || errno == EEXIST ? OK : status_fail(ERR_IO, "cannot make %s: %s", to, sys_strerror(errno));
    if (st == OK)
        st = checkpoint_copy_adapter(from, to);
    if (st == OK)
        printf("adapter: %s, as it is in %s\n", to, from);
    return st;
}

/* ---- merged ---- */

static void say_merged(const struct settings *s, const char *to, const struct merge_report *r)
{
    printf("merged: %s has W + s B A of %lld matrices, of %lld tensors; the base is %s, as its files are now\n", to, (long long)r->merged,
           (long long)r->tensors, s->model);
    printf("rounding: sums are fp32, rounded once to the type of the base's tensor; s B A is %.3g (root mean square), and rounding takes %.3g "
           "(%.2g%%)\n",
           r->change, r->lost, r->change > 0 ? 100 * r->lost / r->change : 0.0);
    if (r->fp16)
        printf("note: %d tensors were fp16 and are fp32 now\n", r->fp16);
}

static enum status same_place(const char *a, const char *b)
{
    struct stat x, y;
    if (sys_stat(a, &x) != 0 || sys_stat(b, &y) != 0 || x.st_dev != y.st_dev || x.st_ino != y.st_ino)
        return OK;
    return status_fail(ERR_INVALID, "--to: %s is the directory that is read: give another one", b);
}

/* A model or a run that is there already is not written over. */
static enum status occupied(const char *to)
{
    static const char *const names[] = {"config.json", "adapter_config.json", "config.yaml", "manifest.json", "model.safetensors"};
    char path[4096];
    struct stat s;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        if (sys_stat(path, &s) == 0)
            return status_fail(ERR_INVALID, "--to: %s holds a model or a run already (%s): give another directory, or remove it", to, names[i]);
    }
    return OK;
}

static enum status check_base(const struct settings *s)
{
    struct launch alone;
    struct comm *c = NULL;
    uint64_t xxh3;
    launch_alone(&alone);
    TRY(comm_create(&alone, 600, &c));
    progress_begin(STDERR_FILENO, PROGRESS_AFTER_NS);
    if (!isatty(STDERR_FILENO))
        progress_lines(STDOUT_FILENO, PROGRESS_LINE_NS);
    enum status st = checkpoint_hash_base(c, s->model, &xxh3);
    progress_lines(-1, 0);
    progress_end();
    if (st == OK)
        st = checkpoint_check_base(s->adapter, s->model, xxh3);
    comm_destroy(c);
    return st;
}

static enum status merge(struct settings *s, const char *to)
{
    struct merge_report report;
    struct model_config config;
    struct model *m = NULL;
    TRY(model_config_read(s->model, &config));
    config.lora = s->plan.lora;
    TRY(check_base(s));
    TRY(model_create(&config, NULL, 0, &m));
    enum status st = model_check_adapters(m);
    if (st == OK)
        st = checkpoint_merge(m, s->model, s->adapter, to, &report);
    if (st == OK)
        say_merged(s, to, &report);
    model_destroy(m);
    return st;
}

/* ---- either ---- */

static enum status resolve(struct settings *s, const char *model, const char *base)
{
    s->model = strdup(model);
    s->adapter = NULL;
    if (!s->model)
        return status_fail(ERR_NOMEM, "out of memory");
    TRY(train_resolve_run(s));
    if (!adapter_config_is_there(s->model))
        return status_fail(ERR_INVALID, "--model: %s holds no adapter: what a full run has trained is a whole model in RUN/hf already",
                           s->model);
    if (base) {
        s->adapter = s->model;
        s->model = strdup(base);
    }
    return s->model ? train_resolve_model(s) : status_fail(ERR_NOMEM, "out of memory");
}

enum status export_model(const char *model, const char *base, const char *to, enum export_form form)
{
    struct settings s = {.model = NULL};
    enum status st = resolve(&s, model, base);
    if (st == OK)
        st = same_place(s.adapter, to);
    if (st == OK && form == EXPORT_MERGED)
        st = same_place(s.model, to);
    if (st == OK)
        st = occupied(to);
    if (st == OK)
        st = form == EXPORT_MERGED ? merge(&s, to) : copy_adapter(s.adapter, to);
    free(s.model);
    free(s.adapter);
    return st;
}
