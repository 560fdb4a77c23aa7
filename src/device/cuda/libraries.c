/* Finding and opening cuBLASLt and NCCL. */
#include "device/cuda/libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct opening {
    void *handle;
    char why[512]; /* dlopen's error for the first file that cannot be opened */
};

static int open_file(void *user, const char *path)
{
    struct opening *o = user;
    o->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!o->handle && !o->why[0])
        snprintf(o->why, sizeof o->why, "%s", dlerror());
    return o->handle != NULL;
}

enum status cuda_library_open(const struct foreign_library *l, void **out)
{
    struct opening o = {.handle = dlopen(l->name, RTLD_NOW | RTLD_LOCAL)};
    if (!o.handle && !foreign_search(l, CUDA_TOOLKIT, open_file, &o)) {
        if (o.why[0])
            return status_fail(ERR_INVALID, "--device cuda: %s cannot be opened: %s", l->name, o.why);
        return status_fail(
            ERR_INVALID,
            "--device cuda: there is no %s: not where the loader looks, in %s, in CUDA_HOME or in Python's packages: "
            "install CUDA 13, or its libraries by `pip install %s`, or set CUDA_HOME; `ltrain doctor` says what is found",
            l->name, CUDA_TOOLKIT, l->package);
    }
    *out = o.handle;
    return OK;
}

#define RESOLVE(function)                                                                                                    \
    {                                                                                                                        \
        void *symbol = dlsym(handle, #function);                                                                             \
        if (!symbol)                                                                                                         \
            return status_fail(ERR_INVALID, "--device cuda: %s has no %s: it is another library", library->name, #function); \
        memcpy(&functions.function, &symbol, sizeof symbol);                                                                 \
    }

enum status cuda_libraries_cublaslt(const struct cublaslt **out)
{
    static const struct foreign_library *const library = &foreign_cublaslt;
    static struct cublaslt functions;
    static int resolved;
    void *handle = NULL;
    if (!resolved) {
        TRY(cuda_library_open(library, &handle));
        CUBLASLT_FUNCTIONS(RESOLVE)
        resolved = 1;
    }
    *out = &functions;
    return OK;
}

enum status cuda_libraries_nccl(const struct nccl **out)
{
    static const struct foreign_library *const library = &foreign_nccl;
    static struct nccl functions;
    static int resolved;
    void *handle = NULL;
    if (!resolved) {
        TRY(cuda_library_open(library, &handle));
        NCCL_FUNCTIONS(RESOLVE)
        resolved = 1;
    }
    *out = &functions;
    return OK;
}
