/* A GPU as a backend, without kernels: those are the plugin's (engine/cuda_plugin.c). */
#ifndef LTRAIN_DEVICE_CUDA_DEVICE_H
#define LTRAIN_DEVICE_CUDA_DEVICE_H

#include "device/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As in struct device_plugin. */
enum status cuda_device_count(int *devices);
enum status cuda_device_describe(int device, struct device_facts *out);
/* A backend whose kernels and target are still to be filled in. */
enum status cuda_device_open(int device, struct backend **out);

#ifdef __cplusplus
}
#endif
#endif
