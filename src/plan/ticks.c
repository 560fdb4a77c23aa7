#include "plan/ticks.h"

#include <string.h>

struct ticks plan_ticks(const struct plan *p)
{
    const struct strategy *s = &p->strategy;
    return (struct ticks){
        strategy_stages(s),      strategy_slices(s), strategy_lag(s), p->micro_batches, !p->programs[PLAN_HEAD_FIRST],
        !p->programs[PLAN_EMBED]};
}

struct ticks plan_evaluation_ticks(const struct plan *p, int64_t micro_batches)
{
    struct ticks t = plan_ticks(p);
    t.micro_batches = micro_batches;
    t.evaluates = 1;
    return t;
}

static int64_t pieces(const struct ticks *t)
{
    return t->micro_batches * t->slices;
}

/* Returns the ticks by which the model's ends are computed earlier or later than the layers beside them. */
static int ends_apart(const struct ticks *t)
{
    return t->lag - 1;
}

/* Returns the ticks by which the embedding is computed earlier than the first stage's layers, and its gradient later. */
static int embedding_apart(const struct ticks *t)
{
    return t->first_embeds ? 0 : ends_apart(t);
}

/* Returns the first tick of the last stage's backward passes. */
static int64_t first_backward(const struct ticks *t)
{
    return embedding_apart(t) + 2 * ends_apart(t) + t->slices - 1 + t->lag * (t->stages - 1);
}

int64_t ticks_count(const struct ticks *t)
{
    if (t->evaluates)
        return embedding_apart(t) + ends_apart(t) + pieces(t) + t->lag * (t->stages - 1);
    return first_backward(t) + pieces(t) + t->lag * (t->stages - 1) + embedding_apart(t);
}

static int64_t within(const struct ticks *t, int64_t number)
{
    return number >= 0 && number < pieces(t) ? number : -1;
}

int64_t ticks_forward(const struct ticks *t, int stage, int64_t tick)
{
    return stage >= 0 && stage < t->stages ? within(t, tick - embedding_apart(t) - t->lag * stage) : -1;
}

/* Returns which of a stage's backward passes, counted from 0, runs in a tick; -1: none. */
static int64_t backward_number(const struct ticks *t, int stage, int64_t tick)
{
    return stage >= 0 && stage < t->stages ? within(t, tick - first_backward(t) - t->lag * (t->stages - 1 - stage)) : -1;
}

/* Returns the piece of backward pass `number`: these passes take each micro-batch's slices from the last to the first. */
static int64_t piece_of(const struct ticks *t, int64_t number)
{
    return number < 0 ? -1 : number / t->slices * t->slices + t->slices - 1 - number % t->slices;
}

int64_t ticks_backward(const struct ticks *t, int stage, int64_t tick)
{
    return piece_of(t, backward_number(t, stage, tick));
}

int ticks_slot(const struct ticks *t, int stage, int64_t piece)
{
    const int64_t slots = t->slices + 2 * ends_apart(t) + 2 * t->lag * (t->stages - 1 - stage);
    while (piece >= slots) /* a piece takes over the slot of the piece whose backward pass ran one tick before */
        piece = piece_of(t, piece - slots);
    return (int)piece;
}

/* Returns one of three successive programs: the first piece's (`first`), further pieces', the last piece's. */
static enum plan_program of_three(const struct ticks *t, enum plan_program first, int64_t number)
{
    return (enum plan_program)((int)first + (number == 0 ? 0 : number == pieces(t) - 1 ? 2 : 1));
}

static enum plan_program backward_of(const struct ticks *t, int64_t number)
{
    const enum plan_program of = of_three(t, PLAN_BACKWARD_FIRST, number);
    return of == PLAN_BACKWARD_MORE && t->slices > 1 && number % t->slices == 0 ? PLAN_BACKWARD_NEXT : of;
}

/* Says whether a stage sends in a half of a tick, and whether it receives. outputs: 1: outputs travel; 0: gradients. `made`: the tick in
 * which they were made. */
static void pass_on(const struct ticks *t, int stage, int outputs, int64_t made, struct tick_work *w)
{
    const int last = t->stages - 1;
    w->sends = outputs ? stage < last && ticks_forward(t, stage, made) >= 0 : stage > 0 && ticks_backward(t, stage, made) >= 0;
    w->receives = outputs ? ticks_forward(t, stage - 1, made) >= 0 : ticks_backward(t, stage + 1, made) >= 0;
}

/* Returns the copy of a piece's outputs on the last stage; 0 on other stages, or without a piece. */
static int output_of(const struct ticks *t, int stage, int64_t piece)
{
    return stage == t->stages - 1 && piece >= 0 ? ticks_slot(t, stage, piece) : 0;
}

/* Tells whether programs of forward passes, or of backward passes, run in a tick: where the ends' messages travel beside them, only from
 * the first message on to the last. */
static int has_forward(const struct ticks *t, int64_t tick)
{
    return !ends_apart(t) || tick <= embedding_apart(t) + t->lag * (t->stages - 1) + pieces(t) - 1;
}

static int has_backward(const struct ticks *t, int64_t tick)
{
    return !ends_apart(t) || tick >= first_backward(t) - 2;
}

/* Lists the programs of an evaluation's tick. A piece's outputs are used before the last stage makes others: one copy is enough. */
static int list_evaluation(const struct ticks *t, int stage, int64_t tick, struct tick_work out[TICK_MOST])
{
    const int apart = ends_apart(t);
    const int64_t forward = ticks_forward(t, stage, tick), embed = t->first_embeds ? -1 : ticks_forward(t, 0, tick + apart),
                  losses = ticks_forward(t, t->stages - 1, tick - apart);
    int n = 0;
    if (embed >= 0)
        out[n++] = (struct tick_work){PLAN_EMBED, embed, 0, 0, 0};
    out[n] = (struct tick_work){forward >= 0 ? PLAN_FORWARD : PLAN_PASS_FORWARD, forward, 0, 0, 0};
    if (apart)
        pass_on(t, stage, 1, tick - 1, &out[n]);
    n++;
    if (losses >= 0)
        out[n++] = (struct tick_work){PLAN_EVAL, losses, 0, 0, 0};
    out[n] = (struct tick_work){PLAN_PASS_BACKWARD, -1, 0, 0, 0};
    if (!apart)
        pass_on(t, stage, 1, tick, &out[n]);
    return n + 1;
}

int ticks_list(const struct ticks *t, int stage, int64_t tick, struct tick_work out[TICK_MOST])
{
    if (t->evaluates)
        return list_evaluation(t, stage, tick, out);
    const int apart = ends_apart(t), last = t->stages - 1;
    const int64_t forward = ticks_forward(t, stage, tick), backward = backward_number(t, stage, tick),
                  embed = t->first_embeds ? -1 : ticks_forward(t, 0, tick + apart), head = backward_number(t, last, tick + apart),
                  dealt = backward_number(t, last, tick + 2 * apart), grad = backward_number(t, 0, tick - embedding_apart(t));
    int n = 0;
    if (embed >= 0)
        out[n++] = (struct tick_work){PLAN_EMBED, embed, 0, 0, 0};
    if (has_forward(t, tick)) {
        out[n] = (struct tick_work){forward >= 0 ? PLAN_FORWARD : PLAN_PASS_FORWARD, forward, 0, 0, output_of(t, stage, forward)};
        pass_on(t, stage, apart, tick - 1, &out[n++]);
    }
    if (head >= 0)
        out[n++] = (struct tick_work){of_three(t, PLAN_HEAD_FIRST, head), piece_of(t, head), 0, 0,
                                      output_of(t, stage, piece_of(t, head))};
    if (has_backward(t, tick)) {
        out[n] = (struct tick_work){backward >= 0 ? backward_of(t, backward) : PLAN_PASS_BACKWARD, piece_of(t, backward), 0, 0,
                                    output_of(t, stage, apart ? piece_of(t, dealt) : -1)};
        pass_on(t, stage, !apart, tick - apart, &out[n++]);
    }
    if (t->first_embeds ? grad == pieces(t) - 1 : grad >= 0)
        out[n++] = (struct tick_work){of_three(t, PLAN_EMBED_GRAD_FIRST, grad), piece_of(t, grad), 0, 0, 0};
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

/* Returns the seconds of a program on one piece; 0 for a program of messages alone if the stage has none to pass on. Programs are planned
 * for a mean slice; under a causal mask, later slices have more pairs of queries and keys. */
static double seconds_of(const struct plan *p, const struct ticks *t, const struct tick_work *w)
{
    const int idle = w->piece < 0 && !w->sends && !w->receives && !ends_apart(t);
    const struct program *of = idle ? NULL : p->programs[w->program];
    const double more = (double)(2 * (w->piece % t->slices) + 1 - t->slices) / t->slices;
    return of ? of->seconds + (w->piece >= 0 ? more * p->causal_seconds[w->program] : 0) : 0;
}

/* Returns the seconds of a step. apart: plans from one stage's to the next one's in the list; 0: all stages run the first plan. */
static double step_seconds(const struct plan *const *of, int apart)
{
    const struct ticks t = plan_ticks(of[0]);
    double seconds = 0;
    for (int s = 0; s < t.stages; s++) {
        const struct program *flush = of[s * apart]->programs[PLAN_FLUSH];
        seconds = flush && flush->seconds > seconds ? flush->seconds : seconds;
    }
    for (int64_t k = 0; k < ticks_count(&t); k++) {
        double most[TICK_MOST] = {0};
        for (int s = 0; s < t.stages; s++) {
            struct tick_work work[TICK_MOST];
            for (int i = ticks_list(&t, s, k, work) - 1; i >= 0; i--) {
                const double own = seconds_of(of[s * apart], &t, &work[i]);
                most[i] = own > most[i] ? own : most[i];
            }
        }
        for (int i = 0; i < TICK_MOST; i++)
            seconds += most[i];
    }
    return seconds;
}

double ticks_seconds(const struct plan *p)
{
    return step_seconds(&p, 0);
}

double ticks_seconds_of(const struct plan *const *of)
{
    return step_seconds(of, 1);
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
