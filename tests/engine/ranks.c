/* Tests rank invariance, under mpiexec: every mesh, ZeRO stage, placement and kind of data trains as one rank does.
 *
 * Usage: `ranks [product|edges | PART PARTS]`. `product` leaves out the edge cases and the balanced layout; `edges` runs only
 * these. LTRAIN_LONG runs the full product on at most two ranks, all triples of levels on four, all pairs on more. PART and PARTS
 * run every PARTS-th cell of the full product from the PART-th on, on any number of ranks.
 *
 * First the ranks share out the runs of one rank alone, all resident, one for each kind of data. The curves of all cells are
 * compared with these. */
#include "engine/rig.h"

#include "comm/launch.h"
#include "extent.h"
#include "plan/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { S = 150, STEPS = 20, BATCH = 2 };

enum data { DATA_PACKED, DATA_ONE, DATA_WINDOW, DATA_KINDS };
static const char *const DATA_NAMES[] = {"packed", "one document", "window"};

struct mesh_cell {
    struct mesh mesh;
    int zero, nvme, data;
    enum dtype dtype;
    int64_t tokens;       /* length of a sequence; 0: the default S */
    int seven;            /* 1: 7 query heads and 1 KV head, which only the ulysses degree 7 divides */
    enum model_base base; /* format of a frozen base beside adapters; BASE_STORED: all is trained */
    int steps;            /* number of steps; 0: as steps_of says */
    int packed;           /* 1: the step's sequences are one micro-batch */
};

static struct comm *comm;
static int rank, size, failures;
static double worst[2][2]; /* largest relative differences: [fp32, bf16][loss, gradient norm] */

static int steps_of(const struct mesh_cell *c)
{
    return c->steps ? c->steps : extent(3, 5, STEPS);
}

static void complain(const struct mesh_cell *c, const char *what, int step, double a, double b)
{
    char mesh[MESH_TEXT];
    failures++;
    if (rank == 0)
        printf("not ok: %d ranks %s zero=%d %s %s %s: %s of step %d is %.9g, alone %.9g\n", size, mesh_format(&c->mesh, mesh),
               c->zero, c->nvme ? "nvme" : "resident", DATA_NAMES[c->data], dtype_name(c->dtype), what, step, a, b);
}

/* Packed data: one-token documents, documents that end where ranks meet, and a document to the end. The 150 tokens are 75 a rank
 * with ulysses=2. Padded to 152 and cut into 4, 8 or 16 chunks they meet at 38, 76, 114, 19, ... */
static void make_data(struct sequence *q, int64_t n, enum data kind, uint64_t seed)
{
    static const int64_t documents[] = {1, 1, 17, 19, 37, 1, 38, 0}; /* documents end at tokens 1, 2, 19, 38, 75, 76, 114 */
    sequence_random(q, n, 96, seed, kind == DATA_PACKED && n >= S ? documents : NULL);
    for (int64_t i = 0; i < n && kind == DATA_WINDOW; i++)
        q->lo[i] = (int32_t)max_i64(q->lo[i], i - 40);
}

struct trajectory {
    double loss[STEPS], norm[STEPS];
};

static void settle(struct rig *r, const struct mesh_cell *c)
{
    struct settings *s = &r->settings;
    rig_defaults(r, c->tokens ? c->tokens : S);
    s->plan.mesh = c->mesh;
    s->plan.zero = c->zero;
    s->plan.dtype = s->plan.optim_dtype = c->dtype;
    s->plan.micro_batch = c->packed ? BATCH : 1;
    s->plan.grad_accum = ceil_div(BATCH, s->plan.mesh.degree[MESH_DP] * s->plan.micro_batch);
    s->plan.batch = BATCH;
    s->plan.row_chunk = 32;
    s->lr = 1e-2;
    s->plan.threads = 1;
    if (c->nvme) {
        /* each placement of passing values occurs at some ZeRO stage */
        static const enum offload passing[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_NVME;
        s->plan.passing = passing[c->zero % 3];
        s->plan.alpha = 0;
        s->plan.device = DEVICE_CPU_DISCRETE;
    }
}

/* Creates a model with adapters beside a quantised base, of which half of any map's inputs are whole blocks of NF4. */
static enum status make_quantised(enum model_base base, struct model **out)
{
    struct model_config config = {.family = FAMILY_LLAMA,
                                  .name = "quantised",
                                  .vocab = 96,
                                  .dim = 64,
                                  .ffn = 128,
                                  .layers = 2,
                                  .heads = 8,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .max_positions = 4096,
                                  .norm_eps = 1e-5f,
                                  .init_std = 0.1f,
                                  .rope_theta = 10000,
                                  .base = base};
    TRY(lora_parse("ranks", "r=4", &config.lora));
    return model_create(&config, NULL, 0, out);
}

static enum status make_model(const struct mesh_cell *c, struct model **out)
{
    struct model_config config = {.family = FAMILY_LLAMA,
                                  .vocab = 96,
                                  .dim = 112,
                                  .ffn = 64,
                                  .layers = 1,
                                  .heads = 7,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .max_positions = 4096,
                                  .norm_eps = 1e-5f,
                                  .init_std = 0.1f,
                                  .rope_theta = 10000};
    strcpy(config.name, "seven");
    if (c->base != BASE_STORED)
        return make_quantised(c->base, out);
    return c->seven ? model_create(&config, NULL, 0, out) : cell_model(FAMILY_LLAMA, 2, out);
}

static int train(const struct mesh_cell *c, struct comm *on, struct trajectory *out)
{
    struct rig r;
    struct model *m;
    struct sequence batch[BATCH];
    settle(&r, c);
    r.comm = on;
    for (int i = 0; i < BATCH; i++)
        make_data(&batch[i], r.settings.plan.seq_len, (enum data)c->data, 11 + (uint64_t)i);
    int bad = make_model(c, &m) != OK || rig_start(&r, m) != OK || session_initialise(r.session, 3) != OK;
    for (int i = 0; i < steps_of(c) && !bad; i++)
        bad = rig_step(&r, batch, BATCH, &out->loss[i], &out->norm[i]) != OK;
    if (bad)
        fprintf(stderr, "rank %d: %s\n", rank, status_message());
    rig_stop(&r);
    for (int i = 0; i < BATCH; i++)
        sequence_free(&batch[i]);
    return bad;
}

/* Trains each of the n cells on one rank alone, all at once on different ranks, and hands the results to every rank. */
static void train_alone(const struct mesh_cell *c, int n, struct trajectory *out)
{
    enum status st = OK;
    for (int i = rank; i < n && st == OK; i += size)
        st = train(&c[i], NULL, &out[i]) ? ERR_CORRUPT : OK;
    if (comm_agree(comm, st) != OK)
        exit(1);
    for (int i = 0; i < n; i++)
        if (comm_broadcast(comm, i % size, &out[i], sizeof out[i]) != OK)
            exit(1);
}

/* Tells whether a and b differ by more than the tolerance, relative to b, or to `scale` if given. Records the largest difference. */
static int differs(const struct mesh_cell *c, int what, double a, double b, double scale, double tolerance)
{
    double d = fabs(a - b) / fabs(scale > 0 ? scale : b), *most = &worst[c->dtype == BF16][what];
    *most = fmax(*most, d);
    return !(d <= tolerance);
}

/* Compares a cell with one rank alone. In fp32 each loss may differ by about 1e-5 of its value, since sums are made in another
 * order through 20 steps. In bf16 the trajectories drift apart, so a loss may differ by 2^-8, one rounding, of the first loss
 * (the last losses are near zero).
 *
 * The gradient norm is compared in the first step only, where both sides have equal parameters. */
static void compare(const struct mesh_cell *c, const struct trajectory *got, const struct trajectory *alone)
{
    double tolerance = c->dtype == F32 ? 1e-5 : 1.0 / 256, scale = c->dtype == F32 ? 0 : alone->loss[0];
    if (differs(c, 1, got->norm[0], alone->norm[0], 0, tolerance))
        complain(c, "gradient norm", 0, got->norm[0], alone->norm[0]);
    for (int i = 0; i < steps_of(c); i++)
        if (differs(c, 0, got->loss[i], alone->loss[i], scale, tolerance)) {
            complain(c, "loss", i, got->loss[i], alone->loss[i]);
            return;
        }
}

/* Trains a cell, compares it with one rank alone, and returns its course. */
static struct trajectory run_cell(const struct mesh_cell *c, const struct trajectory *alone, int twice)
{
    struct trajectory first = {0}, again = {0};
    if (comm_set_mesh(comm, &c->mesh) != OK || train(c, comm, &first)) {
        fprintf(stderr, "rank %d: %s\n", rank, status_message());
        comm_fail(comm, ERR_CORRUPT, status_message());
        exit(1);
    }
    compare(c, &first, alone);
    if (twice) {
        if (train(c, comm, &again))
            exit(1);
        if (memcmp(&first, &again, sizeof first) != 0)
            complain(c, "second run", 0, again.loss[steps_of(c) - 1], first.loss[steps_of(c) - 1]);
    }
    return first;
}

/* Tests sequences so short that whole ranks hold nothing but padding, and heads that only a ring can share. By default it uses
 * the meshes that share every sequence among all. */
static int edges(const struct mesh *mesh, int n)
{
    const struct mesh_cell single[] = {{.mesh = {{1, 1, 1}}, .zero = 3, .data = DATA_ONE, .tokens = 5},
                                       {.mesh = {{1, 1, 1}}, .zero = 3, .data = DATA_ONE, .seven = 1}};
    struct trajectory alone[2];
    int cells = 0;
    train_alone(single, 2, alone);
    for (int seven = 0; seven < 2; seven++) {
        struct mesh_cell c = single[seven];
        for (int i = 0; i < n; i++) {
            c.mesh = mesh[i];
            if ((seven && mesh[i].degree[MESH_ULYSSES] > 1) || (!extent_is_long() && size >= 4 && mesh[i].degree[MESH_DP] > 1))
                continue;
            run_cell(&c, &alone[seven], 0);
            cells++;
        }
    }
    return cells;
}

/* Tests sequences long enough for the balanced layout. Its chunks are not those of zigzag where documents or a window leave pairs
 * out. */
static int balanced(const struct mesh *mesh, int n)
{
    const struct mesh_cell single[] = {{.mesh = {{1, 1, 1}}, .data = DATA_PACKED, .tokens = 1100, .steps = 3},
                                       {.mesh = {{1, 1, 1}}, .data = DATA_WINDOW, .tokens = 1100, .steps = 3}};
    struct trajectory alone[2];
    int cells = 0;
    if (size < 2 || size > 4)
        return 0;
    train_alone(single, 2, alone);
    for (int k = 0; k < 2; k++) {
        struct mesh_cell c = single[k];
        c.zero = 3;
        for (int i = 0; i < n; i++) {
            c.mesh = mesh[i];
            if (mesh[i].degree[MESH_RING] == 1 || mesh[i].degree[MESH_DP] > 1)
                continue;
            run_cell(&c, &alone[k], 0);
            cells++;
        }
    }
    return cells;
}

/* Lists all meshes with dp x ulysses x ring = ranks and ulysses <= 4 (there are 4 heads on 2). */
static int meshes(struct mesh out[32])
{
    int n = 0;
    for (int u = 1; u <= 4; u *= 2)
        for (int r = 1; r * u <= size; r++)
            if (size % (u * r) == 0)
                out[n++] = (struct mesh){{size / (u * r), u, r}};
    return n;
}

/* Trains a cell as one rank alone and, with everything on nvme and nothing kept, bit for bit as resident. Returns the number of runs. */
static int run_both(const struct mesh_cell *c, const struct trajectory *alone)
{
    struct trajectory away = {0};
    struct mesh_cell there = *c;
    const struct trajectory resident = run_cell(c, alone, 0);
    there.nvme = 1;
    if (train(&there, comm, &away))
        exit(1);
    if (memcmp(&resident, &away, sizeof away) != 0)
        complain(&there, "another placement's loss", steps_of(c) - 1, away.loss[steps_of(c) - 1], resident.loss[steps_of(c) - 1]);
    return 2;
}

/* Tests slices of quantised matrices, which keep the numbers that the whole ones have, at two ranks. */
static int quantised(void)
{
    struct mesh_cell cells[] = {{.mesh = {{1, 1, 1}}, .data = DATA_PACKED, .base = BASE_NF4, .steps = 3},
                                {.mesh = {{1, 1, 1}}, .data = DATA_PACKED, .base = BASE_INT8, .steps = 3}};
    struct trajectory alone[2];
    int n = 0;
    if (size != 2)
        return 0;
    train_alone(cells, 2, alone);
    for (int i = 0; i < 2; i++) {
        cells[i].mesh.degree[MESH_TP] = 2;
        cells[i].zero = 3;
        n += run_both(&cells[i], &alone[i]);
    }
    return n;
}

/* Tests pairs of ranks with a slice of the layers each, beside every mesh of half as many ranks: as one rank alone and, with everything
 * on nvme and nothing kept, bit for bit as resident. */
static int sliced(const struct trajectory *alone)
{
    struct mesh mesh[32];
    int cells = 0;
    if (size < 2)
        return 0;
    size /= 2;
    const int n = meshes(mesh);
    size *= 2;
    for (int i = 0; i < n; i++)
        for (int zero = 0; zero < 4; zero++) {
            struct mesh_cell c = {.mesh = mesh[i], .zero = zero, .data = (i + zero) % DATA_KINDS, .steps = 3};
            if (c.mesh.degree[MESH_ULYSSES] > 2 || (!extent_is_long() && size >= 4 && zero != i % 4))
                continue;
            c.mesh.degree[MESH_TP] = 2;
            cells += run_both(&c, &alone[c.data]);
        }
    return cells;
}

/* Tests both sequences as one micro-batch on every mesh that shares them among all ranks: as one rank alone that takes one after the
 * other and, with everything on nvme and nothing kept, bit for bit as resident. */
static int packed(const struct trajectory *alone, const struct mesh *mesh, int n)
{
    int cells = 0;
    for (int i = 0; i < n; i++) {
        struct mesh_cell c = {.mesh = mesh[i], .zero = size > 1 ? 3 : 0, .data = i % DATA_KINDS, .steps = 3, .packed = 1};
        if (c.mesh.degree[MESH_DP] == 1)
            cells += run_both(&c, &alone[c.data]);
    }
    return cells;
}

/* --- Choice of cells --- */

enum factor_of_ranks { F_MESH, F_ZERO, F_NVME, F_DATA, F_LOW, N_FACTORS };
enum { MAX_LEVELS = 32, MAX_CELLS = 32 * 48 };

/* Tells whether a pair of factors must be covered. Four and eight ranks share few cores: they run every mesh in fp32. Four ranks
 * add all pairs of the other factors; eight ranks, and sanitizers, only the pairs with the placement. */
static int wanted(int f, int g, int level_of_g)
{
    const int all = size < 8 && !EXTENT_SANITIZED;
    if (extent_is_long())
        return 1;
    if (f == F_MESH)
        return (all && size < 4) || (g == F_LOW && level_of_g == 0);
    return all || g == F_NVME || (f == F_NVME && (g == F_DATA || size < 8));
}

static int gain(const int *cell, char seen[N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS], int mark)
{
    int n = 0;
    for (int f = 0; f < N_FACTORS; f++)
        for (int g = f + 1; g < N_FACTORS; g++)
            if (wanted(f, g, cell[g]) && !seen[f][cell[f]][g][cell[g]]) {
                n++;
                seen[f][cell[f]][g][cell[g]] |= (char)mark;
            }
    return n;
}

/* Counts the triples of levels that a cell has and no chosen cell has. */
static int gain_of_triples(const int *cell, char seen[N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS],
                           int mark)
{
    int n = 0;
    for (int f = 0; f < N_FACTORS; f++)
        for (int g = f + 1; g < N_FACTORS; g++)
            for (int h = g + 1; h < N_FACTORS; h++) {
                char *was = &seen[f][cell[f]][g][cell[g]][h][cell[h]];
                n += !*was;
                *was |= (char)mark;
            }
    return n;
}

static int gain_here(const int *cell, int mark)
{
    static char pairs[N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS];
    static char triples[N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS][N_FACTORS][MAX_LEVELS];
    return extent_is_long() && size < 8 ? gain_of_triples(cell, triples, mark) : gain(cell, pairs, mark);
}

/* Chooses cells that cover all pairs of levels, or all triples: greedily, each time the cell with most of the missing ones.
 * Chooses all cells if `everything`. */
static int choose(int everything, int n_meshes, int (*chosen)[N_FACTORS])
{
    static int product[MAX_CELLS][N_FACTORS];
    const int levels[N_FACTORS] = {n_meshes, 4, 2, DATA_KINDS, 2};
    int n = n_meshes * 4 * 2 * DATA_KINDS * 2, n_chosen = 0;
    for (int i = 0; i < n; i++)
        for (int f = N_FACTORS - 1, rest = i; f >= 0; rest /= levels[f--])
            product[i][f] = rest % levels[f];
    if (everything) {
        memcpy(chosen, product, sizeof *chosen * (size_t)n);
        return n;
    }
    for (;;) {
        int from = 59 * n_chosen % n, best = from; /* spreads ties over the meshes */
        for (int i = 1; i < n; i++)
            if (gain_here(product[(from + i) % n], 0) > gain_here(product[best], 0))
                best = (from + i) % n;
        if (gain_here(product[best], 1) == 0)
            return n_chosen;
        memcpy(chosen[n_chosen++], product[best], sizeof *chosen);
    }
}

int main(int argc, char **argv)
{
    static int chosen[MAX_CELLS][N_FACTORS];
    int cells = 0;
    int part = argc == 3 ? atoi(argv[1]) : 0, parts = argc == 3 ? atoi(argv[2]) : 1;
    struct launch launch;
    struct mesh_cell single[2 * DATA_KINDS] = {0};
    struct trajectory alone[2 * DATA_KINDS]; /* fp32, then bf16 */
    struct mesh mesh[MAX_LEVELS];
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    for (int i = 0; i < 2 * DATA_KINDS; i++)
        single[i] = (struct mesh_cell){.mesh = {{1, 1, 1}}, .data = i % DATA_KINDS, .dtype = i < DATA_KINDS ? F32 : BF16};
    const char *only = argc == 2 ? argv[1] : "";
    int n_meshes = meshes(mesh), n = 0;
    if (strcmp(only, "edges") != 0) {
        train_alone(single, 2 * DATA_KINDS, alone);
        n = choose(argc == 3 || (extent_is_long() && size <= 2), n_meshes, chosen);
    }
    for (int i = part; i < n; i += parts) {
        const int *level = chosen[i];
        struct mesh_cell c = {mesh[level[F_MESH]], level[F_ZERO], level[F_NVME], level[F_DATA], level[F_LOW] ? BF16 : F32};
        run_cell(&c, &alone[level[F_LOW] * DATA_KINDS + level[F_DATA]], i % extent(8, 4, 1) == 0);
        cells++;
    }
    if (part == 0 && strcmp(only, "edges") != 0)
        cells += sliced(alone) + quantised() + packed(alone, mesh, n_meshes);
    if (part == 0 && strcmp(only, "product") != 0)
        cells += edges(mesh, n_meshes) + balanced(mesh, n_meshes);
    if (rank == 0)
        printf("%d ranks: %d cells, %d differ; at most, losses and first gradient norm: fp32 %.1e %.1e, bf16 %.1e %.1e\n", size,
               cells, failures, worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
    comm_destroy(comm);
    return failures > 0;
}
