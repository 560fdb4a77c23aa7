/* The CPU rate by which MFU is defined. */
#include "profile/sgemm.h"

#include "base/clock.h"
#include "base/sys.h"
#include "ops/gemm.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum status profile_sgemm(double *flops)
{
    enum { ROUNDS = 12, FEW = 4 };
    const int64_t n = omp_get_max_threads() <= FEW ? 512 : 1024; /* a few milliseconds of each thread */
    const struct gemm_shape s = {.m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n};
    const size_t matrix = sizeof(float) * (size_t)(n * n), work = (size_t)ops_gemm_workspace(&s);
    double best = 1e30;
    char *a = sys_malloc(3 * matrix + work);
    if (!a)
        return status_fail(ERR_NOMEM, "out of memory to measure matrix products");
    memset(a, 0, 3 * matrix + work);
    for (int i = 0; i < ROUNDS; i++) {
        double t = clock_seconds();
        ops_gemm(&s, a + 2 * matrix, a, a + matrix, a + 3 * matrix);
        t = clock_seconds() - t;
        if (i > 0 && t < best)
            best = t;
    }
    free(a);
    *flops = 2.0 * (double)(n * n * n) / best;
    return OK;
}
