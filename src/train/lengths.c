/* The session of a run: begun, and changed where sequences change their length. */
#include "train/run.h"

#include "base/tell.h"
#include "base/units.h"
#include "model/part.h"
#include "offload/drives.h"
#include "settings/curriculum.h"

#include <stdlib.h>
#include <string.h>

/* Cuts the data into sequences of that length and describes the cut again for data.txt. */
static enum status cut_data(struct run *r, int64_t seq_len)
{
    if (!r->inputs.corpus || corpus_get_length(r->inputs.corpus) == seq_len) /* ltrain eval has windows instead */
        return OK;
    TRY(corpus_cut(r->inputs.corpus, seq_len));
    r->inputs.held_out_bytes = 0; /* sequences of another length hold out other targets */
    if (!r->inputs.texts.data)    /* ltrain check has none */
        return OK;
    free(r->inputs.texts.data);
    r->inputs.texts.data = NULL;
    return run_describe_data(r);
}

static enum status use_stretch(struct run *r, const struct plan *p)
{
    TRY(session_use(r->session, p));
    TRY(cut_data(r, plan_length(p)));
    batch_destroy(r->batch);
    r->batch = NULL;
    TRY(batch_create(r->session, plan_length(p), &r->batch));
    model_inv_freq(r->session->model, plan_length(p), session_io(r->session, p->io.inv_freq));
    return OK;
}

enum status run_use_stretch(struct run *r, int stretch)
{
    const struct plan *p = r->plans.all.stretches[stretch].plan;
    r->plans.stretch = stretch;
    if (r->batch && r->session->plan == p)
        return OK;
    memset(&r->measured.alike, 0, sizeof r->measured.alike);
    return comm_agree(r->comm, use_stretch(r, p));
}

/* Makes this rank's stage of the model, if there are stages. */
static enum status take_stage(struct run *r)
{
    const struct strategy *s = &r->plans.all.plan[0]->strategy;
    const int stages = strategy_stages(s);
    struct model_part part;
    if (stages == 1)
        return OK;
    TRY(model_stage_of(r->model, &s->key.stages, comm_member(r->comm, LANE_PP), stages, 0, 1, &part));
    return model_part_create(r->model, &part, &r->stage);
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
    TRY(comm_agree(r->comm, take_stage(r)));
    r->plans.all.owned = 0;
    TRY(comm_agree(r->comm, session_create(r->stage ? r->stage : r->model, r->plans.all.plan, r->plans.all.n, s, r->comm, path, n,
                                           &r->session)));
    /* keeps a step's data in memory, read before the step begins: a failed read then costs no half-done step */
    if ((s->plan.grad_accum > 1 || r->stage) && r->inputs.corpus)
        TRY(comm_agree(r->comm, corpus_keep(r->inputs.corpus, s->plan.grad_accum * s->plan.micro_batch)));
    return run_use_stretch(r, 0);
}

int64_t run_length(const struct run *r)
{
    return plan_length(r->session->plan);
}

int run_length_changes(const struct run *r)
{
    const struct plan_stretch *next = &r->plans.all.stretches[curriculum_at(r->s, r->progress.at.step)];
    return next->plan != r->session->plan;
}

enum status run_change_length(struct run *r)
{
    char path[RUN_PATH + 64], tokens[32];
    snprintf(path, sizeof path, "%s/checkpoints/step-%06lld", r->s->out, (long long)r->progress.at.step);
    TRY(run_use_stretch(r, curriculum_at(r->s, r->progress.at.step)));
    TRY(checkpoint_load(r->session, path));
    TRY(run_describe_numerics(r, r->progress.at.numerics, sizeof r->progress.at.numerics));
    tell("step %lld: sequences of %s tokens from here on; the state went on through %s\n", (long long)r->progress.at.step + 1,
         units_format_count(run_length(r), tokens), path);
    fflush(tell_stream());
    return OK;
}

double run_planned_seconds(const struct run *r)
{
    double seconds = 0;
    for (int i = r->plans.stretch; i < curriculum_stretches(r->s); i++) {
        const struct plan_stretch *x = &r->plans.all.stretches[i];
        seconds += x->plan->seconds * (double)max_i64(0, x->end - max_i64(x->first, r->progress.at.step));
    }
    return seconds;
}
