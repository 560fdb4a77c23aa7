/* Frozen matrices that are quantised (base/quantised.h) from where a session's parameters begin: quantised while they are loaded, or as
 * their files have them. */
#ifndef LTRAIN_ENGINE_PACKED_H
#define LTRAIN_ENGINE_PACKED_H

#include "engine/source.h"

/* Bytes [first, first + n) of the parameter, packed. NF4's mean decides the bits of every part, so that a matrix is made whole, one at a
 * time, by up to 8 threads: its bytes, and 1 MiB of numbers (or a row) for each of them, beside the plan's memory. Errors as source_read. */
enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data);
/* Its elements [first, first + n), as numbers. */
enum status packed_read_f32(struct source *s, int param, int64_t first, int64_t n, float *data);

#endif
