/* Tests bad input: each case has its exit status and one sentence that says what is wrong, with which value, and what to do. */
#include "harness.h"

#include "extent.h"

#include <jansson.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIDE " --tiles rows=1024,loss=1024,group=65536 --threads 1 " /* large tiles: long sequences are planned quickly */

/* Checks that a refused run does not begin: it leaves no directory. */
static void refuses_before_the_run(int status, const char *words, const char *arguments)
{
    e2e_refuses(status, words, NULL, "%s --out run", arguments);
    if (e2e_exists("run/metrics.jsonl") || e2e_count("run/*.store") > 0)
        fail_msg("ltrain %s: refused, but run/ was begun", arguments);
}

static void options_and_keys(void **state)
{
    (void)state;
    refuses_before_the_run(2, "unknown option --seq-lne|did you mean --seq-len?", "--seq-lne 5");
    refuses_before_the_run(2, "unknown option --frobnicate; ltrain --help lists", "--frobnicate 5");
    refuses_before_the_run(2, "unknown option --learning-rate; did you mean --lr?", TINY "--learning-rate 1e-4");
    refuses_before_the_run(2, "unknown option --max_steps; did you mean --steps?", TINY "--max_steps 5");
    refuses_before_the_run(2, "unknown option --num_train_epochs; did you mean --epochs?", TINY "--num_train_epochs 5");
    refuses_before_the_run(2, "--offload|nvem|did you mean nvme?", TINY "--offload nvem");
    refuses_before_the_run(2, "--dtype|fp8|fp32, bf16", TINY "--dtype fp8");
    refuses_before_the_run(2, "--lr|much|number", TINY "--lr much");
    refuses_before_the_run(2, "--steps|0|at least 1", TINY "--steps 0");
    refuses_before_the_run(2, "--epochs and --steps both say", TINY "--epochs 2 --steps 5");
    refuses_before_the_run(2, "epochs 2: epochs of sequences of several lengths|--steps",
                           "--model tiny --data corpus.txt --seq-len 128@3,256 --epochs 2");
    e2e_write("both.yaml", "steps: 4\nepochs: 2\n");
    refuses_before_the_run(2, "both.yaml:2: epochs and, in line 1, steps both", "--config both.yaml" TINY);
    refuses_before_the_run(2, "--zero|4", TINY "--zero 4");
    refuses_before_the_run(2, "unexpected argument 'more.txt'|comma", "--data corpus.txt more.txt");
    refuses_before_the_run(2, "--eval-every 2 has|--eval-data|--eval-fraction", TINY "--eval-every 2");
    e2e_refuses(2, "--max-seq|--seq-len", NULL, "plan" TINY "--max-seq");
    refuses_before_the_run(2, "--max-seq|ltrain plan", "--model tiny --data corpus.txt --max-seq");
    refuses_before_the_run(2, "--json is for ltrain plan", TINY "--json");
    refuses_before_the_run(2, "--explain is for ltrain plan", TINY "--explain");
    refuses_before_the_run(2, "--svg is for ltrain plan", TINY "--svg step.svg");
    e2e_refuses(2, "no command 'trian'|train|plan", NULL, "trian" TINY);
    e2e_refuses(2, "--rank: 'x' is not a number", NULL, "--rank x --world-size 2" TINY);
    e2e_refuses(2, "--world-size: 99999999 is out of range|at most 65536", NULL, "--rank 0 --world-size 99999999" TINY);
    assert_int_equal(mkdir("begun", 0777), 0);
    e2e_write("begun/config.yaml", "model: tiny\ndata: corpus.txt\nseq-len: 256\n");
    e2e_refuses(2, "--resume begun: ltrain check begins with|--config begun/config.yaml", NULL, "check --resume begun");
    e2e_write("run.yaml", "model: tiny\ndata: corpus.txt\nseq_len: 256\nlearning-rte: 3\n");
    refuses_before_the_run(2, "run.yaml:4|unknown key learning-rte", "--config run.yaml");
    e2e_write("run.yaml", "model: tiny\ndata: corpus.txt\nseqlen: 256\n");
    refuses_before_the_run(2, "run.yaml:3|unknown key seqlen|did you mean seq-len?", "--config run.yaml");
    e2e_write("run.yaml", "model: [tiny\n");
    refuses_before_the_run(2, "run.yaml:", "--config run.yaml");
    refuses_before_the_run(2, "absent.yaml|No such file", "--config absent.yaml");
}

static void options_without_settings(void **state)
{
    (void)state;
    e2e_refuses(2, "export: --model has no value, but --to follows", NULL, "export --model --to out");
    e2e_refuses(2, "export: --to has no value, but --adapter follows", NULL, "export --model run --to --adapter");
    e2e_refuses(2, "export: --base is empty", NULL, "export --model run --to out --base=");
    e2e_refuses(2, "export: --adapter=yes takes no value: write --adapter alone", NULL,
                "export --model run --to out --adapter=yes");
    e2e_refuses(2, "export: '--too' is not known|--quantize nf4|int8", NULL, "export --model run --too out");
    e2e_refuses(2, "tokenize: --model has no value, but --decode follows", NULL, "tokenize --model --decode");
    e2e_refuses(2, "tokenize: --model has no value", NULL, "tokenize --decode --model");
    e2e_refuses(2, "tokenize: '--modell=x' is not known", NULL, "tokenize --modell=x");
}

static void lengths_and_depths(void **state)
{
    (void)state;
#define EVALUATE "eval --model tiny --eval-data corpus.txt "
    e2e_refuses(2, "--lengths: 0: 0 is not between 2 and 1073741824", NULL, EVALUATE "--lengths 0");
    e2e_refuses(2, "--lengths: 64..2g: 2147483648 is not between 2 and", NULL, EVALUATE "--lengths 64..2g");
    e2e_refuses(2, "--lengths: 64..32: N..M goes from the shorter", NULL, EVALUATE "--lengths 64..32");
    e2e_refuses(2, "--depths: 9999: a number alone|written as 100%", NULL,
                "eval --model tiny --tasks needle --lengths 512 --depths 9999");
}

static void data(void **state)
{
    (void)state;
#define WITHOUT_DATA "--model tiny --seq-len 256" TILES
    refuses_before_the_run(2, "--data: |absent.txt|no such file", WITHOUT_DATA "--data absent.txt");
    refuses_before_the_run(2, "--data: |corpus.txt is given twice: give it once",
                           "--model tiny --data corpus.txt,corpus.txt --seq-len 256" TILES);
    refuses_before_the_run(2, "--data: |*.md|nothing matches", WITHOUT_DATA "--data *.md");
    e2e_write("empty.txt", "%s", "");
    refuses_before_the_run(2, "--data: |empty", WITHOUT_DATA "--data empty.txt");
    assert_int_equal(mkdir("folder", 0777), 0);
    refuses_before_the_run(2, "--data: |folder|no files", WITHOUT_DATA "--data folder");
    assert_int_equal(symlink("nowhere", "dangling.txt"), 0);
    refuses_before_the_run(2, "dangling.txt", WITHOUT_DATA "--data dangling.txt --device-mem 1K"); /* refused before planning */
    refuses_before_the_run(2, "/dev/null|regular file", WITHOUT_DATA "--data /dev/null");
    refuses_before_the_run(2, "--data: |20000|20480|seq-len",
                           "--model tiny --data corpus.txt --packing concat --seq-len 20k" WIDE);
    e2e_write("secret.txt", "%s", "nobody may read this");
    assert_int_equal(chmod("secret.txt", 0), 0);
    e2e_refuses(2, "secret.txt|Permission denied", &(struct launch){.prepare = e2e_drop_reading},
                WITHOUT_DATA "--data secret.txt --out run");
}

static int directory_without_writing(void)
{
    return e2e_drop_capability(CAP_DAC_OVERRIDE);
}

/* Bad directories are refused before planning, which would fail for lack of device memory. */
static void directories_of_runs(void **state)
{
    (void)state;
#define INTO(path) TINY "--steps 1 --device-mem 1K --out " path
    e2e_refuses(2, "--out corpus.txt/run: corpus.txt: Not a directory: give another", NULL, INTO("corpus.txt/run"));
    e2e_refuses(2, "--out corpus.txt: corpus.txt: Not a directory: give another", NULL, INTO("corpus.txt"));
    assert_int_equal(symlink("unmounted", "link"), 0);
    e2e_refuses(2, "--out link: link is a link to something that is not there: make that directory", NULL, INTO("link"));
    e2e_refuses(2, "--out link/a/run: link is a link to something", NULL, INTO("link/a/run"));
    e2e_refuses(2, "--out corpus.txt/a/b/run: corpus.txt: Not a directory: give another", NULL, INTO("corpus.txt/a/b/run"));
    assert_int_equal(mkdir("locked", 0555), 0);
    e2e_refuses(2, "--out locked/run: locked: Permission denied", &(struct launch){.prepare = directory_without_writing},
                INTO("locked/run"));
    e2e_refuses(2, "--out corpus.txt/run: corpus.txt: Not a directory: give another", NULL,
                "check " TINY "--steps 1 --offload nvme --out corpus.txt/run");
    e2e_refuses(3, "the plan needs ", NULL, INTO("new/directories/run"));
    assert_false(e2e_exists("new"));
}

static void budgets(void **state)
{
    (void)state;
    refuses_before_the_run(3, "the plan needs |MiB on the device|1.0 MiB are given|--device-mem",
                           TINY "--offload none --device-mem 1M");
    if (extent(0, 1, 1)) { /* the search is slow under sanitizers, and this refusal comes at its end */
        refuses_before_the_run(3, "the plan needs |on the host|200 KiB are given (--host-mem). --offload auto would need ",
                               TINY "--offload cpu --host-mem 200K");
        refuses_before_the_run(3, "the plan needs |on the nvme|1.0 MiB are given (--nvme-max). --offload auto would need ",
                               TINY "--offload nvme --nvme-max 1M");
    }
    /* the change that the message suggests must work */
#define LONG \
    "--model tiny --data corpus.txt --seq-len 4096 --device-mem 12M --tiles rows=256,loss=64,group=16384 --threads 1 --effort quick "
    struct result r = e2e_refuses(3, "on the device|12 MiB are given (--device-mem). --offload | would need ", NULL,
                                  LONG "--offload none --out run");
    char *change = strdup(strstr(r.err, ". --") + 2), *end = strstr(change, " would need");
    *end = 0;
    e2e_succeeds(NULL, "plan " LONG "--offload none %s", change);
    free(change);
}

/* The model's state fits only into device and host together. The estimate assumes that it is in one place, so it finds no length
 * that fits. */
static void a_shorter_sequence(void **state)
{
    (void)state;
    if (extent(0, 1, 1) == 0)
        return; /* the search is slow under sanitizers */
#define SCARCE "plan --model 25m --device-mem 300M --host-mem 300M --nvme-max 0 --threads 1 "
    struct result r = e2e_refuses(3, "No offload setting fits; --seq-len | would need ", NULL, SCARCE "--seq-len 256k");
    char *change = strdup(strstr(r.err, "--seq-len ")), *end = strstr(change, " would need");
    *end = 0;
    assert_true(atoi(change + strlen("--seq-len ")) > 1024 || end[-1] == 'k');
    e2e_succeeds(NULL, SCARCE "%s", change);
    free(change);
}

/* Statements about the planned machine that cannot be true are refused. */
static void machines(void **state)
{
    (void)state;
#define ON(machine) "plan --model Tiny --seq-len 256 --dtype BF16 --effort quick --machine " machine
    e2e_refuses(2, "--device-mem: 200 GiB are more than the 77 GiB that a program can have of a100-80: leave it out", NULL,
                ON("a100-80 --device-mem 200G"));
    e2e_refuses(2, "--dtype fp32: attention on GPUs computes in bf16: leave --dtype out", NULL,
                "plan --model tiny --seq-len 256 --dtype fp32 --machine h200");
    struct result r = e2e_succeeds(NULL, "plan --model tiny --seq-len 256 --effort quick --machine h200 --deterministic no");
    e2e_contains(r.out, "dtype bf16");
    e2e_refuses(2, "--machine: there is no file pod.yaml", NULL, ON("pod.yaml"));
    e2e_refuses(2, "--nvme: '2x7Gb/s': Gb/s is not a unit of what drives read: give GB/s", NULL, ON("a100-80 --nvme 2x7Gb/s"));
    e2e_refuses(2, "--device is cpu|a100-80|GPUs|leave out", NULL, ON("a100-80 --device cpu:discrete"));
    e2e_refuses(2, "--nvme-path|a100-80", NULL, ON("a100-80 --nvme-path ."));
    e2e_refuses(2, "--machine: cannot read .: Is a directory", NULL, ON("."));
    e2e_refuses(2, "--nvme 1x2GB/s and --nvme-max 0 contradict", NULL, ON("a100-80 --nvme 1x2GB/s --nvme-max 0"));
    e2e_refuses(2, "--mesh: 4 ranks do not divide the 5 devices of 5xa100-80: take --machine 4xa100-80, or add --ranks 4", NULL,
                ON("5xa100-80 --mesh ulysses=4"));
    e2e_refuses(2, "4 ranks are asked for, and 2xa100-80 has 2 devices: take --machine 4xa100-80", NULL,
                ON("2xa100-80 --ranks 4"));
    e2e_refuses(2, "4 ranks are asked for, and a100-80 has 1 device: take --machine 4xa100-80", NULL, ON("a100-80 --ranks 4"));
    r = e2e_succeeds(NULL, ON("3xa100-80 --ranks 2"));
    e2e_contains(r.out, "machine: 3 x a100-80 (2 used), ");
    r = e2e_succeeds(NULL, ON("4xa100-80 --mesh ulysses=2")); /* degrees that are not given follow from the number of devices */
    e2e_contains(r.out, " 4 ranks: dp=1,ulysses=2,ring=2, ");
    /* without --machine, degrees follow from the number of ranks */
    r = e2e_succeeds(NULL, "plan --model tiny --seq-len 256 --effort quick --ranks 4 --mesh ulysses=2");
    e2e_contains(r.out, " 4 ranks: dp=1,ulysses=2,ring=2, ");
    r = e2e_succeeds(NULL, ON("A100-80 --nvme none"));
    e2e_contains(r.out, "tiny, 256 tokens on 1 x a100-80: fits, ");
    e2e_contains(r.out, "no nvme.");
    e2e_refuses(3, "the plan needs|on the nvme and 0 B are given (--nvme none).", NULL, ON("a100-80 --nvme none --offload nvme"));
    r = e2e_refuses(3, "on the nvme and 0 B are given (--nvme-max).", NULL, ON("a100-80 --nvme-max 0 --offload nvme --explain"));
    e2e_contains(r.out, "\n--explain says something of plans that fit.\n");
}

static int without_room(void)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    return full < 0 || dup2(full, STDOUT_FILENO) < 0;
}

/* A picture that cannot be written is refused before planning; an existing picture is not changed. */
static void pictures(void **state)
{
    (void)state;
    struct result r = e2e_refuses(2, "--svg: cannot write nowhere/step.svg: No such file or directory", NULL,
                                  ON("a100-80 --svg nowhere/step.svg"));
    assert_string_equal(r.out, "");
    e2e_refuses(2, "--svg: cannot write .: Is a directory", NULL, ON("a100-80 --svg ."));
    e2e_write("step.svg", "%s", "mine");
    e2e_refuses(2, "--machine: 'h300' is neither", NULL, "plan --model tiny --seq-len 256 --machine h300 --svg step.svg");
    e2e_refuses(2, "--machine: 'h300' is neither", NULL, "plan --model tiny --seq-len 256 --machine h300 --svg new.svg");
    size_t n;
    char *text = e2e_read("step.svg", &n);
    assert_string_equal(text, "mine");
    free(text);
    assert_false(e2e_exists("new.svg"));
    e2e_refuses(1, "cannot write the plan", &(struct launch){.prepare = without_room}, ON("a100-80"));
}

static void models(void **state)
{
    (void)state;
    refuses_before_the_run(2, "gpt2-tiny|4096|5120|--seq-len", "--model gpt2-tiny --data corpus.txt --seq-len 5k" TILES);
    refuses_before_the_run(2, "'tyny' is not a preset|did you mean tiny?", "--model tyny --data corpus.txt --seq-len 256");
    refuses_before_the_run(2, "--model: '7b' is not a preset; presets are tiny, ", "--model 7b --data corpus.txt --seq-len 256");
    refuses_before_the_run(2, "--model: no such directory: /nope", "--model /nope --data corpus.txt --seq-len 256");
    refuses_before_the_run(2, "no such directory: meta-llama/Llama-3.1-8B|not downloaded|give the directory",
                           "--model meta-llama/Llama-3.1-8B --data corpus.txt --seq-len 256");
    refuses_before_the_run(2, "--keep-inputs 99: model tiny has 2 layers", TINY "--keep-inputs 99");
    refuses_before_the_run(2, "--freeze: |nothing.*", TINY "--freeze nothing.*");
    assert_int_equal(mkdir("hollow", 0777), 0);
    refuses_before_the_run(2, "hollow/config.json|No such file", "--model hollow --data corpus.txt --seq-len 256");
}

/* Copies tests/golden/llama-gqa to DIR with a key of its config.json changed. */
static void copy_model(const char *dir, const char *key, json_t *value)
{
    char from[4096], to[4096];
    size_t n;
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(from, sizeof from, "%s/tests/golden/llama-gqa/model.safetensors", getenv("LTRAIN_SOURCE_ROOT"));
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    char *weights = e2e_read(from, &n);
    FILE *f = fopen(to, "we");
    assert_true(f && fwrite(weights, 1, n, f) == n && fclose(f) == 0);
    free(weights);
    snprintf(from, sizeof from, "%s/tests/golden/llama-gqa/config.json", getenv("LTRAIN_SOURCE_ROOT"));
    snprintf(to, sizeof to, "%s/config.json", dir);
    json_t *config = json_load_file(from, 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, key, value);
    assert_int_equal(json_dump_file(config, to, 0), 0);
    json_decref(config);
}

static void hugging_face_directories(void **state)
{
    (void)state;
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
#define OF(model) "--data corpus.txt --seq-len 128 --model " model TILES
    copy_model("biased", "attention_bias", json_true());
    refuses_before_the_run(2, "lack the tensor model.layers.0.self_attn.q_proj.bias", OF("biased"));
    copy_model("weightless", "attention_bias", json_false());
    assert_int_equal(unlink("weightless/model.safetensors"), 0);
    refuses_before_the_run(2, "weightless has neither model.safetensors nor", OF("weightless") "--device-mem 1K");
    e2e_succeeds(NULL, "plan %s", OF("weightless"));
    copy_model("relu", "hidden_act", json_string("relu"));
    refuses_before_the_run(2, "relu/config.json|hidden_act|relu", OF("relu"));
    copy_model("small", "vocab_size", json_integer(255));
    refuses_before_the_run(2, "model.embed_tokens.weight has the shape [256, 64], config.json means [255, 64]", OF("small"));
    copy_model("wide", "hidden_size", json_integer(128));
    refuses_before_the_run(2, "has the shape [256, 64], config.json means [256, 128]", OF("wide"));
    copy_model("short", "attention_bias", json_false());
    assert_int_equal(truncate("short/model.safetensors", 100000), 0);
    e2e_refuses(1, "short/model.safetensors", NULL, "%s", OF("short") "--out run-short");
    copy_model("bare", "attention_bias", json_false());
    assert_int_equal(unlink("bare/model.safetensors"), 0);
    e2e_refuses(2, "bare", NULL, "%s", OF("bare") "--out run-bare");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(options_and_keys),
        TEST(options_without_settings),
        TEST(lengths_and_depths),
        TEST(data),
        TEST(directories_of_runs),
        TEST(budgets),
        TEST(machines),
        TEST(pictures),
        TEST(models),
        TEST(hugging_face_directories),
        TEST(a_shorter_sequence),
    };
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
