#include "plan/ticks.h"

#include <string.h>

struct ticks plan_ticks(const struct plan *p)
{
    return (struct ticks){strategy_stages(&p->strategy), p->micro_batches};
}

int64_t ticks_count(const struct ticks *t)
{
    return t->micro_batches + 2 * (t->stages - 1);
}

static int64_t within(const struct ticks *t, int64_t micro_batch)
{
    return micro_batch >= 0 && micro_batch < t->micro_batches ? micro_batch : -1;
}

int64_t ticks_forward(const struct ticks *t, int stage, int64_t tick)
{
    return stage >= 0 && stage < t->stages ? within(t, tick - stage) : -1;
}

int64_t ticks_backward(const struct ticks *t, int stage, int64_t tick)
{
    return stage >= 0 && stage < t->stages ? within(t, tick - (2 * (t->stages - 1) - stage)) : -1;
}

/* Returns the program among three: of the first micro-batch, of further ones, of the last one of several. */
static enum plan_program of_three(const struct ticks *t, enum plan_program first, int64_t micro_batch)
{
    return (enum plan_program)((int)first + (micro_batch == 0 ? 0 : micro_batch == t->micro_batches - 1 ? 2 : 1));
}

int ticks_list(const struct ticks *t, int stage, int64_t tick, struct tick_work out[TICK_MOST])
{
    const int last = t->stages - 1;
    const int64_t forward = ticks_forward(t, stage, tick), backward = ticks_backward(t, stage, tick),
                  embed = ticks_forward(t, 0, tick), head = ticks_forward(t, last, tick), grad = ticks_backward(t, 0, tick);
    int n = 0;
    if (embed >= 0)
        out[n++] = (struct tick_work){PLAN_EMBED, embed, 0, 0};
    out[n++] =
        (struct tick_work){forward >= 0 ? PLAN_FORWARD : PLAN_PASS_FORWARD, forward,
                           stage > 0 && ticks_backward(t, stage, tick - 1) >= 0, ticks_backward(t, stage + 1, tick - 1) >= 0};
    if (head >= 0)
        out[n++] = (struct tick_work){of_three(t, PLAN_HEAD_FIRST, head), head, 0, 0};
    out[n++] = (struct tick_work){backward >= 0 ? of_three(t, PLAN_BACKWARD_FIRST, backward) : PLAN_PASS_BACKWARD, backward,
                                  stage < last && forward >= 0, ticks_forward(t, stage - 1, tick) >= 0};
    if (grad >= 0)
        out[n++] = (struct tick_work){of_three(t, PLAN_EMBED_GRAD_FIRST, grad), grad, 0, 0};
    return n;
}

void ticks_runs(const struct ticks *t, int64_t runs[PLAN_PROGRAMS])
{
    struct tick_work work[TICK_MOST];
    memset(runs, 0, sizeof *runs * PLAN_PROGRAMS);
    for (int64_t k = 0; k < ticks_count(t); k++)
        for (int i = ticks_list(t, 0, k, work); i > 0; i--)
            runs[work[i - 1].program]++;
}

double ticks_seconds(const struct plan *p)
{
    const struct ticks t = plan_ticks(p);
    double seconds = p->programs[PLAN_FLUSH] ? p->programs[PLAN_FLUSH]->seconds : 0;
    for (int64_t k = 0; k < ticks_count(&t); k++) {
        double most[TICK_MOST] = {0};
        for (int s = 0; s < t.stages; s++) {
            struct tick_work work[TICK_MOST];
            for (int i = ticks_list(&t, s, k, work) - 1; i >= 0; i--) {
                const struct program *of = p->programs[work[i].program];
                most[i] = of && of->seconds > most[i] ? of->seconds : most[i];
            }
        }
        for (int i = 0; i < TICK_MOST; i++)
            seconds += most[i];
    }
    return seconds;
}

double ticks_idle(const struct plan *p)
{
    const struct ticks t = plan_ticks(p);
    int64_t runs[PLAN_PROGRAMS];
    double seconds = ticks_seconds(p) - (p->programs[PLAN_FLUSH] ? p->programs[PLAN_FLUSH]->seconds : 0);
    ticks_runs(&t, runs);
    for (int k = PLAN_EMBED; k < PLAN_PASS_FORWARD; k++)
        seconds -= p->programs[k] ? (double)runs[k] * p->programs[k]->seconds : 0;
    return seconds > 0 ? seconds : 0;
}
