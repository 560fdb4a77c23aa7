/* Makes a scratch directory for each test program, and files in it. */
#ifndef TESTS_DATA_SCRATCH_H
#define TESTS_DATA_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[64];

static inline int scratch_remove_one(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s, (void)flag, (void)w;
    return remove(path);
}

static inline int scratch_create(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/ltrain-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_destroy(void **state)
{
    (void)state;
    return nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns the path scratch/NAME, valid until eight further calls. */
static inline const char *scratch_path(const char *name)
{
    static char buffers[8][256];
    static int next;
    char *b = buffers[next++ % 8];
    snprintf(b, sizeof buffers[0], "%s/%s", scratch, name);
    return b;
}

static inline const char *scratch_write(const char *name, const void *bytes, size_t n)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
    return path;
}

static inline const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

static inline void scratch_mkdir(const char *name)
{
    if (mkdir(scratch_path(name), 0777) != 0)
        abort();
}

#endif
