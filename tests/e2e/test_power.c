/* Power cuts: what runs do to files is recorded and replayed up to every point, with what was not synced lost, kept, torn or out of
 * order. A whole checkpoint is found every time, none older than the last that was saved, and resuming gives the same bits. */
#include "harness.h"

#include "drive.h"
#include "extent.h"
#include "found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN TINY DISCRETE "--dtype bf16 --save-every 1 --lora r=2 " /* adapters make small checkpoints: thousands are written */
#define EXPORT "adapter_model.safetensors"

/* A run to record: the directory `disk` is prepared, then the program's calls below it are recorded. */
struct story {
    const char *name;
    void (*prepare)(void);
    const char *arguments;
    int steps, saved; /* steps of the run; step of the checkpoint that is on the drive before */
};

static struct drive *record(const struct story *s, struct recording *calls)
{
    char path[4096], *right = strdup(getenv("LTRAIN"));
    assert_non_null(getcwd(path, sizeof path - 16));
    strcat(path, "/recording");
    e2e_remove("recording");
    e2e_remove("disk");
    assert_int_equal(mkdir("disk", 0777), 0);
    if (s->prepare)
        s->prepare();
    struct drive *before = drive_take("disk");
    setenv("LTRAIN_RECORD", path, 1);
    setenv("LTRAIN", getenv("LTRAIN_RECORDED"), 1);
    e2e_succeeds(NULL, "%s", s->arguments);
    setenv("LTRAIN", right, 1);
    unsetenv("LTRAIN_RECORD");
    free(right);
    recording_read("recording", calls);
    return before;
}

/* Changes that a faulty program would make to its calls. */
enum fault { FAULT_NONE, FAULT_NO_SYNC_OF_FILES, FAULT_NO_SYNC_OF_DIRECTORIES, FAULT_SYNC_LAST, FAULT_PRUNE_FIRST, FAULTS };
static const char *const fault_names[FAULTS] = {"no fault", "files are not synced", "directories are not synced",
                                                "files are synced after they are renamed and older ones removed",
                                                "older checkpoints are removed before the new one is there"};

static int is_called(const struct recorded_event *e, enum recorded kind, const char *name, const char *to)
{
    return e->kind == kind && strcmp(e->name, name) == 0 && strcmp(e->to, to) == 0;
}

/* Moves the renaming that begins the first checkpoint's removal to the beginning of the next one's save. */
static void prune_first(struct recording *r)
{
    int to = 0, from = 0;
    while (to < r->n && !is_called(&r->event[to], RECORDED_MKDIR, "step-000002.partial", ""))
        to++;
    while (from < r->n && !is_called(&r->event[from], RECORDED_RENAME, "step-000001", "step-000001.partial"))
        from++;
    assert_true(to < from && from < r->n);
    const struct recorded_event e = r->event[from];
    const char *data = r->data[from];
    memmove(r->event + to + 1, r->event + to, (size_t)(from - to) * sizeof *r->event);
    memmove(r->data + to + 1, r->data + to, (size_t)(from - to) * sizeof *r->data);
    r->event[to] = e;
    r->data[to] = data;
}

/* Applies a call as the faulty program would make it. late: number of the first call whose sync of files is to come; updated. */
static void apply(struct drive *d, const struct recording *r, int i, enum fault fault, int *late)
{
    const struct recorded_event *e = &r->event[i];
    const int dir = e->kind == RECORDED_SYNCED && drive_is_directory(d, e), file = e->kind == RECORDED_SYNCED && !dir;
    if (fault == FAULT_SYNC_LAST && e->kind == RECORDED_SAVED)
        for (; *late < i; ++*late)
            if (r->event[*late].kind == RECORDED_SYNCED && !drive_is_directory(d, &r->event[*late]))
                drive_apply(d, &r->event[*late], NULL);
    if (!(file && (fault == FAULT_NO_SYNC_OF_FILES || fault == FAULT_SYNC_LAST)) &&
        !(dir && fault == FAULT_NO_SYNC_OF_DIRECTORIES))
        drive_apply(d, e, r->data[i]);
}

/* Checks the run in `cut/run`: 1 if a checkpoint no older than step `saved` is found, with the bits of the undisturbed run's. */
static int finds(int64_t saved, char *why, size_t size)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    char path[4096], said[2048], own[4200], reference[128];
    const int64_t step = found_checkpoint("cut/run", path, sizeof path, said, sizeof said);
    snprintf(why, size, "step %lld is found where step %lld was saved: %s", (long long)step, (long long)saved, said);
    if (step < saved)
        return 0;
    if (step == 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(own, sizeof own, "%s/%s", path, files[i]);
        snprintf(reference, sizeof reference, "reference/checkpoints/step-%06lld/%s", (long long)step, files[i]);
        e2e_same_file(own, reference);
    }
    return 1;
}

/* Resumes the run in `cut/run` and compares it with the undisturbed one. Returns 0 if it has no checkpoint. */
static int resumes(int steps)
{
    e2e_remove("run");
    if (!e2e_exists("cut/run") || rename("cut/run", "run") != 0 ||
        e2e_count("run/checkpoints/step-??????") + e2e_count("run/checkpoints/*.old") == 0)
        return 0;
    e2e_succeeds(NULL, "--resume run --steps %d", steps);
    struct curve c = e2e_curve("run"), whole = e2e_curve("reference");
    assert_int_equal(c.n, steps);
    e2e_same_curve(&whole, &c, steps);
    e2e_same_file("reference/hf/" EXPORT, "run/hf/" EXPORT);
    return 1;
}

/* Cuts the power after each call, and tries what may be on the drive then: nothing or all of what was not synced, and `drawn`
 * others. Of a faulty program the first drive without the checkpoint that it must have is enough; returns their number. resumed:
 * about how many drives are resumed from. */
static int cut(const struct story *s, enum fault fault, int drawn, int resumed)
{
    struct recording calls;
    struct drive *d = record(s, &calls);
    const int every = resumed ? calls.n / resumed + 1 : calls.n + 1, fates = FATE_DRAWN + drawn;
    int lost = 0, tried = 0, begun = 0, late = 0, last = 0;
    int64_t saved = s->saved;
    char why[4096];
    if (fault == FAULT_PRUNE_FIRST)
        prune_first(&calls);
    for (int i = 0; i < calls.n && !lost; i++) {
        const struct recorded_event *e = &calls.event[i];
        apply(d, &calls, i, fault, &late);
        saved = e->kind == RECORDED_SAVED ? e->bytes : saved;
        if (!extent_is_long() && (e->kind == RECORDED_WRITE || e->kind == RECORDED_SIZE || e->kind == RECORDED_SYNC))
            continue; /* the next call's drives lack these or have them, too */
        for (int f = 0; f < fates && !lost; f++, tried++) {
            drive_write(d, "cut", f < FATE_DRAWN ? (enum fate)f : FATE_DRAWN, (uint64_t)(i * fates + f));
            lost = !finds(saved, why, sizeof why);
            if (!lost && i - last >= every && i % fates == f)
                begun += resumes(s->steps), last = i;
            if (lost && fault == FAULT_NONE)
                fail_msg("%s: after call %d of %d, fate %d: %s", s->name, i, calls.n, f, why);
        }
    }
    if (fault == FAULT_NONE) { /* the export of a run that has ended is there, too */
        drive_write(d, "cut", FATE_LOST, 0);
        e2e_same_file("reference/hf/" EXPORT, "cut/run/hf/" EXPORT);
    }
    print_message("%s, %s: %d calls, %d drives, %d resumed: %s\n", s->name, fault_names[fault], calls.n, tried, begun,
                  lost ? why : "all are whole");
    drive_free(d);
    recording_free(&calls);
    return lost;
}

/* A run of two steps is there, which goes on. */
static void after_two_steps(void)
{
    e2e_succeeds(NULL, RUN "--keep 1 --steps 2 --out disk/run");
}

/* A run of four steps was set back to step 2, so that the saves of the next steps replace checkpoints. */
static void set_back(void)
{
    e2e_succeeds(NULL, RUN "--keep 9 --steps 4 --out disk/run");
    e2e_write("disk/run/checkpoints/latest", "step-000002\n");
}

static const struct story stories[] = {
    {"a new run", NULL, RUN "--keep 1 --steps 3 --out disk/run", 3, 0},
    {"a resumed run", after_two_steps, "--resume disk/run --steps 3", 3, 2},
    {"a run that was set back", set_back, "--resume disk/run --steps 3 --keep 1", 3, 2},
};
enum { STORIES = sizeof stories / sizeof *stories };

static void power_cuts(void **state)
{
    (void)state;
    for (int i = 0; i < STORIES; i++)
        cut(&stories[i], FAULT_NONE, extent(1, 3, 60), extent(1, 6, 400));
}

static void planted_faults_are_found(void **state)
{
    (void)state;
    for (int f = 1; f < FAULTS; f++)
        if (!cut(&stories[0], (enum fault)f, 8, 0))
            fail_msg("nothing was found: %s", fault_names[f]);
}

static int prepare(void **state)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1); /* thousands of directories are made and removed */
    if (!getenv("LTRAIN_RECORDED") || e2e_setup(state) != 0 || found_begin() != 0)
        return -1;
    e2e_succeeds(NULL, RUN "--keep 9 --steps 3 --out reference");
    return 0;
}

static int finish(void **state)
{
    found_end();
    return e2e_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(power_cuts), cmocka_unit_test(planted_faults_are_found)};
    return cmocka_run_group_tests_name("power", tests, prepare, finish);
}
