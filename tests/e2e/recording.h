/* Records of what a program does to files, which recorder.c writes and test_power.c reads: a header, then its data. */
#ifndef TESTS_E2E_RECORDING_H
#define TESTS_E2E_RECORDING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum recorded {
    RECORDED_FILE,   /* a new file: directory, name, inode */
    RECORDED_MKDIR,  /* a new directory: the same */
    RECORDED_WRITE,  /* bytes at an offset of an inode */
    RECORDED_SIZE,   /* an inode's size */
    RECORDED_RENAME, /* directory and name, new directory and new name */
    RECORDED_UNLINK, /* directory and name of a file or an empty directory */
    RECORDED_SYNC,   /* an inode's fsync begins */
    RECORDED_SYNCED, /* an inode's fsync has returned 0 */
    RECORDED_SAVED   /* checkpoint_save has returned OK for a step */
};

enum { RECORDED_NAME = 128 };

struct recorded_event {
    uint32_t kind, thread;       /* thread: its number, unique among all processes */
    uint64_t inode, dir, to_dir; /* to_dir: of a rename */
    int64_t at, bytes;           /* bytes: of a write's data, which follow; of a size; step of RECORDED_SAVED */
    char name[RECORDED_NAME], to[RECORDED_NAME];
};

/* Copies a name; ends the program if it is too long. */
static inline void recorded_name(char to[RECORDED_NAME], const char *name)
{
    const size_t n = strlen(name);
    if (n >= RECORDED_NAME)
        abort();
    memcpy(to, name, n + 1);
}

#endif
