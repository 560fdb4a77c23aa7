/* Compares adapters' losses, gradients and ten AdamW steps with PEFT in fp64 (tests/golden/make_lora.py, make_moe_lora.py), from PEFT's own files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/golden.h"
#include "engine/golden_compare.h"
#include "engine/rig.h"
#include "engine/weights.h"
#include "extent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10 };

/* Gradients of A are zero while B is zero. */
static void check_zero_gradients(struct rig *r)
{
    for (int u = 0; u < r->model->n_units; u++) {
        float *have = calloc((size_t)r->model->units[u].elements, 4);
        assert_int_equal(rig_state(r, u, STATE_GRAD, have), OK);
        for (int i = 0; i < r->model->units[u].n_params; i++) {
            const struct model_param *p = &r->model->params[r->model->units[u].first_param + i];
            for (int64_t k = 0; strstr(p->name, "lora_A") && k < p->elements; k++)
                assert_true(have[p->offset + k] == 0.0f);
        }
        free(have);
    }
}

/* Frozen parameters equal the base's file, bit for bit. */
static void check_base(struct rig *r, const struct golden *g)
{
    struct st_file *f;
    assert_int_equal(st_open(g->path, &f), OK);
    for (int u = 0; u < r->model->n_units; u++) {
        float *have = calloc((size_t)r->model->units[u].elements, 4);
        assert_int_equal(rig_state(r, u, STATE_PARAM, have), OK);
        for (int i = 0; i < r->model->units[u].n_params; i++) {
            const struct model_param *p = &r->model->params[r->model->units[u].first_param + i];
            float *want = malloc((size_t)p->elements * 4);
            if (!p->trained && p->packed_bytes == 0) {
                assert_int_equal(weights_read(f, p, 0, p->elements, F32, want), OK);
                assert_memory_equal(have + p->offset, want, (size_t)p->elements * 4);
            }
            free(want);
        }
        free(have);
    }
    st_close(f);
}

static enum status add_bytes(void *user, int unit, int64_t first, int64_t n, uint8_t *data)
{
    uint64_t *sum = user; /* hash so far, FNV-1a */
    (void)unit;
    (void)first;
    for (int64_t i = 0; i < n; i++)
        *sum = (*sum ^ data[i]) * 0x100000001b3u;
    return OK;
}

/* Hashes all quantised matrices. A run with adapters has them only if the base is kept quantised. */
static uint64_t hash_packed(struct rig *r)
{
    const uint64_t nothing = 0xcbf29ce484222325u;
    uint64_t sum = nothing;
    for (int u = 0; u < r->model->n_units; u++)
        assert_int_equal(session_visit_packed(r->session, u, STATE_READ, add_bytes, &sum), OK);
    assert_int_equal(sum != nothing, r->model->config.base != BASE_STORED);
    return sum;
}

/* Compares a case as test_golden.c does: gradients norm-wise 1e-5, and trained parameters after ten steps likewise. Measured
 * (AVX-512, all cases and placements): losses differ by at most 1.5e-8, norms 5.1e-7, gradients 1.3e-6, trained parameters
 * 9.7e-7. values: losses and norms. */
static uint64_t check_case(const char *name, void (*change)(struct settings *), double values[2 * STEPS])
{
    struct golden g;
    struct rig r;
    struct model *m;
    uint64_t digest;
    assert_int_equal(golden_open(name, &g), OK);
    rig_defaults(&r, g.seq_len);
    if (change)
        change(&r.settings);
    if (golden_model(&g, &m) != OK || rig_start(&r, m) != OK || golden_load(&g, r.session) != OK)
        fail_msg("%s", status_message());
    const uint64_t packed = hash_packed(&r);
    for (int step = 0; step < STEPS; step++) {
        double loss, norm, want = json_number_value(json_array_get(json_object_get(g.info, "loss10"), (size_t)step)),
                           want_norm = json_number_value(json_array_get(json_object_get(g.info, "gnorm10"), (size_t)step));
        if (rig_step(&r, &g.sequence, 1, &loss, &norm) != OK)
            fail_msg("%s", status_message());
        values[2 * step] = loss;
        values[2 * step + 1] = norm;
        if (!(fabs(loss - want) < GOLDEN_LOSS * want) || !(fabs(norm - want_norm) < GOLDEN_NORM * want_norm))
            fail_msg("%s step %d: loss %.9g, PEFT's %.9g; norm %.9g, PEFT's %.9g", name, step, loss, want, norm, want_norm);
        if (step == 0) {
            double worst = golden_compare(&r, g.file, STATE_GRAD, "grad", 1e-4);
            if (!(worst < 1e-5))
                fail_msg("%s: gradients differ by %g", name, worst);
            if (json_is_true(json_object_get(g.info, "zero")))
                check_zero_gradients(&r);
        }
    }
    assert_int_equal(rig_flush(&r), OK);
    double worst = golden_compare(&r, g.file, STATE_PARAM, "step10", 1e-4);
    if (!(worst < 1e-5))
        fail_msg("%s: what is trained differs by %g after ten steps", name, worst);
    check_base(&r, &g);
    assert_int_equal(hash_packed(&r), packed);
    assert_int_equal(rig_digest(&r, &digest), OK);
    rig_stop(&r);
    golden_close(&g);
    return digest;
}

static void small_tiles(struct settings *s)
{
    s->plan.row_chunk = 16;
    s->plan.head_tile = 1;
    s->plan.loss_tile = 8;
}

static void everything_nvme(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
    s->plan.device = DEVICE_CPU_DISCRETE;
    s->plan.alpha = 0;
    small_tiles(s);
}

/* Runs resident with two grids of tiles, under sanitizers with one. With the smaller tiles, everything on nvme and recomputed must give the bits of the
 * resident run. */
static void check_everywhere(const char *name)
{
    double other[2 * STEPS], near[2 * STEPS], far[2 * STEPS];
    if (!EXTENT_SANITIZED)
        check_case(name, NULL, other);
    uint64_t resident = check_case(name, small_tiles, near), away = check_case(name, everything_nvme, far);
    assert_memory_equal(near, far, sizeof near);
    assert_true(resident == away);
}

#define CASE(test, name)           \
    static void test(void **state) \
    {                              \
        (void)state;               \
        check_everywhere(name);    \
    }
CASE(gqa, "lora-gqa")
CASE(tied, "lora-tied")
CASE(gpt2, "lora-gpt2")
CASE(phi3, "lora-phi3")
CASE(neox, "lora-neox")
CASE(codegen, "lora-codegen")
CASE(qwen3, "lora-qwen3")
CASE(qwen3_5, "lora-qwen3_5")
CASE(nf4, "qlora-gqa")
CASE(nf4_hybrid, "hybrid/qlora")
CASE(nf4_by_key_head, "hybrid/qlora-next")
CASE(hybrid_moe, "hybrid/lora-moe")
CASE(hybrid_next, "hybrid/lora-next")
CASE(hybrid_kimi, "hybrid/lora-kimi")
CASE(hybrid_lfm2, "hybrid/lora-lfm2")
CASE(hybrid_nemotron, "hybrid/lora-nemotron")
CASE(hybrid_granite, "hybrid/lora-granite")
CASE(hybrid_bamba, "hybrid/lora-bamba")
CASE(hybrid_minimax, "hybrid/lora-minimax")
CASE(hybrid_falcon, "hybrid/lora-falcon")
CASE(hybrid_olmo, "hybrid/lora-olmo")
CASE(latent, "latent/lora")
CASE(nf4_latent, "latent/qlora")
CASE(int8, "int8-gqa")
CASE(dropout, "lora-dropout")
CASE(dropout_fused, "lora-dropout-gpt2")
CASE(ends, "lora-ends")
CASE(ends_tied, "lora-ends-tied")
CASE(ends_fused, "lora-ends-gpt2")
CASE(ends_biased, "lora-ends-phi")
CASE(experts, "lora-moe/qwen3-moe")
CASE(experts_fused, "lora-moe/mixtral")
CASE(experts_biased, "lora-moe/gpt-oss")
CASE(experts_of_one, "lora-moe/granitemoe")
CASE(experts_mxfp4, "lora-moe/gpt-oss-mxfp4")
CASE(routers, "lora-moe/olmoe")
CASE(routers_biased, "lora-moe/gpt-oss-router")

CASE(rows_of_tokens, "lora-tokens")
CASE(rows_of_tokens_tied, "lora-tokens-tied")

/* Returns the first step's loss of a case whose list of tokens is replaced. */
static double loss_with_tokens(const char *name, const char *tokens)
{
    struct golden g;
    struct rig r;
    struct model *all, *m;
    double loss, norm;
    assert_int_equal(golden_open(name, &g), OK);
    rig_defaults(&r, g.seq_len);
    assert_int_equal(golden_model(&g, &all), OK);
    struct model_config config = all->config;
    model_destroy(all);
    snprintf(config.lora.tokens, sizeof config.lora.tokens, "%s", tokens);
    if (model_create(&config, NULL, 0, &m) != OK || rig_start(&r, m) != OK || golden_load(&g, r.session) != OK ||
        rig_step(&r, &g.sequence, 1, &loss, &norm) != OK)
        fail_msg("%s", status_message());
    rig_stop(&r);
    golden_close(&g);
    return loss;
}

/* Two rows that stand for each other's token, of which the sequence has one, give another loss than PEFT's. */
static void rows_exchanged(void **state)
{
    (void)state;
    static const char *const lists[][2] = {{"lora-tokens", "lm_head:7,90-119,embed_tokens:200,40-79,3"},
                                           {"lora-tokens", "lm_head:7,90-119,embed_tokens:200,41,40,42-79,3"},
                                           {"lora-tokens", "lm_head:7,90,92,91,93-119,embed_tokens:200,40-79,3"},
                                           {"lora-tokens-tied", "200,40-79,3"},
                                           {"lora-tokens-tied", "200,40-42,44,43,45-79,3"}};
    const int right[] = {1, 0, 0, 1, 0};
    for (int i = 0; i < 5; i++) {
        struct golden g;
        assert_int_equal(golden_open(lists[i][0], &g), OK);
        const double want = g.loss[0], loss = loss_with_tokens(lists[i][0], lists[i][1]);
        golden_close(&g);
        assert_int_equal(fabs(loss - want) < GOLDEN_LOSS * want, right[i]);
    }
}

/* Checks that the golden losses, computed in fp64 from the same quantised bytes, agree with those of PEFT and bitsandbytes in
 * fp32. */
static void check_stands_for(const char *name, const char *key)
{
    struct golden g;
    assert_int_equal(golden_open(name, &g), OK);
    for (size_t i = 0; i < STEPS; i++) {
        double ours = json_number_value(json_array_get(json_object_get(g.info, "loss10"), i)),
               theirs = json_number_value(json_array_get(json_object_get(g.info, key), i));
        assert_true(theirs > 0 && fabs(ours - theirs) < 1e-5);
    }
    golden_close(&g);
}

static void bitsandbytes(void **state)
{
    (void)state;
    check_stands_for("qlora-gqa", "loss_nf4");
    check_stands_for("int8-gqa", "loss_int8");
}

/* A step along direction d in the space of all trained parameters. */
struct shift {
    float *from, *d, by;
};

static enum status move(void *user, int unit, int64_t first, int64_t n, float *data)
{
    const struct shift *s = user;
    (void)unit;
    for (int64_t i = 0; i < n; i++)
        data[i] = s->from[first + i] + s->by * s->d[first + i];
    return OK;
}

/* Returns the loss of the case's first step, with trained parameters moved by `by` along the gradients at the beginning. slope:
 * the loss's change per unit of `by` that the gradients predict. */
static double loss_along(const char *name, double by, double *slope)
{
    static float *along[8];
    struct golden g;
    struct rig r;
    struct model *m;
    double loss, norm;
    assert_int_equal(golden_open(name, &g), OK);
    rig_defaults(&r, g.seq_len);
    assert_int_equal(golden_model(&g, &m), OK);
    assert_int_equal(rig_start(&r, m), OK);
    assert_int_equal(golden_load(&g, r.session), OK);
    for (int u = 0; by != 0 && u < m->n_units; u++) {
        struct shift s = {calloc((size_t)m->units[u].elements, 4), along[u], (float)by};
        assert_int_equal(rig_state(&r, u, STATE_PARAM, s.from), OK);
        assert_int_equal(session_visit(r.session, u, STATE_PARAM, STATE_WRITE, move, &s), OK);
        free(s.from);
    }
    assert_int_equal(rig_step(&r, &g.sequence, 1, &loss, &norm), OK);
    for (int u = 0; slope && u < m->n_units; u++) {
        free(along[u]);
        along[u] = calloc((size_t)m->units[u].elements, 4);
        assert_int_equal(rig_state(&r, u, STATE_GRAD, along[u]), OK);
    }
    if (slope)
        *slope = norm * norm;
    rig_stop(&r);
    golden_close(&g);
    return loss;
}

/* With a fixed dropout mask, the loss changes along the gradient as the gradient predicts, by central differences of fourth
 * order. */
static void differences(void **state)
{
    double slope, h = 0.02;
    (void)state;
    loss_along("lora-dropout", 0, &slope);
    double near = loss_along("lora-dropout", h, NULL) - loss_along("lora-dropout", -h, NULL),
           far = loss_along("lora-dropout", 2 * h, NULL) - loss_along("lora-dropout", -2 * h, NULL),
           measured = (8 * near - far) / (12 * h);
    if (!(fabs(measured - slope) < 1e-4 * slope))
        fail_msg("the loss changes by %.9g and the gradient says %.9g", measured, slope);
}

static enum offload tier;
static enum device_kind device;
static double alpha;

static void placed(struct settings *s)
{
    s->plan.params = tier;
    s->plan.acts = tier == OFFLOAD_NONE ? OFFLOAD_CPU : OFFLOAD_NONE;
    s->plan.device = device;
    s->plan.alpha = alpha;
    small_tiles(s);
}

/* Trains on a quantised base in any tier, with everything kept or recomputed. */
static void check_anywhere(const char *name)
{
    double first[2 * STEPS], other[2 * STEPS];
    uint64_t digest = 0;
    int n = 0;
    for (tier = OFFLOAD_NONE; tier <= OFFLOAD_NVME; tier++)
        for (int d = 0; d < 2; d++) {
            device = d ? DEVICE_CPU_DISCRETE : DEVICE_CPU;
            alpha = (d + (int)tier) % 2;
            uint64_t now = check_case(name, placed, n ? other : first);
            assert_true(n == 0 || (now == digest && memcmp(first, other, sizeof first) == 0));
            digest = now;
            n++;
        }
}

static void nf4_anywhere(void **state)
{
    (void)state;
    check_anywhere("qlora-gqa");
}

static void int8_anywhere(void **state)
{
    (void)state;
    check_anywhere("int8-gqa");
}

/* ---- tiles of quantised matrices ---- */

static enum status take_bytes(void *user, int unit, int64_t first, int64_t n, uint8_t *data)
{
    (void)unit;
    memcpy((uint8_t *)user + first, data, (size_t)n);
    return OK;
}

static enum status give_values(void *user, int unit, int64_t first, int64_t n, float *data)
{
    (void)unit;
    memcpy(data, (float *)user + first, (size_t)n * sizeof *data);
    return OK;
}

/* Writes the numbers of a unit's quantised matrices into the other model's parameters of the same names. */
static void copy_unit(struct rig *from, struct rig *to, int u)
{
    const struct model *m = from->model;
    uint8_t *bytes = aligned_alloc(64, (size_t)round_up(m->units[u].packed_bytes + 1, 64));
    float *values = malloc((size_t)to->model->units[u].elements * sizeof *values);
    assert_int_equal(session_visit_packed(from->session, u, STATE_READ, take_bytes, bytes), OK);
    assert_int_equal(rig_state(to, u, STATE_PARAM, values), OK);
    for (int i = m->units[u].first_param; i < m->units[u].first_param + m->units[u].n_params; i++) {
        const struct model_param *p = &m->params[i], *q = &to->model->params[to->model->units[u].first_param];
        const struct quantised as = model_quantised(&m->config, p);
        while (strcmp(q->name, p->name) != 0)
            q++;
        if (p->packed_bytes > 0)
            quantised_numbers(bytes + p->packed_offset, &as, 0, q->elements, values + q->offset);
    }
    assert_int_equal(session_visit(to->session, u, STATE_PARAM, STATE_WRITE, give_values, values), OK);
    free(values);
    free(bytes);
}

static void start_wide(struct rig *r, enum model_base base)
{
    struct model_config c;
    struct model *m;
    rig_defaults(r, 24);
    r->settings.plan.group = 1 << 20;
    assert_int_equal(model_preset("tiny", &c), OK);
    c.dim = 2112;
    c.heads = c.kv_heads = 1;
    c.head_dim = 24;
    c.ffn = 2200; /* rows that end inside blocks of 64 */
    c.layers = 1;
    c.base = base;
    c.lora = (struct lora){.rank = 3, .alpha = 6, .targets = "all-linear"};
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    if (rig_start(r, m) != OK || session_initialise(r->session, 5) != OK)
        fail_msg("%s", status_message());
}

/* Products with more columns than a tile give the bits of products with whole matrices of the same values. */
static void tiles(void **state)
{
    struct rig tiled, whole;
    struct sequence q;
    double loss[2], norm[2];
    int tiles = 0;
    (void)state;
    start_wide(&tiled, BASE_NF4);
    start_wide(&whole, BASE_STORED);
    for (int u = 0; u < tiled.model->n_units; u++)
        copy_unit(&tiled, &whole, u);
    sequence_random(&q, 24, tiled.model->config.vocab, 3, (const int64_t[]){9, 0});
    assert_int_equal(rig_step(&tiled, &q, 1, &loss[0], &norm[0]), OK);
    assert_int_equal(rig_step(&whole, &q, 1, &loss[1], &norm[1]), OK);
    assert_true(loss[0] == loss[1] && norm[0] == norm[1] && norm[0] > 0);
    const struct program *p = tiled.session->plan->programs[0];
    for (int i = 0; i < p->n_instrs; i++)
        tiles += p->instrs[i].op == OP_GEMM && program_call(p, &p->instrs[i])->attrs.gemm.accumulate == GEMM_KEEPS;
    assert_true(tiles > 0);
    sequence_free(&q);
    rig_stop(&tiled);
    rig_stop(&whole);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gqa),
                                       cmocka_unit_test(tied),
                                       cmocka_unit_test(gpt2),
                                       cmocka_unit_test(phi3),
                                       cmocka_unit_test(neox),
                                       cmocka_unit_test(codegen),
                                       cmocka_unit_test(qwen3),
                                       cmocka_unit_test(qwen3_5),
                                       cmocka_unit_test(nf4),
                                       cmocka_unit_test(nf4_hybrid),
                                       cmocka_unit_test(nf4_by_key_head),
                                       cmocka_unit_test(latent),
                                       cmocka_unit_test(nf4_latent),
                                       cmocka_unit_test(hybrid_moe),
                                       cmocka_unit_test(hybrid_next),
                                       cmocka_unit_test(hybrid_kimi),
                                       cmocka_unit_test(hybrid_lfm2),
                                       cmocka_unit_test(hybrid_nemotron),
                                       cmocka_unit_test(hybrid_granite),
                                       cmocka_unit_test(hybrid_bamba),
                                       cmocka_unit_test(hybrid_minimax),
                                       cmocka_unit_test(hybrid_falcon),
                                       cmocka_unit_test(hybrid_olmo),
                                       cmocka_unit_test(int8),
                                       cmocka_unit_test(bitsandbytes),
                                       cmocka_unit_test(dropout),
                                       cmocka_unit_test(dropout_fused),
                                       cmocka_unit_test(differences),
                                       cmocka_unit_test(tiles),
                                       cmocka_unit_test(ends),
                                       cmocka_unit_test(ends_tied),
                                       cmocka_unit_test(ends_fused),
                                       cmocka_unit_test(rows_of_tokens),
                                       cmocka_unit_test(rows_of_tokens_tied),
                                       cmocka_unit_test(rows_exchanged),
                                       cmocka_unit_test(ends_biased),
                                       cmocka_unit_test(nf4_anywhere),
                                       cmocka_unit_test(int8_anywhere),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(experts_fused),
                                       cmocka_unit_test(experts_biased),
                                       cmocka_unit_test(experts_of_one),
                                       cmocka_unit_test(experts_mxfp4),
                                       cmocka_unit_test(routers),
                                       cmocka_unit_test(routers_biased)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
