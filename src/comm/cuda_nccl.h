/* Messages between GPUs, carried by NCCL. In the plugin of GPUs only. */
#ifndef LTRAIN_COMM_CUDA_NCCL_H
#define LTRAIN_COMM_CUDA_NCCL_H

#include "device/backend.h"

/* Fills in the backend's functions for ranks. The library is opened by the first of them that is called. */
enum status cuda_nccl_attach(struct backend *b);

#endif
