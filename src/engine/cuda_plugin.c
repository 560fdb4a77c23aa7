/* The plugin's one entry: a GPU with its kernels. In libltrain-cuda.so only. */
#include "engine/cuda_plugin.h"

#include "comm/cuda_nccl.h"
#include "device/cuda/device.h"
#include "device/plugin_headers.h"

/* Refuses a GPU of another kind than planned for: scratch in programs is sized for the planned GPU's kernels. */
static enum status check_target(int device, const struct target *t)
{
    struct device_facts f;
    TRY(cuda_device_describe(device, &f));
    const int same = f.processors == t->processors && f.shared_bytes == t->shared_bytes;
    if (f.capability == t->capability && (f.capability == 0 || same)) /* capability 0: CPU kernels */
        return OK;
    return status_fail(ERR_INVALID,
                       "--device cuda: GPU %d has compute capability %d.%d, %d multiprocessors and %lld bytes of shared memory, "
                       "and the plan is for %d.%d, %d and %lld: take GPUs of one kind",
                       device, f.capability / 10, f.capability % 10, f.processors, (long long)f.shared_bytes, t->capability / 10,
                       t->capability % 10, t->processors, (long long)t->shared_bytes);
}

static enum status open_device(int device, const struct target *t, struct backend **out)
{
    TRY(check_target(device, t));
    TRY(cuda_device_open(device, out));
    (*out)->target = *t;
    enum status st = cuda_plugin_kernels(*out, t);
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
    static struct device_plugin plugin = {.version = DEVICE_PLUGIN_VERSION,
                                          .sentence = status_message,
                                          .count = cuda_device_count,
                                          .describe = cuda_device_describe,
                                          .open = open_device};
    plugin.ops = op_table_digest() + PLUGIN_HEADERS;
    return &plugin;
}
