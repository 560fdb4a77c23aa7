/* Tests that a model of toy blocks is described, trained and sampled rightly: kinds of layers, gradients against differences of the
 * loss, and a text read token by token against the loss of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "engine/decoder.h"
#include "engine/rig.h"
#include "plan/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { S = 64, VOCAB = 256, CUT = 41 };
static const int64_t DOCUMENTS[] = {23, 1, 0};

static struct model *model_of(const char *blocks)
{
    struct model_config c;
    struct model *m;
    assert_int_equal(model_preset("toy", &c), OK);
    for (int l = 0; blocks && blocks[l]; l++)
        c.blocks_of[l] = (uint8_t)(blocks[l] - '0');
    if (model_create(&c, NULL, 0, &m) != OK)
        fail_msg("%s", status_message());
    return m;
}

static void layers_are_told_apart(void **state)
{
    static const char *const names[] = {"full (attention, MLP)", "full (attention, MLP, toy scans)", "window 48 (attention, MLP)",
                                        "no attention (toy scans)", "no attention (toy scans, MLP)"};
    struct model *m = model_of(NULL);
    char name[KIND_NAME];
    (void)state;
    assert_int_equal(m->n_kinds, 5);
    for (int k = 0; k < m->n_kinds; k++)
        assert_string_equal(model_kind_name(m, &m->kinds[k], name), names[k]);
    assert_true(m->kinds[4].layers == 2 && m->kinds[4].first == 1 && m->layers[4].kind == 4);
    assert_true(model_light_layers(m) == 4 && model_has_light(m) && model_whole_block(m) == BLOCK_TOY);
    assert_true(model_same_but_windows(m, 0, 5) && !model_same_but_windows(m, 0, 2));
    model_destroy(m);
}

/* A model without any attention has no heads, but still a mask for its inputs. */
static void attention_may_be_absent(void **state)
{
    struct model *m = model_of("131313");
    (void)state;
    assert_true(m->n_shapes == 0 && m->n_masks == 1 && m->n_kinds == 2 && m->n_ropes == 0);
    assert_true(model_light_layers(m) == 6 && !model_has_light(m));
    model_destroy(m);
}

static void two_blocks_of_a_kind_are_refused(void **state)
{
    struct model_config c;
    struct model *m;
    (void)state;
    assert_int_equal(model_preset("toy", &c), OK);
    c.blocks_of[3] = 4;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "layer 3 has two blocks of toy scans"));
}

/* ---- gradients ---- */

/* A unit's parameters, of which one is changed. */
struct change {
    const struct model_param *p;
    const float *at, *by;
    float times;
};

static enum status set(void *user, int unit, int64_t first, int64_t n, float *data)
{
    const struct change *x = user;
    (void)unit;
    for (int64_t i = first; i < first + n; i++)
        data[i - first] = x->at[i] + (i >= x->p->offset && i < x->p->offset + x->p->elements ? x->times * x->by[i] : 0);
    return OK;
}

/* Returns the loss with the parameter changed `times` times, and changes it back. */
static double loss_at(struct rig *r, const struct sequence *q, struct change x, float times)
{
    double loss, norm;
    x.times = times;
    assert_int_equal(session_visit(r->session, x.p->unit, STATE_PARAM, STATE_WRITE, set, &x), OK);
    assert_int_equal(rig_step(r, q, 1, &loss, &norm), OK);
    x.times = 0;
    assert_int_equal(session_visit(r->session, x.p->unit, STATE_PARAM, STATE_WRITE, set, &x), OK);
    return loss;
}

/* Compares a parameter's gradient with the loss's differences along it. */
static void check_gradient(struct rig *r, const struct sequence *q, const struct model_param *p)
{
    const size_t n = (size_t)r->model->units[p->unit].elements;
    float *g = calloc(n, sizeof *g), *at = calloc(n, sizeof *at);
    double loss, norm, square = 0;
    assert_int_equal(rig_state(r, p->unit, STATE_PARAM, at), OK);
    assert_int_equal(rig_step(r, q, 1, &loss, &norm), OK);
    assert_int_equal(rig_state(r, p->unit, STATE_GRAD, g), OK);
    for (int64_t i = 0; i < p->elements; i++)
        square += (double)g[p->offset + i] * g[p->offset + i];
    const float times = (float)(1e-2 / sqrt(square));
    const struct change x = {p, at, g, 0};
    const double slope = (loss_at(r, q, x, times) - loss_at(r, q, x, -times)) / (2 * times);
    if (!(fabs(slope - square) < 0.01 * square) || square == 0)
        fail_msg("%s: the loss changes by %g along its gradient, whose square is %g", p->name, slope, square);
    free(g);
    free(at);
}

static void gradients_are_the_losss(void **state)
{
    struct rig r;
    struct sequence q;
    int n = 0;
    (void)state;
    rig_defaults(&r, S);
    r.settings.plan.row_chunk = 16;
    r.settings.lr = r.settings.weight_decay = 0;
    sequence_random(&q, S, VOCAB, 3, DOCUMENTS);
    assert_int_equal(rig_start(&r, model_of(NULL)), OK);
    assert_int_equal(session_initialise(r.session, 7), OK);
    for (int i = 0; i < r.model->n_params; i++)
        if (r.model->params[i].unit <= 4 && (strstr(r.model->params[i].name, "toy") || i == r.model->embed)) {
            check_gradient(&r, &q, &r.model->params[i]);
            n++;
        }
    assert_int_equal(n, 1 + 3 * 5);
    rig_stop(&r);
    sequence_free(&q);
}

/* ---- sampling ---- */

/* Reads more of the text, `at_once` tokens at a time; returns the sum of the losses after each part that ends after `from`. */
static double read_on(struct decoder *d, const struct sequence *q, int at_once, int from)
{
    static float logits[VOCAB];
    double sum = 0;
    for (int i = 0; i < S; i++) {
        double all = 0;
        const int first = (int)decoder_length(d);
        if (i < first || ((i + 1) % at_once != 0 && i + 1 < S))
            continue;
        if (decoder_feed(d, q->tokens + first, i + 1 - first, NULL, logits) != OK)
            fail_msg("%s", status_message());
        for (int k = 0; k < VOCAB; k++)
            all += exp(logits[k]);
        sum += i + 1 < S && i >= from ? log(all) - logits[q->tokens[i + 1]] : 0;
    }
    return sum;
}

/* A text that is read token by token has the loss that training has; one that is read in parts, cut short and read on, the same at
 * the ends of the parts. */
static void read_text_of(const char *blocks)
{
    static const int64_t whole[] = {0};
    struct rig r;
    struct sequence q;
    struct settings s;
    struct target target;
    struct plan *plan;
    struct session *session;
    struct decoder *d;
    int64_t limit[TIERS];
    double loss, norm;
    char scratch[] = "/tmp/ltrain-test-XXXXXX", *path = mkdtemp(scratch);
    rig_defaults(&r, S);
    sequence_random(&q, S, VOCAB, 4, whole);
    assert_int_equal(rig_start(&r, model_of(blocks)), OK);
    assert_int_equal(session_initialise(r.session, 7), OK);
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    settings_defaults(&s, S);
    s.plan.micro_batch = 1;
    s.plan.params = s.plan.acts = OFFLOAD_CPU;
    s.plan.device = DEVICE_CPU_DISCRETE;
    s.plan.row_chunk = 8;
    target = backend_cpu_target(1);
    s.plan.target = &target;
    for (int t = 0; t < TIERS; t++)
        limit[t] = (int64_t)1 << 40;
    if (plan_sampling(r.model, &s.plan, limit, &plan) != OK ||
        session_create(r.model, &plan, 1, &s, NULL, (const char *const *)&path, 1, &session) != OK ||
        session_initialise(session, 7) != OK || decoder_create(session, S, &d) != OK)
        fail_msg("%s", status_message());
    const double one = read_on(d, &q, 1, 0) / (double)q.n_targets;
    if (!(fabs(one - loss) < 2e-6 * loss))
        fail_msg("token by token the loss is %.9g, in training %.9g", one, loss);
    assert_int_equal(decoder_truncate(d, 0), OK);
    const double parts = read_on(d, &q, 5, CUT);
    assert_int_equal(decoder_truncate(d, CUT), OK);
    const double again = read_on(d, &q, 5, CUT);
    if (!(fabs(again - parts) < 2e-6 * parts) || parts < 1)
        fail_msg("in parts the loss is %.9g, after the text was cut short %.9g", parts, again);
    decoder_destroy(d);
    session_destroy(session);
    rmdir(scratch);
    rig_stop(&r);
    sequence_free(&q);
}

static void texts_are_read_as_in_training(void **state)
{
    (void)state;
    read_text_of(NULL);
    read_text_of("131313"); /* without windows, whose blocks a cut may have lost, a state alone decides what is read again */
}

/* A row's numbers as tests/toy/ops.c has them: 21 operations an element forward and backward, two values that may be kept. */
static void rows_say_what_a_scan_costs(void **state)
{
    (void)state;
    struct model *m = model_of("131313");
    const struct model_block *b = model_find_block(&m->layers[0], BLOCK_TOY);
    const double pairs[MODEL_MASKS] = {0};
    const int64_t width = b->toy.in.out;
    assert_true(width > 0 && m->config.layers == 6);
    assert_true(model_flops(m, 10, pairs) ==
                10 * (4.0 * (double)m->matrix_params + 2.0 * (double)m->trained_matrix_params + 21.0 * 6 * (double)width));
    assert_true(block_saved(m, b) == 2 * width && block_kept_bytes(m, b, 4) == 0 && block_mask(b) == -1);
    assert_true(block_cached_per_text(m, b) == width && block_cached_per_token(m, b) == 0);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_told_apart),
                                       cmocka_unit_test(attention_may_be_absent),
                                       cmocka_unit_test(two_blocks_of_a_kind_are_refused),
                                       cmocka_unit_test(gradients_are_the_losss),
                                       cmocka_unit_test(texts_are_read_as_in_training),
                                       cmocka_unit_test(rows_say_what_a_scan_costs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
