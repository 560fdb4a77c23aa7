/* Compares meshes of 1, 2, 4 and 8 ranks with golden data from PyTorch, under mpiexec. Covers learned positions in a table much
 * longer than the run, and every kind of layer under ulysses, ring and both, with one document and with several. Compares losses,
 * gradient norms and the parameters in use, resident and all on nvme. */
#include "engine/golden.h"
#include "engine/golden_pieces.h"
#include "engine/rig.h"

#include "comm/launch.h"
#include "extent.h"
#include "model/part.h"
#include "seqpar/seqpar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* nvme: everything on drives and computed again; keep_inputs: every how many layers keep their input then; 0: all. */
struct layout {
    struct mesh mesh;
    int zero, nvme, keep_inputs;
};

enum { LONG = 8192 }; /* tokens from which on two members have the balanced layout, also where states pass */

static void settle(struct settings *s, const struct golden *g, const struct layout *l)
{
    /* chunks that divide the pieces of all meshes: 28 and 56 tokens of 2 ranks, 16 and 28 of 4; of shorter sequences 20 and 36 */
    if (strstr(g->path, "/hybrid/")) {
        /* a convolution of 3 tokens: 14 and 28, 10 and 18; none: 14 and 28 */
        const int narrow = strstr(g->path, "lfm2") || strstr(g->path, "minimax");
        s->plan.row_chunk = g->seq_len >= LONG ? 256 : size == 2 && g->seq_len > 80 ? 14 : narrow ? 2 : 4;
        s->plan.loss_tile = g->seq_len >= LONG ? 256 : size == 2 && g->seq_len > 80 ? 7 : narrow ? 2 : 4;
    }
    if (strstr(g->path, "/latent/"))
        s->plan.head_tile = 1; /* gradients of latents are sums over tiles */
    s->plan.mesh = l->mesh;
    s->plan.zero = l->zero;
    s->plan.batch = l->mesh.degree[MESH_DP]; /* one sequence for one rank; the other data-parallel ranks have none */
    s->plan.threads = 1;
    if (l->nvme) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
        s->plan.device = DEVICE_CPU_DISCRETE;
        s->plan.alpha = 0;
        s->plan.keep_inputs = l->keep_inputs ? l->keep_inputs : 1;
    }
}

/* Returns the number of steps after which the file has parameters: 5, or 10 of adapters on experts. */
static int steps_of(const struct golden *g)
{
    for (int i = 0; i < st_count(g->file); i++)
        if (strncmp(st_name(g->file, i), "step5.", 6) == 0)
            return GOLDEN_STEPS;
    return 2 * GOLDEN_STEPS;
}

/* Returns the norm-wise difference over all ranks' pieces. */
static double difference_of(struct rig *r, const struct golden *g)
{
    char prefix[16];
    double *sums, both[2] = {0};
    snprintf(prefix, sizeof prefix, "step%d.", steps_of(g));
    must(golden_pieces(r, g->file, STATE_PARAM, prefix, &sums), "visit");
    for (int i = 0; i < 2 * r->model->n_params; i++)
        both[i % 2] += sums[i];
    free(sums);
    return sqrt(both[0] / both[1]);
}

static int near(double a, double b, double tolerance)
{
    return fabs(a - b) < tolerance * fabs(b);
}

static void start(struct rig *r, const struct golden *g, const struct layout *l)
{
    struct model *m;
    rig_defaults(r, g->seq_len);
    if (l) {
        must(comm_set_mesh(comm, &l->mesh), "mesh");
        settle(&r->settings, g, l);
        r->comm = comm;
    }
    must(golden_model(g, &m), "model");
    must(rig_start(r, m), "start");
    must(golden_load(g, r->session), "load");
}

static const char *describe(const struct golden *g, const struct layout *l, char text[160])
{
    char mesh[MESH_TEXT];
    snprintf(text, 160, "%.40s %s zero=%d %s", strrchr(g->path, '/') + 1, mesh_format(&l->mesh, mesh), l->zero,
             l->nvme ? "nvme" : "resident");
    return text;
}

static void check(const struct golden *g, const struct layout *l)
{
    struct rig r;
    char what[160];
    start(&r, g, l);
    describe(g, l, what);
    for (int step = 0, steps = steps_of(g); step < steps; step++) {
        double loss, norm;
        must(rig_step(&r, &g->sequence, 1, &loss, &norm), "step");
        if (step >= GOLDEN_STEPS || (near(loss, g->loss[step], GOLDEN_LOSS) && near(norm, g->norm[step], GOLDEN_NORM)))
            continue;
        failures++;
        fprintf(stderr, "rank %d: not ok: %s: step %d: loss %.9g, golden %.9g; norm %.9g, golden %.9g\n", rank, what, step, loss,
                g->loss[step], norm, g->norm[step]);
    }
    must(rig_flush(&r), "flush");
    double apart = difference_of(&r, g);
    if (!(apart < 1e-5)) {
        failures++;
        fprintf(stderr, "rank %d: not ok: %s: parameters differ by %g\n", rank, what, apart);
    }
    rig_stop(&r);
}

static void check_case(const char *name, const struct layout *layouts, size_t n)
{
    struct golden g;
    must(golden_open(name, &g), "golden data");
    for (size_t i = 0; i < n; i++)
        check(&g, &layouts[i]);
    golden_close(&g);
}

/* ---- every kind of layer, as the golden data have documents and otherwise ---- */

static const struct kind {
    const char *name;
    int heads;
    int everywhere; /* 1: tested under all meshes of two ranks even in a short run */
} kinds[] = {{"gpt2", 2},
             {"llama-gqa", 4},
             {"llama3-rope", 2},
             {"llama-yarn", 2},
             {"llama-dynamic", 2},
             {"mistral-window", 4},
             {"qwen3", 4},
             {"qwen3-windows", 2},
             {"smollm3", 2},
             {"granite", 2},
             {"phi3-long", 2},
             {"gemma2", 2},
             {"gemma3", 2},
             {"olmo2", 2},
             {"olmo3", 2},
             {"glm4", 4},
             {"starcoder2", 2},
             {"neox", 2},
             {"neox-sequential", 2},
             {"cohere", 4},
             {"cohere-norms", 4},
             {"qwen3_5", 4, 1},
             {"exaone4", 2},
             {"hunyuan", 4},
             {"cohere2", 2},
             {"gpt-oss", 4, 1},
             {"gpt-oss-one", 8},
             {"mistral3-wrapped", 2},
             {"gemma4", 4},
             {"gemma4-wrapped", 4},
             {"qwen3-layers", 2},
             {"lora-gqa", 4},
             {"lora-gpt2", 2},
             {"lora-neox", 2},
             {"lora-qwen3", 4},
             {"lora-qwen3_5", 4},
             {"qlora-gqa", 4, 1},
             {"int8-gqa", 4},
             {"lora-dropout", 4, 1},
             {"lora-dropout-gpt2", 2},
             {"lora-tied", 2},
             {"lora-phi3", 2},
             {"lora-ends", 2},
             {"lora-ends-tied", 2},
             {"nemotron", 2},
             {"olmo", 2},
             {"arcee", 2},
             {"vaultgemma", 2},
             {"seed-oss", 2},
             {"helium", 2},
             {"gemma", 2},
             {"falcon-groups", 4},
             {"gpt-bigcode", 2},
             {"gpt-neo", 2},
             {"hyperclovax", 2},
             {"granite-swa", 2},
             {"phi", 2},
             {"codegen", 2},
             {"opt", 2},
             {"moe/qwen3-moe", 2},
             {"moe/glm4-moe", 2, 1},
             {"moe/gpt-oss", 2, 1},
             {"moe/qwen2-moe", 2},
             {"moe/afmoe", 2},
             {"moe/gemma4-moe", 2, 1},
             {"moe/mixtral-aux", 2, 1},
             {"lora-moe/qwen3-moe", 2, 1},
             {"lora-moe/gpt-oss", 2},
             {"lora-moe/olmoe", 2, 1},
             {"hybrid/qwen3_5", 2, 1},
             {"hybrid/bamba", 2, 1},
             {"hybrid/nemotron-moe", 2},
             {"hybrid/lfm2", 2, 1},
             {"hybrid/lfm2-moe", 2},
             {"hybrid/olmo-hybrid", 2},
             {"hybrid/falcon-h1", 2},
             {"hybrid/kimi-linear", 2, 1},
             {"hybrid/minimax", 2, 1},
             {"latent/youtu", 2, 1},
             {"latent/deepseek-v3", 4},
             {"latent/lora", 2, 1},
             {"latent/qlora", 2, 1}};

enum { OTHER_STEPS = 2, N_KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* Makes one document if the golden data have several, else several. */
static void other_documents(const struct golden *g, const struct model *m, struct sequence *q)
{
    static const int64_t documents[] = {19, 1, 17, 0}, none[] = {0};
    int whole = 1;
    for (int64_t i = 1; i < g->seq_len; i++)
        whole &= g->sequence.positions[i] != 0;
    sequence_random(q, g->seq_len, m->config.vocab, 5, whole ? documents : none);
    for (int64_t i = 0; i < g->seq_len && m->mask_window[0] > 0; i++)
        q->lo[i] = (int32_t)max_i64(q->lo[i], i - m->mask_window[0] + 1);
}

/* Computes losses and gradient norms of steps on one rank. */
static void run_alone(const char *name, double want[OTHER_STEPS][2])
{
    struct rig r;
    struct golden g;
    struct sequence q;
    must(golden_open(name, &g), "golden data");
    start(&r, &g, NULL);
    other_documents(&g, r.model, &q);
    for (int step = 0; step < OTHER_STEPS; step++)
        must(rig_step(&r, &q, 1, &want[step][0], &want[step][1]), "step alone");
    must(rig_flush(&r), "flush alone");
    rig_stop(&r);
    sequence_free(&q);
    golden_close(&g);
}

static void check_other(const struct golden *g, const struct layout *l, double want[OTHER_STEPS][2])
{
    struct rig r;
    struct sequence q;
    char what[160];
    start(&r, g, l);
    other_documents(g, r.model, &q);
    describe(g, l, what);
    for (int step = 0; step < OTHER_STEPS; step++) {
        double loss, norm;
        must(rig_step(&r, &q, 1, &loss, &norm), "step");
        if (near(loss, want[step][0], GOLDEN_LOSS) && near(norm, want[step][1], GOLDEN_NORM))
            continue;
        failures++;
        fprintf(stderr, "rank %d: not ok: %s, other documents: step %d: loss %.9g, alone %.9g; norm %.9g, alone %.9g\n", rank,
                what, step, loss, want[step][0], norm, want[step][1]);
    }
    must(rig_flush(&r), "flush");
    rig_stop(&r);
    sequence_free(&q);
}

/* Lists the ways for these ranks to share a sequence among that many heads: by ulysses, by ring, and by both; eight also beside four
 * others. */
static int list_layouts(int heads, struct layout *out)
{
    int n = 0;
    for (int ulysses = 1; ulysses <= size && ulysses <= heads; ulysses *= 2)
        out[n++] = (struct layout){.mesh = {{1, ulysses, size / ulysses}}};
    if (size == 8 && heads > 1)
        out[n++] = (struct layout){.mesh = {{2, 2, 2}}};
    return n;
}

/* Tells whether the kind of layer is tested: the named one, or all; sanitizers get one in four, since kinds share code. */
static int is_tried(int kind, const char *only)
{
    return only ? strcmp(only, kinds[kind].name) == 0 : kind % extent(4, 1, 1) == 0;
}

/* Tells whether the kind of layer runs with other documents: on more than two ranks every other kind. */
static int has_others(int kind)
{
    return size == 2 || extent_is_long() || kind % 2 == 1;
}

/* Shares out the runs of one rank alone and gives their results to all ranks. */
static void run_all_alone(const char *only, double want[N_KINDS][OTHER_STEPS][2])
{
    for (int i = 0, next = 0; i < N_KINDS; i++)
        if (is_tried(i, only) && has_others(i) && next++ % size == rank)
            run_alone(kinds[i].name, want[i]);
    must(comm_sum(comm, &want[0][0][0], N_KINDS * OTHER_STEPS * 2), "results of one rank alone"); /* all but one are 0 */
}

/* Runs each kind of layer alternately under one mesh with the golden documents and under another mesh with other documents; on more
 * than two ranks with one of them. With LTRAIN_LONG=1 it runs each kind under all meshes, with both. */
static void check_kinds(const char *only)
{
    static double want[N_KINDS][OTHER_STEPS][2];
    const char *text = getenv("LTRAIN_LONG");
    int all = text && strcmp(text, "1") == 0;
    run_all_alone(only, want);
    for (int i = 0; i < N_KINDS; i++) {
        struct layout layouts[8];
        struct golden g;
        int n = list_layouts(kinds[i].heads, layouts);
        if (!is_tried(i, only))
            continue;
        must(golden_open(kinds[i].name, &g), "golden data");
        for (int j = 0; j < n; j++) {
            int turn = (i + j) % n, always = all || (kinds[i].everywhere && size == 2);
            layouts[j].zero = (i + j) % 4;
            layouts[j].nvme = (i + j) % 2;
            if (always || (turn == 0 && (size == 2 || !has_others(i))))
                check(&g, &layouts[j]);
            if (always || (turn == n - 1 && has_others(i)))
                check_other(&g, &layouts[j], want[i]);
        }
        golden_close(&g);
    }
}

/* ---- hybrids in the balanced layout ---- */

/* Makes documents of a token, of a few and longer than a rank's share. Makes sure that chunks lie elsewhere than in zigzag. */
static void long_documents(struct sequence *q, const struct mesh *mesh)
{
    static const int64_t documents[] = {1, 700, 30, 1, 1300, 0};
    const int ring = mesh->degree[MESH_RING], ulysses = mesh->degree[MESH_ULYSSES];
    struct seq_shape shape;
    struct seq_layout *zigzag, *balanced;
    int64_t moved = 0;
    sequence_random(q, LONG, 32, 5, documents);
    must(seq_shape_create_pieces(LONG, ulysses, ring, SEQ_AUTO, 3, 1, &shape), "shape");
    must(seq_layout_create(&shape, &zigzag), "layout");
    must(seq_layout_create(&shape, &balanced), "layout");
    must(seq_layout_assign(balanced, q->lo), "assignment");
    for (int64_t row = 0; row < seq_member_rows(&shape); row++)
        moved += seq_token_of(zigzag, 0, row) != seq_token_of(balanced, 0, row);
    if (ring > 1 && (shape.kind != SEQ_BALANCED || moved == 0)) {
        failures++;
        fprintf(stderr, "rank %d: not ok: the layout of %d tokens is zigzag's\n", rank, LONG);
    }
    seq_layout_destroy(zigzag);
    seq_layout_destroy(balanced);
}

/* Takes steps on long documents. l NULL: alone. */
static void take_long(struct golden *g, const struct layout *l, const struct mesh *mesh, double got[OTHER_STEPS][2])
{
    struct rig r;
    struct sequence q;
    g->seq_len = LONG;
    start(&r, g, l);
    long_documents(&q, mesh);
    for (int step = 0; step < OTHER_STEPS; step++)
        must(rig_step(&r, &q, 1, &got[step][0], &got[step][1]), "long step");
    must(rig_flush(&r), "long flush");
    rig_stop(&r);
    sequence_free(&q);
}

/* Runs a hybrid whose pieces are scattered: as alone, and with the same bits if layers are computed again from every third's input. */
static void check_balanced(void)
{
    const struct layout kept = {.mesh = {{1, size / 2, 2}}, .zero = 3}, again = {kept.mesh, 3, 1, 3};
    double alone[OTHER_STEPS][2] = {{0}}, values[2][OTHER_STEPS][2];
    struct golden g;
    char what[160];
    must(golden_open("hybrid/qwen3_5", &g), "golden data");
    if (rank == 0)
        take_long(&g, NULL, &kept.mesh, alone);
    must(comm_sum(comm, &alone[0][0], OTHER_STEPS * 2), "results of one rank alone"); /* all but one are 0 */
    take_long(&g, &kept, &kept.mesh, values[0]);
    take_long(&g, &again, &kept.mesh, values[1]);
    describe(&g, &kept, what);
    for (int i = 0; i < OTHER_STEPS; i++)
        if (!near(values[0][i][0], alone[i][0], GOLDEN_LOSS) || !near(values[0][i][1], alone[i][1], GOLDEN_NORM) ||
            memcmp(values[0][i], values[1][i], sizeof *values[0]) != 0) {
            failures++;
            fprintf(stderr,
                    "rank %d: not ok: %s, balanced: step %d: loss %.9g, again %.9g, alone %.9g; norm %.9g, again %.9g, "
                    "alone %.9g\n",
                    rank, what, i, values[0][i][0], values[1][i][0], alone[i][0], values[0][i][1], values[1][i][1], alone[i][1]);
        }
    golden_close(&g);
}

/* Latents around a ring have the same bits wherever they are kept and whatever is computed again. */
static void check_latents(void)
{
    double got[2][OTHER_STEPS][2];
    for (int i = 0; i < 2; i++) {
        const struct layout l = {.mesh = {{1, 1, size}}, .zero = 3, .nvme = i};
        struct rig r;
        struct golden g;
        struct sequence q;
        must(golden_open("latent/youtu", &g), "golden data");
        start(&r, &g, &l);
        other_documents(&g, r.model, &q);
        for (int step = 0; step < OTHER_STEPS; step++)
            must(rig_step(&r, &q, 1, &got[i][step][0], &got[i][step][1]), "step");
        must(rig_flush(&r), "flush");
        rig_stop(&r);
        sequence_free(&q);
        golden_close(&g);
    }
    if (memcmp(got[0], got[1], sizeof got[0]) == 0)
        return;
    failures++;
    fprintf(stderr, "rank %d: not ok: latents around a ring: norm %.17g on the device, %.17g from drives\n", rank,
            got[0][OTHER_STEPS - 1][1], got[1][OTHER_STEPS - 1][1]);
}

/* Runs models whose experts are shared out: by all ranks, or as many as divide the experts, each with sequences of its own; and by two
 * that share a sequence's heads or tokens. ZeRO stages and placements take turns. */
static void check_shared(void)
{
    static const char *const models[] = {"moe/glm4-moe", "moe/mixtral-aux", "moe/olmoe"};
    for (int i = 0; i < (int)(sizeof models / sizeof *models); i++) {
        struct golden g;
        must(golden_open(models[i], &g), "golden data");
        struct model *m;
        must(golden_model(&g, &m), "model");
        const int most = (int)gcd_i64(size, m->config.experts);
        const int side = model_aux(&m->config) > 0 ? 1 : size / 2; /* the balancing loss depends on the number of sequences */
        const struct layout layouts[] = {
            {.mesh = {{[MESH_DP] = side, 1, size / side, [MESH_EP] = most}}, .zero = i % 4, .nvme = i % 2},
            {.mesh = {{[MESH_DP] = side, 2, size / side / 2, [MESH_EP] = 2}}, .zero = (i + 1) % 4, .nvme = (i + 1) % 2},
            {.mesh = {{[MESH_DP] = 1, 1, size, [MESH_EP] = most}}, .zero = (i + 3) % 4, .nvme = i % 2}};
        for (int j = 0; j < 3; j++)
            check(&g, &layouts[j]);
        model_destroy(m);
        golden_close(&g);
    }
}

/* Runs every kind of layer that two slices divide, beside each other and beside ranks that share sequences, heads or tokens in turn;
 * on more than two ranks every other kind. ZeRO stages and placements take turns. */
static void check_slices(const char *only)
{
    static const struct mesh two[] = {{{1, 1, 1, 2}}}, four[] = {{{2, 1, 1, 2}}, {{1, 1, 2, 2}}, {{1, 2, 1, 2}}},
                             eight[] = {{{2, 1, 2, 2}}, {{1, 2, 2, 2}}};
    const struct mesh *meshes = size == 2 ? two : size == 4 ? four : eight;
    const int n = size == 2 ? 1 : size == 4 ? 3 : 2;
    int checked = 0;
    for (int i = 0; i < N_KINDS && size > 1; i++) {
        struct golden g;
        struct model *m;
        if (!is_tried(i, only) || (size > 2 && !only && !extent_is_long() && i % 2 == 1))
            continue;
        must(golden_open(kinds[i].name, &g), "golden data");
        must(golden_model(&g, &m), "model");
        struct layout l = {.mesh = meshes[checked % n], .zero = checked % 4, .nvme = checked / 4 % 2};
        if (kinds[i].heads < 2 * l.mesh.degree[MESH_ULYSSES])
            l.mesh = meshes[0];
        if (model_slices_check(m, 2) == OK) {
            check(&g, &l);
            checked++;
        }
        model_destroy(m);
        golden_close(&g);
    }
    if (!only && size > 1 && checked < extent(3, size > 2 ? 5 : 10, 10)) {
        failures++;
        fprintf(stderr, "rank %d: not ok: only %d kinds of layers were cut into slices\n", rank, checked);
    }
}

/* Runs all cases, the kind of layer that is named, all kinds in slices ("slices"), or the balanced layout ("balanced"). */
int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    static const struct layout alone[] = {{{{1, 1, 1}}, 0, 0}, {{{1, 1, 1}}, 3, 1}};
    static const struct layout four[] = {{{{4, 1, 1}}, 0, 0}, {{{2, 2, 1}}, 1, 1}, {{{1, 2, 2}}, 2, 0},
                                         {{{1, 2, 2}}, 3, 1}, {{{1, 1, 4}}, 3, 0}, {{{4, 1, 1}}, 3, 1}};
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    if (size == 1)
        check_case("gpt2-positions", alone, sizeof alone / sizeof *alone);
    if (size == 4 && !only)
        check_case("gpt2-positions", four, sizeof four / sizeof *four);
    const int sliced = only && strcmp(only, "slices") == 0;
    check_slices(sliced ? NULL : only);
    if (size > 1 && !sliced)
        check_kinds(only);
    if (size > 1 && !only)
        check_shared();
    if (size > 1 && (!only || strcmp(only, "latents") == 0))
        check_latents();
    const int scattered = only && strcmp(only, "balanced") == 0;
    if ((scattered || !only) && (size == 2 || (size == 4 && (scattered || extent_is_long()))) && extent(0, 1, 1))
        check_balanced();
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
