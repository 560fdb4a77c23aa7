/* Numbers of a step that its programs read, and whether a signal has ended them. */
#include "train/run.h"

#include "base/rng.h"

#include <math.h>

double run_learning_rate(const struct settings *s, int64_t step)
{
    double warm = s->warmup > 0 && step < s->warmup ? (double)(step + 1) / (double)s->warmup : 1;
    double total = (double)max_i64(1, s->plan.steps - s->warmup), t = (double)max_i64(0, step - s->warmup) / total;
    switch (s->schedule) {
    case SCHEDULE_LINEAR:
        return s->lr * warm * (1 - t);
    case SCHEDULE_COSINE:
        return s->lr * warm * 0.5 * (1 + cos(3.14159265358979 * (t < 1 ? t : 1)));
    case SCHEDULE_WSD: /* warm-up, stable, the last fifth decays */
        return s->lr * warm * (t < 0.8 ? 1 : (1 - t) / 0.2);
    default:
        return s->lr * warm;
    }
}

void run_fill_record(struct run *r, int64_t targets, uint64_t sequence)
{
    const struct settings *s = r->s;
    struct step_record *record = session_io(r->session, r->session->plan->io.record);
    double t = (double)r->progress.at.updates;
    const uint64_t key = s->seed ^ rng_stream("dropout");
    uint32_t random[4];
    rng_block(s->seed, rng_stream("moments"), (uint64_t)r->progress.at.updates, random);
    *record = (struct step_record){.inv_targets = targets > 0 ? 1.0f / (float)targets : 0,
                                   .clip = (float)s->clip,
                                   .lr = (float)r->progress.lr_pending,
                                   .weight_decay = (float)s->weight_decay,
                                   .beta1 = (float)s->beta1,
                                   .beta2 = (float)s->beta2,
                                   .eps = (float)s->eps,
                                   /* computed from the float betas that updates use */
                                   .bias1 = (float)(1 - pow((double)(float)s->beta1, t)),
                                   .bias2 = (float)(1 - pow((double)(float)s->beta2, t)),
                                   .rounding = random[0],
                                   .dropout = {(uint32_t)key, (uint32_t)(key >> 32)},
                                   .sequence = (uint32_t)sequence};
    comm_list_members(r->comm, record->member);
}

int run_is_over(const struct run *r)
{
    int over = comm_is_cut(r->comm);
    for (int l = LANE_WORLD; l < LANES && over; l++)
        over = !comm_owes(r->comm, (enum lane)l);
    return over;
}
