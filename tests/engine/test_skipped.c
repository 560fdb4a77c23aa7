/* Tests that a step whose gradients are not finite leaves parameters and moments as they are, wherever they lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"
#include "plan/cells.h"

#include <math.h>
#include <string.h>

enum { S = 64 };

static op_kernel *honest;
static int spoils;

static enum status swiglu_is_spoilt(const struct op_attrs *a, void *const *arg, void *stream)
{
    TRY(honest(a, arg, stream));
    if (spoils)
        memset(arg[0], 0xff, sizeof(float)); /* NaN, in bf16, too */
    return OK;
}

struct place {
    const char *name;
    enum offload tier;
    enum device_kind device;
    int host_update;
    enum dtype dtype;
};

static uint64_t digest(struct rig *r)
{
    uint64_t d;
    assert_int_equal(rig_flush(r), OK);
    assert_int_equal(rig_digest(r, &d), OK);
    return d;
}

/* Returns the digest of the state after two good steps; spoilt: with one between them that is skipped. */
static uint64_t run(const struct place *p, int spoilt)
{
    struct rig r;
    struct model *model;
    struct sequence q;
    double loss, norm;
    uint64_t before = 0;
    rig_defaults(&r, S);
    rig_cell_defaults(&r.settings, S, p->dtype);
    r.settings.plan.device = p->device;
    r.settings.plan.params = r.settings.plan.optim = r.settings.plan.grads = r.settings.plan.acts = p->tier;
    r.settings.plan.update = p->host_update ? UPDATE_HOST : UPDATE_DEVICE;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    sequence_random(&q, S, model->config.vocab, 3, NULL);
    if (rig_start(&r, model) != OK || session_initialise(r.session, 5) != OK)
        fail_msg("%s: %s", p->name, status_message());
    honest = r.session->context.backend->kernels[OP_SWIGLU];
    r.session->context.backend->kernels[OP_SWIGLU] = swiglu_is_spoilt;
    spoils = 0;
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    if (spoilt) {
        before = digest(&r);
        spoils = 1;
        assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
        spoils = 0;
        assert_true(isnan(norm));
        r.updates--; /* it was none */
        if (before != digest(&r))
            fail_msg("%s: a step that is skipped changes the state", p->name);
    }
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    assert_true(isfinite(norm));
    const uint64_t after = digest(&r);
    sequence_free(&q);
    rig_stop(&r);
    return after;
}

static void the_state_stays(void **state)
{
    (void)state;
    static const struct place places[] = {
        {"resident", OFFLOAD_NONE, DEVICE_CPU, 0, F32},
        {"resident, bf16", OFFLOAD_NONE, DEVICE_CPU, 0, BF16},
        {"in host memory", OFFLOAD_CPU, DEVICE_CPU_DISCRETE, 0, F32},
        {"in host memory, updated there", OFFLOAD_CPU, DEVICE_CPU_DISCRETE, 1, BF16},
        {"on drives", OFFLOAD_NVME, DEVICE_CPU_DISCRETE, 0, F32},
        {"on drives, updated by the host", OFFLOAD_NVME, DEVICE_CPU_DISCRETE, 1, F32},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (run(&places[i], 1) != run(&places[i], 0))
            fail_msg("%s: the step after a skipped one differs", places[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_state_stays)};
    return cmocka_run_group_tests_name("skipped", tests, NULL, NULL);
}
