/* A step that is cut short at any kernel leaves the state after the update that it began with, and runs no kernel more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "plan/cells.h"
#include "program/updates.h"

#include <stdlib.h>
#include <string.h>

enum { S = 112, STEPS = 2 };

/* The device's kernels, counted; the one with the number `at` is where the signal comes. */
static op_kernel *inner[OP_COUNT];
static atomic_int wanted;
static int kernels, at, after; /* of the step; after: kernels since then that are no update */

static enum status count(enum op_kind op, const struct op_attrs *attrs, void *const *arg, void *stream)
{
    after += atomic_load(&wanted) && op != OP_ADAMW;
    if (++kernels == at)
        atomic_store(&wanted, 1);
    return inner[op](attrs, arg, stream);
}

#define OPS(X)                                                                                                         \
    X(OP_COPY)                                                                                                         \
    X(OP_FILL)                                                                                                         \
    X(OP_EMBED) X(OP_EMBED_GRAD) X(OP_NORM) X(OP_NORM_GRAD) X(OP_GEMM) X(OP_BIAS) X(OP_BIAS_GRAD) X(OP_ADD) X(OP_ROPE) \
        X(OP_SWIGLU) X(OP_SWIGLU_GRAD) X(OP_GELU) X(OP_GELU_GRAD) X(OP_ATTN_FWD) X(OP_ATTN_BWD) X(OP_ATTN_DELTA)       \
            X(OP_ATTN_MERGE) X(OP_CAST) X(OP_LOSS) X(OP_ACCUM) X(OP_SUMSQ) X(OP_CLIP) X(OP_ADAMW)
#define COUNTED(op)                                                                               \
    static enum status counted_##op(const struct op_attrs *attrs, void *const *arg, void *stream) \
    {                                                                                             \
        return count(op, attrs, arg, stream);                                                     \
    }
OPS(COUNTED)

struct place {
    enum offload params, grads, optim, acts;
    enum update_on update;
    enum device_kind device;
    enum dtype dtype;
    int accum;
};

static const struct place places[] = {
    {OFFLOAD_NVME, OFFLOAD_NVME, OFFLOAD_NVME, OFFLOAD_NVME, UPDATE_HOST, DEVICE_CPU_DISCRETE, F32, 1},
    {OFFLOAD_CPU, OFFLOAD_NVME, OFFLOAD_NVME, OFFLOAD_CPU, UPDATE_DEVICE, DEVICE_CPU_DISCRETE, BF16, 1},
    {OFFLOAD_NVME, OFFLOAD_CPU, OFFLOAD_NVME, OFFLOAD_NVME, UPDATE_DEVICE, DEVICE_CPU, F32, 2},
    {OFFLOAD_NVME, OFFLOAD_NVME, OFFLOAD_NVME, OFFLOAD_CPU, UPDATE_HOST, DEVICE_CUDA, F32, 1},
    {OFFLOAD_CPU, OFFLOAD_CPU, OFFLOAD_NVME, OFFLOAD_NVME, UPDATE_DEVICE, DEVICE_CUDA, F32, 1},
};

static void count_kernels(struct backend *b, int n)
{
    memcpy(inner, b->kernels, sizeof inner);
#define WRAP(op) b->kernels[op] = b->kernels[op] ? counted_##op : NULL;
    OPS(WRAP)
    kernels = after = 0;
    at = n;
    atomic_store(&wanted, 0);
}

/* Trains STEPS steps; then flushes their last update (n = 0), or begins a step that a signal cuts at its n-th kernel. Whether it
 * was cut. */
static int train(const struct place *p, int n, uint64_t *digest)
{
    struct rig r;
    struct model *model;
    struct sequence q[2];
    double loss, norm;
    int cut = 0;
    rig_defaults(&r, S);
    struct plan_request *s = &r.settings.plan;
    s->params = p->params, s->grads = p->grads, s->optim = p->optim, s->acts = p->acts;
    s->update = p->update, s->device = p->device, s->dtype = p->dtype;
    s->grad_accum = p->accum;
    s->threads = 1;
    r.settings.gpu = AUTO;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    for (int i = 0; i < 2; i++)
        sequence_random(&q[i], S, model->config.vocab, 3 + (uint64_t)i, NULL);
    assert_int_equal(rig_start(&r, model), OK);
    assert_int_equal(session_initialise(r.session, 5), OK);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(rig_step(&r, q, p->accum, &loss, &norm), OK);
    if (n == 0) {
        assert_int_equal(rig_flush(&r), OK);
    } else {
        count_kernels(r.session->backend, n);
        comm_cut_for(r.session->comm, &wanted);
        assert_int_equal(rig_step(&r, q, p->accum, &loss, &norm), OK);
        assert_int_equal(comm_section_end(r.session->comm, &cut), OK);
        assert_int_equal(after, 0);
    }
    assert_int_equal(rig_digest(&r, digest), OK);
    for (int i = 0; i < 2; i++)
        sequence_free(&q[i]);
    rig_stop(&r);
    return cut;
}

static void cut_at_any_kernel(void **state)
{
    struct twin twin; /* kernels are submitted ahead there */
    int stride = extent(199, 23, 1), has_gpu = twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin);
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t whole, digest;
        int cuts = 0, n = 1;
        if (places[i].device == DEVICE_CUDA && !has_gpu)
            continue;
        train(&places[i], 0, &whole);
        while (train(&places[i], n, &digest)) { /* until the step has fewer kernels */
            if (digest != whole)
                fail_msg("place %d: cut at kernel %d the state is not that after the update", (int)i, n);
            n += stride;
            cuts++;
        }
        assert_true(digest == whole); /* the step's own update is still to come */
        assert_true(cuts > 1);
    }
}

/* The update's part of a step is closed: it reads what it wrote itself, or what was there before the step. */
static void marks_are_closed(void **state)
{
    struct rig r;
    struct model *model;
    (void)state;
    rig_defaults(&r, S);
    r.settings.plan.params = r.settings.plan.optim = r.settings.plan.grads = r.settings.plan.acts = OFFLOAD_NVME;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    assert_int_equal(rig_start(&r, model), OK);
    const struct program *p = r.session->plan->programs[PLAN_UPDATE_STEP];
    uint8_t *mark = calloc((size_t)p->n_instrs, 1), *unmarked = calloc((size_t)p->n_buffers, 1);
    int n, counted = 0, updates = 0;
    assert_int_equal(updates_mark(p, mark, &n), OK);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        counted += mark[i];
        updates += mark[i] && in->op == OP_ADAMW;
        assert_true(mark[i] || in->op != OP_ADAMW);
        for (int k = 0; k < in->n_operands; k++) {
            const struct operand *o = &p->operands[in->first_operand + k];
            if (o->tensor >= 0 && mark[i] && (o->access & ACCESS_READ))
                assert_false(unmarked[o->buffer]);
            if (o->tensor >= 0 && !mark[i] && (o->access & ACCESS_WRITE))
                unmarked[o->buffer] = 1;
        }
    }
    assert_int_equal(counted, n);
    assert_true(updates > 0 && n < p->n_instrs / 2);
    assert_int_equal(updates_mark(r.session->plan->programs[PLAN_STEP], mark, &n), OK); /* not longer than the other */
    assert_int_equal(n, 0);
    free(unmarked);
    free(mark);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_at_any_kernel), cmocka_unit_test(marks_are_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
