/* The rate that MFU refers to on a CPU. */
#include "profile/sgemm.h"

#include "base/clock.h"
#include "base/sys.h"
#include "ops/blas.h"

#include <stdlib.h>

enum status profile_sgemm(int threads, double *flops)
{
    enum { N = 1024 };
    double best = 1e30;
    TRY(blas_open());
    float *a = sys_calloc(3 * N * N, sizeof *a);
    if (!a)
        return status_fail(ERR_NOMEM, "out of memory to measure matrix products");
    blas.set_num_threads(threads); /* the kernels thread matrix products themselves: back to one below */
    for (int i = 0; i < 12; i++) {
        double t = clock_seconds();
        blas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, a + N * N, N, 0, a + 2 * N * N, N);
        t = clock_seconds() - t;
        if (i > 0 && t < best)
            best = t;
    }
    blas.set_num_threads(1);
    free(a);
    *flops = 2.0 * N * N * N / best;
    return OK;
}
