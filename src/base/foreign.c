#include "base/foreign.h"

#include "base/sys.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct foreign_library foreign_cublaslt = {"libcublasLt.so.13", {"nvidia/cu13/lib", "nvidia/cublas/lib"}, "nvidia-cublas"};
const struct foreign_library foreign_nccl = {"libnccl.so.2", {"nvidia/nccl/lib", "nvidia/cu13/lib"}, "nvidia-nccl-cu13"};

enum { PATH = 4096 };

struct search {
    const struct foreign_library *library;
    int (*visit)(void *user, const char *path);
    void *user;
};

static int visit_file(const struct search *s, const char *directory)
{
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/%s", directory, s->library->name) >= PATH || sys_access(path, F_OK) != 0)
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
    if (sys_glob(pattern, 0, &all) != 0)
        return 0;
    for (int k = 0; k < 2 && s->library->wheel[k]; k++)
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
    if (snprintf(python, sizeof python, "%s/python3", directory) >= PATH || sys_access(python, X_OK) != 0)
        return 0;
    int found = search_prefix(s, directory, "../" SITE);
    real = found ? NULL : sys_realpath(python);
    if (real && (slash = strrchr(real, '/'))) {
        *slash = 0;
        found = search_prefix(s, real, "../" SITE);
    }
    free(real);
    return found;
}

int foreign_search(const struct foreign_library *l, const char *toolkit, int (*visit)(void *user, const char *path), void *user)
{
    const struct search s = {l, visit, user};
    return (toolkit && (search_toolkit(&s, toolkit) || search_toolkit(&s, getenv("CUDA_HOME")))) ||
           search_prefix(&s, getenv("VIRTUAL_ENV"), SITE) || search_prefix(&s, getenv("CONDA_PREFIX"), SITE) ||
           search_list(&s, getenv("PYTHONPATH"), search_packages) || search_list(&s, getenv("PATH"), search_beside_python) ||
           search_prefix(&s, getenv("HOME"), ".local/" SITE) || search_packages(&s, "/usr/local/lib/python3*/dist-packages") ||
           search_packages(&s, "/usr/lib/python3*/dist-packages");
}

static int take_first(void *user, const char *path)
{
    snprintf(user, PATH, "%s", path);
    return 1;
}

int foreign_find(const struct foreign_library *l, const char *toolkit, char path[4096])
{
    /* stays open: constructors keep memory that nobody could reach after closing */
    void *handle = dlopen(l->name, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map;
    if (!handle)
        return foreign_search(l, toolkit, take_first, path);
    const int known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0;
    snprintf(path, PATH, "%s", known ? map->l_name : l->name);
    return 1;
}
