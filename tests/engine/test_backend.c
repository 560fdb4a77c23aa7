/* Tests the interface to devices: what each backend promises, and that the engine leaves device memory to the backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/backend_cpu.h"
#include "engine/rig.h"
#include "plan/cells.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { S = 112, STEPS = 2 };

static void promises_are_kept(void **state)
{
    (void)state;
    for (int discrete = 0; discrete < 2; discrete++) {
        enum { N = 1 << 16 };
        static char from[N], to[N];
        struct backend *b;
        int done = 0;
        struct backend_cpu_config c = {.discrete = discrete, .link_bytes_per_second = N / 0.1, .threads = 1};
        assert_int_equal(backend_cpu_create(&c, &b), OK);
        assert_int_equal(b->host_reaches, !discrete);
        assert_int_equal(b->allocate(b, N), OK);
        b->enter(b);
        for (int i = 0; i < N; i++)
            from[i] = (char)(i * 7);
        assert_int_equal(b->write(b, b->base, from, N), OK);
        assert_int_equal(b->fill(b, b->base + 3, 0x55, 5), OK);
        memset(from + 3, 0x55, 5);
        assert_int_equal(b->read(b, to, b->base, N), OK);
        assert_memory_equal(from, to, N);

        int64_t began = clock_ns();
        from[9]++;
        assert_int_equal(b->copy(b, LANE_H2D, b->base, from, N), OK);
        assert_int_equal(b->record(b, LANE_H2D, BACKEND_EVENTS - 1), OK);
        assert_int_equal(b->wait(b, LANE_H2D, BACKEND_EVENTS - 1), OK);
        assert_true(!discrete || clock_ns() - began >= 90000000); /* only the discrete device has a link */
        assert_int_equal(b->query(b, LANE_H2D, BACKEND_EVENTS - 1, &done), OK);
        assert_true(done);
        assert_int_equal(b->read(b, to, b->base, N), OK);
        assert_memory_equal(from, to, N);

        assert_int_equal(b->check(b), OK);
        for (int op = 0; op < OP_COUNT; op++)
            assert_int_equal(b->kernels[op] == NULL, op >= OP_ALL_GATHER);
        b->close(b);
    }
}

/* ---- a device that is far away ---- */

/* A device whose addresses cannot be read or written by the engine. The memory behind them is mapped a second time for its own
 * kernels. */
static struct {
    struct backend near; /* the backend on which this device is built */
    char *memory;
    _Atomic int64_t copies, kernels, events; /* counts, which several lanes change at once */
} far;

static void *promoted(const void *device)
{
    int64_t at = (const char *)device - far.near.base;
    return device && at >= 0 && at < far.near.bytes ? far.memory + at : (void *)(uintptr_t)device;
}

static enum status run_far(enum op_kind op, const struct op_attrs *attrs, void *const *arg, void *stream)
{
    void *own[OP_MAX_ARGS];
    for (int i = 0; i < op_arg_count(op); i++)
        own[i] = promoted(arg[i]);
    far.kernels++;
    return far.near.kernels[op](attrs, own, stream);
}

/* clang-format off */
#define EACH_OP(X)                                                                                                     \
    X(OP_COPY)                                                                                                         \
    X(OP_FILL)                                                                                                         \
    X(OP_EMBED) X(OP_EMBED_GRAD) X(OP_NORM) X(OP_NORM_GRAD) X(OP_GEMM) X(OP_BIAS) X(OP_BIAS_GRAD) X(OP_ADD) X(OP_ROPE) \
        X(OP_SWIGLU) X(OP_SWIGLU_GRAD) X(OP_GELU) X(OP_GELU_GRAD) X(OP_ATTN_FWD) X(OP_ATTN_BWD) X(OP_ATTN_DELTA)       \
            X(OP_ATTN_MERGE) X(OP_CAST) X(OP_LOSS) X(OP_ACCUM) X(OP_SUMSQ) X(OP_CLIP) X(OP_ADAMW)
/* clang-format on */
#define KERNEL(op)                                                                            \
    static enum status far_##op(const struct op_attrs *attrs, void *const *arg, void *stream) \
    {                                                                                         \
        return run_far(op, attrs, arg, stream);                                               \
    }
EACH_OP(KERNEL)

static enum status far_copy(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes)
{
    far.copies++;
    return far.near.copy(b, lane, promoted(dst), promoted(src), bytes);
}

static enum status far_wait(struct backend *b, enum lane lane, int event)
{
    far.events++;
    return far.near.wait(b, lane, event);
}

static enum status far_fill(struct backend *b, void *device, int byte, int64_t bytes)
{
    return far.near.fill(b, promoted(device), byte, bytes);
}

static enum status far_read(struct backend *b, void *host, const void *device, int64_t bytes)
{
    return far.near.read(b, host, promoted(device), bytes);
}

static enum status far_write(struct backend *b, void *device, const void *host, int64_t bytes)
{
    return far.near.write(b, promoted(device), host, bytes);
}

/* Makes the device's memory unreachable; addresses are still computed from `base`. */
static void move_away(struct backend *b)
{
    size_t bytes = (size_t)round_up(b->bytes, 4096);
    far.near = *b;
    far.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(far.memory != MAP_FAILED);
    memcpy(far.memory, b->base, (size_t)b->bytes);
    assert_int_equal(mprotect(b->base, bytes, PROT_NONE), 0);
    far.copies = far.kernels = far.events = 0;
#define ENTRY(op) b->kernels[op] = far_##op;
    EACH_OP(ENTRY)
    b->copy = far_copy;
    b->wait = far_wait;
    b->fill = far_fill;
    b->read = far_read;
    b->write = far_write;
}

static void bring_back(struct backend *b)
{
    size_t bytes = (size_t)round_up(b->bytes, 4096);
    assert_int_equal(mprotect(b->base, bytes, PROT_READ | PROT_WRITE), 0);
    munmap(far.memory, bytes);
}

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest;
};

static void run(enum offload away, enum update_on update, enum run_mode mode, int is_far, struct outcome *out)
{
    struct rig r;
    struct model *model;
    struct sequence q;
    rig_defaults(&r, S);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    r.settings.plan.params = r.settings.plan.grads = r.settings.plan.optim = r.settings.plan.acts = away;
    r.settings.plan.alpha = 0.5;
    r.settings.plan.head_tile = 1;
    r.settings.plan.update = update;
    r.settings.mode = mode;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    sequence_random(&q, S, model->config.vocab, 3, NULL);
    assert_int_equal(rig_start(&r, model), OK);
    if (is_far)
        move_away(r.session->backend);
    assert_int_equal(session_initialise(r.session, 5), OK);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(rig_step(&r, &q, 1, &out->loss[i], &out->norm[i]), OK);
    assert_int_equal(rig_flush(&r), OK);
    assert_int_equal(rig_digest(&r, &out->digest), OK);
    if (is_far) {
        assert_true(far.copies > 0 && far.kernels > 0 && far.events == far.copies + far.kernels);
        assert_int_equal(canary_check(r.session->canary), OK);
        bring_back(r.session->backend);
    }
    sequence_free(&q);
    rig_stop(&r);
}

/* Only the backend touches device memory: state, canaries, chaos and steps work although the engine cannot reach it. */
static void the_engine_leaves_device_memory_alone(void **state)
{
    (void)state;
    for (int away = OFFLOAD_NONE; away <= OFFLOAD_NVME; away++)
        for (int mode = MODE_RUN; mode <= MODE_CHAOS; mode++) {
            enum update_on update = away == OFFLOAD_CPU ? UPDATE_HOST : UPDATE_DEVICE;
            struct outcome here, there;
            run((enum offload)away, update, MODE_RUN, 0, &here);
            run((enum offload)away, update, (enum run_mode)mode, 1, &there);
            assert_memory_equal(&here, &there, sizeof here);
        }
}

/* A plan in which drives read device memory directly needs a device whose memory drives can reach. */
static void unreachable_memory_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct model *model;
    struct plan *plan;
    struct session *session = NULL;
    const char *path = "/tmp";
    rig_defaults(&r, S);
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    assert_int_equal(plan_create(model, &r.settings.plan, r.limit, &plan), OK);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    assert_int_equal(session_create(model, &plan, 1, &r.settings, NULL, &path, 1, &session), ERR_INVALID);
    assert_non_null(strstr(status_message(), "cpu:discrete"));
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(promises_are_kept),
                                       cmocka_unit_test(the_engine_leaves_device_memory_alone),
                                       cmocka_unit_test(unreachable_memory_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
