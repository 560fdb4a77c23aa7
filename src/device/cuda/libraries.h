/* Libraries of CUDA, opened when needed. Linking them would cost every start a fraction of a second, and a missing one would be
 * fatal though nothing needs it. */
#ifndef LTRAIN_DEVICE_CUDA_LIBRARIES_H
#define LTRAIN_DEVICE_CUDA_LIBRARIES_H

#include "base/foreign.h"
#include "base/status.h"

#include <cublasLt.h>
#include <nccl.h>

#ifndef CUDA_TOOLKIT /* tests set another directory */
#define CUDA_TOOLKIT FOREIGN_CUDA
#endif

/* Opens a library by dlopen; the handle stays open. ERR_INVALID: not found, or cannot be opened. */
enum status cuda_library_open(const struct foreign_library *l, void **out);

/* Functions used of cuBLASLt, with its names and types. */
#define CUBLASLT_FUNCTIONS(F)               \
    F(cublasLtCreate)                       \
    F(cublasLtDestroy)                      \
    F(cublasLtGetVersion)                   \
    F(cublasLtGetStatusString)              \
    F(cublasLtMatmulDescCreate)             \
    F(cublasLtMatmulDescDestroy)            \
    F(cublasLtMatmulDescSetAttribute)       \
    F(cublasLtMatrixLayoutCreate)           \
    F(cublasLtMatrixLayoutDestroy)          \
    F(cublasLtMatmulPreferenceCreate)       \
    F(cublasLtMatmulPreferenceDestroy)      \
    F(cublasLtMatmulPreferenceSetAttribute) \
    F(cublasLtMatmulAlgoGetHeuristic)       \
    F(cublasLtMatmulAlgoConfigGetAttribute) \
    F(cublasLtMatmul)

struct cublaslt {
#define CUBLASLT_MEMBER(name) __typeof__(name) *name;
    CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
};

/* Functions used of NCCL. */
#define NCCL_FUNCTIONS(F)     \
    F(ncclGetVersion)         \
    F(ncclGetUniqueId)        \
    F(ncclCommInitRankConfig) \
    F(ncclCommGetAsyncError)  \
    F(ncclCommFinalize)       \
    F(ncclCommDestroy)        \
    F(ncclCommAbort)          \
    F(ncclGetErrorString)     \
    F(ncclGetLastError)       \
    F(ncclGroupStart)         \
    F(ncclGroupEnd)           \
    F(ncclSend)               \
    F(ncclRecv)               \
    F(ncclAllGather)

struct nccl {
#define NCCL_MEMBER(name) __typeof__(name) *name;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

/* Opens the library at the first call. */
enum status cuda_libraries_cublaslt(const struct cublaslt **out);
enum status cuda_libraries_nccl(const struct nccl **out);

#endif
