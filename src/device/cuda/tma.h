/* Tensor maps for TMA (sm_90), made without linking libcuda. */
#ifndef LTRAIN_DEVICE_CUDA_TMA_H
#define LTRAIN_DEVICE_CUDA_TMA_H

#include "base/status.h"

#include <cuda.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tma_type { TMA_BF16, TMA_F32 };
/* Swizzle modes, numbered by span in bytes: a box's inner dimension has at most that many bytes (none: any number). Its tile in
 * shared memory is aligned to 1024 bytes for a span of 128, 512 for 64, 256 for 32, 128 for none. */
enum tma_swizzle { TMA_SWIZZLE_NONE = 0, TMA_SWIZZLE_32 = 32, TMA_SWIZZLE_64 = 64, TMA_SWIZZLE_128 = 128 };

/* A tensor in global memory, dimension 0 innermost and contiguous. base: 16-byte aligned device memory; strides: multiples of 16. */
struct tma_tensor {
    void *base;
    enum tma_type type;
    int rank;                 /* 2 to 5 */
    uint64_t size[5];         /* elements */
    uint64_t stride_bytes[5]; /* stride of dimension i; [0] is ignored */
    uint32_t box[5];          /* elements of one tile, 1 to 256 each */
    enum tma_swizzle swizzle;
};

/* Fills *map (64-byte aligned; hand it to kernels as `const __grid_constant__ CUtensorMap`). Loads outside the tensor give zeros;
 * stores there are dropped. Needs a driver. ERR_INVALID names the number that TMA cannot take. */
enum status tma_map_create(CUtensorMap *map, const struct tma_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
