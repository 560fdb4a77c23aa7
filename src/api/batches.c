/* Sequences that a program's callback gives. */
#include "api/session.h"

#include "base/num.h"
#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Notes a fault of the callback's sequence and leaves the step out. */
static enum status refuse(ltrain *s, enum status st)
{
    s->given = st;
    snprintf(s->fault, sizeof s->fault, "%s", status_message());
    return ERR_STOPPED;
}

/* ---- checks ---- */

static enum status check_token(const struct ltrain_sequence *q, int64_t i, int64_t vocab)
{
    const int32_t token = q->tokens[i], target = q->targets[i], position = q->positions[i];
    if (token < 0 || token >= vocab)
        return status_fail(ERR_INVALID, "the batch callback: sequence %lld of step %lld: token %lld is %d, and ids are 0 to %lld",
                           (long long)q->number, (long long)q->step, (long long)i, token, (long long)vocab - 1);
    if (target < -1 || target >= vocab)
        return status_fail(ERR_INVALID,
                           "the batch callback: sequence %lld of step %lld: target %lld is %d, and targets are -1 (none) to %lld",
                           (long long)q->number, (long long)q->step, (long long)i, target, (long long)vocab - 1);
    if (position != 0 && (i == 0 || position != q->positions[i - 1] + 1))
        return status_fail(ERR_INVALID,
                           "the batch callback: sequence %lld of step %lld: position %lld is %d: give 0 where a document begins, "
                           "else one more than before",
                           (long long)q->number, (long long)q->step, (long long)i, position);
    if (q->weights && !isfinite(q->weights[i]))
        return status_fail(ERR_INVALID, "the batch callback: sequence %lld of step %lld: weight %lld is not finite",
                           (long long)q->number, (long long)q->step, (long long)i);
    return OK;
}

static enum status check_sequence(const struct ltrain_sequence *q, int64_t vocab)
{
    if (q->used < 0 || q->used > q->room)
        return status_fail(ERR_INVALID,
                           "the batch callback: sequence %lld of step %lld has %lld tokens, and there is room for 0 to %lld",
                           (long long)q->number, (long long)q->step, (long long)q->used, (long long)q->room);
    for (int64_t i = 0; i < q->used; i++)
        TRY(check_token(q, i, vocab));
    return OK;
}

/* ---- sequences ---- */

/* Derives masks and counts from the first `used` tokens' positions and targets. */
static void lay_out(const struct run *r, int64_t used, struct sequence *out)
{
    const int64_t window = r->model->mask_window[0];
    int64_t start = 0;
    out->n_targets = 0;
    out->n_tokens = used;
    out->pairs = 0;
    for (int64_t i = 0; i < used; i++) {
        if (out->positions[i] == 0)
            start = i;
        out->lo[i] = (int32_t)(window > 0 ? max_i64(start, i - window + 1) : start);
        out->hi[i] = (int32_t)i;
        out->pairs += (double)(i - out->lo[i] + 1);
        out->n_targets += out->targets[i] >= 0;
    }
}

static void copy(const struct api_kept *from, struct sequence *out)
{
    const size_t n = (size_t)from->used;
    memcpy(out->tokens, from->tokens, n * sizeof *out->tokens);
    memcpy(out->targets, from->targets, n * sizeof *out->targets);
    memcpy(out->positions, from->positions, n * sizeof *out->positions);
    if (out->weights)
        memcpy(out->weights, from->weights, n * sizeof *out->weights);
}

static void keep(struct api_kept *to, const struct ltrain_sequence *q)
{
    const size_t n = (size_t)q->used;
    to->number = q->number;
    to->used = q->used;
    memcpy(to->tokens, q->tokens, n * sizeof *q->tokens);
    memcpy(to->targets, q->targets, n * sizeof *q->targets);
    memcpy(to->positions, q->positions, n * sizeof *q->positions);
    if (q->weights)
        memcpy(to->weights, q->weights, n * sizeof *q->weights);
}

/* Returns the kept copy of a sequence of this step, or else a free place. */
static struct api_kept *find_kept(ltrain *s, int64_t number)
{
    struct api_kept *found = NULL;
    for (int i = 0; i < s->n_kept; i++) {
        if (s->kept[i].number == number)
            return &s->kept[i];
        if (s->kept[i].number < 0)
            found = &s->kept[i];
    }
    return found;
}

static enum status ask(ltrain *s, struct ltrain_sequence *q)
{
    for (int64_t i = 0; i < q->room; i++) {
        q->targets[i] = -1;
        q->positions[i] = (int32_t)i;
    }
    const int said = s->batch(s->user, q);
    if (said != 0)
        return refuse(s, status_fail(ERR_STOPPED, "the batch callback returned %d for sequence %lld of step %lld", said,
                                     (long long)q->number, (long long)q->step));
    const enum status st = check_sequence(q, s->run.model->config.vocab);
    return st == OK ? OK : refuse(s, st);
}

enum status api_take(void *session, int64_t number, struct sequence *out, int64_t *used)
{
    ltrain *s = session;
    struct api_kept *kept = find_kept(s, number);
    struct ltrain_sequence q = {.step = s->run.progress.at.step + 1,
                                .number = number,
                                .room = run_length(&s->run),
                                .tokens = out->tokens,
                                .targets = out->targets,
                                .positions = out->positions,
                                .weights = out->weights};
    if (kept && kept->number == number) {
        q.used = kept->used;
        copy(kept, out);
    } else {
        TRY(ask(s, &q));
        if (kept)
            keep(kept, &q);
    }
    lay_out(&s->run, q.used, out);
    *used = q.used;
    return OK;
}

/* ---- memory ---- */

enum status api_keep(ltrain *s)
{
    const int64_t n = s->settings.plan.grad_accum * s->settings.plan.micro_batch, room = run_length(&s->run);
    if (!s->hooks.take || s->settings.plan.grad_accum == 1)
        return OK;
    s->kept = sys_calloc((size_t)n, sizeof *s->kept);
    s->n_kept = s->kept ? (int)n : 0;
    int whole = s->kept != NULL;
    for (int i = 0; i < s->n_kept; i++) {
        struct api_kept *x = &s->kept[i];
        x->number = -1;
        x->tokens = sys_calloc(3 * (size_t)room, sizeof *x->tokens);
        x->targets = x->tokens ? x->tokens + room : NULL;
        x->positions = x->tokens ? x->tokens + 2 * room : NULL;
        x->weights = sys_calloc((size_t)room, sizeof *x->weights);
        whole = whole && x->tokens && x->weights;
    }
    return whole ? OK : status_fail(ERR_NOMEM, "out of memory: %lld sequences of a step", (long long)n);
}

void api_forget(ltrain *s)
{
    for (int i = 0; i < s->n_kept; i++) {
        free(s->kept[i].tokens);
        free(s->kept[i].weights);
    }
    free(s->kept);
    s->kept = NULL;
    s->n_kept = 0;
}
