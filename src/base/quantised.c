#include "base/quantised.h"

void quantised_numbers(const void *packed, const struct quantised *q, int64_t first, int64_t count, float *out)
{
    if (q->form == QUANTISED_MXFP4) {
        mxfp4_dequantise(packed, (const uint8_t *)packed + quantised_scale_bytes(q), first, count, out);
        return;
    }
    if (q->form != QUANTISED_INT8) {
        nf4_dequantise(packed, q->rows * q->columns, quantised_scales(q->form), first, count, out);
        return;
    }
    const float *scale = packed;
    const int8_t *code = (const int8_t *)packed + rows8_scale_bytes(q->rows);
    for (int64_t i = 0; i < count; i++)
        out[i] = rows8_number(code[first + i], scale[(first + i) / q->columns]);
}
