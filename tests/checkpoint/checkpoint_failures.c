/* Part of checkpoint_ranks: one rank fails at a system call, sees another directory, or is killed. */
#include "checkpoint/checkpoint_ranks.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- one rank fails ---- */

/* Two sessions whose states, distinguished by info.updates, are saved alternately; a third session loads the checkpoint that is
 * found. */
static struct rig rigs[2], loaded;
static uint64_t known[2][3], last_id;
static int64_t next_id = 1;

static void rigs_start(const struct layout *l)
{
    for (int i = 0; i < 2; i++) {
        start(&rigs[i], l, BF16, 1, 1 + (uint64_t)i);
        digest(&rigs[i], known[i]);
    }
    start(&loaded, l, BF16, 1, 9);
}

static void rigs_stop(void)
{
    rig_stop(&rigs[0]);
    rig_stop(&rigs[1]);
    rig_stop(&loaded);
}

/* Saves the next state; every third save repeats a step. */
static enum status save_next(const char *run)
{
    int64_t id = next_id++;
    struct checkpoint_info info = info_of(id - id / 3);
    info.cursor = (uint64_t)id;
    info.updates = id % 2;
    return checkpoint_save(rigs[id % 2].session, run, &info, NULL, 1);
}

/* Checks that all ranks have the same status and message. */
static void check_same(enum status st, const char *what)
{
    struct said {
        int64_t status;
        char text[200];
    } mine = {.status = st}, *all = calloc((size_t)size, sizeof *all);
    if (st != OK)
        snprintf(mine.text, sizeof mine.text, "%s", status_message());
    must(comm_gather(comm, &mine, sizeof mine, all), "gather");
    for (int i = 0; i < size && rank == 0; i++)
        CHECK(memcmp(&all[i], &all[0], sizeof mine) == 0, "%s: rank %d says %d (%s), rank 0 %d (%s)", what, i, (int)all[i].status,
              all[i].text, (int)all[0].status, all[0].text);
    free(all);
}

/* Checks that a whole checkpoint is found, from the save `oldest` or later. */
static void check_found(const char *run, uint64_t oldest)
{
    char path[300], note[512];
    struct checkpoint_info info;
    uint64_t got[3];
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    must(checkpoint_load(loaded.session, path), "load");
    digest(&loaded, got);
    CHECK(memcmp(got, known[info.updates], sizeof got) == 0 && info.updates == (int64_t)(info.cursor % 2), "%s is damaged", path);
    CHECK(info.cursor >= oldest, "found the save %d, expected %d or later: %s", (int)info.cursor, (int)oldest, note);
    last_id = info.cursor;
}

static const struct fault {
    enum sys_call call;
    int error, harmless;
} faults[] = {
    {SYS_OPEN, EMFILE, 0},      {SYS_CLOSE, EIO, 0},        {SYS_PREAD, EIO, 0},     {SYS_PREAD, SYS_SHORT, 1},
    {SYS_PWRITE, ENOSPC, 0},    {SYS_PWRITE, SYS_SHORT, 1}, {SYS_FSYNC, EIO, 0},     {SYS_RENAME, EIO, 0},
    {SYS_UNLINK, EACCES, 0},    {SYS_MKDIR, ENOSPC, 0},     {SYS_MALLOC, ENOMEM, 0}, {SYS_STATVFS, EIO, 1},
    {SYS_FALLOCATE, ENOSPC, 0}, {SYS_STAT, EIO, 0},         {SYS_OPENDIR, EIO, 0},   {SYS_READDIR, EIO, 0},
    {SYS_RMDIR, EIO, 1},
};

/* Arms a fault on one rank. The number of calls of that kind tells whether it fired (all ranks learn it). */
static void arm(const struct fault *f, int victim, int n)
{
    sys_inject_clear();
    if (rank == victim)
        sys_inject(f->call, n, f->error);
}

static int fired(const struct fault *f, int victim, int n)
{
    double calls = rank == victim ? (double)sys_count(f->call) : 0;
    sys_inject_clear();
    must(comm_sum(comm, &calls, 1), "sum");
    return calls >= n;
}

/* Returns the next number of a call to fail: every number up to 8, then ever fewer (all of them with --long). */
static int next_number(int n, int all)
{
    return n + (all ? 1 : 1 + n / 8);
}

/* Tells whether the call lists a directory. Only rank 0 lists directories, and a save does so only to tidy up. */
static int is_list(const struct fault *f)
{
    return f->call == SYS_OPENDIR || f->call == SYS_READDIR;
}

/* Makes the n-th call of a kind fail on one rank while all save, for many n. */
static void sweep_save(const struct fault *f, int victim, int all, const char *run)
{
    int failed = 0;
    for (int n = 1, came = 1; came; n = next_number(n, all)) {
        arm(f, victim, n);
        enum status st = save_next(run);
        came = fired(f, victim, n);
        check_same(st, "save");
        CHECK(st == OK || (came && !f->harmless), "call %d, number %d on rank %d: %s", f->call, n, victim, status_message());
        failed += st != OK;
        check_found(run, st == OK ? (uint64_t)next_id - 1 : last_id);
    }
    /* every rank opens, reads, writes, syncs and allocates, so that these failures cannot go unnoticed */
    CHECK(f->harmless || f->call == SYS_UNLINK || is_list(f) || failed > 0 ||
              (victim > 0 && (f->call == SYS_RENAME || f->call == SYS_MKDIR || f->call == SYS_FALLOCATE)),
          "call %d never failed a save on rank %d", f->call, victim);
}

/* Makes calls fail while all ranks find and load: a wrong checkpoint is never taken. */
static void sweep_load(const struct fault *f, int victim, int all, const char *run)
{
    int failed = 0;
    for (int n = 1, came = 1; came; n = next_number(n, all)) {
        char path[300], note[512];
        struct checkpoint_info info;
        uint64_t got[3];
        arm(f, victim, n);
        enum status st = checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note);
        if (st == OK)
            st = checkpoint_load(loaded.session, path);
        came = fired(f, victim, n);
        check_same(st, "load");
        CHECK(st == OK || (came && !f->harmless), "call %d, number %d on rank %d: %s", f->call, n, victim, status_message());
        failed += st != OK;
        if (st == OK)
            digest(&loaded, got);
        CHECK(st != OK || memcmp(got, known[info.updates], sizeof got) == 0, "call %d, number %d on rank %d: damaged", f->call, n,
              victim);
    }
    CHECK(f->harmless || failed > 0 || (victim > 0 && is_list(f)), "call %d never failed a load on rank %d", f->call, victim);
}

/* A rank that is given another directory than rank 0, even one with an old step-N.partial, does not see rank 0's. */
static void check_unshared(const char *run)
{
    char other[220], path[300], note[512];
    struct checkpoint_info info = info_of(50), found;
    snprintf(other, sizeof other, "%s-other", run);
    for (int stale = 0; stale < 2; stale++) {
        if (rank == 1 && stale) {
            char command[1000];
            snprintf(command, sizeof command,
                     "mkdir -p %s/checkpoints && cp -r $(ls -d %s/checkpoints/step-?????? | tail -n 1) "
                     "%s/checkpoints/step-000050.partial",
                     other, run, other);
            CHECK(system(command) == 0, "%s", command);
        }
        enum status st = checkpoint_save(rigs[0].session, rank == 1 ? other : run, &info, NULL, 1);
        check_same(st, "unshared");
        CHECK(st == ERR_INVALID && strstr(status_message(), "rank 1: ") &&
                  strstr(status_message(), "file system that all ranks share"),
              "%s", status_message());
    }
    check_found(run, last_id);
    enum status st = checkpoint_find(comm, rank == 1 ? other : run, path, sizeof path, &found, note, sizeof note);
    CHECK(st == ERR_INVALID && strstr(status_message(), "file system that all ranks share"), "%s", status_message());
}

/* If the newest checkpoint is damaged in a part that only rank 1 hashes, all ranks fall back on the checkpoint before. */
static void check_damage(const char *run)
{
    char path[300], file[340], note[512];
    struct checkpoint_info info;
    struct stat s;
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    int64_t id = next_id++;
    info = info_of(1000000); /* a step number above those of all other saves */
    info.cursor = (uint64_t)id;
    must(checkpoint_save(rigs[id % 2].session, run, &info, NULL, 2), "save");
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    snprintf(file, sizeof file, "%s/optimizer.safetensors", path);
    must(comm_barrier(comm), "barrier");
    FILE *f = rank == 0 && stat(file, &s) == 0 ? fopen(file, "r+") : NULL;
    CHECK(rank != 0 || (f && fseek(f, s.st_size - 5, SEEK_SET) == 0 && fputc('x', f) != EOF && fclose(f) == 0), "%s", file);
    must(comm_barrier(comm), "barrier");
    enum status st = checkpoint_load(loaded.session, path);
    check_same(st, "damaged");
    CHECK(st == ERR_CORRUPT && strstr(status_message(), "optimizer.safetensors is damaged"), "%s", status_message());
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    CHECK(info.cursor == (uint64_t)id - 1 && strstr(note, "optimizer.safetensors is damaged"), "%s", note);
}

void fail_all(int all)
{
    char run[200];
    struct layout l = {{{size, 1, 1}}, 2, 0};
    snprintf(run, sizeof run, "%s/faults", dir);
    rigs_start(&l);
    must(save_next(run), "save");
    check_found(run, 1);
    for (int victim = 1; victim >= 0; victim--)
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            const struct fault *f = &faults[i];
            if (all || victim == 1 || f->call == SYS_RENAME || f->call == SYS_MKDIR || f->call == SYS_FSYNC ||
                f->call == SYS_PWRITE)
                sweep_save(f, victim, all, run);
            if (f->call == SYS_OPEN || f->call == SYS_PREAD || f->call == SYS_MALLOC)
                sweep_load(f, victim, all, run);
        }
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    check_unshared(run);
    check_damage(run);
    rigs_stop();
}

/* ---- one rank is killed ---- */

static void on_alarm(int number)
{
    (void)number;
    kill(getpid(), SIGKILL);
}

/* Checks what the previous trial left, then saves again and again until the victim is killed. DIR/done holds the last save known
 * to be complete. */
void be_killed(uint64_t seed)
{
    char run[200], path[220], text[32];
    struct layout l = {{{1, 2, size / 2}}, 3, 0};
    snprintf(run, sizeof run, "%s/kills", dir);
    snprintf(path, sizeof path, "%s/done", dir);
    rigs_start(&l);
    FILE *f = fopen(path, "r");
    if (f) { /* the file is empty if rank 0 was killed while writing it */
        if (!fgets(text, sizeof text, f))
            strcpy(text, "1");
        fclose(f);
        check_found(run, strtoull(text, NULL, 10));
    }
    must(comm_barrier(comm), "barrier"); /* all ranks have read the file before rank 0 rewrites it */
    next_id = (int64_t)last_id + 10;     /* larger than the id of any save that was begun */
    double began = clock_seconds();
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    double took = clock_seconds() - began;
    if (seed == 0) {
        rigs_stop();
        return;
    }
    if (rank == (int)(seed % (uint64_t)size)) {
        int64_t us = 1000 + (int64_t)(took * 1e6 * (double)rng_below(seed, 1, (uint64_t)getpid(), 2000) / 1000);
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {us / 1000000, us % 1000000}}, NULL);
    }
    for (;;) {
        f = rank == 0 ? fopen(path, "w") : NULL;
        if (f) {
            fprintf(f, "%lld", (long long)next_id - 1);
            fclose(f);
        }
        enum status st = save_next(run);
        if (st != OK) {
            fprintf(stderr, "rank %d: %s\n", rank, status_message());
            comm_destroy(comm);
            _exit(3);
        }
    }
}
