/* Tensor maps: encodes them in a format of the simulator, refusing what the driver refuses. */
#include "sim.h"

#include <string.h>

#define MAGIC 0x74616d31u

struct encoded {
    uint32_t magic;
    uint8_t element, rank, swizzle, unused; /* swizzle: span in bytes */
    char *base;
    uint64_t stride[4];
    uint32_t size[5];
    uint16_t box[5];
};
static_assert(sizeof(encoded) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");

CUresult tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *size,
                           const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *element_stride,
                           CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    encoded e = {};
    e.magic = MAGIC;
    e.element = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2 : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 0;
    e.rank = (uint8_t)rank;
    e.swizzle = (uint8_t)(swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle);
    e.base = static_cast<char *>(base);
    if (!e.element || rank < 1 || rank > 5 || (uintptr_t)base % 16 != 0 || (uintptr_t)map % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (size[i] == 0 || size[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 || element_stride[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (i > 0 && (stride[i - 1] % 16 != 0 || stride[i - 1] >= 1ull << 40))
            return CUDA_ERROR_INVALID_VALUE;
        e.size[i] = (uint32_t)(size[i] - 1);
        e.box[i] = (uint16_t)box[i];
        if (i > 0)
            e.stride[i - 1] = stride[i - 1];
    }
    uint32_t inner = box[0] * e.element;
    if (inner % 16 != 0 || (e.swizzle && inner > e.swizzle))
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &e, sizeof e);
    return CUDA_SUCCESS;
}

tensor_box tensor_map_box(const CUtensorMap *map, int rank, sim_pc pc)
{
    encoded e;
    if ((uintptr_t)map % 64 != 0)
        sim_fail(pc, "TMA: the tensor map at %p must be 64-byte aligned", static_cast<const void *>(map));
    memcpy(&e, map, sizeof e);
    if (e.magic != MAGIC)
        sim_fail(pc, "TMA: %p is no tensor map made by tma_map_create", static_cast<const void *>(map));
    if (e.rank != rank)
        sim_fail(pc, "TMA: a %dd instruction with a map of rank %d", rank, e.rank);
    tensor_box b = {};
    b.rank = rank;
    b.element = e.element;
    b.base = e.base;
    b.swizzle = e.swizzle;
    b.bytes = e.element;
    for (int i = 0; i < rank; i++) {
        b.size[i] = (uint64_t)e.size[i] + 1;
        b.stride[i] = i ? e.stride[i - 1] : e.element;
        b.box[i] = e.box[i];
        b.bytes *= b.box[i];
    }
    if (b.swizzle && b.box[0] * (uint32_t)b.element != b.swizzle)
        sim_fail(pc, "TMA: inner box of %u bytes with a %u-byte swizzle: only equal ones are simulated",
                 b.box[0] * (uint32_t)b.element, b.swizzle);
    return b;
}
