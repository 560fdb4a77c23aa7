/* The files of the extent store, one on each nvme path: created, locked, preallocated, removed. */
#ifndef LTRAIN_OFFLOAD_FILES_H
#define LTRAIN_OFFLOAD_FILES_H

#include "offload/store.h"

#include <limits.h>

#define FILES_HEADER 4096 /* bytes before the data: the magic and the owner */

struct files {
    int n;
    int fds[STORE_MAX_PATHS];
    char names[STORE_MAX_PATHS][PATH_MAX];
    /* alignment of transfers in memory: 1 if no file is open with O_DIRECT, else 512 or 4096; then file offsets and lengths are
     * aligned to STORE_ALIGN */
    int memory_align;
    const char *buffered; /* a path that refused O_DIRECT, or NULL; owned by the config */
    int n_dead;           /* removed files of dead runs */
    int64_t dead_bytes;
};

/* Creates the files; block i of `block` bytes lies in file i % n. On failure nothing stays behind. *f must be zeroed. */
enum status files_create(const struct store_config *config, int64_t block, struct files *f);
void files_remove(struct files *f);

#endif
