/* Cgroups: finding the process's cgroup and where it is mounted, and the processor time that it grants. */
#include "base/cgroup.h"

#include "base/mix.h"
#include "base/num.h"
#include "base/process.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hierarchy {
    const char *root, *controller;
    int version;
    /* mount: mount point; inside: part of the hierarchy that is mounted there; path: the process's cgroup in the hierarchy */
    char mount[CGROUP_PATH], inside[CGROUP_PATH], path[CGROUP_PATH];
};

/* Tells whether a comma-separated list has that option. */
static int has_option(const char *options, const char *wanted)
{
    size_t n = strlen(wanted);
    for (const char *at = options; (at = strstr(at, wanted)); at += n)
        if ((at == options || at[-1] == ',') && (at[n] == 0 || at[n] == ',' || at[n] == '\n'))
            return 1;
    return 0;
}

static int find_cgroup(struct hierarchy *h)
{
    char file[CGROUP_PATH], line[CGROUP_PATH];
    int found = 0;
    snprintf(file, sizeof file, "%s/proc/self/cgroup", h->root);
    FILE *f = fopen(file, "re");
    while (!found && f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        controllers++;
        found = h->version == 1 ? has_option(controllers, h->controller) : controllers[0] == 0;
        if (found)
            snprintf(h->path, sizeof h->path, "%s", path);
    }
    if (f)
        fclose(f);
    return found;
}

/* Decodes the octal escapes of blanks and backslashes (\040) in a path of mountinfo, in place. */
static void decode(char *path)
{
    char *to = path;
    for (const char *at = path; *at;) {
        int octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3';
        for (int i = 2; octal && i <= 3; i++)
            octal = at[i] >= '0' && at[i] <= '7';
        *to++ = octal ? (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0')) : *at;
        at += octal ? 4 : 1;
    }
    *to = 0;
}

/* Finds the mount of a hierarchy that shows the process's cgroup, or else the hierarchy's first mount. */
static int find_mount(struct hierarchy *h)
{
    char file[CGROUP_PATH], line[2 * CGROUP_PATH], inside[CGROUP_PATH], mount[CGROUP_PATH], type[64], options[CGROUP_PATH];
    int found = 0, shows = 0;
    snprintf(file, sizeof file, "%s/proc/self/mountinfo", h->root);
    FILE *f = fopen(file, "re");
    while (!shows && f && fgets(line, sizeof line, f)) {
        const char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*d %*d %*s %4095s %4095s", inside, mount) != 2 ||
            sscanf(dash + 3, "%63s %*s %4095s", type, options) != 2)
            continue;
        if (strcmp(type, h->version == 2 ? "cgroup2" : "cgroup") != 0 || (h->version == 1 && !has_option(options, h->controller)))
            continue;
        decode(inside);
        decode(mount);
        size_t n = strcmp(inside, "/") == 0 ? 0 : strlen(inside);
        shows = strncmp(h->path, inside, n) == 0 && (h->path[n] == '/' || h->path[n] == 0);
        if (shows || !found) {
            strcpy(h->mount, mount);
            strcpy(h->inside, inside);
        }
        found = 1;
    }
    if (f)
        fclose(f);
    return found;
}

int cgroup_find(const char *root, int version, const char *controller, struct cgroup *out)
{
    struct hierarchy h = {.root = root, .controller = controller, .version = version};
    struct stat s;
    char *dir = out->dir;
    if (!find_cgroup(&h) || !find_mount(&h))
        return 0;
    size_t prefix = strcmp(h.inside, "/") == 0 ? 0 : strlen(h.inside);
    int within =
        strncmp(h.path, h.inside, prefix) == 0 && (h.path[prefix] == '/' || h.path[prefix] == 0) && !strstr(h.path, "/..");
    int n = snprintf(dir, CGROUP_PATH, "%s%s", root, h.mount), top = n < CGROUP_PATH ? n : CGROUP_PATH - 1;
    if (within)
        snprintf(dir + top, (size_t)(CGROUP_PATH - top), "%s", h.path + prefix);
    if (stat(dir, &s) != 0)
        /* in a container, the path that the kernel names may not exist under the mount, which shows another part of the hierarchy */
        dir[top] = 0;
    while (strlen(dir) > (size_t)top && dir[strlen(dir) - 1] == '/')
        dir[strlen(dir) - 1] = 0;
    out->version = version;
    out->root = strlen(root);
    out->top = (size_t)top;
    return 1;
}

int cgroup_leave(struct cgroup *c)
{
    char *slash = strrchr(c->dir, '/');
    if (strlen(c->dir) <= c->top || !slash)
        return 0;
    *slash = 0;
    return 1;
}

/* Reads up to two numbers of a file and returns how many there are. */
static int numbers_of(const char *dir, const char *name, double x[2])
{
    char path[CGROUP_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    int n = f ? fscanf(f, "%lf %lf", &x[0], &x[1]) : 0;
    if (f)
        fclose(f);
    return n;
}

/* Returns the processor time, in processors, that one cgroup grants; 0: no limit. */
static double processors_of(const struct cgroup *c)
{
    double quota[2] = {0, 0}, period[2] = {0, 0};
    if (c->version == 2) /* "max 100000" means no limit */
        return numbers_of(c->dir, "cpu.max", quota) == 2 && quota[1] > 0 ? quota[0] / quota[1] : 0;
    if (numbers_of(c->dir, "cpu.cfs_quota_us", quota) < 1 || numbers_of(c->dir, "cpu.cfs_period_us", period) < 1)
        return 0;
    return quota[0] > 0 && period[0] > 0 ? quota[0] / period[0] : 0; /* a quota of -1 means no limit */
}

double cgroup_processors(const char *root, uint64_t *id)
{
    struct cgroup c;
    struct stat s;
    double least = 0;
    *id = 0;
    for (int version = 1; version <= 2; version++) {
        if (!cgroup_find(root, version, "cpu", &c))
            continue;
        do {
            double n = processors_of(&c);
            if (n <= 0 || (least > 0 && n >= least) || stat(c.dir, &s) != 0)
                continue;
            least = n;
            *id = mix(mix(1, (uint64_t)s.st_dev), (uint64_t)s.st_ino);
        } while (cgroup_leave(&c));
    }
    return least;
}

int cgroup_cores(void)
{
    cpu_set_t cpus;
    uint64_t id;
    double time = cgroup_processors(process_system_root(), &id);
    int64_t n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : sysconf(_SC_NPROCESSORS_ONLN);
    return (int)(time > 0 && time < (double)n ? max_i64(1, (int64_t)ceil(time)) : n);
}
