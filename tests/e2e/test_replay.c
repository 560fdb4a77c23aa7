/* Recorded steps done again elsewhere, and comparisons of runs and checkpoints. */
#include "harness.h"

#include "data/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESIDENT " --offload none --device cpu"

/* Makes sure that a command has left the run as it was. */
static void is_untouched(const char *run, const char *copy)
{
    char command[512];
    snprintf(command, sizeof command, "diff -r %s %s", run, copy);
    assert_int_equal(system(command), 0);
}

/* Changes the last digit of a number in the line of a step. */
static void change_number(const char *run, int step, const char *key)
{
    char path[256], begins[64], name[64];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(begins, sizeof begins, "{\"step\":%d,", step);
    snprintf(name, sizeof name, "\"%s\":", key);
    char *text = e2e_read(path, NULL), *at = strstr(text, begins);
    assert_non_null(at);
    at = strstr(at, name);
    assert_non_null(at);
    at += strlen(name) + strcspn(at + strlen(name), ",}") - 1;
    *at = *at == '5' ? '3' : '5';
    e2e_write(path, "%s", text);
    free(text);
}

/* Flips the lowest bit of an element of a tensor in a checkpoint's model.safetensors. */
static void flip_bit(const char *checkpoint, const char *tensor, long long element)
{
    char path[256];
    struct st_file *f;
    struct st_raw raw;
    snprintf(path, sizeof path, "%s/model.safetensors", checkpoint);
    assert_int_equal(st_open(path, &f), OK);
    assert_int_equal(st_find_raw(f, tensor, &raw), OK);
    const long at = (long)(raw.at + 4 * element);
    st_close(f);
    FILE *file = fopen(path, "r+be");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

/* A run from nvme, evaluated on the way, resumed with other settings and set back has the same bits when resident, from its first
 * state and from any checkpoint. */
static void steps_have_the_recorded_bits(void **state)
{
    (void)state;
    e2e_succeeds(
        NULL, "--steps 6 --save-every 2 --keep 9 --eval-fraction 0.1 --eval-every 3 --schedule cosine --out run" TINY DISCRETE);
    e2e_write("run/checkpoints/latest", "step-000004\n");
    e2e_succeeds(NULL, "--resume run --steps 9 --clip 0.5 --betas 0.8,0.9");
    e2e_copy("run", "copy");
    struct result r = e2e_succeeds(NULL, "replay run --steps 1..9" RESIDENT);
    e2e_contains(r.out, "replay: equal: 9 steps, all with the recorded bits");
    e2e_contains(r.out, "eval loss");
    e2e_contains(r.out, "the learning rate is the log's");
    r = e2e_succeeds(NULL, "replay run");
    e2e_contains(r.out, "replay: steps 9 to 9 of run, from run/checkpoints/step-000008");
    e2e_contains(r.out, "replay: equal: 1 steps");
    r = e2e_succeeds(NULL, "replay run --steps 6..7 --alpha 0" RESIDENT);
    e2e_contains(r.out, "from run/checkpoints/step-000004");
    is_untouched("run", "copy");
}

/* Lengths that change, packed documents and several sequences a step; the state that goes on between them is stored elsewhere. */
static void lengths_change(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--seq-len 128@2,256@2,64 --steps 6 --grad-accum 2 --save-every 3 --keep 9 --packing concat "
                       "--model tiny --data corpus.txt --out run" TILES);
    e2e_copy("run", "copy");
    struct result r = e2e_succeeds(NULL, "replay run --steps 4..6");
    e2e_contains(r.out, "replay: equal: 3 steps, all with the recorded bits");
    is_untouched("run", "copy");
}

/* Returns the sum of a key over the lines of a run's log. */
static double sum_of(const char *run, const char *key)
{
    char path[256], name[64];
    double sum = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(name, sizeof name, "\"%s\":", key);
    char *text = e2e_read(path, NULL);
    for (const char *at = text; (at = strstr(at, name)); at += strlen(name))
        sum += strtod(at + strlen(name), NULL);
    free(text);
    return sum;
}

/* A log with fewer lines has the sums of one with a line a step, whether a run is resumed or not, and the steps that have lines are
 * compared. */
static void fewer_lines(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--steps 12 --save-every 5 --keep 9 --out all" TINY);
    e2e_succeeds(NULL, "--steps 12 --save-every 5 --keep 9 --log-every 4 --out some" TINY);
    e2e_write("some/checkpoints/latest", "step-000005\n");
    e2e_succeeds(NULL, "--resume some");
    assert_true(sum_of("all", "tokens") == sum_of("some", "tokens"));
    assert_true(fabs(sum_of("all", "model_flops") / sum_of("some", "model_flops") - 1) < 1e-12); /* added up in another order */
    struct result r = e2e_succeeds(NULL, "replay some --steps 2..12");
    e2e_contains(r.out, "replay: equal: 6 steps, all with the recorded bits"); /* 4, 5, 6 (resumed), 8, 10, 12 */
    e2e_contains(e2e_succeeds(NULL, "compare all some").out, "7 steps in both logs, equal");
    e2e_refuses(2, "has no line of step 9|end with step 10", NULL, "replay some --steps 2..9");
    change_number("some", 8, "grad_norm");
    e2e_refuses(1, "replay: step 8: the gradient norm is|1 of 6 steps differ", NULL, "replay some --steps 2..12");
}

/* Skipped steps are skipped again. */
static void steps_are_skipped(void **state)
{
    (void)state;
    assert_int_equal(e2e_run(NULL, "--steps 9 --lr 1e38 --out wild" TINY).status, 1);
    struct result r = e2e_succeeds(NULL, "replay wild --steps 1..4");
    e2e_contains(r.out, "skipped");
    e2e_contains(r.out, "replay: equal: 4 steps");
}

/* A changed digit of the log is named with its step and line, and so is a bit of a checkpoint, with tensor and row. */
static void changes_are_named(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--steps 4 --save-every 2 --keep 9 --out run" TINY);
    struct result r = e2e_succeeds(NULL, "compare run run");
    e2e_contains(r.out, "compare: equal");
    e2e_copy("run", "other");
    change_number("other", 3, "grad_norm");
    e2e_refuses(1, "replay: step 3: the gradient norm is|other/metrics.jsonl:3|1 of 2 steps differ", NULL,
                "replay other --steps 3..4");
    e2e_refuses(1, "compare: step 3: the gradient norm is|1 of 4 steps differ", NULL, "compare run other");
    e2e_copy("run", "other");
    flip_bit("other/checkpoints/step-000002", "model.layers.1.self_attn.q_proj.weight", 64 * 5 + 7);
    e2e_refuses(1,
                "compare: model.layers.1.self_attn.q_proj.weight in model.safetensors: row 5 of 64, element 7 of the row: |"
                "1 elements in 1 rows differ|the second one's bytes have changed since it was saved|1 of 60 tensors differ",
                NULL, "compare run/checkpoints/step-000002 other/checkpoints/step-000002");
    e2e_refuses(1, "model.layers.1.self_attn.q_proj.weight", NULL, "compare run other");
    e2e_refuses(1, "60 of 60 tensors differ", NULL, "compare run/checkpoints/step-000002 run/checkpoints/step-000004");
    e2e_refuses(1, "other/checkpoints/step-000002/model.safetensors is damaged", NULL, "replay other --steps 3..3");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--steps 2 --out run" TINY);
    e2e_refuses(2, "which run?|ltrain replay runs/", NULL, "replay");
    e2e_refuses(2, "metrics.jsonl has steps 1 to 2", NULL, "replay run --steps 2..3");
    e2e_refuses(2, "--steps 2..1: give the first and the last step", NULL, "replay run --steps 2..1");
    e2e_refuses(2, "--lr: ltrain replay does what the run has done", NULL, "replay run --lr 1");
    e2e_refuses(2, "--replay-steps is for ltrain replay", NULL, "--replay-steps 1..2 --out other" TINY);
    e2e_refuses(2, "two directories are needed", NULL, "compare run");
    e2e_refuses(2, "corpus.txt is neither the directory of a run", NULL, "compare run corpus.txt");
    e2e_write("corpus.txt", "another text, of which the run has read no word, so that steps would be others");
    e2e_refuses(2, "the data are not those that run was trained on|corpus.txt", NULL, "replay run --steps 1..2");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(steps_have_the_recorded_bits),
        TEST(lengths_change),
        TEST(fewer_lines),
        TEST(steps_are_skipped),
        TEST(changes_are_named),
        TEST(mistakes_are_refused),
    };
    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
