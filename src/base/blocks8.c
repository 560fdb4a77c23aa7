#include "base/blocks8.h"

#include "base/blocks8_map.h"

#include <math.h>

/* Steps by which a positive number below 1 finds its value: exponents -24 to -1 with the first 7 bits of the mantissa. Each step
 * holds at most one value of a map; a number below all steps is below all values but 0. */
enum { STEP_BITS = 7, LOWEST = 127 - 24, STEPS = 24 << STEP_BITS };

struct finder {
    uint8_t code[STEPS]; /* code of the largest map value that is at most the first number of each step */
};

/* Returns the index of the largest value that is at most x, by bisection; map[0] <= x. */
static int search(const float *map, float x)
{
    int low = 0, high = BLOCK8_VALUES - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (map[middle] <= x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static float number_at(int step)
{
    uint32_t bits = (uint32_t)step + ((uint32_t)LOWEST << STEP_BITS);
    float x;
    bits <<= 23 - STEP_BITS;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static struct finder finders[2];

__attribute__((constructor)) static void make_finders(void)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < STEPS; i++)
            finders[k].code[i] = (uint8_t)search(blocks8_map((enum blocks8_kind)k), number_at(i));
}

const float *blocks8_map(enum blocks8_kind kind)
{
    return kind == BLOCKS8_SIGNED ? map_signed : map_unsigned;
}

/* Returns the index of the largest value that is at most x in [-1, 1]; 0 if all values are above x. */
static inline int floor_code(enum blocks8_kind kind, const float *map, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int step = (int)(bits >> (23 - STEP_BITS)) - (LOWEST << STEP_BITS);
    if (x < 0.0f || step < 0 || step >= STEPS) /* negative, 1, or too small for the table */
        return x < map[0] ? 0 : search(map, x);
    int code = finders[kind].code[step];
    return code + (map[code + 1] <= x);
}

static uint8_t code_of(enum blocks8_kind kind, const float *map, float x, const uint16_t *random)
{
    const int code = floor_code(kind, map, x);
    if (code == BLOCK8_VALUES - 1 || x <= map[code])
        return (uint8_t)code;
    if (kind == BLOCKS8_SQUARES && code == 0)
        return 1; /* a root that is not 0 never becomes 0 */
    const float above = x - map[code], apart = map[code + 1] - map[code];
    if (random)
        return (uint8_t)(code + ((float)*random * apart < above * 65536.0f));
    return (uint8_t)(code + (above > map[code + 1] - x));
}

void blocks8_unpack_block(enum blocks8_kind kind, float scale, const uint8_t *code, int n, float *out)
{
    const float *map = blocks8_map(kind);
    for (int i = 0; i < n; i++) {
        const float x = map[code[i]] * scale;
        out[i] = kind == BLOCKS8_SIGNED ? x : x * x;
    }
}

float blocks8_pack_block(enum blocks8_kind kind, float *x, int n, const uint16_t *random, uint8_t *code)
{
    const float *map = blocks8_map(kind);
    float most = 0.0f;
    for (int i = 0; i < n && kind == BLOCKS8_SQUARES; i++)
        x[i] = sqrtf(x[i]);
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    int positive = 0;
    for (int i = 0; i < n; i++)
        positive |= x[i] == most;
    const float scale = positive ? most : -most;
    for (int i = 0; i < n; i++)
        code[i] = code_of(kind, map, most > 0.0f ? x[i] / scale : 0.0f, random ? random + i : NULL);
    return scale;
}

void blocks8_unpack(enum blocks8_kind kind, const void *packed, int64_t n, float *out)
{
    const float *scale = packed;
    const uint8_t *code = blocks8_codes(packed, n);
    for (int64_t i = 0; i < n; i += BLOCK8)
        blocks8_unpack_block(kind, scale[i / BLOCK8], code + i, (int)min_i64(BLOCK8, n - i), out + i);
}

void blocks8_pack(enum blocks8_kind kind, const float *x, int64_t n, void *packed)
{
    float *scale = packed, block[BLOCK8];
    uint8_t *code = blocks8_codes(packed, n);
    memset((uint8_t *)packed + ceil_div(n, BLOCK8) * 4 + n, 0, (size_t)(blocks8_bytes(n) - ceil_div(n, BLOCK8) * 4 - n));
    for (int64_t i = 0; i < n; i += BLOCK8) {
        const int count = (int)min_i64(BLOCK8, n - i);
        memcpy(block, x + i, (size_t)count * sizeof *block);
        scale[i / BLOCK8] = blocks8_pack_block(kind, block, count, NULL, code + i);
    }
}
