/* Making tensor maps by the driver's encoder, found through the runtime. */
#include "device/cuda/tma.h"

#include "device/cuda/launch.cuh"

typedef CUresult encode_tiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                              const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static enum status find_encoder(encode_tiled **encode)
{
    static encode_tiled *found; /* without a lock: every thread would store the same pointer */
    if (!found) {
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult result;
        TRY(CUDA_STATUS(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result)));
        if (result != cudaDriverEntryPointSuccess || !entry)
            return status_fail(ERR_INVALID,
                               "the driver has no cuTensorMapEncodeTiled (result %d): sm_90 kernels need a CUDA 12 driver",
                               (int)result);
        found = reinterpret_cast<encode_tiled *>(entry);
    }
    *encode = found;
    return OK;
}

static CUtensorMapSwizzle swizzle_of(enum tma_swizzle swizzle)
{
    switch (swizzle) {
    case TMA_SWIZZLE_32:
        return CU_TENSOR_MAP_SWIZZLE_32B;
    case TMA_SWIZZLE_64:
        return CU_TENSOR_MAP_SWIZZLE_64B;
    case TMA_SWIZZLE_128:
        return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
        return CU_TENSOR_MAP_SWIZZLE_NONE;
    }
}

enum status tma_map_create(CUtensorMap *map, const struct tma_tensor *t)
{
    if (t->rank < 2 || t->rank > 5)
        return status_fail(ERR_INVALID, "a tensor map has 2 to 5 dimensions, not %d", t->rank);
    encode_tiled *encode = nullptr;
    TRY(find_encoder(&encode));
    const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
    cuuint64_t size[5] = {}, stride[5] = {};
    cuuint32_t box[5] = {};
    for (int i = 0; i < t->rank; i++) {
        size[i] = t->size[i];
        stride[i] = t->stride_bytes[i];
        box[i] = t->box[i];
    }
    CUresult r = encode(map, t->type == TMA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                        (cuuint32_t)t->rank, t->base, size, stride + 1, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        swizzle_of(t->swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        return status_fail(
            ERR_INVALID,
            "cuTensorMapEncodeTiled refused (%d) a tensor of rank %d at %p: sizes %llu x %llu, row stride %llu bytes, "
            "box %u x %u, swizzle %d; base and strides must be multiples of 16 bytes, boxes at most 256",
            (int)r, t->rank, t->base, (unsigned long long)size[0], (unsigned long long)size[1], (unsigned long long)stride[1],
            box[0], box[1], (int)t->swizzle);
    return OK;
}
