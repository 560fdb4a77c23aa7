/* Tests choices that change results by roundings or not at all: the division of a batch into micro-batches, and the time of a
 * pending update. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"
#include "plan/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { S = 96, N = 4 };

static void start(struct rig *r, enum model_family family, enum dtype dtype, int64_t seq_len, int accum, const struct cell *c)
{
    struct model *model;
    rig_defaults(r, seq_len);
    cell_settings(&r->settings.plan, seq_len, dtype);
    cell_apply(c, &r->settings.plan);
    r->settings.plan.grad_accum = accum;
    r->settings.clip = 0; /* no clipping, so that gradients can be compared */
    assert_int_equal(cell_model(family, 2, &model), OK);
    if (rig_start(r, model) != OK || session_initialise(r->session, 5) != OK)
        fail_msg("%s", status_message());
}

/* Joins all parts one after another; documents of each part stay separate. */
static void join(const struct sequence *part, struct sequence *whole)
{
    sequence_alloc(whole, N * S);
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < S; k++) {
            int64_t at = i * S + k;
            whole->tokens[at] = part[i].tokens[k];
            whole->targets[at] = part[i].targets[k];
            whole->positions[at] = part[i].positions[k];
            whole->lo[at] = part[i].lo[k] + (int32_t)(i * S);
            whole->hi[at] = part[i].hi[k] + (int32_t)(i * S);
        }
    for (int i = 0; i < N; i++)
        whole->n_targets += part[i].n_targets;
}

/* Returns the norm-wise relative difference of all gradients. */
static double gradient_difference(struct rig *a, struct rig *b)
{
    double d = 0, n = 0;
    for (int u = 0; u < a->model->n_units; u++) {
        size_t count = (size_t)a->model->units[u].elements;
        float *x = calloc(count, sizeof *x), *y = calloc(count, sizeof *y);
        assert_int_equal(rig_state(a, u, STATE_GRAD, x), OK);
        assert_int_equal(rig_state(b, u, STATE_GRAD, y), OK);
        for (size_t i = 0; i < count; i++) {
            d += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            n += (double)x[i] * x[i];
        }
        free(x);
        free(y);
    }
    assert_true(n > 0);
    return sqrt(d / n);
}

static void check_accumulation(enum model_family family, const int64_t documents[N][6], const struct cell *c)
{
    struct rig one, many;
    struct sequence part[N], whole;
    double loss[2], norm[2];
    start(&one, family, F32, N * S, 1, &(struct cell){EVERYTHING(ON_DEVICE)});
    start(&many, family, F32, S, N, c);
    for (int i = 0; i < N; i++)
        sequence_random(&part[i], S, one.model->config.vocab, (uint64_t)(11 + i), documents[i]);
    join(part, &whole);
    for (int step = 0; step < 3; step++) {
        if (rig_step(&one, &whole, 1, &loss[0], &norm[0]) != OK || rig_step(&many, part, N, &loss[1], &norm[1]) != OK)
            fail_msg("%s", status_message());
        if (!(fabs(loss[0] - loss[1]) < 1e-5 * loss[0]) || !(fabs(norm[0] - norm[1]) < 1e-5 * norm[0]))
            fail_msg("%s, step %d: loss %.9g and %.9g, norm %.9g and %.9g", cell_name(c), step, loss[0], loss[1], norm[0],
                     norm[1]);
        if (step == 0 && !(gradient_difference(&one, &many) < 1e-5))
            fail_msg("%s: gradients differ by %g", cell_name(c), gradient_difference(&one, &many));
    }
    for (int i = 0; i < N; i++)
        sequence_free(&part[i]);
    sequence_free(&whole);
    rig_stop(&one);
    rig_stop(&many);
}

/* Lengths of documents in micro-batches. Documents of one token have no target, so micro-batches have different numbers of
 * targets, by which they are weighted. */
static const int64_t UNEQUAL[N][6] = {{1, 1, 1, 1, 1, 0}, {90, 5, 1, 0}, {1, 2, 3, 4, 0}, {0}};
static const int64_t MOSTLY_EMPTY[N][6] = {{95, 0}, {2, 50, 1, 0}, {96, 0}, {1, 0}};

static const enum model_family FAMILIES[] = {FAMILY_LLAMA, FAMILY_GPT2};

static void accumulation_is_a_larger_batch(void **state)
{
    (void)state;
    static const struct cell cells[] = {
        {EVERYTHING(ON_DEVICE)},
        {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1},
        {.params = ON_HOST, .optim = ON_DRIVES, .acts = ON_HOST, .alpha = KEEP_HALF, .prefetch = AHEAD_1},
    };
    for (int f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
            check_accumulation(FAMILIES[f], UNEQUAL, &cells[i]);
            check_accumulation(FAMILIES[f], MOSTLY_EMPTY, &cells[i]);
        }
}

/* An update gives the same bits within the next forward pass and on its own before a step. */
static void check_flush(enum model_family family, enum dtype dtype, int accum, const struct cell *c)
{
    uint64_t digest[2];
    double loss[2][3], norm[2][3];
    for (int flush = 0; flush < 2; flush++) {
        struct rig r;
        struct sequence part[N];
        start(&r, family, dtype, S, accum, c);
        r.settings.clip = 0.5;
        for (int i = 0; i < accum; i++)
            sequence_random(&part[i], S, r.model->config.vocab, (uint64_t)(11 + i), UNEQUAL[i]);
        for (int step = 0; step < 3; step++) {
            assert_int_equal(rig_step(&r, part, accum, &loss[flush][step], &norm[flush][step]), OK);
            if (flush)
                assert_int_equal(rig_flush(&r), OK);
        }
        assert_int_equal(rig_flush(&r), OK);
        assert_int_equal(rig_digest(&r, &digest[flush]), OK);
        for (int i = 0; i < accum; i++)
            sequence_free(&part[i]);
        rig_stop(&r);
    }
    if (memcmp(loss[0], loss[1], sizeof loss[0]) != 0 || memcmp(norm[0], norm[1], sizeof norm[0]) != 0 || digest[0] != digest[1])
        fail_msg("%s: a flush changes bits, losses %.17g and %.17g", cell_name(c), loss[0][2], loss[1][2]);
    assert_true(isfinite(norm[0][0]) && norm[0][0] > 0.5 && loss[0][2] < loss[0][0]); /* clipped */
}

static void flush_and_step_is_the_woven_update(void **state)
{
    (void)state;
    static const struct cell cells[] = {
        {EVERYTHING(ON_DEVICE)},
        {.host_update = 1},
        {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1},
        {.params = ON_HOST, .grads = ON_HOST, .optim = ON_DRIVES, .alpha = KEEP_HALF, .prefetch = AHEAD_1, .discrete = 1},
    };
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < 4; i++) {
            check_flush(FAMILIES[f], F32, 1, &cells[i]);
            check_flush(FAMILIES[f], BF16, 1, &cells[i]);
            check_flush(FAMILIES[f], BF16, N, &cells[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(accumulation_is_a_larger_batch),
                                       cmocka_unit_test(flush_and_step_is_the_woven_update)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
