/* The rate that MFU refers to on a CPU. */
#ifndef LTRAIN_PROFILE_SGEMM_H
#define LTRAIN_PROFILE_SGEMM_H

#include "base/status.h"

/* FLOP/s of the best of several sgemm of 1024 cubed on that many threads. ERR_NOMEM, or what opening BLAS says. */
enum status profile_sgemm(int threads, double *flops);

#endif
