/* What a file system has room for. */
#ifndef LTRAIN_BASE_DISK_H
#define LTRAIN_BASE_DISK_H

#include <stdint.h>

struct disk {
    uint64_t id; /* of the file system: paths with the same one share its room */
    int64_t free_bytes;
    int64_t quota_bytes; /* what the calling user's or group's quota leaves; -1: none is known */
    int shared;          /* other hosts may write to it, and their locks may not be seen here */
    int in_memory;       /* what is written there takes the machine's memory */
};

/* Of the file system that `path` lies on, or will: the nearest of its ancestors that exists counts. -1 with errno if it does not
 * say. */
int disk_look(const char *path, struct disk *out);
/* What may be written there. */
int64_t disk_room(const struct disk *d);
/* "40 MiB of the quota are left" or "40 MiB are free", for people. */
const char *disk_say_room(const struct disk *d, char text[64]);
/* Of what is open: whether other hosts may write to it; 1 where that is not known. */
int disk_is_shared(int fd);
/* Of what is open: whether what is written over goes to new blocks, even in a file that has all of its own (btrfs). */
int disk_copies_on_write(int fd);
/* Of what is open: whether its time of change (st_ctim) is the kernel's own word for every change; 0 where that is not known. */
int disk_shows_changes(int fd);

#endif
