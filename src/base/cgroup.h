/* The cgroups that this process is in, of either version, as far as they are mounted here. */
#ifndef LTRAIN_BASE_CGROUP_H
#define LTRAIN_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

enum { CGROUP_PATH = 4096 };

struct cgroup {
    int version;
    size_t root, top; /* root: bytes of dir that are the path given as root; top: bytes up to the mount point */
    char dir[CGROUP_PATH];
};

/* Finds the process's cgroup in the hierarchy of a controller ("memory", "cpu") for version 1, in the only hierarchy for version
 * 2. root: path in front of /proc and /sys (process_system_root), or a test's. Returns 0 if there is none. */
int cgroup_find(const char *root, int version, const char *controller, struct cgroup *out);
/* Moves on to the parent cgroup; returns 0 if no parent is mounted here. */
int cgroup_leave(struct cgroup *c);
/* Returns the smallest processor time, in processors, that the process's cgroup and its parents grant (cpu.max;
 * cpu.cfs_quota_us); 0: no limit. *id: number of the cgroup that sets this limit: processes of one kernel inside that cgroup
 * share its time. */
double cgroup_processors(const char *root, uint64_t *id);
/* Returns the number of cores that this process's threads can keep busy, by its affinity mask and its processor time. */
int cgroup_cores(void);

#endif
