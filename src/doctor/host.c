/* Cores, memory and the process's limits. */
#include "doctor/checks.h"

#include "base/cgroup.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "offload/places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LITTLE_MEMORY (2LL << 30) /* bytes below which only toys are trained */
#define FEW_FILES 256             /* descriptors: a run with drives and ranks takes some dozens, libraries the rest */

const char *doctor_read_line(const char *root, const char *path, char *line, int size)
{
    char whole[4200];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *f = sys_read_text(whole);
    if (!f || !fgets(line, size, f))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (f)
        fclose(f);
    return line;
}

void doctor_cores(struct findings *f)
{
    const int usable = cgroup_cores(), all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const enum isa isa = isa_of_processor();
    char places[400];
    places_describe(places, sizeof places);
    if (2 * usable < all)
        findings_add(f, VERDICT_WARNING, "cores", "a launcher's binding or a container's share of processors may be too small",
                     "%d of %d cores may be used by this process", usable, all);
    else
        findings_add(f, VERDICT_OK, "cores", "", "%d of %d cores may be used; %s", usable, all, places);
    if (isa == ISA_PORTABLE)
        findings_add(
            f, VERDICT_WARNING, "kernels", "use a processor with AVX2 and FMA, or a GPU",
            "this processor has no vector instructions that there are kernels for: training on it takes several times as long");
    else
        findings_add(f, VERDICT_OK, "kernels", "", "%s%s", isa_name(isa), isa_has_amx() ? " and AMX" : "");
}

void doctor_load(struct findings *f, const char *root)
{
    const int usable = cgroup_cores(), all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    char line[100], *end;
    const double load = strtod(doctor_read_line(root, "/proc/loadavg", line, sizeof line), &end);
    if (end == line)
        return;
    if (load > all - usable + fmax(1, all / 4))
        findings_add(f, VERDICT_WARNING, "load", "end other programs, or wait for them",
                     "%.3g threads of other programs have run or waited on %d cores in the last minute: steps take longer than "
                     "planned",
                     load, all);
    else
        findings_add(f, VERDICT_OK, "load", "", "%.3g threads of other programs have run on %d cores in the last minute", load,
                     all);
}

/* Returns the limit that leaves the least memory; NULL: no limit is known. */
static const struct memory_limit *tightest(const struct memory_limits *all)
{
    const struct memory_limit *least = NULL;
    for (int i = 0; i < all->n; i++)
        if (!least || all->at[i].left < least->left)
            least = &all->at[i];
    return least;
}

void doctor_memory(struct findings *f, const char *root)
{
    struct memory_limits all;
    char left[32], bytes[32], machine[32];
    memory_limits_read(root, &all);
    const struct memory_limit *least = tightest(&all);
    if (!least) {
        findings_add(f, VERDICT_UNMEASURED, "memory", "", "/proc/meminfo cannot be read");
        return;
    }
    units_format_apart(least->left, least->bytes, left, bytes);
    const char *cure = least->name[0] ? "raise that limit, if it is not meant" : "end other programs";
    const enum verdict v = least->left < LITTLE_MEMORY ? VERDICT_WARNING : VERDICT_OK;
    findings_add(f, v, "memory", v == VERDICT_OK ? "" : cure, "%s are left of %s%s%s", left, bytes, least->name[0] ? ", " : "",
                 least->name);
    if (least->name[0] && all.n > 0 && least->bytes < all.at[0].bytes / 2)
        findings_add(f, VERDICT_WARNING, "memory", "raise that limit, if the job is to have the whole machine",
                     "%s grants %s of the machine's %s", least->name, bytes, units_format_bytes(all.at[0].bytes, machine));
}

/* Formats a limit's value; counts as plain numbers. */
static const char *say_limit(rlim_t value, int in_bytes, char text[32])
{
    if (value == RLIM_INFINITY)
        return "no limit";
    if (in_bytes)
        return units_format_bytes((int64_t)min_i64((int64_t)value, INT64_MAX), text);
    snprintf(text, 32, "%llu", (unsigned long long)value);
    return text;
}

void doctor_limits(struct findings *f)
{
    struct rlimit lock, files, size;
    char text[32];
    if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0)
        findings_add(f, lock.rlim_cur == RLIM_INFINITY ? VERDICT_OK : VERDICT_WARNING, "memlock",
                     lock.rlim_cur == RLIM_INFINITY ? "" : "`ulimit -l unlimited`, or memlock in /etc/security/limits.conf",
                     lock.rlim_cur == RLIM_INFINITY
                         ? "memory that is locked: %s"
                         : "memory that is locked: %s; host memory beyond it may be swapped out, and is not "
                           "registered with io_uring",
                     say_limit(lock.rlim_cur, 1, text));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        findings_add(f, files.rlim_cur < FEW_FILES ? VERDICT_FAILURE : VERDICT_OK, "files",
                     files.rlim_cur < FEW_FILES ? "`ulimit -n 1024`" : "", "open files: %s", say_limit(files.rlim_cur, 0, text));
    if (getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY)
        findings_add(f, VERDICT_WARNING, "files", "`ulimit -f unlimited`",
                     "a file may have %s: larger checkpoints cannot be written", say_limit(size.rlim_cur, 1, text));
}
