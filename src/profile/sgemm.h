/* The CPU rate by which MFU is defined. */
#ifndef LTRAIN_PROFILE_SGEMM_H
#define LTRAIN_PROFILE_SGEMM_H

#include "base/status.h"

/* Measures FLOP/s as the best of several fp32 products (ops/gemm.h) by the threads that OpenMP uses, until the three fastest agree.
 * They are 1024 cubed, or 512 cubed with few threads, which compute as fast and start sooner. ERR_NOMEM. */
enum status profile_sgemm(double *flops);

#endif
