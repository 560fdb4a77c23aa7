/* What the plugin of GPUs consists of. */
#ifndef LTRAIN_ENGINE_CUDA_PLUGIN_H
#define LTRAIN_ENGINE_CUDA_PLUGIN_H

#include "device/plugin.h"

device_plugin_entry ltrain_device_plugin;

/* Kernels: libltrain-cuda.so has those of GPUs (cuda_kernels.c), tests/cudasim/fake the processor's. */

/* ERR_INVALID: none that run on the device. */
enum status cuda_plugin_supports(const struct device_facts *facts);
/* Fills in the backend's kernels and target. */
enum status cuda_plugin_kernels(struct backend *b, int threads);

#endif
