/* Tests checkpoints of several ranks, started under mpiexec by test_checkpoint_ranks.sh: saved on one mesh and resumed on others;
 * failures and kills of one rank.
 *
 * Usage: checkpoint_ranks save|resume|positions|faults|kill DIR [--long | SEED]. */
#include "checkpoint/checkpoint_ranks.h"

#include "comm/launch.h"
#include "extent.h"
#include "plan/cells.h"
#include "train/router_bias.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

enum { S = 90, STEPS = 3, MOST_COUNTS = 64 };

struct comm *comm;
int rank, size, failures;
const char *dir;

void must(enum status st, const char *what)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s: %s\n", rank, size, what, status_message());
    comm_fail(comm, st, status_message());
    comm_destroy(comm);
    _exit(1);
}

/* ---- runs ---- */

static int with_experts; /* 1: models that are started have experts */

static enum status make_experts(int layers, struct model **out)
{
    const struct model_config c = {.family = FAMILY_MINIMAX_M2,
                                   .name = "experts",
                                   .vocab = 96,
                                   .dim = 64,
                                   .ffn = 24,
                                   .layers = layers,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .max_positions = 4096,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.1f,
                                   .rope_theta = 10000,
                                   .experts = 8,
                                   .experts_used = 2,
                                   .expert_ffn = 24,
                                   .router_normalises = 1};
    return model_create(&c, NULL, 0, out);
}

void start(struct rig *r, const struct layout *l, enum dtype dtype, int layers, uint64_t seed)
{
    struct model *m;
    struct settings *s = &r->settings;
    must(comm_set_mesh(comm, &l->mesh), "mesh");
    rig_defaults(r, S);
    s->plan.mesh.degree[MESH_DP] = l->mesh.degree[MESH_DP];
    s->plan.mesh.degree[MESH_ULYSSES] = l->mesh.degree[MESH_ULYSSES];
    s->plan.mesh.degree[MESH_RING] = l->mesh.degree[MESH_RING];
    s->plan.mesh.degree[MESH_EP] = l->mesh.degree[MESH_EP];
    s->plan.mesh.degree[MESH_TP] = mesh_degree(&l->mesh, MESH_TP);
    s->plan.zero = l->zero;
    s->plan.dtype = dtype;
    s->plan.grad_accum = ceil_div(BATCH, s->plan.mesh.degree[MESH_DP]);
    s->plan.batch = BATCH;
    s->lr = 1e-2;
    s->plan.threads = 1;
    if (l->nvme) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_NVME;
        s->plan.alpha = 0;
        s->plan.device = DEVICE_CPU_DISCRETE;
    }
    r->comm = comm;
    must(with_experts ? make_experts(layers, &m) : cell_model(FAMILY_LLAMA, layers, &m), "model");
    must(rig_start(r, m), "start");
    must(session_initialise(r->session, seed), "initialise");
}

/* Moves the biases by which experts are chosen, as if a step had hit every third expert most. */
static void move_biases(struct rig *r, int step)
{
    double counts[MOST_COUNTS];
    for (int i = 0; i < MOST_COUNTS; i++)
        counts[i] = (i + step) % 3 == 0;
    must(router_bias_move(r->session, 1e-3, counts), "biases");
}

/* Trains STEPS steps with data of their own, and flushes the last update. */
static void train(struct rig *r, int first, double loss[STEPS])
{
    for (int i = 0; i < STEPS; i++) {
        struct sequence batch[BATCH];
        double norm;
        for (int b = 0; b < BATCH; b++)
            sequence_random(&batch[b], S, 96, (uint64_t)(100 + BATCH * (first + i) + b), NULL);
        must(rig_step(r, batch, BATCH, &loss[i], &norm), "step");
        if (with_experts)
            move_biases(r, first + i);
        for (int b = 0; b < BATCH; b++)
            sequence_free(&batch[b]);
    }
    must(rig_flush(r), "flush");
}

/* ---- digests that do not depend on which rank holds what: sums over elements ---- */

struct digest {
    const struct rig *rig;
    enum state_kind state; /* kind of state that is visited */
    uint64_t sum;
    int64_t elements;
    int kind; /* kind of state whose elements are counted */
};

static enum status add_elements(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct digest *d = user;
    const struct model *m = d->rig->model;
    int param = m->units[unit].first_param;
    while (param + 1 < m->units[unit].first_param + m->units[unit].n_params && first >= m->params[param + 1].offset)
        param++;
    if (session_repeats(d->rig->session, param, d->state)) /* pieces of slices lie in one parameter each */
        return OK;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], 4);
        const uint64_t element[3] = {(uint64_t)(unit * 8 + d->kind), (uint64_t)(first + i), bits};
        d->sum += XXH3_64bits(element, sizeof element);
    }
    d->elements += n;
    return OK;
}

/* Returns a digest over all ranks, and checks that state held whole is equal on all of them. Of experts that are shared out and of slices, the
 * first rank with them counts. fp32 masters count as parameters. */
static uint64_t digest_kind(struct rig *r, enum state_kind kind)
{
    const int as = kind == STATE_MASTER && r->settings.plan.dtype == F32 ? STATE_PARAM : (int)kind;
    struct digest whole = {.rig = r, .state = kind, .kind = as}, own = whole;
    uint64_t *all = calloc(2 * (size_t)size, sizeof *all), sum = 0;
    for (int u = 0; u < r->model->n_units; u++) {
        const enum state_holding held = session_holding(r->session, u, kind);
        if (held == HELD_IN_COPIES && comm_member(comm, session_copies_lane(r->session)) > 0)
            continue;
        must(session_visit(r->session, u, kind, STATE_READ, add_elements, held == HELD_BY_ALL ? &whole : &own), "visit");
    }
    must(comm_gather(comm, (uint64_t[]){whole.sum, own.sum}, 2 * sizeof *all, all), "gather");
    for (int i = 0; i < size; i++) {
        sum += all[2 * i + 1];
        CHECK(all[2 * i] == all[0], "rank %d's copy of kind %d differs from rank 0's", i, kind);
    }
    sum += all[0];
    free(all);
    return sum;
}

void digest(struct rig *r, uint64_t out[3])
{
    uint64_t param = digest_kind(r, STATE_PARAM), master = digest_kind(r, STATE_MASTER);
    if (r->settings.plan.dtype == F32)
        CHECK(master == 0 || with_experts || master == param, "masters are not the parameters"); /* biases have no master */
    out[0] = r->settings.plan.dtype == F32 ? param : param ^ master;
    out[1] = digest_kind(r, STATE_M);
    out[2] = digest_kind(r, STATE_V);
}

/* ---- saved on 8 ranks, resumed on other numbers ---- */

static const struct saved {
    const char *name;
    struct layout on8;
    enum dtype dtype;
    int experts; /* 1: the model has some, which resumed runs on 2 and 4 ranks share out among all */
} saves[] = {
    {"fp32-zero3-2d", {{{2, 2, 2}}, 3, 1}, F32},
    {"bf16-zero3-tp", {{{4, 1, 1, 2}}, 3, 0}, BF16},
    {"fp32-experts-ep4", {{{[MESH_DP] = 8, 1, 1, [MESH_EP] = 4}}, 0, 0}, F32, 1},
    {"fp32-experts-ep1", {{{[MESH_DP] = 8, 1, 1}}, 3, 0}, F32, 1},
    {"bf16-zero1-sp", {{{1, 4, 2}}, 1, 1}, BF16},
    {"fp32-zero2-ring", {{{2, 1, 4}}, 2, 0}, F32},
    {"fp32-zero0", {{{4, 2, 1}}, 0, 0}, F32},
    {"fp32-zero0-tp", {{{2, 1, 2, 2}}, 0, 1}, F32},
};
enum { SAVES = sizeof saves / sizeof *saves };

static int n_saves(void)
{
    return extent(3, SAVES, SAVES);
}

/* Values with which the resumed runs are compared. */
struct truth {
    uint64_t digest[3];
    double loss[STEPS];
};

struct checkpoint_info info_of(int64_t step)
{
    struct checkpoint_info info;
    memset(&info, 0, sizeof info);
    info.step = info.updates = step;
    info.cursor = (uint64_t)(BATCH * step);
    info.seed = 7;
    strcpy(info.numerics, "any");
    return info;
}

static void truth_path(char path[256], const struct saved *c)
{
    snprintf(path, 256, "%s/%s.truth", dir, c->name);
}

static void save_cell(const struct saved *c)
{
    struct rig r;
    char path[256];
    double loss[STEPS];
    struct truth t;
    struct checkpoint_info info = info_of(STEPS);
    with_experts = c->experts;
    start(&r, &c->on8, c->dtype, 2, 3);
    train(&r, 0, loss);
    snprintf(path, sizeof path, "%s/%s", dir, c->name);
    must(checkpoint_save(r.session, path, &info, NULL, 1), "save");
    digest(&r, t.digest);
    train(&r, STEPS, t.loss);
    rig_stop(&r);
    truth_path(path, c);
    FILE *f = rank == 0 ? fopen(path, "w") : NULL;
    CHECK(rank != 0 || (f && fwrite(&t, sizeof t, 1, f) == 1 && fclose(f) == 0), "%s", path);
}

static int same_files(const char *a, const char *b, const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s >&2", a, name, b, name);
    return system(command) == 0;
}

/* Tells whether manifests are equal except for the times of saves and their own hashes, which depend on these times. */
static int same_manifests(const char *a, const char *b)
{
    char command[2048];
    snprintf(
        command, sizeof command,
        "for d in %s %s; do grep -vE '\"saved_ns\"|^  \"xxh3\"' $d/manifest.json >$d/timeless || exit 1; done; cmp %s/timeless %s/timeless",
        a, b, a, b);
    return system(command) == 0;
}

/* Loads a checkpoint, compares the state with the saved one, saves it again with the same bytes, and continues training. */
static void resume_cell(const struct saved *c, const struct layout *l, int number)
{
    struct rig r;
    char run[200], again[220], path[300], second[300], note[256];
    struct truth t;
    struct checkpoint_info info, want = info_of(STEPS);
    double loss[STEPS];
    uint64_t got[3];
    truth_path(path, c);
    FILE *f = fopen(path, "r");
    CHECK(f && fread(&t, sizeof t, 1, f) == 1, "%s", path);
    if (f)
        fclose(f);
    snprintf(run, sizeof run, "%s/%s", dir, c->name);
    snprintf(again, sizeof again, "%s-again-%d-%d", run, size, number);
    with_experts = c->experts;
    start(&r, l, c->dtype, 2, 99);
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    CHECK(note[0] == 0 && memcmp(&info, &want, sizeof info) == 0, "%s", note);
    must(checkpoint_load(r.session, path), "load");
    digest(&r, got);
    CHECK(memcmp(got, t.digest, sizeof got) == 0, "%s: the state is not what was saved", c->name);
    must(checkpoint_save(r.session, again, &info, NULL, 1), "save again");
    must(checkpoint_find(comm, again, second, sizeof second, &info, note, sizeof note), "find again");
    if (rank == 0)
        CHECK(same_files(path, second, "model.safetensors") && same_files(path, second, "optimizer.safetensors") &&
                  same_manifests(path, second),
              "%s: saved again it differs", c->name);
    r.updates = info.updates;
    train(&r, STEPS, loss);
    /* fp32: sums in another order, carried through three steps; bf16 rounds differently wherever sums differ */
    double tolerance = c->dtype == F32 ? 1e-5 : 2e-2;
    for (int i = 0; i < STEPS; i++)
        CHECK(fabs(loss[i] - t.loss[i]) <= tolerance * fabs(t.loss[i]), "%s: loss of step %d is %.9g, was %.9g", c->name, i,
              loss[i], t.loss[i]);
    rig_stop(&r);
}

/* Resumes some of the checkpoints on every number of ranks and each of its meshes, or all of them with LTRAIN_LONG. */
static void resume_all(void)
{
    static const struct mesh meshes[][2] = {
        {{{1, 1, 1}}, {{1, 1, 1}}}, {{{1, 2, 1}}, {{1, 1, 1, 2}}}, {{{3, 1, 1}}, {{1, 1, 3}}}, {{{2, 1, 2}}, {{1, 2, 1, 2}}}};
    for (int i = 0; i < n_saves(); i++) {
        struct layout l = {meshes[size - 1][saves[i].experts ? 0 : i % 2], (size + i) % 4, (size + i) % 2};
        l.mesh.degree[MESH_EP] = saves[i].experts && size % 2 == 0 ? size : 1;
        if (extent_is_long() || saves[i].experts || (i / 2 + size) % 2 == 0)
            resume_cell(&saves[i], &l, i);
    }
}

int main(int argc, char **argv)
{
    struct launch launch;
    if (argc < 3 || launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    const char *what = argv[1], *more = argc > 3 ? argv[3] : "";
    rank = comm_rank(comm);
    size = comm_size(comm);
    dir = argv[2];
    if (strcmp(what, "save") == 0)
        for (int i = 0; i < n_saves(); i++)
            save_cell(&saves[i]);
    else if (strcmp(what, "resume") == 0)
        resume_all();
    else if (strcmp(what, "positions") == 0)
        keep_positions();
    else if (strcmp(what, "faults") == 0)
        fail_all(strcmp(more, "--long") == 0);
    else
        be_killed(strtoull(more, NULL, 10));
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
