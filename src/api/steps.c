/* Training, saving and the end of a run. */
#include "api/session.h"

#include <string.h>

/* Refuses a call for which the session was not opened, or that comes after its end. */
static enum status check_training(const ltrain *s, const char *call)
{
    if (s->flags & LTRAIN_FROZEN)
        return status_fail(ERR_INVALID, "%s: the session was opened with LTRAIN_FROZEN and trains nothing", call);
    if (s->finished)
        return status_fail(ERR_INVALID, "%s: the run was ended by ltrain_finish: open another session to go on", call);
    return OK;
}

static enum status check_callbacks(const ltrain *s, int64_t steps, ltrain_batch *batch)
{
    TRY(check_training(s, "ltrain_train"));
    if (steps < 1)
        return status_fail(ERR_INVALID, "ltrain_train: %lld steps: give one at least", (long long)steps);
    if ((s->flags & LTRAIN_BATCHES) && !batch)
        return status_fail(ERR_INVALID,
                           "ltrain_train: the session was opened with LTRAIN_BATCHES: give a callback for sequences");
    if (!(s->flags & LTRAIN_BATCHES) && batch)
        return status_fail(ERR_INVALID, "ltrain_train: the sequences come from the settings' data: open the session with "
                                        "LTRAIN_BATCHES to give them by a callback");
    return OK;
}

/* Ends a step that was left out with the failure of the callback, on whichever rank. */
static enum status leave_out(ltrain *s)
{
    if (s->given != OK)
        status_fail(s->given, "%s", s->fault);
    return comm_agree(s->comm, s->given);
}

static enum status step(ltrain *s, ltrain_watch *metrics)
{
    struct step_metrics m;
    int cut = 0;
    s->given = OK;
    for (int i = 0; i < s->n_kept; i++)
        s->kept[i].number = -1;
    TRY(run_next(&s->run, &m, &cut));
    if (cut)
        return leave_out(s);
    const struct ltrain_metrics said = {.step = m.step,
                                        .steps = m.steps,
                                        .tokens = m.tokens,
                                        .targets = m.target_tokens,
                                        .loss = m.loss,
                                        .grad_norm = m.grad_norm,
                                        .lr = m.lr,
                                        .seconds = m.seconds,
                                        .skipped = m.skipped != NULL};
    const int ends = metrics ? metrics(s->user, &said) : 0;
    return comm_agree(s->comm,
                      ends ? status_fail(ERR_STOPPED, "the metrics callback returned %d after step %lld", ends, (long long)m.step)
                           : OK);
}

int ltrain_train(ltrain *s, int64_t steps, ltrain_batch *batch, ltrain_watch *metrics, void *user)
{
    FILE *before;
    TRY(api_enter(s, &before));
    enum status st = check_callbacks(s, steps, batch);
    s->batch = batch;
    s->user = user;
    for (int64_t i = 0; i < steps && st == OK && s->run.progress.at.step < s->settings.plan.steps; i++)
        st = step(s, metrics);
    return api_leave(s, before, st);
}

int ltrain_save(ltrain *s)
{
    FILE *before;
    TRY(api_enter(s, &before));
    enum status st = check_training(s, "ltrain_save");
    if (st == OK)
        st = run_save(&s->run);
    return api_leave(s, before, st);
}

int ltrain_export(ltrain *s, const char *directory)
{
    FILE *before;
    TRY(api_enter(s, &before));
    enum status st = check_training(s, "ltrain_export");
    if (st == OK && (!directory || !directory[0]))
        st = status_fail(ERR_INVALID, "ltrain_export: the directory has no name");
    if (st == OK)
        st = run_flush(&s->run);
    if (st == OK)
        st = run_export(&s->run, directory);
    return api_leave(s, before, st);
}

int ltrain_finish(ltrain *s)
{
    FILE *before;
    TRY(api_enter(s, &before));
    enum status st = check_training(s, "ltrain_finish");
    if (st == OK)
        st = run_finish(&s->run);
    s->finished = s->finished || st == OK;
    return api_leave(s, before, st);
}
