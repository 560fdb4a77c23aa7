/* The parts of the GPU plugin. */
#ifndef LTRAIN_ENGINE_CUDA_PLUGIN_H
#define LTRAIN_ENGINE_CUDA_PLUGIN_H

#include "device/plugin.h"

device_plugin_entry ltrain_device_plugin;

/* Kernels come from libltrain-cuda.so (cuda_kernels.c, for GPUs) or from tests/cudasim/fake (the CPU's). */

/* Fills in the backend's kernels, made for the target; they are closed with the backend. ERR_INVALID: a library that they need is
 * missing. */
enum status cuda_plugin_kernels(struct backend *b, const struct target *t);

#endif
