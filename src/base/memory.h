/* Memory that this process may still take, and the limits that say so.
 *
 * Limits are the machine's free memory; memory.max and memory.high (v2) or memory.limit_in_bytes and memory.memsw.limit_in_bytes
 * (v1) of each cgroup that the process is in, and of the cgroups around it; a Slurm job's share (SLURM_MEM_PER_NODE, _PER_CPU or
 * _PER_GPU), which Slurm may enforce by killing alone; CommitLimit where vm.overcommit_memory is 2; the NUMA nodes of a cpuset;
 * RLIMIT_AS and RLIMIT_DATA. Memory in use counts against a limit, but for page cache that can be given back. Swap is never
 * counted on: arenas are pinned. */
#ifndef LTRAIN_BASE_MEMORY_H
#define LTRAIN_BASE_MEMORY_H

#include <stdint.h>

struct memory_limit {
    uint64_t sharers;    /* hash that all processes under the same limit share; 0: the limit is for this process alone */
    int64_t bytes, left; /* bytes: the limit; left: bytes of it that may still be taken */
    /* bytes of the limit that this process uses, if its other users are unknown and `left` does not subtract them; else 0 */
    int64_t own;
    int addresses;  /* 1: the limit is on reserved addresses, thread stacks included, not on memory in use */
    char name[256]; /* "memory.max of /sys/fs/cgroup/job_7"; "": the machine's memory */
};

#define MEMORY_LIMITS 48

struct memory_limits {
    struct memory_limit at[MEMORY_LIMITS];
    int n;
};

/* Reads all limits, the machine's first; limits that cannot be read are left out. root: path in front of /proc and /sys
 * (process_system_root), or a test's. */
void memory_limits_read(const char *root, struct memory_limits *out);

/* Returns a field of /proc/self/status or /proc/meminfo in bytes; 0 if absent. */
int64_t memory_proc_bytes(const char *file, const char *field);

#endif
