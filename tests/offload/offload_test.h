/* Common parts of the tests of offload: folders, patterns, and stores in folders. */
#ifndef LTRAIN_TESTS_OFFLOAD_TEST_H
#define LTRAIN_TESTS_OFFLOAD_TEST_H

#include "base/rng.h"
#include "base/sys.h"
#include "offload/store.h"

#include <dirent.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[3][64];

static inline int make_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(folder[i], sizeof folder[i], "/tmp/ltrain-test-offload-XXXXXX");
        if (!mkdtemp(folder[i]) || chmod(folder[i], 0777) != 0)
            return -1;
    }
    return 0;
}

/* Returns the number of files in a folder. */
static inline int count_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Fails if a test left a file behind. */
static inline int remove_folders(void **state)
{
    (void)state;
    int r = 0;
    for (int i = 0; i < 3; i++)
        r |= rmdir(folder[i]);
    return r;
}

static inline int clear_faults(void **state)
{
    (void)state;
    sys_inject_clear();
    return 0;
}

static inline struct store_config config_of(int n_paths, int64_t bytes, enum store_way way)
{
    return (struct store_config){.paths = {folder[0], folder[1], folder[2]}, .n_paths = n_paths, .bytes = bytes, .way = way};
}

/* Fills memory with bytes that differ from place to place and from seed to seed. */
static inline void fill(void *memory, int64_t bytes, uint64_t seed)
{
    unsigned char *p = memory;
    uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
    for (int64_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        p[i] = (unsigned char)(x >> 8 * (i % 8));
    }
}

/* Finds the one file of this process's rank. */
static inline void store_file_name(const char *path, int rank, int pid, char name[256])
{
    char pattern[256];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/ltrain-%d-%d-*.store", path, rank, pid);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 1);
    snprintf(name, 256, "%s", g.gl_pathv[0]);
    globfree(&g);
}

#endif
