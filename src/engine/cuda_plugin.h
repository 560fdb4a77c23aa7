/* What the plugin of GPUs consists of. */
#ifndef LTRAIN_ENGINE_CUDA_PLUGIN_H
#define LTRAIN_ENGINE_CUDA_PLUGIN_H

#include "device/plugin.h"

device_plugin_entry ltrain_device_plugin;

/* Kernels: libltrain-cuda.so has those of GPUs (cuda_kernels.c), tests/cudasim/fake the processor's. */

/* Fills in the backend's kernels, made for the target. What has been opened ends with the backend. ERR_INVALID: a library that
 * they need is not there. */
enum status cuda_plugin_kernels(struct backend *b, const struct target *t);

#endif
