/* Turning CUDA runtime errors into status codes, in C and in .cu files. */
#ifndef LTRAIN_DEVICE_CUDA_ERRORS_H
#define LTRAIN_DEVICE_CUDA_ERRORS_H

#include "base/status.h"

#include <cuda_runtime.h>
#include <string.h>

/* Converts an error, with the function's name and CUDA's reason in the sentence: TRY(CUDA_STATUS(cudaMemsetAsync(...))). */
static inline enum status cuda_status(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return OK;
    return status_fail(error == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO, "%.*s: %s (%s)", (int)strcspn(call, "("), call,
                       cudaGetErrorString(error), cudaGetErrorName(error));
}
#define CUDA_STATUS(call) cuda_status((call), #call)

#endif
