#include "base/library.h"

#include "base/sys.h"
#include "build_config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Finds the path of the library that holds this code, as a program of somebody else's loads it. Returns 0 if this is ltrain's own
 * program. */
static int own_library(char *text, size_t size)
{
    static const char inside[] = "libltrain.so";
    Dl_info info;
    const char *slash = dladdr(inside, &info) != 0 && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    char *whole = slash && strncmp(slash + 1, inside, strlen(inside)) == 0 ? sys_realpath(info.dli_fname) : NULL;
    const int found = whole && (size_t)snprintf(text, size, "%s", whole) < size;
    free(whole);
    return found;
}

/* Finds the directory of the program or library, with a slash; "" if unknown. */
static void own_directory(char *text, size_t size)
{
    if (!own_library(text, size)) {
        ssize_t n = readlink("/proc/self/exe", text, size - 1);
        text[n > 0 ? n : 0] = 0;
    }
    char *slash = strrchr(text, '/');
    if (slash)
        slash[1] = 0;
    else
        text[0] = 0;
}

int library_find(const char *name, char *path, size_t size)
{
    static const char *const places[] = {"", "../lib/", NULL, "../src/cli/", "../../src/cli/"};
    char own[4096];
    own_directory(own, sizeof own);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int n =
            places[i] ? snprintf(path, size, "%s%s%s", own, places[i], name) : snprintf(path, size, "%s/%s", LTRAIN_LIBDIR, name);
        if (n < (int)size && sys_access(path, F_OK) == 0)
            return 1;
    }
    snprintf(path, size, "%s%s", own, name);
    return 0;
}
