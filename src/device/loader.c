/* Finding and opening the plugin. */
#include "device/plugin.h"

#include "base/library.h"
#include "build_config.h"
#include "device/plugin_headers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER "libcuda.so.1"
#define PLUGIN "libltrain-cuda.so"

static const char *named(void)
{
    const char *path = getenv("LTRAIN_CUDA_PLUGIN");
    return path && path[0] ? path : NULL;
}

static int there_is_a_driver(void)
{
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    return driver != NULL; /* the driver stays open, since the plugin needs it */
}

int device_plugin_expected(void)
{
    return named() || there_is_a_driver();
}

static enum status open_library(void **library)
{
    char path[4200];
    const char *given = named();
    if (given) {
        *library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
        return *library ? OK : status_fail(ERR_INVALID, "--device cuda: LTRAIN_CUDA_PLUGIN cannot be opened: %s", dlerror());
    }
    if (!there_is_a_driver())
        return status_fail(ERR_INVALID,
                           "--device cuda: there is no NVIDIA driver here: %s: use cpu or cpu:discrete; `ltrain plan "
                           "--machine h100` plans for GPUs, and `ltrain doctor` looks for what is amiss",
                           dlerror());
    if (library_find(PLUGIN, path, sizeof path)) {
        *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        return *library ? OK : status_fail(ERR_INVALID, "--device cuda: the CUDA plugin cannot be opened: %s", dlerror());
    }
    return status_fail(ERR_INVALID,
                       "--device cuda: there is a driver, but no CUDA plugin: neither %s nor %s/" PLUGIN
                       ": this ltrain was built without nvcc",
                       path, LTRAIN_LIBDIR);
}

enum status device_plugin_load(const struct device_plugin **out)
{
    static const struct device_plugin *loaded;
    void *library;
    if (!loaded) {
        TRY(open_library(&library));
        device_plugin_entry *entry = NULL;
        void *symbol = dlsym(library, DEVICE_PLUGIN_ENTRY);
        memcpy(&entry, &symbol, sizeof entry);
        const struct device_plugin *p = entry ? entry() : NULL;
        if (!p || p->version != DEVICE_PLUGIN_VERSION) {
            dlclose(library);
            return status_fail(ERR_INVALID,
                               "--device cuda: the CUDA plugin is not this ltrain's (version %d, not %d): build both anew",
                               p ? p->version : 0, DEVICE_PLUGIN_VERSION);
        }
        if (p->ops != op_table_digest() + PLUGIN_HEADERS) {
            dlclose(library);
            return status_fail(ERR_INVALID,
                               "--device cuda: the CUDA plugin is not this ltrain's (its kernels are for other programs): "
                               "build both anew");
        }
        loaded = p;
    }
    *out = loaded;
    return OK;
}
