/* Tests that programs whose transient buffers lie elsewhere pass the verifier as they did, within the same memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/displace.h"
#include "engine/rig.h"
#include "plan/cells.h"
#include "verify/verify.h"

#include <string.h>

/* Moves a program's buffers, and back. Returns the number of its buffers that have moved meanwhile. */
static int check(const struct plan *plan, struct program *p)
{
    int moved = 0;
    struct buffer before[4096];
    assert_true(p->n_buffers <= 4096);
    memcpy(before, p->buffers, (size_t)p->n_buffers * sizeof *before);
    displace_program(plan, p, 1);
    for (int b = 0; b < p->n_buffers; b++) {
        moved += p->buffers[b].address != before[b].address;
        assert_true(p->buffers[b].address + p->buffers[b].bytes <= plan->arena[p->buffers[b].tier]);
        assert_true(b >= p->n_persistent || p->buffers[b].address == before[b].address);
    }
    int64_t own[TIERS];
    memcpy(own, p->arena, sizeof own);
    memcpy(p->arena, plan->arena, sizeof own);
    if (program_verify(p) != OK)
        fail_msg("%s: %s", p->name, status_message());
    memcpy(p->arena, own, sizeof own);
    displace_program(plan, p, -1);
    assert_memory_equal(before, p->buffers, (size_t)p->n_buffers * sizeof *before);
    return moved;
}

static void displaced_programs_pass(void **state)
{
    static const enum offload tiers[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig r;
        struct model *model;
        int moved = 0;
        rig_defaults(&r, 100);
        r.settings.plan.params = r.settings.plan.grads = r.settings.plan.optim = r.settings.plan.acts = tiers[i];
        r.settings.plan.device = i ? DEVICE_CPU_DISCRETE : DEVICE_CPU;
        r.settings.plan.grad_accum = 3;
        assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
        assert_int_equal(rig_start(&r, model), OK);
        for (int k = 0; k < PLAN_PROGRAMS; k++)
            if (r.session->plan->programs[k])
                moved += check(r.session->plan, r.session->plan->programs[k]);
        assert_true(moved > 10);
        rig_stop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(displaced_programs_pass)};
    return cmocka_run_group_tests_name("displace", tests, NULL, NULL);
}
