/* Rates of a GPU: products and attention by its own clock, copies each way beside products, the cost of submission. */
#include "profile/calls.h"

#include "base/clock.h"
#include "base/sys.h"
#include "device/plugin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA ((int64_t)2 << 30)        /* bytes for operands: more than caches hold */
#define PINNED ((int64_t)256 << 20)     /* bytes that are copied each way */
#define BLOCK ((int64_t)16 << 20)       /* bytes of one copy */
#define SMALL_ARENA ((int64_t)48 << 20) /* ARENA for the tests' fake GPU */
#define SMALL_PINNED ((int64_t)4 << 20)
#define SMALL_BLOCK ((int64_t)1 << 20)
#define SMALL_FLOPS (1 << 22)
#define PEAK_SIDE 8192 /* m, n and k of the product that counts as the peak */
#define BYTE 0x3c      /* a byte that repeated is 0.0115 */
#define RUN_SECONDS 2e-3
#define SUBMISSIONS BACKEND_EVENTS /* number of submissions, each with an event of its own */
#define ALIGNED 4096

enum { REPEATS = 3, MOST_INNER = 64 };

struct gpu_bench {
    struct backend *b;
    const struct target *target;
    char *host; /* pinned */
    int64_t bytes, pinned, block;
    int small; /* 1: the tests' fake GPU, whose kernels are the CPU's; the measurement is only tried out */
};

/* A call that is submitted again and again, with operands that lie `stride` bytes further each time. */
struct gpu_call {
    enum op_kind op;
    struct op_attrs attrs;
    void *arg[OP_MAX_ARGS];
    int64_t stride;
    int sets;
};

static enum status submit(struct gpu_bench *g, const struct gpu_call *c, int turn)
{
    struct backend *b = g->b;
    void *arg[OP_MAX_ARGS] = {NULL};
    for (int i = 0; i < op_arg_count(c->op); i++)
        arg[i] = c->arg[i] ? (char *)c->arg[i] + turn % c->sets * c->stride : NULL;
    return backend_status(b, b->kernels[c->op](&c->attrs, arg, b->stream[LANE_COMPUTE]));
}

/* Measures the seconds of one of n submissions, between events of the stream. */
static enum status time_some(struct gpu_bench *g, const struct gpu_call *c, int n, double *seconds)
{
    struct backend *b = g->b;
    TRY(backend_status(b, b->record(b, LANE_COMPUTE, BACKEND_BEGAN)));
    for (int i = 0; i < n; i++)
        TRY(submit(g, c, i));
    TRY(backend_status(b, b->record(b, LANE_COMPUTE, 0)));
    TRY(backend_status(b, b->wait(b, LANE_COMPUTE, 0)));
    TRY(backend_status(b, b->elapsed(b, LANE_COMPUTE, 0, seconds)));
    *seconds = *seconds / n + 1e-9;
    return OK;
}

/* Takes the least of some measurements: disturbances make them longer. */
static enum status time_call(struct gpu_bench *g, const struct gpu_call *c, double *best)
{
    double once;
    TRY(backend_status(g->b, g->b->prepare(g->b, c->op, &c->attrs, c->arg)));
    TRY(time_some(g, c, 1, best));
    const int inner = g->small ? 1 : (int)max_i64(1, min_i64(MOST_INNER, (int64_t)(RUN_SECONDS / *best)));
    for (int i = 0; i < REPEATS; i++) {
        TRY(time_some(g, c, inner, &once));
        *best = i == 0 || once < *best ? once : *best;
    }
    return OK;
}

/* Lays n operands out in the arena, as often as they fit. ERR_NOMEM: not even once. */
static enum status lay_out(const struct gpu_bench *g, const int64_t *bytes, int n, struct gpu_call *c)
{
    c->stride = 0;
    for (int i = 0; i < n; i++) {
        c->arg[i] = bytes[i] ? g->b->base + c->stride : NULL;
        c->stride += round_up(bytes[i], ALIGNED);
    }
    c->sets = (int)min_i64(16, g->bytes / max_i64(1, c->stride));
    return c->sets > 0 ? OK : status_fail(ERR_NOMEM, "out of memory of the GPU for measuring %s", op_name(c->op));
}

/* --- Products --- */

static enum status product_rate(struct gpu_bench *g, enum dtype type, enum gemm_layout layout, const int64_t size[3],
                                double *flops)
{
    struct gpu_call c = {.op = OP_GEMM};
    double seconds;
    profile_gemm_attrs(type, layout, size, &c.attrs);
    if (layout != GEMM_TN)
        c.attrs.gemm.c_type = type;
    const int64_t bytes[] = {size[0] * size[1] * dtype_size((enum dtype)c.attrs.gemm.c_type),
                             size[0] * size[2] * dtype_size(type), size[2] * size[1] * dtype_size(type),
                             g->target->workspace(g->target, OP_GEMM, &c.attrs, 0)};
    TRY(lay_out(g, bytes, 4, &c));
    TRY(time_call(g, &c, &seconds));
    *flops = 2.0 * (double)size[0] * (double)size[1] * (double)size[2] / seconds;
    return OK;
}

/* Measures all products. On the fake GPU a shape that is too large has a smaller shape's rate: one step less in its first size
 * that is not the smallest. */
static enum status products(struct gpu_bench *g, enum dtype type, struct hardware *h)
{
    static const int64_t grid[GEMM_SIZES] = {64, 256, 1024, 4096};
    const int64_t peak[] = {PEAK_SIDE, PEAK_SIDE, PEAK_SIDE};
    h->peak_flops[type] = 0;
    if (!g->small)
        TRY(product_rate(g, type, GEMM_NN, peak, &h->peak_flops[type]));
    for (int l = 0; l < GEMM_LAYOUTS; l++)
        for (int i = 0; i < GEMM_SHAPES; i++) {
            const int at[3] = {i / 16, i / 4 % 4, i % 4};
            const int64_t size[] = {grid[at[0]], grid[at[1]], grid[at[2]]};
            double *rate = &h->device.gemm[type].flops[l][i];
            if (g->small && size[0] * size[1] * size[2] > SMALL_FLOPS) {
                *rate = h->device.gemm[type].flops[l][i - (at[0] ? 16 : at[1] ? 4 : 1)];
                continue;
            }
            TRY(product_rate(g, type, (enum gemm_layout)l, size, rate));
            h->peak_flops[type] = *rate > h->peak_flops[type] ? *rate : h->peak_flops[type];
        }
    return OK;
}

/* --- Attention --- */

static enum status write_intervals(struct gpu_bench *g, const struct gpu_call *c, int64_t S, int n)
{
    struct backend *b = g->b;
    enum status st = OK;
    int32_t *hi = sys_malloc((size_t)S * sizeof *hi);
    if (!hi)
        return status_fail(ERR_NOMEM, "out of memory for measuring attention");
    for (int64_t i = 0; i < S; i++)
        hi[i] = (int32_t)i;
    for (int k = 0; k < c->sets && st == OK; k++) {
        char *lo = (char *)c->arg[n - 3] + k * c->stride;
        st = backend_status(b, b->fill(b, lo, 0, S * (int64_t)sizeof *hi));
        if (st == OK)
            st = backend_status(b, b->write(b, (char *)c->arg[n - 2] + k * c->stride, hi, S * (int64_t)sizeof *hi));
    }
    free(hi);
    return st;
}

static enum status attention_flops(struct gpu_bench *g, enum op_kind op, const struct attention_case *x, double *flops)
{
    struct gpu_call c = {.op = op};
    int64_t bytes[OP_MAX_ARGS];
    double seconds;
    const int n = profile_attention_bytes(op, x, bytes);
    profile_attention_attrs(x, &c.attrs);
    bytes[n - 1] = g->target->workspace(g->target, op, &c.attrs, 0);
    TRY(lay_out(g, bytes, n, &c));
    c.sets = 1; /* one set is enough, since a call reads its keys many times anyhow */
    TRY(backend_status(g->b, g->b->fill(g->b, g->b->base, BYTE, c.stride)));
    TRY(write_intervals(g, &c, x->S, n));
    TRY(time_call(g, &c, &seconds));
    *flops = op_flops(op, &c.attrs, (double)x->S * (double)(x->S + 1) / 2) / seconds;
    return OK;
}

static enum status attentions(struct gpu_bench *g, enum dtype type, struct hardware *h)
{
    static const int dims[] = {64, 128, 256}; /* heads wider than 128 have other kernels backward on Hopper */
    static const int64_t lengths[] = {1024, 4096, 16384, 65536};
    memset(h->device.attention[type], 0, sizeof h->device.attention[type]);
    for (int d = 0; d < 3; d++) {
        struct attention_rates *a = &h->device.attention[type][d];
        a->head_dim = dims[d];
        a->forward.n = a->backward.n = g->small ? 1 : 4;
        for (int i = 0; i < a->forward.n; i++) {
            const struct attention_case x = {
                .S = g->small ? 128 : lengths[i], .head_dim = dims[d], .hq = 8, .hk = 2, .type = type};
            a->forward.x[i] = a->backward.x[i] = (double)x.S;
            TRY(attention_flops(g, OP_ATTN_FWD, &x, &a->forward.y[i]));
            TRY(attention_flops(g, OP_ATTN_BWD, &x, &a->backward.y[i]));
        }
    }
    return backend_status(g->b, g->b->fill(g->b, g->b->base, BYTE, g->bytes));
}

/* --- Copies and submission --- */

static enum status copy_all(struct gpu_bench *g, enum lane lane, double *rate)
{
    struct backend *b = g->b;
    double seconds;
    TRY(backend_status(b, b->wait(b, LANE_COMPUTE, BACKEND_BEGAN)));
    TRY(backend_status(b, b->wait(b, lane, 0)));
    TRY(backend_status(b, b->elapsed(b, lane, 0, &seconds)));
    *rate = (double)g->pinned / (seconds + 1e-9);
    return OK;
}

/* Measures copies both ways at once, beside products. */
static enum status copies(struct gpu_bench *g, struct hardware *h)
{
    struct backend *b = g->b;
    const int64_t side = g->small ? 64 : PEAK_SIDE, size[] = {side, side, side};
    const enum dtype type = g->small ? F32 : BF16;
    struct gpu_call c = {.op = OP_GEMM};
    profile_gemm_attrs(type, GEMM_TN, size, &c.attrs);
    const int64_t bytes[] = {2 * g->pinned, side * side * 4, side * side * dtype_size(type), side * side * dtype_size(type),
                             g->target->workspace(g->target, OP_GEMM, &c.attrs, 0)};
    TRY(lay_out(g, bytes, 5, &c));
    memmove(c.arg, c.arg + 1, 4 * sizeof *c.arg); /* the copied memory lies before the operands */
    c.sets = 1;
    TRY(backend_status(b, b->prepare(b, OP_GEMM, &c.attrs, c.arg)));
    TRY(backend_status(b, b->record(b, LANE_COMPUTE, BACKEND_BEGAN)));
    for (int64_t at = 0; at < g->pinned; at += g->block) {
        TRY(backend_status(b, b->copy(b, LANE_H2D, b->base + at, g->host + at, g->block)));
        TRY(backend_status(b, b->copy(b, LANE_D2H, g->host + g->pinned + at, b->base + g->pinned + at, g->block)));
        TRY(submit(g, &c, 0));
    }
    TRY(backend_status(b, b->record(b, LANE_H2D, 0)));
    TRY(backend_status(b, b->record(b, LANE_D2H, 0)));
    TRY(copy_all(g, LANE_H2D, &h->h2d));
    TRY(copy_all(g, LANE_D2H, &h->d2h));
    h->late = h->throttled_bytes = h->h2d;
    return backend_status(b, b->join(b));
}

/* Measures the cost of an instruction with next to nothing to do. */
static enum status submission(struct gpu_bench *g, struct hardware *h)
{
    struct backend *b = g->b;
    struct gpu_call c = {.op = OP_FILL, .attrs = {.fill = {.bytes = ALIGNED}}, .arg = {b->base}, .sets = 1};
    TRY(backend_status(b, b->prepare(b, c.op, &c.attrs, c.arg)));
    const double began = clock_seconds();
    for (int i = 0; i < SUBMISSIONS; i++) {
        TRY(submit(g, &c, 0));
        TRY(backend_status(b, b->record_quietly(b, LANE_COMPUTE, i)));
    }
    TRY(backend_status(b, b->join(b)));
    h->overhead = (clock_seconds() - began) / SUBMISSIONS;
    return OK;
}

/* --- All of it --- */

static enum status open_bench(const struct settings *s, struct gpu_bench *g)
{
    const struct device_plugin *plugin;
    g->target = s->plan.target;
    g->small = s->plan.target->capability == 0;
    g->bytes = g->small ? SMALL_ARENA : ARENA;
    g->pinned = g->small ? SMALL_PINNED : PINNED;
    g->block = g->small ? SMALL_BLOCK : BLOCK;
    TRY(device_plugin_load(&plugin));
    enum status st = plugin->open(s->gpu >= 0 ? s->gpu : 0, s->plan.target, &g->b);
    if (st != OK)
        return status_fail(st, "%s", plugin->sentence());
    g->host = sys_mmap((size_t)(2 * g->pinned), 0);
    if (!g->host)
        return status_fail(ERR_NOMEM, "out of memory for measuring copies");
    memset(g->host, BYTE, (size_t)(2 * g->pinned));
    TRY(backend_status(g->b, g->b->pin(g->b, g->host, 2 * g->pinned)));
    TRY(backend_status(g->b, g->b->allocate(g->b, g->bytes)));
    return backend_status(g->b, g->b->fill(g->b, g->b->base, BYTE, g->bytes));
}

static enum status measure(struct gpu_bench *g, struct hardware *h)
{
    for (int t = 0; t < COST_TYPES; t++) {
        if (t == F32 && !g->small) /* attention there is bf16, so nothing is planned in fp32 */
            continue;
        TRY(products(g, (enum dtype)t, h));
        TRY(attentions(g, (enum dtype)t, h));
    }
    TRY(copies(g, h));
    return submission(g, h);
}

static void close_bench(struct gpu_bench *g)
{
    if (g->b)
        g->b->close(g->b);
    if (g->host)
        munmap(g->host, (size_t)(2 * g->pinned));
}

enum status profile_gpu(const struct settings *s, struct hardware *h)
{
    struct gpu_bench g = {.b = NULL};
    enum status st = open_bench(s, &g);
    if (st == OK)
        st = measure(&g, h);
    close_bench(&g);
    return st;
}

enum status profile_gpu_peak(const struct settings *s, double *flops)
{
    const int64_t size[] = {PEAK_SIDE, PEAK_SIDE, PEAK_SIDE};
    struct gpu_bench g = {.b = NULL};
    enum status st = open_bench(s, &g);
    if (st == OK)
        st = product_rate(&g, BF16, GEMM_NN, size, flops);
    close_bench(&g);
    return st;
}
