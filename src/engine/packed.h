/* Frozen quantised matrices (base/quantised.h) at a session's start: quantised while they are loaded, or read as their files have
 * them. Of a stack of experts every matrix is packed by itself, one after another. */
#ifndef LTRAIN_ENGINE_PACKED_H
#define LTRAIN_ENGINE_PACKED_H

#include "engine/source.h"

/* Reads bytes [first, first + n) of the parameter, packed. Up to 8 threads make one whole matrix at a time, since NF4's mean
 * decides the bits of every part. Memory beside the plan's: the matrix's bytes (and those of a slice of it), and 1 MiB of numbers
 * (or a row) per thread.
 * Errors as of source_read. */
enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data);
/* Reads elements [first, first + n) of the parameter as numbers. */
enum status packed_read_f32(struct source *s, int param, int64_t first, int64_t n, float *data);

#endif
