/* Tests --verify-every: a kernel that errs once is found and told, and runs without a fault keep their bits. */
#include "harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST " --offload cpu --device cpu:discrete "
#define ERRING TINY "--device cpu --offload none "

/* Lets programs started from now on err; NULL: never. They are the erring ltrain then. */
static void set_fault(const char *fault)
{
    static char right[4096];
    if (!right[0])
        snprintf(right, sizeof right, "%s", getenv("LTRAIN"));
    setenv("LTRAIN", fault ? getenv("LTRAIN_ERRING") : right, 1);
    if (fault)
        setenv("LTRAIN_ERRS", fault, 1);
    else
        unsetenv("LTRAIN_ERRS");
}

/* Returns the number of forward calls of a program that has just run. */
static long calls(void)
{
    char *text = e2e_read("calls.txt", NULL);
    const long n = strtol(text, NULL, 10);
    free(text);
    return n;
}

/* Fails unless the call's error is found; words: parts of the sentence, separated by '|'. */
static void must_find(const char *kind, long call, const char *words)
{
    char fault[64];
    snprintf(fault, sizeof fault, "%s %ld", kind, call);
    set_fault(fault);
    e2e_refuses(1, words, NULL, ERRING "--steps 3 --save-every 1 --verify-every 1 --out found");
}

/* An error in either computation of a step is found before that step is saved. The sentence names step and tensor, and says which
 * computation the third one agrees with. Without verification the run ends well, with other losses. */
static void errors_are_found(void **state)
{
    (void)state;
    if (!getenv("LTRAIN_ERRING"))
        skip();
    set_fault("none");
    e2e_succeeds(NULL, ERRING "--steps 1 --out one");
    const long once = calls();
    assert_true(once > 4);
    e2e_succeeds(NULL, ERRING "--steps 3 --out right");
    set_fault("forward 1");
    e2e_succeeds(NULL, ERRING "--steps 3 --out wrong");
    struct curve right = e2e_curve("right"), wrong = e2e_curve("wrong");
    assert_true(right.n == 3 && wrong.n == 3 && right.loss[0] != wrong.loss[0]);

    must_find("forward", 1,
              "step 1: the gradient of|other tensors|the loss differs, too|agrees with the second|no checkpoint yet");
    assert_int_equal(e2e_count("found/checkpoints/step-*"), 0);
    e2e_remove("found");
    must_find("forward", once + 1, "step 1: the gradient of|agrees with the first|(host ");
    e2e_remove("found");
    must_find("forward", 2 * once + 1, "step 2: the gradient of|agrees with the second|step-000001");
    assert_int_equal(e2e_count("found/checkpoints/step-*"), 1);
    e2e_remove("found");
    must_find(
        "backward", 1,
        "step 1: the gradient of model.layers.1.mlp.|differs between two computations|the loss is the same|agrees with the second");
    e2e_remove("found");
    set_fault(NULL);
}

/* An error in the update that a verified step computes twice is found, whichever of both computations it is in. */
static void errors_of_updates_are_found(void **state)
{
    (void)state;
    if (!getenv("LTRAIN_ERRING"))
        skip();
    for (long call = 2; call <= 3; call++) { /* the first prepares the kernel */
        must_find("update", call, "an update of the unit that begins with |differs in its values|nothing of this step was saved");
        assert_int_equal(e2e_count("found/checkpoints/step-*"), 0);
        e2e_remove("found");
    }
    set_fault(NULL);
}

/* Memory that errs at one address errs in other values of the second computation, whose activations lie elsewhere. */
static void stuck_memory_is_found(void **state)
{
    (void)state;
    if (!getenv("LTRAIN_ERRING"))
        skip();
    must_find("stuck", 1, "step 1: the gradient of|differs between two computations|the loss differs, too");
    e2e_remove("found");
    set_fault(NULL);
}

/* A copy that a lane loses is found before the step is saved, unless nothing follows from it: then the state is the right one. */
static void lost_copies_are_found(void **state)
{
    enum { TRIES = 4 };
    int found = 0;
    (void)state;
    if (!getenv("LTRAIN_ERRING"))
        skip();
    set_fault("none");
    e2e_succeeds(NULL, TINY HOST "--steps 1 --save-every 1 --verify-every 1 --out right");
    char *text = e2e_read("calls.txt", NULL), *behind;
    (void)strtol(text, &behind, 10);
    const long all = strtol(behind, NULL, 10);
    free(text);
    assert_true(all > 10 * TRIES);
    for (int i = 0; i < TRIES; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "copy %ld", (2 * i + 1) * all / (2 * TRIES));
        set_fault(fault);
        struct result r = e2e_run(NULL, TINY HOST "--steps 1 --save-every 1 --verify-every 1 --out wrong");
        if (r.status == 0)
            e2e_same_file("right/checkpoints/step-000001/digests.txt", "wrong/checkpoints/step-000001/digests.txt");
        else
            e2e_contains(r.err, "nothing of this step was saved");
        found += r.status == 1;
        e2e_remove("wrong");
    }
    assert_true(found > 0);
    set_fault(NULL);
}

/* Steps that are not verified are not looked at. */
static void others_are_not(void **state)
{
    (void)state;
    if (!getenv("LTRAIN_ERRING"))
        skip();
    set_fault("forward 1");
    struct result r = e2e_succeeds(NULL, ERRING "--steps 2 --verify-every 2 --out second");
    e2e_contains(r.out, "verified: 1 step was computed twice, with the same bits");
    set_fault(NULL);
}

/* Counts the lines of metrics.jsonl that say that a step was verified. */
static int verified(const char *run)
{
    char path[256];
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = e2e_read(path, NULL);
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o = json_loads(line, 0, NULL);
        n += json_is_true(json_object_get(o, "verified"));
        json_decref(o);
    }
    free(text);
    return n;
}

/* Runs of 20 steps without a fault: nothing is found, and losses and checkpoint are those of a run that verifies and scrubs nothing. */
static void bits_stay(void **state)
{
    static const struct {
        const char *options;
        int every;
    } runs[] = {
        {TINY, 1},
        {TINY DISCRETE "--grad-accum 3", 3},
        {TINY HOST "--dtype bf16 --optim-dtype int8 --grad-accum 2", 1},
        {IDS DISCRETE "--model experts --dtype bf16 --router-bias-rate 0.125", 2},
        {TILES "--data corpus.txt --tokenizer bytes --seq-len 256 --model base --base nf4 --lora r=4,dropout=0.25 "
               "--grad-accum 2" HOST,
         1},
    };
    char base[512];
    (void)state;
    snprintf(base, sizeof base, "%s/tests/golden/lora-gqa", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(base, "base");
    e2e_experts_model("glm4-moe", "experts");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        e2e_succeeds(NULL, "%s --steps 20 --save-every 20 --out once", runs[i].options);
        struct result r = e2e_succeeds(NULL, "%s --steps 20 --save-every 20 --verify-every %d --scrub --out twice",
                                       runs[i].options, runs[i].every);
        char said[128];
        snprintf(said, sizeof said, "verified: %d steps were computed twice, with the same bits", 20 / runs[i].every);
        e2e_contains(r.out, said);
        if (strstr(runs[i].options, HOST))
            e2e_contains(r.out, "of state in host memory were as they had been left");
        assert_int_equal(verified("twice"), 20 / runs[i].every);
        assert_int_equal(verified("once"), 0);
        struct curve a = e2e_curve("once"), b = e2e_curve("twice");
        assert_int_equal(a.n, 20);
        e2e_same_curve(&a, &b, 20);
        e2e_same_file("once/checkpoints/step-000020/digests.txt", "twice/checkpoints/step-000020/digests.txt");
        e2e_remove("once");
        e2e_remove("twice");
    }
}

/* The cost is said before the run, by plan, too; what cannot be compared is refused. */
static void cost_and_refusals(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, "plan" TINY "--verify-every 100");
    e2e_contains(r.out, "verify: one step in 100 is computed twice: ");
    r = e2e_succeeds(NULL, "plan" TINY HOST "--scrub");
    e2e_contains(r.out, "\nscrub: ");
    r = e2e_succeeds(NULL, "plan" TINY "--offload none --scrub");
    e2e_contains(r.out, "remark: --scrub has nothing to check");
    e2e_refuses(2, "--scrub is not for --mode chaos", NULL, TINY HOST "--scrub --mode chaos --steps 1 --out none");
    r = e2e_succeeds(NULL, TINY "--steps 1 --verify-every 1 --out run");
    e2e_contains(r.out, "verify: every step is computed twice: ");
    e2e_refuses(2, "--verify-every compares bits|--deterministic no", NULL,
                TINY "--deterministic no --verify-every 1 --out none");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(errors_are_found),      TEST(errors_of_updates_are_found),
                                       TEST(stuck_memory_is_found), TEST(lost_copies_are_found),
                                       TEST(others_are_not),        TEST(bits_stay),
                                       TEST(cost_and_refusals)};
    return cmocka_run_group_tests_name("twice", tests, NULL, NULL);
}
