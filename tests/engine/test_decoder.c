/* Tests the decoder against transformers' greedy texts, token for token, for any placement, any parts in which a text is read,
 * and any text read before. */
#include "engine/decode.h"
#include "engine/twin.h"
#include "verify/verify.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NEW = 32, VOCAB = 256, TEXT = 96 };

static json_t *texts;
static struct twin twin;

/* One case of generate.json. */
struct text {
    int32_t prompt[TEXT], tokens[NEW];
    int n;
};

static int read_ids(const json_t *a, int32_t *out)
{
    int n = (int)json_array_size(a);
    for (int i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(a, (size_t)i));
    return n;
}

static struct text text_of(const char *name)
{
    struct text t;
    const json_t *o = json_object_get(texts, name);
    assert_non_null(o);
    t.n = read_ids(json_object_get(o, "prompt"), t.prompt);
    assert_int_equal(read_ids(json_object_get(o, "tokens"), t.tokens), NEW);
    return t;
}

static int32_t best(const struct decode_rig *r, const float *logits)
{
    int32_t at = 0;
    for (int32_t i = 1; i < r->model->config.vocab; i++)
        at = logits[i] > logits[at] ? i : at;
    return at;
}

static void ok(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

/* Decodes greedily from a text with given logits, and keeps the logits of each step. */
static void check_greedy(struct decode_rig *r, const char *name, const struct text *t, float logits[NEW][VOCAB])
{
    for (int i = 0; i < NEW; i++) {
        int32_t id = best(r, logits[i]);
        if (id != t->tokens[i])
            fail_msg("%s: token %d is %d, and transformers has %d", name, i, id, t->tokens[i]);
        if (i + 1 < NEW)
            ok(decoder_feed(r->decoder, &id, 1, NULL, logits[i + 1]));
    }
}

static void check_text(struct decode_rig *r, const char *name, float logits[NEW][VOCAB])
{
    struct text t = text_of(name);
    assert_int_equal(decode_start(r, name), OK);
    ok(decoder_feed(r->decoder, t.prompt, t.n, NULL, logits[0]));
    check_greedy(r, name, &t, logits);
    assert_int_equal(decoder_length(r->decoder), t.n + NEW - 1);
    decode_stop(r);
}

static float resident[NEW][VOCAB], other[NEW][VOCAB];

static void test_families(void **state)
{
    const char *name;
    json_t *value;
    (void)state;
    json_object_foreach(texts, name, value)
    {
        struct decode_rig r;
        decode_defaults(&r);
        if (strstr(name, "qlora"))
            r.base = BASE_NF4;
        check_text(&r, name, resident);
    }
}

static void same_bits(const char *what)
{
    for (int i = 0; i < NEW; i++)
        if (memcmp(resident[i], other[i], sizeof resident[i]) != 0)
            fail_msg("%s: the logits of token %d are others", what, i);
}

static void test_placements(void **state)
{
    static const char *const models[] = {"llama-gqa",      "gemma3",         "gemma4",
                                         "moe/gemma4-moe", "hybrid/qwen3_5", "latent/deepseek-v3"};
    static const struct {
        enum device_kind device;
        enum offload params, cache;
    } placements[] = {{DEVICE_CPU, OFFLOAD_CPU, OFFLOAD_CPU},
                      {DEVICE_CPU, OFFLOAD_NVME, OFFLOAD_NVME},
                      {DEVICE_CPU_DISCRETE, OFFLOAD_NVME, OFFLOAD_NVME},
                      {DEVICE_CPU_DISCRETE, OFFLOAD_CPU, OFFLOAD_CPU},
                      {DEVICE_CUDA, OFFLOAD_NONE, OFFLOAD_NONE}, /* the fake GPU, with the CPU's kernels */
                      {DEVICE_CUDA, OFFLOAD_NVME, OFFLOAD_CPU}};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct decode_rig r;
        decode_defaults(&r);
        check_text(&r, models[m], resident);
        for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
            decode_defaults(&r);
            r.settings.plan.device = placements[i].device;
            r.settings.gpu = AUTO;
            if (placements[i].device == DEVICE_CUDA)
                twin.configure("seed=5");
            r.settings.plan.params = placements[i].params;
            r.settings.plan.acts = placements[i].cache;
            check_text(&r, models[m], other);
            same_bits(models[m]);
        }
    }
}

/* Runs one instruction at a time in random legal orders, with unused bytes filled with NaN. Instructions that predicates leave
 * out run, too, and change no result. */
static void check_orders(const char *name)
{
    struct decode_rig r;
    decode_defaults(&r);
    check_text(&r, name, resident);
    decode_defaults(&r);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    r.settings.plan.params = OFFLOAD_CPU;
    r.settings.plan.acts = OFFLOAD_NVME;
    r.settings.mode = MODE_CHAOS;
    check_text(&r, name, other);
    same_bits("random orders");
}

static void test_orders(void **state)
{
    (void)state;
    check_orders("qwen3-windows");
    check_orders("hybrid/qwen3_5_moe");
    check_orders("latent/minicpm3");
}

/* Bytes that were loaded under a predicate may be read only under the same predicate. */
static void test_predicates(void **state)
{
    struct decode_rig r;
    (void)state;
    decode_defaults(&r);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    r.settings.plan.acts = OFFLOAD_NVME;
    assert_int_equal(decode_start(&r, "qwen3-windows"), OK);
    struct program *p = r.session->plan->programs[PLAN_DECODE];
    struct instr *in = p->instrs;
    while (in->op != OP_ATTN_FWD || in->predicate == 0)
        in++;
    const int16_t predicate = in->predicate;
    assert_int_equal(program_verify(p), OK);
    in->predicate = 0;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "only there if predicate"));
    in->predicate = (int16_t)(p->predicates + 1);
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "does not exist"));
    in->predicate = predicate;
    assert_int_equal(program_verify(p), OK);
    decode_stop(&r);
}

static double distance(const struct decode_rig *r, const float *a, const float *b)
{
    double most = 0;
    for (int64_t i = 0; i < r->model->config.vocab; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* A text that is read in parts gives other logits only by the order of sums: 1e-5 for logits up to 5. */
static void check_parts(const char *name)
{
    static const int64_t rows[] = {8, 16, 32};
    for (size_t k = 0; k < 3; k++) {
        struct decode_rig r;
        struct text t = text_of(name);
        decode_defaults(&r);
        r.settings.plan.row_chunk = rows[k];
        assert_int_equal(decode_start(&r, name), OK);
        ok(decoder_feed(r.decoder, t.prompt, t.n, NULL, k ? other[0] : resident[0]));
        if (k)
            assert_true(distance(&r, resident[0], other[0]) < 1e-5);
        ok(decoder_truncate(r.decoder, 0));
        for (int i = 0; i < t.n; i++)
            ok(decoder_feed(r.decoder, &t.prompt[i], 1, NULL, other[0]));
        assert_true(distance(&r, resident[0], other[0]) < 1e-5);
        decode_stop(&r);
    }
}

static void test_parts(void **state)
{
    (void)state;
    check_parts("qwen3-windows");
    check_parts("hybrid/qwen3_5");
    check_parts("hybrid/qwen3_5_moe");
    check_parts("hybrid/kimi-linear");
    check_parts("latent/minicpm3");
}

/* Reads another text that has a common beginning with the previous one, long or short, as if no text had been read before. */
static void check_truncated(const char *name, enum offload cache)
{
    struct decode_rig r;
    struct text t = text_of(name);
    int32_t longer[TEXT];
    decode_defaults(&r);
    r.settings.plan.acts = cache;
    assert_int_equal(decode_start(&r, name), OK);
    for (int i = 0; i < TEXT; i++)
        longer[i] = i < t.n ? t.prompt[i] : (int32_t)((i * 7 + 3) % r.model->config.vocab);
    static const int keep[] = {1, 5, 8, 17, 44};
    for (size_t k = 0; k < sizeof keep / sizeof *keep; k++) {
        ok(decoder_read(r.decoder, longer, k % 2 ? TEXT : TEXT - 30, NULL, NULL));
        if (keep[k] < t.n) {
            ok(decoder_truncate(r.decoder, keep[k]));
            ok(decoder_feed(r.decoder, longer + t.n, 9, NULL, NULL));
        }
        ok(decoder_read(r.decoder, t.prompt, t.n, NULL, resident[0]));
        assert_int_equal(decoder_length(r.decoder), t.n);
        check_greedy(&r, name, &t, resident);
    }
    decode_stop(&r);
}

static void test_truncated(void **state)
{
    (void)state;
    check_truncated("llama-gqa", OFFLOAD_NVME);
    check_truncated("gemma3", OFFLOAD_NONE);
    check_truncated("mistral-window", OFFLOAD_CPU);
    check_truncated("phi3-long", OFFLOAD_NONE);
    check_truncated("hybrid/qwen3_5", OFFLOAD_NONE);
    check_truncated("hybrid/qwen3_5_moe", OFFLOAD_NVME);
}

/* Cuts the text to n tokens, of which the first `ready` need not be read again, and reads on as if it had not been longer. */
static void check_cut(struct decode_rig *r, const int32_t *text, int64_t n, int64_t ready)
{
    ok(decoder_truncate(r->decoder, n));
    assert_int_equal(decoder_ready(r->decoder), ready);
    ok(decoder_feed(r->decoder, text + n, 1, NULL, other[0]));
    assert_int_equal(decoder_ready(r->decoder), n + 1);
}

/* A text of recurrences goes back to the end of its prompt but one token, or to one of the last two turns of blocks. */
static void test_states(void **state)
{
    struct decode_rig r;
    int32_t text[TEXT];
    struct text t = text_of("hybrid/qwen3_5");
    (void)state;
    decode_defaults(&r);
    assert_int_equal(decode_start(&r, "hybrid/qwen3_5"), OK);
    for (int i = 0; i < t.n + NEW; i++)
        text[i] = i < t.n ? t.prompt[i] : t.tokens[i - t.n];
    assert_int_equal(t.n, 45);
    ok(decoder_feed(r.decoder, text, t.n, NULL, NULL));
    for (int i = t.n; i < 66; i++)
        ok(decoder_feed(r.decoder, &text[i], 1, NULL, resident[i - t.n]));
    check_cut(&r, text, 65, 64);
    assert_true(distance(&r, resident[65 - 45], other[0]) < 1e-5);
    check_cut(&r, text, 63, 56);
    assert_true(distance(&r, resident[63 - 45], other[0]) < 1e-5);
    check_cut(&r, text, 50, 44);
    assert_true(distance(&r, resident[50 - 45], other[0]) < 1e-5);
    check_cut(&r, text, 43, 0);
    decode_stop(&r);
}

/* Returns the bytes of a text's keys and values, or latents, for which a plan has room. */
static int64_t cached_bytes(const struct plan *plan)
{
    const struct program *p = plan_any(plan);
    int64_t bytes = 0;
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *b = &p->live_in[i];
        if (b->kind >= BINDING_CACHE_K && b->kind <= BINDING_TAIL_V)
            bytes += (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
    }
    return bytes;
}

/* Caches a latent and the shared part of keys, and nothing of heads: with adapters and in quantised bases, too. */
static void test_latents(void **state)
{
    static const char *const names[] = {"latent/deepseek-v3", "latent/lora", "latent/qlora", "latent/minicpm3"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct decode_rig r;
        decode_defaults(&r);
        if (strstr(names[i], "qlora"))
            r.base = BASE_NF4;
        assert_int_equal(decode_start(&r, names[i]), OK);
        const struct model_config *c = &r.model->config;
        assert_int_equal(cached_bytes(r.session->plan), TEXT * c->layers * (c->kv_latent + c->head_rotated) * 4);
        assert_true(c->kv_latent + c->head_rotated < c->heads * (c->head_dim + c->head_value));
        decode_stop(&r);
    }
}

/* Latents may have the shape of a single head's keys and values: reading at once and token by token give the same choice. */
static void test_latents_like_heads(void **state)
{
    struct model *like;
    struct decode_rig r;
    float logits[2][VOCAB];
    static const int32_t text[] = {3, 1, 4, 1, 5};
    enum { N = sizeof text / sizeof *text };
    (void)state;
    decode_defaults(&r);
    ok(decode_model(&r, "latent/youtu", &like));
    struct model_config c = like->config;
    model_destroy(like);
    c.heads = c.kv_heads = 1;
    c.kv_latent = c.head_value = c.head_dim - c.head_rotated;
    for (int single = 0; single < 2; single++) {
        decode_defaults(&r);
        r.config = &c;
        ok(decode_start(&r, "one head"));
        for (int i = 0; i < N; i += single ? 1 : N)
            ok(decoder_feed(r.decoder, text + i, single ? 1 : N, NULL, logits[single]));
        decode_stop(&r);
    }
    for (int i = 0; i < c.vocab; i++) /* fp32 sums of other orders */
        assert_true(fabsf(logits[0][i] - logits[1][i]) <= 1e-5f);
}

static void test_refusals(void **state)
{
    struct decode_rig r;
    int32_t token[TEXT + 1] = {0};
    int64_t longest;
    (void)state;
    decode_defaults(&r);
    assert_int_equal(decode_start(&r, "llama-gqa"), OK);
    assert_int_equal(decoder_feed(r.decoder, token, TEXT + 1, NULL, NULL), ERR_INVALID);
    assert_int_equal(decoder_length(r.decoder), 0);
    token[1] = VOCAB;
    assert_int_equal(decoder_feed(r.decoder, token, 2, NULL, NULL), ERR_INVALID);
    assert_non_null(strstr(status_message(), "token 256"));
    token[1] = 0;
    ok(decoder_feed(r.decoder, token, TEXT, NULL, NULL));
    assert_int_equal(decoder_feed(r.decoder, token, 1, NULL, NULL), ERR_INVALID);
    static atomic_int stop = 1;
    ok(decoder_truncate(r.decoder, 10));
    assert_int_equal(decoder_feed(r.decoder, token, 20, &stop, NULL), ERR_CANCELLED);
    assert_int_equal(decoder_length(r.decoder), 10);
    /* a device that can hold a part of the cache */
    r.settings.plan.seq_len = 1 << 20;
    const int64_t need = r.session->plan->arena[TIER_DEVICE], limit[TIERS] = {3 * need, 3 * need, 0};
    ok(plan_sampling_longest(r.model, &r.settings.plan, limit, &longest));
    assert_true(longest > TEXT && longest < 1 << 16);
    struct plan *plan;
    r.settings.plan.seq_len = longest;
    ok(plan_sampling(r.model, &r.settings.plan, limit, &plan));
    assert_true(plan->fits);
    plan_destroy(plan);
    decode_stop(&r);
}

static int open_texts(void **state)
{
    char path[600];
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    (void)state;
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        return -1;
    snprintf(path, sizeof path, "%s/tests/golden/generate.json", root ? root : ".");
    texts = json_load_file(path, 0, NULL);
    return texts ? 0 : -1;
}

static int close_texts(void **state)
{
    (void)state;
    json_decref(texts);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),   cmocka_unit_test(test_placements), cmocka_unit_test(test_orders),
        cmocka_unit_test(test_predicates), cmocka_unit_test(test_parts),      cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_states),     cmocka_unit_test(test_latents),    cmocka_unit_test(test_latents_like_heads),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, open_texts, close_texts);
}
