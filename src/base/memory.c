/* Limits of memory from /proc, cgroups, a job's environment variables and resource limits. */
#include "base/memory.h"

#include "base/cgroup.h"
#include "base/mix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_LIMIT (1LL << 60) /* limits from here on mean none: version 1 writes the largest multiple of a page for "no limit" */
enum { PATH_BYTES = 4096, NODES = 1024 };

/* Returns the number behind a line's first word `field`, which may end in a colon in the file; -1: the file has no such line. */
static int64_t field_of(const char *file, const char *field)
{
    char line[512];
    long long x = -1;
    size_t n = strlen(field);
    FILE *f = fopen(file, "re");
    while (x < 0 && f && fgets(line, sizeof line, f))
        if (strncmp(line, field, n) == 0 && (line[n] == ':' || line[n] == ' ') && sscanf(line + n + 1, "%lld", &x) != 1)
            x = -1;
    if (f)
        fclose(f);
    return x;
}

int64_t memory_proc_bytes(const char *file, const char *field)
{
    int64_t kib = field_of(file, field);
    return kib > 0 ? kib * 1024 : 0;
}

/* Returns the number in a file; -1: it has none, but "max" for instance. */
static int64_t number_of(const char *dir, const char *name)
{
    char path[PATH_BYTES + 64];
    long long x = -1;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lld", &x) != 1)
        x = -1;
    if (f)
        fclose(f);
    return x;
}

/* Returns a hash of the kernel's boot id, which is equal in all containers of a machine. */
static uint64_t this_host(const char *root)
{
    char path[PATH_BYTES], id[128] = "";
    snprintf(path, sizeof path, "%s/proc/sys/kernel/random/boot_id", root);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(id, sizeof id, f))
        gethostname(id, sizeof id - 1);
    if (f)
        fclose(f);
    return mix_text(1, id);
}

static struct memory_limit *add(struct memory_limits *out, uint64_t sharers, int64_t bytes, int64_t used)
{
    static struct memory_limit beyond;
    if (out->n == MEMORY_LIMITS)
        return &beyond;
    struct memory_limit *l = &out->at[out->n++];
    *l = (struct memory_limit){.sharers = sharers, .bytes = bytes, .left = used < 0 ? bytes : bytes > used ? bytes - used : 0};
    return l;
}

/* ---- cgroups ---- */

/* Returns the bytes of page cache that the kernel gives back when the cgroup needs memory. */
static int64_t reclaimable(const char *dir, int version)
{
    char file[PATH_BYTES + 16];
    snprintf(file, sizeof file, "%s/memory.stat", dir);
    int64_t inactive = field_of(file, version == 1 ? "total_inactive_file" : "inactive_file"),
            active = field_of(file, version == 1 ? "total_active_file" : "active_file");
    return (inactive > 0 ? inactive : 0) + (active > 0 ? active : 0);
}

static void add_cgroup(const struct cgroup *c, const char *limit, const char *usage, int64_t bytes, uint64_t host,
                       struct memory_limits *out)
{
    struct stat s;
    int64_t used = number_of(c->dir, usage);
    if (bytes < 0 || bytes >= NO_LIMIT || stat(c->dir, &s) != 0)
        return;
    int64_t own = used < 0 ? memory_proc_bytes("/proc/self/status", "VmRSS") : 0;
    used -= reclaimable(c->dir, c->version);
    struct memory_limit *l = add(out, mix(mix(host, (uint64_t)s.st_dev), (uint64_t)s.st_ino), bytes,
                                 own > 0    ? own
                                 : used > 0 ? used
                                            : 0);
    l->own = own;
    snprintf(l->name, sizeof l->name, "%s of %.200s", limit, c->dir + c->root);
}

static void add_limits_of(const struct cgroup *c, uint64_t host, struct memory_limits *out)
{
    static const char *const names[2][3] = {{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", NULL},
                                            {"memory.max", "memory.high", NULL}};
    static const char *const usages[2][2] = {{"memory.usage_in_bytes", "memory.memsw.usage_in_bytes"},
                                             {"memory.current", "memory.current"}};
    for (int i = 0; names[c->version - 1][i]; i++) {
        const char *name = names[c->version - 1][i];
        add_cgroup(c, name, usages[c->version - 1][i], number_of(c->dir, name), host, out);
    }
}

/* Adds the limits of the process's cgroup and of all its parents that are mounted. In version 1 a file also tells the limit of
 * parents that are not. */
static void add_cgroups(const char *root, int version, uint64_t host, struct memory_limits *out)
{
    struct cgroup c;
    char stat_file[sizeof c.dir + 16];
    if (!cgroup_find(root, version, "memory", &c))
        return;
    if (version == 1) {
        snprintf(stat_file, sizeof stat_file, "%s/memory.stat", c.dir);
        add_cgroup(&c, "hierarchical_memory_limit", "memory.usage_in_bytes", field_of(stat_file, "hierarchical_memory_limit"),
                   host, out);
    }
    do
        add_limits_of(&c, host, out);
    while (cgroup_leave(&c));
}

/* ---- machines, jobs and processes ---- */

/* Tells whether a list of ranges such as "0-3,8" has the number. */
static int has_number(const char *list, int number)
{
    int first, last, n;
    for (const char *at = list; sscanf(at, "%d%n", &first, &n) == 1; at += *at == ',') {
        at += n;
        last = first;
        if (sscanf(at, "-%d%n", &last, &n) == 1)
            at += n;
        if (number >= first && number <= last)
            return 1;
    }
    return 0;
}

/* Finds a file's first line that begins with `begins`, and copies the rest of the line; "": there is none. */
static void text_of(const char *root, const char *name, const char *begins, char text[256])
{
    char path[PATH_BYTES], line[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *f = fopen(path, "re");
    text[0] = 0;
    while (!text[0] && f && fgets(line, sizeof line, f))
        if (strncmp(line, begins, strlen(begins)) == 0)
            snprintf(text, 256, "%.255s", line + strlen(begins));
    if (f)
        fclose(f);
    text[strcspn(text, "\n")] = 0;
}

/* Returns a field of a NUMA node's meminfo in bytes; 0 if absent. */
static int64_t node_bytes(const char *root, int node, const char *field)
{
    char file[PATH_BYTES], name[64];
    snprintf(file, sizeof file, "%s/sys/devices/system/node/node%d/meminfo", root, node);
    snprintf(name, sizeof name, "Node %d %s", node, field);
    return memory_proc_bytes(file, name);
}

/* Adds the free memory and page cache of the NUMA nodes that a cpuset allows, unless it allows all (docker --cpuset-mems). */
static void add_nodes(const char *root, uint64_t host, struct memory_limits *out)
{
    char allowed[256], all[256];
    int64_t bytes = 0, left = 0;
    int others = 0;
    text_of(root, "/proc/self/status", "Mems_allowed_list:\t", allowed);
    text_of(root, "/sys/devices/system/node/has_memory", "", all);
    for (int i = 0; i < NODES && allowed[0]; i++) {
        if (!has_number(all, i))
            continue;
        others += !has_number(allowed, i);
        if (has_number(allowed, i)) {
            bytes += node_bytes(root, i, "MemTotal");
            left += node_bytes(root, i, "MemFree") + node_bytes(root, i, "Active(file)") + node_bytes(root, i, "Inactive(file)");
        }
    }
    if (others == 0 || bytes == 0)
        return;
    struct memory_limit *l = add(out, mix_text(mix(host, 6), allowed), bytes, bytes - left);
    snprintf(l->name, sizeof l->name, "cpuset.mems (NUMA nodes %.200s)", allowed);
}

/* Adds the kernel's limit of reserved memory (half of the memory by default), if it is set to refuse overcommitment. The last
 * part of that limit is kept for the superuser (admin_reserve_kbytes), and for the means to kill the process that took the rest
 * (user_reserve_kbytes). */
static void add_commit(const char *root, const char *meminfo, uint64_t host, struct memory_limits *out)
{
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s/proc/sys/vm", root);
    int64_t limit = memory_proc_bytes(meminfo, "CommitLimit"), taken = memory_proc_bytes(meminfo, "Committed_AS");
    int64_t admin = number_of(dir, "admin_reserve_kbytes"), user = number_of(dir, "user_reserve_kbytes");
    if (number_of(dir, "overcommit_memory") != 2 || limit == 0)
        return;
    struct memory_limit *l = add(out, mix(host, 5), limit, taken + ((admin > 0 ? admin : 0) + (user > 0 ? user : 0)) * 1024);
    l->addresses = 1;
    snprintf(l->name, sizeof l->name, "CommitLimit (vm.overcommit_memory is 2)");
}

/* Adds the memory that Slurm gives the job on this node, in one of three environment variables; 0 stands for all of the node's
 * memory. */
static void add_job(uint64_t host, struct memory_limits *out)
{
    static const struct {
        const char *name, *times;
    } gives[] = {
        {"SLURM_MEM_PER_NODE", NULL}, {"SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"}, {"SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"}};
    const char *id = getenv("SLURM_JOB_ID");
    for (int i = 0; id && i < 3; i++) {
        const char *each = getenv(gives[i].name), *times = gives[i].times ? getenv(gives[i].times) : "1";
        long long mib;
        if (!each || !times || __builtin_mul_overflow(strtoll(each, NULL, 10), strtoll(times, NULL, 10), &mib) || mib <= 0 ||
            mib >= NO_LIMIT >> 20)
            continue; /* no number, or one too large */
        int64_t own = memory_proc_bytes("/proc/self/status", "VmRSS");
        struct memory_limit *l = add(out, mix_text(mix(host, 2 + (uint64_t)i), id), mib << 20, own);
        l->own = own;
        snprintf(l->name, sizeof l->name, "%s", gives[i].name);
    }
}

static void add_resource(int which, const char *name, const char *used, struct memory_limits *out)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= (rlim_t)NO_LIMIT)
        return;
    struct memory_limit *l = add(out, 0, (int64_t)limit.rlim_cur, memory_proc_bytes("/proc/self/status", used));
    l->addresses = 1;
    snprintf(l->name, sizeof l->name, "%s", name);
}

void memory_limits_read(const char *root, struct memory_limits *out)
{
    char meminfo[PATH_BYTES];
    uint64_t host = this_host(root);
    out->n = 0;
    snprintf(meminfo, sizeof meminfo, "%s/proc/meminfo", root);
    int64_t total = memory_proc_bytes(meminfo, "MemTotal"), available = memory_proc_bytes(meminfo, "MemAvailable");
    if (available > 0)
        add(out, mix(host, 1), total, total - available);
    add_commit(root, meminfo, host, out);
    add_nodes(root, host, out);
    for (int version = 1; version <= 2; version++)
        add_cgroups(root, version, host, out);
    add_job(host, out);
    add_resource(RLIMIT_AS, "RLIMIT_AS (ulimit -v)", "VmSize", out);
    add_resource(RLIMIT_DATA, "RLIMIT_DATA (ulimit -d)", "VmData", out);
}
