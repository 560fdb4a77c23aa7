/* Room on file systems, and how they behave. */
#ifndef LTRAIN_BASE_DISK_H
#define LTRAIN_BASE_DISK_H

#include <stdint.h>

struct disk {
    uint64_t id; /* file system's number: paths with the same one share its room */
    int64_t free_bytes;
    int64_t quota_bytes; /* bytes that the calling user's or group's quota leaves; -1: unknown */
    int shared;          /* 1: other hosts may write to it, and their locks may not be seen here */
    int in_memory;       /* 1: its files take the machine's memory */
};

/* Describes the file system that `path` lies on or will lie on: that of its nearest existing ancestor. Returns -1 with errno if
 * the file system does not say. */
int disk_look(const char *path, struct disk *out);
/* Returns the bytes that may be written there. */
int64_t disk_room(const struct disk *d);
/* Formats the room, as "40 MiB of the quota are left" or "40 MiB are free". */
const char *disk_say_room(const struct disk *d, char text[64]);
/* Tells whether other hosts may write to an open file's file system; 1 where that is unknown. */
int disk_is_shared(int fd);
/* Tells whether a write over an open file's old data goes to new blocks, even where the file has all of its own (btrfs). */
int disk_copies_on_write(int fd);
/* Tells whether an open file's time of change (st_ctim) is the kernel's own record of every change; 0 where that is unknown. */
int disk_shows_changes(int fd);

#endif
