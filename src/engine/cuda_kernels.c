/* What libltrain-cuda.so computes with. */
#include "engine/cuda_plugin.h"

enum status cuda_plugin_supports(const struct device_facts *facts)
{
    return status_fail(
        ERR_INVALID,
        "--device cuda: %s is there, but this ltrain has no matrix products for GPUs yet: use cpu or cpu:discrete; "
        "`ltrain plan --machine h100` plans for GPUs",
        facts->name);
}

enum status cuda_plugin_kernels(struct backend *b, int threads)
{
    (void)threads;
    return status_fail(ERR_INVALID, "--device cuda: no matrix products for %s yet", b->name);
}
