/* Tests stages (pp) and slices (tp) of layers, and experts that ranks share out (ep), on GPUs whose own kernels the simulator runs
 * (tests/cudasim): ranks train as one GPU does, within the marks of bf16; carrier and placement change no bit. */
#include "harness.h"

#include "extent.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, TOKENS = 4000 };
/* The marks of golden models (tests/engine/golden_compare.h): sums in other orders round otherwise, and steps drift apart by that. */
static const double LOSS_MARK = 2e-3, NORM_MARK = 5e-3;

static char model[4096];

struct course {
    double loss[STEPS], norm[STEPS];
};

static void write_ids(void)
{
    uint32_t x = 12345;
    FILE *f = fopen("ids.bin", "we");
    assert_non_null(f);
    for (int n = 0; n < TOKENS; n++) {
        x = x * 1664525u + 1013904223u;
        const uint16_t id = (uint16_t)(3 + (x >> 16) % 28); /* all models have these */
        assert_int_equal(fwrite(&id, sizeof id, 1, f), 1);
    }
    assert_int_equal(fclose(f), 0);
}

static struct course course_of(const char *run)
{
    char path[64];
    struct course c;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = e2e_read(path, NULL), *line = text;
    for (int i = 0; i < STEPS; i++) {
        json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        c.loss[i] = json_real_value(json_object_get(o, "loss"));
        c.norm[i] = json_real_value(json_object_get(o, "grad_norm"));
        json_decref(o);
        line = strchr(line, '\n') + 1;
    }
    free(text);
    return c;
}

/* Trains on as many simulated GPUs as there are ranks. */
static struct course train(const char *run, int capability, int ranks, const char *options)
{
    static int seed;
    char words[96];
    snprintf(words, sizeof words, "seed=%d,name=A100 40GB,capability=%d,processors=4,devices=%d", ++seed, capability, ranks);
    setenv("LTRAIN_FAKE_CUDA", words, 1);
    e2e_remove(run);
    e2e_succeeds(
        NULL,
        "--model %s --data ids.bin --token-type u16 --seq-len 64 --tiles rows=32,loss=32,group=4096 --threads 1 --effort "
        "quick --lr 1e-3 --eps 1e-3 --batch 2 --device cuda --device-mem 512M --steps %d --save-every %d --ranks %d %s "
        "--out %s",
        model, STEPS, STEPS, ranks, options, run);
    return course_of(run);
}

static void near(const struct course *alone, const struct course *parts, const char *options)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(parts->loss[i] - alone->loss[i]) <= LOSS_MARK * alone->loss[i] &&
              fabs(parts->norm[i] - alone->norm[i]) <= NORM_MARK * alone->norm[i]))
            fail_msg("%s: step %d: loss %.7g, norm %.7g; one GPU: %.7g, %.7g", options, i + 1, parts->loss[i], parts->norm[i],
                     alone->loss[i], alone->norm[i]);
}

static void same_bits(const char *a, const char *b)
{
    char path[2][96];
    snprintf(path[0], sizeof path[0], "%s/checkpoints/step-%06d/digests.txt", a, STEPS);
    snprintf(path[1], sizeof path[1], "%s/checkpoints/step-%06d/digests.txt", b, STEPS);
    e2e_same_file(path[0], path[1]);
}

static void use(const char *name)
{
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    snprintf(model, sizeof model, "%s/tests/golden/%s", root ? root : "", name);
    if (!e2e_exists("%s/config.json", model))
        skip();
    write_ids();
}

static void parts_train_as_one(void **state)
{
    static const char *const cells[] = {"--mesh tp=2,pp=2 --zero 3 --comm staged",
                                        "--mesh pp=2,slices=2 --stage-ahead 1 --zero 1", "--mesh tp=2 --zero 1",
                                        "--mesh pp=2,slices=2 --stage-ahead 0 --zero 3", "--mesh tp=2,pp=2,slices=2 --zero 2"};
    (void)state;
    use("llama-gqa");
    const struct course alone = train("alone", 80, 1, "--zero 1");
    for (int i = 0; i < extent(2, 2, 5); i++) {
        const struct course parts = train("parts", 80, strstr(cells[i], "tp=2,pp=2") ? 4 : 2, cells[i]);
        near(&alone, &parts, cells[i]);
    }
}

/* Adapters on Hopper's kernels; then everything on drives. */
static void adapters_and_placement(void **state)
{
    static const char *const cells[] = {"--mesh pp=2,slices=2 --lora r=4 --zero 2", "--mesh tp=2 --lora r=4 --zero 3"};
    char nvme[128];
    (void)state;
    if (!extent_is_long())
        skip();
    for (int i = 0; i < 4; i++) {
        use(i < 2 ? "qwen3" : "gpt2");
        const struct course alone = train("alone", 90, 1, "--lora r=4"), parts = train("parts", 90, 2, cells[i % 2]);
        near(&alone, &parts, cells[i % 2]);
        snprintf(nvme, sizeof nvme, "%s --offload nvme --comm staged", cells[i % 2]);
        train("nvme", 90, 2, nvme);
        same_bits("parts", "nvme");
    }
}

/* Rows travel to the GPU that has their expert, also between two in a stage and with adapters on experts; then everything on drives. */
static void experts_are_shared_out(void **state)
{
    static const struct {
        const char *model, *lora, *options;
        int ranks;
    } cells[] = {{"moe/mixtral", "", "--mesh dp=2,ep=2 --zero 3", 2},
                 {"moe/mixtral", "", "--mesh dp=2,ulysses=2,ep=4 --zero 2", 4},
                 {"moe/mixtral", "", "--mesh dp=2,ep=2,pp=2 --zero 1", 4},
                 {"moe/gpt-oss-mxfp4", "--lora r=4", "--mesh dp=2,ep=2 --zero 1", 2}};
    (void)state;
    for (int i = 0; i < extent(1, 1, 4); i++) {
        char options[96], nvme[128];
        snprintf(options, sizeof options, "%s %s", cells[i].options, cells[i].lora);
        snprintf(nvme, sizeof nvme, "%s --offload nvme --comm staged", options);
        use(cells[i].model);
        const struct course alone = train("alone", 80, 1, cells[i].lora), parts = train("parts", 80, cells[i].ranks, options);
        near(&alone, &parts, options);
        train("nvme", 80, cells[i].ranks, nvme);
        same_bits("parts", "nvme");
    }
}

int main(void)
{
    const char *plugin = getenv("LTRAIN_CUDA_SIM");
    if (!plugin || system("command -v mpiexec >/dev/null") != 0)
        return 77;
    setenv("LTRAIN_CUDA_PLUGIN", plugin, 1);
    e2e_let_root_start_ranks();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_train_as_one, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(adapters_and_placement, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(experts_are_shared_out, e2e_setup, e2e_teardown),
    };
    return cmocka_run_group_tests_name("cuda_parts", tests, NULL, NULL);
}
