/* Starting kernels: one checked template instead of <<<>>>, so that the same call starts a kernel in tests/cudasim. */
#ifndef LTRAIN_DEVICE_CUDA_LAUNCH_CUH
#define LTRAIN_DEVICE_CUDA_LAUNCH_CUH

#include "device/cuda/arch.cuh"
#include "device/cuda/errors.h"

template <class T> struct launch_exactly {
    using type = T;
};

/* Starts kernel(args...) on `stream` without waiting for it. smem: bytes of dynamic shared memory (sizeof of the struct given to
 * LT_SHARED), opted in to when above the default 48 KiB. An empty grid is OK and starts nothing. Arguments convert to the
 * kernel's parameter types. Errors: ERR_IO with CUDA's reason. */
template <class... P>
static enum status launch(dim3 grid, dim3 block, size_t smem, void *stream, void (*kernel)(P...),
                          typename launch_exactly<P>::type... args)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return OK;
    const cudaLaunchConfig_t config = {grid, block, smem, (cudaStream_t)stream, nullptr, 0};
    const void *function = reinterpret_cast<const void *>(kernel);
    if (smem > 48 * 1024)
        TRY(CUDA_STATUS(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem)));
#if defined(LT_CUDASIM)
    return cuda_status(sim_launch<P...>(&config, kernel, args...), "kernel launch");
#else
    void *list[] = {const_cast<void *>(static_cast<const void *>(&args))..., nullptr};
    return cuda_status(cudaLaunchKernelExC(&config, function, list), "kernel launch");
#endif
}

#endif
