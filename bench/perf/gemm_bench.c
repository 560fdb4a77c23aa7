/* Worker of bench_gemm.py, which reads lines from stdin. "ours M N K TA TB ACCUMULATE" runs a product of fp32 matrices once and
 * answers {"seconds", "cpu_seconds", "flops"}. "ours ... bf16" runs it on bf16 matrices (C is bf16, too, unless it accumulates),
 * "widened ... bf16" on bf16 matrices with the tiles of fp32 products. "amx" answers {"amx"}: whether bf16 products use AMX. */
#include "base/clock.h"
#include "base/num.h"
#include "ops/gemm_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    enum { MOST = 32 << 20, WORK = 16 << 20 }; /* elements of each matrix and bytes of workspace */
    char line[256], who[16], type[16];
    long long m, n, k;
    int ta, tb, accumulate;
    float *x[3], *work = aligned_alloc(64, WORK);
    bf16 *y[2];
    for (int i = 0; i < 3; i++) {
        x[i] = aligned_alloc(64, MOST * sizeof(float));
        for (int64_t j = 0; x[i] && j < MOST; j++)
            x[i][j] = (float)(j % 1999) * 1e-3f - 1;
    }
    for (int i = 0; i < 2; i++) {
        y[i] = aligned_alloc(64, MOST * sizeof(bf16));
        for (int64_t j = 0; y[i] && j < MOST; j++)
            y[i][j] = bf16_from_float((float)(j % 1999) * 1e-3f - 1);
    }
    if (work)
        memset(work, 0, WORK);
    while (work && x[0] && x[1] && x[2] && y[0] && y[1] && fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "amx\n") == 0) {
            printf("{\"amx\": %d}\n", isa_has_amx());
            fflush(stdout);
            continue;
        }
        strcpy(type, "fp32");
        if (sscanf(line, "%15s %lld %lld %lld %d %d %d %15s", who, &m, &n, &k, &ta, &tb, &accumulate, type) < 7 ||
            max_i64(m * n, max_i64(m * k, k * n)) > MOST)
            return 2;
        const int half = strcmp(type, "bf16") == 0, of_c = half && !accumulate ? BF16 : F32;
        const struct gemm_shape s = {m,    n,         k, ta ? m : k, tb ? k : n, n, ta, tb, half ? BF16 : F32, half ? BF16 : F32,
                                     of_c, accumulate};
        const struct gemm_tile *tile = strcmp(who, "widened") == 0 ? gemm_tile_for(isa_of_processor()) : NULL;
        if ((tile ? gemm_workspace(tile, &s) : ops_gemm_workspace(&s)) > WORK)
            return 2;
        const void *a = half ? (void *)y[0] : x[0], *b = half ? (void *)y[1] : x[1];
        double cpu = cpu_seconds(), t = clock_seconds();
        if (tile)
            gemm_run(tile, &s, x[2], a, b, work);
        else
            ops_gemm(&s, x[2], a, b, work);
        printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"flops\": %.17g}\n", clock_seconds() - t, cpu_seconds() - cpu,
               2.0 * (double)m * (double)n * (double)k);
        fflush(stdout);
    }
    for (int i = 0; i < 3; i++)
        free(x[i]);
    free(y[0]);
    free(y[1]);
    free(work);
    return 0;
}
