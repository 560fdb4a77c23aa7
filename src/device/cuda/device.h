/* A GPU as a backend, without kernels, which the plugin adds (engine/cuda_plugin.c). */
#ifndef LTRAIN_DEVICE_CUDA_DEVICE_H
#define LTRAIN_DEVICE_CUDA_DEVICE_H

#include "device/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the GPUs, as struct device_plugin's `count`. */
enum status cuda_device_count(int *devices);
enum status cuda_device_describe(int device, struct device_facts *out);
/* Opens a device as a backend whose kernels and target are still to be filled in. */
enum status cuda_device_open(int device, struct backend **out);

#ifdef __cplusplus
}
#endif
#endif
