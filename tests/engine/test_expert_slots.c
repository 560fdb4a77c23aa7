/* Experts in slots on the device: texts have the bits of a model that is there as a whole, wherever the experts are. */
#include "engine/decode.h"
#include "verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 256, PROMPT = 40, NEW = 40, EXPERTS = 12, USED = 2, LAYERS = 3 };

static struct model_config config;
static float resident[NEW][VOCAB], other[NEW][VOCAB];

static void ok(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

static int make_config(void **state)
{
    (void)state;
    ok(model_preset("moe-20m", &config));
    config.vocab = VOCAB;
    config.dim = 64;
    config.layers = LAYERS;
    config.heads = config.kv_heads = 2;
    config.head_dim = 32;
    config.experts = EXPERTS;
    config.experts_used = USED;
    config.ffn = config.expert_ffn = 32; /* matrices of whole pages, as drives read them */
    config.init_std = 0.2f;              /* so that tokens choose different experts */
    return 0;
}

static void set_defaults(struct decode_rig *r)
{
    decode_defaults(r);
    r->config = &config;
}

/* Writes the logits of each token after a prompt, and of texts that go on from an earlier place. */
static void run_text(struct decode_rig *r, const char *what, float logits[NEW][VOCAB], struct decoder_experts *e)
{
    int32_t prompt[PROMPT];
    if (decode_start(r, what) != OK)
        fail_msg("%s: %s", what, status_message());
    const int vocab = (int)r->model->config.vocab;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37 + 11) % vocab;
    memset(logits, 0, NEW * sizeof *logits);
    ok(decoder_feed(r->decoder, prompt, PROMPT, NULL, logits[0]));
    for (int i = 1; i < NEW; i++) {
        const int32_t id = (i * 91 + 5) % vocab;
        ok(decoder_feed(r->decoder, &id, 1, NULL, logits[i]));
    }
    ok(decoder_experts(r->decoder, e));
    decode_stop(r);
}

/* Makes the device as small as it can be for at least n slots, and checks that a plan then has as many. */
static void leave_slots(struct decode_rig *r, const char *name, int64_t n)
{
    struct settings *s = &r->settings;
    struct target target = backend_cpu_target(1);
    struct model *m;
    struct plan *plan;
    int64_t low = 0, high = (int64_t)1 << 30;
    s->plan.target = &target;
    ok(decode_model(r, name, &m));
    while (high - low > BUFFER_ALIGN) {
        r->limit[TIER_DEVICE] = (low + high) / 2;
        ok(plan_sampling(m, &s->plan, r->limit, &plan));
        const struct placement *at = &plan->strategy.placement;
        const int all = at->params == RES_DEVICE && at->experts_at == 0,
                  enough = plan->fits && (all || plan->strategy.expert_slots >= n);
        plan_destroy(plan);
        low = enough ? low : r->limit[TIER_DEVICE];
        high = enough ? r->limit[TIER_DEVICE] : high;
    }
    r->limit[TIER_DEVICE] = high;
    ok(plan_sampling(m, &s->plan, r->limit, &plan));
    assert_true(plan->strategy.expert_slots >= n); /* tiny models have room for more in the same page */
    plan_destroy(plan);
    model_destroy(m);
    r->target = target;
}

static void same_bits(const char *what)
{
    for (int i = 0; i < NEW; i++)
        if (memcmp(resident[i], other[i], sizeof resident[i]) != 0)
            fail_msg("%s: the logits of token %d are others", what, i);
}

static void make_resident(void)
{
    struct decode_rig r;
    struct decoder_experts e;
    set_defaults(&r);
    run_text(&r, "resident", resident, &e);
    assert_int_equal(e.slots, 0);
}

struct place {
    const char *name;
    enum device_kind device;
    enum offload params, experts;
    int64_t slots;
};

static void set_place(struct decode_rig *r, const struct place *p)
{
    set_defaults(r);
    r->settings.plan.device = p->device;
    r->settings.plan.params = p->params;
    r->settings.plan.experts = p->experts;
    leave_slots(r, p->name, p->slots);
}

static void test_places(void **state)
{
    static const struct place places[] = {{"host", DEVICE_CPU, OFFLOAD_NONE, OFFLOAD_CPU, USED},
                                          {"host, of a device apart", DEVICE_CPU_DISCRETE, OFFLOAD_NONE, OFFLOAD_CPU, 5},
                                          {"drives", DEVICE_CPU, OFFLOAD_NONE, OFFLOAD_NVME, 3},
                                          {"drives, of a device apart", DEVICE_CPU_DISCRETE, OFFLOAD_NONE, OFFLOAD_NVME, 5},
                                          {"all parameters on drives", DEVICE_CPU_DISCRETE, OFFLOAD_NVME, OFFLOAD_AUTO, USED + 1},
                                          {"all experts have slots", DEVICE_CPU_DISCRETE, OFFLOAD_NONE, OFFLOAD_CPU, EXPERTS}};
    (void)state;
    make_resident();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct decode_rig r;
        struct decoder_experts e;
        set_place(&r, &places[i]);
        run_text(&r, places[i].name, other, &e);
        same_bits(places[i].name);
        assert_int_equal(e.slots, places[i].slots);
        assert_int_equal(e.experts, EXPERTS);
        assert_true(e.misses > 0);
        if (places[i].slots < EXPERTS) /* tokens after the prompt, which takes whole layers */
            assert_int_equal(e.hits + e.misses, (NEW - 1) * USED * LAYERS);
        else
            assert_true(e.misses <= EXPERTS * LAYERS && e.hits > (NEW - 1) * USED * LAYERS / 2);
    }
}

/* Stacks of other forms: what each model has beside matrices of numbers lies in up to three places, from each of which its experts
 * come. Models without a folder have initial values. */
static const struct form {
    const char *name;
    int folder;
    enum model_base base;
} forms[] = {{"moe/gpt-oss", 1, BASE_STORED}, /* biases */
             {"moe/gpt-oss-mxfp4", 1, BASE_STORED},
             {"lora-moe/gpt-oss", 1, BASE_STORED}, /* adapters, too */
             {"lora-moe/gpt-oss-mxfp4", 1, BASE_STORED},
             {"nf4", 0, BASE_NF4},
             {"int8", 0, BASE_INT8}};

static void set_form(struct decode_rig *r, const struct form *f)
{
    set_defaults(r);
    r->base = f->base;
    if (f->folder)
        r->config = NULL;
}

static void test_forms(void **state)
{
    static const struct {
        enum device_kind device;
        enum offload experts;
        enum run_mode mode;
    } places[] = {{DEVICE_CPU, OFFLOAD_CPU, MODE_RUN},
                  {DEVICE_CPU, OFFLOAD_NVME, MODE_RUN},
                  {DEVICE_CPU_DISCRETE, OFFLOAD_NVME, MODE_RUN},
                  {DEVICE_CPU_DISCRETE, OFFLOAD_NVME, MODE_CHAOS}};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct decode_rig r;
        struct decoder_experts e;
        set_form(&r, &forms[i]);
        run_text(&r, forms[i].name, resident, &e);
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            set_form(&r, &forms[i]);
            r.settings.plan.device = places[k].device;
            r.settings.plan.experts = places[k].experts;
            leave_slots(&r, forms[i].name, USED);
            r.settings.mode = places[k].mode;
            run_text(&r, forms[i].name, other, &e);
            same_bits(forms[i].name);
            if (e.slots < USED || e.slots >= e.experts || e.hits == 0 || e.misses <= e.experts)
                fail_msg("%s: %lld slots, %lld hits, %lld misses", forms[i].name, (long long)e.slots, (long long)e.hits,
                         (long long)e.misses);
        }
    }
}

/* Instructions in random legal orders, with unused bytes filled with NaN. */
static void test_orders(void **state)
{
    static const enum offload tiers[] = {OFFLOAD_CPU, OFFLOAD_NVME};
    (void)state;
    make_resident();
    for (int i = 0; i < 2; i++) {
        struct decode_rig r;
        struct decoder_experts e;
        set_place(&r, &(struct place){"", DEVICE_CPU_DISCRETE, OFFLOAD_NONE, tiers[i], 4});
        r.settings.mode = MODE_CHAOS;
        run_text(&r, "random orders", other, &e);
        same_bits("random orders");
    }
}

/* Without settings, a device that is too small for all experts has slots and all else. */
static void test_choice(void **state)
{
    struct decode_rig r;
    struct decoder_experts e;
    (void)state;
    make_resident();
    set_defaults(&r);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    r.settings.plan.params = r.settings.plan.acts = OFFLOAD_AUTO;
    leave_slots(&r, "chosen", 7);
    run_text(&r, "chosen", other, &e);
    same_bits("chosen");
    assert_int_equal(e.slots, 7);
}

/* The deletion of any wait of a program with slots is found, and so is a lane that does not reach the experts' home. */
static void test_verified(void **state)
{
    struct decode_rig r;
    (void)state;
    set_place(&r, &(struct place){"", DEVICE_CPU_DISCRETE, OFFLOAD_NONE, OFFLOAD_CPU, 4});
    assert_int_equal(decode_start(&r, "verified"), OK);
    struct program *p = r.session->plan->programs[PLAN_DECODE];
    int brought = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &p->instrs[i];
        const struct instr before = *in;
        for (int w = 0; w < before.n_waits; w++) {
            struct wait *all = &p->waits[in->first_wait];
            const struct wait gone = all[w], last = all[before.n_waits - 1];
            all[w] = last;
            in->n_waits--;
            if (program_verify(p) == OK)
                fail_msg("instruction %d does without its wait for the %s lane", i, lane_name((enum lane)gone.lane));
            in->n_waits++;
            all[before.n_waits - 1] = last;
            all[w] = gone;
        }
        if (in->op != OP_EXPERTS_KEEP)
            continue;
        brought++;
        in->lane = LANE_READ;
        assert_int_equal(program_verify(p), ERR_CORRUPT);
        in->lane = LANE_COMPUTE;
        assert_int_equal(program_verify(p), ERR_CORRUPT);
        in->lane = LANE_H2D;
    }
    assert_int_equal(brought, LAYERS);
    assert_int_equal(program_verify(p), OK);
    decode_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_forms), cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_choice), cmocka_unit_test(test_verified)};
    return cmocka_run_group_tests(tests, make_config, NULL);
}
