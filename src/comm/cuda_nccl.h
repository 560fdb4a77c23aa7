/* Messages between GPUs, carried by NCCL. Only in the plugin for GPUs. */
#ifndef LTRAIN_COMM_CUDA_NCCL_H
#define LTRAIN_COMM_CUDA_NCCL_H

#include "device/backend.h"

/* Fills in the backend's functions for ranks. The first of them that is called opens the library. */
enum status cuda_nccl_attach(struct backend *b);

#endif
