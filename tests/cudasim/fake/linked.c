/* The fake cuBLASLt, linked into a program in place of the library that device/cuda/libraries.c opens. */
#include "device/cuda/libraries.h"

enum status cuda_libraries_cublaslt(const struct cublaslt **out)
{
    static const struct cublaslt functions = {
#define FUNCTION(name) .name = name,
        CUBLASLT_FUNCTIONS(FUNCTION)};
    *out = &functions;
    return OK;
}
