/* GPUs of this machine: their choice by auto, and the part of their memory that a plan may have. */
#ifndef LTRAIN_TRAIN_GPU_H
#define LTRAIN_TRAIN_GPU_H

#include "comm/comm.h"
#include "device/plugin.h"
#include "model/model.h"
#include "settings/settings.h"

/* Sets the device that auto stands for. It is a GPU that runs programs of the type, if every rank has one. Else it is the
 * processor, and s->unused_gpu says why if there is a driver. */
enum status gpu_find(struct settings *s, struct comm *comm);
/* Settles --dtype auto for the device of the settings, and checks that the device's kernels take the type and the model.
 * capability: compute capability of a GPU; 0: a CPU, or a device that computes as a CPU does. ERR_INVALID: the kernels do not
 * take them. */
enum status gpu_settle_type(struct settings *s, const struct model *m, int capability);
/* Describes the rank's GPU. *bytes: memory for an arena, which is --device-mem, or the free memory less the needs of kernels and
 * libraries. Sets s->gpu_name, s->gpu_sharing and s->staged; moves the process to the GPU's nearest cores. ERR_INVALID, on all
 * ranks: no driver, no plugin, no such GPU, one of another kind than rank 0's, or none for the type. ERR_NOFIT: more is given
 * than is free. */
enum status gpu_limit(struct settings *s, struct comm *comm, struct device_facts *facts, int64_t *bytes);
/* Returns in *bytes the arena's memory without --device-mem; called after gpu_limit. */
enum status gpu_room(const struct settings *s, const struct comm *comm, int64_t *bytes);

#endif
