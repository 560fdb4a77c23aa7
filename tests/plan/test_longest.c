/* Tests the longest sequence: it fits, the next longer one does not, and more memory never makes it shorter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/probe.h"
#include "plan/search/price.h"

#include <stdlib.h>

static void open_settings(struct plan_request *s)
{
    cell_settings(s, 0, F32);
    s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
    s->alpha = AUTO;
    s->update = UPDATE_AUTO;
    s->row_chunk = s->head_tile = s->loss_tile = AUTO;
    s->mesh.degree[MESH_DP] = s->mesh.degree[MESH_ULYSSES] = s->mesh.degree[MESH_RING] = s->batch = AUTO;
    s->device = DEVICE_CPU_DISCRETE;
}

static struct plan *longest(const struct model *m, struct plan_request *s, int ranks, const int64_t limit[TIERS])
{
    struct plan *plan;
    open_settings(s);
    if (plan_longest(m, s, ranks, ranks, limit, &plan) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(plan->tokens, s->seq_len * s->batch);
    return plan;
}

/* Tells whether a length fits, with mesh and tiles either left open or taken from the longest length's plan. */
static int fits(const struct model *m, int ranks, int64_t tokens, const int64_t limit[TIERS], const struct plan *like)
{
    struct plan_request t;
    struct plan *plan;
    open_settings(&t);
    t.seq_len = tokens;
    if (like && like->longest.mesh) {
        t.mesh.degree[MESH_ULYSSES] = like->strategy.key.mesh.degree[MESH_ULYSSES];
        t.mesh.degree[MESH_RING] = like->strategy.key.mesh.degree[MESH_RING];
    }
    if (like && like->longest.tiles) {
        t.row_chunk = like->strategy.key.row_chunk;
        t.head_tile = like->strategy.key.head_tile;
        t.loss_tile = like->strategy.key.loss_tile;
    }
    assert_int_equal(plan_mesh(m, &t, ranks, ranks), OK);
    assert_int_equal(plan_create(m, &t, limit, &plan), OK);
    int fits = plan->fits;
    plan_destroy(plan);
    return fits;
}

/* The next longer length does not fit: the device is too small, without drives, with drives, and with two ranks. */
static void the_next_one_does_not_fit(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        enum tier scarce;
        int64_t limit[TIERS];
    } cases[] = {{1, TIER_DEVICE, {6 << 20, 1 << 30, 0}},
                 {1, TIER_DEVICE, {9 << 20, 1 << 30, 1 << 30}},
                 {2, TIER_DEVICE, {9 << 20, 1 << 30, 0}},
                 {2, TIER_DEVICE, {10 << 20, 1 << 30, 0}}};
    struct model *m;
    int64_t one = 0;
    int others = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_request s;
        struct plan *plan = longest(m, &s, cases[i].ranks, cases[i].limit);
        const struct longest *l = &plan->longest;
        print_message("case %zu: %lld tokens in steps of %lld; %lld need %lld bytes on the %s\n", i, (long long)s.seq_len,
                      (long long)l->step, (long long)l->longer, (long long)l->bytes, tier_name(l->tier));
        assert_true(plan->fits && s.seq_len > 0 && s.seq_len % l->step == 0);
        assert_int_equal(l->longer, s.seq_len + l->step);
        assert_int_equal(l->tier, cases[i].scarce);
        assert_true(l->bytes > cases[i].limit[l->tier]);
        assert_true(fits(m, cases[i].ranks, s.seq_len, cases[i].limit, plan));
        assert_false(fits(m, cases[i].ranks, l->longer, cases[i].limit, NULL));
        assert_int_equal(s.mesh.degree[MESH_ULYSSES] * s.mesh.degree[MESH_RING] * s.mesh.degree[MESH_DP], cases[i].ranks);
        others += cases[i].ranks == 2 && (l->mesh || l->tiles);
        if (i == 0)
            one = s.seq_len;
        if (i == 1)
            assert_true(s.seq_len > one);
        plan_destroy(plan);
    }
    print_message("of two ranks %d with another mesh or other tiles\n", others);
    assert_true(others > 0); /* at least some lengths need another grid; which ones depends on the CPU's workspace */
    model_destroy(m);
}

/* If nothing fits, the plan is that of the shortest length. A model with fewer positions than that is an error. */
static void nothing_fits(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    const int64_t limit[TIERS] = {4096, 1 << 30, 1 << 30};
    struct plan *plan;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    plan = longest(m, &s, 1, limit);
    assert_false(plan->fits);
    assert_int_equal(s.seq_len, 1024);
    plan_destroy(plan);
    model_destroy(m);
    assert_int_equal(cell_model(FAMILY_GPT2, 2, &m), OK);
    open_settings(&s);
    assert_int_equal(plan_longest(m, &s, 1, 1, limit, &plan), ERR_INVALID);
    model_destroy(m);
}

/* Each length is planned with only those learned positions that it reaches: the whole table would not fit even with the shortest
 * length. */
static void positions_are_sized(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {8 << 20, 16 << 20, 0};
    struct model *m, *sized;
    struct plan_request s;
    assert_int_equal(long_table_model(&m), OK);
    struct plan *plan = longest(m, &s, 1, limit);
    print_message("%lld tokens; %lld need %lld bytes on the %s\n", (long long)s.seq_len, (long long)plan->longest.longer,
                  (long long)plan->longest.bytes, tier_name(plan->longest.tier));
    assert_true(plan->fits && s.seq_len > 1024 && plan->longest.longer > s.seq_len);
    assert_false(fits(m, 1, 1024, limit, NULL));
    assert_int_equal(model_create_for(m, s.seq_len, NULL, 0, &sized), OK);
    assert_true(fits(sized, 1, s.seq_len, limit, plan));
    model_destroy(sized);
    assert_int_equal(model_create_for(m, plan->longest.longer, NULL, 0, &sized), OK);
    assert_false(fits(sized, 1, plan->longest.longer, limit, NULL));
    model_destroy(sized);
    plan_destroy(plan);
    model_destroy(m);
}

/* Creates a model with 32 layers of 64 chunks: too many for trials with all layers. */
static struct model *many_pieces(struct plan_request *s)
{
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 32, &m), OK);
    open_settings(s);
    s->seq_len = 2048;
    assert_int_equal(plan_mesh(m, s, 1, 1), OK);
    s->row_chunk = 32;
    return m;
}

/* A trial with fewer layers finds the need of all layers within a percent, also if only one of several layers keeps its input.
 * Formerly, memory that such a group of layers needs once was counted for every layer. */
static void trials_know_what_turns_need(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    struct plan_request s;
    struct model *m = many_pieces(&s);
    s.acts = s.params = s.grads = s.optim = OFFLOAD_CPU;
    s.update = UPDATE_HOST;
    for (int every = 2; every <= 8; every *= 2) {
        struct strategy t;
        struct problem problem;
        struct candidate c;
        int64_t whole[TIERS];
        s.keep_inputs = every;
        assert_int_equal(plan_fixed(m, &s, &t), OK);
        problem_set(&problem, m, &s, limit);
        t.placement.params = t.placement.grads = t.placement.optim = t.placement.acts = RES_HOST;
        t.placement.update_on_host = 1;
        for (int passing = RES_DEVICE; passing <= RES_HOST; passing++) {
            t.placement.passing = (enum residency)passing;
            assert_int_equal(search_fits(&problem, &t, &c), OK);
            assert_int_equal(fit_serially(m, &t, DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, whole), OK);
            print_message("inputs 1/%d, gradients of activations on the %s: the host needs %lld bytes as tried, %lld whole\n",
                          every, tier_name((enum tier)passing), (long long)c.bytes[TIER_HOST], (long long)whole[TIER_HOST]);
            assert_false(c.all_layers);
            for (int k = 0; k < TIERS; k++)
                assert_true(llabs(c.bytes[k] - whole[k]) <= whole[k] / 100);
            assert_int_equal(probe_all_layers(m, &s, limit, &c), OK);
            for (int k = 0; k < TIERS; k++) /* packing leaves hardly a gap */
                assert_true(llabs(c.bytes[k] - whole[k]) <= whole[k] / 1000);
        }
    }
    model_destroy(m);
}

/* Kept inputs that all tiers together have no room for are passed over; those that may fit are not. */
static void many_inputs_are_passed_over(void **state)
{
    (void)state;
    struct plan_request s;
    struct candidate c;
    struct model *m = many_pieces(&s);
    int64_t limit[TIERS] = {1 << 20, 1 << 30, 0}, need[9];
    int every;
    for (int n = 1; n <= 4; n *= 2) {
        s.keep_inputs = n;
        assert_int_equal(probe_estimate(m, &s, limit, &c), OK);
        need[n] = c.bytes[TIER_HOST];
        print_message("inputs 1/%d: %lld bytes of the host\n", n, (long long)need[n]);
    }
    s.keep_inputs = AUTO;
    assert_int_equal(probe_inputs(m, &s, limit, 8, &every), OK);
    assert_int_equal(every, 1);
    limit[TIER_DEVICE] = c.bytes[TIER_DEVICE];
    limit[TIER_HOST] = need[4] - limit[TIER_DEVICE];
    assert_true(0.95 * (double)need[2] > (double)need[4]);
    assert_int_equal(probe_inputs(m, &s, limit, 8, &every), OK);
    assert_int_equal(every, 4);
    assert_int_equal(probe_inputs(m, &s, limit, 2, &every), OK);
    assert_int_equal(every, 2);
    model_destroy(m);
}

/* If drives, or a host without drives, are far too small for a kind of values, these values are kept elsewhere. */
static void small_tiers_do_no_harm(void **state)
{
    (void)state;
    static const int64_t limits[][TIERS] = {{1 << 30, 1 << 30, 1 << 16}, {1 << 30, 1 << 20, 0}};
    struct plan_request s;
    struct strategy fixed;
    struct problem problem;
    struct candidate c;
    struct model *m = many_pieces(&s);
    assert_int_equal(plan_fixed(m, &s, &fixed), OK);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        problem_set(&problem, m, &s, limits[i]);
        assert_int_equal(probe_smallest(&problem, &fixed, &c), OK);
        assert_true(!c.all_layers && c.excess <= 1);
    }
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_one_does_not_fit),   cmocka_unit_test(nothing_fits),
        cmocka_unit_test(positions_are_sized),         cmocka_unit_test(many_inputs_are_passed_over),
        cmocka_unit_test(trials_know_what_turns_need), cmocka_unit_test(small_tiers_do_no_harm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
