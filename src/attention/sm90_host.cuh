/* Maps and masks for the launchers of the Hopper attention kernels. */
#ifndef LTRAIN_ATTENTION_SM90_HOST_CUH
#define LTRAIN_ATTENTION_SM90_HOST_CUH

#include "attention/cuda_kernels.h"
#include "attention/cuda_mask.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/tma.h"

/* Makes a map of tiles [box_rows, 128 bytes] of one head of x [rows, heads, width]. Widths that do not fill their tiles are
 * padded with zeros by loading beyond dimension 0; stores there are dropped. */
static inline enum status sm90_map_of(CUtensorMap *map, enum tma_type type, void *x, int64_t rows, int heads, int width,
                                      int box_rows)
{
    struct tma_tensor t = {};
    const uint64_t bytes = type == TMA_BF16 ? 2 : 4, row = (uint64_t)width * bytes;
    t.base = x;
    t.type = type;
    t.rank = 3;
    t.size[0] = (uint64_t)width, t.size[1] = (uint64_t)heads, t.size[2] = (uint64_t)rows;
    t.stride_bytes[1] = row, t.stride_bytes[2] = row * (uint64_t)heads;
    t.box[0] = (uint32_t)(128 / bytes), t.box[1] = 1, t.box[2] = (uint32_t)box_rows;
    t.swizzle = TMA_SWIZZLE_128;
    return tma_map_create(map, &t);
}

static inline enum status sm90_map(CUtensorMap *map, void *x, int64_t rows, int heads, int width, int box_rows)
{
    return sm90_map_of(map, TMA_BF16, x, rows, heads, width, box_rows);
}

static inline attn_mask sm90_mask(const struct op_attrs *a, void *lo, void *hi)
{
    attn_mask m = {};
    m.lo = (const int32_t *)lo;
    m.hi = (const int32_t *)hi;
    m.sq = (int32_t)a->attn.sq;
    m.sk = (int32_t)a->attn.sk;
    m.k0 = a->attn.k0;
    return m;
}

#endif
