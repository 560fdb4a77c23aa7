/* Tests --device cuda on the fake GPU (tests/cudasim/fake): it writes the same files as cpu:discrete, bit for bit, also after a
 * resume and after moving between devices; and it prints messages if there is no GPU or the GPU fails. */
#include "harness.h"

#include "build_config.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ON(device) " --offload nvme --device " device " "
#define FOUR TINY "--steps 4 --save-every 2 "

static const char *twin;

static void use(const char *plugin, const char *words)
{
    plugin ? setenv("LTRAIN_CUDA_PLUGIN", plugin, 1) : unsetenv("LTRAIN_CUDA_PLUGIN");
    words ? setenv("LTRAIN_FAKE_CUDA", words, 1) : unsetenv("LTRAIN_FAKE_CUDA");
}

static void runs_move_between_devices(void **state)
{
    (void)state;
    use(twin, "seed=1");
    e2e_succeeds(NULL, FOUR ON("cpu:discrete") "--out want");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --save-every 2 --out here");
    e2e_contains(r.out, "device: GPU 0, twin, 0000:01:00.0");
    use(twin, "seed=2,devices=2");
    r = e2e_succeeds(NULL, "--resume here --steps 4 --device cuda:1");
    e2e_contains(r.out, "device: GPU 1, twin, 0000:02:00.0");
    assert_null(strstr(r.out, "numerics key"));
    e2e_same_file("want/hf/model.safetensors", "here/hf/model.safetensors");
    e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --save-every 2 --out there");
    r = e2e_succeeds(NULL, "--resume there --steps 4 --device cpu");
    e2e_contains(r.out, "resume: the numerics key differs (");
    e2e_contains(r.out, " cuda=0.0,");
    e2e_same_file("want/hf/model.safetensors", "there/hf/model.safetensors");
    e2e_succeeds(NULL, TINY ON("cpu:discrete") "--steps 2 --save-every 2 --out back");
    r = e2e_succeeds(NULL, "--resume back --steps 4 --device cuda");
    e2e_contains(r.out, "device: GPU 0, twin, 0000:01:00.0");
    e2e_contains(r.out, "resume: the numerics key differs (");
    e2e_contains(r.out, " cuda=0.0,");
    e2e_same_file("want/hf/model.safetensors", "back/hf/model.safetensors");
    r = e2e_succeeds(NULL, "replay want --steps 1..4 --device cuda --offload none");
    e2e_contains(r.out, "replay: equal: 4 steps, all with the recorded bits");
}

/* State in pinned memory keeps its checksums while streams copy it, and a step's update computed again on the host has its bits. */
static void memory_is_checked(void **state)
{
    (void)state;
    use(twin, "seed=3");
    struct result r =
        e2e_succeeds(NULL, TINY "--device cuda --offload cpu --dtype bf16 --steps 4 --scrub --verify-every 2 --out checked");
    e2e_contains(r.out, "of state in host memory were as they had been left");
    e2e_contains(r.out, "verified: 2 steps were computed twice, with the same bits");
    e2e_succeeds(NULL, TINY "--device cuda --offload cpu --dtype bf16 --steps 4 --out unchecked");
    e2e_same_file("unchecked/hf/model.safetensors", "checked/hf/model.safetensors");
}

/* cuBLASLt's choice of algorithms may change bits: a resume reports another choice. */
static void other_algorithms_are_said(void **state)
{
    (void)state;
    use(twin, "algorithms=5");
    e2e_succeeds(NULL, TINY ON("cuda") "--steps 1 --save-every 1 --out chosen");
    struct result r = e2e_succeeds(NULL, "--resume chosen --steps 2");
    assert_null(strstr(r.out, "numerics key"));
    use(twin, "algorithms=6");
    r = e2e_succeeds(NULL, "--resume chosen --steps 3");
    e2e_contains(r.out, "resume: the numerics key differs (");
    e2e_contains(r.out, " cuda=0.0,1,0000000000000005");
    e2e_contains(r.out, " cuda=0.0,1,0000000000000006");
}

/* Runs two ranks with messages by NCCL on a GPU each, then with staged messages on one GPU for both. */
static void ranks_move_between_devices(void **state)
{
    (void)state;
    static const char *const words[] = {"seed=3,devices=2", "seed=4"};
    static const char *const mesh[] = {"--ranks 2 --mesh ring=2 --zero 2", "--ranks 2 --mesh ulysses=2 --zero 3"};
    for (int i = 0; i < 2; i++) {
        use(twin, words[i]);
        e2e_succeeds(NULL, FOUR ON("cpu:discrete") "%s --out ranks-want-%d", mesh[i], i);
        struct result r = e2e_succeeds(NULL, TINY ON("cuda") "%s --steps 2 --save-every 2 --out ranks-there-%d", mesh[i], i);
        e2e_contains(r.out, i == 0 ? "carried by NCCL" : "staged through host memory");
        e2e_succeeds(NULL, "--resume ranks-there-%d --ranks 2 --steps 4 --device cpu:discrete", i);
        e2e_succeeds(NULL, TINY ON("cpu:discrete") "%s --steps 2 --save-every 2 --out ranks-back-%d", mesh[i], i);
        e2e_succeeds(NULL, "--resume ranks-back-%d --ranks 2 --steps 4 --device cuda", i);
        char want[64], have[64];
        snprintf(want, sizeof want, "ranks-want-%d/hf/model.safetensors", i);
        snprintf(have, sizeof have, "ranks-there-%d/hf/model.safetensors", i);
        e2e_same_file(want, have);
        snprintf(have, sizeof have, "ranks-back-%d/hf/model.safetensors", i);
        e2e_same_file(want, have);
    }
}

/* Each rank sees only its own GPU and uses NCCL, as under Slurm's --gpus-per-task. MIG instances of a GPU have memory of their
 * own, but NCCL cannot tell them apart. */
static void each_rank_sees_its_own_gpu(void **state)
{
    (void)state;
    use(twin, "devices=2,own=1,memory=8G,context=1G");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out own");
    e2e_contains(r.out, "device: GPU 0, twin, 0000:01:00.0, NCCL");
    e2e_contains(r.out, "carried by NCCL");
    e2e_contains(r.out, "budgets: device 6.2 GiB");
    e2e_contains(r.out, "(100.0% of that)");
    use(twin, "devices=2,own=1,instances=1,memory=8G,context=1G");
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out instances");
    e2e_contains(r.out, "staged through host memory: ranks 0 and 1 share GPU 0");
    e2e_contains(r.out, "budgets: device 6.6 GiB");
    use(twin, "devices=1,memory=8G,context=1G");
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out shared");
    e2e_contains(r.out, "budgets: device 3.3 GiB");
    assert_null(strstr(r.out, "GPU memory: planned"));
}

/* Collects the evaluations of a run from metrics.jsonl one after another in `out`; returns their number. */
static int evaluations(const char *run, char *out, size_t size)
{
    const char *key = "\"eval_loss\":";
    char path[64];
    size_t at = 0;
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = e2e_read(path, NULL);
    for (const char *x = strstr(text, key); x; x = strstr(x + 1, key), n++) {
        const size_t bytes = strcspn(x, ",}");
        assert_true(at + bytes < size);
        memcpy(out + at, x, bytes);
        at += bytes;
    }
    out[at] = 0;
    free(text);
    return n;
}

/* Losses of an evaluation have the CPU's bits, and training goes on as if nothing had been evaluated. */
static void evaluation_is_the_same_there(void **state)
{
    (void)state;
    char want[256], have[256];
    use(twin, "seed=1");
    e2e_succeeds(NULL, FOUR ON("cpu:discrete") "--eval-fraction 0.1 --eval-every 2 --out judged-here");
    struct result r = e2e_succeeds(NULL, FOUR ON("cuda") "--eval-fraction 0.1 --eval-every 2 --out judged-there");
    e2e_contains(r.out, "device: GPU 0, twin");
    e2e_contains(r.out, "step 2  eval loss ");
    assert_int_equal(evaluations("judged-here", want, sizeof want), 2);
    assert_int_equal(evaluations("judged-there", have, sizeof have), 2);
    assert_string_equal(have, want);
    e2e_same_file("judged-here/hf/model.safetensors", "judged-there/hf/model.safetensors");
    use(twin, "seed=1,devices=2");
    e2e_succeeds(NULL, FOUR ON("cpu:discrete") "--ranks 2 --eval-fraction 0.1 --eval-every 2 --out two-here");
    e2e_succeeds(NULL, FOUR ON("cuda") "--ranks 2 --eval-fraction 0.1 --eval-every 2 --out two-there");
    assert_int_equal(evaluations("two-here", want, sizeof want), 2);
    assert_int_equal(evaluations("two-there", have, sizeof have), 2);
    assert_string_equal(have, want);
}

/* Returns a program's JSON output without times. */
static char *timeless(const struct result *r)
{
    char *text = strdup(r->out), *to = text;
    assert_non_null(text);
    for (char *from = text, *key; *from; from = key ? key + strlen("seconds\":") : strchr(from, 0)) {
        key = strstr(from, "seconds\":");
        const size_t n = key ? (size_t)(key - from) : strlen(from);
        memmove(to, from, n);
        to += n;
        for (; key && !strchr(",}\n", key[strlen("seconds\":")]); key++)
            ;
    }
    *to = 0;
    return text;
}

/* Tokens are sampled from logits with the CPU's bits, also by two ranks with a GPU each. */
static void what_is_read_on_is_the_same_there(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "sample --model tiny --prompt mountains --temperature 1 --max-new-tokens 50 --json",
        "eval --model tiny --tasks needle,tracking --lengths 600 --depths 2 --samples 1 --json --effort quick",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        use(twin, "seed=1,devices=2");
        struct result r = e2e_succeeds(NULL, "%s --device cpu:discrete", commands[i]);
        char *want = timeless(&r);
        r = e2e_succeeds(NULL, "%s --device cuda --offload params=nvme,acts=cpu --nvme-path .", commands[i]);
        char *have = timeless(&r);
        assert_string_equal(have, want);
        free(have);
        if (i == 1) {
            r = e2e_succeeds(NULL, "%s --device cuda --ranks 2", commands[i]);
            have = timeless(&r);
            assert_string_equal(have, want);
            free(have);
        }
        free(want);
    }
}

static void check_compares(void **state)
{
    (void)state;
    use(twin, NULL);
    struct result r = e2e_succeeds(NULL, "check " TINY ON("cuda") "--steps 1");
    e2e_contains(r.out, "placement changes no bit");
    e2e_contains(r.out, "check: pass");
    r = e2e_succeeds(
        NULL,
        "check --model tiny --data corpus.txt --seq-len 256 --tiles rows=64,loss=64,group=131072 --threads 1 --effort quick "
        "--dtype bf16 --optim-dtype int8" ON("cuda") "--steps 1");
    e2e_contains(r.out, "check: pass");
    use(twin, "devices=2");
    r = e2e_succeeds(NULL, "check " TINY "--device cuda --ranks 2 --mesh ring=2 --steps 1");
    e2e_contains(r.out, "2 ranks");
    e2e_contains(r.out, "check: pass");
}

static void auto_takes_what_is_there(void **state)
{
    (void)state;
    use(twin, NULL);
    struct result r = e2e_succeeds(NULL, TINY "--steps 1 --out found");
    e2e_contains(r.out, "device: GPU 0");
    use(twin, "devices=0");
    r = e2e_succeeds(NULL, TINY "--steps 1 --out none");
    e2e_contains(r.out, "device: cpu");
    use(twin, "capability=80"); /* --dtype fp32, which only CPUs support, chooses the CPU */
    r = e2e_succeeds(NULL, TINY "--steps 1 --dtype fp32 --out wide");
    e2e_contains(r.out, "remark: no GPU is used: twin computes in bf16: give --dtype bf16");
    e2e_contains(r.out, "device: cpu");
    e2e_refuses(2, "--dtype fp32: attention on GPUs computes in bf16: leave --dtype out", NULL,
                TINY "--steps 1 --dtype fp32 --device cuda");
}

static void refusals(void **state)
{
    (void)state;
    char gives[256];
    use(twin, "devices=2");
    e2e_refuses(2, "--device cuda:2: GPUs that are here: 2", NULL, TINY "--steps 1 --device cuda:2");
    use(twin, "devices=0");
    e2e_refuses(2, "--device cuda: the driver shows no GPU to this process|CUDA_VISIBLE_DEVICES", NULL,
                TINY "--steps 1 --device cuda");
    use(twin, "memory=4M");
    e2e_refuses(3, "--device-mem: 80 MiB are more than the 4.0 MiB that are free on the GPU (twin)", NULL,
                TINY "--steps 1 --device cuda --offload none --device-mem 80M");
    use("/nonexistent.so", NULL);
    e2e_refuses(2, "LTRAIN_CUDA_PLUGIN cannot be opened|/nonexistent.so", NULL, TINY "--steps 1 --device cuda");
    use("libm.so.6", NULL);
    e2e_refuses(2, "the CUDA plugin is not this ltrain's|build both anew", NULL, TINY "--steps 1 --device cuda");
    use(NULL, NULL);
    if (!dlopen("libcuda.so.1", RTLD_NOW))
        e2e_refuses(2, "--device cuda: there is no NVIDIA driver here|libcuda.so.1|use cpu", NULL,
                    TINY "--steps 1 --device cuda");
    snprintf(gives, sizeof gives, "readelf -d '%s' | grep NEEDED | grep -i -E 'cuda|cublas|nccl' >.needed", getenv("LTRAIN"));
    assert_int_not_equal(system(gives), 0); /* the program is not linked with any CUDA library */
}

/* If there is a driver, the plugin in the program's directory is opened; without a plugin the message says what is missing. */
static void the_plugin_lies_beside(void **state)
{
    (void)state;
    char path[8500], directory[4100], libraries[8500], *program = strdup(getenv("LTRAIN"));
    const char *given = getenv("LD_LIBRARY_PATH"); /* LD_LIBRARY_PATH may name the directory of MPI's libraries */
    char *former = strdup(given ? given : "");
    assert_int_equal(mkdir("beside", 0777), 0);
    e2e_copy(program, "beside/ltrain");
    e2e_copy(twin, "beside/libcuda.so.1"); /* any library can stand for the driver's */
    assert_non_null(realpath("beside", directory));
    snprintf(path, sizeof path, "%s/ltrain", directory);
    setenv("LTRAIN", path, 1);
    snprintf(libraries, sizeof libraries, "%s%s%s", directory, former[0] ? ":" : "", former);
    setenv("LD_LIBRARY_PATH", libraries, 1);
    use(NULL, "seed=1");
    snprintf(path, sizeof path, "%s/libltrain-cuda.so", LTRAIN_LIBDIR);
    if (access(path, F_OK) != 0) {
        snprintf(path, sizeof path, "--device cuda: there is a driver, but no CUDA plugin: neither %s/libltrain-cuda.so nor %s/",
                 directory, LTRAIN_LIBDIR);
        e2e_refuses(2, path, NULL, TINY "--steps 1 --device cuda");
        struct result r = e2e_succeeds(NULL, TINY "--steps 1 --out alone");
        e2e_contains(r.out, "remark: no GPU is used: --device cuda: there is a driver, but no CUDA plugin");
        e2e_contains(r.out, "device: cpu");
    }
    e2e_write("beside/libltrain-cuda.so", "%s", "no library");
    e2e_refuses(2, "--device cuda: the CUDA plugin cannot be opened: |beside/libltrain-cuda.so", NULL,
                TINY "--steps 1 --device cuda");
    e2e_copy(twin, "beside/libltrain-cuda.so");
    struct result r = e2e_succeeds(NULL, TINY "--steps 1 --out found-beside");
    e2e_contains(r.out, "device: GPU 0, twin");
    if (former[0])
        setenv("LD_LIBRARY_PATH", former, 1);
    else
        unsetenv("LD_LIBRARY_PATH");
    setenv("LTRAIN", program, 1);
    free(former);
    free(program);
}

/* Sizes that the GPU's kernels do not support are refused: kernels move 16 bytes at a time and keep heads in shared memory. The
 * CPU accepts any size. */
static void sizes_that_kernels_take(void **state)
{
    (void)state;
#define MULTIPLES ": kernels of GPUs take multiples of 8; --device cpu takes any"
    static const struct {
        const char *gpu, *sizes, *words;
    } cases[] = {
        {"capability=80", "\"hidden_size\": 36, \"intermediate_size\": 48, \"head_dim\": 8", "has a hidden size of 36" MULTIPLES},
        {"capability=80", "\"hidden_size\": 32, \"intermediate_size\": 100, \"head_dim\": 8",
         "has an intermediate size of 100" MULTIPLES},
        {"capability=80", "\"hidden_size\": 32, \"intermediate_size\": 48, \"head_dim\": 20",
         "has a head dimension of 20" MULTIPLES},
        {"capability=89", "\"hidden_size\": 32, \"intermediate_size\": 48, \"head_dim\": 264",
         "has a head dimension of 264: attention on this GPU takes up to 256"},
    };
    assert_int_equal(mkdir("odd", 0777), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512], words[256];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
                 "\"vocab_size\": 64, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 512, %s}\n",
                 cases[i].sizes);
        e2e_write("odd/config.json", "%s", config);
        snprintf(words, sizeof words, "--model |odd %s", cases[i].words);
        use(twin, cases[i].gpu);
        e2e_refuses(2, words, NULL, "plan --model odd --seq-len 256 --device cuda");
        if (strstr(cases[i].words, MULTIPLES))
            e2e_succeeds(NULL, "plan --model odd --seq-len 256 --device cpu");
    }
}

static double number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* Without a profile, the GPU's data sheet is used for plans and MFU; the cost of submission is measured. */
static void figures_are_those_of_the_gpu(void **state)
{
    (void)state;
    use(twin, "name=NVIDIA H100 80GB HBM3");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --trace 2 --dtype bf16 --out figures");
    e2e_contains(r.out, "device: GPU 0, NVIDIA H100 80GB HBM3, 0000:01:00.0; MFU refers to 989 TFLOP/s, dense bf16 peak of h100");
    e2e_contains(r.out, "(data sheet of h100 x stated efficiencies, not profiled)");
    char *metrics = e2e_read("figures/metrics.jsonl", NULL);
    e2e_contains(metrics, "\"mfu_reference\":\"dense bf16 peak of h100 (data sheet)\"");
    assert_true(number_behind(metrics, "\"submitted\":") > 100 && number_behind(metrics, "\"submit_cpu_seconds\":") > 0);
    free(metrics);
    char *trace = e2e_read("figures/trace-000002.json", NULL);
    assert_true(number_behind(trace, ",\"submit_us\":") > 0);
    free(trace);
}

/* Refusals name the cure, with numbers. */
static void refusals_of_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        int status;
        const char *words;
    } cases[] = {
        {"driver=12080", 2, "the NVIDIA driver is one for CUDA 12.8|install driver 580 or later"},
        {"driver=0", 2, "no NVIDIA driver answers|--gpus all"},
        {"exclusive=1", 2, "GPU 0, twin, belongs to another process alone (exclusive compute mode)|--device cuda:N"},
        {"taken=900M,context=200M", 1, "GPU 0, twin, has no room for a context|other processes have its 1.0 GiB|nvidia-smi"},
        {"name=Tesla V100-SXM2-16GB,capability=70", 2,
         "GPU 0, Tesla V100-SXM2-16GB, has compute capability 7.0; kernels need 8.0"},
        {"pin=2", 1, "cudaHostRegister|of host memory cannot be pinned in pieces of 64 KiB: out of memory|--host-mem"},
        {"taken=1010M,kernel=1M", 1, "no room for the kernel of|beside the device arena of|are free on GPU 0|--device-mem"},
        {"fail=1:802", 2, "the driver is not ready|fabric manager"},
        {"fail=1:803", 2, "of different versions|restarted"},
        {"fail=1:804", 2, "compatibility package|LD_LIBRARY_PATH|driver 580 or later"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use(twin, cases[i].gpu);
        e2e_refuses(cases[i].status, cases[i].words, NULL, TINY "--steps 1 --offload cpu --device cuda --out refused");
    }
    use(twin, "driver=12080"); /* auto uses the CPU instead, and says so */
    struct result r = e2e_succeeds(NULL, TINY "--steps 1 --out without");
    e2e_contains(r.out, "remark: no GPU is used: --device cuda: the NVIDIA driver is one for CUDA 12.8");
}

/* Kernels take their memory before the first step and none later; if the GPU's memory grows later, check fails. */
static void memory_is_what_was_planned(void **state)
{
    (void)state;
    use(twin, "context=300M,kernel=100K,taken=100M,stream=3M");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --out memory");
    e2e_contains(r.out, "of 624 MiB that were free beside the context");
    e2e_contains(r.out, "(100.0% of that)");
    e2e_succeeds(NULL, "check " TINY ON("cuda") "--steps 1");
    use(twin, "memory=8G,context=1G"); /* without --device-mem the budget is 7 GiB less 2% and 256 MiB */
    r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 1 --out budget");
    e2e_contains(r.out, "budgets: device 6.6 GiB");
    use(twin,
        "memory=12G,devices=2"); /* NCCL's reserve is 384 MiB a rank, at most a sixteenth; there is none if messages are staged */
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out carried-budget");
    e2e_contains(r.out, "budgets: device 11 GiB");
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --comm staged --out staged-budget");
    e2e_contains(r.out, "budgets: device 12 GiB");
    use(twin, "memory=8G,devices=2");
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out capped-budget");
    e2e_contains(r.out, "budgets: device 7.1 GiB");
    use(twin, "memory=8G"); /* two ranks share the GPU */
    r = e2e_succeeds(NULL, TINY ON("cuda") "--ranks 2 --steps 1 --out shared-budget");
    e2e_contains(r.out, "budgets: device 3.8 GiB");
    use(twin, "grows=800:3M");
    r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 3 --out late");
    e2e_contains(r.out, "remark: GPU 0, twin, 0000:01:00.0: 3.0 MiB more are taken than when the first step began");
    use(twin, "grows=2000:3M"); /* check's other two runs use the GPU first */
    e2e_refuses(1, "3.0 MiB more are taken than when the first step began|allocated in the steps", NULL,
                "check " TINY ON("cuda") "--steps 3");
}

/* Skips a test if this process may not use that core: containers may have other cores, and machines fewer. */
static void needs_core(int cpu)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0 || !CPU_ISSET(cpu, &own))
        skip();
}

static int only_first_core(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    return sched_setaffinity(0, sizeof first, &first);
}

/* hwloc gets a description of two NUMA nodes, each with one of this machine's cores. */
static void memory_is_near_the_gpu(void **state)
{
    (void)state;
    needs_core(0);
    needs_core(1);
    setenv("HWLOC_SYNTHETIC", "NUMANode:2 Core:1 PU:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    use(twin, "numa=1");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 1 --verbose --out near");
    e2e_contains(r.out, "compute and host lanes on cpus 1, copy and I/O lanes on cpus 1");
    e2e_contains(r.out, "NUMA node 1, pinned by the GPU's driver");
    const struct launch on_the_other = {.prepare = only_first_core};
    r = e2e_succeeds(&on_the_other, TINY ON("cuda") "--steps 1 --out far");
    e2e_contains(r.out, "remark: this process may not run on NUMA node 1, which is the GPU's (the launcher's binding)");
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
}

/* Each rank is bound to one core, as mpiexec does by default with one or two ranks, on a machine with 16 cores. */
static void ranks_on_a_core_each_are_told(void **state)
{
    (void)state;
    needs_core(0);
    const struct launch bound = {.prepare = only_first_core};
    use(twin, "devices=2");
    setenv("HWLOC_SYNTHETIC", "Core:16 PU:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    struct result r = e2e_succeeds(&bound, TINY ON("cuda") "--ranks 2 --steps 1 --out bound");
    e2e_contains(r.out,
                 "remark: 2 ranks of this host may run on 1 of its 16 cpus each (the launcher's binding): start them with");
    setenv("HWLOC_SYNTHETIC", "Core:2 PU:1", 1);
    r = e2e_succeeds(&bound, TINY ON("cuda") "--ranks 2 --steps 1 --out unbound");
    assert_null(strstr(r.out, "the launcher's binding"));
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
}

static void a_failing_gpu(void **state)
{
    (void)state;
    use(twin, "dies=500:719");
    e2e_refuses(1, "cudaErrorLaunchFailure", NULL, TINY ON("cuda") "--steps 3 --out dead");
    setenv("LTRAIN_CUDA_SYNC", "1", 1); /* the program waits for each instruction, so that the failing one is known */
    struct result r = e2e_refuses(1, "cudaErrorLaunchFailure|GPU 0, twin, 0000:01:00.0, while submitting instruction|on the",
                                  NULL, TINY ON("cuda") "--steps 3 --out named");
    assert_null(strstr(r.err, "names the one that fails"));
    unsetenv("LTRAIN_CUDA_SYNC");
    use(twin, "hangs=100");
    e2e_refuses(1, ", which is run once before the first step (instruction | of program |), for 1 s (--device-timeout)", NULL,
                TINY ON("cuda") "--steps 3 --device-timeout 1 --out hung-early");
    use(twin, "hangs=500");
    e2e_refuses(1,
                "ltrain: GPU 0, twin, 0000:01:00.0 has not finished instruction |of program | lane), or one before it: "
                "LTRAIN_CUDA_SYNC=1 names it, for 1 s (--device-timeout); there is no checkpoint yet",
                NULL, TINY ON("cuda") "--steps 3 --device-timeout 1 --out hung");
    setenv("LTRAIN_CUDA_SYNC", "1", 1);
    e2e_refuses(1, "has not finished instruction | lane) for 1 s (--device-timeout)", NULL,
                TINY ON("cuda") "--steps 3 --device-timeout 1 --out hung-there");
    unsetenv("LTRAIN_CUDA_SYNC");
    use(twin, "fail=3000:700");
    e2e_refuses(1, "cudaErrorIllegalAddress|GPU 0, twin, 0000:01:00.0", NULL, TINY ON("cuda") "--steps 3 --out lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_move_between_devices),
                                       cmocka_unit_test(other_algorithms_are_said),
                                       cmocka_unit_test(ranks_move_between_devices),
                                       cmocka_unit_test(each_rank_sees_its_own_gpu),
                                       cmocka_unit_test(evaluation_is_the_same_there),
                                       cmocka_unit_test(what_is_read_on_is_the_same_there),
                                       cmocka_unit_test(check_compares),
                                       cmocka_unit_test(auto_takes_what_is_there),
                                       cmocka_unit_test(figures_are_those_of_the_gpu),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(the_plugin_lies_beside),
                                       cmocka_unit_test(sizes_that_kernels_take),
                                       cmocka_unit_test(refusals_of_gpus),
                                       cmocka_unit_test(memory_is_what_was_planned),
                                       cmocka_unit_test(memory_is_checked),
                                       cmocka_unit_test(memory_is_near_the_gpu),
                                       cmocka_unit_test(ranks_on_a_core_each_are_told),
                                       cmocka_unit_test(a_failing_gpu)};
    twin = getenv("LTRAIN_CUDA_TWIN");
    e2e_let_root_start_ranks();
    return twin ? cmocka_run_group_tests(tests, e2e_setup, e2e_teardown) : 77;
}
