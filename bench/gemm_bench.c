/* Worker of bench_gemm.py: "ours M N K TA TB ACCUMULATE" and "openblas ..." (the whole product with its own threads) run once on
 * fp32 matrices and answer {"seconds", "cpu_seconds", "flops"}; "kernels" is answered by {"kernels"}, those of OpenBLAS that
 * ltrain uses on this processor. */
#include "base/clock.h"
#include "base/num.h"
#include "ops/blas.h"
#include "ops/gemm.h"

#include <omp.h>
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
    enum { MOST = 32 << 20, WORK = 16 << 20 }; /* elements of each matrix, bytes of workspace */
    char line[256], who[16];
    long long m, n, k;
    int ta, tb, accumulate;
    float *x[3], *work = aligned_alloc(64, WORK);
    if (blas_open() != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    blas.set_num_threads(omp_get_max_threads());
    for (int i = 0; i < 3; i++) {
        x[i] = aligned_alloc(64, MOST * sizeof(float));
        for (int64_t j = 0; x[i] && j < MOST; j++)
            x[i][j] = (float)(j % 1999) * 1e-3f - 1;
    }
    if (work)
        memset(work, 0, WORK);
    while (work && x[0] && x[1] && x[2] && fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "kernels\n") == 0) {
            printf("{\"kernels\": \"%s\"}\n", blas.corename());
            fflush(stdout);
            continue;
        }
        if (sscanf(line, "%15s %lld %lld %lld %d %d %d", who, &m, &n, &k, &ta, &tb, &accumulate) != 7 ||
            max_i64(m * n, max_i64(m * k, k * n)) > MOST)
            return 2;
        const struct gemm_shape s = {m, n, k, ta ? m : k, tb ? k : n, n, ta, tb, F32, F32, F32, accumulate};
        if (ops_gemm_workspace(&s) > WORK)
            return 2;
        const int whole = strcmp(who, "openblas") == 0;
        double cpu = cpu_seconds(), t = clock_seconds();
        if (whole)
            blas.sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n,
                       (blasint)k, 1, x[0], (blasint)s.lda, x[1], (blasint)s.ldb, (float)accumulate, x[2], (blasint)n);
        else
            ops_gemm(&s, x[2], x[0], x[1], work);
        printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"flops\": %.17g}\n", clock_seconds() - t, cpu_seconds() - cpu,
               2.0 * (double)m * (double)n * (double)k);
        fflush(stdout);
    }
    for (int i = 0; i < 3; i++)
        free(x[i]);
    free(work);
    return 0;
}
