/* GPUs that are here: whether auto takes them, and what of their memory a plan may have. Private to src/train. */
#ifndef LTRAIN_TRAIN_GPU_H
#define LTRAIN_TRAIN_GPU_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Sets the device that auto stands for: a GPU that programs of the type run on, if every rank has one; else the processor. */
enum status gpu_find(struct settings *s, struct comm *comm);
/* Bytes of the rank's GPU that an arena can have: what is given, or what is free, less what kernels and libraries may still take
 * of it. ERR_INVALID, on all ranks: no driver, no plugin, no such GPU, or none for the type. */
enum status gpu_limit(const struct settings *s, struct comm *comm, int64_t *bytes);

#endif
