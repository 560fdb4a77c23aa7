/* Quantised matrices in any of the forms in which a frozen base may be kept: a part with scales, then a part with codes. */
#ifndef LTRAIN_BASE_QUANTISED_H
#define LTRAIN_BASE_QUANTISED_H

#include "base/mxfp4.h"
#include "base/nf4.h"
#include "base/rows8.h"

/* NF4 with plain or nested scales (base/nf4.h), int8 (base/rows8.h), or MXFP4 (base/mxfp4.h). */
enum quantised_form { QUANTISED_NF4_PLAIN, QUANTISED_NF4, QUANTISED_INT8, QUANTISED_MXFP4 };

struct quantised {
    enum quantised_form form;
    int64_t rows, columns;
};

/* Returns how a matrix in NF4 keeps its scales. */
static inline enum nf4_scales quantised_scales(enum quantised_form form)
{
    return form == QUANTISED_NF4 ? NF4_NESTED : NF4_PLAIN;
}

static inline int64_t quantised_scale_bytes(const struct quantised *q)
{
    const int64_t n = q->rows * q->columns;
    return q->form == QUANTISED_INT8    ? rows8_scale_bytes(q->rows)
           : q->form == QUANTISED_MXFP4 ? mxfp4_scale_bytes(n)
                                        : nf4_scale_bytes(n, quantised_scales(q->form));
}

static inline int64_t quantised_bytes(const struct quantised *q)
{
    const int64_t n = q->rows * q->columns;
    return q->form == QUANTISED_INT8    ? rows8_bytes(q->rows, q->columns)
           : q->form == QUANTISED_MXFP4 ? mxfp4_bytes(n)
                                        : nf4_bytes(n, quantised_scales(q->form));
}

/* Returns the number of elements whose codes share a byte. */
static inline int64_t quantised_per_byte(enum quantised_form form)
{
    return form == QUANTISED_INT8 ? 1 : 2;
}

/* Dequantises elements [first, first + count). packed: aligned to 4 bytes. */
void quantised_numbers(const void *packed, const struct quantised *q, int64_t first, int64_t count, float *out);

#endif
