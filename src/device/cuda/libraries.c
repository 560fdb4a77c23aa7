/* Finding and opening cuBLASLt and NCCL. */
#include "device/cuda/libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

struct search {
    const struct cuda_library *library;
    int (*visit)(void *user, const char *path);
    void *user;
};

static int visit_file(const struct search *s, const char *directory)
{
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/%s", directory, s->library->name) >= PATH || access(path, F_OK) != 0)
        return 0;
    return s->visit(s->user, path);
}

static int search_toolkit(const struct search *s, const char *toolkit)
{
    static const char *const below[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
    char directory[PATH];
    for (size_t i = 0; toolkit && toolkit[0] && i < sizeof below / sizeof *below; i++)
        if (snprintf(directory, sizeof directory, "%s/%s", toolkit, below[i]) < PATH && visit_file(s, directory))
            return 1;
    return 0;
}

/* Searches the packages in a directory, or in all that match a pattern. */
static int search_packages(const struct search *s, const char *pattern)
{
    int found = 0;
    glob_t all;
    if (glob(pattern, 0, NULL, &all) != 0)
        return 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; !found && i < all.gl_pathc; i++) {
            char directory[PATH];
            if (snprintf(directory, sizeof directory, "%s/%s", all.gl_pathv[i], s->library->wheel[k]) < PATH)
                found = visit_file(s, directory);
        }
    globfree(&all);
    return found;
}

static int search_prefix(const struct search *s, const char *prefix, const char *below)
{
    char pattern[PATH];
    return prefix && prefix[0] && snprintf(pattern, sizeof pattern, "%s/%s", prefix, below) < PATH && search_packages(s, pattern);
}

/* Searches each directory of a list separated by colons. */
static int search_list(const struct search *s, const char *list, int (*search)(const struct search *s, const char *directory))
{
    int found = 0;
    char *copy = list ? strdup(list) : NULL, *at = copy, *directory;
    while (!found && at && (directory = strsep(&at, ":")))
        if (directory[0])
            found = search(s, directory);
    free(copy);
    return found;
}

#define SITE "lib/python3*/site-packages"

/* Searches packages beside the python3 in `directory` of PATH, and beside the file that it links to. */
static int search_beside_python(const struct search *s, const char *directory)
{
    char python[PATH], *slash, *real;
    if (snprintf(python, sizeof python, "%s/python3", directory) >= PATH || access(python, X_OK) != 0)
        return 0;
    int found = search_prefix(s, directory, "../" SITE);
    real = found ? NULL : realpath(python, NULL);
    if (real && (slash = strrchr(real, '/'))) {
        *slash = 0;
        found = search_prefix(s, real, "../" SITE);
    }
    free(real);
    return found;
}

int cuda_library_search(const struct cuda_library *l, int (*visit)(void *user, const char *path), void *user)
{
    const struct search s = {l, visit, user};
    return search_toolkit(&s, CUDA_TOOLKIT) || search_toolkit(&s, getenv("CUDA_HOME")) ||
           search_prefix(&s, getenv("VIRTUAL_ENV"), SITE) || search_prefix(&s, getenv("CONDA_PREFIX"), SITE) ||
           search_list(&s, getenv("PYTHONPATH"), search_packages) || search_list(&s, getenv("PATH"), search_beside_python) ||
           search_prefix(&s, getenv("HOME"), ".local/" SITE) || search_packages(&s, "/usr/local/lib/python3*/dist-packages") ||
           search_packages(&s, "/usr/lib/python3*/dist-packages");
}

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

enum status cuda_library_open(const struct cuda_library *l, void **out)
{
    struct opening o = {.handle = dlopen(l->name, RTLD_NOW | RTLD_LOCAL)};
    if (!o.handle && !cuda_library_search(l, open_file, &o)) {
        if (o.why[0])
            return status_fail(ERR_INVALID, "--device cuda: %s cannot be opened: %s", l->name, o.why);
        return status_fail(
            ERR_INVALID,
            "--device cuda: there is no %s: not where the loader looks, in %s, in CUDA_HOME or in Python's packages: "
            "install CUDA 13, or its libraries by `pip install %s`, or set CUDA_HOME",
            l->name, CUDA_TOOLKIT, l->package);
    }
    *out = o.handle;
    return OK;
}

#define RESOLVE(function)                                                                                                   \
    {                                                                                                                       \
        void *symbol = dlsym(handle, #function);                                                                            \
        if (!symbol)                                                                                                        \
            return status_fail(ERR_INVALID, "--device cuda: %s has no %s: it is another library", library.name, #function); \
        memcpy(&functions.function, &symbol, sizeof symbol);                                                                \
    }

enum status cuda_libraries_cublaslt(const struct cublaslt **out)
{
    static const struct cuda_library library = {"libcublasLt.so.13", {"nvidia/cu13/lib", "nvidia/cublas/lib"}, "nvidia-cublas"};
    static struct cublaslt functions;
    static int resolved;
    void *handle = NULL;
    if (!resolved) {
        TRY(cuda_library_open(&library, &handle));
        CUBLASLT_FUNCTIONS(RESOLVE)
        resolved = 1;
    }
    *out = &functions;
    return OK;
}

enum status cuda_libraries_nccl(const struct nccl **out)
{
    static const struct cuda_library library = {"libnccl.so.2", {"nvidia/nccl/lib", "nvidia/cu13/lib"}, "nvidia-nccl-cu13"};
    static struct nccl functions;
    static int resolved;
    void *handle = NULL;
    if (!resolved) {
        TRY(cuda_library_open(&library, &handle));
        NCCL_FUNCTIONS(RESOLVE)
        resolved = 1;
    }
    *out = &functions;
    return OK;
}
