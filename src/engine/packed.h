/* Frozen matrices in NF4 from where a session's parameters begin: quantised while they are loaded, or as their files have them. */
#ifndef LTRAIN_ENGINE_PACKED_H
#define LTRAIN_ENGINE_PACKED_H

#include "engine/source.h"

/* Bytes [first, first + n) of the parameter, packed (base/nf4.h). Its mean decides the bits of every part, so that it is made whole,
 * one at a time: its bytes, and 16 MiB of numbers, beside the plan's memory. Errors as source_read. */
enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data);
/* Its elements [first, first + n), as numbers. */
enum status packed_read_f32(struct source *s, int param, int64_t first, int64_t n, float *data);
/* The type that the file's matrix had before bitsandbytes quantised it: F32, BF16 or F16. */
enum status packed_file_type(struct source *s, int param, enum dtype *out);

#endif
