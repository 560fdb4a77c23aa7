/* Worker of bench_attention.py: `attention_bench HQ HK` reads lines from stdin. "case S D MASK DTYPE" (MASK: causal, windowN or
 * documentsN with N tokens each; DTYPE: f32 or bf16) makes a problem of HQ query and HK KV heads. "forward", "backward" and
 * "sgemm" (2048 x 2048 x 2048) run once; "sinks forward", "sinks backward", "capped forward" and "capped backward" run attention
 * with sinks or with a soft cap.
 *
 * Each line is answered by {"seconds", "cpu_seconds", "flops"}: flops counts attended pairs only; the time includes packing and
 * every other pass. LTRAIN_BENCH_ISA=portable|avx2|avx512 chooses the attention kernels of this instruction set instead of the
 * processor's best ones. */
#include "attention/attention.h"
#include "attention/kernels.h"
#include "base/clock.h"
#include "device/cpu_stream.h"
#include "ops/gemm.h"
#include "ops/sink.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 2048, ARRAYS = 13 };

static int32_t hq, hk;
static struct attention_kernels chosen; /* empty: the processor's */
static const struct gemm_shape cube = {.m = N, .n = N, .k = N, .lda = N, .ldb = N, .ldc = N};

struct problem {
    struct op_attrs attrs;
    void *q, *k, *v, *o, *go, *lse, *delta, *dq, *dk, *dv, *lo, *hi, *work;
    struct cpu_stream stream;
    double pairs; /* number of attended (query, key) pairs of one head */
};

static void *filled(int64_t n, int32_t dtype)
{
    void *p = aligned_alloc(64, (size_t)round_up(n * dtype_size((enum dtype)dtype) + 64, 64));
    uint32_t r = (uint32_t)n;
    if (!p)
        exit(1);
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        float x = (float)(r >> 8) / 8388608.0f - 1;
        if (dtype == F32)
            ((float *)p)[i] = x;
        else
            ((bf16 *)p)[i] = bf16_from_float(x);
    }
    return p;
}

static void release(struct problem *p)
{
    void *all[ARRAYS] = {p->q, p->k, p->v, p->o, p->go, p->lse, p->delta, p->dq, p->dk, p->dv, p->lo, p->hi, p->work};
    for (int i = 0; i < ARRAYS; i++)
        free(all[i]);
}

static void fill_mask(struct problem *p, int64_t s, const char *mask)
{
    int32_t *lo = p->lo, *hi = p->hi;
    long long length;
    p->pairs = 0;
    for (int64_t i = 0; i < s; i++) {
        lo[i] = 0, hi[i] = (int32_t)i;
        if (sscanf(mask, "window%lld", &length) == 1)
            lo[i] = (int32_t)max_i64(0, i - length + 1);
        else if (sscanf(mask, "documents%lld", &length) == 1)
            lo[i] = (int32_t)(i / length * length);
        p->pairs += hi[i] - lo[i] + 1;
    }
}

static int64_t workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    return chosen.workspace ? chosen.workspace(kind, attrs, threads) : attention_workspace_bytes(kind, attrs, threads);
}

static void make(struct problem *p, int64_t s, int32_t d, const char *mask, int32_t dtype)
{
    const int64_t nq = s * hq * d, nk = s * hk * d;
    release(p);
    *p = (struct problem){.q = filled(nq, dtype),
                          .k = filled(nk, dtype),
                          .v = filled(nk, dtype),
                          .o = filled(nq, F32),
                          .go = filled(nq, dtype),
                          .lse = filled(s * hq, F32),
                          .delta = filled(s * hq, F32),
                          .dq = filled(nq, F32),
                          .dk = filled(nk, F32),
                          .dv = filled(nk, F32),
                          .lo = filled(s, F32),
                          .hi = filled(s, F32)};
    p->attrs.attn.sq = p->attrs.attn.sk = s, p->attrs.attn.hq = hq, p->attrs.attn.hk = hk;
    p->attrs.attn.head_dim = d, p->attrs.attn.dtype = dtype, p->attrs.attn.scale = 0.125f;
    p->stream.threads = omp_get_max_threads();
    fill_mask(p, s, mask);
    p->work = filled(max_i64(workspace_bytes(OP_ATTN_FWD, &p->attrs, p->stream.threads),
                             workspace_bytes(OP_ATTN_BWD, &p->attrs, p->stream.threads)) /
                         4,
                     F32);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Does the additional work of sinks in one pass. */
static void add_sinks(struct problem *p, int backward)
{
    static const float sinks[64];
    static float gradients[64];
    const struct sink_shape s = {.rows = p->attrs.attn.sq, .heads = hq, .head_dim = p->attrs.attn.head_dim};
    if (backward)
        ops_attn_sink_grad(&s, gradients, sinks, p->lse, p->delta);
    else
        ops_attn_sink(&s, p->o, p->lse, sinks);
}

static enum status chosen_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    chosen.forward(attrs, arg, stream);
    return OK;
}

static enum status chosen_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    chosen.backward(attrs, arg, stream);
    return OK;
}

/* Chooses the processor's best kernels or those of the named instruction set. Returns 0 if the processor lacks it. */
static int choose(op_kernel *kernel[OP_COUNT], const char *name)
{
    attention_cpu_kernels(kernel);
    for (int isa = ISA_PORTABLE; name && isa <= (int)isa_of_processor(); isa++)
        if (strcmp(name, isa_name((enum isa)isa)) == 0) {
            chosen = attention_kernels_for((enum isa)isa);
            kernel[OP_ATTN_FWD] = chosen_forward;
            kernel[OP_ATTN_BWD] = chosen_backward;
        }
    return !name || chosen.forward;
}

/* Runs a contender once and returns its number of floating-point operations. */
static double run(struct problem *p, op_kernel *const *kernel, float *const matrix[4], const char *what)
{
    const double products = p->pairs * hq * p->attrs.attn.head_dim * 2;
    const int sinks = strncmp(what, "sinks ", 6) == 0, capped = strncmp(what, "capped ", 7) == 0;
    what += sinks ? 6 : capped ? 7 : 0;
    p->attrs.attn.cap = capped ? 30.0f : 0.0f;
    p->attrs.attn.o_fp32 = sinks;
    if (strcmp(what, "sgemm") == 0) {
        ops_gemm(&cube, matrix[2], matrix[0], matrix[1], matrix[3]);
        return 2.0 * N * N * N;
    }
    if (strcmp(what, "forward") == 0) {
        (void)kernel[OP_ATTN_FWD](&p->attrs, (void *[]){p->o, p->lse, p->q, p->k, p->v, p->lo, p->hi, p->work}, &p->stream);
        if (sinks)
            add_sinks(p, 0);
        return 2 * products;
    }
    (void)kernel[OP_ATTN_BWD](
        &p->attrs, (void *[]){p->dq, p->dk, p->dv, p->q, p->k, p->v, p->delta, p->lse, p->go, p->lo, p->hi, p->work}, &p->stream);
    if (sinks)
        add_sinks(p, 1);
    return 5 * products;
}

int main(int argc, char **argv)
{
    struct problem p = {0};
    op_kernel *kernel[OP_COUNT] = {0};
    char line[256], mask[64], dtype[8];
    long long s;
    int d;
    hq = argc > 2 ? atoi(argv[1]) : 8, hk = argc > 2 ? atoi(argv[2]) : 2;
    if (hq > 64) /* add_sinks */
        return 2;
    if (!choose(kernel, getenv("LTRAIN_BENCH_ISA"))) {
        fprintf(stderr,
                "attention_bench: LTRAIN_BENCH_ISA names no instruction set of this processor: portable, avx2 or avx512\n");
        return 2;
    }
    float *matrix[4] = {filled(N * N, F32), filled(N * N, F32), filled(N * N, F32), filled(ops_gemm_workspace(&cube) / 4, F32)};
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        double cpu = cpu_seconds(), t = clock_seconds(), flops = 0;
        if (sscanf(line, "case %lld %d %63s %7s", &s, &d, mask, dtype) == 4)
            make(&p, s, d, mask, strcmp(dtype, "bf16") == 0 ? BF16 : F32);
        else
            flops = run(&p, kernel, matrix, line);
        printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"flops\": %.17g}\n", clock_seconds() - t, cpu_seconds() - cpu, flops);
        fflush(stdout);
    }
    release(&p);
    for (int i = 0; i < 4; i++)
        free(matrix[i]);
    return 0;
}
