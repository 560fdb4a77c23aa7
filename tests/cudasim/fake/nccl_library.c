/* The library in which the plugin finds NCCL, here the fake one. */
#include "fake.h"

#include "device/cuda/libraries.h"

enum status cuda_libraries_nccl(const struct nccl **out)
{
#define ENTRY(name) .name = name,
    static const struct nccl functions = {NCCL_FUNCTIONS(ENTRY)};
#undef ENTRY
    if (nccl_is_absent())
        return status_fail(ERR_INVALID, "--device cuda: there is no libnccl.so.2");
    *out = &functions;
    return OK;
}
