#include "base/mxfp4.h"

const float mxfp4_map[MXFP4_VALUES] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                       -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void mxfp4_dequantise(const uint8_t *scale, const uint8_t *code, int64_t first, int64_t count, float *out)
{
    for (int64_t i = first; i < first + count; i++)
        out[i - first] = mxfp4_map[mxfp4_code(code, i)] * mxfp4_scale(scale[i / MXFP4_BLOCK]);
}
