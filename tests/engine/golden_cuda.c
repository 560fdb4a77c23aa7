/* Runs golden models on fake GPUs (tests/cudasim/fake), on 1, 2 and 4 ranks, under mpiexec. Losses, gradient norms, state and the
 * bytes that every rank sends are those of cpu:discrete on the same mesh, bit for bit.
 *
 * Each model is a cell: its golden sequence and a sequence of other documents, in micro-batches and over data-parallel ranks.
 * Cells vary dp, ulysses, ring and both; ZeRO 0 to 3; resident, mixed and all on nvme; fp32 and bf16; and messages carried by
 * NCCL and staged ones. Streams run late, in orders that a seed draws.
 *
 * By default every third cell of each number of ranks runs (under sanitizers every sixth), one of them in several orders. With LTRAIN_LONG=1 each model runs on
 * all meshes, with both carriers, in ORDERS orders. */
#include "comm/launch.h"
#include "engine/golden.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "extent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 2, ORDERS = 3 };

static const struct kind {
    const char *name;
    int heads; /* largest number of ranks in a ulysses group */
} kinds[] = {{"gpt2", 2},         {"llama-gqa", 4},       {"gpt-oss", 4},        {"qwen3", 4},         {"gemma2", 2},
             {"int8-gqa", 4},     {"gemma3", 2},          {"phi3-long", 2},      {"lora-gqa", 4},      {"neox", 2},
             {"qlora-gqa", 4},    {"cohere2", 2},         {"mistral-window", 4}, {"olmo2", 2},         {"llama-yarn", 2},
             {"granite", 2},      {"lora-dropout", 4},    {"glm4", 4},           {"qwen3-windows", 2}, {"lora-gpt2", 2},
             {"cohere", 4},       {"smollm3", 2},         {"gpt-oss-one", 8},    {"lora-qwen3", 4},    {"olmo3", 2},
             {"lora-tied", 2},    {"neox-sequential", 2}, {"starcoder2", 2},     {"lora-neox", 2},     {"mistral3-wrapped", 2},
             {"cohere-norms", 4}, {"lora-phi3", 2},       {"llama3-rope", 2},    {"llama-dynamic", 2}, {"lora-dropout-gpt2", 2},
             {"qwen3_5", 4}};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct cell {
    struct golden g;
    struct mesh mesh;
    int zero, dtype, offload; /* offload: 0 resident, 1 mixed, 2 all on nvme */
};

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest; /* hash of this rank's state */
    int64_t sent[LANES - LANE_WORLD];
};

static struct comm *comm;
static struct twin twin;
static int rank, size, failures, cells, runs;

static void must(enum status st, const struct cell *c)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s: %s\n", rank, size, c ? c->g.path : "", status_message());
    comm_fail(comm, st, status_message());
    _exit(1);
}

static void settle(struct rig *r, const struct cell *c, enum device_kind device)
{
    struct plan_request *s = &r->settings.plan;
    rig_defaults(r, c->g.seq_len);
    r->comm = comm;
    r->settings.gpu = AUTO;
    s->device = device;
    s->mesh = c->mesh;
    s->zero = c->zero;
    s->dtype = c->dtype;
    s->grad_dtype = c->zero % 2 ? BF16 : F32;
    s->grad_accum = 2;
    s->batch = 2 * c->mesh.degree[MESH_DP];
    s->threads = 1;
    if (c->offload == 0)
        return;
    s->params = s->optim = OFFLOAD_NVME;
    s->grads = s->acts = c->offload == 1 ? OFFLOAD_CPU : OFFLOAD_NVME;
    s->alpha = 0;
}

/* Makes sequence i: an even one is one document, an odd one several. */
static void fill(struct sequence *q, int i, const struct cell *c, const struct model *m)
{
    sequence_random(q, c->g.seq_len, m->config.vocab, 5 + (uint64_t)i,
                    i % 2 ? (const int64_t[]){19, 1, 17, 0} : (const int64_t[]){0});
    for (int64_t k = 0; k < c->g.seq_len && m->mask_window[0] > 0; k++)
        q->lo[k] = (int32_t)max_i64(q->lo[k], k - m->mask_window[0] + 1);
}

static void train(const struct cell *c, enum device_kind device, struct outcome *out)
{
    struct rig r;
    struct model *m;
    struct sequence batch[8];
    const int n = 2 * c->mesh.degree[MESH_DP];
    memset(out, 0, sizeof *out);
    for (int l = LANE_WORLD; l < LANES; l++)
        out->sent[l - LANE_WORLD] = -comm_bytes_sent(comm, (enum lane)l).same_host;
    settle(&r, c, device);
    must(golden_model(&c->g, &m), c);
    batch[0] = c->g.sequence;
    for (int i = 1; i < n; i++)
        fill(&batch[i], i, c, m);
    must(rig_start(&r, m), c);
    must(golden_load(&c->g, r.session), c);
    for (int i = 0; i < STEPS; i++)
        must(rig_step(&r, batch, n, &out->loss[i], &out->norm[i]), c);
    must(rig_flush(&r), c);
    must(rig_digest(&r, &out->digest), c);
    rig_stop(&r);
    for (int l = LANE_WORLD; l < LANES; l++)
        out->sent[l - LANE_WORLD] += comm_bytes_sent(comm, (enum lane)l).same_host;
    for (int i = 1; i < n; i++)
        sequence_free(&batch[i]);
}

static void run_on(const struct cell *c, int devices, const struct outcome *want)
{
    struct outcome have;
    char words[64], mesh[MESH_TEXT];
    snprintf(words, sizeof words, "seed=%d,devices=%d", 17 * ++runs + rank, devices);
    twin.configure(words);
    train(c, DEVICE_CUDA, &have);
    if (memcmp(want, &have, sizeof have) == 0 && !twin.left()[0])
        return;
    failures++;
    fprintf(stderr, "rank %d: not ok: %s, %s zero=%d %s offload %d, %d GPUs, %s: loss %.17g, not %.17g; left:%s\n", rank,
            strrchr(c->g.path, '/') + 1, mesh_format(&c->mesh, mesh), c->zero, dtype_name((enum dtype)c->dtype), c->offload,
            devices, words, have.loss[STEPS - 1], want->loss[STEPS - 1], twin.left());
}

static void run_cell(const struct cell *c, int carrier, int both, int orders)
{
    struct outcome want;
    must(comm_set_mesh(comm, &c->mesh), c);
    train(c, DEVICE_CPU_DISCRETE, &want);
    for (int o = 0; o < orders; o++)
        for (int devices = 1; devices <= size; devices += max_i64(1, size - 1))
            if (both || size == 1 || (devices == 1) == (carrier == 0))
                run_on(c, devices, &want);
    cells++;
}

/* Lists the mesh with dp alone, then the meshes that share a sequence. */
static int list_meshes(int heads, struct mesh *out)
{
    int n = 0;
    out[n++] = (struct mesh){{size, 1, 1}};
    for (int u = 1; u <= size && u <= heads && size > 1; u *= 2)
        out[n++] = (struct mesh){{1, u, size / u}};
    if (size == 4)
        out[n++] = (struct mesh){{2, 1, 2}};
    return n;
}

/* Runs a model with adapters on experts, which all ranks share out, with both carriers. */
static void share_experts_out(void)
{
    struct cell c = {
        .mesh = {{[MESH_DP] = size, 1, 1, [MESH_EP] = size}}, .zero = size - 1, .offload = 1, .dtype = size == 2 ? BF16 : F32};
    must(golden_open("lora-moe/mixtral", &c.g), NULL);
    run_cell(&c, 0, 1, 1);
    golden_close(&c.g);
}

int main(void)
{
    struct launch launch;
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        return 77;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    const int all = extent_is_long(), each = extent(6, 3, 3);
    for (int i = 0; i < KINDS; i++) {
        struct mesh mesh[8];
        const int n = list_meshes(kinds[i].heads, mesh), turn = i / each;
        struct cell c = {0};
        if (!all && i % each != size / 2)
            continue;
        must(golden_open(kinds[i].name, &c.g), NULL);
        for (int k = 0; k < n; k++) {
            if (!all && k != turn % n)
                continue;
            c.mesh = mesh[k];
            c.zero = (turn + k) % 4;
            c.offload = (turn + i) % 3;
            c.dtype = (turn / 2 + k) % 2 ? BF16 : F32;
            run_cell(&c, (turn + k) % 2, all, all || turn == 1 ? ORDERS : 1);
        }
        golden_close(&c.g);
    }
    if (size > 1)
        share_experts_out();
    if (comm_agree(comm, failures ? status_fail(ERR_CORRUPT, "bits differ") : OK) != OK)
        failures++;
    if (rank == 0)
        printf("%d ranks: %d cells, %d runs on GPUs, %d wrong\n", size, cells, runs, failures);
    comm_destroy(comm);
    return failures > 0;
}
