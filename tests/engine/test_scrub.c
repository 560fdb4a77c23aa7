/* Tests --scrub: a bit that flips in host memory between two uses is found, whatever state it is of, and nothing is found falsely. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"
#include "engine/scrub.h"
#include "plan/cells.h"

#include <string.h>

enum { S = 64 };

struct place {
    const char *name;
    enum offload params, optim;
    int host_update;
    enum dtype dtype, moments;
};

static const struct place places[] = {
    {"in host memory", OFFLOAD_CPU, OFFLOAD_CPU, 0, F32, F32},    {"updated by the host", OFFLOAD_CPU, OFFLOAD_CPU, 1, BF16, F32},
    {"moments of a byte", OFFLOAD_CPU, OFFLOAD_CPU, 0, BF16, I8}, {"optimizer only", OFFLOAD_NONE, OFFLOAD_CPU, 1, F32, F32},
    {"parameters only", OFFLOAD_CPU, OFFLOAD_NVME, 0, F32, F32},
};

static void start(struct rig *r, const struct place *p, int scrub, struct sequence *q)
{
    struct model *model;
    rig_defaults(r, S);
    rig_cell_defaults(&r->settings, S, p->dtype);
    r->settings.plan.device = DEVICE_CPU_DISCRETE;
    r->settings.plan.params = p->params;
    r->settings.plan.optim = r->settings.plan.grads = p->optim;
    r->settings.plan.acts = OFFLOAD_CPU;
    r->settings.plan.optim_dtype = p->moments;
    r->settings.plan.update = p->host_update ? UPDATE_HOST : UPDATE_DEVICE;
    r->settings.plan.group = 5120; /* whole blocks of moments in int8 */
    r->settings.scrub = scrub;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    sequence_random(q, S, model->config.vocab, 3, NULL);
    if (rig_start(r, model) != OK || session_initialise(r->session, 5) != OK)
        fail_msg("%s: %s", p->name, status_message());
}

static enum status step(struct rig *r, const struct sequence *q)
{
    double loss, norm;
    TRY(rig_step(r, q, 1, &loss, &norm));
    return rig_flush(r);
}

/* Returns the digest after three steps. */
static uint64_t run(const struct place *p, int scrub)
{
    struct rig r;
    struct sequence q;
    uint64_t d;
    start(&r, p, scrub, &q);
    for (int i = 0; i < 3; i++)
        if (step(&r, &q) != OK)
            fail_msg("%s: %s", p->name, status_message());
    assert_int_equal(rig_digest(&r, &d), OK);
    if (scrub) /* each byte at least once in each step */
        assert_true(scrub_checked_bytes(r.session->scrub) >= 2 * scrub_plan_bytes(r.session->plan));
    sequence_free(&q);
    rig_stop(&r);
    return d;
}

static void nothing_is_found_falsely(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (run(&places[i], 1) != run(&places[i], 0))
            fail_msg("%s: a run that scrubs has other bits", places[i].name);
}

/* Finds the binding of a kind that is the first, or the last, in host memory. */
static const struct binding *binding_of(const struct program *p, int kind, int last)
{
    const struct binding *found = NULL;
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *b = &p->live_in[i];
        if (b->kind == kind && p->buffers[b->buffer].tier == TIER_HOST && (!found || last))
            found = b;
    }
    return found;
}

/* Flips a bit of a kind of state between two steps: the next one ends with the sentence that names the kind. */
static void flip(const struct place *p, int kind, int last)
{
    static const char *const words[] = {[BINDING_PARAM] = "parameters",
                                        [BINDING_MASTER] = "fp32 masters",
                                        [BINDING_M] = "first moments",
                                        [BINDING_V] = "second moments"};
    struct rig r;
    struct sequence q;
    start(&r, p, 1, &q);
    assert_int_equal(step(&r, &q), OK);
    const struct program *flush = r.session->plan->programs[PLAN_FLUSH];
    const struct binding *b = binding_of(flush, kind, last);
    assert_non_null(b);
    const int64_t bytes = (b->row1 - b->row0) * flush->tensors[b->tensor].row_bytes;
    r.session->context.host[flush->buffers[b->buffer].address + b->offset + (last ? bytes - 1 : 0)] ^= 1;
    const enum status st = step(&r, &q);
    if (st != ERR_CORRUPT || !strstr(status_message(), words[kind]))
        fail_msg("%s: a bit of the %s flips and %s", p->name, words[kind], st == OK ? "nothing is found" : status_message());
    sequence_free(&q);
    rig_stop(&r);
}

/* All kinds where the host updates, one kind elsewhere. */
static void flips_are_found(void **state)
{
    (void)state;
    for (int kind = BINDING_PARAM; kind <= BINDING_V; kind++)
        flip(&places[1], kind, kind % 2);
    flip(&places[0], BINDING_PARAM, 1);
    flip(&places[2], BINDING_V, 1);
    flip(&places[4], BINDING_PARAM, 0);
}

/* A save reads the state, too: what flipped before is found there. */
static void visits_find_flips(void **state)
{
    struct rig r;
    struct sequence q;
    uint64_t d;
    (void)state;
    start(&r, &places[0], 1, &q);
    assert_int_equal(step(&r, &q), OK);
    assert_int_equal(rig_digest(&r, &d), OK);
    const struct program *flush = r.session->plan->programs[PLAN_FLUSH];
    const struct binding *b = binding_of(flush, BINDING_M, 1);
    r.session->context.host[flush->buffers[b->buffer].address + b->offset] ^= 0x40;
    scrub_take(r.session->scrub); /* sums only what has no checksum */
    assert_int_equal(rig_digest(&r, &d), ERR_CORRUPT);
    sequence_free(&q);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_found_falsely), cmocka_unit_test(flips_are_found),
                                       cmocka_unit_test(visits_find_flips)};
    return cmocka_run_group_tests_name("scrub", tests, NULL, NULL);
}
