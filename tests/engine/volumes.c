/* Compares bytes sent with the formulas, under mpiexec: on every rank, mesh, ZeRO stage and kind of data the counters of steady
 * steps are equal to the byte.
 *
 * LTRAIN_LONG runs the full product. Rank 0 prints a line per cell: the bytes that all ranks send in one step. */
#include "engine/rig.h"

#include "comm/launch.h"
#include "extent.h"
#include "plan/lower/heads.h"
#include "plan/cells.h"
#include "seqpar/volumes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, BATCH = 3, STEADY = 2, LANES_HERE = LANES - LANE_WORLD, MAX_TOKENS = 1200 };

enum data { DATA_PACKED, DATA_ONE, DATA_WINDOW, DATA_KINDS };
static const char *const DATA_NAMES[] = {"packed", "one document", "window"};

struct cell_of_ranks {
    struct mesh mesh;
    int zero, data;
    const char *golden; /* model of golden data; NULL: a Llama */
    enum dtype dtype, wire;
    int64_t seq_len;
    double alpha;
};

static struct comm *comm;
static int rank, size, failures;

/* --- Formulas for one step on this rank --- */

struct expected {
    int64_t lane[LANES_HERE]; /* bytes on each lane; world: parameters and gradients */
    int64_t small;            /* small messages on world's lane: sums of squares, losses */
    int64_t ring_unpruned;
};

static int slices(const struct cell_of_ranks *c)
{
    return mesh_degree(&c->mesh, MESH_TP);
}

static int64_t attention_layers(const struct model *m)
{
    int64_t n = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        n += model_attention(m, l) != NULL;
    return n;
}

static int64_t micro_batches(const struct cell_of_ranks *c)
{
    return ceil_div(BATCH, c->mesh.degree[MESH_DP]);
}

/* Adds the ring's bytes for one sequence: none (an empty micro-batch) if q is NULL. */
static void expect_ring(const struct cell_of_ranks *c, const struct seq_shape *shape, const struct seq_heads *heads,
                        const struct sequence *q, struct expected *e)
{
    static int32_t memory[4][MAX_TOKENS];
    const struct seq_tokens t = {memory[0], memory[1], memory[2], memory[3]};
    uint8_t needs[64];
    struct seq_layout *layout;
    if (q)
        memcpy(t.lo, q->lo, (size_t)c->seq_len * 4);
    seq_pad(q ? c->seq_len : 0, shape->padded, &t);
    if (seq_layout_create(shape, &layout) != OK || seq_layout_assign(layout, t.lo) != OK)
        exit(1);
    seq_needs(layout, t.lo, needs);
    struct seq_volume v = seq_volume_pruned(shape, heads, SEQ_RESEND_QKV, needs, comm_member(comm, LANE_RING));
    struct seq_volume all = seq_volume(shape, heads, SEQ_RESEND_QKV);
    e->lane[LANE_RING - LANE_WORLD] += heads->layers * (v.ring_forward + v.ring_backward);
    e->ring_unpruned += heads->layers * (all.ring_forward + all.ring_backward);
    seq_layout_destroy(layout);
}

/* Ranks that share elements: the members of a lane, and the rank's index among them. small: bytes of a sum of squares that the rank
 * sends, and the lane it sends them on. */
struct sharers {
    enum lane lane;
    int members, member, zero, small;
    enum lane small_lane;
};

/* Adds the bytes of elements [0, n) of a unit, all with the same decay and the same sharers, group by group. once: the unit is used,
 * and so gathered, once in a micro-batch, as embedding and head are. */
static void expect_groups(const struct cell_of_ranks *c, const struct settings *s, int64_t n, int once, const struct sharers *x,
                          struct expected *e)
{
    int64_t micro = micro_batches(c), b = dtype_size(c->dtype), wire = dtype_size(c->wire);
    for (int64_t at = 0; at < n; at += s->plan.group) {
        int64_t g = min_i64(s->plan.group, n - at), share = ceil_div(g, x->members),
                own = min_i64(max_i64(g - x->member * share, 0), share);
        int64_t bytes = seq_zero_bytes(x->zero, g, x->members, x->member, (int)micro, b, wire);
        if (x->zero == 3 && once)
            bytes -= micro * own * (x->members - 1) * b;
        e->lane[x->lane - LANE_WORLD] += bytes;
        *(x->small_lane == LANE_WORLD ? &e->small : &e->lane[x->small_lane - LANE_WORLD]) += x->small;
    }
}

/* Adds the bytes of a layer in slices: matrices are shared by the ranks with the same slice, norms by all ranks. */
static void expect_slices(const struct cell_of_ranks *c, const struct settings *s, const struct model_unit *u, struct expected *e)
{
    const int tp = slices(c), same = size / tp, zero = same > 1 ? c->zero : 0, world = c->zero > 0;
    const struct sharers sliced =
                             {LANE_ZERO, same, rank / tp, zero, 8 * (world ? size - 1 : tp - 1), world ? LANE_WORLD : LANE_TP},
                         all = {LANE_WORLD, size, rank, zero, zero > 0 ? 8 * (size - 1) : 0, LANE_WORLD};
    expect_groups(c, s, u->decay_elements / tp, 0, &sliced, e);
    expect_groups(c, s, u->elements - u->decay_elements, 0, &all, e);
}

/* Adds the bytes of rows that slices gather and sum, in each layer and micro-batch. A chunk of which nothing is kept is normalised
 * again for attention's tiles, and so is the sum between attention and MLP. */
static void expect_rows(const struct cell_of_ranks *c, const struct strategy *s, const struct model *m, struct expected *e)
{
    const struct attention_shape slice = {m->config.heads / slices(c), m->config.kv_heads / slices(c), m->config.head_dim};
    const int64_t tiles = heads_cut(&slice, &s->key.mesh, s->key.head_tile).n_q, dim = m->config.dim, tp = slices(c);
    int64_t gathers = 0, sums = 0; /* rows */
    for (int64_t first = 0, k = 0; first < s->rows && tp > 1; first += s->key.row_chunk, k++) {
        const int64_t share = min_i64(s->key.row_chunk, s->rows - first) / tp;
        const int again = k >= s->placement.kept_chunks;
        gathers += share * (tiles * (1 + again) + 5);
        sums += share * (4 + again);
    }
    e->lane[LANE_TP - LANE_WORLD] +=
        micro_batches(c) * LAYERS * (tp - 1) * dim * (gathers * dtype_size(c->dtype) + sums * dtype_size(c->wire));
}

/* Adds the bytes of states that pass between the ranks of one sequence. */
static void expect_states(const struct cell_of_ranks *c, const struct seq_shape *shape, const struct model *m, struct expected *e)
{
    const struct recurrent_block *r = &model_find_block(&m->layers[0], BLOCK_RECURRENT)->recurrent;
    const struct seq_states x = {r->heads, r->key_dim, r->value_dim, (r->width - 1) * r->channels, dtype_size(c->dtype)};
    const struct seq_state_volume v = seq_state_volume(shape, &x);
    const enum lane lane = shape->ring == 1 ? LANE_ULYSSES : shape->ulysses == 1 ? LANE_RING : LANE_WORLD;
    e->lane[lane - LANE_WORLD] += micro_batches(c) * (m->config.layers - 1) * (v.forward + v.backward);
}

static void expect(const struct cell_of_ranks *c, const struct settings *s, const struct strategy *st, const struct model *m,
                   const struct sequence *batch, struct expected *e)
{
    struct seq_shape shape;
    const struct attention_shape *x = &m->shapes[0];
    const int64_t layers = attention_layers(m);
    const struct seq_heads heads = {.heads = x->heads / slices(c),
                                    .kv_heads = x->kv_heads / slices(c),
                                    .head_dim = x->head_dim,
                                    .storage_bytes = dtype_size(c->dtype),
                                    .layers = layers,
                                    .value_dim = x->value_dim,
                                    .latent = x->kv_latent > 0 ? x->kv_latent + x->rotated : 0};
    const struct sharers all = {LANE_WORLD, size, rank, c->zero, c->zero > 0 ? 8 * (size - 1) : 0, LANE_WORLD};
    int64_t micro = micro_batches(c), d = rank / mesh_sharing(&c->mesh);
    memset(e, 0, sizeof *e);
    if (seq_shape_create_pieces(c->seq_len, c->mesh.degree[MESH_ULYSSES], c->mesh.degree[MESH_RING], SEQ_AUTO,
                                model_least_piece(m), slices(c), &shape) != OK ||
        shape.padded > MAX_TOKENS)
        exit(1);
    struct seq_volume v = seq_volume(&shape, &heads, SEQ_RESEND_QKV);
    e->lane[LANE_ULYSSES - LANE_WORLD] = micro * heads.layers * (v.all_to_all_forward + v.all_to_all_backward);
    if (model_find_block(&m->layers[0], BLOCK_RECURRENT))
        expect_states(c, &shape, m, e);
    for (int64_t i = 0; i < micro; i++)
        expect_ring(c, &shape, &heads, i * c->mesh.degree[MESH_DP] + d < BATCH ? &batch[i * c->mesh.degree[MESH_DP] + d] : NULL,
                    e);
    for (int u = 0; u < m->n_units; u++) {
        int once = !model_unit_in_layer(m, u);
        /* if state is sharded, elements with and without weight decay are in different groups */
        int64_t decay = c->zero > 0 ? m->units[u].decay_elements : 0;
        if (slices(c) > 1 && !once) {
            expect_slices(c, s, &m->units[u], e);
            continue;
        }
        expect_groups(c, s, decay, once, &all, e);
        expect_groups(c, s, m->units[u].elements - decay, once, &all, e);
    }
    expect_rows(c, st, m, e);
    int64_t loss_tiles = ceil_div(seq_rank_rows(&shape) / slices(c), s->plan.loss_tile);
    e->small += micro * (size - 1) * loss_tiles * 8;
}

/* Returns ZeRO-3's bytes by a simple count: every rank receives all parameters twice and sends all gradients once. Parameters
 * that are used once are received once. */
static int64_t three_times_parameters(const struct cell_of_ranks *c, const struct model *m)
{
    int64_t sum = 0, b = dtype_size(c->dtype), wire = dtype_size(c->wire);
    for (int u = 0; u < m->n_units; u++)
        sum += m->units[u].elements * ((model_unit_in_layer(m, u) ? 2 : 1) * b + wire);
    return sum * micro_batches(c) * (size - 1);
}

/* --- Bytes sent --- */

static void read_counters(int64_t sent[LANES_HERE])
{
    for (int l = 0; l < LANES_HERE; l++) {
        struct comm_traffic t = comm_bytes_sent(comm, (enum lane)(LANE_WORLD + l));
        sent[l] = t.same_host;
        if (t.other_hosts != 0) {
            failures++;
            fprintf(stderr, "rank %d: %" PRId64 " bytes to other hosts, of which there are none\n", rank, t.other_hosts);
        }
    }
}

static void cell_print(const struct cell_of_ranks *c, FILE *f)
{
    char mesh[MESH_TEXT];
    fprintf(f, "%d ranks %s zero=%d %s of %" PRId64 " tokens %s grads %s", size, mesh_format(&c->mesh, mesh), c->zero,
            DATA_NAMES[c->data], c->seq_len, dtype_name(c->dtype), dtype_name(c->wire));
}

static void compare(const struct cell_of_ranks *c, const char *what, int step, int64_t sent, int64_t formula)
{
    if (sent == formula)
        return;
    failures++;
    fprintf(stderr, "not ok: rank %d: ", rank);
    cell_print(c, stderr);
    fprintf(stderr, ": steady step %d sends %" PRId64 " bytes %s, by formula %" PRId64 "\n", step, sent, what, formula);
}

/* Prints one line with all ranks' bytes, and checks the rules that hold only for their sums. */
static void sum_up(const struct cell_of_ranks *c, const struct model *m, const int64_t sent[LANES_HERE], const struct expected *e)
{
    double x[] = {(double)(sent[0] - e->small), (double)e->small, (double)sent[1], (double)sent[2], (double)e->ring_unpruned};
    if (comm_sum(comm, x, 5) != OK)
        exit(1);
    if (rank == 0) {
        cell_print(c, stdout);
        printf(": parameters and gradients %.0f, norm and losses %.0f, ulysses %.0f, ring %.0f (unpruned %.0f)\n", x[0], x[1],
               x[2], x[3], x[4]);
        if (c->zero == 3 && !c->golden && slices(c) == 1)
            compare(c, "of parameters and gradients from all ranks", STEADY - 1, (int64_t)x[0], three_times_parameters(c, m));
        if (c->data == DATA_WINDOW && c->mesh.degree[MESH_RING] >= 4 && !(x[3] < x[4])) {
            failures++;
            printf("not ok: nothing was pruned in a window\n");
        }
    }
}

/* --- Cells --- */

static void settle(struct rig *r, const struct cell_of_ranks *c)
{
    struct settings *s = &r->settings;
    rig_defaults(r, c->seq_len);
    s->plan.mesh.degree[MESH_DP] = c->mesh.degree[MESH_DP];
    s->plan.mesh.degree[MESH_ULYSSES] = c->mesh.degree[MESH_ULYSSES];
    s->plan.mesh.degree[MESH_RING] = c->mesh.degree[MESH_RING];
    s->plan.mesh.degree[MESH_TP] = slices(c);
    s->plan.zero = c->zero;
    s->plan.dtype = c->dtype;
    s->plan.grad_dtype = c->wire;
    s->plan.alpha = c->alpha;
    s->plan.grad_accum = micro_batches(c);
    s->plan.batch = BATCH;
    s->plan.threads = 1;
    if (c->golden) { /* chunks that divide the pieces of all meshes */
        s->plan.row_chunk = 20;
        s->plan.loss_tile = 10;
    }
    if (c->seq_len > 200) {
        s->plan.row_chunk = 128;
        s->plan.loss_tile = 64;
    }
}

static void make_data(struct sequence *q, const struct cell_of_ranks *c, uint64_t seed)
{
    static const int64_t documents[] = {1, 1, 37, 11, 25, 25, 3, 0};
    sequence_random(q, c->seq_len, c->golden ? 32 : 96, seed, c->data == DATA_PACKED ? documents : NULL);
    for (int64_t i = 0; i < c->seq_len && c->data == DATA_WINDOW; i++)
        q->lo[i] = (int32_t)max_i64(q->lo[i], i - 20);
}

static enum status run_steps(const struct cell_of_ranks *c, struct rig *r, const struct sequence *batch)
{
    struct expected e;
    int64_t before[LANES_HERE], sent[LANES_HERE];
    double loss, norm;
    expect(c, &r->settings, &r->session->plan->strategy, r->model, batch, &e);
    TRY(rig_step(r, batch, BATCH, &loss, &norm)); /* in the first step no update is pending */
    read_counters(before);
    for (int i = 0; i < STEADY; i++) {
        TRY(rig_step(r, batch, BATCH, &loss, &norm));
        read_counters(sent);
        for (int l = 0; l < LANES_HERE; l++) {
            int64_t total = sent[l];
            sent[l] -= before[l];
            before[l] = total;
        }
        compare(c, "among all ranks", i, sent[0], e.lane[0] + e.small);
        compare(c, "in all-to-alls", i, sent[1], e.lane[1]);
        compare(c, "around the ring", i, sent[2], e.lane[2]);
        for (int l = LANE_TP - LANE_WORLD; l < LANES_HERE; l++)
            compare(c, lane_name((enum lane)(LANE_WORLD + l)), i, sent[l], e.lane[l]);
    }
    sum_up(c, r->model, sent, &e);
    return OK;
}

static enum status model_of(const struct cell_of_ranks *c, struct model **out)
{
    struct model_config config;
    char path[600];
    if (!c->golden)
        return cell_model(FAMILY_LLAMA, LAYERS, out);
    snprintf(path, sizeof path, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), c->golden);
    TRY(model_config_read(path, &config));
    config.positions = c->seq_len;
    return model_create(&config, NULL, 0, out);
}

static void run_cell(const struct cell_of_ranks *c)
{
    struct rig r;
    struct model *m;
    struct sequence batch[BATCH];
    settle(&r, c);
    r.comm = comm;
    for (int i = 0; i < BATCH; i++)
        make_data(&batch[i], c, 11 + (uint64_t)i);
    if (comm_set_mesh(comm, &c->mesh) != OK || model_of(c, &m) != OK || rig_start(&r, m) != OK ||
        session_initialise(r.session, 3) != OK || run_steps(c, &r, batch) != OK) {
        fprintf(stderr, "rank %d: %s\n", rank, status_message());
        comm_fail(comm, ERR_CORRUPT, status_message());
        exit(1);
    }
    rig_stop(&r);
    for (int i = 0; i < BATCH; i++)
        sequence_free(&batch[i]);
}

/* Lists all meshes with dp x ulysses x ring = ranks and ulysses <= 4 (there are 4 heads on 2: KV heads are replicated at 4). */
static int meshes(struct mesh out[32])
{
    int n = 0;
    for (int u = 1; u <= 4; u *= 2)
        for (int r = 1; r * u <= size; r++)
            if (size % (u * r) == 0)
                out[n++] = (struct mesh){{size / (u * r), u, r}};
    return n;
}

/* Runs small cells: by default every pair of mesh and stage, with each kind of data and type in some of them. On four ranks and
 * more every mesh gets stage 3 and one other. */
static void small_cells(int all)
{
    struct mesh mesh[32];
    int n = meshes(mesh);
    for (int k = 0; k < n * 4 * DATA_KINDS * 4; k++) {
        int data = k % DATA_KINDS, types = k / DATA_KINDS % 4, zero = k / DATA_KINDS / 4 % 4, i = k / DATA_KINDS / 16;
        if (!all && (data != (i + zero) % DATA_KINDS || types != (i + 3 * zero) % 4))
            continue;
        /* skips cells, since four and eight ranks share few cores */
        if (!all && size >= 4 && zero != 3 && (zero != i % 3 || (size == 8 && i % 2)))
            continue;
        run_cell(&(struct cell_of_ranks){.mesh = mesh[i],
                                         .zero = zero,
                                         .data = data,
                                         .dtype = types % 2 ? BF16 : F32,
                                         .wire = types / 2 ? BF16 : F32,
                                         .seq_len = 150,
                                         .alpha = data == DATA_ONE});
    }
}

/* Runs cells in which pairs of ranks have a slice each, beside every mesh of half as many ranks. */
static void sliced_cells(void)
{
    struct mesh mesh[32];
    size /= 2;
    int n = meshes(mesh);
    size *= 2;
    for (int i = 0; i < n; i++)
        for (int zero = 0; zero < 4; zero++) {
            mesh[i].degree[MESH_TP] = 2;
            if (mesh[i].degree[MESH_ULYSSES] > 2 || (size >= 4 && zero != 3 && zero != i % 3))
                continue;
            run_cell(&(struct cell_of_ranks){.mesh = mesh[i],
                                             .zero = zero,
                                             .data = (i + zero) % DATA_KINDS,
                                             .dtype = zero % 2 ? BF16 : F32,
                                             .wire = (i + zero) % 2 ? F32 : BF16,
                                             .seq_len = 150,
                                             .alpha = zero < 2 ? 1 : 0.5});
        }
}

/* Runs cells long enough for the balanced layout. */
static void balanced_cells(void)
{
    int ring = size < 4 ? size : 4;
    for (int data = 0; data < DATA_KINDS; data++)
        run_cell(&(struct cell_of_ranks){
            .mesh = {{1, size / ring, ring}}, .zero = 3, .data = data, .dtype = F32, .wire = F32, .seq_len = 1100});
}

/* Runs cells of a model whose states, or latents, pass between ranks, on each mesh that shares sequences and has two heads. Its embedding
 * is tied, so that stage 3 gathers it twice: other cells have that stage. */
static void golden_cells(const char *golden)
{
    struct mesh mesh[32];
    int n = meshes(mesh);
    for (int i = 0; i < n; i++) {
        const int *degree = mesh[i].degree;
        if (degree[MESH_DP] == size || degree[MESH_ULYSSES] > 2 || (size == 8 && degree[MESH_DP] > 1))
            continue;
        run_cell(&(struct cell_of_ranks){.mesh = mesh[i],
                                         .zero = i % 3,
                                         .golden = golden,
                                         .dtype = i % 2 ? BF16 : F32,
                                         .wire = F32,
                                         .seq_len = 150,
                                         .alpha = 0.5});
    }
}

int main(void)
{
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    small_cells(extent_is_long());
    balanced_cells();
    golden_cells("hybrid/qwen3_5"); /* two recurrent layers, one with attention */
    golden_cells("latent/youtu");
    if (size > 1)
        sliced_cells();
    double all = failures;
    if (comm_sum(comm, &all, 1) != OK)
        return 1;
    comm_destroy(comm);
    return all > 0;
}
