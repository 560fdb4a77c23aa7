#include "base/library.h"

#include "base/sys.h"
#include "build_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Finds the program's directory, with a slash; "" if unknown. */
static void own_directory(char *text, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", text, size - 1);
    text[n > 0 ? n : 0] = 0;
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
