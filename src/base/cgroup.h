/* The cgroups that this process is in, of either version, as far as they are mounted here. */
#ifndef LTRAIN_BASE_CGROUP_H
#define LTRAIN_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

enum { CGROUP_PATH = 4096 };

struct cgroup {
    int version;
    size_t root, top; /* bytes of dir that belong to the root; bytes up to the mount point */
    char dir[CGROUP_PATH];
};

/* Finds the process's cgroup in the hierarchy that has the controller ("memory", "cpu"; version 1), or in the only one (version
 * 2). root: process_system_root's, or a test's. Returns 0 if there is none. */
int cgroup_find(const char *root, int version, const char *controller, struct cgroup *out);
/* Moves on to the cgroup around this one; returns 0 if none is shown. */
int cgroup_leave(struct cgroup *c);
/* Returns the least processor time, in processors, that the process's cgroups grant (cpu.max; cpu.cfs_quota_us); 0: no limit. *id
 * names the cgroup that sets it: processes of one kernel inside that cgroup share its time. */
double cgroup_processors(const char *root, uint64_t *id);
/* Returns the cores that this process's threads can keep busy: those in its affinity mask, and no more than its processor time. */
int cgroup_cores(void);

#endif
