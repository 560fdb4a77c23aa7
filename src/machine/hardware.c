/* Machines by name, and a rank's share of one. */
#include "machine/hardware.h"

#include "base/names.h"
#include "base/prose.h"
#include "base/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GIB (1ll << 30)
#define TERA 1e12
#define GIGA 1e9
/* TFLOP/s of backward attention with heads wider than 128, for which an H200 takes sm_80's kernels; assumed equal to these
 * kernels' rate at 128 (bench/results/2026-11-22-gpu-h200.txt). */
#define WIDE_ON_HOPPER 235.0

/* Figures of the vendor's data sheets, dense (no sparsity): A100 SXM (1555 and 2039 GB/s, 312 TFLOP/s bf16, NVLink 300 GB/s a
 * direction), H100 SXM (3.35 TB/s, 989, 450), H200 (4.8 TB/s), GH200 (96 GB at 4 TB/s, NVLink-C2C 450 GB/s a direction, LPDDR5X
 * 512 GB/s), H100 PCIe (2 TB/s, 756), L40S (864 GB/s, 362), L4 (300, 121), A40 (696, 150), A10 (600, 125), RTX A6000 (768, 155),
 * RTX 6000 Ada (960, 364). Figures of the GA102 and Ada white papers, with fp32 accumulation: RTX 3090 (936 GB/s, 71), RTX 4090
 * (1008 GB/s, 165). Figures of the page of laptop GPUs: RTX 4090 (16 GB at 576 GB/s; 9728 cores, so 76 multiprocessors at
 * 1.75 GHz, the middle of its boost clocks of 1.455 to 2.04 GHz that depend on the laptop's power: 68; 8 lanes of PCIe 4).
 *
 * They are multiplied by these efficiencies:
 * - h200: measured on one, bench/results/2026-11-22-gpu-h200.txt and 2026-11-26-gpu-h200-third.txt: this project's attention, with
 *   bits that repeat, 690/550 TFLOP/s forward/backward at head dim 128 and 500/445 at 64; products through cuBLAS 670 to 750, 600
 *   with 1024 rows, 470 with 256, 180 with 64; element-wise 87% of a device copy's 4.27 TB/s; over PCIe 5 50 GB/s each way at once.
 *   148 GB of memory usable.
 * - h100, h100-pcie and gh200: the same chip, memory at the same 77% of their data sheets.
 * - a100: products 80% of 312 TFLOP/s; attention as FlashAttention-2 reports it (Dao 2023, figures 5 and 6: 70% forward, 60%
 *   backward at head dim 128, 60% and 53% at 64); memory 80%.
 * - sm_86 and sm_89: products 80% of the peak with fp32 accumulation, attention 70% and 55% (64% and 50% at 64), memory 85%.
 * - Everywhere: fp32 products without tensor cores at 80%; NVLink 80%, PCIe 4 75%, NVLink-C2C 70%, host memory 70% (two sockets
 *   of eight channels of DDR4-3200, DDR5-4800 with h100 and h200; two channels of DDR5-5600 with rtx), network 85% (200 Gbit/s a
 *   device, 400 with h100 and h200, 10 a computer with rtx), drives 85%. Each node has one PCIe 4 drive of 3.84 TB (7 GB/s read,
 *   5 written; both at once 70% of the sum) and 128 GiB of host memory a device (rtx: 64, in a laptop 32), unless the settings
 *   say otherwise; gh200 480 GB. */
static const struct preset {
    const char *name;
    int per_node; /* devices of a node */
    int capability, processors;
    double device_gb, host_gib;
    double bf16, fp32, gemm; /* TFLOP/s: of bf16 and of fp32 by the data sheet, and of bf16 products as they are reached */
    double forward128, backward128, forward64, backward64;
    double memory, link, host_memory; /* GB/s; host_memory: of a node */
    double inside, across;            /* GB/s of a device and direction */
} presets[] = {
    {"a100-40", 8, 80, 108, 41, 128, 312, 19.5, 250, 218, 187, 187, 165, 1240, 24, 280, 240, 21},
    {"a100-80", 8, 80, 108, 83, 128, 312, 19.5, 250, 218, 187, 187, 165, 1630, 24, 280, 240, 21},
    {"h100", 8, 90, 132, 83, 128, 989, 67, 700, 690, 550, 500, 445, 2580, 50, 430, 360, 42},
    {"h200", 8, 90, 132, 148, 128, 989, 67, 700, 690, 550, 500, 445, 3700, 50, 430, 360, 42},
    {"gh200", 4, 90, 132, 99, 447, 989, 67, 700, 690, 550, 500, 445, 3080, 315, 1400, 360, 21},
    {"h100-pcie", 8, 90, 114, 83, 128, 756, 51, 535, 527, 420, 382, 340, 1540, 50, 430, 40, 42},
    {"l40s", 8, 89, 142, 47, 128, 362, 91.6, 290, 253, 199, 232, 181, 734, 24, 280, 18, 21},
    {"l4", 8, 89, 58, 23.5, 64, 121, 30.3, 97, 85, 67, 77, 60, 255, 24, 280, 18, 21},
    {"a40", 8, 86, 84, 47, 128, 149.7, 37.4, 120, 105, 82, 96, 75, 592, 24, 280, 18, 21},
    {"a10", 8, 86, 72, 23.5, 64, 125, 31.2, 100, 87, 69, 80, 62, 510, 24, 280, 18, 21},
    {"rtxa6000", 4, 86, 84, 50, 64, 154.8, 38.7, 124, 108, 85, 99, 77, 653, 24, 60, 18, 1},
    {"rtx6000ada", 4, 89, 142, 50, 64, 364, 91.1, 291, 255, 200, 233, 182, 816, 24, 60, 18, 1},
    {"rtx3090", 4, 86, 82, 25, 64, 71, 35.6, 57, 50, 39, 46, 36, 800, 24, 60, 10, 1},
    {"rtx4090", 4, 89, 128, 25, 64, 165, 82.6, 132, 115, 91, 105, 83, 860, 24, 60, 10, 1},
    {"rtx4090-laptop", 1, 89, 76, 16.5, 32, 68, 34, 54, 48, 37, 44, 34, 490, 12, 60, 10, 1},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

#define DRIVE_GB 3840
#define READ_GBPS (7 * 0.85)
#define WRITE_GBPS (5 * 0.85)
#define BOTH_AT_ONCE 0.7

void curve_set(struct curve *c, double y)
{
    *c = (struct curve){.n = 1, .x = {1}, .y = {y}};
}

void hardware_set_gemm(struct gemm_rates *r, double flops, double half_size)
{
    static const double size[GEMM_SIZES] = {64, 256, 1024, 4096};
    double part[GEMM_SIZES];
    for (int i = 0; i < GEMM_SIZES; i++)
        part[i] = size[i] / (size[i] + half_size) * (size[GEMM_SIZES - 1] + half_size) / size[GEMM_SIZES - 1];
    for (int l = 0; l < GEMM_LAYOUTS; l++)
        for (int i = 0; i < GEMM_SHAPES; i++)
            r->flops[l][i] = flops * part[i / 16] * part[i / 4 % 4] * part[i % 4];
}

/* Sets a curve that reaches its rate with length (as measured on the H200 from 2k tokens on, FlashAttention-3's figures at 1k;
 * rounded). */
static void set_attention(struct curve *c, double flops)
{
    *c = (struct curve){.n = 4, .x = {1024, 4096, 16384, 65536}, .y = {0.55 * flops, 0.85 * flops, 0.97 * flops, flops}};
}

/* Sets the rates of the preset's device in one type: `part` of its bf16 rates. */
static void set_device(struct rates *r, enum dtype type, const struct preset *p, double part)
{
    hardware_set_gemm(&r->gemm[type], p->gemm * part * TERA, 128);
    struct attention_rates *a = r->attention[type];
    a[0].head_dim = 64;
    set_attention(&a[0].forward, p->forward64 * part * TERA);
    set_attention(&a[0].backward, p->backward64 * part * TERA);
    a[1].head_dim = 128;
    set_attention(&a[1].forward, p->forward128 * part * TERA);
    set_attention(&a[1].backward, p->backward128 * part * TERA);
    if (p->capability == 90) {
        a[2].head_dim = 256;
        a[2].forward = a[1].forward;
        set_attention(&a[2].backward, WIDE_ON_HOPPER * p->bf16 / 989 * part * TERA);
    }
}

static void from_preset(const struct preset *p, int count, struct hardware *h)
{
    *h = (struct hardware){.nodes = (int)ceil_div(count, p->per_node), .overhead = 5e-6, .host_assumed = 1, .drives_assumed = 1};
    snprintf(h->name, sizeof h->name, "%s", p->name);
    snprintf(h->source, sizeof h->source, "data sheet x stated efficiencies");
    h->devices = (int)ceil_div(count, h->nodes);
    h->capability = p->capability;
    h->processors = p->processors;
    h->device_mem = (int64_t)(p->device_gb * GIGA);
    h->host_mem = (int64_t)(p->host_gib * (double)GIB) * h->devices;
    h->nvme_mem = DRIVE_GB * 1000000000ll;
    h->drives = 1;
    h->peak_flops[F32] = p->fp32 * TERA;
    h->peak_flops[BF16] = p->bf16 * TERA;
    set_device(&h->device, BF16, p, 1);
    set_device(&h->device, F32, p, 0.8 * p->fp32 / p->gemm);
    curve_set(&h->device.ops.memory, p->memory * GIGA);
    curve_set(&h->host.memory, p->host_memory * GIGA);
    h->h2d = h->d2h = h->late = h->throttled_bytes = p->link * GIGA;
    h->host_memory = p->host_memory * GIGA;
    h->read = READ_GBPS * GIGA;
    h->write = WRITE_GBPS * GIGA;
    h->both = BOTH_AT_ONCE * (h->read + h->write);
    h->inside = p->inside * GIGA;
    h->across = p->across * GIGA;
    h->inside_seconds = 10e-6;
    h->across_seconds = 20e-6;
}

/* Reads the number in front of a preset: "4x" in "4xa100-40" or "4 x a100-40", "4*" in "4*a100-40". 1 without a number; 0: not a
 * valid one. */
static int count_of(const char *name, const char **rest)
{
    char *end;
    long n = isdigit((unsigned char)name[0]) ? strtol(name, &end, 10) : 0;
    *rest = name;
    if (n)
        end += strspn(end, " ");
    if (n < 1 || n > HARDWARE_MOST_DEVICES || !*end || !strchr("xX*", *end))
        return n ? 0 : 1;
    *rest = end + 1 + strspn(end + 1, " ");
    return (int)n;
}

/* Words in the names that drivers give GPUs; the first row that fits counts. */
static const struct {
    const char *words[2];
    const char *preset; /* NULL: another GPU of nearly that name */
} gpu_names[] = {
    {{"GH200"}, "gh200"},
    {{"H200"}, "h200"},
    {{"H100", "NVL"}, NULL},
    {{"H100", "PCIe"}, "h100-pcie"},
    {{"H100"}, "h100"},
    {{"A100", "80GB"}, "a100-80"},
    {{"A100", "40GB"}, "a100-40"},
    {{"L40S"}, "l40s"},
    {{"L4"}, "l4"},
    {{"A40"}, "a40"},
    {{"A10"}, "a10"},
    {{"A6000"}, "rtxa6000"},
    {{"6000", "Ada"}, "rtx6000ada"},
    {{"4090", "Laptop"}, "rtx4090-laptop"},
    {{"4090", "D"}, NULL},
    {{"4090"}, "rtx4090"},
    {{"3090", "Ti"}, NULL},
    {{"3090"}, "rtx3090"},
};

/* Tells whether a name has a word: "NVIDIA A100-SXM4-40GB" has A100, SXM4 and 40GB. */
static int has_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = name; *at; at += *at != 0) {
        if (strcspn(at, " -") == n && strncmp(at, word, n) == 0)
            return 1;
        at += strcspn(at, " -");
    }
    return 0;
}

const char *hardware_preset_of_gpu(const char *gpu)
{
    for (size_t i = 0; i < sizeof gpu_names / sizeof *gpu_names; i++)
        if (has_word(gpu, gpu_names[i].words[0]) && (!gpu_names[i].words[1] || has_word(gpu, gpu_names[i].words[1])))
            return gpu_names[i].preset;
    return NULL;
}

static const struct preset *find(const char *name)
{
    for (int i = 0; i < N_PRESETS; i++)
        if (strcasecmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

int hardware_is_preset(const char *name)
{
    const char *rest;
    return count_of(name, &rest) > 0 && find(rest) != NULL;
}

enum likeness { BEGINS_SO, HAS_IT, IS_PART_OF_IT, LIKENESSES };

static int is_like(const char *preset, const char *text, enum likeness how)
{
    const char *at = how == IS_PART_OF_IT ? strstr(text, preset) : strstr(preset, text);
    return how == BEGINS_SO ? at == preset : at != NULL && strlen(text) > 2;
}

/* Writes the presets that a name may mean, "4xa100-40 or 4xa100-80" for 4 and "a100". These begin with the name, or else hold it
 * ("4090"), or else are a part of it ("h100-80"), or else are the nearest one; "": none is near. */
static void find_nearest(const char *text, int count, char *buf, size_t size)
{
    const char *names[N_PRESETS];
    char lower[40] = "", times[16] = "";
    for (size_t i = 0; text[i] && i + 1 < sizeof lower; i++)
        lower[i] = (char)tolower((unsigned char)text[i]);
    if (count > 1)
        snprintf(times, sizeof times, "%dx", count);
    for (int i = 0; i < N_PRESETS; i++)
        names[i] = presets[i].name;
    for (int how = 0; lower[0] && !buf[0] && how < LIKENESSES; how++)
        for (int i = 0; i < N_PRESETS; i++) {
            size_t at = strlen(buf);
            if (is_like(names[i], lower, (enum likeness)how))
                snprintf(buf + at, size - at, "%s%s%s", at ? " or " : "", times, names[i]);
        }
    const char *near = names_nearest(lower, names, N_PRESETS);
    if (!buf[0] && near)
        snprintf(buf, size, "%s%s", times, near);
}

/* Corrects a number behind the name: "h100x4" is meant to be 4xh100. Returns 0 if there is none. */
static int count_behind(const char *name, char *buf, size_t size)
{
    const char *times = strrchr(name, 'x');
    char *preset = times ? strndupa(name, (size_t)(times - name)) : NULL, *end;
    long n = times && isdigit((unsigned char)times[1]) ? strtol(times + 1, &end, 10) : 0;
    if (n < 1 || n > HARDWARE_MOST_DEVICES || *end || !find(preset))
        return 0;
    snprintf(buf, size, "%ldx%s", n, preset);
    return 1;
}

void hardware_preset_nearest(const char *name, char *buf, size_t size)
{
    const char *rest;
    int count = count_of(name, &rest);
    buf[0] = 0;
    if (count > 0 && !count_behind(rest, buf, size))
        find_nearest(rest, count, buf, size);
}

enum status hardware_preset(const char *name, struct hardware *out)
{
    const char *rest;
    char all[128] = "", near[128];
    int count = count_of(name, &rest);
    const struct preset *p = count > 0 ? find(rest) : NULL;
    if (p) {
        from_preset(p, count, out);
        if (out->nodes * out->devices != count)
            return status_fail(ERR_INVALID, "--machine: %d %s are not nodes of %d alike: take a multiple of %d", count, p->name,
                               p->per_node, p->per_node);
        return OK;
    }
    if (strchr(name, '/') || strstr(name, ".yaml") || strstr(name, ".yml"))
        return status_fail(ERR_INVALID, "--machine: there is no file %s", name);
    for (int i = 0; i < N_PRESETS; i++) {
        strncat(all, i ? ", " : "", sizeof all - strlen(all) - 1);
        strncat(all, presets[i].name, sizeof all - strlen(all) - 1);
    }
    hardware_preset_nearest(name, near, sizeof near);
    return status_fail(ERR_INVALID,
                       "--machine: '%s' is neither a file nor one of %s (several: 4xa100-40); a file is YAML: like: h200, then "
                       "what differs%s%s%s",
                       name, all, near[0] ? ". Did you mean " : "", near, near[0] ? "?" : "");
}

void hardware_assumed(struct hardware *h)
{
    *h = (struct hardware){
        .cpu = 1, .nodes = 1, .devices = 1, .drives = 1, .overhead = 20e-6, .host_assumed = 1, .drives_assumed = 1};
    strcpy(h->name, "cpu");
    strcpy(h->source, "assumed for a 2-core CPU, not profiled");
    h->device_mem = 8 * GIB;
    h->host_mem = 8 * GIB;
    h->nvme_mem = 100 * GIB;
    for (int t = 0; t < COST_TYPES; t++) {
        h->peak_flops[t] = 190e9;
        hardware_set_gemm(&h->device.gemm[t], 150e9, 0);
        h->device.attention[t][0].head_dim = 64;
        curve_set(&h->device.attention[t][0].forward, 120e9);
        curve_set(&h->device.attention[t][0].backward, 120e9);
    }
    curve_set(&h->device.ops.memory, 15e9);
    curve_set(&h->host.memory, 12e9);
    h->h2d = h->d2h = 10e9;
    h->late = h->throttled_bytes = 10e9;
    h->wake_seconds = 50e-6;
    h->throttled_cores = 25e-6;
    h->host_memory = 40e9;
    h->read = 2e9;
    h->write = 1.5e9;
    h->both = h->read + h->write;
    h->read_seconds = 200e-6;
    h->write_seconds = 100e-6;
    h->inside = 2.6e9;
    h->across = 2e9;
}

void hardware_set_drives(struct hardware *h, int drives, double gbps)
{
    h->drives = drives;
    h->read = gbps * GIGA * drives;
    h->write = h->read * (WRITE_GBPS / READ_GBPS);
    h->both = BOTH_AT_ONCE * (h->read + h->write);
}

void hardware_override(struct hardware *h, const struct plan_request *s)
{
    if (s->nvme_drives > 0) {
        double each = h->drives > 0 ? (double)h->nvme_mem / h->drives : DRIVE_GB * GIGA;
        h->nvme_mem = (int64_t)(each * s->nvme_drives);
        hardware_set_drives(h, s->nvme_drives, s->nvme_gbps);
    }
    h->device_holds = h->device_mem;
    if (s->device_mem >= 0)
        h->device_mem = s->device_mem;
    if (s->host_mem >= 0)
        h->host_mem = s->host_mem;
    h->host_assumed = h->host_assumed && s->host_mem == AUTO;
    h->drives_assumed = h->drives_assumed && s->nvme_drives == AUTO && s->nvme_max == AUTO;
    h->drives_hold = hardware_drives_share(h->nvme_mem);
    h->nvme_mem = s->nvme_max >= 0 ? s->nvme_max : h->drives_hold;
}

void hardware_limits(const struct hardware *h, int ranks, int64_t limit[TIERS])
{
    int64_t per_node = max_i64(h->devices, ceil_div(ranks, h->nodes)), per_device = ceil_div(per_node, h->devices);
    limit[TIER_DEVICE] = h->device_mem / per_device;
    limit[TIER_HOST] = h->host_mem / per_node;
    limit[TIER_NVME] = h->nvme_mem / per_node;
}

void hardware_print_type(const struct hardware *h, const struct plan_request *s, FILE *f)
{
    const double faster = h->peak_flops[BF16] / h->peak_flops[F32];
    char other[64] = "";
    if (s->dtype == F32 && h->peak_flops[F32] > 0 && faster >= HARDWARE_BF16_PAYS)
        snprintf(other, sizeof other, " (--dtype bf16: products up to %.0f times as fast)", faster);
    fprintf(f, "dtype %s%s.\n", dtype_name(s->dtype), other);
}

void hardware_print(const struct hardware *h, const struct plan_request *s, int ranks, const char *what, FILE *f)
{
    char device[32], host[32], nvme[32], nodes[32] = "", drives[160] = "no nvme", left[32] = "", used[32] = "";
    if (!h->cpu && ranks < h->nodes * h->devices)
        snprintf(used, sizeof used, " (%d used)", ranks);
    if (h->nodes > 1)
        snprintf(nodes, sizeof nodes, "%d nodes of ", h->nodes);
    if (s->nvme_max == AUTO)
        snprintf(left, sizeof left, ", %d%% left free", HARDWARE_LEFT_FREE);
    if (h->nvme_mem > 0)
        snprintf(drives, sizeof drives, "nvme %s in %d drive%s%s%s, %.3g GB/s read, %.3g written",
                 units_format_bytes(h->nvme_mem, nvme), h->drives, h->drives == 1 ? "" : "s",
                 h->drives_assumed ? " (assumed: --nvme)" : "", left, h->read / GIGA, h->write / GIGA);
    prose_print(f, 2, "%s: %s%d x %s%s, %s%s; host %s%s%s; %s.", what, nodes, h->devices, h->name, used,
                units_format_bytes(h->device_mem, device), h->devices > 1 ? " each" : "", units_format_bytes(h->host_mem, host),
                h->nodes > 1 ? " each" : "", h->host_assumed ? " (assumed: --host-mem)" : "", drives);
}
