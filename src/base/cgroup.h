/* The cgroups that this process is in, of either version, as far as they are mounted here. */
#ifndef LTRAIN_BASE_CGROUP_H
#define LTRAIN_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

enum { CGROUP_PATH = 4096 };

struct cgroup {
    int version;
    size_t root, top; /* bytes of dir that are the root's; of what the mount shows */
    char dir[CGROUP_PATH];
};

/* The process's cgroup in the hierarchy that has the controller ("memory", "cpu"; version 1), or in the only one (2). root:
 * process_system_root's, or a test's. 0: there is none. */
int cgroup_find(const char *root, int version, const char *controller, struct cgroup *out);
/* To the cgroup around it; 0: none is shown. */
int cgroup_leave(struct cgroup *c);
/* Processors' worth of time that the process's cgroups have (cpu.max; cpu.cfs_quota_us): the least of them, or 0 where they have
 * no limit. *id: of the one that says so; processes of one kernel in whose cgroups it is share it. */
double cgroup_processors(const char *root, uint64_t *id);
/* Cores that threads of this process can keep busy: those that it may run on, and no more than it has time for. */
int cgroup_cores(void);

#endif
