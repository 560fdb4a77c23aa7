/* OpenBLAS, opened at run time instead of linked, because it chooses its kernels while it is being loaded.
 *
 * A release older than the processor takes its oldest kernels (0.3.21 on Emerald Rapids: SSE3, 61 of 196 GFLOP/s). Where what it
 * took is behind what CPUID offers, it is unloaded and loaded again with OPENBLAS_CORETYPE set; a value that the user has set is
 * kept. */
#ifndef LTRAIN_OPS_BLAS_H
#define LTRAIN_OPS_BLAS_H

#include "base/status.h"

#include <cblas.h>

struct blas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_set_num_threads) *set_num_threads;
    __typeof__(openblas_get_corename) *corename; /* of the kernels in use: part of the numerics key */
};

/* Filled by blas_open. */
extern struct blas blas;

/* Opens the library once per process; later calls return OK at once. While other threads run, the environment must not be read.
 */
enum status blas_open(void);

#endif
