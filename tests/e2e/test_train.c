/* Tests a run without faults: its work and its files. */
#include "harness.h"

#include "data/safetensors.h"
#include "program/program.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

/* Returns one line of RUN/metrics.jsonl. */
static json_t *metrics_of(const char *run, int step)
{
    char path[256];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = e2e_read(path, NULL), *line = text;
    for (int i = 1; i < step; i++)
        line = strchr(line, '\n') + 1;
    json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    free(text);
    assert_non_null(o);
    return o;
}

static double number(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    if (!json_is_number(x))
        fail_msg("metrics.jsonl: %s is not a number", key);
    return json_number_value(x);
}

static void a_run_leaves_its_files(void **state)
{
    static const char *const numbers[] = {"step",
                                          "loss",
                                          "grad_norm",
                                          "lr",
                                          "tokens",
                                          "seconds",
                                          "tokens_per_second",
                                          "target_tokens",
                                          "model_flops",
                                          "mfu",
                                          "device_peak_bytes",
                                          "host_peak_bytes",
                                          "nvme_bytes",
                                          "read_bytes",
                                          "written_bytes",
                                          "hidden",
                                          "stall_seconds",
                                          "planned_seconds"};
    static const char *const files[] = {"config.yaml",   "plan.txt",       "plan.json",
                                        "metrics.jsonl", "hf/config.json", "hf/model.safetensors"};
    (void)state;
    struct result r = e2e_succeeds(NULL, "train" TINY DISCRETE "--effort normal --steps 5 --out run");
    static const char *const said[] = {
        "device: cpu:discrete", "budgets: device ", "nvme run: ",           "mesh: ",
        "data: 1 document (",   "plan: fits",       "step 5/5  loss ",      "checkpoints: none (--save-every 0)",
        "memory: planned ",     "step time",        "compute stands still", "lane h2d",
        "transfers hidden",     "model: run/hf"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        e2e_contains(r.out, said[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_true(e2e_exists("run/%s", files[i]));
    assert_int_equal(e2e_count("run/*.store"), 0);
    struct curve c = e2e_curve("run");
    assert_int_equal(c.n, 5);
    assert_true(c.loss[4] < c.loss[0]);
    assert_true(fabs(c.loss[0] - log(256)) < 0.2);
    for (int step = 1; step <= 5; step++) {
        json_t *m = metrics_of("run", step);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            number(m, numbers[i]);
        assert_true(json_is_false(json_object_get(m, "skipped")));
        assert_null(json_object_get(m, "eval_loss"));
        assert_true(number(m, "lr") == 3e-4); /* floats, also computed ones, are read back exactly */
        assert_true(number(m, "tokens_per_second") == number(m, "tokens") / number(m, "seconds"));
        assert_true(number(m, "read_bytes") > 0 && number(m, "written_bytes") > 0);
        json_decref(m);
    }
    json_decref(load("run/plan.json"));
    /* the run's config.yaml reproduces the run */
    e2e_succeeds(NULL, "--config run/config.yaml --out again");
    struct curve again = e2e_curve("again");
    assert_int_equal(again.n, 5);
    e2e_same_curve(&c, &again, 5);
    e2e_same_file("run/hf/model.safetensors", "again/hf/model.safetensors");
    /* a finished run is not overwritten */
    e2e_refuses(2, "run already holds a run|without a checkpoint|--out", NULL, "--config run/config.yaml");
}

static void placement_does_not_change_the_run(void **state)
{
    static const char *const tiers[] = {"none", "cpu", "nvme"}, *const devices[] = {"cpu", "cpu:discrete"};
    struct curve first = {0};
    (void)state;
    for (int i = 0; i < 6; i++) {
        char run[16], model[64];
        snprintf(run, sizeof run, "p%d", i);
        snprintf(model, sizeof model, "p%d/hf/model.safetensors", i);
        e2e_succeeds(NULL, TINY "--steps 3 --offload %s --device %s --out %s", tiers[i / 2], devices[i % 2], run);
        struct curve c = e2e_curve(run);
        json_t *m = metrics_of(run, 3);
        assert_int_equal(number(m, "nvme_bytes") > 0, i >= 4);
        assert_int_equal(number(m, "read_bytes") > 0, i >= 4);
        json_decref(m);
        if (i == 0)
            first = c;
        e2e_same_curve(&first, &c, 3);
        e2e_same_file("p0/hf/model.safetensors", model);
    }
}

static void plan_only_prints(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, "plan" TINY DISCRETE "--out planned");
    static const char *const rows[] = {"fits", "tok/s", "parameters", "gradients", "optimizer", "activations", "workspace",
                                       "peak", "limit", "device",     "host",      "nvme",      "moved/step"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        e2e_contains(r.out, rows[i]);
    r = e2e_succeeds(NULL, "plan" TINY DISCRETE "--out planned --json --svg step.svg");
    json_t *o = json_loads(r.out, 0, NULL);
    assert_true(json_is_true(json_object_get(o, "fits")));
    const json_t *update = json_array_get(json_object_get(o, "programs"), 1);
    assert_string_equal(json_string_value(json_object_get(update, "name")), "update+forward backward first last");
    json_decref(o);
    assert_true(e2e_exists("step.svg"));
    assert_false(e2e_exists("planned"));
    r = e2e_refuses(3, "the plan needs|on the device|--device-mem", NULL, "plan" TINY "--offload none --device-mem 1M");
    e2e_contains(r.out, "does not fit");
    e2e_contains(r.out, "limit");
}

static void evaluation_shows_nan(void **state)
{
    (void)state;
    struct result r = e2e_refuses(1, "training diverged|which was not exported", NULL,
                                  TINY "--steps 1 --lr 1e38 --eval-fraction 0.1 --eval-every 1 --out diverged");
    e2e_contains(r.out, "step 1  eval loss ");
    json_t *m = metrics_of("diverged", 1);
    assert_true(json_is_null(json_object_get(m, "eval_loss")));
    json_decref(m);
}

/* If no gradient is finite, every step is reported as skipped, and the run ends. */
static void divergence_ends_the_run(void **state)
{
    (void)state;
    struct result r = e2e_refuses(1, "training diverged|the 3 steps up to 4|--lr|no checkpoint yet", NULL,
                                  TINY "--steps 9 --lr 1e38 --out wild");
    e2e_contains(r.out, "skipped: the gradient norm is not finite");
    assert_false(e2e_exists("wild/hf"));
}

/* --on-nan stop ends a run at the first step that is skipped, names the gradient, and saves the state, from which the run goes on. */
static void a_run_stops_at_nan(void **state)
{
    (void)state;
    struct result r = e2e_refuses(
        1, "step 2: the gradient norm is not finite|gradients of model.layers.|--on-nan stop|run/checkpoints/step-000002", NULL,
        TINY "--steps 4 --lr 1e37 --on-nan stop --out run");
    e2e_contains(r.out, "step 2 skipped");
    r = e2e_refuses(1, "step 3: the gradient norm is not finite", NULL, "--resume run");
    e2e_contains(r.out, "step 3 skipped");
    assert_int_equal(e2e_count("run/checkpoints/step-*"), 2);
}

/* The deviation of a step's loss is that from the steps before it in the log, those of an earlier start included. */
static void spikes_are_counted_over_starts(void **state)
{
    enum { BEFORE = 33 };
    double mean = 0, squares = 0, loss[BEFORE];
    (void)state;
    e2e_succeeds(NULL, TINY "--steps 33 --save-every 33 --out run");
    e2e_succeeds(NULL, "--resume run --steps 34");
    for (int i = 0; i < BEFORE; i++) {
        json_t *m = metrics_of("run", i + 1);
        loss[i] = number(m, "loss");
        mean += loss[i] / BEFORE;
        assert_true(json_is_null(json_object_get(m, "loss_deviations")) == (i < 32));
        json_decref(m);
    }
    for (int i = 0; i < BEFORE; i++)
        squares += (loss[i] - mean) * (loss[i] - mean);
    json_t *m = metrics_of("run", BEFORE + 1);
    assert_true(fabs(number(m, "loss_deviations") - (number(m, "loss") - mean) / sqrt(squares / BEFORE)) < 1e-9);
    json_decref(m);
}

/* Updated parameters are checked before they replace a checkpoint, even if no step follows the update. */
static void diverged_parameters_are_not_kept(void **state)
{
    static const char *const places[] = {"--offload none", "--offload cpu --dtype bf16", DISCRETE,
                                         DISCRETE "--update host --dtype bf16 --optim-dtype bf16"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        e2e_refuses(
            1, "training diverged: model.|weight has |(element |after step 1, which was not exported|there is no checkpoint yet",
            NULL, TINY "%s --steps 1 --lr 1e38 --out once", places[i]);
        assert_false(e2e_exists("once/hf"));
        e2e_remove("once");
        e2e_succeeds(NULL, TINY "%s --steps 2 --save-every 1 --keep 1 --out run", places[i]);
        e2e_remove("run/hf");
        e2e_refuses(1,
                    "training diverged: model.|after step 3, which was not saved|the last good checkpoint is "
                    "run/checkpoints/step-000002: continue with --resume run",
                    NULL, "--resume run --steps 9 --lr 1e38");
        assert_int_equal(e2e_count("run/checkpoints/step-*"), 1);
        e2e_succeeds(NULL, "--resume run --steps 3 --lr 1e-3");
        e2e_remove("run");
    }
}

/* Parameters are finite, but too large for a finite gradient. An older checkpoint is kept, since it is worth more, and the model
 * is written with a warning. */
static void last_steps_that_were_skipped(void **state)
{
    (void)state;
    struct result r = e2e_refuses(1, "the last 2 of 3 steps|run/hf has the model of step 1|--lr|step-000001", NULL,
                                  TINY "--steps 3 --lr 1e37 --save-every 1 --keep 1 --out run");
    e2e_contains(r.out, "step 2 not saved: it was skipped");
    e2e_contains(r.out, "skipped: 2 of 3 steps, whose gradient norm was not finite");
    assert_true(e2e_exists("run/hf/model.safetensors"));
    assert_true(e2e_exists("run/checkpoints/step-000001"));
}

/* Documents of one token have no target: the step is skipped and the data counted, without a division by zero. */
static void documents_without_targets(void **state)
{
    (void)state;
    enum { SINGLE = 512, LONG = 256, STEPS = 3 }; /* two sequences whose documents have one token each, and another sequence */
    int skipped = 0;
    assert_int_equal(mkdir("single", 0777), 0);
    for (int i = 0; i <= SINGLE; i++) {
        char path[64];
        snprintf(path, sizeof path, "single/%03d.txt", i);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int k = 0; k < (i == SINGLE ? LONG : 1); k++)
            fputc('a' + i % 26, f);
        fclose(f);
    }
    struct result r =
        e2e_succeeds(NULL, "--model tiny --data single --packing concat --seq-len 256" TILES "--steps 3 --out single-run");
    e2e_contains(r.out, "skipped: its documents have one token each");
    e2e_contains(r.out, "skipped: 2 of 3 steps, whose documents have one token each");
    for (int step = 1; step <= STEPS; step++) {
        json_t *m = metrics_of("single-run", step);
        skipped += json_is_true(json_object_get(m, "skipped"));
        json_decref(m);
    }
    assert_int_equal(skipped, 2);
    e2e_remove("single/512.txt");
    e2e_refuses(2, "--data: nothing can be trained: no document has a token to predict", NULL,
                "--model tiny --data single --packing concat --seq-len 256" TILES "--steps 2 --out none");
}

static void evaluation_leaves_training_alone(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, TINY DISCRETE "--steps 4 --eval-fraction 0.1 --eval-every 2 --out eval");
    e2e_contains(r.out, "step 2  eval loss ");
    for (int step = 1; step <= 4; step++) {
        json_t *m = metrics_of("eval", step);
        if (step % 2)
            assert_null(json_object_get(m, "eval_loss"));
        else
            assert_true(number(m, "eval_loss") > 1 && number(m, "eval_loss") < 6);
        json_decref(m);
    }
    e2e_succeeds(NULL, TINY DISCRETE "--steps 4 --eval-fraction 0.1 --out no-eval");
    struct curve a = e2e_curve("eval"), b = e2e_curve("no-eval");
    e2e_same_curve(&a, &b, 4);
    e2e_same_file("eval/hf/model.safetensors", "no-eval/hf/model.safetensors");
    e2e_succeeds(NULL, TINY "--steps 1 --eval-data corpus.txt --eval-every 1 --out data");
}

/* Returns 1 if a tensor of two model files is the same. */
static int same_tensor(const char *a, const char *b, const char *name)
{
    static float x[2][1 << 16];
    struct st_info info;
    const char *const paths[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct st_file *f;
        assert_int_equal(st_open(paths[i], &f), OK);
        assert_int_equal(st_find(f, name, &info), OK);
        assert_true(info.elements <= 1 << 16);
        assert_int_equal(st_read_f32(f, name, 0, info.elements, x[i]), OK);
        st_close(f);
    }
    return memcmp(x[0], x[1], sizeof x[0][0] * (size_t)info.elements) == 0;
}

static void frozen_parameters_stay(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY DISCRETE "--steps 1 --lr 0 --out start");
    e2e_succeeds(NULL, TINY DISCRETE "--steps 2 --freeze *.self_attn.*,*embed_tokens* --out frozen");
    static const char a[] = "start/hf", b[] = "frozen/hf";
    assert_true(same_tensor(a, b, "model.layers.0.self_attn.q_proj.weight"));
    assert_true(same_tensor(a, b, "model.embed_tokens.weight"));
    assert_false(same_tensor(a, b, "model.layers.0.mlp.up_proj.weight"));
    assert_false(same_tensor(a, b, "model.layers.1.mlp.down_proj.weight"));
}

static void bf16_follows_fp32(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY "--steps 4 --out fp32");
    e2e_succeeds(NULL, TINY DISCRETE "--steps 4 --dtype bf16 --out bf16");
    e2e_succeeds(NULL, TINY "--offload none --steps 4 --dtype bf16 --out bf16-none");
    struct curve a = e2e_curve("fp32"), b = e2e_curve("bf16"), c = e2e_curve("bf16-none");
    for (int i = 0; i < 4; i++)
        assert_true(fabs(a.loss[i] - b.loss[i]) < 0.01 * a.loss[i]); /* bf16 has 8 bits: each rounding errs by up to 0.4% */
    assert_true(memcmp(a.loss, b.loss, sizeof(double) * 4) != 0);
    e2e_same_curve(&b, &c, 4);
    json_t *config = load("bf16/hf/config.json");
    const char *dtype = json_string_value(json_object_get(config, "dtype"));
    if (!dtype)
        dtype = json_string_value(json_object_get(config, "torch_dtype"));
    assert_string_equal(dtype, "bfloat16");
    json_decref(config);
}

static void accumulation_is_the_mean(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY DISCRETE "--steps 4 --lr 0 --out single");
    e2e_succeeds(NULL, TINY DISCRETE "--steps 1 --lr 0 --grad-accum 4 --out four");
    struct curve a = e2e_curve("single"), b = e2e_curve("four");
    double mean = (a.loss[0] + a.loss[1] + a.loss[2] + a.loss[3]) / 4;
    assert_true(fabs(mean - b.loss[0]) < 1e-12 * mean); /* with one document per sequence, all ranks have equally many targets */
    json_t *m = metrics_of("four", 1);
    assert_int_equal(number(m, "tokens"), 4 * 256);
    json_decref(m);
}

/* Checks that the time at which a trace says an instruction was released is one of the releasing instruction's own times. Returns
 * 1 if that instruction is on another lane. */
static int released_by_another_lane(const json_t *events, const json_t *event)
{
    const json_t *args = json_object_get(event, "args"), *by = json_object_get(args, "released_by"), *other;
    double ready = number(args, "ready");
    int own = (int)json_integer_value(json_object_get(event, "tid"));
    size_t i;
    assert_true(ready <= number(event, "ts") + 0.01);
    if (json_is_null(by)) {
        assert_true(ready == 0);
        return 0;
    }
    json_array_foreach((json_t *)(uintptr_t)events, i, other)
    {
        const json_t *a = json_object_get(other, "args");
        int lane = (int)json_integer_value(json_object_get(other, "tid"));
        if (!json_object_get(a, "instruction") || number(a, "instruction") != number(by, "instruction"))
            continue;
        assert_string_equal(json_string_value(json_object_get(by, "lane")), lane_name((enum lane)lane));
        assert_true(number(by, "ticket") >= 1);
        double took = lane == own && lane_is_pipelined((enum lane)lane) ? 0 : number(other, "dur");
        assert_true(fabs(number(other, "ts") + took - ready) < 0.01);
        return lane != own;
    }
    fail_msg("no instruction %g", number(by, "instruction"));
    return 0;
}

static void a_trace_shows_every_lane(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY DISCRETE "--update host --steps 3 --trace 2 --out traced");
    assert_int_equal(e2e_count("traced/trace-*.json"), 1);
    json_t *root = load("traced/trace-000002.json"), *event;
    int named[LANES] = {0}, used[LANES] = {0}, by_others = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        int lane = (int)json_integer_value(json_object_get(event, "tid"));
        assert_true(phase && lane >= 0 && lane < LANES);
        if (phase[0] == 'M') {
            assert_string_equal(json_string_value(json_object_get(json_object_get(event, "args"), "name")),
                                lane_name((enum lane)lane));
            named[lane]++;
        } else {
            assert_string_equal(phase, "X");
            assert_true(number(event, "ts") >= 0 && number(event, "dur") >= 0);
            assert_true(strlen(json_string_value(json_object_get(event, "name"))) > 0);
            used[lane]++;
            by_others += released_by_another_lane(json_object_get(root, "traceEvents"), event);
        }
    }
    assert_true(by_others > 0);
    for (int l = 0; l < LANES; l++)
        assert_true(named[l] == 1 &&
                    (used[l] > 0) == !lane_is_comm((enum lane)l)); /* a single rank does not use the comm lanes */
    json_decref(root);
}

/* A model of another family is read and written. The text is one sequence, so that every step sees the same tokens. */
static void hugging_face_in_and_out(void **state)
{
    const char *source = getenv("LTRAIN_SOURCE_ROOT");
    (void)state;
    if (!source)
        skip();
    e2e_write("one.txt", "%s",
              "In the beginning God created the heaven and the earth. And the earth was without form, and void.");
#define ONE "--data one.txt --seq-len 96" TILES
    static const char *const models[] = {"llama-gqa", "gpt2", "gpt2-positions"};
    for (int i = 0; i < 3; i++) {
        char model[4096], run[32], more[32], last[32];
        snprintf(model, sizeof model, "%s/tests/golden/%s", source, models[i]);
        snprintf(run, sizeof run, "hf%d", i);
        snprintf(more, sizeof more, "hf%d-more", i);
        snprintf(last, sizeof last, "hf%d-last", i);
        e2e_succeeds(NULL, ONE DISCRETE "--model %s --steps 2 --out %s", model, run);
        e2e_succeeds(NULL, ONE "--model %s --steps 3 --out %s", model, more);
        e2e_succeeds(NULL, ONE DISCRETE "--model %s/hf --steps 1 --out %s", run, last);
        struct curve a = e2e_curve(more), b = e2e_curve(last);
        assert_true(a.loss[2] < a.loss[0]);
        if (b.loss[0] != a.loss[2])
            fail_msg("%s: hf/ has lost something: loss %.17g after it, %.17g without", models[i], b.loss[0], a.loss[2]);
    }
}

static void a_bare_command_says_what_is_missing(void **state)
{
    (void)state;
    struct result r = e2e_run(NULL, "--seq-len 420k --zero 3 --offload nvme");
    assert_int_equal(r.status, 2);
    assert_int_equal(strncmp(r.err, "ltrain: model and data are missing", 34), 0);
    static const char *const how[] = {"--model", "--data", "ltrain.yaml", "model: ", "data: "};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++)
        e2e_contains(r.err, how[i]);
    assert_string_equal(r.out, "");
    e2e_write("ltrain.yaml", "model: tiny\ndata: corpus.txt\nseq-len: 420k\nsteps: 2\nthreads: 1\ntiles: {rows: 64, loss: 64}\n");
    r = e2e_succeeds(NULL, "--seq-len 512 --zero 3 --offload nvme");
    e2e_contains(r.out, "step 2/2");
    assert_int_equal(e2e_count("runs/*-tiny/metrics.jsonl"), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_run_leaves_its_files),
        TEST(placement_does_not_change_the_run),
        TEST(plan_only_prints),
        TEST(evaluation_leaves_training_alone),
        TEST(evaluation_shows_nan),
        TEST(divergence_ends_the_run),
        TEST(diverged_parameters_are_not_kept),
        TEST(a_run_stops_at_nan),
        TEST(spikes_are_counted_over_starts),
        TEST(last_steps_that_were_skipped),
        TEST(documents_without_targets),
        TEST(frozen_parameters_stay),
        TEST(bf16_follows_fp32),
        TEST(accumulation_is_the_mean),
        TEST(a_trace_shows_every_lane),
        TEST(hugging_face_in_and_out),
        TEST(a_bare_command_says_what_is_missing),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
