/* Libraries of CUDA that are opened when they are needed. Linking them would cost every start some of a second, and one that is
 * missing would be fatal though nothing needs it. */
#ifndef LTRAIN_DEVICE_CUDA_LIBRARIES_H
#define LTRAIN_DEVICE_CUDA_LIBRARIES_H

#include "base/status.h"

#include <cublasLt.h>
#include <nccl.h>

#ifndef CUDA_TOOLKIT /* tests have one of their own */
#define CUDA_TOOLKIT "/usr/local/cuda"
#endif

struct cuda_library {
    const char *name;     /* libcublasLt.so.13 */
    const char *wheel[2]; /* directories of Python's packages that have it, newest first */
    const char *package;  /* for people */
};

/* Files that the library may be, in the order in which they are tried after the loader's own places: the toolkit's directories,
 * CUDA_HOME's, those of Python's packages (the active environment's, PYTHONPATH's, that of the python3 on PATH, the user's, the
 * system's). Calls visit(user, path) for each that exists until it returns nonzero. */
int cuda_library_search(const struct cuda_library *l, int (*visit)(void *user, const char *path), void *user);
/* dlopen's handle, which stays open. ERR_INVALID: it is nowhere, or cannot be opened. */
enum status cuda_library_open(const struct cuda_library *l, void **out);

/* What is used of cuBLASLt, by the names and the types that it has there. */
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

/* And of NCCL. */
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

/* Open the library at the first call. */
enum status cuda_libraries_cublaslt(const struct cublaslt **out);
enum status cuda_libraries_nccl(const struct nccl **out);

#endif
