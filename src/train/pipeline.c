/* Passes of sequences through a pipeline's stages, tick by tick. */
#include "train/pipeline.h"

/* Tells whether a program computes layers of a piece, not an end of the model. */
static int computes_layers(enum plan_program which)
{
    return which == PLAN_FORWARD || (which >= PLAN_BACKWARD_FIRST && which <= PLAN_BACKWARD_NEXT);
}

/* Tells whether a program is the first that computes losses of a micro-batch. */
static int counts(const struct ticks *t, const struct tick_work *w)
{
    return w->program == PLAN_EVAL && w->piece % t->slices == 0;
}

/* Lays a program's inputs out: its piece of a sequence or, for an end of the model, a share of that. *laid_out: the micro-batch whose
 * sequence is there already. */
static enum status lay_out(struct run *r, const struct ticks *t, const struct tick_work *w, const struct pipeline_pass *x,
                           int64_t *laid_out)
{
    const int64_t micro_batch = w->piece / t->slices, own = sequences_own(r, x->total, micro_batch);
    const int counted = x->tally && counts(t, w);
    struct tally ignored = {0};
    if (micro_batch != *laid_out || t->slices == 1 || counted)
        TRY(sequences_publish(r, x->source, own, x->total, counted ? x->tally : &ignored));
    *laid_out = micro_batch;
    if (t->slices > 1)
        batch_take_slice(r->batch, w->piece % t->slices);
    run_fill_record(r, x->targets, x->first + (uint64_t)own);
    if (!computes_layers(w->program))
        batch_take_share(r->batch);
    return OK;
}

/* Runs a stage's programs of a tick. */
static enum status run_tick(struct run *r, const struct ticks *t, int64_t tick, const struct pipeline_pass *x, int64_t *laid_out)
{
    const int stage = comm_member(r->comm, LANE_PP), open = strategy_open_micro_batches(&r->session->plan->strategy);
    struct tick_work work[TICK_MOST];
    const int n = ticks_list(t, stage, tick, work);
    for (int i = 0; i < n && !run_is_over(r); i++) {
        const struct tick_work *w = &work[i];
        const int slot = w->piece < 0 || t->evaluates ? 0 : ticks_slot(t, stage, w->piece);
        const int64_t micro_batch = w->piece < 0 ? 0 : w->piece / t->slices;
        const struct half_run half = {
            {[COPIES_SAVED] = slot, [COPIES_KEYS] = (int)(micro_batch % open), [COPIES_OUTPUT] = w->output},
            w->sends,
            w->receives,
        };
        if (w->piece >= 0)
            TRY(lay_out(r, t, w, x, laid_out));
        TRY(x->run(x->user, w, micro_batch, &half));
    }
    return OK;
}

enum status pipeline_run(struct run *r, const struct ticks *t, const struct pipeline_pass *x)
{
    int64_t laid_out = -1;
    TRY(session_clear_keys(r->session));
    for (int64_t k = 0; k < ticks_count(t) && !run_is_over(r); k++)
        TRY(run_tick(r, t, k, x, &laid_out));
    return OK;
}
