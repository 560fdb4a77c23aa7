/* Opens the plugin with the fake CUDA runtime (tests/cudasim/fake), for tests of --device cuda. */
#ifndef LTRAIN_TESTS_ENGINE_TWIN_H
#define LTRAIN_TESTS_ENGINE_TWIN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct twin {
    void (*configure)(const char *words);
    long (*calls)(void);
    long (*executed)(void);
    const char *(*left)(void);
    long (*nccl_sent)(void); /* returns the bytes that NCCL has sent */
};

static inline void twin_find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
}

/* Makes `path` the plugin that --device cuda opens. Returns 0 if there is no such file. */
static inline int twin_open(const char *path, struct twin *t)
{
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return 0;
    setenv("LTRAIN_CUDA_PLUGIN", path, 1);
    twin_find(library, "fake_cuda_configure", &t->configure);
    twin_find(library, "fake_cuda_calls", &t->calls);
    twin_find(library, "fake_cuda_executed", &t->executed);
    twin_find(library, "fake_cuda_left", &t->left);
    twin_find(library, "fake_nccl_sent", &t->nccl_sent);
    return 1;
}

#endif
