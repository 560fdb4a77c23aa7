/* This machine, measured by the kernels and lanes that run..
 *
 * Products, attention and lanes are called directly; the other ops, whose rate depends on what the caches hold, are timed in the
 * programs of small models. The figures are a machine file (machine/hardware.h), kept per host, processor, number of threads and
 * build, on a GPU also per GPU, driver and plugin: $XDG_CACHE_HOME/ltrain/NAME.yaml (or ~/.cache). */
#ifndef LTRAIN_PROFILE_PROFILE_H
#define LTRAIN_PROFILE_PROFILE_H

#include "machine/hardware.h"

/* The cached figures. *found: 1; 0 if there are none; -1 if the file is not what was written, which is printed. */
enum status profile_load(const struct settings *s, struct hardware *out, int *found);
/* Measures with s->threads threads, its drives (nvme_path, else the directory that s->out is in), in under a minute, and
 * keeps the result. Prints what it does. ERR_NOMEM; ERR_IO if the result cannot be kept. */
enum status profile_measure(const struct settings *s, struct hardware *out);

/* Keeps figures where profile_load finds them; the file is renamed into place. ERR_IO. */
enum status profile_save(const struct settings *s, const struct hardware *h);

/* kernels.c: matrix products and attention. *disturbed: shapes that stayed implausibly slow. */
enum status profile_kernels(struct hardware *h, int *disturbed);
/* ops.c: everything else that compute does, in programs; the overhead of an instruction. */
enum status profile_ops(const struct settings *s, struct hardware *h);
/* gpu.c: products, attention, copies and the overhead of an instruction on the GPU that the settings name, for their target. */
enum status profile_gpu(const struct settings *s, struct hardware *h);
/* The rate of a product of 8192 cubed in bf16 there. */
enum status profile_gpu_peak(const struct settings *s, double *flops);
/* lanes.c: copies, drives in `path`, and how much compute slows beside them. */
enum status profile_lanes(const struct settings *s, const char *path, struct hardware *h);

#endif
