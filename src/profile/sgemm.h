/* The rate that MFU refers to on a CPU. */
#ifndef LTRAIN_PROFILE_SGEMM_H
#define LTRAIN_PROFILE_SGEMM_H

#include "base/status.h"

/* FLOP/s of the best of several fp32 products (ops/gemm.h) by the threads that OpenMP uses, of 1024 cubed, or of 512 cubed by few
 * threads, which compute as fast and start sooner. ERR_NOMEM. */
enum status profile_sgemm(double *flops);

#endif
