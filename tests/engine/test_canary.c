/* Tests that a write outside the plan is noticed, and that a program with an error does not start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"
#include "engine/twin.h"

#include <stdlib.h>
#include <string.h>

static void gaps_are_guarded(void **state)
{
    (void)state;
    struct rig r;
    struct model_config config;
    struct model *model;
    rig_defaults(&r, 100);
    r.settings.plan.params = r.settings.plan.optim = OFFLOAD_CPU;
    assert_int_equal(model_preset("tiny", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &model), OK);
    assert_int_equal(rig_start(&r, model), OK);
    assert_int_equal(session_check_memory(r.session), OK);

    /* behind the step record, in the padding of its buffer */
    char *record = session_io(r.session, r.session->plan->io.record);
    char kept = record[sizeof(struct step_record)];
    record[sizeof(struct step_record)] ^= 1;
    assert_int_equal(session_check_memory(r.session), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "host arena"));
    record[sizeof(struct step_record)] = kept;
    assert_int_equal(session_check_memory(r.session), OK);

    /* in the plan's own bytes: the record itself */
    record[0] ^= 1;
    assert_int_equal(session_check_memory(r.session), OK);
    rig_stop(&r);
}

/* Finds, by the canary pattern, sixteen bytes of the device's arena that belong to no buffer of the plan. Returns the first. */
static char *a_gap(struct backend *b)
{
    static const unsigned char filled[16] = {0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5,
                                             0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5};
    unsigned char *all = malloc((size_t)b->bytes);
    assert_non_null(all);
    assert_int_equal(b->read(b, all, b->base, b->bytes), OK);
    unsigned char *at = memmem(all, (size_t)b->bytes, filled, sizeof filled);
    assert_non_null(at);
    char *there = b->base + (at - all);
    free(all);
    return there;
}

/* Writes between the plan's buffers and outside the arena are noticed on every device. */
static void the_devices_are_guarded(void **state)
{
    (void)state;
    static const enum device_kind devices[] = {DEVICE_CPU, DEVICE_CPU_DISCRETE, DEVICE_CUDA};
    struct twin twin = {.configure = NULL};
    const int has_twin = twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin);
    for (int k = 0; k < 2 + has_twin; k++) {
        struct rig r;
        struct model_config config;
        struct model *model;
        char byte = 1;
        if (devices[k] == DEVICE_CUDA)
            twin.configure("seed=1");
        rig_defaults(&r, 100);
        r.settings.plan.device = devices[k];
        r.settings.gpu = AUTO;
        assert_int_equal(model_preset("tiny", &config), OK);
        assert_int_equal(model_create(&config, NULL, 0, &model), OK);
        assert_int_equal(rig_start(&r, model), OK);
        struct backend *b = r.session->backend;
        assert_int_equal(session_check_memory(r.session), OK);
        char *at = a_gap(b);
        assert_int_equal(b->write(b, at, &byte, 1), OK);
        assert_int_equal(session_check_memory(r.session), ERR_CORRUPT);
        assert_non_null(strstr(status_message(), "a byte outside the plan was written: device arena"));
        assert_int_equal(b->write(b, at, "\xa5", 1), OK);
        assert_int_equal(session_check_memory(r.session), OK);
        assert_int_equal(b->fill(b, b->base + b->bytes, 0, 1), OK);
        assert_int_equal(session_check_memory(r.session), ERR_CORRUPT);
        assert_non_null(strstr(status_message(), "device arena: something wrote "));
        rig_stop(&r);
    }
}

/* A session does not start with a program that the verifier rejects. */
static void a_missing_wait_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct model_config config;
    struct model *model;
    struct plan *plan;
    struct session *session = NULL;
    const char *path = "/tmp";
    rig_defaults(&r, 100);
    r.settings.plan.acts = OFFLOAD_CPU;
    assert_int_equal(model_preset("tiny", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &model), OK);
    assert_int_equal(plan_create(model, &r.settings.plan, r.limit, &plan), OK);
    struct program *p = plan->programs[PLAN_STEP];
    int i = p->n_instrs - 1;
    while (i > 0 && p->instrs[i].n_waits == 0)
        i--;
    assert_true(p->instrs[i].n_waits > 0);
    p->instrs[i].n_waits--;
    assert_int_equal(session_create(model, &plan, 1, &r.settings, NULL, &path, 1, &session), ERR_CORRUPT);
    assert_null(session);
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gaps_are_guarded), cmocka_unit_test(the_devices_are_guarded),
                                       cmocka_unit_test(a_missing_wait_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
