/* Tests disks without room: where it can be known before, the run is refused; during the run nothing is lost. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESIDENT TINY "--offload none "

static void reference(void)
{
    e2e_succeeds(NULL, RESIDENT "--steps 3 --out reference");
}

static void same_model(const char *run)
{
    char path[256];
    snprintf(path, sizeof path, "%s/hf/model.safetensors", run);
    e2e_same_file(path, "reference/hf/model.safetensors");
}

/* ---- before the run ---- */

/* A run that is refused leaves nothing behind; `plan` refuses, too. */
static void refused_at_planning(void **state)
{
    (void)state;
#define MUCH "--steps 2000000 --save-every 1 --keep 1000000 --out run"
    e2e_refuses(3,
                "run needs |for 1000001 checkpoints of 1.7 MiB (--save-every 1, --keep 1000000 and one|are free: free some, or "
                "give another --out; --keep 1 would need ",
                NULL, RESIDENT MUCH);
    struct result r = e2e_refuses(3, "run needs |for 1000001 checkpoints of 1.7 MiB|are free", NULL, "plan " RESIDENT MUCH);
    e2e_contains(r.out, ": fits, ");
    e2e_refuses(3, "run needs ", NULL, RESIDENT "--steps 1073741824 --save-every 1 --keep 1073741824 --out run");
    assert_false(e2e_exists("run"));
    e2e_succeeds(NULL, "plan " RESIDENT MUCH " --machine h100");
    /* the room includes a copy of a model's tokenizer */
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        return;
    char golden[4096];
    snprintf(golden, sizeof golden, "%s/tests/golden/llama-gqa", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(golden, "model");
    int fd = open("model/chat_template.jinja", O_WRONLY | O_CREAT, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)4 << 40) != 0)
        skip();
    close(fd);
    e2e_refuses(3, "run needs |the model at the end (4.0 TiB), log and settings (4.0 TiB)", NULL,
                "--model model --data corpus.txt --seq-len 128 --offload none --steps 1 --out run");
}

static const char *mount_options;

static int mount_small(void)
{
    return e2e_private_mounts() || mount("none", "small", "tmpfs", 0, mount_options);
}

static void small_disks(void **state)
{
    (void)state;
    if (!e2e_can_mount())
        skip();
    const struct launch small = {.prepare = mount_small};
    assert_int_equal(mkdir("small", 0777), 0);
#define UNTIL_STOPPED "--steps 524288000 --out small/run"
#define INTO_SMALL "--steps 12 --save-every 4 --out small/run"
    mount_options = "size=512m";
    e2e_refuses(3, "small/run needs 1.0 GiB |the model at the end |, log and settings (1.0 GiB for --steps 524288000)", &small,
                RESIDENT UNTIL_STOPPED);
    mount_options = "size=1100m";
    e2e_succeeds(&small, "plan " RESIDENT UNTIL_STOPPED);
    mount_options = "size=1m";
    e2e_refuses(3, "small/run needs |3 checkpoints of |1.0 MiB are free", &small, RESIDENT INTO_SMALL);
    mount_options = "size=4m";
    e2e_refuses(3, "small/run needs |3 checkpoints of |4.0 MiB are free|; --keep 1 would need 3.7 MiB", &small,
                RESIDENT INTO_SMALL);
    e2e_succeeds(&small, RESIDENT INTO_SMALL " --keep 1");
    mount_options = "size=64m";
    e2e_refuses(3, "small/run needs |3 checkpoints of 306 MiB|64 MiB are free", &small,
                "--model 25m --data corpus.txt --seq-len 256 --threads 1 " INTO_SMALL);
    e2e_succeeds(&small, RESIDENT INTO_SMALL);
    /* the nvme tier leaves room for the run's own files */
    mount_options = "size=6m";
    e2e_succeeds(&small, TINY DISCRETE "--nvme-path small --steps 2 --out elsewhere");
    e2e_refuses(3, "on the nvme|5% left free, beside 5.5 MiB for checkpoints, model and log", &small, TINY DISCRETE INTO_SMALL);
}

/* ---- during the run ---- */

/* A line of the log that cannot be written is written together with a later line. */
static void no_room_for_the_log(void **state)
{
    static const char *const errors[] = {"ENOSPC", "EDQUOT", "SHORT"};
    (void)state;
    reference();
    struct curve a = e2e_curve("reference");
    for (int i = 0; i < 6; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "pwrite:%d:%s", 2 + i / 3, errors[i % 3]); /* the first pwrite writes the lock */
        e2e_remove("run");
        struct result r = e2e_succeeds(&(struct launch){.fault = fault}, RESIDENT "--steps 3 --out run");
        if (i % 3 < 2) {
            e2e_contains(r.out, i % 3 ? "Disk quota exceeded; its line is kept" : "No space left on device; its line is kept");
            e2e_contains(r.out, "run/metrics.jsonl is written again, with the lines of 1 steps");
        }
        struct curve b = e2e_curve("run");
        assert_int_equal(b.n, 3);
        e2e_same_curve(&a, &b, 3);
    }
}

/* The n-th write fails once: either the run goes on, or its state is saved elsewhere. */
static void no_room_for_a_checkpoint(void **state)
{
    int later = 0, elsewhere = 0, exported = 0;
    (void)state;
    reference();
    for (int nth = 8; nth < 2000; nth += 37) { /* a checkpoint takes about 200 writes */
        char fault[32];
        snprintf(fault, sizeof fault, "pwrite:%d:ENOSPC", nth);
        e2e_remove("run");
        struct result r = e2e_run(&(struct launch){.fault = fault}, RESIDENT "--steps 3 --save-every 1 --out run");
        assert_int_equal(e2e_count("run/checkpoints/*.partial"), 0);
        assert_int_equal(e2e_curve("run").n, 3);
        if (r.status == 0 && !strstr(r.out, "No space left"))
            break; /* the fault did not occur, since the run made fewer than nth writes */
        if (r.status == 0) {
            e2e_contains(r.out, " not saved: cannot write run/checkpoints/step-00000");
            e2e_contains(r.out, "No space left on device; training goes on, and the next save is that of step ");
            assert_string_equal(r.err, "");
            same_model("run");
            later++;
        } else if (strstr(r.err, " instead: ltrain --resume ")) {
            e2e_contains(r.err, "ltrain: cannot write run/checkpoints/step-000003.partial/");
            e2e_contains(r.err, "; step 3 was saved in ");
            e2e_contains(r.err, "/run-saved goes on there\n");
            e2e_succeeds(NULL, "--resume run-saved");
            same_model("run-saved");
            e2e_remove("run-saved");
            elsewhere++;
        } else {
            e2e_contains(r.err, "ltrain: the model was not exported: cannot write run/hf/export.partial/");
            e2e_contains(r.err, "its step 3 is saved: ltrain --resume run exports it\n");
            e2e_succeeds(NULL, "--resume run");
            same_model("run");
            exported++;
        }
    }
    print_message("saved later %d, elsewhere %d, exported on resume %d\n", later, elsewhere, exported);
    assert_true(later > 0 && elsewhere > 0 && exported > 0);
}

static int limit_files(void)
{
    const struct rlimit l = {1000000, 1000000}; /* the tiny model has 593 KB, its moments twice as much */
    return setrlimit(RLIMIT_FSIZE, &l);
}

/* There is no room for a checkpoint anywhere, but for the model alone: the model is saved. */
static void room_for_the_model_alone(void **state)
{
    (void)state;
    reference();
    e2e_refuses(1,
                "File too large; nor could step 3 be saved in |; its model alone is in run/hf: --model run/hf|no checkpoint yet",
                &(struct launch){.prepare = limit_files}, RESIDENT "--steps 3 --save-every 1 --out run");
    same_model("run");
}

static void stopping_at_a_failed_save(void **state)
{
    (void)state;
    reference();
    e2e_refuses(1, "Disk quota exceeded; step 1 was saved in |/run-saved instead: ltrain --resume ",
                &(struct launch){.fault = "fallocate:1:EDQUOT"},
                RESIDENT "--steps 3 --save-every 1 --on-save-failure stop --out run");
    assert_int_equal(e2e_curve("run").n, 1);
    e2e_succeeds(NULL, "--resume run-saved");
    same_model("run-saved");
    /* the saved model includes its files that exports need */
    assert_int_equal(rename("run-saved/hf", "model"), 0);
    e2e_write("model/tokenizer_config.json", "{\"x\": 1}\n");
    e2e_remove("run-saved");
    e2e_refuses(1, "/run2-saved instead: ltrain --resume ", &(struct launch){.fault = "fallocate:1:EDQUOT"},
                "--model model --data corpus.txt --seq-len 256" TILES
                "--offload none --steps 3 --save-every 1 --on-save-failure stop --out run2");
    e2e_same_file("model/config.json", "run2-saved/original/config.json");
    e2e_same_file("model/tokenizer_config.json", "run2-saved/original/tokenizer_config.json");
    e2e_refuses(2, "--on-save-failure|countinue|did you mean continue?", NULL, RESIDENT "--on-save-failure countinue");
}

/* The first checkpoint is in place when `latest` cannot be written: the message names the checkpoint. */
static void without_latest(void **state)
{
    (void)state;
    int found = 0;
    for (int nth = 1; nth <= 12 && !found; nth++) {
        char fault[32];
        snprintf(fault, sizeof fault, "rename:%d:EIO", nth);
        e2e_remove("run");
        struct result r = e2e_run(&(struct launch){.fault = fault}, RESIDENT "--steps 2 --save-every 1 --out run");
        found = strstr(r.out, "step 1 not saved: cannot rename run/checkpoints/latest.partial") != NULL;
        if (found)
            e2e_contains(r.out, "; the last good checkpoint is run/checkpoints/step-000001: continue with --resume run\n");
    }
    assert_true(found);
}

/* Adds to a file until the disk is full. */
static int fill(const char *path)
{
    static char block[1 << 16];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0)
        return errno;
    while (write(fd, block, sizeof block) > 0)
        ;
    int error = errno;
    close(fd);
    return error;
}

/* Keeps the disk full until the run has said so many times that a step is not saved: the run frees room itself, since it removes
 * former checkpoints. */
static void keep_full_until_unsaved(pid_t pid, int times)
{
    while (e2e_count_unsaved() < times) {
        assert_false(e2e_ended(pid));
        assert_int_equal(fill("small/fill"), ENOSPC);
        usleep(2000);
    }
}

static void wait_for_file(pid_t pid, const char *path)
{
    while (!e2e_exists("%s", path)) {
        assert_false(e2e_ended(pid));
        usleep(1000);
    }
}

/* Another program fills the disk during the run, and frees it again. */
static void another_fills_the_disk(void **state)
{
    (void)state;
    if (!e2e_can_mount())
        skip();
    assert_int_equal(mkdir("small", 0777), 0);
    assert_int_equal(e2e_private_mounts() | mount("none", "small", "tmpfs", 0, "size=64m"), 0);
    pid_t pid = e2e_start(NULL, RESIDENT "--steps 20000 --save-every 1 --out small/run");
    wait_for_file(pid, "small/run/checkpoints/latest");
    keep_full_until_unsaved(pid, 1);
    assert_int_equal(unlink("small/fill"), 0);
    if (e2e_exists("small/run/checkpoints/latest"))
        unlink("small/run/checkpoints/latest");
    wait_for_file(pid, "small/run/checkpoints/latest");
    keep_full_until_unsaved(pid, e2e_count_unsaved() + 2); /* at least one step was not saved */
    kill(pid, SIGTERM);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "/run-saved instead: ltrain --resume ");
    unlink("small/fill");
    e2e_succeeds(NULL, "--resume run-saved --steps 1");
    e2e_succeeds(NULL, "--resume small/run --steps 1");
    umount("small");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(refused_at_planning),      TEST(small_disks),
        TEST(no_room_for_the_log),      TEST(no_room_for_a_checkpoint),
        TEST(room_for_the_model_alone), TEST(stopping_at_a_failed_save),
        TEST(without_latest),           TEST(another_fills_the_disk), /* last, as it leaves the mount namespace */
    };
    return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
