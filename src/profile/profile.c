/* Measuring this machine and keeping the figures. */
#include "profile/profile.h"

#include "base/clock.h"
#include "base/directory.h"
#include "base/memory.h"
#include "base/sys.h"
#include "device/plugin.h"
#include "engine/session.h"
#include "profile/sgemm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define LONGEST (1 << 20) /* most bytes of a machine file; ours are about 20 KiB */
/* Number of passes; each measures everything, in the same order. A virtual machine's speed drifts by a factor of two within ten
 * seconds. Figures measured at one go would be fast or slow beside the rest. */
enum { PASSES = 3 };
/* Share of the processors' time lost to others; beyond, rates are off by more, since threads wait for each other */
#define STOLEN 0.03
#define TRIES 2 /* tries of a part that a virtual machine's host disturbs */

/* Prints unless the output is JSON. */
static void say(const struct settings *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct settings *s, const char *format, ...)
{
    va_list args;
    if (s->json)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

static uint64_t hash_file(const char *path, uint64_t seed)
{
    char block[1 << 16];
    FILE *f = sys_read_text(path);
    size_t n;
    while (f && (n = fread(block, 1, sizeof block, f)) > 0)
        seed = XXH3_64bits_withSeed(block, n, seed);
    if (f)
        fclose(f);
    return seed;
}

/* Writes the processor's name from the kernel, without values that change from moment to moment (clock rates). */
static void processor(char *text, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(text, size, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n\""), colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static void cache_directory(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        snprintf(path, size, "%s/ltrain", cache);
    else
        snprintf(path, size, "%s/.cache/ltrain", home && home[0] ? home : "/tmp");
}

/* Hashes a GPU: its name, the driver in the kernel, and the plugin, which has the kernels. */
static uint64_t hash_gpu(const struct settings *s, uint64_t seed)
{
    const struct device_plugin *plugin;
    Dl_info file = {.dli_fname = NULL};
    if (s->plan.device != DEVICE_CUDA)
        return seed;
    seed = XXH3_64bits_withSeed(s->gpu_name, strlen(s->gpu_name), seed);
    seed = hash_file("/proc/driver/nvidia/version", seed);
    if (device_plugin_load(&plugin) == OK && dladdr(plugin, &file) && file.dli_fname)
        seed = hash_file(file.dli_fname, seed);
    return seed;
}

/* Kinds of kept figures: of a profile, for one build; of runs, of any. */
enum kept { KEPT_PROFILE, KEPT_OBSERVED };

/* Writes the path of the cache: one file per host, processor, threads and build, and GPU. */
static void cache_path(const struct settings *s, enum kept kept, char path[4096])
{
    char directory[4000], host[64] = "", cpu[128], key[512];
    cache_directory(directory, sizeof directory);
    gethostname(host, sizeof host - 1);
    processor(cpu, sizeof cpu);
    snprintf(key, sizeof key, "%s|%d", cpu, s->plan.threads);
    uint64_t hash = XXH3_64bits(key, strlen(key));
    hash = hash_gpu(s, kept == KEPT_PROFILE ? hash_file("/proc/self/exe", hash) : hash);
    snprintf(path, 4096, "%s/%s-%s%016llx.yaml", directory, host, kept == KEPT_PROFILE ? "" : "observed-",
             (unsigned long long)hash);
}

/* First line of a file: the hash of the rest. A file that was cut or changed is not taken for figures. */
#define HASH_LINE "# xxh3 %016llx\n"
enum { HASH_BYTES = 7 + 16 + 1 };

static enum status read_kept(const char *path, char *text, size_t n, struct hardware *out)
{
    char line[HASH_BYTES + 1];
    if (n <= HASH_BYTES)
        return status_fail(ERR_CORRUPT, "%s is cut short", path);
    snprintf(line, sizeof line, HASH_LINE, (unsigned long long)XXH3_64bits(text + HASH_BYTES, n - HASH_BYTES));
    if (memcmp(line, text, HASH_BYTES) != 0)
        return status_fail(ERR_CORRUPT, "%s is not what was written", path);
    FILE *f = fmemopen(text, n, "r");
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory");
    enum status st = hardware_read(path, f, out);
    fclose(f);
    return st;
}

/* Loads kept figures. *found: 1; 0: none; -1: the file was changed. */
static enum status load(const struct settings *s, enum kept kept, struct hardware *out, int *found)
{
    char path[4096], *text = sys_malloc(LONGEST);
    cache_path(s, kept, path);
    *found = 0;
    FILE *f = text ? sys_read_text(path) : NULL;
    if (text && !f && errno != ENOENT)
        say(s, "profile: cannot read %s: %s\n", path, sys_strerror(errno));
    if (f) {
        size_t n = fread(text, 1, LONGEST, f);
        fclose(f);
        *found = read_kept(path, text, n, out) == OK ? 1 : -1;
    }
    free(text);
    return OK;
}

enum status profile_load(const struct settings *s, struct hardware *out, int *found)
{
    TRY(load(s, KEPT_PROFILE, out, found));
    if (*found < 0)
        say(s, "profile: %s: the machine is measured anew\n", status_message());
    return OK;
}

enum status profile_load_observed(const struct settings *s, struct hardware *out, int *found)
{
    TRY(load(s, KEPT_OBSERVED, out, found));
    if (*found < 0)
        say(s, "observed: %s: it is left out\n", status_message());
    *found = *found > 0;
    return OK;
}

/* Writes the whole file as text, which the caller frees. */
static enum status compose(const struct hardware *h, char **text, size_t *n)
{
    FILE *f = open_memstream(text, n);
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory");
    fprintf(f, HASH_LINE, 0ull);
    enum status st = hardware_write(h, f);
    if (fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory");
    if (st == OK) {
        char line[HASH_BYTES + 1];
        snprintf(line, sizeof line, HASH_LINE, (unsigned long long)XXH3_64bits(*text + HASH_BYTES, *n - HASH_BYTES));
        memcpy(*text, line, HASH_BYTES);
    }
    return st;
}

/* Writes figures to their file in the cache, first under a temporary name. path: set to the file's name. */
static enum status keep(const struct settings *s, enum kept kept, const struct hardware *h, char path[4096])
{
    char partial[4200], *text = NULL;
    size_t n = 0;
    cache_directory(path, 4096);
    TRY(directory_make(path));
    cache_path(s, kept, path);
    snprintf(partial, sizeof partial, "%s.%d", path, (int)getpid());
    enum status st = compose(h, &text, &n);
    FILE *f = st == OK ? sys_write_text(partial) : NULL;
    if (st == OK && (!f || fwrite(text, 1, n, f) != n))
        st = status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (st == OK && sys_rename(partial, path) != 0)
        st = status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    if (st != OK)
        sys_unlink(partial);
    free(text);
    return st;
}

enum status profile_save(const struct settings *s, const struct hardware *h)
{
    char path[4096];
    TRY(keep(s, KEPT_PROFILE, h, path));
    say(s, "profile: kept in %s\n", path);
    return OK;
}

enum status profile_keep_observed(const struct settings *s, const struct hardware *h)
{
    char path[4096];
    return keep(s, KEPT_OBSERVED, h, path);
}

/* Finds an existing directory on the drive of the store. */
static void drive_of(const struct settings *s, char path[4096])
{
    struct stat sb;
    snprintf(path, 4096, "%s", s->nvme_path.n ? s->nvme_path.item[0] : s->out);
    while (sys_stat(path, &sb) != 0 || !S_ISDIR(sb.st_mode)) {
        char *slash = strrchr(path, '/');
        if (!slash)
            strcpy(path, ".");
        else
            slash[slash == path ? 1 : 0] = 0;
    }
}

/* Reads the processor time so far in ticks, and the part of it that a virtual machine's host gave to others; 0 if the kernel does
 * not say. */
static void read_ticks(double *stolen, double *all)
{
    long long user, nice, system, idle, wait, irq, softirq, steal;
    FILE *f = fopen("/proc/stat", "re");
    *stolen = *all = 0;
    if (f && fscanf(f, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &wait, &irq, &softirq,
                    &steal) == 8) {
        *stolen = (double)steal;
        *all = (double)(user + nice + system + idle + wait + irq + softirq + steal);
    }
    if (f)
        fclose(f);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sets n figures from `field` of *out on to the medians of the passes. */
static void set_medians(const struct hardware pass[PASSES], struct hardware *out, double *field, size_t n)
{
    size_t offset = (size_t)((char *)field - (char *)out);
    for (size_t i = 0; i < n; i++) {
        double seen[PASSES];
        for (int k = 0; k < PASSES; k++)
            seen[k] = ((const double *)(const void *)((const char *)&pass[k] + offset))[i];
        qsort(seen, PASSES, sizeof *seen, compare_double);
        field[i] = seen[PASSES / 2];
    }
}

static void combine(const struct hardware pass[PASSES], struct hardware *h)
{
    *h = pass[0]; /* the points of all curves are the same in all passes */
    set_medians(pass, h, h->peak_flops, COST_TYPES);
    set_medians(pass, h, &h->device.gemm[0].flops[0][0], COST_TYPES * GEMM_LAYOUTS * GEMM_SHAPES);
    for (int t = 0; t < COST_TYPES; t++) {
        for (int d = 0; d < ATTENTION_DIMS; d++) {
            set_medians(pass, h, h->device.attention[t][d].forward.y, CURVE_POINTS);
            set_medians(pass, h, h->device.attention[t][d].backward.y, CURVE_POINTS);
        }
        for (int op = 0; op < OP_COUNT; op++)
            set_medians(pass, h, h->device.ops.op[op][t].y, CURVE_POINTS);
    }
    set_medians(pass, h, h->device.ops.memory.y, CURVE_POINTS);
    h->host = h->device.ops; /* the same kernels on the same processors */
    double *one[] = {&h->overhead,    &h->h2d,  &h->d2h,   &h->late, &h->wake_seconds, &h->throttled_cores, &h->throttled_bytes,
                     &h->host_memory, &h->read, &h->write, &h->both, &h->read_seconds, &h->write_seconds};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        set_medians(pass, h, one[i], 1);
    set_medians(pass, h, h->cores, LANES);
}

enum part { KERNELS, OPS, TRANSFERS, PARTS };

/* Measures one part of a pass. *slow: for the part KERNELS, the number of matrix products that stayed slow. */
static enum status measure_part(const struct settings *s, const char *path, enum part part, struct hardware *h, int *slow)
{
    switch (part) {
    case KERNELS:
        return profile_kernels(h, slow);
    case OPS:
        return profile_ops(s, h);
    default:
        return profile_lanes(s, path, h);
    }
}

/* Measures a part, and again if the host takes more than STOLEN of the processors; the calmer try counts. *taken: the host's
 * share during it. */
static enum status measure_calmly(const struct settings *s, const char *path, enum part part, struct hardware *h, int *slow,
                                  double *taken)
{
    const struct hardware before = *h;
    *taken = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        if (*taken <= STOLEN)
            break;
        struct hardware measured = before;
        double stolen[2], all[2];
        int n = 0;
        read_ticks(&stolen[0], &all[0]);
        TRY(measure_part(s, path, part, &measured, &n));
        read_ticks(&stolen[1], &all[1]);
        double share = (stolen[1] - stolen[0]) / fmax(all[1] - all[0], 1);
        if (share >= *taken)
            continue;
        *taken = share;
        *slow = n;
        *h = measured;
    }
    return OK;
}

/* Turns the host's figures into those of its GPU, by measuring the GPU; links to others come from its data sheet, if there is
 * one. */
static enum status add_gpu(const struct settings *s, struct hardware *h)
{
    const char *sheet = hardware_preset_of_gpu(s->gpu_name);
    struct hardware on = *h, of_sheet;
    if (hardware_preset(sheet ? sheet : "a10", &of_sheet) != OK)
        of_sheet = *h;
    say(s, "profile: measuring %s\n", s->gpu_name);
    on.cpu = 0;
    on.capability = s->plan.target->capability > 0 ? s->plan.target->capability : of_sheet.capability;
    on.processors = s->plan.target->processors;
    snprintf(on.name, sizeof on.name, "%.47s", s->gpu_name);
    on.device = of_sheet.device;
    memcpy(on.peak_flops, of_sheet.peak_flops, sizeof on.peak_flops);
    on.inside = of_sheet.inside;
    on.across = of_sheet.across;
    on.inside_seconds = of_sheet.inside_seconds;
    on.across_seconds = of_sheet.across_seconds;
    memset(&on.device.ops, 0, sizeof on.device.ops);
    memset(on.cores, 0, sizeof on.cores);
    on.throttled_cores = 0;
    TRY(profile_ops(s, &on));
    TRY(profile_gpu(s, &on));
    *h = on;
    return OK;
}

enum status profile_measure(const struct settings *s, struct hardware *out)
{
    struct hardware h, pass[PASSES];
    char path[4096], date[32], cpu[96];
    struct tm tm;
    time_t now = time(NULL);
    double began = clock_seconds();
    int slow = 0, disturbed = INT_MAX;
    double taken, most = 0;
    hardware_assumed(&h);
    drive_of(s, path);
    processor(cpu, sizeof cpu);
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &tm));
    say(s, "profile: measuring %s with %d threads and the drive of %s\n", cpu, s->plan.threads, path);
    snprintf(h.name, sizeof h.name, "%.47s", cpu);
    snprintf(h.source, sizeof h.source, "profiled on this machine, %s", date);
    h.device_mem = h.host_mem = memory_proc_bytes("/proc/meminfo", "MemTotal") / 2;
    if (sys_statvfs_free(path, &h.nvme_mem) != 0)
        return status_fail(ERR_IO, "cannot see how much is free in %s: %s", path, strerror(errno));
    const int gpu = s->plan.device == DEVICE_CUDA;
    struct settings of_host = *s; /* for the host's work beside a GPU: updates, drives */
    of_host.plan.device = gpu ? DEVICE_CPU : s->plan.device;
    for (int i = 0; i < PASSES; i++) {
        pass[i] = h;
        for (int part = gpu ? OPS : KERNELS; part < PARTS; part++) {
            TRY(measure_calmly(&of_host, path, (enum part)part, &pass[i], &slow, &taken));
            disturbed = part == KERNELS && slow < disturbed ? slow : disturbed;
            most = fmax(most, taken);
        }
    }
    combine(pass, &h);
    if (gpu)
        TRY(add_gpu(s, &h));
    if (most > STOLEN)
        say(s,
            "profile: the host of this virtual machine gave up to %.0f%% of its processors' time to others, time and again; "
            "measure again later\n",
            100 * most);
    if (disturbed && !gpu)
        say(s, "profile: %d matrix products stayed slow because of other processes; measure again when the machine is idle\n",
            disturbed);
    say(s,
        "profile: %.0f s; products up to %.0f GFLOP/s (bf16 %.0f), copies %.1f GB/s, drive %.1f GB/s read, %.1f written, %.1f "
        "both at once\n",
        clock_seconds() - began, h.peak_flops[F32] * 1e-9, h.peak_flops[BF16] * 1e-9, h.h2d * 1e-9, h.read * 1e-9, h.write * 1e-9,
        h.both * 1e-9);
    TRY(profile_save(s, &h));
    *out = h;
    return OK;
}
