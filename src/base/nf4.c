#include "base/nf4.h"

#include "base/blocks8.h"

#include <math.h>

/* Quantiles of the normal distribution, with an exact 0. */
const float nf4_map[NF4_VALUES] = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};

struct nf4_parts nf4_parts(void *packed, int64_t n, enum nf4_scales s)
{
    float *f = packed, *from = f + NF4_VALUES;
    struct nf4_parts p = {.map = f, .code = (uint8_t *)packed + nf4_scale_bytes(n, s)};
    if (s == NF4_PLAIN) {
        p.scale = from;
        return p;
    }
    p.mean = from;
    p.nested = from + 1;
    p.most = p.nested + NF4_NESTED_VALUES;
    p.scale_code = (uint8_t *)(f + nf4_scale_floats(n, s));
    return p;
}

/* ---- numbers ---- */

static float largest(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static float within_one(float x)
{
    return x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
}

#define LEAST_SCALE 1e-38f /* smallest divisor used for a block's scale */

/* Quantises one block, and returns its scale. A full block is multiplied by the scale's inverse, a shorter last one divided by
 * the scale, as in bitsandbytes. A number becomes the nearest value of the map, the lower of two equally near ones. */
static float quantise_block(const float *x, int n, uint8_t code[NF4_BLOCK])
{
    float scaled[NF4_BLOCK] = {0}, most = largest(x, n);
    int32_t above[NF4_BLOCK] = {0};
    const float divisor = most < LEAST_SCALE ? LEAST_SCALE : most, inverse = 1.0f / divisor;
    for (int i = 0; i < n; i++)
        scaled[i] = within_one(n == NF4_BLOCK ? x[i] * inverse : x[i] / divisor);
    for (int j = 0; j + 1 < NF4_VALUES; j++) {
        const float middle = (nf4_map[j] + nf4_map[j + 1]) / 2.0f;
        for (int i = 0; i < NF4_BLOCK; i++)
            above[i] += scaled[i] > middle;
    }
    for (int i = 0; i < NF4_BLOCK; i++)
        code[i] = (uint8_t)above[i];
    return n == NF4_BLOCK ? most : divisor;
}

void nf4_quantise(const float *x, int64_t n, float *scale, uint8_t *code)
{
    for (int64_t b = 0; b < nf4_blocks(n); b++) {
        const int count = (int)min_i64(NF4_BLOCK, n - b * NF4_BLOCK);
        uint8_t one[NF4_BLOCK], *to = code + b * (NF4_BLOCK / 2);
        scale[b] = quantise_block(x + b * NF4_BLOCK, count, one);
        for (int i = 0; i < count; i += 2)
            to[i / 2] = (uint8_t)(one[i] << 4 | one[i + 1]);
    }
}

void nf4_dequantise(const void *packed, int64_t n, enum nf4_scales s, int64_t first, int64_t count, float *out)
{
    const uint8_t *code = (const uint8_t *)packed + nf4_scale_bytes(n, s);
    for (int64_t i = 0; i < count; i++)
        out[i] = nf4_map[nf4_code(code, first + i)] * nf4_scale(packed, n, s, (first + i) / NF4_BLOCK);
}

/* ---- nested scales ---- */

enum { WIDTH = 8, STREAMS = 4, LEVELS = 4 };

/* Sums rows of `columns` numbers in levels: the sum of each 2^k rows is added to a sum of sums, and so on. */
static void sum_rows(const float *x, int64_t rows, int columns, float *sum)
{
    float level[LEVELS][WIDTH * STREAMS] = {{0}};
    int power = 0;
    while (((int64_t)1 << power) < rows)
        power++;
    power = power / LEVELS > 4 ? power / LEVELS : 4;
    for (int64_t i = 0; i < rows;) {
        for (int k = 0; k < columns; k++)
            level[0][k] += x[i * columns + k];
        i++;
        for (int j = 1; j < LEVELS && i % ((int64_t)1 << j * power) == 0; j++)
            for (int k = 0; k < columns; k++) {
                level[j][k] += level[j - 1][k];
                level[j - 1][k] = 0.0f;
            }
    }
    for (int j = 1; j < LEVELS; j++)
        for (int k = 0; k < columns; k++)
            level[0][k] += level[j][k];
    memcpy(sum, level[0], (size_t)columns * sizeof *sum);
}

/* Adds numbers in the order in which PyTorch sums a vector on one thread: in four streams of vectors of eight, or of single
 * numbers if there are fewer than eight. */
static float sum_of(const float *x, int64_t n)
{
    const int width = n < WIDTH ? 1 : WIDTH;
    const int64_t vectors = n / width, rows = vectors / STREAMS;
    float stream[WIDTH * STREAMS], sum = 0.0f;
    sum_rows(x, rows, width * STREAMS, stream);
    for (int64_t i = rows * STREAMS * width; i < vectors * width; i++)
        stream[i % width] += x[i];
    for (int s = 1; s < STREAMS; s++)
        for (int k = 0; k < width; k++)
            stream[k] += stream[s * width + k];
    for (int64_t i = vectors * width; i < n; i++)
        sum += x[i];
    for (int k = 0; k < width; k++)
        sum += stream[k];
    return sum;
}

/* Finds the code of x in [-1, 1] as bitsandbytes does, by a table of 65,536 steps. */
static uint8_t code_of(const float *map, float x)
{
    enum { STEPS = 65536 };
    const int step = (int)fmaf((within_one(x) + 1.0f) * 0.5f, STEPS - 1, 0.5f);
    const float at = -1.0f + 2.0f * (float)step / (STEPS - 1);
    int low = 0, high = NF4_NESTED_VALUES - 1; /* bisection: finds how many midpoints between values are below `at` */
    while (low < high) {
        const int i = (low + high) / 2;
        if (0.5f * (map[i] + map[i + 1]) < at)
            low = i + 1;
        else
            high = i;
    }
    return (uint8_t)low;
}

static void nest_block(const float *scale, int n, float mean, const float *map, float *most, uint8_t *code)
{
    float x[NF4_NESTED_BLOCK];
    for (int i = 0; i < n; i++)
        x[i] = scale[i] - mean;
    *most = largest(x, n);
    const float inverse = 1.0f / *most;
    for (int i = 0; i < n; i++)
        code[i] = *most == 0.0f ? 0 : code_of(map, x[i] * inverse);
}

void nf4_pack_scales(const float *scale, int64_t n, enum nf4_scales s, void *packed)
{
    const int64_t blocks = nf4_blocks(n);
    struct nf4_parts p = nf4_parts(packed, n, s);
    memset(packed, 0, (size_t)nf4_scale_bytes(n, s));
    memcpy(p.map, nf4_map, sizeof nf4_map);
    if (s == NF4_PLAIN) {
        memcpy(p.scale, scale, (size_t)blocks * sizeof *scale);
        return;
    }
    memcpy(p.nested, blocks8_map(BLOCKS8_SIGNED), NF4_NESTED_VALUES * sizeof *p.nested);
    *p.mean = sum_of(scale, blocks) / (float)blocks;
    for (int64_t i = 0; i < blocks; i += NF4_NESTED_BLOCK)
        nest_block(scale + i, (int)min_i64(NF4_NESTED_BLOCK, blocks - i), *p.mean, p.nested, &p.most[i / NF4_NESTED_BLOCK],
                   p.scale_code + i);
}
