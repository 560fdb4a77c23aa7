/* A rank of a simulated cluster: finds a checkpoint, loads it, trains and saves. */
#include "cluster.h"

#include "checkpoint/checkpoint.h"
#include "engine/rig.h"
#include "plan/cells.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { S = 64, BATCH = 4 };
#define CLUSTER_PATIENCE 0.5 /* seconds for which ranks wait for each other */

enum blocks { DENSE, EXPERTS };

static const struct form {
    const char *name;
    int ranks, partner; /* partner: form that may go on with its checkpoints */
    struct mesh mesh;
    int zero;
    enum offload tier;
    enum dtype dtype;
    enum blocks blocks;
} forms[] = {
    {"2 ranks, dp 2, ZeRO 3", 2, 4, {{2, 1, 1}}, 3, OFFLOAD_NONE, F32},
    {"2 ranks, ring 2, ZeRO 3, host", 2, 5, {{1, 1, 2}}, 3, OFFLOAD_CPU, F32},
    {"2 ranks, ulysses 2, ZeRO 1", 2, 6, {{1, 2, 1}}, 1, OFFLOAD_NONE, F32},
    {"2 ranks, tp 2, ZeRO 2, nvme", 2, 7, {{1, 1, 1, 2}}, 2, OFFLOAD_NVME, F32},
    {"4 ranks, dp 2, ring 2, ZeRO 3", 4, 1, {{2, 1, 2}}, 3, OFFLOAD_NONE, F32},
    {"4 ranks, ulysses 2, ring 2, ZeRO 2", 4, 2, {{1, 2, 2}}, 2, OFFLOAD_NONE, F32},
    {"4 ranks, dp 4, ZeRO 1, host", 4, 3, {{4, 1, 1}}, 1, OFFLOAD_CPU, F32},
    {"4 ranks, dp 2, tp 2, ZeRO 0", 4, 8, {{2, 1, 1, 2}}, 0, OFFLOAD_NONE, F32},
    {"1 rank, nvme", 1, 0, {{1, 1, 1}}, 0, OFFLOAD_NVME, F32},
    {"2 ranks, ring 2, ZeRO 3, nvme, bf16", 2, 10, {{1, 1, 2}}, 3, OFFLOAD_NVME, BF16},
    {"4 ranks, dp 4, ZeRO 2, bf16", 4, 9, {{4, 1, 1}}, 2, OFFLOAD_NONE, BF16},
    {"2 ranks, ep 2, ZeRO 3, experts", 2, 12, {{[MESH_DP] = 2, 1, 1, [MESH_EP] = 2}}, 3, OFFLOAD_NONE, F32, EXPERTS},
    {"4 ranks, dp 4, ep 2, ZeRO 0, experts", 4, 11, {{[MESH_DP] = 4, 1, 1, [MESH_EP] = 2}}, 0, OFFLOAD_NONE, F32, EXPERTS},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* The life that is being led. */
static struct {
    const struct form *form;
    const char *dir;
    uint64_t seed;
    int last;
    struct outcome *out;
    struct rig rig[WORLD_MOST];
} now;

int cluster_forms(void)
{
    return FORMS;
}

const char *cluster_name(int form)
{
    return forms[form].name;
}

int cluster_ranks(int form)
{
    return forms[form].ranks;
}

int cluster_partner(int form)
{
    return forms[form].partner;
}

static enum status make_experts(struct model **out)
{
    const struct model_config c = {.family = FAMILY_OLMOE,
                                   .name = "experts",
                                   .vocab = 96,
                                   .dim = 32,
                                   .ffn = 24,
                                   .layers = 1,
                                   .heads = 2,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .max_positions = 4096,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.1f,
                                   .rope_theta = 10000,
                                   .experts = 4,
                                   .experts_used = 2,
                                   .expert_ffn = 24};
    return model_create(&c, NULL, 0, out);
}

static void settle(struct rig *r, const struct form *f, struct comm *comm)
{
    struct settings *s = &r->settings;
    rig_defaults(r, S);
    s->plan.mesh = f->mesh;
    s->plan.zero = f->zero;
    s->plan.dtype = f->dtype;
    s->plan.group = 16384;
    s->plan.loss_tile = 32;
    s->plan.grad_accum = ceil_div(BATCH, s->plan.mesh.degree[MESH_DP]);
    s->plan.batch = BATCH;
    s->lr = 1e-2;
    s->plan.threads = 1;
    s->mode = MODE_CHAOS;
    if (f->tier != OFFLOAD_NONE) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = f->tier;
        s->plan.alpha = 0;
        s->plan.device = DEVICE_CPU_DISCRETE;
    }
    r->comm = comm;
}

/* Loads the newest checkpoint, or makes initial values if there is none; *step: steps done. */
static enum status begin(struct comm *comm, struct rig *r, int rank, int64_t *step)
{
    char path[4096], note[1024];
    struct checkpoint_info info;
    *step = 0;
    const enum status st = checkpoint_find(comm, now.dir, path, sizeof path, &info, note, sizeof note);
    if (st == ERR_INVALID)
        return session_initialise(r->session, 3);
    TRY(st);
    TRY(checkpoint_load(r->session, path));
    r->updates = *step = info.step;
    if (rank == 0)
        now.out->began = (int)info.step;
    return OK;
}

static enum status train(struct rig *r, int64_t step)
{
    struct sequence batch[BATCH];
    double loss, norm;
    for (int b = 0; b < BATCH; b++)
        sequence_random(&batch[b], S, 96, (uint64_t)(100 + BATCH * step + b), NULL);
    const enum status st = rig_step(r, batch, BATCH, &loss, &norm);
    for (int b = 0; b < BATCH; b++)
        sequence_free(&batch[b]);
    return st;
}

static enum status save(struct rig *r, int rank, int64_t step)
{
    struct checkpoint_info info;
    int64_t *at = now.out->save_at[rank][step / CLUSTER_SAVE_EVERY - 1];
    memset(&info, 0, sizeof info);
    info.step = info.updates = step;
    info.cursor = (uint64_t)(BATCH * step);
    strcpy(info.numerics, "simulated");
    at[0] = world_points(rank);
    TRY(rig_flush(r));
    TRY(checkpoint_save(r->session, now.dir, &info, NULL, 1));
    at[1] = world_points(rank);
    now.out->saved = max_i64(now.out->saved, step);
    return OK;
}

static enum status work(struct comm *comm, struct rig *r, int rank)
{
    struct model *m;
    int64_t step;
    TRY(comm_set_mesh(comm, &now.form->mesh));
    settle(r, now.form, comm);
    TRY(now.form->blocks == EXPERTS ? make_experts(&m) : cell_model(FAMILY_LLAMA, 1, &m));
    TRY(comm_agree(comm, rig_start(r, m)));
    r->session->chaos = 1 + now.seed * 1000 + (uint64_t)rank * 100;
    TRY(begin(comm, r, rank, &step));
    while (step < now.last) {
        TRY(train(r, step++));
        if (step % CLUSTER_SAVE_EVERY == 0)
            TRY(save(r, rank, step));
    }
    return OK;
}

/* Lives one rank's life as a process does: a failure is told to the others, and said. */
static int live(int rank)
{
    struct comm *comm = NULL;
    const struct launch launch = {.rank = rank, .size = now.form->ranks, .local_rank = -1, .local_size = -1, .host = "simulated"};
    enum status st = comm_create(&launch, CLUSTER_PATIENCE, &comm);
    if (st == OK)
        st = work(comm, &now.rig[rank], rank);
    if (st == OK) {
        rig_stop(&now.rig[rank]);
        comm_destroy(comm);
        return 0;
    }
    snprintf(now.out->said[rank], sizeof now.out->said[rank], "%s", status_message());
    if (comm && !comm_agreed(comm))
        comm_fail(comm, st, now.out->said[rank]);
    return 1;
}

/* Removes the scratch directory of a rank that did not end in order. */
static void remove_scratch(const struct rig *r)
{
    DIR *d = r->scratch[0] ? opendir(r->scratch) : NULL;
    char path[512];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", r->scratch, e->d_name);
        remove(path);
    }
    if (d)
        closedir(d);
    if (r->scratch[0])
        rmdir(r->scratch);
}

void cluster_live(int form, const char *dir, uint64_t seed, const struct faults *faults, int last, struct outcome *out)
{
    memset(out, 0, sizeof *out);
    memset(&now, 0, sizeof now);
    now.form = &forms[form];
    now.dir = dir;
    now.seed = seed;
    now.last = last;
    now.out = out;
    out->hangs = world_run(seed, now.form->ranks, faults, live) != 0;
    for (int r = 0; r < now.form->ranks; r++) {
        out->life[r] = world_life(r);
        out->points[r] = world_points(r);
        remove_scratch(&now.rig[r]);
    }
}

static uint64_t hash_file(const char *dir, const char *name)
{
    char path[4200], bytes[65536];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    XXH3_state_t *x = XXH3_createState();
    XXH3_64bits_reset(x);
    for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        XXH3_64bits_update(x, bytes, n);
    if (f)
        fclose(f);
    const uint64_t hash = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return hash;
}

int cluster_look(const char *dir, uint64_t *hash, char *said, int size)
{
    struct comm *self;
    struct checkpoint_info info;
    char path[4096], note[1024];
    *hash = 0;
    if (comm_create_self(&self) != OK)
        return 0;
    const enum status st = checkpoint_find(self, dir, path, sizeof path, &info, note, sizeof note);
    snprintf(said, (size_t)size, "%s", st == OK ? note : status_message());
    comm_destroy(self);
    if (st != OK)
        return 0;
    *hash = hash_file(path, "model.safetensors") ^ 31 * hash_file(path, "optimizer.safetensors");
    return (int)info.step;
}
