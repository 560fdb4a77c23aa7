/* The table of `ltrain plan`, for people. */
#include "plan/report/text.h"

#include "base/prose.h"
#include "base/units.h"
#include "machine/hardware.h"
#include "machine/islands.h"
#include "plan/lower/mesh_parts.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"
#include "plan/roles.h"
#include "plan/ticks.h"
#include "program/drives.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Formats three digits and a prefix that a unit can follow: "0.0123 ", "4.7 k", "126 G". */
static const char *scaled(double x, char buf[32])
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    int i = 0;
    for (; x >= 999.5 && i < 6; i++)
        x /= 1000;
    snprintf(buf, 32, "%.3g %s", x, prefix[i]);
    return buf;
}

static void bytes_cell(FILE *f, int64_t bytes)
{
    char text[32];
    fprintf(f, " %11s", bytes > 0 ? units_format_bytes(bytes, text) : "-");
}

/* Prints seconds. Differences as small as rounding errors are printed as 0, since exposed seconds are differences of times on the
 * virtual clock. */
static void seconds_cell(FILE *f, double seconds, double step)
{
    char text[32];
    fprintf(f, " %11s", seconds < 1e-12 * step ? "0 s" : report_duration(seconds, text));
}

/* Formats a share: "0%", "<0.01%", "0.05%", "3.4%", "88%". */
static const char *percent(double share, char buf[16])
{
    double x = 100 * share;
    if (x > 0 && x < 0.01)
        return "<0.01%";
    snprintf(buf, 16, "%.*f%%", x == 0 || x >= 9.95 ? 0 : x >= 0.995 ? 1 : 2, x);
    return buf;
}

/* Says how sequences that are computed together are shared out. */
static void print_packing(const struct plan *p, FILE *f)
{
    const long long packed = p->strategy.key.packed, groups = p->strategy.key.mesh.degree[MESH_DP],
                    rest = p->sequences % (packed * groups);
    char fuller[96] = "";
    if (rest > 0)
        snprintf(fuller, sizeof fuller, "; the last ones are not full: --batch %lld and %lld fill all", p->sequences - rest,
                 p->sequences - rest + packed * groups);
    prose_print(f, 2, "batch: %lld sequences a step, %lld together; %lld micro-batch%s on each of %lld data-parallel group%s%s",
                (long long)p->sequences, packed, (long long)p->micro_batches, p->micro_batches == 1 ? "" : "es", groups,
                groups == 1 ? "" : "s", fuller);
}

void plan_print_sharing(const struct plan *p, FILE *f)
{
    const struct strategy *s = &p->strategy;
    long long length = p->tokens / p->sequences, masked = s->seq_len - s->key.packed * length, sequences = p->sequences;
    if (masked > 0)
        prose_print(f, 2, "padding: each %s of %lld tokens is followed by %lld masked ones, so that %d ranks can share it",
                    s->key.packed > 1 ? "micro-batch" : "sequence", s->key.packed * length, masked,
                    s->key.mesh.degree[MESH_ULYSSES] * s->key.mesh.degree[MESH_RING]);
    if (s->key.packed > 1) {
        print_packing(p, f);
        return;
    }
    const long long groups = s->key.mesh.degree[MESH_DP], rest = sequences % groups;
    if (sequences > p->micro_batches && rest == 0)
        fprintf(f, "batch: %lld sequences a step, %lld micro-batches on each of %lld data-parallel groups\n", sequences,
                (long long)p->micro_batches, groups);
    else if (rest > 0)
        prose_print(
            f, 2,
            "batch: %lld sequences a step, %lld micro-batches on each of %lld data-parallel groups; %lld of them %s no sequence in the "
            "last one: --batch %lld and %lld leave none without",
            sequences, (long long)p->micro_batches, groups, groups - rest, groups - rest > 1 ? "have" : "has", sequences - rest,
            sequences - rest + groups);
}

/* Says why a pipeline has its ZeRO stage, if that was left open. */
static void print_zero(const struct plan *p, FILE *f)
{
    const double *tried = p->zero_tried;
    char text[128] = "", seconds[32];
    if (tried[1] == 0)
        return;
    if (tried[2] == 0) {
        prose_print(
            f, 2,
            "ZeRO stage [--zero]: 1, since 2 and 3 would send gradients or parameters of every piece, and the device has room "
            "without.");
        return;
    }
    for (int z = 1; z <= 3; z++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d: %s", z > 1 ? ", " : "", z,
                 isinf(tried[z]) ? "does not fit" : report_duration(tried[z], seconds));
    prose_print(f, 2, "ZeRO stage [--zero]: %d, the fastest by brief plans (%s).", p->strategy.key.zero, text);
}

/* Prints the work of a pipeline's stages in a step. */
static void print_stages(const struct plan *p, const struct model *m, FILE *f)
{
    const struct ticks t = plan_ticks(p);
    const int64_t layers = m->whole->config.layers;
    const struct mesh_stages *given = &p->strategy.key.stages;
    char idle[32], each[MESH_STAGES_TEXT], text[MESH_STAGES_TEXT + 32];
    if (t.stages == 1 || !p->fits)
        return;
    snprintf(each, sizeof each, "%lld%s", (long long)(layers / t.stages), layers % t.stages ? " or one more" : "");
    snprintf(text, sizeof text, "%s layers%s", given->n > 0 ? mesh_stages_format(given, each) : each,
             given->n > 0 ? " (--stage-layers)" : "");
    prose_print(f, 2,
                "pipeline: %d stages of %s; %lld ticks for %lld micro-batches; a stage stands still for %s, %.0f%% of the "
                "step, while the pipeline fills and drains.",
                t.stages, text, (long long)ticks_count(&t), (long long)t.micro_batches, report_duration(ticks_idle(p), idle),
                100 * ticks_idle(p) / p->seconds);
    print_zero(p, f);
}

static int has_parts(const struct mesh *mesh)
{
    return mesh_degree(mesh, MESH_TP) > 1 || mesh_degree(mesh, MESH_PP) > 1;
}

/* Says which mesh of whole layers was the best, if planning has chosen slices or stages of layers. */
static void print_parts(const struct plan *p, FILE *f)
{
    const struct mesh_weighed *plain = &p->meshes.of[0];
    const int stages = strategy_stages(&p->strategy) > 1;
    char mesh[MESH_TEXT], seconds[32];
    if (p->meshes.n == 0 || has_parts(&plain->mesh) || !has_parts(&p->strategy.key.mesh))
        return;
    prose_print(
        f, 2,
        "mesh [--mesh]: %s of layers, the fastest by brief plans of %d meshes with slices (tp) or stages (pp) that were weighed; of "
        "whole layers %s %s%s.%s",
        stages ? "stages" : "slices", p->meshes.legal, mesh_format(&plain->mesh, mesh), plain->fits ? "takes " : "does not fit",
        plain->fits ? report_duration(plain->seconds, seconds) : "",
        p->cost.chained ? " On GPUs both have run in a simulator only." : "");
}

static void print_longest(const struct plan *p, FILE *f)
{
    const struct longest *l = &p->longest;
    char a[32], b[32], c[32], d[32], flags[96], longer[160] = "; the model takes no longer ones";
    if (!p->fits) {
        prose_print(f, 2, "No sequence fits, not even one of %s tokens, the shortest that --max-seq tries.",
                    units_format_count(p->tokens / p->sequences, a));
        return;
    }
    plan_longest_flags(p, flags);
    units_format_apart(l->bytes, p->limit[l->tier], c, d);
    if (l->longer > 0 && l->beyond)
        snprintf(longer, sizeof longer,
                 "; a step of %s would have a buffer of more than 512 GiB, or more parts than are planned for",
                 units_format_count(l->longer, a));
    else if (l->longer > 0 && l->bytes > p->limit[l->tier])
        snprintf(longer, sizeof longer, "; %s would need %s on the %s, and %s are there", units_format_count(l->longer, a), c,
                 tier_name(l->tier), d);
    else if (l->longer > 0) /* a trial's bytes are a lower limit: a whole step needs more */
        snprintf(longer, sizeof longer, "; %s would not fit the %s", units_format_count(l->longer, a), tier_name(l->tier));
    if (p->effort == EFFORT_QUICK) {
        prose_print(f, 2,
                    "At least %s tokens fit: --effort quick looked at the mesh by rule and the default tiles only; normal may "
                    "find longer ones.",
                    units_format_count(p->tokens / p->sequences, a));
        return;
    }
    prose_print(f, 2, "Longest sequence that fits: %s tokens%s%s, in steps of %s%s.",
                units_format_count(p->tokens / p->sequences, a), flags[0] ? " with" : "", flags, units_format_count(l->step, b),
                longer);
}

/* Prints the islands with their stages, what links them, and the options with which a run does the same. */
static void print_islands(const struct plan *p, const struct plan_request *s, const struct islands *x, FILE *f)
{
    const int stages = strategy_stages(&p->strategy), each = islands_all_devices(x) / stages;
    int first = 0;
    char what[64], mesh[MESH_TEXT], layers[MESH_STAGES_TEXT];
    const struct mesh_stages *given = &p->strategy.key.stages;
    for (int i = 0; i < x->n; i++) {
        const int n = islands_devices(x, i) / each;
        const struct hardware h = islands_alone(x, i);
        snprintf(what, sizeof what, n > 1 ? "island %d, stages %d to %d" : "island %d, stage %d", i + 1, first + 1, first + n);
        hardware_print(&h, s, islands_devices(x, i), what, f);
        first += n;
    }
    prose_print(
        f, 2,
        "Between nodes of different islands: %.3g GB/s a node, %.3g us. All ranks have the least memory of all islands. A run has "
        "this plan's parts with --mesh %s%s%s --zero %d, its ranks numbered island by island.",
        x->bytes / 1e9, x->seconds * 1e6, mesh_format(&p->strategy.key.mesh, mesh), given->n > 0 ? " --stage-layers " : "",
        mesh_stages_format(given, layers), p->strategy.key.zero);
}

/* Formats the machine: " on 2 x a100-80", " on 8 ranks", " on 1 x cpu"; "" for one unnamed rank. */
static const char *whereon(const struct plan *p, const struct plan_request *s, char buf[96])
{
    const struct hardware *h = s->machine ? s->hardware : NULL;
    const struct islands *x = mesh_islands(s);
    int n = 0;
    for (int i = 0; x && i < x->n && n < 64; i++)
        n += snprintf(buf + n, (size_t)(96 - n), "%s%d x %.16s", i ? " and " : " on ", islands_devices(x, i), x->of[i].name);
    if (x)
        return buf;
    if (h && h->nodes * h->devices == p->strategy.ranks)
        snprintf(buf, 96, " on %d x %s", p->strategy.ranks, h->name);
    else if (p->strategy.ranks > 1)
        snprintf(buf, 96, " on %d ranks", p->strategy.ranks);
    else
        buf[0] = 0;
    return buf;
}

/* Returns the digits behind the point with which a share in percent is not 0: none for 12, one for 1.2, three for 0.0012. */
static int digits_of(double percent)
{
    int digits = percent < 9.95;
    for (double unit = 0.05; digits > 0 && digits < 9 && percent < unit; unit /= 10)
        digits++;
    return digits;
}

/* Prints the verdict, as a plan that does not fit cannot run, then model, machine and batch. */
static void print_header(const struct plan *p, const struct model *m, const struct plan_request *s, const struct report *r,
                         FILE *f)
{
    char tokens[32], a[32], b[32], on[96], mesh[96] = "", degrees[MESH_TEXT], verdict[128] = "does not fit", size[SIZE_TEXT];
    const struct strategy *t = &p->strategy;
    if (p->fits)
        snprintf(verdict, sizeof verdict, "fits, %s a step, MFU %.*f%%, %stok/s", report_duration(p->seconds, a),
                 digits_of(100 * r->mfu), 100 * r->mfu, scaled(r->tokens_per_second, b));
    prose_print(f, 2, "%s, %s tokens%s: %s", m->config.name, units_format_count(p->tokens / p->sequences, tokens),
                whereon(p, s, on), verdict);
    if (t->ranks > 1)
        snprintf(mesh, sizeof mesh, "; %d ranks: %s, zero %d", t->ranks, mesh_format(&t->key.mesh, degrees), t->key.zero);
    prose_print(f, 2, p->fits ? "%s%s; times: %s; MFU: share of %sFLOP/s" : "%s%s", model_size_text(m, size), mesh,
                p->cost.source, scaled(plan_peak_flops(p), a));
    if (mesh_islands(s))
        print_islands(p, s, mesh_islands(s), f);
    else if (s->machine)
        hardware_print(s->hardware, s, t->ranks, "machine", f);
    if (s->machine)
        hardware_print_type(s->hardware, s, f);
    if (p->longest.step > 0)
        print_longest(p, f);
    if (p->sequences > 1)
        fprintf(f, "A step is %lld sequences.\n", (long long)p->sequences);
    if (p->fits && p->seconds > DAY)
        prose_print(f, 2, "A step takes longer than a day, and a run is saved between steps only: %lld (--steps) would take %s.",
                    (long long)s->steps, report_duration((double)s->steps * p->seconds, a));
    plan_print_sharing(p, f);
}

/* Prints by how many percent `above` exceeds `below`. */
static void print_more(const char *name, const char *note, const int64_t above[TIERS], const int64_t below[TIERS], FILE *f)
{
    fprintf(f, "%-14s", name);
    for (int t = 0; t < TIERS; t++) {
        char more[16] = "-";
        if (below[t] > 0)
            snprintf(more, sizeof more, "+%.1f%%", 100 * ((double)above[t] / (double)below[t] - 1));
        fprintf(f, " %11s", more);
    }
    fprintf(f, "   (%s)\n", note);
}

static void print_tiers(const char *name, const int64_t bytes[TIERS], const char *note, FILE *f)
{
    fprintf(f, "%-14s", name);
    for (int t = 0; t < TIERS; t++)
        bytes[t] == INT64_MAX ? (void)fprintf(f, " %11s", "none") : bytes_cell(f, bytes[t]);
    fprintf(f, "%s\n", note);
}

/* Prints peaks and limits, with enough digits to tell them apart. */
static void print_limits(const struct plan *p, const struct plan_request *s, FILE *f)
{
    char peak[TIERS][32], limit[TIERS][32], note[48] = "";
    int sharing = budget_sharing(p, s);
    for (int t = 0; t < TIERS; t++) {
        units_format_apart(p->arena[t], p->limit[t], peak[t], limit[t]);
        if (p->arena[t] <= 0)
            strcpy(peak[t], "-");
        if (p->limit[t] <= 0 || p->limit[t] == INT64_MAX)
            strcpy(limit[t], p->limit[t] <= 0 ? "-" : "none");
    }
    if (sharing > 1)
        snprintf(note, sizeof note, "   (host, nvme: 1/%d of node)", sharing);
    fprintf(f, "%-14s %11s %11s %11s   (rows peak at other times)\n", "peak", peak[0], peak[1], peak[2]);
    fprintf(f, "%-14s %11s %11s %11s%s\n", "limit", limit[0], limit[1], limit[2], note);
    fprintf(f, "%-14s %11s %11s %11s\n", "set with", budget_flag[0], budget_flag[1],
            budget_is_free_space(p, s) ? "free space" : budget_flag_given(s, TIER_NVME));
    const char *memory = budget_memory_limit(s, s->device_mem < 0 ? TIER_DEVICE : TIER_HOST);
    if (memory[0])
        prose_print(f, 2, "memory: %s", memory);
}

/* Prints a row with the experts' share of the bytes in the rows above, if the model has experts. */
static void print_experts(const struct plan *p, const struct report *r, FILE *f)
{
    if (r->experts.held[TIER_DEVICE] + r->experts.held[TIER_HOST] + r->experts.held[TIER_NVME] == 0)
        return;
    fprintf(f, "%-14s", "  of experts");
    for (int t = 0; t < TIERS; t++)
        bytes_cell(f, r->experts.held[t]);
    if (p->fits) {
        bytes_cell(f, r->experts.moved);
        seconds_cell(f, r->experts.exposed, p->seconds);
    }
    fprintf(f, "\n");
}

/* Prints bytes against limits and, for a plan that fits, the traffic. */
static void print_memory(const struct plan *p, const struct plan_request *s, const struct report *r, FILE *f)
{
    char line[PLAN_TEXT];
    plan_describe(p, line, sizeof line);
    prose_print(f, 2, "%s%s", p->strategy.ranks > 1 ? "Each rank: " : "", line);
    fprintf(f, "\n%-14s %11s %11s %11s", "", "device", "host", "nvme");
    fprintf(f, p->fits ? " %11s %11s\n" : "\n", "moved/step", "exposed");
    for (int c = 0; c < CLASSES; c++) {
        fprintf(f, "%-14s", class_name((enum tensor_class)c));
        for (int t = 0; t < TIERS; t++)
            bytes_cell(f, p->peak[t][c]);
        if (p->fits) {
            bytes_cell(f, r->moved[c]);
            seconds_cell(f, r->exposed[c], p->seconds);
        }
        fprintf(f, "\n");
    }
    print_experts(p, r, f);
    print_limits(p, s, f);
}

enum status plan_print_bounds(const struct plan *p, const struct model *m, FILE *f)
{
    struct report r;
    TRY(report_make(p, m, &r));
    fprintf(f, "\n%-14s %11s %11s %11s\n", "memory", "device", "host", "nvme");
    print_tiers("peak", p->arena, "", f);
    print_tiers("live data", r.lower_bound, "   (most in use at once)", f);
    print_more("fragmentation", "peak above live data", p->arena, r.lower_bound, f);
    print_more("prefetching", "less with --prefetch 0", r.lower_bound, r.serial_bound, f);
    return OK;
}

static void print_lanes(const struct plan *p, const struct report *r, FILE *f)
{
    char text[32], rate[40];
    fprintf(f, "\n%-14s %11s %11s %11s %12s %11s\n", "lane", "busy", "of the step", "moved/step", "rate", "exposed");
    for (int l = 0; l < LANES; l++) {
        const struct report_lane *lane = &r->lane[l];
        char share[16];
        if (lane->busy <= 0)
            continue;
        fprintf(f, "%-14s", lane_name((enum lane)l));
        seconds_cell(f, lane->busy, p->seconds);
        fprintf(f, " %11s", percent(lane->busy / p->seconds, share));
        bytes_cell(f, l == LANE_COMPUTE || l == LANE_HOST ? 0 : lane->bytes);
        double amount = l == LANE_COMPUTE ? r->hardware_flops : (double)lane->bytes;
        snprintf(rate, sizeof rate, "%s%s", scaled(amount / lane->busy, text), l == LANE_COMPUTE ? "FLOP/s" : "B/s");
        fprintf(f, " %12s", rate);
        if (l != LANE_COMPUTE)
            seconds_cell(f, lane->exposed, p->seconds);
        fprintf(f, "\n");
    }
}

static const char *lane_purpose(enum lane l)
{
    static const char *const purpose[] = {"compute",
                                          "copies to the device (h2d)",
                                          "copies from the device (d2h)",
                                          "reads from the drives",
                                          "writes to the drives",
                                          "the host's cores",
                                          "messages among all ranks (world)",
                                          "messages among ranks that share heads (ulysses)",
                                          "messages around the ring",
                                          "messages among ranks that share experts out (ep)",
                                          "messages among ranks with the same experts",
                                          "messages among slices of layers (tp)",
                                          "messages among ranks with the same slices (zero)",
                                          "messages among the ranks of a stage",
                                          "messages between stages (pp)"};
    return purpose[l];
}

/* Prints the parts of the step's time. */
static void print_limit(const struct plan *p, const struct report *r, FILE *f)
{
    char a[32], b[32], share[16];
    double busy = r->lane[LANE_COMPUTE].busy, waits = fmax(0, p->seconds - busy);
    fprintf(f, "\nCompute: matrix products %.0f%%, attention %.0f%%, ", 100 * r->compute[OPS_MATRIX] / busy,
            100 * r->compute[OPS_ATTENTION] / busy);
    if (r->compute[OPS_RECURRENT] > 0)
        fprintf(f, "linear attention %.0f%%, ", 100 * r->compute[OPS_RECURRENT] / busy);
    fprintf(f, "the rest %.0f%%.\n", 100 * r->compute[OPS_ELEMENTWISE] / busy);
    if (r->recomputed > 0.005 * busy)
        fprintf(f, "%.0f%% of it is computed a second time to save memory.\n", 100 * r->recomputed / busy);
    enum lane slowest = report_slowest_lane(r);
    enum tensor_class most = 0;
    for (int c = 1; c < CLASSES; c++)
        if (r->waited[slowest][c] > r->waited[slowest][most])
            most = (enum tensor_class)c;
    if (waits < 0.02 * p->seconds)
        fprintf(f, "Compute limits the step; for %s of it compute waits for data.\n", percent(waits / p->seconds, share));
    else
        prose_print(f, 2, "Compute stands still for %s, %.0f%% of the step: %s of them because of %s, mostly for %s.",
                    report_duration(waits, a), 100 * waits / p->seconds, report_duration(r->lane[slowest].exposed, b),
                    lane_purpose(slowest), class_name(most));
}

/* Formats a drive's life: "71 days". Lives longer than drives are kept are not printed as numbers. */
static const char *drive_lasts(double days, char buf[32])
{
    if (days > 20 * 365)
        return "more than 20 years";
    if (days < 10 || days > 3 * 365)
        return report_duration(days * DAY, buf);
    snprintf(buf, 32, "%.0f days", days);
    return buf;
}

/* Prints the wear of drives, which share the writes. Their number is known only for a named machine. */
static void print_wear(const struct plan *p, const struct plan_request *s, const struct report *r, FILE *f)
{
    char a[32], b[32], c[32], d[32], which[48] = "A drive";
    int64_t drives = s->machine ? max_i64(1, ceil_div(p->strategy.ranks, budget_sharing(p, s)) * s->hardware->drives) : 1;
    double each = r->written_per_day / (double)drives;
    int64_t written = r->lane[LANE_WRITE].bytes * p->strategy.ranks;
    if (written == 0) {
        fprintf(f, "Drives: nothing is written to them.\n");
        return;
    }
    fprintf(f, "Drives: %sB are written per step, %sB a day of training round the clock.\n", scaled((double)written, a),
            scaled(r->written_per_day, b));
    if (drives > 1)
        snprintf(which, sizeof which, "Each of %lld drives", (long long)drives);
    prose_print(f, 2,
                "%s rated for %sB of writes (2 TB, consumer) would last %s, one rated for %sB (7.68 TB, one full write a day "
                "for 5 years) %s%s.",
                which, scaled(REPORT_CONSUMER_DRIVE, a), drive_lasts(REPORT_CONSUMER_DRIVE / each, c),
                scaled(REPORT_SERVER_DRIVE, b), drive_lasts(REPORT_SERVER_DRIVE / each, d),
                drives > 1 ? "" : "; striped over n drives, n times as long");
    if (p->strategy.placement.write_depth > 0)
        fprintf(f, "Writes yield to reads: %d of %d blocks in flight while something is read.\n",
                p->strategy.placement.write_depth, DRIVE_DEPTH);
}

void plan_print_stretches(const struct plan *p, FILE *f)
{
    char tokens[32], step[32], all[32], bytes[TIERS][32];
    double total = 0;
    int fits = 1;
    if (p->n_stretches == 0)
        return;
    fprintf(f, "\n%-14s %17s %11s %11s %11s %11s %11s\n", "tokens", "steps", "device", "host", "nvme", "a step", "all of them");
    for (int i = 0; i < p->n_stretches; i++) {
        const struct plan_stretch *x = &p->stretches[i];
        const double seconds = x->plan->seconds * (double)(x->end - x->first);
        char steps[48];
        snprintf(steps, sizeof steps, "%lld to %lld", (long long)x->first + 1, (long long)x->end);
        for (int t = 0; t < TIERS; t++)
            x->plan->arena[t] > 0 ? (void)units_format_bytes(x->plan->arena[t], bytes[t]) : (void)strcpy(bytes[t], "-");
        fprintf(f, "%-14s %17s %11s %11s %11s %11s %11s\n", units_format_count(x->seq_len, tokens),
                x->end > x->first ? steps : "none", bytes[0], bytes[1], bytes[2],
                x->plan->fits ? report_duration(x->plan->seconds, step) : "no fit",
                x->plan->fits ? report_duration(seconds, all) : "");
        total += seconds;
        fits &= x->plan->fits;
    }
    if (fits)
        fprintf(f, "Arenas and drives are made for the largest; all steps together would take %s.\n",
                report_duration(total, all));
}

enum status plan_print(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f)
{
    struct report r;
    TRY(report_make(p, m, &r));
    print_header(p, m, s, &r, f);
    print_stages(p, m, f);
    print_parts(p, f);
    plan_print_stretches(p, f);
    print_memory(p, s, &r, f);
    if (!p->fits)
        return OK;
    print_lanes(p, &r, f);
    print_limit(p, &r, f);
    print_wear(p, s, &r, f);
    return OK;
}

static void describe_alternative(const struct plan *p, const struct explanation *e, const struct alternative *a, char *buf,
                                 size_t size)
{
    char need[32], has[32];
    for (int t = 0; t < TIERS && !a->fits; t++)
        if (a->bytes[t] > p->limit[t]) {
            units_format_apart(a->bytes[t], p->limit[t], need, has);
            snprintf(buf, size, "%s: needs %s of %s on the %s", a->say, need, has, tier_name((enum tier)t));
            return;
        }
    if (!a->fits) {
        snprintf(buf, size, "%s: does not fit", a->say);
        return;
    }
    snprintf(buf, size, "%s: %s", a->say, report_compared(e->seconds / a->seconds, 0.0005, need));
}

void explain_print(const struct plan *p, const struct explanation *e, FILE *f)
{
    layer_kinds_print(e->kind, e->n_kinds, f);
    fprintf(f, "\nWhat was decided, [the option that sets it], and what each other choice would\n"
               "change alone (--offload says none for the device, cpu for the host):\n");
    for (int i = 0; i < e->n; i++) {
        const struct decision *d = &e->decision[i];
        char others[1024] = "", flag[32] = "";
        for (int k = 0; k < d->n; k++) {
            size_t n = strlen(others);
            n += (size_t)snprintf(others + n, sizeof others - n, "%s", k ? "; " : " Otherwise ");
            describe_alternative(p, e, &d->by_cost[k], others + n, sizeof others - n);
        }
        if (d->flag[0])
            snprintf(flag, sizeof flag, " [%s]", d->flag);
        prose_print(f, 4, "  %c%s%s: %s%s%s%s.%s%s", toupper(d->what[0]), d->what + 1, flag, d->chosen,
                    d->given ? " (given)" : "", d->note[0] ? "; " : "", d->note, others, d->n ? "." : "");
    }
}
