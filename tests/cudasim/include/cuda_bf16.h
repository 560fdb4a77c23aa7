/* Replaces CUDA's header: bfloat16 and its conversions, which round to nearest even as the hardware does. */
#ifndef CUDASIM_CUDA_BF16_H
#define CUDASIM_CUDA_BF16_H

#include <cuda_runtime.h>

static inline float sim_float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint32_t sim_bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline uint16_t sim_bf16_bits(float f)
{
    uint32_t u = sim_bits_of_float(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) : bits(sim_bf16_bits(f))
    {
    }
    explicit __nv_bfloat16(double f) : bits(sim_bf16_bits((float)f))
    {
    }
    explicit __nv_bfloat16(int f) : bits(sim_bf16_bits((float)f))
    {
    }
    operator float() const
    {
        return sim_float_of_bits((uint32_t)bits << 16);
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b)
    {
    }
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __nv_bfloat16(f);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    return __nv_bfloat16(f);
}

static inline float __bfloat162float(__nv_bfloat16 b)
{
    return (float)b;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 a)
{
    return __floats2bfloat162_rn(a.x, a.y);
}

static inline float2 __bfloat1622float2(__nv_bfloat162 b)
{
    return make_float2((float)b.x, (float)b.y);
}

static inline float __low2float(__nv_bfloat162 b)
{
    return (float)b.x;
}

static inline float __high2float(__nv_bfloat162 b)
{
    return (float)b.y;
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162(a, b);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u)
{
    __nv_bfloat16 b;
    b.bits = u;
    return b;
}

#endif
