/* Conversion of numbers into another storage type, which also finds the first one that is not finite. */
#ifndef LTRAIN_BASE_CONVERT_H
#define LTRAIN_BASE_CONVERT_H

#include "base/num.h"

/* Converts n values of a type (fp32, bf16, fp16, fp64) into fp32 or bf16, rounded to nearest even. dst may be src if the types
 * are equal; else they do not overlap. Returns the index of the first result that is NaN or infinite, n if none is. */
int64_t convert_values(enum dtype from, const void *src, enum dtype to, void *dst, int64_t n);

#endif
