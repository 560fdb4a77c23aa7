/* The fake cuBLASLt for programs that are linked with it, instead of opening a library as device/cuda/libraries.c does. */
#include "device/cuda/libraries.h"

enum status cuda_libraries_cublaslt(const struct cublaslt **out)
{
    static const struct cublaslt functions = {
#define FUNCTION(name) .name = name,
        CUBLASLT_FUNCTIONS(FUNCTION)};
    *out = &functions;
    return OK;
}
