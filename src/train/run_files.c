/* Files of a run's directory beside its checkpoints: settings, plan and log. */
#include "train/run.h"

#include "base/steps.h"
#include "base/sys.h"
#include "base/tell.h"
#include "plan/report/json.h"
#include "plan/report/text.h"
#include "settings/read.h"
#include "train/board.h"
#include "train/facts.h"
#include "train/metrics.h"
#include "train/metrics_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum status write_plan_json(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f)
{
    return plan_write_json(p, m, s, NULL, NULL, f);
}

static enum status write_plan(struct run *r, const char *name,
                              enum status (*write)(const struct plan *, const struct model *, const struct plan_request *,
                                                   FILE *))
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", r->s->out, name);
    FILE *f = sys_write_text(path);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(errno));
    enum status st = write(r->plans.all.plan[0], r->model, &r->s->plan, f);
    if (fclose(f) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

/* Writes config.yaml into r->texts.settings, for the run and its checkpoints. Its absolute `out` shows later that a run was
 * moved. */
static enum status describe_settings(struct run *r)
{
    size_t size;
    struct settings s = *r->s;
    s.out = strdup(s.out);
    FILE *f = open_memstream(&r->inputs.texts.settings, &size);
    enum status st = f && s.out ? settings_absolute_path(&s.out) : status_fail(ERR_NOMEM, "out of memory: config.yaml");
    if (st == OK)
        st = r->hooks->write_config(&s, f);
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory: config.yaml");
    free(s.out);
    return st;
}

/* Writes config.yaml, synced and renamed into place: a run killed meanwhile can still be resumed with the former file. */
enum status run_write_config(struct run *r, const char *dir)
{
    char path[4096], partial[4096];
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    snprintf(partial, sizeof partial, "%s/config.yaml.partial", dir);
    FILE *f = sys_write_text(partial);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, sys_strerror(errno));
    int failed = fputs(r->inputs.texts.settings, f) < 0 || fflush(f) != 0 || sys_fsync(fileno(f)) != 0;
    if (fclose(f) != 0 || failed)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (sys_rename(partial, path) != 0)
        return status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    return OK;
}

/* Tells whether the run has a checkpoint of that step, whole or not. */
static int was_saved(const char *run, int64_t step)
{
    char path[4096];
    struct steps l;
    int saved = 0;
    if (snprintf(path, sizeof path, "%s/checkpoints", run) >= (int)sizeof path || steps_list(path, &l) != OK)
        return 0;
    for (int i = 0; i < l.n; i++)
        saved |= l.dirs[i].step == step && l.dirs[i].form != STEP_PARTIAL;
    steps_free(&l);
    return saved;
}

/* Cuts the log of a resumed run, which may have gone further than its last checkpoint, and reads back loss and norm. */
static enum status cut_log(struct run *r, const char *path)
{
    int64_t last;
    TRY(metrics_cut(path, r->progress.at.step, &r->measured.spikes, &last));
    if (last > r->progress.at.step)
        tell("resume: the run had come to step %lld, %s: what follows step %lld is trained again\n", (long long)last,
             was_saved(r->s->resume, last) ? "whose checkpoint is passed over" : "which was not saved",
             (long long)r->progress.at.step);
    return OK;
}

/* Opens config.yaml, data.txt, card.json, plan.txt, plan.json and metrics.jsonl. */
enum status run_open_files(struct run *r)
{
    char path[4096];
    TRY(run_keep_original(r));
    TRY(describe_settings(r));
    TRY(run_write_config(r, r->s->out));
    TRY(run_write_data_list(r));
    TRY(facts_begin(r));
    TRY(write_plan(r, "plan.txt", plan_print));
    TRY(write_plan(r, "plan.json", write_plan_json));
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->s->out);
    TRY(r->s->resume ? cut_log(r, path) : run_keep_log(r->s->out));
    if (r->s->tensorboard)
        TRY(board_open(r->s->out, r->progress.at.step, &r->place.board));
    if (r->s->metrics_file)
        TRY(metrics_file_open(r->s->metrics_file, r->s->out, &r->place.metrics_file));
    return run_log_open(path, r->s->resume != NULL, r->s->log_every, &r->place.log);
}
