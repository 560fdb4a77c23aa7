/* Free room on file systems, and properties of file systems. */
#ifndef LTRAIN_BASE_DISK_H
#define LTRAIN_BASE_DISK_H

#include <stdint.h>

struct disk {
    uint64_t id; /* file system's number: paths with equal numbers share its room */
    int64_t free_bytes;
    int64_t quota_bytes; /* bytes that the calling user's or group's quota leaves; -1: unknown */
    int shared;          /* 1: other hosts may write to the file system, and their locks may be invisible here */
    int in_memory;       /* 1: its files take the machine's memory */
};

/* Describes the file system of `path`, which need not exist: of its nearest existing ancestor then. Returns -1 with errno if the
 * file system does not answer. */
int disk_look(const char *path, struct disk *out);
/* Returns the bytes that may be written to the file system. */
int64_t disk_room(const struct disk *d);
/* Formats the room, as "40 MiB of the quota are left" or "40 MiB are free". */
const char *disk_say_room(const struct disk *d, char text[64]);
/* Tells whether other hosts may write to an open file's file system; 1 also if that is unknown. */
int disk_is_shared(int fd);
/* Tells whether overwriting an open file's data takes new blocks, even if no other file shares the old ones (btrfs). */
int disk_copies_on_write(int fd);
/* Tells whether the kernel updates an open file's time of change (st_ctim) at every change; 0 also if that is unknown. */
int disk_shows_changes(int fd);

#endif
