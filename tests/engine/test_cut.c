/* Tests that a step which is cut at any kernel leaves the state after the update with which it began, and runs no further kernel. */
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

/* Wrapped kernels of the device, which count their calls. The signal comes at call number `at`. */
static op_kernel *inner[OP_COUNT];
static atomic_int wanted;
static int kernels, at,
    after; /* kernels: number run in the step; after: kernels other than of the update that ran since the signal */
static int attention_only; /* 1: other kernels are not counted */
/* on_host: 1: this process can read the memory that kernels write; given_up: number of calls of attention that ended without
 * writing their results */
static int on_host, given_up;

static int is_attention(enum op_kind op)
{
    return op == OP_ATTN_FWD || op == OP_ATTN_BWD;
}

/* Distance by which compute is submitted ahead of its finished work, in planned time and instructions. */
static struct {
    double *until; /* planned seconds of the lane's first k instructions; NULL: not recorded */
    double longest,
        most; /* longest: planned seconds of the longest instruction; most: largest planned seconds in flight at one time */
    int submitted, most_instrs;
    int at[BACKEND_EVENTS + 1]; /* number of instructions that were submitted before each event was recorded */
    atomic_int done;
    enum status (*record)(struct backend *b, enum lane lane, int event);
    enum status (*wait)(struct backend *b, enum lane lane, int event);
} ahead;

static enum status ahead_record(struct backend *b, enum lane lane, int event)
{
    if (lane == LANE_COMPUTE)
        ahead.at[event] = ahead.submitted;
    return ahead.record(b, lane, event);
}

static enum status ahead_wait(struct backend *b, enum lane lane, int event)
{
    enum status st = ahead.wait(b, lane, event);
    if (lane == LANE_COMPUTE && ahead.at[event] > atomic_load(&ahead.done))
        atomic_store(&ahead.done, ahead.at[event]);
    return st;
}

static void note_submitted(void)
{
    const int done = atomic_load(&ahead.done), n = ++ahead.submitted;
    ahead.most =
        n - done > 5 && ahead.until[n] - ahead.until[done] > ahead.most ? ahead.until[n] - ahead.until[done] : ahead.most;
    ahead.most_instrs = n - done > ahead.most_instrs ? n - done : ahead.most_instrs;
}

static enum status count(enum op_kind op, const struct op_attrs *attrs, void *const *arg, void *stream)
{
    if (ahead.until)
        note_submitted();
    after += atomic_load(&wanted) && op != OP_ADAMW;
    if (attention_only && !is_attention(op))
        return inner[op](attrs, arg, stream);
    if (++kernels != at)
        return inner[op](attrs, arg, stream);
    atomic_store(&wanted, 1);
    if (!is_attention(op) || !on_host)
        return inner[op](attrs, arg, stream);
    enum { SOME = 256 };
    char mark[SOME];
    memset(mark, 0x5a, SOME);
    memcpy(arg[0], mark, SOME);
    enum status st = inner[op](attrs, arg, stream);
    given_up += memcmp(arg[0], mark, SOME) == 0;
    return st;
}

/* clang-format off */
#define OPS(X)                                                                                                         \
    X(OP_COPY)                                                                                                         \
    X(OP_FILL)                                                                                                         \
    X(OP_EMBED) X(OP_EMBED_GRAD) X(OP_NORM) X(OP_NORM_GRAD) X(OP_GEMM) X(OP_BIAS) X(OP_BIAS_GRAD) X(OP_ADD) X(OP_ROPE) \
        X(OP_SWIGLU) X(OP_SWIGLU_GRAD) X(OP_GELU) X(OP_GELU_GRAD) X(OP_ATTN_FWD) X(OP_ATTN_BWD) X(OP_ATTN_DELTA)       \
            X(OP_ATTN_MERGE) X(OP_CAST) X(OP_LOSS) X(OP_ACCUM) X(OP_SUMSQ) X(OP_CLIP) X(OP_ADAMW)
/* clang-format on */
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

/* Trains STEPS steps. Then it flushes their last update (n = 0), or begins a step that a signal cuts at its n-th kernel. Returns
 * 1 if the step was cut. */
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
    on_host = p->device != DEVICE_CUDA;
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
    struct twin twin; /* the fake GPU, to which kernels are submitted ahead */
    int stride = extent(199, 23, 1), has_gpu = twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin);
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t whole, digest;
        int cuts = 0, n = 1;
        if (places[i].device == DEVICE_CUDA && !has_gpu)
            continue;
        train(&places[i], 0, &whole);
        while (train(&places[i], n, &digest)) { /* ends once the step has fewer than n kernels */
            if (digest != whole)
                fail_msg("place %d: cut at kernel %d the state is not that after the update", (int)i, n);
            n += stride;
            cuts++;
        }
        assert_true(digest == whole); /* the update of the step that was not cut is still pending */
        assert_true(cuts > 1);
    }
}

/* A signal within a call of attention ends the call at once. */
static void calls_of_attention_are_given_up(void **state)
{
    (void)state;
    attention_only = 1;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t whole, digest;
        int n = 1;
        if (places[i].device == DEVICE_CUDA)
            continue;
        given_up = 0;
        train(&places[i], 0, &whole);
        for (; train(&places[i], n, &digest); n += extent(7, 3, 1))
            if (digest != whole || given_up == 0)
                fail_msg("place %d: cut in call %d of attention: %d were given up", (int)i, n, given_up);
            else
                given_up = 0;
        assert_true(n > 1);
    }
    attention_only = 0;
}

/* Submits half a second ahead in a step that is planned to take 20 s on a GPU; the fake takes milliseconds. */
static void little_is_submitted_ahead(void **state)
{
    enum { SECONDS = 20 };
    struct rig r;
    struct model *model;
    struct sequence q;
    struct twin twin = {NULL};
    double loss, norm;
    (void)state;
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        skip();
    twin.configure("seed=1");
    rig_defaults(&r, S);
    r.settings.plan.device = DEVICE_CUDA;
    r.settings.plan.threads = 1;
    r.settings.gpu = AUTO;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    sequence_random(&q, S, model->config.vocab, 3, NULL);
    assert_int_equal(rig_start(&r, model), OK);
    struct program *p = r.session->plan->programs[PLAN_STEP];
    double *until = calloc((size_t)p->n_instrs + 1, sizeof *until);
    int n = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &p->instrs[i];
        in->start *= SECONDS / p->seconds;
        in->end *= SECONDS / p->seconds;
        if (in->lane != LANE_COMPUTE)
            continue;
        until[n + 1] = until[n] + (in->end - in->start);
        ahead.longest = in->end - in->start > ahead.longest ? in->end - in->start : ahead.longest;
        n++;
    }
    executor_destroy(r.session->executor); /* creates the executor again, since it reads the program when it is created */
    assert_int_equal(executor_create(&r.session->context, r.session->plan->programs, PLAN_PROGRAMS, &r.session->executor), OK);
    struct backend *b = r.session->backend;
    assert_int_equal(session_initialise(r.session, 5), OK);
    count_kernels(b, 0);
    ahead.record = b->record, ahead.wait = b->wait;
    b->record = ahead_record, b->wait = ahead_wait;
    ahead.until = until;
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    ahead.until = NULL;
    assert_int_equal(ahead.submitted, n);
    assert_true(n > 100 && ahead.most_instrs > 1);
    if (ahead.most > 0.5 + 0.125 + 2 * ahead.longest)
        fail_msg("%.2f s were under way at once; the longest instruction takes %.2f s", ahead.most, ahead.longest);
    free(until);
    sequence_free(&q);
    rig_stop(&r);
}

/* The update's part of a step depends on no other part: it reads only what it wrote itself, or state from before the step. */
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
    assert_int_equal(updates_mark(r.session->plan->programs[PLAN_STEP], mark, &n),
                     OK); /* `mark` is long enough: this program has no more instructions than the first */
    assert_int_equal(n, 0);
    free(unmarked);
    free(mark);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_at_any_kernel), cmocka_unit_test(calls_of_attention_are_given_up),
                                       cmocka_unit_test(little_is_submitted_ahead), cmocka_unit_test(marks_are_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
