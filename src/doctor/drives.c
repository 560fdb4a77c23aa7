/* Directories for offloading: room, O_DIRECT, io_uring, bandwidth. */
#include "doctor/checks.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "offload/store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (16LL << 20)
#define MEASURED (1LL << 30)     /* bytes written and read to measure a drive */
#define LITTLE_ROOM (10LL << 30) /* bytes below which a path is no help for real models */

void doctor_io(struct findings *f, const char *root, const char *path)
{
    struct store_config c = {.paths = {path}, .n_paths = 1, .bytes = STORE_ALIGN, .way = STORE_URING};
    struct store *s = NULL;
    char line[32];
    if (sys_access(path, W_OK | X_OK) != 0)
        return; /* doctor_path reports why */
    const enum status st = store_open(&c, &s);
    store_close(s);
    if (st == OK) {
        findings_add(f, VERDICT_OK, "io_uring", "", "the kernel allows it");
        return;
    }
    const long off = strtol(doctor_read_line(root, "/proc/sys/kernel/io_uring_disabled", line, sizeof line), NULL, 10);
    findings_add(f, VERDICT_WARNING, "io_uring",
                 off > 0 ? "`sysctl kernel.io_uring_disabled=0`"
                         : "an old kernel, or a container's seccomp profile (docker --security-opt seccomp=unconfined)",
                 "not to be had here; threads move blocks instead, with more load on the processor");
}

/* Writes and reads pieces of a store, and returns the bytes per second of the direction; 0: it failed. */
static double move(struct store *s, enum store_direction d, char *memory, int64_t bytes)
{
    const double from = clock_seconds();
    uint64_t ticket = 0;
    for (int64_t at = 0; at < bytes; at += PIECE)
        if (store_submit(s, d, at, memory, PIECE, &ticket) != OK)
            return 0;
    return store_wait(s, d, ticket) == OK ? (double)bytes / fmax(clock_seconds() - from, 1e-9) : 0;
}

/* Measures a path and adds its rates to those of all. */
static void measure(struct findings *f, const char *path, int64_t room, struct drive_rates *all)
{
    const int64_t bytes = min_i64(MEASURED, room / 4 / PIECE * PIECE);
    struct store_config c = {.paths = {path}, .n_paths = 1, .bytes = bytes};
    struct store *s = NULL;
    char *memory = bytes > 0 ? sys_calloc(1, PIECE) : NULL;
    double written = 0, read = 0;
    for (int64_t i = 0; memory && i < PIECE; i += 8) /* drives may pack zeros */
        memcpy(memory + i, &(uint64_t){(uint64_t)i * 0x9E3779B97F4A7C15u}, 8);
    if (memory && store_open(&c, &s) == OK) {
        written = move(s, STORE_WRITE, memory, bytes);
        read = written > 0 ? move(s, STORE_READ, memory, bytes) : 0;
    }
    if (read > 0)
        findings_add(f, VERDICT_OK, "bandwidth", "", "%s: %.2f GB/s written, %.2f GB/s read", path, written * 1e-9, read * 1e-9);
    else
        findings_add(f, VERDICT_FAILURE, "bandwidth", "", "%s: %s", path, bytes > 0 ? status_message() : "no room to measure in");
    all->written += read > 0 ? written : 0;
    all->read += read;
    store_close(s);
    free(memory);
}

/* Checks that blocks can be written to the path past the page cache. Returns 0 if nothing can be written. */
static int check_blocks(struct findings *f, const char *path)
{
    struct store_config c = {.paths = {path}, .n_paths = 1, .bytes = STORE_ALIGN};
    struct store *s = NULL;
    char block[STORE_ALIGN] = {1};
    enum status st = store_open(&c, &s);
    if (st == OK)
        st = store_write(s, 0, block, sizeof block);
    if (st == OK)
        st = store_read(s, 0, block, sizeof block);
    if (st != OK)
        findings_add(f, VERDICT_FAILURE, "path", "", "%s: %s", path, status_message());
    else if (strstr(store_describe(s), "no O_DIRECT"))
        findings_add(f, VERDICT_WARNING, "path", "give a directory of a local drive (ext4, xfs)",
                     "%s: its file system refuses O_DIRECT, so that blocks go through the page cache", path);
    store_close(s);
    return st == OK;
}

void doctor_path(struct findings *f, const char *path, int measured, struct drive_rates *all)
{
    struct disk d;
    struct stat st;
    char room[64];
    if (sys_stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        findings_add(f, VERDICT_FAILURE, "path", "make the directory, or give another one by --nvme-path", "%s: %s", path,
                     errno == ENOENT ? "there is no such directory" : "it is no directory that can be looked at");
        return;
    }
    if (sys_access(path, W_OK | X_OK) != 0) {
        findings_add(f, VERDICT_FAILURE, "path", "give a directory of your own by --nvme-path", "%s: you may not write there",
                     path);
        return;
    }
    if (disk_look(path, &d) != 0) {
        findings_add(f, VERDICT_FAILURE, "path", "", "%s: its file system does not answer: %s", path, strerror(errno));
        return;
    }
    if (!check_blocks(f, path))
        return;
    if (d.in_memory)
        findings_add(f, VERDICT_WARNING, "path",
                     "give a directory of a drive: what is offloaded there takes the memory that it is to free",
                     "%s lies in memory (tmpfs)", path);
    if (d.shared)
        findings_add(f, VERDICT_WARNING, "path", "local drives are faster, and their locks are seen by all who use them",
                     "%s lies on a file system that other hosts share", path);
    findings_add(f, disk_room(&d) < LITTLE_ROOM ? VERDICT_WARNING : VERDICT_OK, "path",
                 disk_room(&d) < LITTLE_ROOM ? "full fine-tuning offloads 16 bytes a parameter: 16 GB for a model of 1b" : "",
                 "%s: %s", path, disk_say_room(&d, room));
    if (measured)
        measure(f, path, disk_room(&d), all);
    else
        findings_add(f, VERDICT_UNMEASURED, "bandwidth", "--measure writes and reads 1 GiB", "%s", path);
}
