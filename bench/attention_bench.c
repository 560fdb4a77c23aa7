/* Speed of attention forward and backward (causal, or a sliding window; 8 query heads / 2 KV heads) beside OpenBLAS sgemm in the same run.
 *
 *   attention_bench [S] [repeats] [f32|bf16] [window]     FLOPs of the attended pairs; packing and every other pass counted; best of the repeats */
#include "attention/attention.h"
#include "ops/blas.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { HQ = 8, HK = 2 };

static double seconds(void)
{
    return omp_get_wtime();
}

static void *filled(int64_t n, int32_t dtype, float amplitude)
{
    void *p = aligned_alloc(64, (size_t)round_up(n * dtype_size((enum dtype)dtype) + 64, 64));
    uint32_t r = (uint32_t)n;
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        float x = amplitude * ((float)(r >> 8) / 8388608.0f - 1);
        if (dtype == F32)
            ((float *)p)[i] = x;
        else
            ((bf16 *)p)[i] = bf16_from_float(x);
    }
    return p;
}

static double sgemm_gflops(int repeats)
{
    const int n = 2048;
    float *a = filled(n * n, F32, 1), *b = filled(n * n, F32, 1), *c = filled(n * n, F32, 1);
    double best = 1e30;
    for (int i = 0; i < repeats + 1; i++) {
        double t = seconds();
        blas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    free(a);
    free(b);
    free(c);
    return 2.0 * n * n * n / best * 1e-9;
}

static double kernel_seconds(op_kernel *kernel, const struct op_attrs *attrs, void *const *arg, int repeats)
{
    double best = 1e30;
    for (int i = 0; i < repeats; i++) {
        double t = seconds();
        kernel(attrs, arg);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void bench(int64_t s, int64_t window, int32_t d, int32_t dtype, int repeats, double sgemm)
{
    struct op_attrs a = {0};
    a.attn.sq = a.attn.sk = s, a.attn.hq = HQ, a.attn.hk = HK, a.attn.head_dim = d, a.attn.dtype = dtype;
    a.attn.scale = 0.125f;
    int64_t nq = s * HQ * d, nk = s * HK * d;
    void *q = filled(nq, dtype, 1), *k = filled(nk, dtype, 1), *v = filled(nk, dtype, 1), *o = filled(nq, dtype, 1);
    void *go = filled(nq, dtype, 1), *lse = filled(s * HQ, F32, 1), *delta = filled(s * HQ, F32, 1), *dq = filled(nq, F32, 1), *dk = filled(nk, F32, 1);
    void *dv = filled(nk, F32, 1);
    int32_t *lo = malloc((size_t)s * 4), *hi = malloc((size_t)s * 4);
    double pairs = 0;
    for (int64_t i = 0; i < s; i++) {
        lo[i] = (int32_t)max_i64(0, i - window + 1), hi[i] = (int32_t)i;
        pairs += (double)(hi[i] - lo[i] + 1) * HQ * d;
    }
    int64_t fwd_bytes = attention_workspace_bytes(OP_ATTN_FWD, &a, 0), bwd_bytes = attention_workspace_bytes(OP_ATTN_BWD, &a, 0);
    void *work = malloc((size_t)max_i64(fwd_bytes, bwd_bytes));
    op_kernel *table[OP_COUNT] = {0};
    attention_cpu_kernels(table);
    double fwd = 4 * pairs / kernel_seconds(table[OP_ATTN_FWD], &a, (void *[]){o, lse, q, k, v, lo, hi, work}, repeats) * 1e-9;
    double bwd =
        10 * pairs / kernel_seconds(table[OP_ATTN_BWD], &a, (void *[]){dq, dk, dv, q, k, v, delta, lse, go, lo, hi, work}, repeats) * 1e-9;
    printf("S %lld D %3d %s: forward %6.1f GFLOP/s (%3.0f%% of sgemm), backward %6.1f (%3.0f%%); work %.1f / %.1f MiB\n", (long long)s, d,
        dtype_name((enum dtype)dtype), fwd, 100 * fwd / sgemm, bwd, 100 * bwd / sgemm, (double)fwd_bytes / 1048576,
        (double)bwd_bytes / 1048576);
    void *all[] = {q, k, v, o, go, lse, delta, dq, dk, dv, lo, hi, work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    int64_t s = argc > 1 ? atoll(argv[1]) : 8192;
    int repeats = argc > 2 ? atoi(argv[2]) : 3;
    int32_t dtype = argc > 3 && argv[3][0] == 'b' ? BF16 : F32;
    int64_t window = argc > 4 ? atoll(argv[4]) : s;
    if (blas_open() != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    double sgemm = sgemm_gflops(repeats);
    printf("sgemm 2048: %.1f GFLOP/s on %d threads (%s kernels)\n", sgemm, omp_get_max_threads(), blas.corename());
    const int32_t dims[] = {32, 64, 128};
    for (int i = 0; i < 3; i++)
        bench(s, window, dims[i], dtype, repeats, sgemm);
    return 0;
}
