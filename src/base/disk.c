#include "base/disk.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Types of file systems that several hosts may have mounted (statfs(2), linux/magic.h). */
static const unsigned shared_types[] = {
    0x6969,     /* NFS */
    0x517b,     /* SMB */
    0xff534d42, /* CIFS */
    0xfe534d42, /* SMB 2 */
    0x0bd00bd0, /* Lustre */
    0x47504653, /* GPFS */
    0x00c36400, /* Ceph */
    0x65735546, /* FUSE, virtiofs */
    0x01021997, /* 9p */
    0x19830326, /* BeeGFS */
    0x20030528, /* OrangeFS */
    0xaad7aaea, /* PanFS */
    0x7461636f, /* OCFS2 */
    0x01161970, /* GFS2 */
    0x5346414f, /* AFS */
};

/* File systems on which not every change of a file changes st_ctim. On those in memory, writes to mapped pages leave no trace; on
 * the others st_ctim is the time of modification, which a copy may set. */
static const unsigned unseen_types[] = {
    0x01021994, /* tmpfs */
    0x858458f6, /* ramfs */
    0x958458f6, /* hugetlbfs */
    0x4d44,     /* FAT */
    0x2011bab0, /* exFAT */
    0x5346544e, /* NTFS */
    0x7366746e, /* NTFS 3 */
    0x65735546, /* FUSE, virtiofs */
    0x01021997, /* 9p */
};

static const unsigned memory_types[] = {
    0x01021994, /* tmpfs */
    0x858458f6, /* ramfs */
    0x958458f6, /* hugetlbfs */
};

static const unsigned btrfs[] = {0x9123683e};

#define AMONG(type, types) is_among(type, types, sizeof types / sizeof *types)

static int is_among(unsigned type, const unsigned *types, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (type == types[i])
            return 1;
    return 0;
}

/* Returns the file system's type; 0: unknown. */
static unsigned type_of(int fd)
{
    struct statfs s;
    return sys_fstatfs(fd, &s) == 0 ? (unsigned)s.f_type : 0;
}

int disk_is_shared(int fd)
{
    unsigned type = type_of(fd);
    return type == 0 || AMONG(type, shared_types);
}

int disk_copies_on_write(int fd)
{
    return AMONG(type_of(fd), btrfs);
}

int disk_shows_changes(int fd)
{
    unsigned type = type_of(fd);
    return type != 0 && !AMONG(type, unseen_types);
}

/* Returns the bytes that the quota of that kind (user or group) still allows; -1: there is no quota, or none that the kernel or
 * file system tells. */
static int64_t quota_left(int fd, int kind, unsigned id)
{
    struct dqblk q;
    memset(&q, 0, sizeof q);
    /* unsigned, since the shifted number does not fit an int */
    const unsigned command = QCMD((unsigned)Q_GETQUOTA, (unsigned)kind);
    if (sys_quota(fd, command, id, &q) != 0 || q.dqb_bhardlimit == 0)
        return -1;
    return max_i64(0, (int64_t)q.dqb_bhardlimit * 1024 - (int64_t)q.dqb_curspace);
}

/* Returns the bytes that the quotas of the user and of the group of new files leave; -1: no quota. The superuser has no quota. */
static int64_t quota_of_caller(int fd, const struct stat *s)
{
    if (geteuid() == 0)
        return -1;
    int64_t user = quota_left(fd, USRQUOTA, geteuid()),
            group = quota_left(fd, GRPQUOTA, s->st_mode & S_ISGID ? s->st_gid : getegid());
    return user < 0 ? group : group < 0 ? user : min_i64(user, group);
}

/* Cuts the last name off a path; returns 0 if none is left. */
static int to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (strcmp(path, ".") == 0 || strcmp(path, "/") == 0)
        return 0;
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path ? 1 : 0] = 0;
    return 1;
}

int disk_look(const char *path, struct disk *out)
{
    char at[4096];
    struct stat s;
    *out = (struct disk){.quota_bytes = -1};
    snprintf(at, sizeof at, "%s", path[0] ? path : ".");
    while (sys_statvfs_free(at, &out->free_bytes) != 0 || sys_stat(at, &s) != 0)
        if (!to_parent(at))
            return -1;
    out->id = s.st_dev;
    int fd = sys_open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    out->shared = fd < 0; /* unless the type is known, a file system may be shared */
    if (fd >= 0) {
        out->quota_bytes = quota_of_caller(fd, &s);
        unsigned type = type_of(fd);
        out->shared = type == 0 || AMONG(type, shared_types);
        out->in_memory = AMONG(type, memory_types);
        sys_close(fd);
    }
    return 0;
}

int64_t disk_room(const struct disk *d)
{
    return d->quota_bytes >= 0 ? min_i64(d->free_bytes, d->quota_bytes) : d->free_bytes;
}

const char *disk_say_room(const struct disk *d, char text[64])
{
    char bytes[32];
    int by_quota = d->quota_bytes >= 0 && d->quota_bytes < d->free_bytes;
    snprintf(text, 64, by_quota ? "%s of the quota are left" : "%s are free", units_format_bytes(disk_room(d), bytes));
    return text;
}
