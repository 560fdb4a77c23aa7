/* Requests for the search's tests: cells with all settings left open, the first layers of a preset on a machine, and a wide model
 * with few choices. Must be included after cmocka.h. */
#ifndef LTRAIN_TESTS_PLAN_SEARCH_REQUESTS_H
#define LTRAIN_TESTS_PLAN_SEARCH_REQUESTS_H

#include "machine/hardware.h"
#include "plan/cells.h"
#include "plan/search/memo.h"

enum { AMPLE = 1 << 28 };
static const int64_t GIB = 1 << 30;

/* Lets all plans of a program share trials and measured needs (a group's set-up and tear-down): most of its requests are alike. */
static inline int share_trials(void **state)
{
    (void)state;
    memo_hold();
    return 0;
}

static inline int drop_trials(void **state)
{
    (void)state;
    memo_release();
    return 0;
}

static inline void open_settings(struct plan_request *s)
{
    cell_settings(s, 128, F32);
    s->effort = EFFORT_BEST;
    s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
    s->alpha = AUTO;
    s->update = UPDATE_AUTO;
    s->device = DEVICE_CPU_DISCRETE;
}

static inline struct plan *planned(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

/* Requests the first layers of a preset on a machine, with all settings left open. */
static inline struct model *preset_of(const char *name, int64_t layers, int64_t tokens, const char *machine, struct hardware *h,
                                      struct plan_request *s)
{
    struct model_config c;
    struct model *m;
    assert_int_equal(model_preset(name, &c), OK);
    c.layers = layers;
    c.max_positions = tokens;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_int_equal(hardware_preset(machine, h), OK);
    cell_settings(s, tokens, BF16);
    s->effort = EFFORT_BEST;
    s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
    s->alpha = s->prefetch = AUTO;
    s->update = UPDATE_AUTO;
    s->device = DEVICE_CUDA;
    s->row_chunk = s->head_tile = s->loss_tile = s->group = AUTO;
    s->hardware = h;
    return m;
}

static inline struct model *preset(const char *name, int64_t layers, const char *machine, struct hardware *h,
                                   struct plan_request *s)
{
    return preset_of(name, layers, 32768, machine, h, s);
}

/* Checks that a step with a larger budget of device memory is not slower. */
static inline void not_slower_with_more(const struct model *m, const struct plan_request *s, int64_t less, int64_t more)
{
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        const int64_t limit[TIERS] = {i ? more : less, INT64_MAX / 4, INT64_MAX / 4};
        struct plan *plan = planned(m, s, limit);
        assert_true(plan->fits);
        seconds[i] = plan->seconds;
        plan_destroy(plan);
    }
    print_message("%lld bytes: %.5g s, %lld: %.5g s\n", (long long)less, seconds[0], (long long)more, seconds[1]);
    assert_true(seconds[1] < 1.003 * seconds[0]); /* 0.003 is the smallest gain for which another grid is chosen */
}

enum { CHUNKS = 16, TOKENS = 16384, HUGE = 1 << 30 };

/* Creates a model with products so large that links matter; it is never computed. */
static inline struct model *wide_heads(int layers, int head_dim)
{
    struct model *m;
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = 256,
                             .dim = 1024,
                             .ffn = 2816,
                             .layers = layers,
                             .heads = 16,
                             .kv_heads = 8,
                             .head_dim = head_dim,
                             .max_positions = TOKENS,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    strcpy(c.name, "wide");
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

static inline struct model *wide(int layers)
{
    return wide_heads(layers, 64);
}

/* Requests activations on the host or on the device, with links of `gbps` GB/s (0: the assumed rate). */
static inline void few_choices(struct plan_request *s, enum offload acts, double gbps)
{
    cell_settings(s, TOKENS, F32);
    s->effort = EFFORT_BEST;
    s->row_chunk = s->loss_tile = TOKENS / CHUNKS;
    s->head_tile = 4;
    s->group = 1 << 20;
    s->acts = acts;
    s->link_gbps = gbps;
    s->device = DEVICE_CPU_DISCRETE;
}

/* Returns the fastest of the plans for each number of kept chunks, or for each quarter of all chunks. */
static inline struct plan *fastest_given(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                         int step)
{
    struct plan *best = NULL;
    for (int kept = 0; kept <= CHUNKS; kept += step) {
        struct plan_request given = *s;
        given.alpha = (double)kept / CHUNKS;
        struct plan *plan = planned(m, &given, limit);
        int better = plan->fits && (!best || plan->seconds < best->seconds);
        plan_destroy(better ? best : plan);
        best = better ? plan : best;
    }
    return best;
}

#endif
