/* The rate that MFU refers to on a CPU. */
#ifndef LTRAIN_PROFILE_SGEMM_H
#define LTRAIN_PROFILE_SGEMM_H

#include "base/status.h"

/* FLOP/s of the best of several fp32 products of 1024 cubed (ops/gemm.h) by the threads that OpenMP uses. ERR_NOMEM. */
enum status profile_sgemm(double *flops);

#endif
