/* A byte outside the plan is noticed; a program that is not right does not start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"

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
    assert_true(canary_bytes(r.session->canary) > 0);
    assert_int_equal(session_check_memory(r.session), OK);

    /* just behind the step record, in the padding of its buffer */
    char *record = session_io(r.session, r.session->plan->io.record);
    char kept = record[sizeof(struct step_record)];
    record[sizeof(struct step_record)] ^= 1;
    assert_int_equal(session_check_memory(r.session), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "host arena"));
    record[sizeof(struct step_record)] = kept;
    assert_int_equal(session_check_memory(r.session), OK);

    /* the record itself is the plan's */
    record[0] ^= 1;
    assert_int_equal(session_check_memory(r.session), OK);
    rig_stop(&r);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(gaps_are_guarded), cmocka_unit_test(a_missing_wait_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
