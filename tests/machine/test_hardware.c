/* Tests descriptions of machines: data sheets by name, files and their errors, and a rank's share of a machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "plan/plan.h"
#include "plan_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void must_contain(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
}

static void near(double x, double expected)
{
    if (!(fabs(x - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g instead of %.17g", x, expected);
}

static void presets(void **state)
{
    (void)state;
    struct hardware h;
    assert_int_equal(hardware_preset("h200", &h), OK);
    assert_true(h.nodes == 1 && h.devices == 1 && !h.cpu);
    near(attention_rate(h.device.attention[BF16], OP_ATTN_FWD, 128, 1 << 20), 690e12); /* bench/results/2026-11-22-gpu-h200.txt */
    near(attention_rate(h.device.attention[BF16], OP_ATTN_BWD, 128, 1 << 20), 550e12);
    near(gemm_rate(&h.device.gemm[BF16], GEMM_NT, 16384, 4096, 4096), 700e12);
    assert_true(gemm_rate(&h.device.gemm[BF16], GEMM_NT, 16384, 128, 4096) < 700e12);
    assert_int_equal(hardware_preset("4xa100-40", &h), OK);
    assert_true(h.nodes == 1 && h.devices == 4);
    assert_int_equal(hardware_preset("32xa100-40", &h), OK);
    assert_true(h.nodes == 4 && h.devices == 8);
    assert_int_equal(hardware_preset("9xh100", &h), ERR_INVALID); /* 5 + 4 */
    must_contain(status_message(), "multiple of 8");
    static const char *const wrong[] = {"h300", "0xh200", "xh200", "4x", "-1xh200", "99999999xh200", "4xx100", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(hardware_preset(wrong[i], &h), ERR_INVALID);
        must_contain(status_message(), "a100-40, a100-80");
    }
    hardware_preset("4xh20", &h);
    must_contain(status_message(), "Did you mean 4xh200?");
    assert_int_equal(hardware_preset("2XA100-80", &h), OK);
    assert_string_equal(h.name, "a100-80");
    assert_int_equal(h.devices, 2);
    assert_int_equal(hardware_preset("4xA100", &h),
                     ERR_INVALID); /* ambiguous: two names begin like this, although h100 is similar */
    must_contain(status_message(), "Did you mean 4xa100-40 or 4xa100-80?");
    assert_int_equal(hardware_preset("2 x a100-80", &h), OK);
    assert_int_equal(h.devices, 2);
    assert_int_equal(hardware_preset("2*a100-80", &h), OK);
    assert_int_equal(h.devices, 2);
    static const char *const meant[][2] = {{"h100x4", "Did you mean 4xh100?"},
                                           {"rtx3090x2", "Did you mean 2xrtx3090?"},
                                           {"2x4090", "Did you mean 2xrtx4090 or 2xrtx4090-laptop?"},
                                           {"h100-80", "Did you mean h100?"},
                                           {"8xH200-SXM", "Did you mean 8xh200?"},
                                           {"0xh100", "Did you mean h100?"}};
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++) {
        assert_int_equal(hardware_preset(meant[i][0], &h), ERR_INVALID);
        must_contain(status_message(), meant[i][1]);
    }
}

static enum status read_text(const char *text, struct hardware *h)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(f);
    enum status st = hardware_read("box.yaml", f, h);
    fclose(f);
    return st;
}

static void files(void **state)
{
    (void)state;
    struct hardware h;
    assert_int_equal(read_text("like: h200\nname: box\nnodes: 2\ndevices: 4\nhost-mem: 1T\nread: 2.8e10\ngemm: {bf16: 5e14}\n"
                               "memory: {1024: 1e12, 1048576: 3e12}\nops: {norm: {bf16: 2e12}}\n"
                               "attention:\n  bf16:\n    128: {forward: 6e14, backward: {1024: 1e14, 4096: 3e14}}\n"
                               "cores: {h2d: 0.5}\n",
                               &h),
                     OK);
    assert_string_equal(h.name, "box");
    assert_true(h.nodes == 2 && h.devices == 4 && h.host_mem == 1ll << 40 && h.read == 2.8e10 && h.cores[LANE_H2D] == 0.5);
    near(gemm_rate(&h.device.gemm[BF16], GEMM_TN, 4096, 4096, 4096), 5e14);
    near(curve_at(&h.device.ops.memory, 32768), 2e12);
    near(curve_at(&h.device.ops.op[OP_NORM][BF16], 1), 2e12);
    near(attention_rate(h.device.attention[BF16], OP_ATTN_BWD, 64, 2048), 2e14);
    assert_int_equal(read_text("like: 2xH200\nread: 7GB/s\nwrite: 500 MB/s\n", &h), OK);
    near(h.read, 7e9);
    near(h.write, 5e8);
}

static void file_errors(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"name: x\n", "`like: h200` is missing"},
        {"like: h2\n", "box.yaml:1: like: a data sheet's name"},
        {"like: h300\n", "or cpu; did you mean h100?"},
        {"like: 2xa100\n", "or cpu; did you mean 2xa100-40 or 2xa100-80?"},
        {"like: what\n", "(ltrain plan --help has them all), or cpu"},
        {"like: h200\nreed: 1\n", "box.yaml:2: 'reed' is not known here: did you mean 'read'?"},
        {"like: h200\nspeed: 1\n", "box.yaml:2: 'speed' is not one of like, name, source, nodes"},
        {"like: h200\n\nread: fast\n", "box.yaml:3: read: 'fast' is not a number"},
        {"like: h200\nread: 0\n", "0 is too small"},
        {"like: h200\nread: 1e999\n", "is not a number"},
        {"like: h200\ndevices: 1.5\n", "a whole number"},
        {"like: h200\nhost-mem: lots\n", "box.yaml:2: host-mem: 'lots'"},
        {"like: h200\ngemm: {fp16: 1}\n", "'fp16' is not one of fp32, bf16"},
        {"like: h200\ngemm: {bf16: {nt: [1, 2]}}\n", "64 rates"},
        {"like: h200\nmemory: {2048: 1, 1024: 2}\n", "positive and ascend"},
        {"like: h200\nmemory: {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1}\n", "at most 8"},
        {"like: h200\nattention: {bf16: {64: {forward: 1}}}\n", "forward and backward"},
        {"like: h200\nattention:\n  bf16:\n    64:\n      forward: 1\n      backward: 1\n      fast: 1\n",
         "box.yaml:7: fast: a backward pass of this name is no more: delete the line, or measure the machine again"},
        {"like: h200\nattention: {bf16: {128: {forward: 1, backward: 1}, 64: {forward: 1, backward: 1}}}\n", "ascending"},
        {"like: h200\ncores: 1\n", "`key: value`"},
        {"like: [h200\n", "box.yaml:"},
        {"- h200\n", "`key: value`"},
        {"# nothing\n", "empty"},
        {"lik: h200\n", "box.yaml:1: 'lik' is not known here: did you mean 'like'?"},
        {"like: h200\nlike: h100\n", "box.yaml:2: like is given twice"},
        {"like: h200\nread: 1e9\nwrite: 1e9\nread: 2e9\n", "box.yaml:4: read is given twice"},
        {"like: h200\ngpus: 4\n", "box.yaml:2: 'gpus' is not known here: did you mean 'devices'?"},
        {"like: h200\nread: 7GiB/s\n", "box.yaml:2: read: '7GiB/s' is not a number"},
        {"like: h200\nread: 7\n", "box.yaml:2: read: 7 is 7 bytes a second; did you mean 7GB/s?"},
        {"like: h200\nread: 1e3\n", "box.yaml:2: read: 1e3 is too small, it must be above 1e+06"},
        {"like: h200\nhost-mem: 512\n", "box.yaml:2: host-mem: 512 is 512 bytes; did you mean 512G?"},
        {"like: h200\nread: 1e40\n", "box.yaml:2: read: 1e40 is too large, it must be at most 1e+30"},
        {"like: h200\nread: 0.1kB/s\n", "box.yaml:2: read: 0.1kB/s is too small, it must be above 1e+06"},
        {"like: h200\nhost-mem: 8e18\n", "box.yaml:2: host-mem: 8e18 is too large, it must be at most 7.20576e+16"},
        {"like: h200\nnvme-mem: 1e30\n", "box.yaml:2: nvme-mem: 1e30 is too large"},
        {"like: h200\nnodes: 1000000000\n", "box.yaml:2: nodes: a whole number is expected, and at most 65536"},
        {"like: h200\nnodes: 65536\ndevices: 65536\n", "65536 nodes of 65536 devices are 4294967296 devices, and at most 65536"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hardware h, before;
        memset(&h, 0x5a, sizeof h);
        before = h;
        if (read_text(cases[i][0], &h) != ERR_INVALID)
            fail_msg("accepted: %s", cases[i][0]);
        must_contain(status_message(), cases[i][1]);
        assert_memory_equal(&h, &before, sizeof h);
    }
}

/* Figures that are written to a file read back the same, to the six digits written. */
static void round_trip(void **state)
{
    (void)state;
    struct hardware h, back;
    char *text = NULL, *again = NULL;
    size_t n;
    assert_int_equal(hardware_preset("16xh100", &h), OK);
    h.device.ops.op[OP_SWIGLU][F32] = (struct curve){.n = 2, .x = {100, 1000}, .y = {1e9, 2e9}};
    h.host.op[OP_ADAMW][BF16] = (struct curve){.n = 1, .x = {1}, .y = {3e9}};
    h.cores[LANE_WRITE] = 0.25;
    FILE *f = open_memstream(&text, &n);
    assert_int_equal(hardware_write(&h, f), OK);
    fclose(f);
    assert_int_equal(read_text(text, &back), OK);
    assert_string_equal(back.source, h.source);
    near(back.cores[LANE_WRITE], 0.25);
    near(curve_at(&back.device.ops.op[OP_SWIGLU][F32], 1e4), 2e9);
    f = open_memstream(&again, &n);
    assert_int_equal(hardware_write(&back, f), OK);
    fclose(f);
    assert_string_equal(text, again);
    free(text);
    free(again);
}

static void parts_of_a_node(void **state)
{
    (void)state;
    struct hardware h;
    int64_t limit[TIERS];
    struct plan_request s = {.device_mem = AUTO, .host_mem = 512ll << 30, .nvme_max = AUTO, .nvme_drives = 4, .nvme_gbps = 7};
    assert_int_equal(hardware_preset("4xa100-40", &h), OK);
    hardware_override(&h, &s);
    hardware_limits(&h, 4, limit);
    assert_true(limit[TIER_DEVICE] == h.device_mem && limit[TIER_HOST] == 128ll << 30);
    near((double)limit[TIER_NVME], 0.95 * 3840e9);
    near(h.read, 28e9);

    struct cost_model c;
    s = (struct plan_request){
        .hardware = &h, .dtype = BF16, .mesh.degree[MESH_DP] = 1, .mesh.degree[MESH_ULYSSES] = 4, .mesh.degree[MESH_RING] = 1};
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_READ], 7e9);
    near(c.lane_bytes[LANE_H2D], 24e9);
    near(c.lane_bytes[LANE_ULYSSES], h.inside);
    near(c.demand[LANE_H2D][LINK_MEMORY], 24e9 / (h.host_memory / 4));
    /* reading and writing at once: both together move 70% of the sum */
    near((c.lane_bytes[LANE_READ] + c.lane_bytes[LANE_WRITE]) / (2 * c.demand[LANE_READ][LINK_DRIVES]), h.both / 4);

    /* two nodes of 8: a ring over both sends 8 of 15 blocks through the network; a gather sends 1/16 of its bytes through it */
    assert_int_equal(hardware_preset("16xa100-40", &h), OK);
    s = (struct plan_request){
        .hardware = &h, .mesh.degree[MESH_DP] = 1, .mesh.degree[MESH_ULYSSES] = 1, .mesh.degree[MESH_RING] = 16};
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_RING], h.across * 15 / 8);
    near(c.lane_bytes[LANE_WORLD],
         h.inside); /* 15 times the network's rate would be faster than the links inside a node, which limit it */
    near(c.demand[LANE_WORLD][LINK_ACROSS], h.inside / (h.across * 15));
    assert_true(c.lane_seconds[LANE_RING] == h.across_seconds);
    /* on 8 x 2 ranks the eight lie within a node, the ring's two on two nodes: all its messages cross */
    s = (struct plan_request){
        .hardware = &h, .mesh.degree[MESH_DP] = 1, .mesh.degree[MESH_ULYSSES] = 8, .mesh.degree[MESH_RING] = 2};
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_ULYSSES], h.inside);
    near(c.lane_bytes[LANE_RING], h.across);
}

/* Ranks beyond the number of devices share them. */
static void shared_processors(void **state)
{
    (void)state;
    struct hardware h;
    struct cost_model one, two;
    hardware_assumed(&h);
    struct plan_request s = {
        .hardware = &h, .mesh.degree[MESH_DP] = 1, .mesh.degree[MESH_ULYSSES] = 1, .mesh.degree[MESH_RING] = 1};
    plan_cost_model(&s, &one);
    s.mesh.degree[MESH_DP] = 2;
    plan_cost_model(&s, &two);
    struct instr in = {.op = OP_GEMM, .lane = LANE_COMPUTE};
    struct op_call call = {.flops = 1e12, .attrs.gemm = {.m = 4096, .n = 4096, .k = 4096}};
    near(cost_seconds(&two, &in, &call) - h.overhead, 2 * (cost_seconds(&one, &in, &call) - h.overhead));
    near(two.lane_bytes[LANE_WRITE], one.lane_bytes[LANE_WRITE] / 2);
}

/* Hopper's own backward attention supports heads up to 128; wider heads use sm_80's kernels, which are slower. */
static void wide_backward_attention(void **state)
{
    (void)state;
    struct hardware h;
    struct cost_model c;
    assert_int_equal(hardware_preset("h200", &h), OK);
    struct plan_request s = {.hardware = &h, .deterministic = 1};
    for (int d = 0; d < MESH_DIMS; d++)
        s.mesh.degree[d] = 1;
    plan_cost_model(&s, &c);
    double rate[2][3];
    static const int dims[] = {128, 192, 256};
    for (int i = 0; i < 6; i++) {
        const struct attention_rates *rates = c.device.attention[BF16];
        rate[i / 3][i % 3] = attention_rate(rates, i / 3 ? OP_ATTN_BWD : OP_ATTN_FWD, dims[i % 3], 65536);
    }
    near(rate[0][1], rate[0][0]);
    near(rate[0][2], rate[0][0]);
    assert_true(rate[1][1] < rate[1][0] && rate[1][2] < 0.5 * rate[1][0]);
}

/* A copy of cpu:discrete poisons its target and copies, 10 GB/s alone, 5 with the poison, within the link's time. A throttled
 * copy takes the measured part from compute, but no more than an unthrottled one. */
static void throttled_copies(void **state)
{
    (void)state;
    struct hardware h;
    struct cost_model c;
    hardware_assumed(&h);
    h.late = 5e9;
    h.cores[LANE_H2D] = 0.5;
    h.wake_seconds = 7e-5;
    h.throttled_cores = 2e-5;
    h.throttled_bytes = 8e9;
    struct plan_request s = {.hardware = &h, .device = DEVICE_CPU};
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_H2D], 10e9);
    near(c.demand[LANE_H2D][LINK_CORES], 0.5);
    near(c.demand[LANE_COMPUTE][LINK_CORES], 1);
    assert_true(c.lane_cores[LANE_H2D] == 0 && c.lane_seconds[LANE_H2D] < 7e-5 && c.lane_idle[LANE_COMPUTE] == 0);
    near(c.lane_idle[LANE_H2D], 7e-5);
    near(c.lane_idle[LANE_READ], 7e-5 + h.read_seconds);
    s.device = DEVICE_CPU_DISCRETE;
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_H2D], 5e9);
    near(c.demand[LANE_H2D][LINK_CORES], 0.5);
    s.link_gbps = 1;
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_H2D], 1e9);
    near(c.demand[LANE_H2D][LINK_CORES], 1. / 8);
    near(c.lane_cores[LANE_H2D], 2e-5);
    near(c.lane_seconds[LANE_H2D], 7e-5 + h.overhead);
    s.link_gbps = 8;
    plan_cost_model(&s, &c);
    near(c.lane_bytes[LANE_H2D], 5e9);
    near(c.demand[LANE_H2D][LINK_CORES], 0.5);
}

/* A CPU multiplies bf16 with fp32 as fp32, however fast it multiplies bf16 with bf16; a GPU has a rate per storage type. */
static void mixed_products(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s = {.zero = 3, .dtype = BF16, .hardware = &h};
    struct instr in = {.op = OP_GEMM, .lane = LANE_COMPUTE};
    struct op_call call = {.flops = 2e12, .attrs.gemm = {.m = 4096, .n = 4096, .k = 4096, .a_type = F32, .b_type = BF16}};
    struct cost_model c;
    hardware_assumed(&h);
    hardware_set_gemm(&h.device.gemm[F32], 1e11, 0);
    hardware_set_gemm(&h.device.gemm[BF16], 1e12, 0);
    for (h.cpu = 0; h.cpu < 2; h.cpu++) {
        plan_cost_model(&s, &c);
        near(cost_seconds(&c, &in, &call) - c.overhead, h.cpu ? 20 : 2);
    }
}

/* A plan with fp32, the default, for tensor cores says what that costs; on a CPU there is nothing to say. */
static void slow_types_are_named(void **state)
{
    (void)state;
    struct hardware h;
    char text[1024] = "";
    for (int cpu = 0; cpu < 2; cpu++) {
        FILE *f = fmemopen(text, sizeof text, "w");
        assert_non_null(f);
        if (cpu)
            hardware_assumed(&h);
        else
            assert_int_equal(hardware_preset("a100-40", &h), OK);
        struct plan_request s;
        plan_request_defaults(&s, 64);
        s.machine = cpu ? "box.yaml" : "a100-40";
        hardware_print(&h, &s, 1, "machine", f);
        hardware_print_type(&h, &s, f);
        fclose(f);
        must_contain(text, cpu ? "dtype fp32." : "dtype fp32 (--dtype bf16: products up to 16 times as fast).");
    }
}

/* Plans leave a part of the drives free unless --nvme-max is given. */
static void left_free(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s = {.device_mem = AUTO, .host_mem = AUTO, .nvme_max = AUTO, .nvme_drives = AUTO};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hardware_preset("4xa100-40", &h), OK);
        hardware_override(&h, &s);
        near((double)h.nvme_mem, i ? 3839e9 : 0.95 * 3840e9);
        near((double)h.drives_hold, 0.95 * 3840e9);
        s.nvme_max = 3839000000000;
    }
}

/* Returns the description of a machine, in a buffer that the next call overwrites. */
static char *said_of(struct hardware *h, const struct plan_request *s)
{
    static char text[1024];
    hardware_override(h, s);
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_non_null(f);
    hardware_print(h, s, h->nodes * h->devices, "machine", f);
    hardware_print_type(h, s, f);
    fclose(f);
    return text;
}

static const char *described(const char *machine, const char *drives, int64_t host_mem)
{
    struct hardware h;
    struct plan_request s;
    plan_request_defaults(&s, 64);
    s.machine = (char *)(uintptr_t)machine;
    s.nvme_drives = strcmp(drives, "given") == 0 ? 2 : AUTO;
    s.nvme_gbps = 7;
    s.host_mem = host_mem;
    s.nvme_max = strcmp(drives, "none") == 0 ? 0 : strcmp(drives, "all") == 0 ? 1ll << 40 : AUTO;
    assert_int_equal(hardware_preset(machine, &h), OK);
    return said_of(&h, &s);
}

/* Returns the description of a machine from a file, unwrapped. */
static const char *described_file(const char *yaml, int64_t nvme_max)
{
    struct hardware h;
    struct plan_request s;
    plan_request_defaults(&s, 64);
    s.machine = (char *)(uintptr_t) "box.yaml";
    s.nvme_max = nvme_max;
    assert_int_equal(read_text(yaml, &h), OK);
    char *text = said_of(&h, &s);
    for (char *at = text; (at = strstr(at, "\n  "));)
        memmove(at, at + 2, strlen(at + 2) + 1);
    return text;
}

/* A description says that drives and a node's memory are assumed unless somebody has given them. */
static void what_is_there(void **state)
{
    (void)state;
    must_contain(described("2xa100-40", "", AUTO),
                 "machine: 2 x a100-40, 38 GiB each; host 256 GiB (assumed: --host-mem); nvme\n");
    must_contain(described("2xa100-40", "", AUTO), "3.3 TiB in 1 drive (assumed: --nvme), 5% left free");
    must_contain(described("2xa100-40", "", 64ll << 30), "host 64 GiB; nvme 3.3 TiB in 1 drive\n  (assumed: --nvme)");
    assert_null(strstr(described("2xa100-40", "all", AUTO), "left free"));
    must_contain(described("rtx4090", "", AUTO), "machine: 1 x rtx4090, 23 GiB; host");
    assert_null(strstr(described("rtx4090", "given", 64ll << 30), "assumed"));
    must_contain(described("rtx4090", "none", AUTO), "no nvme.");
}

/* The same holds for fields that a file leaves to the data sheet. */
static void what_a_file_leaves_out(void **state)
{
    (void)state;
    must_contain(described_file("like: h200\n", AUTO),
                 "host 128 GiB (assumed: --host-mem); nvme 3.3 TiB in 1 drive (assumed: --nvme)");
    must_contain(described_file("like: h200\nhost-mem: 2T\n", AUTO), "host 2.0 TiB; nvme 3.3 TiB in 1 drive (assumed: --nvme)");
    must_contain(described_file("like: h200\nwrite: 9GB/s\n", AUTO),
                 "(assumed: --host-mem); nvme 3.3 TiB in 1 drive, 5% left free");
    assert_null(strstr(described_file("like: h200\nhost-mem: 2T\nnvme-mem: 8T\n", AUTO), "assumed"));
    assert_null(strstr(described_file("like: h200\nhost-mem: 2T\n", 1ll << 40), "assumed"));
    must_contain(described_file("like: 2xh200\ndevices: 4\n", AUTO), "4 x h200, 138 GiB each; host 512 GiB (assumed");
    must_contain(described_file("like: cpu\n", AUTO), "host 8.0 GiB (assumed: --host-mem)");
}

/* A GPU's data sheet is found by its driver's name for it. */
static void names_of_drivers(void **state)
{
    (void)state;
    static const struct {
        const char *driver, *preset;
        double tflops; /* dense bf16 of the data sheet, by which MFU is defined */
    } names[] = {
        {"NVIDIA H100 80GB HBM3", "h100", 989},
        {"NVIDIA H100 PCIe", "h100-pcie", 756},
        {"NVIDIA H100 NVL", NULL, 0},
        {"NVIDIA H200", "h200", 989},
        {"NVIDIA GH200 480GB", "gh200", 989},
        {"NVIDIA A100-SXM4-40GB", "a100-40", 312},
        {"NVIDIA A100 80GB PCIe", "a100-80", 312},
        {"NVIDIA A10", "a10", 125},
        {"NVIDIA A10G", NULL, 0},
        {"NVIDIA L4", "l4", 121},
        {"NVIDIA L40S", "l40s", 362},
        {"NVIDIA L40", NULL, 0},
        {"NVIDIA GeForce RTX 3090", "rtx3090", 71},
        {"NVIDIA GeForce RTX 4090", "rtx4090", 165},
        {"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx4090-laptop", 68},
        {"NVIDIA RTX 6000 Ada Generation", "rtx6000ada", 364},
        {"NVIDIA RTX A6000", "rtxa6000", 154.8},
        {"Tesla V100-SXM2-16GB", NULL, 0},
        {"twin", NULL, 0},
        {"", NULL, 0},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *have = hardware_preset_of_gpu(names[i].driver);
        struct hardware h;
        if ((have == NULL) != (names[i].preset == NULL) || (have && strcmp(have, names[i].preset) != 0))
            fail_msg("%s: %s, not %s", names[i].driver, have ? have : "none", names[i].preset ? names[i].preset : "none");
        if (have) {
            assert_int_equal(hardware_preset(have, &h), OK);
            assert_true(h.capability >= 80);
            near(h.peak_flops[BF16], names[i].tflops * 1e12);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_of_drivers),
                                       cmocka_unit_test(presets),
                                       cmocka_unit_test(files),
                                       cmocka_unit_test(file_errors),
                                       cmocka_unit_test(round_trip),
                                       cmocka_unit_test(parts_of_a_node),
                                       cmocka_unit_test(wide_backward_attention),
                                       cmocka_unit_test(shared_processors),
                                       cmocka_unit_test(throttled_copies),
                                       cmocka_unit_test(slow_types_are_named),
                                       cmocka_unit_test(mixed_products),
                                       cmocka_unit_test(what_is_there),
                                       cmocka_unit_test(left_free),
                                       cmocka_unit_test(what_a_file_leaves_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
