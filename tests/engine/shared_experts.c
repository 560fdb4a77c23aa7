/* Compares ranks that share experts out (ep), and ranks with slices of layers and whole experts (tp), with one rank alone, under
 * mpiexec: adapters on experts and on attention alone, quantised bases, biases, shared experts, bf16. Losses and gradient norms of
 * steps over one sequence for each rank, resident and all on nvme; between slices both have the same bits. */
#include "engine/golden.h"
#include "engine/rig.h"

#include "comm/launch.h"
#include "extent.h"
#include "model/config/config.h"
#include "settings/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, TOKENS = 71, MOST_RANKS = 4 };

static struct comm *comm;
static int rank, size, failures;

static void must(enum status st, const char *what)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s: %s\n", rank, size, what, status_message());
    comm_fail(comm, st, status_message());
    _exit(1);
}

static const struct tried {
    const char *model, *lora; /* lora: "": the whole model is trained */
    enum model_base base;
    enum dtype dtype;
    int heads; /* query and KV heads in place of the files', with initial values; 0: as in files, with their weights */
} cases[] = {
    {"experts/gpt_oss", "", BASE_STORED, F32},
    {"experts/gpt_oss", "r=4", BASE_STORED, F32},
    {"hybrid/nemotron-latent", "", BASE_STORED, F32},
    {"moe/qwen3-moe-latent", "", BASE_STORED, F32},
    {"experts/glm4_moe", "", BASE_STORED, F32, 4},
    {"moe/mixtral-aux", "", BASE_STORED, F32, 4},
    {"experts/qwen3_moe", "r=4", BASE_NF4, F32},
    {"moe/gpt-oss-mxfp4", "r=4", BASE_MXFP4, F32},
    {"experts/glm4_moe", "r=4,targets=q_proj,v_proj", BASE_INT8, F32},
    {"experts/gpt_oss", "r=4,targets=experts.down_proj", BASE_STORED, BF16},
    {"experts/granitemoe", "r=4", BASE_INT8, F32},
    {"experts/olmoe", "r=4,targets=experts.gate_up_proj", BASE_NF4_PLAIN, F32},
    {"experts/gpt_oss", "r=4", BASE_STORED, F32, 4},
    {"moe/gemma4-moe", "", BASE_STORED, F32, 4},
    {"moe/qwen2-moe", "", BASE_STORED, BF16, 4},
    {"experts/granitemoeshared", "r=4", BASE_INT8, F32, 4},
    {"experts/granitemoe", "r=4", BASE_NF4, F32, 32},
    {"moe/qwen3-moe-latent", "r=4", BASE_STORED, F32, 4},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Gives all layers a number of query and KV heads, and initial values so large that rounding hardly grows from step to step. */
static void set_heads(struct model_config *c, int heads)
{
    c->init_std = 0.1f;
    c->heads = c->kv_heads = heads;
    for (int i = 1; i <= MODEL_KINDS; i++)
        c->own[i].heads = c->own[i].kv_heads = c->own[i].heads > 0 ? heads : 0;
}

static enum status make_model(const struct tried *x, const char *path, struct model **out)
{
    struct model_config c;
    TRY(model_config_read(path, &c));
    c.positions = TOKENS;
    c.base = x->base;
    if (x->heads > 0)
        set_heads(&c, x->heads);
    if (x->lora[0])
        TRY(lora_parse("--lora", x->lora, &c.lora));
    TRY(model_create(&c, NULL, 0, out));
    return model_check_adapters(*out);
}

struct layout {
    struct mesh mesh;
    int zero, nvme;
};

static void settle(struct settings *s, const struct tried *x, const struct layout *l)
{
    s->plan.dtype = x->dtype;
    s->plan.threads = 1;
    s->plan.batch = s->plan.grad_accum = size;
    s->lr = x->lora[0] ? 1e-2 : 1e-3; /* adapters, whose B begins at zero, must come to something within the steps */
    if (!l)
        return;
    s->plan.mesh = l->mesh;
    s->plan.zero = l->zero;
    s->plan.grad_accum = size / l->mesh.degree[MESH_DP];
    if (l->nvme) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
        s->plan.device = DEVICE_CPU_DISCRETE;
        s->plan.alpha = 0;
    }
}

/* Trains STEPS steps on a sequence for each rank. l: NULL: this rank does so alone. values: losses and norms. */
static void train(const struct tried *x, const struct layout *l, double values[STEPS][2])
{
    struct rig r;
    char path[512];
    struct model *m;
    struct sequence batch[MOST_RANKS];
    snprintf(path, sizeof path, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), x->model);
    rig_defaults(&r, TOKENS);
    settle(&r.settings, x, l);
    if (l) {
        must(comm_set_mesh(comm, &l->mesh), "mesh");
        r.comm = comm;
    }
    must(make_model(x, path, &m), "model");
    must(rig_start(&r, m), x->model);
    must(x->heads > 0 ? session_initialise(r.session, 3) : session_load_adapted(r.session, path, NULL, 1), "load");
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < size; i++) {
            const int64_t documents[] = {19, 1 + i, 17, 0};
            sequence_random(&batch[i], TOKENS, m->config.vocab, (uint64_t)(5 + size * step + i), documents);
            for (int64_t t = 0; t < TOKENS && m->mask_window[0] > 0; t++)
                batch[i].lo[t] = (int32_t)max_i64(batch[i].lo[t], t - m->mask_window[0] + 1);
        }
        must(rig_step(&r, batch, size, &values[step][0], &values[step][1]), "step");
        for (int i = 0; i < size; i++)
            sequence_free(&batch[i]);
    }
    must(rig_flush(&r), "flush");
    rig_stop(&r);
}

static int near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b);
}

/* fp32: as far as golden data may be off, since sums over rows have another order; bf16: rows that travel are rounded on their way, and
 * Adam turns a small difference of a gradient near zero into one of the step. */
static void compare(const struct tried *x, const struct layout *l, double got[STEPS][2], double want[STEPS][2])
{
    const double of_loss = x->dtype == F32 ? GOLDEN_LOSS : 5e-3, of_norm = x->dtype == F32 ? GOLDEN_NORM : 5e-2;
    char mesh[MESH_TEXT];
    for (int step = 0; step < STEPS; step++) {
        if (near(got[step][0], want[step][0], of_loss) && near(got[step][1], want[step][1], of_norm))
            continue;
        failures++;
        fprintf(stderr, "rank %d: not ok: %s '%s' base %d %s zero=%d %s: step %d: loss %.9g, alone %.9g; norm %.9g, alone %.9g\n",
                rank, x->model, x->lora, (int)x->base, mesh_format(&l->mesh, mesh), l->zero, l->nvme ? "nvme" : "resident", step,
                got[step][0], want[step][0], got[step][1], want[step][1]);
    }
}

/* Tells whether a case is tried: sanitizers and more than two ranks get the first ones. */
static int n_tried(void)
{
    return extent(6, size > 2 ? 6 : CASES, CASES);
}

/* Returns the j-th of a case's two layouts. */
static struct layout layout_of(int i, int j)
{
    const struct tried *x = &cases[i];
    /* these have 6 experts */
    const int even = strcmp(x->model, "experts/glm4_moe") == 0 || strcmp(x->model, "hybrid/nemotron-latent") == 0 ||
                     strcmp(x->model, "moe/qwen3-moe-latent") == 0;
    const struct mesh shared[] = {{{[MESH_DP] = size, 1, 1, [MESH_EP] = even ? 2 : size}},
                                  {{[MESH_DP] = size / 2, 2, 1, [MESH_EP] = 2}}},
                      sliced[] = {
                          {{1, 1, 1, [MESH_TP] = size}}, {{1, size / 2, 1, [MESH_TP] = 2}}, {{size / 2, 1, 1, [MESH_TP] = 2}}};
    if (x->heads > 0)
        return (struct layout){sliced[(i + 2) % 3], (i + 1) % 4, j};
    return (struct layout){shared[j], (i + 3 * j) % 4, (i + j) % 2};
}

/* Compares a case's layouts with one rank alone, and, between slices, with each other bit for bit. */
static void try_case(int i, double want[STEPS][2])
{
    double got[2][STEPS][2];
    for (int j = 0; j < 2; j++) {
        const struct layout l = layout_of(i, j);
        train(&cases[i], &l, got[j]);
        compare(&cases[i], &l, got[j], want);
    }
    if (cases[i].heads > 0 && memcmp(got[0], got[1], sizeof got[0]) != 0) {
        failures++;
        fprintf(stderr, "rank %d: not ok: %s: placements differ\n", rank, cases[i].model);
    }
}

int main(void)
{
    static double want[CASES][STEPS][2];
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    for (int i = rank; i < n_tried(); i += size)
        train(&cases[i], NULL, want[i]);
    must(comm_sum(comm, &want[0][0][0], CASES * STEPS * 2), "results of one rank alone"); /* all but one are 0 */
    for (int i = 0; i < n_tried(); i++)
        try_case(i, want[i]);
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
