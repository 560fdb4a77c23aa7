/* What the plugin of GPUs consists of. */
#ifndef LTRAIN_ENGINE_CUDA_PLUGIN_H
#define LTRAIN_ENGINE_CUDA_PLUGIN_H

#include "device/plugin.h"

device_plugin_entry ltrain_device_plugin;

/* Fills in the backend's kernels and target. The plugin has those of GPUs; tests/cudasim/fake has the processor's. */
enum status cuda_plugin_kernels(struct backend *b, int threads);

#endif
