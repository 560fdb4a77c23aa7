/* Changing the storage type of numbers, and scaling them. */
#ifndef LTRAIN_OPS_CAST_H
#define LTRAIN_OPS_CAST_H

#include <stdint.h>

/* Converts y = x, to bf16 rounded to nearest even; equal types are copied. y and x must not overlap. */
void ops_cast(void *y /* T_y[n] */, const void *x /* T_x[n] */, int64_t n, int32_t y_type, int32_t x_type);

/* Computes y = scale * x. */
void ops_scale(void *y /* T[n], may be x */, const void *x /* T[n] */, float scale, int64_t n, int32_t dtype);

#endif
