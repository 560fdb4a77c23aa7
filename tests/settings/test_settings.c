/* Tests settings from flags and files: values, precedence, messages, and writing them as YAML that reads back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "settings/keys.h"
#include "settings/read.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUIRED "--model", "tiny", "--data", "a.txt", "--seq-len", "64"
#define READ(s, ...) read_args((char *[]){__VA_ARGS__, NULL}, s)

/* Parses arguments up to a NULL. */
static struct settings_flags *parse(char **args)
{
    struct settings_flags *f;
    int n = 0;
    while (args[n])
        n++;
    assert_int_equal(settings_flags_parse(n, args, &f), OK);
    return f;
}

static enum status read_args(char **args, struct settings *s)
{
    struct settings_flags *f = parse(args);
    enum status st = settings_read(f, SETTINGS_TRAIN, s);
    settings_flags_free(f);
    return st;
}

static enum status launch(char **args, int *rank, int *size, int *local_rank)
{
    struct settings_flags *f = parse(args);
    enum status st = settings_launch(f, rank, size, local_rank);
    settings_flags_free(f);
    return st;
}

static double patience(const char *option, char *value, const char *key)
{
    struct settings_flags *f = parse((char *[]){(char *)option, value, NULL});
    double seconds = settings_patience(f, key);
    settings_flags_free(f);
    return seconds;
}

static int gives(const char *option, const char *key)
{
    struct settings_flags *f = parse((char *[]){(char *)option, NULL});
    int given = settings_given(f, key);
    settings_flags_free(f);
    return given;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void must_contain(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
}

/* Checks that reading fails with `part` in the message and leaves the output untouched. */
static void must_fail(char **args, const char *part)
{
    struct settings s;
    memset(&s, 0x5a, sizeof s);
    struct settings before = s;
    enum status st = read_args(args, &s);
    if (st != ERR_INVALID)
        fail_msg("status %d instead of ERR_INVALID with '%s'", st, part);
    must_contain(status_message(), part);
    assert_memory_equal(&s, &before, sizeof s);
}

#define FAILS(part, ...) must_fail((char *[]){__VA_ARGS__, NULL}, part)

static void same_list(const struct string_list *list, const char *items)
{
    char joined[1024] = "";
    for (int i = 0; i < list->n; i++) {
        strcat(joined, i ? "|" : "");
        strcat(joined, list->item[i]);
    }
    assert_string_equal(joined, items);
}

static void test_defaults(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(READ(&s, REQUIRED), OK);
    assert_string_equal(s.model, "tiny");
    same_list(&s.data, "a.txt");
    same_list(&s.eval_data, "");
    assert_true(s.eval_fraction == 0 && s.plan.eval_every == 0);
    assert_true(s.plan.seq_len == 64 && s.plan.micro_batch == AUTO && s.plan.grad_accum == 1 && s.plan.zero == 3);
    assert_true(s.plan.batch == AUTO && s.plan.mesh.degree[MESH_DP] == AUTO && s.plan.mesh.degree[MESH_ULYSSES] == AUTO &&
                s.plan.mesh.degree[MESH_RING] == AUTO && s.sp == SP_AUTO && s.plan.ranks == AUTO);
    assert_true(s.plan.optim_dtype == F32 && s.plan.grad_dtype == F32 && s.comm_timeout == 600);
    assert_true(s.plan.params == OFFLOAD_AUTO && s.plan.grads == OFFLOAD_AUTO && s.plan.optim == OFFLOAD_AUTO &&
                s.plan.acts == OFFLOAD_AUTO);
    assert_true(s.plan.alpha == AUTO && s.plan.prefetch == AUTO && s.plan.update == UPDATE_AUTO && s.plan.device == DEVICE_AUTO);
    assert_true(s.plan.device_mem == AUTO && s.plan.host_mem == AUTO && s.plan.nvme_max == AUTO && s.plan.link_gbps == 0 &&
                s.nvme_path.n == 0);
    assert_true(s.plan.row_chunk == AUTO && s.plan.head_tile == AUTO && s.plan.loss_tile == AUTO && s.plan.dtype == F32 &&
                s.dtype_is_open && s.plan.deterministic && s.plan.threads == AUTO);
    assert_true(s.plan.steps == 100 && s.lr == 3e-4 && s.schedule == SCHEDULE_CONSTANT && s.warmup == 0 && s.weight_decay == 0.1);
    assert_true(s.beta1 == 0.9 && s.beta2 == 0.95 && s.eps == 1e-8 && s.clip == 1 && s.seed == 1 && s.plan.freeze.n == 0);
    assert_true(s.save_every == 0 && s.keep == 2 && s.verify_every == 0 && s.trace == AUTO && s.mode == MODE_RUN && !s.resume &&
                !s.verbose);
    assert_int_equal(strncmp(s.out, "runs/20", 7), 0);
    assert_string_equal(s.out + strlen(s.out) - 5, "-tiny");
    settings_free(&s);
    assert_null(s.model);
    settings_free(&s);
    settings_free(NULL);

    assert_int_equal(READ(&s, REQUIRED, "--model", "/models/Llama-3//"), OK);
    must_contain(s.out, "-Llama-3");
    settings_free(&s);
}

static char *yaml_of(const struct settings *s)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_int_equal(settings_write_yaml(s, f), OK);
    fclose(f);
    return text;
}

/* settings_defaults, by which programs plan without a command line, gives what a command line without options gives. */
static void test_defaults_of_plan(void **state)
{
    (void)state;
    struct settings s, d;
    assert_int_equal(READ(&s, REQUIRED), OK);
    settings_defaults(&d, s.plan.seq_len);
    d.model = s.model;
    d.data = s.data;
    d.out = s.out;
    char *read = yaml_of(&s), *made = yaml_of(&d);
    assert_string_equal(read, made);
    assert_true(s.plan.ranks == d.plan.ranks && s.plan.nvme_drives == d.plan.nvme_drives && s.plan.nvme_gbps == d.plan.nvme_gbps);
    free(read);
    free(made);
    settings_free(&s);
}

/* Planning chooses the ZeRO stage of stages of layers, unless a file or a flag gives one. */
static void test_zero_of_stages(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(READ(&s, REQUIRED, "--mesh", "pp=2"), OK);
    assert_int_equal(s.plan.zero, AUTO);
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--mesh", "pp=2", "--zero", "3"), OK);
    assert_int_equal(s.plan.zero, 3);
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--mesh", "dp=2"), OK);
    assert_int_equal(s.plan.zero, 3);
    settings_free(&s);
}

static void test_values(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(READ(&s, "--model=m", "--data", "a b.txt, x/*.txt", "--data=c=d", "--seq_len=420k", "--zero", "0",
                          "--offload", "params=nvme,acts=cpu,passing=none,experts=cpu", "--alpha", "0.25", "--prefetch", "3",
                          "--update=host", "--device", "cpu:discrete", "--device-mem", "1.5GiB", "--host-mem", "512M",
                          "--nvme-max", "0", "--link-gbps", "2.5", "--tiles", "rows=4k,loss=7", "--dtype", "bf16", "--threads",
                          "2", "--seed", "18446744073709551615", "--verbose", "--betas", "0.8, 0.99", "--trace", "3", "--mode",
                          "chaos", "--clip", "0", "--lr", "1", "--lr", "2e-5", "--freeze", "*.bias", "--freeze", "", "--schedule",
                          "wsd", "--nvme-path", "/a,/b"),
                     OK);
    same_list(&s.data, "a b.txt|x/*.txt|c=d");
    assert_true(s.plan.seq_len == 430080 && s.plan.zero == 0);
    assert_true(s.plan.params == OFFLOAD_NVME && s.plan.grads == OFFLOAD_AUTO && s.plan.optim == OFFLOAD_AUTO &&
                s.plan.acts == OFFLOAD_CPU && s.plan.passing == OFFLOAD_NONE && s.plan.experts == OFFLOAD_CPU);
    assert_true(s.plan.alpha == 0.25 && s.plan.prefetch == 3 && s.plan.update == UPDATE_HOST &&
                s.plan.device == DEVICE_CPU_DISCRETE);
    assert_true(s.plan.device_mem == 3LL << 29 && s.plan.host_mem == 512LL << 20 && s.plan.nvme_max == 0 &&
                s.plan.link_gbps == 2.5);
    assert_true(s.plan.row_chunk == 4096 && s.plan.head_tile == AUTO && s.plan.loss_tile == 7 && s.plan.dtype == BF16 &&
                !s.dtype_is_open && s.plan.threads == 2);
    assert_true(s.seed == UINT64_MAX && s.verbose == 1 && s.beta1 == 0.8 && s.beta2 == 0.99 && s.trace == 3);
    assert_true(s.mode == MODE_CHAOS && s.clip == 0 && s.lr == 2e-5 && s.schedule == SCHEDULE_WSD);
    same_list(&s.plan.freeze, "*.bias");
    same_list(&s.nvme_path, "/a|/b");
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--offload", "nvme", "--verbose=false", "--alpha=auto", "--trace=none"), OK);
    assert_true(s.plan.params == OFFLOAD_NVME && s.plan.grads == OFFLOAD_NVME && s.plan.optim == OFFLOAD_NVME &&
                s.plan.acts == OFFLOAD_NVME && s.plan.passing == OFFLOAD_AUTO && s.plan.experts == OFFLOAD_AUTO);
    assert_true(!s.verbose && s.plan.alpha == AUTO && s.trace == AUTO);
    settings_free(&s);
}

/* --mesh and --sp, --batch and --grad-accum: each pair expresses the same thing in two ways. */
static void test_ranks(void **state)
{
    (void)state;
    struct settings s;
    int rank, size, local_rank;
    assert_int_equal(READ(&s, REQUIRED, "--mesh", "ring=2, dp=3", "--ranks", "12", "--batch", "1k", "--grad-dtype", "bf16",
                          "--optim-dtype", "bf16", "--comm-timeout", "2.5"),
                     OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == 3 && s.plan.mesh.degree[MESH_ULYSSES] == AUTO &&
                s.plan.mesh.degree[MESH_RING] == 2 && s.plan.ranks == 12 && s.plan.batch == 1024 && s.plan.grad_dtype == BF16 &&
                s.plan.optim_dtype == BF16);
    assert_true(s.comm_timeout == 2.5);
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--sp", "ring"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == AUTO && s.plan.mesh.degree[MESH_ULYSSES] == 1 &&
                s.plan.mesh.degree[MESH_RING] == AUTO);
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--sp", "ulysses", "--mesh", "dp=2,ring=1"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == 2 && s.plan.mesh.degree[MESH_ULYSSES] == AUTO &&
                s.plan.mesh.degree[MESH_RING] == 1);
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--sp=none"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == AUTO && s.plan.mesh.degree[MESH_ULYSSES] == 1 &&
                s.plan.mesh.degree[MESH_RING] == 1);
    settings_free(&s);
    FAILS("--sp none and --mesh ring=2 contradict each other", REQUIRED, "--sp", "none", "--mesh", "ring=2");
    FAILS("--sp ring and --mesh ulysses=4 contradict", REQUIRED, "--sp", "ring", "--mesh", "ulysses=4");
    FAILS("--mesh: pp=0 is out of range", REQUIRED, "--mesh", "pp=0");
    FAILS("--mesh: '8' is not like dp=2,ulysses=4,ring=2", REQUIRED, "--mesh", "8");
    FAILS("--mesh: dp=0 is out of range", REQUIRED, "--mesh", "dp=0");
    FAILS("--mesh: dp is given twice", REQUIRED, "--mesh", "dp=2,dp=2");
    FAILS("--sp: 'ulyses' is not one of auto, none, ulysses, ring (did you mean ulysses?)", REQUIRED, "--sp", "ulyses");
    FAILS("--ranks: 0 is out of range", REQUIRED, "--ranks", "0");
    FAILS("--comm-timeout: 0 is out of range, it must be above 0 and at most 1e+09", REQUIRED, "--comm-timeout", "0");
    FAILS("--rank: -1 is negative; give a number like 4096", REQUIRED, "--rank=-1");
    FAILS("--batch and --grad-accum are both given", REQUIRED, "--batch", "4", "--grad-accum", "2");
    FAILS("did you mean --mesh?", "--mseh=3");
    FAILS("did you mean --ranks?", "--rnaks=3");

    /* keys that a run has resolved in its file are overridden by flags */
    write_file("old.yaml",
               "model: tiny\ndata: a\nseq-len: 8\nmesh: {dp: 2, ulysses: 4, ring: 1}\nsp: ulysses\nbatch: 6\ngrad-accum: 3\n");
    assert_int_equal(READ(&s, "--config", "old.yaml"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == 2 && s.plan.mesh.degree[MESH_ULYSSES] == 4 && s.plan.mesh.degree[MESH_RING] == 1 &&
                s.sp == SP_ULYSSES && s.plan.batch == 6 && s.plan.grad_accum == 3);
    settings_free(&s);
    assert_int_equal(READ(&s, "--config", "old.yaml", "--mesh", "ring=8", "--grad-accum", "2"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == AUTO && s.plan.mesh.degree[MESH_ULYSSES] == AUTO &&
                s.plan.mesh.degree[MESH_RING] == 8 && s.sp == SP_AUTO && s.plan.batch == AUTO && s.plan.grad_accum == 2);
    settings_free(&s);
    assert_int_equal(READ(&s, "--config", "old.yaml", "--sp", "ring", "--batch", "2"), OK);
    assert_true(s.plan.mesh.degree[MESH_DP] == AUTO && s.plan.mesh.degree[MESH_ULYSSES] == 1 &&
                s.plan.mesh.degree[MESH_RING] == AUTO && s.plan.batch == 2);
    settings_free(&s);

    launch((char *[]){"--rank", "3", "--lr=4", "--world-size=8", "--local-rank", "1", NULL}, &rank, &size, &local_rank);
    assert_true(rank == 3 && size == 8 && local_rank == 1);
    launch((char *[]){"--rank", "5", "--rank", "3", NULL}, &rank, &size, &local_rank); /* the last one counts */
    assert_true(rank == 3 && size == -1 && local_rank == -1);
    launch((char *[]){"--rank", "3", "--nonsense", NULL}, &rank, &size, &local_rank); /* settings_read reports the fault */
    assert_true(rank == -1);
    assert_true(gives("--mesh=dp=2", "mesh") && !gives("--sp=ring", "mesh"));
}

static void test_flag_errors(void **state)
{
    (void)state;
    FAILS("unknown option --seqlen; did you mean --seq-len?", REQUIRED, "--seqlen", "3");
    FAILS("did you mean --weight-decay?", "--wieght-decay=3");
    FAILS("unknown option --gpu-layers", "--gpu-layers", "3");
    FAILS("unexpected argument 'b.txt'; several values of --data", "--data", "a.txt", "b.txt");
    FAILS("unexpected argument '1m': --max-seq takes no value", "--max-seq", "1m");
    FAILS("unexpected argument '-x'", "-x");
    FAILS("unexpected argument '--'", "--");
    FAILS("--lr needs a value", REQUIRED, "--lr");
    FAILS("--lr needs a value, but --steps follows", REQUIRED, "--lr", "--steps", "3");
    FAILS("--seq-len: 99999999999999999999 is out of range, it must be at least 2 and at most 1073741824", "--seq-len",
          "99999999999999999999");
    FAILS("unknown option --gpus; did you mean --ranks?", REQUIRED, "--gpus", "2");
    FAILS("--seq-len: 'abc' is not a number like 4096, 420k or 1m", "--seq-len", "abc");
    FAILS("--seq-len: 1 is out of range, it must be at least 2", REQUIRED, "--seq-len", "1");
    FAILS("--seq-len: '' is not a number", REQUIRED, "--seq-len=");
    FAILS("--seq-len: 8000000m is out of range", REQUIRED, "--seq-len=8000000m");
    FAILS("--device-mem: 'lots' is not a number like 512M", REQUIRED, "--device-mem", "lots");
    FAILS("--lr: 'nan' is not a number like 0.1 or 3e-4", REQUIRED, "--lr", "nan");
    FAILS("--lr: 1e999 is out of range, it must be at least 0 and at most 1e+38", REQUIRED, "--lr", "1e999");
    FAILS("--lr: '1x' is not", REQUIRED, "--lr", "1x");
    FAILS("--lr: '0x10' is not", REQUIRED, "--lr", "0x10");
    FAILS("--lr: -1 is out of range, it must be at least 0", REQUIRED, "--lr", "-1");
    FAILS("--alpha: 1.5 is out of range, it must be at least 0 and at most 1", REQUIRED, "--alpha", "1.5");
    FAILS("--alpha: 'much' is not a number like 0.1 or 3e-4, or auto", REQUIRED, "--alpha", "much");
    FAILS("--alpha: 2 is out of range", REQUIRED, "--alpha", "window=0.5,full=2");
    FAILS("--alpha: 'full=' is missing: window=0.25,full=1 gives both kinds of layers", REQUIRED, "--alpha", "window=0.5");
    FAILS("--alpha: '0.25' is not like window=0.25,full=1", REQUIRED, "--alpha", "0.25,0.5");
    FAILS("--alpha: 'auto' is not a number like 0.1 or 3e-4", REQUIRED, "--alpha", "window=0.5,full=auto");
    FAILS("--betas: 1 is out of range, it must be at least 0 and below 1", REQUIRED, "--betas", "0.9,1");
    FAILS("--betas: '0.9' is not two numbers like 0.9,0.95", REQUIRED, "--betas", "0.9");
    FAILS("--betas: '0.1,0.2,0.3' is not two numbers", REQUIRED, "--betas", "0.1,0.2,0.3");
    FAILS("--eps: 0 is out of range, it must be above 0", REQUIRED, "--eps", "0");
    FAILS("--eval-fraction: 1 is out of range", REQUIRED, "--eval-fraction", "1");
    FAILS("--zero: 4 is out of range", REQUIRED, "--zero", "4");
    FAILS("--threads: 0 is out of range", REQUIRED, "--threads", "0");
    FAILS("--threads: 5g is out of range", REQUIRED, "--threads", "5g");
    FAILS("--seed: '-1' is not a whole number", REQUIRED, "--seed", "-1");
    FAILS("--steps: '1k' could be thousands, or 1024s", REQUIRED, "--steps", "1k");
    FAILS("--save-every: '2K' could be thousands", REQUIRED, "--save-every", "2K");
    FAILS("--warmup: '0.1' is not a whole number like 1000 or 20,000", REQUIRED, "--warmup", "0.1");
    FAILS("--seq-len: '1k' could be thousands", "--seq-len", "8k@1k,16k");
    FAILS("--verbose: 'maybe' is not true or false", REQUIRED, "--verbose=maybe");
    FAILS("--device: 'gpu' is not there: give cuda or cuda:N for an NVIDIA GPU, else cpu or cpu:discrete", REQUIRED, "--device",
          "gpu");
    FAILS("--device: 'cuda:x' is no GPU: they are numbered from cuda:0 on", REQUIRED, "--device", "cuda:x");
    FAILS("--device: 'cuda:-1' is no GPU", REQUIRED, "--device", "cuda:-1");
    FAILS("--device: 'cpus' is not one of auto, cpu, cpu:discrete, cuda (did you mean cpu?)", REQUIRED, "--device", "cpus");
    FAILS("--schedule: 'cosin' is not one of constant, linear, cosine, wsd (did you mean cosine?)", REQUIRED, "--schedule",
          "cosin");
    FAILS("--offload: 'disk' is not one of auto, none, cpu, nvme", REQUIRED, "--offload", "disk");
    FAILS("--offload: 'nvme' is not like params=nvme,grads=cpu", REQUIRED, "--offload", "nvme,acts=cpu");
    FAILS("--offload: 'param' is not one of params, grads, optim, acts, passing, experts (did you mean params?)", REQUIRED,
          "--offload", "param=cpu");
    FAILS("--offload: grads is given twice", REQUIRED, "--offload", "grads=cpu,grads=nvme");
    FAILS("--tiles: rows=0 is out of range, it must be at least 1 and at most 1073741824", REQUIRED, "--tiles", "rows=0");
    FAILS("--tiles: '8' is not like rows=", REQUIRED, "--tiles", "8");
    FAILS("--data: an empty name", REQUIRED, "--data", "a,,b");
    FAILS("--out: an empty name", REQUIRED, "--out=");
    FAILS("--out: '\xff' is not UTF-8", REQUIRED, "--out", "\xff");
    FAILS("--micro-batch: 0 is", REQUIRED, "--micro-batch", "0");
    FAILS("--eval-data and --eval-fraction are", REQUIRED, "--eval-data", "x", "--eval-fraction", "0.1");
    FAILS("--eval-every 5 has nothing to evaluate", REQUIRED, "--eval-every", "5");
    write_file("throttled.yaml", "link-gbps: 5\neval-every: 5\n"); /* the message names keys as the file does, without dashes */
    FAILS("nothing to evaluate", REQUIRED, "--config", "throttled.yaml");
    assert_int_equal(strncmp(status_message(), "eval-every 5 has", 16), 0);
    FAILS("cpu:discrete's links", REQUIRED, "--config", "throttled.yaml", "--eval-every", "0");
    assert_int_equal(strncmp(status_message(), "link-gbps is", 12), 0);
    FAILS("--link-gbps is the speed of cpu:discrete's links: give --device cpu:discrete", REQUIRED, "--link-gbps", "5");
    FAILS("trace: step 11 is after the last one (--steps 10)", REQUIRED, "--steps", "10", "--trace", "11");
    FAILS("cannot read nowhere.yaml (--config): No such file", "--config", "nowhere.yaml");
    FAILS("or write such a line to throttled.yaml:\n    seq-len: 4096", "--model", "tiny", "--data", "a", "--config",
          "throttled.yaml");
    FAILS("leave out --config", "--config", "a", "--resume", "b");

    char many[512] = "x";
    for (int i = 0; i < SETTINGS_MAX_LIST; i++)
        strcat(many, ",x");
    FAILS("--freeze: more than 64 items", REQUIRED, "--freeze", many);
}

/* Drives of another machine are given by number and rate, with a unit, or as none. */
static void test_drives(void **state)
{
    (void)state;
    struct settings s;
    static const struct {
        const char *text;
        int drives;
        double gbps;
    } good[] = {{"4x7GB/s", 4, 7}, {"7gb/s", 1, 7}, {"2x500MB/s", 2, 0.5}, {"1x0.01TB/s", 1, 10}, {"AUTO", AUTO, 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(READ(&s, REQUIRED, "--nvme", (char *)(uintptr_t)good[i].text), OK);
        assert_true(s.plan.nvme_drives == good[i].drives && s.plan.nvme_max == AUTO);
        assert_true(s.plan.nvme_gbps < good[i].gbps + 1e-9 && s.plan.nvme_gbps > good[i].gbps - 1e-9);
        settings_free(&s);
    }
    for (int i = 0; i < 2; i++) { /* the same as --nvme-max 0, which may be given as well */
        assert_int_equal(READ(&s, REQUIRED, "--nvme", i ? "0" : "none"), OK);
        assert_true(s.plan.nvme_drives == 0 && s.plan.nvme_max == 0);
        settings_free(&s);
        assert_int_equal(READ(&s, REQUIRED, "--nvme=none", "--nvme-max", i ? "0" : "auto"), OK);
        assert_true(s.plan.nvme_max == 0);
        settings_free(&s);
    }
    FAILS("--nvme: '4x7' reads 7 of what? Give GB/s, MB/s or TB/s: 4x7GB/s", REQUIRED, "--nvme", "4x7");
    FAILS("GiB/s is not a unit of what drives read: give GB/s, MB/s or TB/s", REQUIRED, "--nvme", "4x7GiB/s");
    FAILS("--nvme: '0x7GB/s' is not a number of drives", REQUIRED, "--nvme", "0x7GB/s");
    FAILS("--nvme: 'fast' is not a number of drives", REQUIRED, "--nvme", "fast");
    FAILS("--nvme 1x2GB/s and --nvme-max 0 contradict", REQUIRED, "--nvme", "1x2GB/s", "--nvme-max", "0");
    FAILS("--nvme none and --nvme-max 1T contradict", REQUIRED, "--nvme", "none", "--nvme-max", "1T");
    FAILS("--nvme-path is where this machine's drives are, and --machine h200 is another one", REQUIRED, "--machine", "h200",
          "--nvme-path", "/scratch");
}

/* Small numbers of bytes without a unit are refused as mistakes, except in a file that a run wrote. Words may have any case. */
static void test_as_typed(void **state)
{
    (void)state;
    struct settings s;
    FAILS("--nvme: '4x7Gb/s': Gb/s is not a unit of what drives read: give GB/s", REQUIRED, "--nvme", "4x7Gb/s");
    FAILS("--host-mem: '64GiBs' is not a size like 512M, 80G or 1.5GiB", REQUIRED, "--host-mem", "64GiBs");
    FAILS("--profile measures this machine, and --machine h100 is another one", REQUIRED, "--profile", "--machine", "h100");
    FAILS("--host-mem: 512 is 512 bytes; did you mean 512G?", REQUIRED, "--host-mem", "512");
    assert_int_equal(READ(&s, REQUIRED, "--host-mem", "512K", "--device-mem", "1048576", "--nvme-max", "0", "--dtype", "BF16",
                          "--offload", "NVMe", "--update", "Host", "--alpha", "Auto"),
                     OK);
    assert_true(s.plan.host_mem == 512 << 10 && s.plan.device_mem == 1 << 20 && s.plan.nvme_max == 0 && s.plan.dtype == BF16);
    assert_true(s.plan.acts == OFFLOAD_NVME && s.plan.update == UPDATE_HOST && s.plan.alpha == AUTO);
    settings_free(&s);
    write_file("small.yaml", "host-mem: 204800\n");
    assert_int_equal(READ(&s, REQUIRED, "--config", "small.yaml"), OK);
    assert_true(s.plan.host_mem == 200 << 10);
    settings_free(&s);
}

static void test_missing(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(read_args((char *[]){NULL}, &s), ERR_INVALID);
    assert_string_equal(status_message(),
                        "model, data and seq-len are missing: give --model DIR --data PATH --seq-len N, or write such lines to "
                        "./ltrain.yaml:\n    model: tiny\n    data: texts/*.txt\n    seq-len: 4096");
    FAILS("data and seq-len are missing: give --data PATH --seq-len N,", "--model", "m");
    FAILS("data is missing: give --data PATH,", "--model", "m", "--seq-len", "5", "--data", "");
    FAILS("give --data PATH, or write such a line to ./ltrain.yaml:\n    data: texts/*.txt", "--model", "m", "--seq-len", "5");
    assert_null(strstr(status_message(), "model: tiny"));
}

static void test_precedence(void **state)
{
    (void)state;
    struct settings s;
    write_file("ltrain.yaml", "model: tiny\ndata: [a, b]\nseq_len: 4k\nlr: 0.5\nsteps: 7\noffload: cpu\n");
    write_file("other.yaml", "model: other\ndata: [c]\nseq-len: 8\n");
    assert_int_equal(READ(&s, "--lr", "0.25", "--data", "x", "--data", "y", "--offload", "acts=nvme"), OK);
    assert_string_equal(s.model, "tiny");
    assert_true(s.plan.seq_len == 4096 && s.lr == 0.25 && s.plan.steps == 7);
    same_list(&s.data, "x|y"); /* flags replace the file's list */
    assert_true(s.plan.params == OFFLOAD_AUTO && s.plan.acts == OFFLOAD_NVME);
    settings_free(&s);
    assert_int_equal(READ(&s, "--seq-len", "9", "--config", "other.yaml"), OK); /* instead of ltrain.yaml */
    assert_string_equal(s.model, "other");
    assert_true(s.plan.seq_len == 9 && s.lr == 3e-4);
    settings_free(&s);

    assert_int_equal(mkdir("run1", 0777), 0);
    FAILS("cannot read run1/config.yaml (--resume): No such file", "--resume", "run1");
    write_file("run1/config.yaml", "model: mine\ndata: [c]\nseq-len: 8\nout: runs/original\nlr: 0.125\n");
    assert_int_equal(READ(&s, "--resume", "run1", "--steps", "9"), OK);
    assert_string_equal(s.out, "run1");
    assert_string_equal(s.resume, "run1");
    assert_true(s.lr == 0.125 && s.plan.steps == 9);
    settings_free(&s);
    FAILS("--resume continues in run1; leave out --out", "--resume", "run1", "--out", "run2");
}

static void yaml_fails(const char *text, const char *part)
{
    write_file("bad.yaml", text);
    FAILS(part, REQUIRED, "--config", "bad.yaml");
}

static void test_yaml_errors(void **state)
{
    (void)state;
    yaml_fails("model: tiny\nseqlen: 3\n", "bad.yaml:2: unknown key seqlen; did you mean seq-len?");
    yaml_fails("lr: 1\n# x\nsteps: many\n", "bad.yaml:3: steps: 'many' is not a number like 1000");
    yaml_fails("lr: 1\nalpha: 7\n", "bad.yaml:2: alpha: 7 is out of range");
    yaml_fails("seq-len: 5\nlr: 1\nseq_len: 6\n", "bad.yaml:3: seq-len is given twice, first in line 1");
    yaml_fails("- lr\n", "bad.yaml:1: lines like `seq-len: 4096` are expected");
    yaml_fails("\njust words\n", "bad.yaml:2: lines like");
    yaml_fails("lr: [1, 2]\n", "bad.yaml:1: lr takes one value, not a list");
    yaml_fails("lr: {a: 2}\n", "bad.yaml:1: lr takes one value, not a mapping");
    yaml_fails("eval-data: {a: 2}\n", "bad.yaml:1: eval-data takes a list, not a mapping");
    yaml_fails("data: [a, [b]]\n", "bad.yaml:1: data: a value is expected, not a list");
    yaml_fails("offload: {params: [cpu]}\n", "bad.yaml:1: offload: a value is expected, not a list");
    yaml_fails("offload: {param: cpu}\n", "bad.yaml:1: offload: 'param' is not one of params");
    yaml_fails("? [a]\n: 3\n", "bad.yaml:1: a key is expected");
    yaml_fails("lr:\n", "bad.yaml:1: lr has no value");
    yaml_fails("model: null\n", "bad.yaml:1: model has no value");
    yaml_fails("model: \"a\\0b\"\n", "bad.yaml:1: model: a value with a zero byte");
    yaml_fails("lr: 1\nresume: run1\n", "bad.yaml:2: resume is not a key of a file; give --resume");
    yaml_fails("config: x\n", "bad.yaml:1: config is not a key of a file");
    yaml_fails("lr: 1\n---\nlr: 2\n", "bad.yaml:2: one document is expected");
    yaml_fails("lr: 1\nsteps: [1, 2\n", "bad.yaml:3: ");
    yaml_fails("lr: 1\n\tsteps: 2\n", "bad.yaml:2: ");
    yaml_fails("lr: *nothing\n", "bad.yaml:1: ");
    yaml_fails("lr: \xff\n", "bad.yaml: ");
    yaml_fails("betas: [0.9]\n", "bad.yaml:1: betas: '0.9' is not two numbers");
    FAILS("cannot read run0 (--config): Is a directory", REQUIRED, "--config", "run0"); /* a directory */
}

static void test_yaml_forms(void **state)
{
    (void)state;
    struct settings s;
    write_file(
        "forms.yaml",
        "%YAML 1.1\n---\nmodel: 'tiny'\ndata:\n  - a,b.txt\n  - c\neval-data: d, e\nseq-len: \"1k\"\nbetas: [0.5, 0.75]\n"
        "offload: {params: nvme, acts: cpu, passing: cpu}\ntiles: [rows=5, heads=2]\nfreeze: []\nverbose: yes\nout: \"caf\xc3\xa9\"\n");
    assert_int_equal(READ(&s, "--config=forms.yaml"), OK);
    same_list(&s.data, "a,b.txt|c"); /* items of a YAML list are taken unchanged */
    same_list(&s.eval_data, "d|e");
    assert_true(s.plan.seq_len == 1024 && s.beta1 == 0.5 && s.beta2 == 0.75 && s.verbose == 1 && s.plan.freeze.n == 0);
    assert_true(s.plan.params == OFFLOAD_NVME && s.plan.grads == OFFLOAD_AUTO && s.plan.acts == OFFLOAD_CPU &&
                s.plan.passing == OFFLOAD_CPU);
    assert_true(s.plan.row_chunk == 5 && s.plan.head_tile == 2 && s.plan.loss_tile == AUTO);
    assert_string_equal(s.out, "caf\xc3\xa9");
    settings_free(&s);
    write_file("weights.yaml", "model: tiny\nseq-len: 8\ndata: {'books/*.txt': 0.7, chats.jsonl: 3}\n");
    assert_int_equal(READ(&s, "--config=weights.yaml"), OK);
    same_list(&s.data, "books/*.txt=0.7|chats.jsonl=3");
    settings_free(&s);
    for (int i = 0; i < 2; i++) { /* an empty file */
        write_file("empty.yaml", i ? "# later\n" : "");
        assert_int_equal(READ(&s, REQUIRED, "--config", "empty.yaml"), OK);
        settings_free(&s);
    }
}

/* Compares settings field by field, bit by bit. */
static void must_equal(const struct settings *a, const struct settings *b)
{
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
        const struct string_list *l = (const void *)x, *m = (const void *)y;
        if (k->flags & KEY_FLAG_ONLY)
            continue;
        if (k->type == KEY_STRING) {
            const char *const *t = (const void *)x, *const *u = (const void *)y;
            assert_int_equal(*t == NULL, *u == NULL);
            if (*t)
                assert_string_equal(*t, *u);
        } else if (k->type == KEY_LIST) {
            assert_int_equal(l->n, m->n);
            for (int j = 0; j < l->n; j++)
                assert_string_equal(l->item[j], m->item[j]);
        } else if (k->offset) {
            size_t size = k->type == KEY_INT || k->type == KEY_CHOICE || k->type == KEY_SWITCH ? sizeof(int) : 8;
            if (memcmp(x, y, size) != 0)
                fail_msg("%s differs", k->name);
        }
    }
    assert_true(a->plan.params == b->plan.params && a->plan.grads == b->plan.grads && a->plan.optim == b->plan.optim &&
                a->plan.acts == b->plan.acts && a->plan.passing == b->plan.passing);
    assert_true(a->plan.mesh.degree[MESH_DP] == b->plan.mesh.degree[MESH_DP] &&
                a->plan.mesh.degree[MESH_ULYSSES] == b->plan.mesh.degree[MESH_ULYSSES] &&
                a->plan.mesh.degree[MESH_RING] == b->plan.mesh.degree[MESH_RING]);
    assert_true(a->plan.row_chunk == b->plan.row_chunk && a->plan.head_tile == b->plan.head_tile &&
                a->plan.loss_tile == b->plan.loss_tile);
    assert_true(a->beta1 == b->beta1 && a->beta2 == b->beta2);
    assert_true(a->plan.nvme_drives == b->plan.nvme_drives && a->plan.nvme_gbps == b->plan.nvme_gbps);
}

static void round_trip(char **args)
{
    struct settings a, b;
    assert_int_equal(read_args(args, &a), OK);
    FILE *f = fopen("config.yaml", "w");
    assert_non_null(f);
    assert_int_equal(settings_write_yaml(&a, f), OK);
    fclose(f);
    if (READ(&b, "--config", "config.yaml") != OK)
        fail_msg("%s", status_message());
    must_equal(&a, &b);
    settings_free(&a);
    settings_free(&b);
}

static void test_round_trip(void **state)
{
    (void)state;
    round_trip((char *[]){REQUIRED, NULL});
    round_trip((char *[]){"--model",
                          "a: \"b\" \\ #'\n\t\x7f\x01"
                          "caf\xc3\xa9",
                          "--data",
                          "*.txt,- x,~,null,[a]",
                          "--seq-len",
                          "1g",
                          "--lr",
                          "0.1234567890123456789",
                          "--weight-decay",
                          "3.3e-30",
                          "--seed",
                          "18446744073709551615",
                          "--offload",
                          "grads=cpu",
                          "--tiles",
                          "heads=3",
                          "--device",
                          "cpu:discrete",
                          "--device-mem",
                          "1.5G",
                          "--host-mem",
                          "1T",
                          "--nvme-max",
                          "0",
                          "--link-gbps",
                          "0.3",
                          "--alpha",
                          "0.7",
                          "--prefetch",
                          "2.5",
                          "--update",
                          "device",
                          "--zero",
                          "1",
                          "--grad-accum",
                          "8",
                          "--eval-fraction",
                          "0.1",
                          "--eval-every",
                          "3",
                          "--dtype",
                          "bf16",
                          "--threads",
                          "3",
                          "--steps",
                          "2048",
                          "--schedule",
                          "linear",
                          "--warmup",
                          "5",
                          "--betas",
                          "0.1,0.3",
                          "--eps",
                          "1e-3",
                          "--clip",
                          "0.7",
                          "--freeze",
                          "*.bias,wte.*",
                          "--out",
                          "null",
                          "--save-every",
                          "5",
                          "--keep",
                          "4",
                          "--scrub",
                          "--verify-every",
                          "7",
                          "--on-nan",
                          "stop",
                          "--trace",
                          "5",
                          "--verbose",
                          "--mode",
                          "chaos",
                          "--nvme-path",
                          "/a b",
                          NULL});
    round_trip((char *[]){REQUIRED, "--mesh", "dp=2,ring=3", "--ranks", "6", "--batch", "12", "--grad-dtype", "bf16",
                          "--optim-dtype", "bf16", "--comm-timeout", "12.5", NULL});
    round_trip((char *[]){REQUIRED, "--mesh", "ulysses=8", "--sp", "ulysses", NULL});
    round_trip((char *[]){REQUIRED, "--machine", "4xa100-40", "--nvme", "4x7.1GB/s", NULL});
    round_trip((char *[]){REQUIRED, "--nvme", "7GB/s", NULL});
    round_trip((char *[]){REQUIRED, "--nvme", "none", NULL});
    round_trip((char *[]){REQUIRED, "--offload", "none", "--tiles", "rows=1,heads=2,loss=3", "--schedule", "wsd", "--eval-data",
                          "e", NULL});
}

static void check_help(enum settings_use use)
{
    char *text = NULL, option[64];
    size_t size;
    FILE *f = open_memstream(&text, &size);
    settings_help(use, f);
    fclose(f);
    for (int i = 0; i < settings_n_keys; i++) {
        snprintf(option, sizeof option, "  --%s ", settings_keys[i].name);
        assert_int_equal(strstr(text, option) == NULL, !(settings_keys[i].shown & use));
    }
    assert_non_null(strstr(text, use == SETTINGS_PLAN ? "but for\n--json, --max-seq, --explain, --svg, --config, --profile;"
                                                      : "but for\n--rank, --world-size,"));
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1)
        if (end - at > 80)
            fail_msg("%d columns: %.*s", (int)(end - at), (int)(end - at), at);
    free(text);
}

static void test_lengths(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(READ(&s, "--model", "tiny", "--data", "a.txt", "--seq-len", "8k@1000, 64k@500,420k"), OK);
    assert_true(s.curriculum.n == 3 && s.plan.seq_len == 420 * 1024);
    assert_true(s.curriculum.at[0].seq_len == 8192 && s.curriculum.at[0].steps == 1000 && s.curriculum.at[2].steps == 0);
    settings_free(&s);
    write_file("lengths.yaml", "model: tiny\ndata: a.txt\nseq-len: [128@2, 64]\n");
    assert_int_equal(READ(&s, "--config", "lengths.yaml"), OK);
    assert_true(s.curriculum.n == 2 && s.plan.seq_len == 128 && s.curriculum.at[1].seq_len == 64);
    settings_free(&s);
    assert_int_equal(READ(&s, "--config", "lengths.yaml", "--seq-len", "430,080"), OK); /* one length again */
    assert_true(s.curriculum.n == 0 && s.plan.seq_len == 430080);
    settings_free(&s);
    FAILS("'8' is not like", "--model", "tiny", "--data", "a", "--seq-len", "8,192@1000,64k");
    FAILS("the last length, 64k@3, goes on", "--model", "tiny", "--data", "a", "--seq-len", "8k@2,64k@3");
    FAILS("'' is not", "--model", "tiny", "--data", "a", "--seq-len", "8k@2,");
    FAILS("more than 16 lengths", "--model", "tiny", "--data", "a", "--seq-len",
          "8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8@1,8");
    round_trip((char *[]){"--model", "tiny", "--data", "a", "--seq-len", "8k@1000,64k@500,420k", NULL});
}

static void test_help(void **state)
{
    (void)state;
    check_help(SETTINGS_TRAIN);
    check_help(SETTINGS_PLAN);
    assert_true(settings_key_find("lr")->shown == SETTINGS_TRAIN && settings_key_find("prompt")->shown == SETTINGS_SAMPLE);
}

/* A key whose value is a number or contains one. %s stands for the number in the value. */
struct numeric {
    const struct settings_key *key;
    const char *form;
};

static int list_numbers(struct numeric *out)
{
    static const char *const tiles[] = {"rows=%s", "heads=%s", "loss=%s", "group=%s", NULL},
                             *const mesh[] = {"dp=%s", "ulysses=%s", "ring=%s", NULL},
                             *const betas[] = {"%s,0.5", "0.5,%s", NULL}, *const stages[] = {"%s,2", "2,%s", NULL},
                             *const alpha[] = {"%s", "window=%s,full=0.5", "window=0.5,full=%s", NULL},
                             *const drives[] = {"1x%sGB/s", NULL}, *const alone[] = {"%s", NULL};
    int n = 0;
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        const char *const *form = k->type == KEY_TILES                                    ? tiles
                                  : k->type == KEY_ALPHA                                  ? alpha
                                  : k->type == KEY_MESH                                   ? mesh
                                  : k->type == KEY_BETAS                                  ? betas
                                  : k->type == KEY_STAGES                                 ? stages
                                  : k->type == KEY_DRIVES                                 ? drives
                                  : k->type == KEY_COUNT || k->type == KEY_BYTES          ? alone
                                  : k->type == KEY_LENGTHS                                ? alone
                                  : k->type == KEY_NUMBER || k->type == KEY_INT           ? alone
                                  : k->type == KEY_LAUNCH || strcmp(k->name, "seed") == 0 ? alone
                                                                                          : NULL;
        for (; form && *form; form++)
            out[n++] = (struct numeric){k, *form};
    }
    return n;
}

static void must_be(const struct numeric *x, const char *number, int good, enum status st)
{
    if ((st == OK) != good)
        fail_msg("--%s: %s is %s", x->key->name, number, good ? status_message() : "taken");
}

/* Puts the number into the value and reads it. Checks that a refusal is one line that names the key, and leaves the key's field
 * unchanged. */
static enum status try_number(const struct numeric *x, const char *number, struct settings *s)
{
    char text[128], where[64];
    struct settings before;
    snprintf(where, sizeof where, "--%s", x->key->name);
    snprintf(text, sizeof text, x->form, number);
    memset(s, 0x5a, sizeof *s);
    before = *s;
    enum status st = settings_key_set(x->key, where, text, s);
    if (st == OK)
        return OK;
    const char *said = status_message();
    if (st != ERR_INVALID || strncmp(said, where, strlen(where)) != 0 || strchr(said, '\n') || strlen(said) > 200)
        fail_msg("%s %s: status %d, %s", where, text, st, said);
    assert_memory_equal(s, &before, sizeof before);
    return st;
}

static int is_whole(const struct settings_key *k)
{
    return k->type != KEY_NUMBER && k->type != KEY_ALPHA && k->type != KEY_BETAS && k->type != KEY_DRIVES;
}

/* Values within a key's limits are accepted, others are refused, and the field's type can hold every limit. */
static void test_ranges(void **state)
{
    (void)state;
    static const char *const never[] = {"nan", "inf",  "-inf",  "",   "garbage", "1e30x", "0x",
                                        " 1",  "-0x1", "1e999", "-1", "1 1",     "--"},
                             *const large[] = {"2g",
                                               "9.3e9",
                                               "9300000000",
                                               "4611686018427387904",
                                               "8e18",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551616",
                                               "1e30",
                                               "1.5e38",
                                               "1e308"};
    struct numeric x[128];
    struct settings s;
    int n = list_numbers(x);
    assert_true(n > 35);
    for (int i = 0; i < n; i++) {
        const struct settings_key *k = x[i].key;
        char text[64];
        for (size_t j = 0; j < sizeof never / sizeof *never; j++)
            must_be(&x[i], never[j], 0, try_number(&x[i], never[j], &s));
        if (k->type == KEY_SEED) { /* any 64 bits */
            must_be(&x[i], "18446744073709551615", 1, try_number(&x[i], "18446744073709551615", &s));
            must_be(&x[i], "18446744073709551616", 0, try_number(&x[i], "18446744073709551616", &s));
            continue;
        }
        assert_true(k->max > k->min && k->min >= 0 &&
                    k->max <= (k->type == KEY_BYTES    ? 0x1p56
                               : k->type == KEY_NUMBER ? 1e38
                                                       : 0x1p30));
        for (size_t j = 0; j < sizeof large / sizeof *large; j++) {
            double value = strcmp(large[j], "2g") == 0 ? 0x1p31 : strtod(large[j], NULL);
            int good = value <= k->max && (is_whole(k) || large[j][1] != 'g');
            must_be(&x[i], large[j], good, try_number(&x[i], large[j], &s));
        }
        snprintf(text, sizeof text, is_whole(k) ? "%.0f" : "%.17g", k->max);
        must_be(&x[i], text, !(k->flags & KEY_BELOW_MAX), try_number(&x[i], text, &s));
        snprintf(text, sizeof text, is_whole(k) ? "%.0f" : "%.17g",
                 is_whole(k) ? k->max + fmax(1, k->max / (1 << 20)) : k->max * (1 + 1e-6));
        must_be(&x[i], text, 0, try_number(&x[i], text, &s));
        snprintf(text, sizeof text, is_whole(k) ? "%.0f" : "%.17g", k->min);
        if (k->type != KEY_BYTES && k->type != KEY_DRIVES)
            must_be(&x[i], text, !(k->flags & KEY_ABOVE_MIN), try_number(&x[i], text, &s));
        if (k->min > 0) {
            snprintf(text, sizeof text, is_whole(k) ? "%.0f" : "%.17g", is_whole(k) ? k->min - 1 : k->min / 2);
            must_be(&x[i], text, 0, try_number(&x[i], text, &s));
        }
    }
}

/* Numbers that are used as fp32 must be in range after rounding to fp32. */
static void test_in_fp32(void **state)
{
    (void)state;
    struct settings s;
    FAILS("--betas: 0.99999999 is out of range, it must be at least 0 and below 1 (it is 1 in fp32, in which it is used)",
          REQUIRED, "--betas", "0.9,0.99999999");
    FAILS("--eps: 1e-50 is out of range, it must be above 0 and at most 1e+38 (it is 0 in fp32, in which it is used)", REQUIRED,
          "--eps", "1e-50");
    FAILS("--clip: 1e-50 is too near 0: give 0, or at least 1.18e-38", REQUIRED, "--clip", "1e-50");
    FAILS("--link-gbps: 1e-300 is too near 0: give 0, or at least 1e-06", REQUIRED, "--link-gbps", "1e-300");
    assert_int_equal(READ(&s, REQUIRED, "--betas", "0,0.9999999", "--eps", "1e-37", "--lr", "1e38"), OK);
    assert_true((float)s.beta2 < 1 && (float)s.eps > 0);
    settings_free(&s);
}

/* Numbers that are each in range are refused if their product is too large. */
static void test_products(void **state)
{
    (void)state;
    struct settings s;
    FAILS("--mesh: these degrees make 4294967296 ranks, and at most 65536 are possible", REQUIRED, "--mesh",
          "dp=65536,ulysses=65536");
    FAILS("--mesh: these degrees make 281474976710656 ranks", REQUIRED, "--mesh", "dp=65536,ulysses=65536,ring=65536");
    FAILS("--grad-accum: 1G is out of range, it must be at least 1 and at most 1048576", REQUIRED, "--grad-accum", "1G");
    FAILS("--keep: 2000000000 is out of range, it must be at least 1 and at most 1073741824", REQUIRED, "--keep", "2000000000");
    assert_int_equal(READ(&s, REQUIRED, "--mesh", "dp=256,ring=256"), OK);
    settings_free(&s);
    int rank, size, local_rank;
    assert_int_equal(launch((char *[]){"--rank", "4g", "--world-size", "8", NULL}, &rank, &size, &local_rank), ERR_INVALID);
    assert_string_equal(status_message(), "--rank: 4g is out of range, it must be at least 0 and at most 65535");
    assert_int_equal(launch((char *[]){"--rank", "0", "--world-size", "many", NULL}, &rank, &size, &local_rank), ERR_INVALID);
    assert_string_equal(status_message(), "--world-size: 'many' is not a number like 4096, 420k or 1m");
    assert_true(patience("--comm-timeout", "9.3e9", "comm-timeout") == 600);
    assert_true(patience("--comm-timeout", "30", "comm-timeout") == 30);
    assert_true(patience("--comm-timeout", "30", "drive-timeout") == 600);
    assert_true(patience("--drive-timeout", "1", "drive-timeout") == 1);
}

static char home[] = "/tmp/ltrain-settings-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(home) && chdir(home) == 0 && mkdir("run0", 0777) == 0 ? 0 : -1;
}

static int remove_ltrain_yaml(void **state)
{
    (void)state;
    return unlink("ltrain.yaml") == 0 || errno == ENOENT ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int leave(void **state)
{
    (void)state;
    return chdir("/") == 0 ? nftw(home, remove_one, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

/* Checks that --lora prints as the text, and that the text reads back the same. */
static void same_lora(const struct lora *a, const char *text)
{
    char *printed = lora_text(a);
    struct lora again;
    assert_string_equal(printed, text);
    assert_int_equal(lora_parse("here", printed, &again), OK);
    assert_memory_equal(a, &again, sizeof again);
    free(printed);
}

static void test_lora(void **state)
{
    (void)state;
    struct settings s;
    assert_int_equal(READ(&s, REQUIRED), OK);
    same_lora(&s.plan.lora, "none");
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--lora", "targets=q_proj, v_proj,r=8,rslora=yes,modules-to-save=norm,lm_head"), OK);
    same_lora(&s.plan.lora, "r=8,alpha=16,rslora=yes,targets=q_proj,v_proj,modules-to-save=norm,lm_head");
    settings_free(&s);
    write_file(
        "lora.yaml",
        "model: tiny\nseq-len: 8\ndata: a\nlora: {r: 4, alpha: 2.5, targets: [q_proj, v_proj], rank-pattern: \"q_proj:8;k_proj:2\"}\n");
    assert_int_equal(READ(&s, "--config=lora.yaml"), OK);
    same_lora(&s.plan.lora, "r=4,alpha=2.5,targets=q_proj,v_proj,rank-pattern=q_proj:8;k_proj:2");
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--lora", "targets=.*layers[.]\\d{1,2}[.].*_proj"), OK);
    assert_true(lora_is_regex(s.plan.lora.targets));
    assert_true(s.plan.lora.dropout == 0);
    same_lora(&s.plan.lora, "r=16,alpha=32,targets=.*layers[.]\\d{1,2}[.].*_proj");
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--lora", "r=4,dropout=0.125"), OK);
    assert_true(lora_same_tokens("3,40-42,lm_head:7", "3,40,41-42,lm_head:7") && lora_same_tokens("", ""));
    assert_false(lora_same_tokens("3,40-42", "40-42,3") || lora_same_tokens("3", "3,4") || lora_same_tokens("lm_head:7", "7"));
    same_lora(&s.plan.lora, "r=4,alpha=8,dropout=0.125,targets=all-linear");
    settings_free(&s);
    assert_int_equal(READ(&s, REQUIRED, "--lora",
                          "r=4,exclude_modules=lm_head, 0.mlp.up_proj,layers_to_transform=0, 07,layers-pattern=h,layers"),
                     OK);
    same_lora(
        &s.plan.lora,
        "r=4,alpha=8,targets=all-linear,exclude-modules=lm_head,0.mlp.up_proj,layers-to-transform=0,7,layers-pattern=h,layers");
    settings_free(&s);
    FAILS("--lora: layers-to-transform: '-1' is no number of a layer", REQUIRED, "--lora", "layers-to-transform=-1");
    FAILS("--lora: layers-to-transform: '1.mlp' is no number", REQUIRED, "--lora", "layers-to-transform=1.mlp");
    FAILS("--lora: layers-pattern says where the layers of layers-to-transform stand", REQUIRED, "--lora", "layers-pattern=h");
    FAILS("--lora: layers-to-transform goes with names of modules", REQUIRED, "--lora", "targets=.*q_proj,layers-to-transform=0");
    FAILS("--lora: r=0: a rank is a whole number from 1", REQUIRED, "--lora", "r=0");
    FAILS("--lora: r=1.5: a rank is", REQUIRED, "--lora", "r=1.5");
    FAILS("--lora: r is given twice", REQUIRED, "--lora", "r=4,r=4");
    FAILS("--lora: alpha=-1: alpha is above 0", REQUIRED, "--lora", "alpha=-1");
    FAILS("--lora: alpha=nan is not a number", REQUIRED, "--lora", "alpha=nan");
    FAILS("--lora: dropout=1: dropout is at least 0 and below 1", REQUIRED, "--lora", "dropout=1");
    FAILS("--lora: dropout=-0.1: dropout is", REQUIRED, "--lora", "lora_dropout=-0.1");
    FAILS("--lora: 'target' is not one of r, alpha", REQUIRED, "--lora", "target=q_proj");
    FAILS("--lora: 'q_proj' is not like r=16", REQUIRED, "--lora", "q_proj");
    FAILS("--lora: targets has no value", REQUIRED, "--lora", "targets=");
    FAILS("--lora: rank-pattern: 'q_proj' is not like q_proj:32", REQUIRED, "--lora", "rank-pattern=q_proj");
    FAILS("--lora: give r=16, or none", REQUIRED, "--lora", "");
}

/* Returns the settings of a command that reads a training run's file and the model of a flag; NULL: the file's. */
static struct settings read_for(enum settings_use use, const char *model)
{
    char *args[] = {"--config", "trained.yaml", model ? "--model" : NULL, (char *)model, NULL};
    struct settings s;
    struct settings_flags *f = parse(args);
    if (settings_read(f, use, &s) != OK)
        fail_msg("%s", status_message());
    settings_flags_free(f);
    return s;
}

/* Commands that train nothing take the model's keys of a run's file unless a flag gives another model, and none of training. */
static void keys_of_another_model(void **state)
{
    (void)state;
    static const struct {
        enum settings_use use;
        const char *model;
        int of_model, of_run;
    } cases[] = {{SETTINGS_TRAIN, "other", 1, 1}, {SETTINGS_TRAIN, NULL, 1, 1},   {SETTINGS_EVAL, NULL, 1, 0},
                 {SETTINGS_EVAL, "m", 1, 0},      {SETTINGS_EVAL, "other", 0, 0}, {SETTINGS_SAMPLE, "m", 1, 0},
                 {SETTINGS_SAMPLE, "other", 0, 0}};
    write_file("trained.yaml", "model: m\ndata: a\nseq-len: 64\nseed: 3\nrope: yarn:4\nrope-base: 9e5\ntokenizer: t\nbase: nf4\n"
                               "ignore-tensors: x*\nchat-template: chatml\ntemplate-var: b=c\nlora: r=4\neval-fraction: 0.1\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s = read_for(cases[i].use, cases[i].model);
        const int n = cases[i].of_model;
        assert_true(s.seed == 3 && s.plan.seq_len == 64);
        assert_true(!s.rope == !n && (s.rope_base > 0) == n && !s.tokenizer == !n && (s.plan.base == FROZEN_NF4) == n);
        assert_true(s.ignore_tensors.n == n && !s.chat_template == !n && s.template_var.n == n);
        assert_true((s.plan.lora.rank > 0) == cases[i].of_run && (s.eval_fraction > 0) == cases[i].of_run);
        settings_free(&s);
    }
}

/* Options that a command would ignore are refused with the reason, and taken where they count. */
static void ignored_options(void **state)
{
    (void)state;
    static const struct {
        enum settings_use use;
        const char *args[8], *sentence; /* NULL: taken */
    } cases[] = {
        {SETTINGS_SAMPLE, {"--packing", "concat"}, "--packing is of data, and ltrain sample reads none: leave it out"},
        {SETTINGS_SAMPLE,
         {"--svg", "a.svg"},
         "--svg is for ltrain plan, and this samples: leave it out, or write ltrain plan ..."},
        {SETTINGS_SAMPLE,
         {"--mesh", "dp=1"},
         "--mesh is of steps and their ranks, of which ltrain sample has none: leave it out"},
        {SETTINGS_DATA,
         {"--data", "a", "--svg", "a.svg"},
         "--svg is for ltrain plan, and this shows data: leave it out, or write ltrain plan ..."},
        {SETTINGS_EVAL,
         {"--tasks", "needle", "--token-type", "u16"},
         "--token-type does nothing to these tasks without --eval-data: leave it out"},
        {SETTINGS_EVAL, {"--tasks", "needle", "--token-type", "u16", "--eval-data", "a"}, NULL},
        {SETTINGS_EVAL,
         {"--tasks", "needle", "--text-column", "a"},
         "--text-column does nothing to these tasks without --data: leave it out"},
        {SETTINGS_EVAL, {"--tasks", "needle", "--text-column", "a", "--data", "b"}, NULL},
        {SETTINGS_EVAL,
         {"--tasks", "needle", "--train-on", "last"},
         "--train-on does nothing to these tasks without --write-samples: leave it out"},
        {SETTINGS_EVAL,
         {"--tasks", "needle", "--chat-template", "a"},
         "--chat-template does nothing to these tasks without --chat: leave it out"},
        {SETTINGS_EVAL,
         {"--tasks", "needle", "--stride", "2"},
         "--stride does nothing to these tasks without --eval-data: leave it out"},
        {SETTINGS_EVAL, {"--mesh", "dp=1"}, NULL},
        {SETTINGS_EVAL,
         {"--out", "run"},
         "--out is the directory of a run, and ltrain eval makes none: give --nvme-path DIR if drives are meant, or leave it out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *args[11] = {"--model", "tiny"};
        struct settings s;
        for (int k = 0; k < 8; k++)
            args[2 + k] = (char *)cases[i].args[k];
        struct settings_flags *f = parse(args);
        const enum status st = settings_read(f, cases[i].use, &s);
        settings_flags_free(f);
        assert_int_equal(st, cases[i].sentence ? ERR_INVALID : OK);
        if (cases[i].sentence)
            assert_string_equal(status_message(), cases[i].sentence);
        else
            settings_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),           cmocka_unit_test(keys_of_another_model),
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_defaults_of_plan),
        cmocka_unit_test(test_zero_of_stages), cmocka_unit_test(test_values),
        cmocka_unit_test(test_ranks),          cmocka_unit_test(test_flag_errors),
        cmocka_unit_test(test_missing),        cmocka_unit_test(test_drives),
        cmocka_unit_test(test_as_typed),       cmocka_unit_test_teardown(test_precedence, remove_ltrain_yaml),
        cmocka_unit_test(test_yaml_errors),    cmocka_unit_test(test_yaml_forms),
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_help),           cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_in_fp32),        cmocka_unit_test(test_products),
        cmocka_unit_test(ignored_options),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
