/* The CPU rate by which MFU is defined. */
#include "profile/sgemm.h"

#include "base/clock.h"
#include "base/sys.h"
#include "ops/gemm.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 1.05 /* times this near to the fastest agree with that one; a shared machine differs by more from run to run */
#define AGREE 3   /* products that agree end the measurement, after 4 of 12 rounds at the earliest */

enum status profile_sgemm(double *flops)
{
    enum { ROUNDS = 12, FEW = 4 };
    const int64_t n = omp_get_max_threads() <= FEW ? 512 : 1024; /* a few milliseconds of each thread */
    const struct gemm_shape s = {.m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n};
    const size_t matrix = sizeof(float) * (size_t)(n * n), work = (size_t)ops_gemm_workspace(&s);
    double seconds[ROUNDS], best = INFINITY;
    int agree = 0;
    char *a = sys_malloc(3 * matrix + work);
    if (!a)
        return status_fail(ERR_NOMEM, "out of memory to measure matrix products");
    memset(a, 0, 3 * matrix + work);
    for (int i = 0; i < ROUNDS && agree < AGREE; i++) {
        const double begun = clock_seconds();
        ops_gemm(&s, a + 2 * matrix, a, a + matrix, a + 3 * matrix);
        seconds[i] = clock_seconds() - begun;
        if (i == 0) /* threads begin, and pages are touched */
            continue;
        best = fmin(best, seconds[i]);
        agree = 0;
        for (int k = 1; k <= i; k++)
            agree += seconds[k] <= NEAR * best;
    }
    free(a);
    *flops = 2.0 * (double)(n * n * n) / best;
    return OK;
}
