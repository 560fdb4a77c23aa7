/* This machine, measured by the kernels and lanes that run.
 *
 * Products, attention and lanes are called directly. The other ops, whose rate depends on the contents of caches, are timed in
 * the programs of small models. The figures are a machine file (machine/hardware.h), kept per host, processor, number of threads
 * and build, on a GPU also per GPU, driver and plugin: $XDG_CACHE_HOME/ltrain/NAME.yaml (or ~/.cache). */
#ifndef LTRAIN_PROFILE_PROFILE_H
#define LTRAIN_PROFILE_PROFILE_H

#include "machine/hardware.h"

/* Loads the cached figures. *found: 1; 0 if there are none; -1 if the file was changed, which is printed. */
enum status profile_load(const struct settings *s, struct hardware *out, int *found);
/* Measures with s->threads threads, with its drives (nvme_path, else the directory of s->out), in under a minute, and keeps the
 * result. Prints its progress. ERR_NOMEM; ERR_IO if the result cannot be kept. */
enum status profile_measure(const struct settings *s, struct hardware *out);

/* Loads, and keeps, figures that the newest run of this host, processor, number of threads and GPU has left, of any build. A file
 * that was changed counts as none. */
enum status profile_load_observed(const struct settings *s, struct hardware *out, int *found);
enum status profile_keep_observed(const struct settings *s, const struct hardware *h);
/* Keeps figures where profile_load finds them; the file is renamed into place. ERR_IO. */
enum status profile_save(const struct settings *s, const struct hardware *h);

/* Measures matrix products and attention (kernels.c). *disturbed: number of shapes that stayed implausibly slow. */
enum status profile_kernels(struct hardware *h, int *disturbed);
/* Measures all other work of compute, in programs, and the overhead of an instruction (ops.c). */
enum status profile_ops(const struct settings *s, struct hardware *h);
/* Measures products, attention, copies and the overhead of an instruction on the GPU that the settings name, for their target
 * (gpu.c). */
enum status profile_gpu(const struct settings *s, struct hardware *h);
/* Measures the rate of a product of 8192 cubed in bf16 on that GPU. */
enum status profile_gpu_peak(const struct settings *s, double *flops);
/* Measures copies, the drives of `path`, and the slowdown of compute beside them (lanes.c). */
enum status profile_lanes(const struct settings *s, const char *path, struct hardware *h);

#endif
