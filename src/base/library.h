/* Places of ltrain's own shared libraries. */
#ifndef LTRAIN_BASE_LIBRARY_H
#define LTRAIN_BASE_LIBRARY_H

#include <stddef.h>

/* Finds a library: beside the program, in ../lib from there (a directory that was moved), where it was to be installed, or in the
 * build directory whose test program this is. Returns 0 if there is none; `path` is then the first place. */
int library_find(const char *name, char *path, size_t size);

#endif
