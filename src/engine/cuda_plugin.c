/* The plugin's one entry: a GPU with kernels. In libltrain-cuda.so only. */
#include "engine/cuda_plugin.h"

#include "comm/cuda_nccl.h"
#include "device/cuda/device.h"

static enum status describe(int device, struct device_facts *out)
{
    TRY(cuda_device_describe(device, out));
    return cuda_plugin_supports(out);
}

static enum status open_device(int device, int threads, struct backend **out)
{
    TRY(cuda_device_open(device, out));
    enum status st = cuda_plugin_kernels(*out, threads);
    if (st == OK)
        st = cuda_nccl_attach(*out);
    if (st != OK) {
        (*out)->close(*out);
        *out = NULL;
    }
    return st;
}

__attribute__((visibility("default"))) const struct device_plugin *ltrain_device_plugin(void)
{
    static const struct device_plugin plugin = {.version = DEVICE_PLUGIN_VERSION,
                                                .sentence = status_message,
                                                .count = cuda_device_count,
                                                .describe = describe,
                                                .open = open_device};
    return &plugin;
}
