/* Sessions of the C API, in this process and in the working directory of each test. */
#include "e2e/harness.h"

#include "ltrain.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL "model = tiny\nseq-len = 256\ntiles = rows=64,loss=64,group=4096\nthreads = 1\neffort = quick\n"
#define DATA "data = corpus.txt\n"

static ltrain *opens(const char *settings, unsigned flags)
{
    ltrain *s = NULL;
    if (ltrain_open(settings, flags, &s) != LTRAIN_OK)
        fail_msg("%s", ltrain_error());
    return s;
}

static void works(int status)
{
    if (status != LTRAIN_OK)
        fail_msg("%d: %s", status, ltrain_error());
}

/* Fails unless a call was refused with one sentence, perhaps with examples below it, that has the word. */
static void refuses(int status, int as, const char *word)
{
    const char *second = strchr(ltrain_error(), '\n');
    if (status != as || !strstr(ltrain_error(), word) || (second && strncmp(second, "\n    ", 5) != 0))
        fail_msg("%d '%s', not %d '%s'", status, ltrain_error(), as, word);
}

enum { MOST_STEPS = 16 };
static double losses[MOST_STEPS]; /* by step, from 1 */

static int note_loss(void *user, const struct ltrain_metrics *m)
{
    (void)user;
    assert_in_range(m->step, 1, MOST_STEPS - 1);
    losses[m->step] = m->loss;
    return 0;
}

/* ---- the command and the library ---- */

/* Losses of metrics.jsonl equal those heard, bit for bit. */
static void same_losses(const char *log, int steps)
{
    char *text = e2e_read(log, NULL), *line = text;
    for (int i = 1; i <= steps; i++) {
        json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        const double loss = json_real_value(json_object_get(o, "loss"));
        assert_memory_equal(&loss, &losses[i], sizeof loss);
        json_decref(o);
        line = strchr(line, '\n') + 1;
    }
    free(text);
}

/* A run by the library is that of the command: losses, checkpoints and model; so is one that was closed and goes on. */
static void test_command(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "train" TINY "--steps 6 --save-every 2 --keep 9 --grad-accum 2 --out command");
    ltrain *s = opens(SMALL DATA "steps = 6\nsave-every = 2\nkeep = 9\ngrad-accum = 2\nout = library", 0);
    assert_int_equal(ltrain_get(s, LTRAIN_STEPS), 6);
    assert_int_equal(ltrain_get(s, LTRAIN_SEQUENCES), 2);
    assert_string_equal(ltrain_directory(s), "library");
    works(ltrain_train(s, 3, NULL, note_loss, NULL));
    assert_int_equal(ltrain_get(s, LTRAIN_STEP), 3);
    works(ltrain_save(s));
    works(ltrain_close(s));
    s = opens("resume = library", 0);
    assert_int_equal(ltrain_get(s, LTRAIN_STEP), 3);
    works(ltrain_train(s, 100, NULL, note_loss, NULL));
    works(ltrain_finish(s));
    refuses(ltrain_train(s, 1, NULL, NULL, NULL), LTRAIN_INVALID, "ltrain_finish");
    works(ltrain_close(s));
    same_losses("command/metrics.jsonl", 6);
    same_losses("library/metrics.jsonl", 6);
    e2e_same_file("command/hf/model.safetensors", "library/hf/model.safetensors");
    e2e_same_file("command/checkpoints/step-000006/model.safetensors", "library/checkpoints/step-000006/model.safetensors");
    e2e_same_file("command/checkpoints/step-000004/optimizer.safetensors",
                  "library/checkpoints/step-000004/optimizer.safetensors");
}

/* ---- batches and weights ---- */

/* Kind of a callback's sequences. */
struct giving {
    int drops;   /* 1: every other target is left out */
    int weighs;  /* 1: every other target has the weight 0, and the others 2 */
    int asked;   /* calls */
    int returns; /* result from the second step on */
    int fault;   /* kind of a faulty sequence from the second step on; 0: none */
};

static int give(void *user, struct ltrain_sequence *q)
{
    struct giving *g = user;
    g->asked++;
    q->used = q->room - 16;
    for (int64_t i = 0; i < q->used; i++) {
        q->tokens[i] = (int32_t)((i * 7 + q->step + q->number) % 50);
        q->targets[i] = g->drops && i % 2 ? -1 : (int32_t)(((i + 1) * 7 + q->step + q->number) % 50);
        q->positions[i] = (int32_t)(i % 100);
        if (g->weighs)
            q->weights[i] = i % 2 ? 0.0f : 2.0f;
    }
    if (q->step < 2)
        return 0;
    if (g->fault == 1)
        q->tokens[5] = 256;
    if (g->fault == 2)
        q->targets[7] = -2;
    if (g->fault == 3)
        q->positions[9] = 4;
    if (g->fault == 4)
        q->weights[3] = NAN;
    if (g->fault == 5)
        q->used = q->room + 1;
    return g->returns;
}

static void train_given(const char *out, struct giving g)
{
    char text[512];
    snprintf(text, sizeof text, SMALL "steps = 4\ngrad-accum = 2\nclip = 0\nlr = 1e-3\nout = %s", out);
    ltrain *s = opens(text, LTRAIN_BATCHES | (g.weighs ? LTRAIN_WEIGHTS : 0));
    works(ltrain_train(s, 4, give, note_loss, &g));
    assert_int_equal(g.asked, 8); /* each sequence once */
    works(ltrain_finish(s));
    works(ltrain_close(s));
}

/* Weights of 0 and 2 count as targets that are left out, whose mean is over half as many. */
static void test_weights(void **state)
{
    (void)state;
    double dropped[5], plain[5];
    train_given("plain", (struct giving){.returns = 0});
    memcpy(plain, losses, sizeof plain);
    train_given("dropped", (struct giving){.drops = 1});
    memcpy(dropped, losses, sizeof dropped);
    train_given("weighed", (struct giving){.weighs = 1});
    for (int i = 1; i <= 4; i++)
        if (!(fabs(losses[i] - dropped[i]) < 1e-5) || fabs(losses[i] - plain[i]) < 1e-5)
            fail_msg("step %d: %.9f by weights, %.9f by targets, %.9f with all", i, losses[i], dropped[i], plain[i]);
}

/* A callback that stops or errs leaves its step out, and the session goes on from there. */
static void test_callbacks(void **state)
{
    (void)state;
    static const char *const words[] = {"returned 7 for sequence 0 of step 2",
                                        "token 5 is 256, and ids are 0 to 255",
                                        "target 7 is -2",
                                        "position 9 is 4",
                                        "weight 3 is not finite",
                                        "room for 0 to 256"};
    struct giving g = {0};
    ltrain *s = opens(SMALL "steps = 9\nout = given", LTRAIN_BATCHES | LTRAIN_WEIGHTS);
    works(ltrain_train(s, 1, give, NULL, &g));
    for (int i = 0; i < 6; i++) {
        g = (struct giving){.returns = i ? 0 : 7, .fault = i};
        refuses(ltrain_train(s, 2, give, NULL, &g), i ? LTRAIN_INVALID : LTRAIN_STOPPED, words[i]);
        assert_int_equal(ltrain_get(s, LTRAIN_STEP), 1);
    }
    g = (struct giving){0};
    works(ltrain_train(s, 1, give, NULL, &g));
    assert_int_equal(ltrain_get(s, LTRAIN_STEP), 2);
    refuses(ltrain_train(s, 1, NULL, NULL, NULL), LTRAIN_INVALID, "give a callback");
    works(ltrain_close(s));
}

/* ---- log-probabilities ---- */

enum { TOKENS = 96 };
static int32_t tokens[TOKENS];
static double expected[TOKENS];

static json_t *load_golden(void)
{
    char path[4096];
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/tests/golden/logprobs.json", root);
    json_t *o = json_load_file(path, 0, NULL);
    assert_non_null(o);
    return o;
}

/* Reads a model's path, its tokens and their scores; returns their number. */
static int read_case(const json_t *o, char path[4096], int32_t *ids, double *scores)
{
    const json_t *all = json_object_get(o, "tokens");
    const int n = (int)json_array_size(all);
    assert_in_range(n, 1, TOKENS);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(all, (size_t)i));
        scores[i] = json_number_value(json_array_get(json_object_get(o, "logprobs"), (size_t)i));
    }
    snprintf(path, 4096, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), json_string_value(json_object_get(o, "model")));
    return n;
}

static void read_golden(char path[4096])
{
    json_t *o = load_golden();
    assert_int_equal(read_case(o, path, tokens, expected), TOKENS);
    json_decref(o);
}

/* Models of experts and hybrids score as transformers does. */
static void check_other_models(const char *more)
{
    json_t *all = load_golden(), *o;
    size_t k;
    json_array_foreach(json_object_get(all, "others"), k, o)
    {
        char model[4096], text[8192];
        int32_t ids[TOKENS];
        double scores[TOKENS];
        float got[TOKENS];
        const int n = read_case(o, model, ids, scores);
        snprintf(text, sizeof text, "model = %s\nseq-len = %d\nthreads = 1\neffort = quick\n%s", model, n, more);
        ltrain *s = opens(text, LTRAIN_FROZEN);
        works(ltrain_logprobs(s, 1, &(int64_t){n}, (const int32_t *[]){ids}, (float *[]){got}));
        works(ltrain_close(s));
        for (int i = 0; i < n; i++)
            if (!(fabs((double)got[i] - scores[i]) < 1e-5))
                fail_msg("%s, token %d: %.7f, transformers' %.7f", model, i, (double)got[i], scores[i]);
    }
    assert_int_equal(k, 2);
    json_decref(all);
}

/* Log-probabilities of a whole sequence and of a shorter one equal transformers' in fp64. */
static void check_logprobs(ltrain *s)
{
    float whole[TOKENS], part[TOKENS], third[TOKENS];
    const int64_t length[] = {TOKENS, 37, 1};
    const int32_t *const given[] = {tokens, tokens, tokens};
    float *const out[] = {whole, part, third};
    works(ltrain_logprobs(s, 3, length, given, out));
    for (int i = 0; i < TOKENS; i++)
        if (!(fabs((double)whole[i] - expected[i]) < 1e-5) || (i < 37 && !(fabs((double)part[i] - expected[i]) < 1e-5)))
            fail_msg("token %d: %.7f, alone %.7f, transformers' %.7f", i, (double)whole[i], (double)part[i], expected[i]);
    assert_true(third[0] == 0);
}

/* Returns the session of the golden model. */
static ltrain *open_golden(const char *more, unsigned flags)
{
    char model[4096], text[8192];
    read_golden(model);
    snprintf(text, sizeof text, "model = %s\nseq-len = 96\nthreads = 1\neffort = quick\nlr = 1e-2\n%s", model, more);
    return opens(text, flags);
}

/* Frozen sessions and training ones have the same scores, beside each other; a step changes the trained one's alone. */
static void test_logprobs(void **state)
{
    (void)state;
    float now[TOKENS];
    struct giving g = {0};
    ltrain *frozen = open_golden("", LTRAIN_FROZEN);
    assert_string_equal(ltrain_directory(frozen), "");
    check_logprobs(frozen);
    ltrain *trained = open_golden("steps = 3\nout = scored", LTRAIN_BATCHES | LTRAIN_LOGPROBS);
    check_logprobs(trained);
    works(ltrain_train(trained, 1, give, NULL, &g));
    works(ltrain_logprobs(trained, 1, &(int64_t){TOKENS}, (const int32_t *[]){tokens}, (float *[]){now}));
    double apart = 0;
    for (int i = 0; i < TOKENS; i++)
        apart = fmax(apart, fabs((double)now[i] - expected[i]));
    assert_true(apart > 1e-3);
    check_logprobs(frozen);
    works(ltrain_close(trained));
    check_logprobs(frozen);
    refuses(ltrain_train(frozen, 1, NULL, NULL, NULL), LTRAIN_INVALID, "LTRAIN_FROZEN");
    works(ltrain_close(frozen));
    check_other_models("");
}

/* ---- parameters ---- */

/* Parameters are read as they are, and written into the model that is exported, in fp32 and in bf16 with its masters. */
static void test_parameters(void **state)
{
    (void)state;
    static const char name[] = "model.layers.1.mlp.up_proj.weight";
    float was[64], now[64], after[8];
    struct ltrain_parameter p;
    ltrain *s = opens(SMALL DATA "dtype = bf16\nsteps = 3\nout = written", 0);
    int found = 0;
    for (int64_t i = 0; i < ltrain_get(s, LTRAIN_PARAMETERS); i++) {
        works(ltrain_parameter(s, i, &p));
        assert_int_equal(p.elements, p.rows * p.columns);
        found += strcmp(p.name, name) == 0 && p.trained;
    }
    assert_int_equal(found, 1);
    works(ltrain_train(s, 1, NULL, NULL, NULL));
    works(ltrain_read(s, name, 100, 64, was));
    works(ltrain_write(s, name, 104, 8, (float[]){1, 2, 3, 4, 5, 6, 7, 8.001f}));
    works(ltrain_read(s, name, 100, 64, now));
    for (int i = 0; i < 64; i++)
        assert_true(now[i] == (i == 11 ? 8.001f : i >= 4 && i < 12 ? (float)(i - 3) : was[i]));
    works(ltrain_export(s, "exported"));
    works(ltrain_close(s));
    s = opens("model = exported\nseq-len = 64\nthreads = 1\neffort = quick", LTRAIN_FROZEN);
    works(ltrain_read(s, name, 104, 8, after));
    for (int i = 0; i < 7; i++)
        assert_true(after[i] == (float)(i + 1));
    works(ltrain_close(s));
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    ltrain *s = NULL;
    float x[4] = {0};
    struct ltrain_parameter p;
    refuses(ltrain_open(NULL, 0, &s), LTRAIN_INVALID, "NULL");
    refuses(ltrain_open("model = tiny", 0, NULL), LTRAIN_INVALID, "no place");
    refuses(ltrain_open("model tiny", 0, &s), LTRAIN_INVALID, "line 1: 'model tiny'");
    refuses(ltrain_open("\n# a comment\n--model = tiny", 0, &s), LTRAIN_INVALID, "line 3");
    refuses(ltrain_open("modle = tiny", 0, &s), LTRAIN_INVALID, "did you mean --model?");
    refuses(ltrain_open(SMALL, 0, &s), LTRAIN_INVALID, "data is missing");
    refuses(ltrain_open(SMALL DATA, LTRAIN_BATCHES, &s), LTRAIN_INVALID, "data: the program gives the sequences itself");
    refuses(ltrain_open(SMALL "epochs = 2", LTRAIN_BATCHES, &s), LTRAIN_INVALID, "epochs: the program gives");
    refuses(ltrain_open(SMALL, 1u << 20, &s), LTRAIN_INVALID, "flags 0x100000");
    refuses(ltrain_open(SMALL, LTRAIN_FROZEN | LTRAIN_WEIGHTS, &s), LTRAIN_INVALID, "LTRAIN_WEIGHTS");
    refuses(ltrain_open(SMALL DATA "walltime = 1h", 0, &s), LTRAIN_INVALID, "walltime");
    refuses(ltrain_open(SMALL DATA "ranks = 2", 0, &s), LTRAIN_INVALID, "mpiexec -n 2");
    refuses(ltrain_open("model = nowhere/at/all\nseq-len = 64", LTRAIN_FROZEN, &s), LTRAIN_INVALID, "no such directory");
    refuses(ltrain_open(SMALL DATA "host-mem = 1M\ndevice-mem = 1M\nnvme-max = 0", 0, &s), LTRAIN_NOFIT, "fit");
    refuses(ltrain_open_options(2, (const char *[]){"--model", NULL}, 0, &s), LTRAIN_INVALID, "option 2 of 2 is NULL");
    refuses(ltrain_open_options(-1, NULL, 0, &s), LTRAIN_INVALID, "no place");
    assert_null(s);
    refuses(ltrain_train(NULL, 1, NULL, NULL, NULL), LTRAIN_INVALID, "session is NULL");
    assert_int_equal(ltrain_get(NULL, LTRAIN_STEP), -1);
    assert_int_equal(ltrain_close(NULL), LTRAIN_OK);
    s = opens(SMALL DATA "steps = 2\nout = refused", 0);
    assert_int_equal(ltrain_get(s, 99), -1);
    refuses(ltrain_train(s, 0, NULL, NULL, NULL), LTRAIN_INVALID, "0 steps");
    refuses(ltrain_train(s, 1, give, NULL, NULL), LTRAIN_INVALID, "LTRAIN_BATCHES");
    refuses(ltrain_logprobs(s, 0, NULL, NULL, NULL), LTRAIN_INVALID, "LTRAIN_LOGPROBS");
    refuses(ltrain_read(s, "none", 0, 1, x), LTRAIN_INVALID, "no tensor 'none'");
    refuses(ltrain_read(s, NULL, 0, 1, x), LTRAIN_INVALID, "no tensor ''");
    refuses(ltrain_read(s, "model.norm.weight", 1, INT64_MAX, x), LTRAIN_INVALID, "which has");
    refuses(ltrain_read(s, "model.norm.weight", -1, 1, x), LTRAIN_INVALID, "which has");
    refuses(ltrain_read(s, "model.norm.weight", 0, 1, NULL), LTRAIN_INVALID, "no room");
    refuses(ltrain_write(s, "model.norm.weight", 0, 1, NULL), LTRAIN_INVALID, "no values");
    refuses(ltrain_write(s, "model.norm.weight", 0, 1, &(float){INFINITY}), LTRAIN_INVALID, "not finite");
    refuses(ltrain_parameter(s, 1000000, &p), LTRAIN_INVALID, "1000000");
    refuses(ltrain_parameter(s, 0, NULL), LTRAIN_INVALID, "room");
    refuses(ltrain_export(s, ""), LTRAIN_INVALID, "no name");
    works(ltrain_close(s));
    s = open_golden("", LTRAIN_FROZEN);
    refuses(ltrain_logprobs(s, 1, &(int64_t){97}, (const int32_t *[]){tokens}, (float *[]){x}), LTRAIN_INVALID, "97 tokens");
    refuses(ltrain_logprobs(s, 1, &(int64_t){2}, (const int32_t *[]){(int32_t[]){3, -1}}, (float *[]){x}), LTRAIN_INVALID,
            "token 1 is -1");
    refuses(ltrain_logprobs(s, 1, &(int64_t){2}, (const int32_t *[]){tokens}, (float *[]){NULL}), LTRAIN_INVALID, "no room");
    refuses(ltrain_logprobs(s, -1, NULL, NULL, NULL), LTRAIN_INVALID, "-1 sequences");
    works(ltrain_close(s));
}

/* ---- ranks ---- */

static int stop_on_rank_1(void *user, struct ltrain_sequence *q)
{
    struct giving g = {0};
    return give(&g, q) || *(int *)user == 1;
}

/* Scores the golden tokens before and after a step of weighed tokens. */
static void step_weighed(const char *settings, float after[TOKENS])
{
    struct giving g = {.weighs = 1};
    ltrain *s = open_golden(settings, LTRAIN_BATCHES | LTRAIN_WEIGHTS | LTRAIN_LOGPROBS);
    check_logprobs(s);
    works(ltrain_train(s, 1, give, NULL, &g));
    works(ltrain_logprobs(s, 1, &(int64_t){TOKENS}, (const int32_t *[]){tokens}, (float *[]){after}));
    works(ltrain_close(s));
}

/* Stages weigh tokens and score texts as ranks with whole layers do, whole sequences and slices of them. */
static void check_stages(void)
{
    float plain[TOKENS], staged[TOKENS];
    char settings[256];
    double apart = 0;
    step_weighed("batch = 4\nmesh = dp=4\nsteps = 1\nout = plain", plain);
    for (int ahead = 0; ahead < 2; ahead++) {
        snprintf(settings, sizeof settings, "batch = 4\nmesh = dp=2,pp=2,slices=%d\nstage-ahead = %d\nsteps = 1\nout = stages%d",
                 1 + 2 * ahead, ahead, ahead);
        step_weighed(settings, staged);
        for (int i = 0; i < TOKENS; i++) {
            if (!(fabs((double)(staged[i] - plain[i])) < 1e-4)) /* AdamW's first steps are as large for any gradient */
                fail_msg("token %d: %.7f by stages, %.7f without", i, (double)staged[i], (double)plain[i]);
            apart = fmax(apart, fabs((double)plain[i] - expected[i]));
        }
    }
    assert_true(apart > 1e-3);
}

/* Ranks that share sequences have transformers' scores, in two ways; a session after another one; equal parameters on all. */
static void test_ranks(void **state)
{
    (void)state;
    char out[64];
    float mine[64], alone[64];
    struct giving g = {0};
    ltrain *s = open_golden("sp = ring", LTRAIN_FROZEN), *second = NULL;
    int rank = (int)ltrain_get(s, LTRAIN_RANK);
    if (ltrain_get(s, LTRAIN_RANKS) > 1)
        refuses(ltrain_open(SMALL, LTRAIN_FROZEN, &second), LTRAIN_INVALID, "close it first");
    check_logprobs(s);
    works(ltrain_close(s));
    s = open_golden("sp = none", LTRAIN_FROZEN);
    check_logprobs(s);
    works(ltrain_close(s));
    s = open_golden("mesh = dp=2,tp=2", LTRAIN_FROZEN);
    check_logprobs(s);
    refuses(ltrain_read(s, "lm_head.weight", 0, 1, mine), LTRAIN_INVALID, "export it");
    works(ltrain_close(s));
    check_other_models("sp = ring");
    check_stages();
    snprintf(out, sizeof out, "steps = 2\nzero = 3\nsp = ulysses\nout = %s", getenv("LTRAIN_TEST_OUT"));
    s = open_golden(out, LTRAIN_BATCHES | LTRAIN_WEIGHTS | LTRAIN_LOGPROBS);
    works(ltrain_train(s, 1, give, NULL, &g));
    if (ltrain_get(s, LTRAIN_RANKS) > 1)
        refuses(ltrain_train(s, 1, stop_on_rank_1, NULL, &rank), LTRAIN_STOPPED, "returned 1");
    works(ltrain_write(s, "model.layers.0.mlp.up_proj.weight", 1000, 4, (float[]){1, 2, 3, 4}));
    works(ltrain_read(s, "model.layers.0.mlp.up_proj.weight", 998, 64, mine));
    assert_true(mine[2] == 1 && mine[5] == 4 && mine[1] != 0 && mine[6] != 0);
    works(ltrain_train(s, 1, give, NULL, &g));
    works(ltrain_finish(s));
    works(ltrain_read(s, "model.layers.0.mlp.up_proj.weight", 998, 64, mine));
    works(ltrain_close(s));
    char text[256];
    snprintf(text, sizeof text, "model = %s\nseq-len = 96\nthreads = 1\neffort = quick", getenv("LTRAIN_TEST_OUT"));
    s = opens(text, LTRAIN_FROZEN);
    works(ltrain_read(s, "model.layers.0.mlp.up_proj.weight", 998, 64, alone));
    assert_memory_equal(mine, alone, sizeof mine);
    works(ltrain_close(s));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest ranks[] = {cmocka_unit_test(test_ranks)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_command, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(test_weights, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(test_callbacks, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(test_logprobs, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(test_parameters, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, e2e_setup, e2e_teardown),
    };
    assert_int_equal(ltrain_api(), LTRAIN_API);
    if (argc > 1 && strcmp(argv[1], "ranks") == 0)
        return cmocka_run_group_tests(ranks, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
