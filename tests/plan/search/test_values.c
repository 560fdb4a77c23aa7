/* Tests that a step computes the same values in every placement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/rank_cost.h"
#include "plan/lower/fixed.h"
#include "plan/scheduled.h"
#include "plan/search/requests.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

/* Returns the bytes of activations that the forward pass brings to the device. */
static int64_t fetched_forward(const struct program *p)
{
    int64_t bytes = 0;
    for (int n = 0; n < p->n_instrs; n++) {
        const struct instr *in = &p->instrs[n];
        const struct operand *o = &p->operands[in->first_operand];
        if (in->op == OP_COPY && in->lane == LANE_H2D && in->phase == PHASE_FORWARD && p->tensors[o->tensor].class == CLASS_ACT)
            bytes += program_call(p, in)->bytes;
    }
    return bytes;
}

/* A step computes the same values for all tiers of activations and of the gradients between visits, with some row chunks kept
 * apart or not, also if ranks share the sequence. */
static void same_wherever_gradients_pass(int ulysses, int ring)
{
    static const enum residency pairs[][2] = {{RES_DEVICE, RES_DEVICE}, {RES_HOST, RES_DEVICE}, {RES_HOST, RES_HOST},
                                              {RES_NVME, RES_HOST},     {RES_NVME, RES_NVME},   {RES_NVME, RES_DEVICE}};
    struct model *m;
    uint64_t first = 0, digest;
    int64_t read[6] = {0};
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (int k = 0; k < 24; k++) {
        int i = k % 6, every = 1 + k / 6 % 2 * 2, split = k / 12;
        struct plan_request s;
        struct strategy strategy;
        struct cost_model cost;
        struct io_buffers io;
        struct program *p;
        cell_settings(&s, 256, F32);
        s.device = DEVICE_CPU_DISCRETE;
        s.mesh.degree[MESH_ULYSSES] = ulysses;
        s.mesh.degree[MESH_RING] = ring;
        s.head_tile = 2; /* in a ring, tiles are whole KV groups */
        s.keep_inputs = every;
        assert_int_equal(plan_fixed(m, &s, &strategy), OK);
        strategy.placement.acts = pairs[i][0];
        strategy.placement.passing = pairs[i][1];
        strategy.placement.kept_chunks = 1;
        strategy.placement.device_layers = strategy.placement.acts == RES_DEVICE ? 0 : 1;
        strategy.placement.device_chunks = split ? 2 : 0;
        plan_cost_model(&s, &cost);
        assert_int_equal(lower_program(m, &strategy, DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, &io, &p), OK);
        assert_int_equal(schedule_program(p, &cost, SCHEDULE_OVERLAPPED, 1), OK);
        if (program_verify(p) != OK || program_value_digest(p, &digest) != OK)
            fail_msg("%s", status_message());
        for (int n = 0; n < p->n_instrs && !split; n++)
            read[i] += p->instrs[n].lane == LANE_READ ? program_call(p, &p->instrs[n])->bytes : 0;
        first = first ? first : digest;
        assert_true(digest == first);
        /* values that a layer of the forward pass reads again stay on the device if gradients do */
        assert_int_equal(fetched_forward(p) == 0, strategy.placement.passing == RES_DEVICE);
        program_destroy(p);
    }
    print_message("ulysses=%d,ring=%d: %lld bytes are read from drives, with gradients on the host %lld\n", ulysses, ring,
                  (long long)read[4], (long long)read[3]);
    assert_true(read[3] < read[4] / 2); /* values that a layer reads again stay on the host, too */
    model_destroy(m);
}

static void gradients_pass_anywhere(void **state)
{
    (void)state;
    same_wherever_gradients_pass(1, 1);
    same_wherever_gradients_pass(2, 1);
    same_wherever_gradients_pass(1, 2);
}

/* Values stay the same also with the last layers' activations on the device and the others' elsewhere. */
static void values_do_not_depend_on_it(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    uint64_t resident = 0, digest;
    int mixed = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 3, &m), OK);
    for (int step = 0; step < 8; step++) {
        open_settings(&s);
        if (step % 2) /* these placements leave the search a choice */
            s.acts = s.passing = OFFLOAD_AUTO, s.params = s.grads = s.optim = OFFLOAD_CPU;
        struct plan *plan = planned(m, &s, limit);
        const struct program *p = plan->programs[PLAN_UPDATE_STEP];
        if (!plan->fits) {
            plan_destroy(plan);
            break;
        }
        if (program_verify(p) != OK || program_value_digest(p, &digest) != OK)
            fail_msg("%s", status_message());
        mixed += plan->strategy.placement.device_layers > 0;
        resident = step == 0 ? digest : resident;
        assert_true(digest == resident);
        limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] * 7 / 8;
        plan_destroy(plan);
    }
    print_message("%d plans with layers on both\n", mixed);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_pass_anywhere), cmocka_unit_test(values_do_not_depend_on_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
