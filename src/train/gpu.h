/* GPUs that are here: whether auto takes them, and what of their memory a plan may have. Private to src/train. */
#ifndef LTRAIN_TRAIN_GPU_H
#define LTRAIN_TRAIN_GPU_H

#include "comm/comm.h"
#include "device/plugin.h"
#include "model/model.h"
#include "settings/settings.h"

/* Sets the device that auto stands for: a GPU that programs of the type run on, if every rank has one; else the processor, and
 * s->unused_gpu says why, where there is a driver. */
enum status gpu_find(struct settings *s, struct comm *comm);
/* Settles --dtype auto for the device of the settings, and whether its kernels take the type and the model. capability: of a GPU;
 * 0: of a processor, or of what computes as one. ERR_INVALID. */
enum status gpu_settle_type(struct settings *s, const struct model *m, int capability);
/* The rank's GPU, and bytes of it that an arena can have: what is given, or what is free, less what kernels and libraries may
 * still take of it. Sets s->gpu_name, s->gpu_sharing and s->staged. The process moves to the cores nearest to it. ERR_INVALID, on
 * all ranks: no driver, no plugin, no such GPU, one of another kind than rank 0's, or none for the type; ERR_NOFIT: more is given
 * than is free. */
enum status gpu_limit(struct settings *s, struct comm *comm, struct device_facts *facts, int64_t *bytes);
/* What an arena can have without --device-mem; after gpu_limit. */
enum status gpu_room(const struct settings *s, const struct comm *comm, int64_t *bytes);

#endif
