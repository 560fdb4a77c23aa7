/* Storage types and their conversions; rounding to nearest even everywhere. */
#ifndef LTRAIN_BASE_NUM_H
#define LTRAIN_BASE_NUM_H

#include <stdint.h>
#include <string.h>

enum dtype { F32, BF16, I8 /* AdamW moments: blocks with a scale each (base/blocks8.h) */, F16, F64, I32 };

static inline int64_t dtype_size(enum dtype t)
{
    return t == F64 ? 8 : t == I8 ? 1 : t == BF16 || t == F16 ? 2 : 4;
}

static inline const char *dtype_name(enum dtype t)
{
    static const char *const names[] = {"fp32", "bf16", "int8", "fp16", "fp64", "i32"};
    return names[t];
}

typedef uint16_t bf16;

static inline float bf16_to_float(bf16 x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline bf16 bf16_from_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (bf16)((u >> 16) | 0x40u); /* NaN stays NaN */
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline int64_t round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Returns the greatest common divisor; that of x and 0 is x. */
static inline int64_t gcd_i64(int64_t x, int64_t y)
{
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

static inline int64_t ceil_div(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
