/* Recorded digests of programs: a change of the planner's code that should not change plans changes none of them.
 *
 *     digests           compares those that take seconds (LTRAIN_LONG=1: also those of large models, minutes)
 *     digests record    writes them all to tests/plan/digests.txt: only where a commit changes plans on purpose, and says why
 *
 * A line a plan: its name, whether it fits, digests of its printed text and of each program. Plans are made for the portable
 * kernels and four threads, or for the kernels of a data sheet's GPU (long ones: with the portable kernels' scratch), so that the
 * lines are the same on all processors. */
#include "attention/attention.h"
#include "attention/kernels.h"
#include "base/isa.h"
#include "base/mix.h"
#include "engine/cuda_target.h"
#include "extent.h"
#include "machine/hardware.h"
#include "ops/gemm.h"
#include "ops/gemm_tile.h"
#include "plan/cells.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/report/explain.h"
#include "plan/report/refuse.h"
#include "plan/report/text.h"
#include "plan/search/memo.h"
#include "plan_request.h"
#include "program/digest.h"

#include <stdlib.h>

enum { LINE = 2048 };

static FILE *recorded; /* file of the recorded digests, read or written */
static int recording, skipping, differ, compared;

/* Returns the portable kernels' scratch, for four threads. */
static int64_t workspace(const struct target *t, enum op_kind op, const struct op_attrs *a, int members)
{
    const struct target here = backend_cpu_target(t->threads);
    if (op == OP_ATTN_FWD || op == OP_ATTN_BWD)
        return attention_kernels_for(ISA_PORTABLE).workspace(op, a, t->threads);
    if (op != OP_GEMM)
        return here.workspace(&here, op, a, members);
    const struct gemm_shape s = {.m = a->gemm.m,
                                 .n = a->gemm.n,
                                 .k = a->gemm.k,
                                 .lda = a->gemm.lda,
                                 .ldb = a->gemm.ldb,
                                 .ldc = a->gemm.ldc,
                                 .ta = a->gemm.ta,
                                 .tb = a->gemm.tb,
                                 .a_type = a->gemm.a_type,
                                 .b_type = a->gemm.b_type,
                                 .c_type = a->gemm.c_type,
                                 .accumulate = a->gemm.accumulate};
    return gemm_workspace(gemm_tile_for(ISA_PORTABLE), &s);
}

static struct target portable = {.workspace = workspace, .threads = 4};

/* Compares or records a line, in the order in which lines were recorded. Lines of slow plans are skipped unless they are
 * requested. */
static void line_is(const char *line)
{
    char want[LINE];
    if (recording) {
        fprintf(recorded, "%s\n", line);
        fflush(recorded);
        return;
    }
    do {
        if (!fgets(want, sizeof want, recorded)) {
            printf("not recorded: %s\n", line);
            differ++;
            return;
        }
        want[strcspn(want, "\n")] = 0;
    } while (skipping && strncmp(want, "long ", 5) == 0 && strncmp(line, "long ", 5) != 0);
    compared++;
    if (strcmp(line, want) == 0)
        return;
    printf("recorded: %s\nis:       %s\n", want, line);
    differ++;
}

/* Returns a digest of a plan's printed text, without the seconds that planning took. */
static uint64_t text_digest(struct plan *plan, const struct model *m, const struct plan_request *s, int explain)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    struct explanation *e = calloc(1, sizeof *e);
    if (!f || !e)
        abort();
    plan->took = 0;
    if (plan->fits && plan_print(plan, m, s, f) != OK)
        fprintf(f, "%s", status_message());
    if (!plan->fits && refuse_plan(plan, m, s) != OK)
        fprintf(f, "%s", status_message());
    if (plan->fits && explain && explain_make(plan, m, s, e) == OK)
        explain_print(plan, e, f);
    fclose(f);
    uint64_t h = mix_text(1, text);
    free(text);
    free(e);
    return h;
}

/* Compares or records the line of a plan. said: 1: the line includes the digest of the plan's printed text. */
static void plan_is(const char *name, struct plan *plan, const struct model *m, const struct plan_request *s, int said,
                    int explain)
{
    char line[LINE];
    int n = snprintf(line, sizeof line, "%s: %s", name, plan->fits ? "fits" : "does not fit");
    if (said)
        n += snprintf(line + n, sizeof line - (size_t)n, " text=%016llx", (unsigned long long)text_digest(plan, m, s, explain));
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k])
            n += snprintf(line + n, sizeof line - (size_t)n, " %d=%016llx", k,
                          (unsigned long long)program_digest(plan->programs[k]));
    line_is(line);
}

static void failed(const char *name)
{
    char line[LINE];
    snprintf(line, sizeof line, "%s: %s", name, status_message());
    line_is(line);
}

/* Small models on fixed placements ------------------------------------------------------------------------------------------------ */
static void cell_is(enum model_family family, enum dtype dtype, int64_t accum, const struct cell *c, int index)
{
    const int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    char name[256];
    struct plan_request s;
    struct model *m;
    struct plan *plan;
    cell_settings(&s, 150, dtype);
    cell_apply(c, &s);
    s.grad_accum = accum;
    s.target = &portable;
    snprintf(name, sizeof name, "cell %d %s %s accum=%d %s", index, family == FAMILY_LLAMA ? "llama" : "gpt2", dtype_name(dtype),
             (int)accum, cell_name(c));
    if (cell_model(family, 3, &m) != OK)
        abort();
    if (plan_create(m, &s, limit, &plan) == OK) {
        plan_is(name, plan, m, &s, 0, 0);
        plan_destroy(plan);
    } else {
        failed(name);
    }
    model_destroy(m);
}

static void cells_are(void)
{
    enum { MOST = 100 };
    struct cell cells[MOST];
    int n = cells_covering(cells, MOST, 2, 11);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 8; k++)
            cell_is(k & 1 ? FAMILY_GPT2 : FAMILY_LLAMA, k & 2 ? BF16 : F32, k & 4 ? 3 : 1, &cells[i], i);
}

/* Meshes -------------------------------------------------------------------------------------------------------------------------- */
static void mesh_is(int dp, int ulysses, int ring, int zero, enum offload at, int64_t accum)
{
    const int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    char name[128];
    struct plan_request s;
    struct model *m;
    struct plan *plan;
    cell_settings(&s, 256, BF16);
    s.params = s.grads = s.optim = s.acts = at;
    s.alpha = 0.5;
    s.head_tile = ring > 1 ? 2 : 1; /* the smallest legal number of heads */
    s.mesh.degree[MESH_DP] = dp;
    s.mesh.degree[MESH_ULYSSES] = ulysses;
    s.mesh.degree[MESH_RING] = ring;
    s.zero = zero;
    s.grad_accum = accum;
    s.device = DEVICE_CPU_DISCRETE;
    s.target = &portable;
    snprintf(name, sizeof name, "mesh dp=%d,ulysses=%d,ring=%d zero=%d offload=%d accum=%d", dp, ulysses, ring, zero, (int)at,
             (int)accum);
    if (cell_model(FAMILY_LLAMA, 3, &m) != OK)
        abort();
    if (plan_mesh(m, &s, dp * ulysses * ring, dp * ulysses * ring) == OK && plan_create(m, &s, limit, &plan) == OK) {
        plan_is(name, plan, m, &s, 1, 0);
        plan_destroy(plan);
    } else {
        failed(name);
    }
    model_destroy(m);
}

static void meshes_are(void)
{
    static const int mesh[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 4, 1}, {1, 2, 2},
                                  {2, 2, 2}, {1, 1, 4}, {4, 1, 1}, {1, 2, 4}};
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++)
        for (int zero = 0; zero <= 3; zero++)
            for (int k = 0; k < 2; k++)
                mesh_is(mesh[i][0], mesh[i][1], mesh[i][2], zero, k ? OFFLOAD_NVME : OFFLOAD_CPU, k ? 2 : 1);
}

/* Searched ------------------------------------------------------------------------------------------------------------------------ */
struct question {
    const char *name, *model, *machine;
    int64_t seq_len;              /* 0: the longest length that fits */
    int64_t device, host, drives; /* budgets in bytes; AUTO: all of the machine's memory */
    enum offload offload;
    enum dtype dtype;
    int zero; /* AUTO, or the stage */
    int explain;
    enum effort effort; /* zero: best */
};

#define M(x) ((int64_t)(x) << 20)
#define G(x) ((int64_t)(x) << 30)
#define ANY AUTO, AUTO, AUTO, OFFLOAD_AUTO

static const struct question quick[] = {
    {"25m 8k, device 200M", "25m", "rtx4090", 8 << 10, M(200), G(2), AUTO, OFFLOAD_AUTO, BF16, 3, 0},
    {"25m 16k, device 300M, host 400M", "25m", "h200", 16 << 10, M(300), M(400), AUTO, OFFLOAD_AUTO, BF16, 3, 0},
    {"gpt2-125m 4k on 2 ranks", "gpt2-125m", "2xa100-40", 4 << 10, M(900), G(4), AUTO, OFFLOAD_AUTO, BF16, AUTO, 0},
    {"tiny 64k, explained", "tiny", "rtx4090", 64 << 10, M(90), M(400), AUTO, OFFLOAD_AUTO, BF16, 3, 1},
    {"25m refused on the device", "25m", "rtx4090", 32 << 10, M(100), G(2), AUTO, OFFLOAD_NONE, BF16, 3, 0, EFFORT_NORMAL},
    {"25m refused on the host", "25m", "rtx4090", 32 << 10, M(400), M(100), 0, OFFLOAD_CPU, BF16, 3, 0},
    {"tiny refused on the drives", "tiny", "rtx4090", 32 << 10, M(30), M(40), M(1), OFFLOAD_NVME, BF16, 3, 0, EFFORT_NORMAL},
    {"25m 8k, normal", "25m", "rtx4090", 8 << 10, M(200), G(2), AUTO, OFFLOAD_AUTO, BF16, 3, 0, EFFORT_NORMAL},
    {"25m 8k, quick", "25m", "rtx4090", 8 << 10, M(200), G(2), AUTO, OFFLOAD_AUTO, BF16, 3, 0, EFFORT_QUICK},
    {"gpt2-125m 4k on 2 ranks, normal", "gpt2-125m", "2xa100-40", 4 << 10, M(900), G(4), AUTO, OFFLOAD_AUTO, BF16, AUTO, 0,
     EFFORT_NORMAL},
    {"tiny longest, quick", "tiny", "rtx4090", 0, M(40), M(64), M(100), OFFLOAD_AUTO, BF16, 3, 0, EFFORT_QUICK},
};

static const struct question slow[] = {
    {"8b 420k on two", "8b", "2xa100-40", 420 << 10, ANY, BF16, 3, 0},
    {"8b longest on four", "8b", "4xa100-40", 0, AUTO, G(512), AUTO, OFFLOAD_AUTO, BF16, 3, 0},
    {"8b 32k, refused", "8b", "rtx4090", 32 << 10, AUTO, G(60), AUTO, OFFLOAD_CPU, BF16, 3, 0},
    {"25m 64k, explained", "25m", "rtx4090", 64 << 10, M(600), G(2), AUTO, OFFLOAD_AUTO, BF16, 3, 1},
    {"8b 1m", "8b", "h200", 1 << 20, ANY, BF16, 3, 0},
    {"8b 128k", "8b", "h200", 128 << 10, ANY, BF16, 3, 0},
    {"8b 1m on sixteen", "8b", "16xh100", 1 << 20, ANY, BF16, AUTO, 0},
    {"1b 32k", "1b", "h200", 32 << 10, ANY, BF16, 3, 0},
    {"8b 32k on a large one", "8b", "h200", 32 << 10, ANY, BF16, 3, 0},
    {"1b 420k, fp32", "1b", "a100-40", 420 << 10, ANY, F32, 3, 0},
    {"125m 256k", "125m", "rtx4090", 256 << 10, G(4), G(16), AUTO, OFFLOAD_AUTO, BF16, 3, 0},
    {"gpt-25b 32k", "gpt-25b", "32xa100-40", 32 << 10, ANY, BF16, AUTO, 0},
    {"gpt-25b 420k", "gpt-25b", "32xa100-40", 420 << 10, ANY, BF16, AUTO, 0},
    {"gpt-25b 128k, quick", "gpt-25b", "32xa100-40", 128 << 10, ANY, BF16, AUTO, 0, EFFORT_QUICK},
    {"gpt-25b 192k, quick", "gpt-25b", "32xa100-40", 192 << 10, ANY, BF16, AUTO, 0, EFFORT_QUICK},
    {"gpt-25b 360k, quick", "gpt-25b", "32xa100-40", 360 << 10, ANY, BF16, AUTO, 0, EFFORT_QUICK},
    {"gpt-25b 400k, quick", "gpt-25b", "32xa100-40", 400 << 10, ANY, BF16, AUTO, 0, EFFORT_QUICK},
};

static enum status answer(const struct question *q, struct plan_request *s, struct hardware *h, struct target *t, int long_one,
                          struct model **m, struct plan **plan)
{
    int64_t limit[TIERS];
    struct model_config c;
    plan_request_defaults(s, q->seq_len ? q->seq_len : 1024);
    s->device = DEVICE_CUDA;
    s->dtype = q->dtype;
    s->params = s->grads = s->optim = s->acts = q->offload;
    s->zero = q->zero;
    s->effort = q->effort;
    s->hardware = h;
    s->device_mem = q->device;
    s->host_mem = q->host;
    s->nvme_max = q->drives;
    TRY(model_preset(q->model, &c));
    c.positions = q->seq_len;
    TRY(model_create(&c, NULL, 0, m));
    TRY(hardware_preset(q->machine, h));
    hardware_override(h, s);
    *t = long_one ? portable : cuda_target(h->capability, h->processors, portable.threads);
    s->target = t;
    int ranks = h->nodes * h->devices;
    hardware_limits(h, ranks, limit);
    if (q->seq_len == 0)
        return plan_longest(*m, s, ranks, h->devices, limit, plan);
    TRY(plan_mesh(*m, s, ranks, h->devices));
    TRY(refuse_early(*m, s, limit));
    return plan_create(*m, s, limit, plan);
}

static void question_is(const struct question *q, const char *prefix)
{
    char name[128];
    struct plan_request s;
    struct hardware h;
    struct target t;
    struct model *m = NULL;
    struct plan *plan;
    snprintf(name, sizeof name, "%s %s", prefix, q->name);
    if (answer(q, &s, &h, &t, strcmp(prefix, "long") == 0, &m, &plan) == OK) {
        plan_is(name, plan, m, &s, 1, q->explain);
        plan_destroy(plan);
    } else {
        failed(name);
    }
    model_destroy(m);
}

int main(int argc, char **argv)
{
    char path[4096];
    recording = argc > 1 && strcmp(argv[1], "record") == 0;
    skipping = !recording && !extent(0, 0, 1);
    snprintf(path, sizeof path, "%s/tests/plan/digests.txt", getenv("LTRAIN_SOURCE_ROOT"));
    recorded = fopen(path, recording ? "w" : "r");
    if (!recorded) {
        perror(path);
        return 1;
    }
    cells_are();
    meshes_are();
    memo_hold(); /* requests that differ in effort or budgets share trials */
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        question_is(&quick[i], "search");
    memo_release();
    for (size_t i = 0; !skipping && i < sizeof slow / sizeof *slow; i++)
        question_is(&slow[i], "long");
    if (fclose(recorded) != 0)
        return 1;
    if (!recording)
        printf("%d plans compared, %d differ\n", compared, differ);
    return differ > 0 || (!recording && compared == 0);
}
