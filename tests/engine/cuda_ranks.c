/* Runs ranks on fake GPUs (tests/cudasim/fake), under mpiexec, for all meshes, ZeRO stages and types of gradients, resident and
 * with everything on nvme. Whether NCCL carries messages or they are staged through pinned memory, results have the bits of
 * cpu:discrete on the same mesh, and the numbers of messages are equal. */
#include "comm/launch.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "extent.h"
#include "plan/cells.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

enum { S = 150, BATCH = 4, STEPS = 2 };

static struct comm *comm;
static struct twin twin;
static int rank, size, failures, cells;
static int carried; /* 1: NCCL carried the last run's messages */

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest; /* hash of this rank's state */
    int64_t sent[LANES - LANE_WORLD];
};

static void must(enum status st)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s\n", rank, size, status_message());
    comm_fail(comm, st, status_message());
    _exit(1);
}

static int64_t sent_on(enum lane lane)
{
    return comm_bytes_sent(comm, lane).same_host;
}

static void train(const struct mesh *mesh, int zero, int nvme, enum device_kind device, struct outcome *out)
{
    struct rig r;
    struct model *m;
    struct sequence batch[BATCH];
    memset(out, 0, sizeof *out);
    for (int l = LANE_WORLD; l < LANES; l++)
        out->sent[l - LANE_WORLD] = -sent_on((enum lane)l);
    rig_defaults(&r, S);
    r.comm = comm;
    struct plan_request *s = &r.settings.plan;
    r.settings.gpu = AUTO;
    s->device = device;
    s->mesh = *mesh;
    s->zero = zero;
    s->grad_dtype = zero % 2 ? BF16 : F32;
    s->batch = BATCH;
    s->grad_accum = ceil_div(BATCH, mesh->degree[MESH_DP]);
    s->row_chunk = 32;
    s->threads = 1;
    s->group = 997; /* a prime number of elements, so that the last shard of a group is short */
    r.settings.lr = 1e-2;
    if (nvme) {
        s->params = s->grads = s->optim = s->acts = OFFLOAD_NVME;
        s->alpha = 0;
    }
    for (int i = 0; i < BATCH; i++)
        sequence_random(&batch[i], S, 96, 11 + (uint64_t)i, (const int64_t[]){1, 18, 56, 38, 0});
    must(cell_model(FAMILY_LLAMA, 2, &m));
    must(rig_start(&r, m));
    must(session_initialise(r.session, 3));
    carried = r.session->context.carried;
    for (int i = 0; i < STEPS; i++)
        must(rig_step(&r, batch, BATCH, &out->loss[i], &out->norm[i]));
    must(rig_flush(&r));
    must(rig_digest(&r, &out->digest));
    rig_stop(&r);
    for (int l = LANE_WORLD; l < LANES; l++)
        out->sent[l - LANE_WORLD] += sent_on((enum lane)l);
    for (int i = 0; i < BATCH; i++)
        sequence_free(&batch[i]);
}

/* Returns the bytes that ranks send each other at the start: 16 bytes in messages and in a gather, and 4 KiB in another. */
static int64_t greetings(void)
{
    return (2 * 16 + 4096) * (size - 1);
}

/* Runs a cell with all ranks on one GPU, or with a GPU for each. */
static void run_on(const struct mesh *mesh, int zero, int nvme, int devices, const struct outcome *given)
{
    struct outcome have, want = *given;
    char words[64];
    int64_t all = 0;
    snprintf(words, sizeof words, "seed=%d,devices=%d", 2 * cells + rank, devices);
    twin.configure(words);
    train(mesh, zero, nvme, DEVICE_CUDA, &have);
    for (int l = 0; l < LANES - LANE_WORLD; l++)
        all += have.sent[l];
    if (carried != (devices > 1) || (carried && twin.nccl_sent() != all + greetings())) {
        fprintf(stderr, "rank %d: not ok: NCCL carries %ld bytes for %lld\n", rank, twin.nccl_sent(), (long long)all);
        failures++;
    }
    if (memcmp(&want, &have, sizeof want) != 0) {
        fprintf(stderr, "rank %d: not ok: dp=%d ulysses=%d ring=%d zero=%d %s on %d: loss %.17g, not %.17g\n", rank,
                mesh->degree[MESH_DP], mesh->degree[MESH_ULYSSES], mesh->degree[MESH_RING], zero, nvme ? "nvme" : "resident",
                devices, have.loss[STEPS - 1], want.loss[STEPS - 1]);
        failures++;
    }
    if (twin.left()[0]) {
        fprintf(stderr, "rank %d: not ok: not given back:%s\n", rank, twin.left());
        failures++;
    }
}

static void run_cell(const struct mesh *mesh, int zero, int nvme)
{
    struct outcome want;
    must(comm_set_mesh(comm, mesh));
    train(mesh, zero, nvme, DEVICE_CPU_DISCRETE, &want);
    run_on(mesh, zero, nvme, size, &want);
    if (cells % 2 == 0 || extent_is_long())
        run_on(mesh, zero, nvme, 1, &want);
    cells++;
    if (getenv("LT_MUTANT") && comm_agree(comm, failures ? status_fail(ERR_CORRUPT, "noticed") : OK) != OK)
        _exit(1);
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : INT_MAX; /* limit on the number of cells */
    struct launch launch;
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        return 77;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    for (int u = 1; u <= 4; u *= 2)
        for (int r = 1; r * u <= size; r++)
            for (int zero = 0; zero <= 3; zero++) {
                const struct mesh mesh = {{size / (u * r), u, r}};
                const int wanted = extent_is_long() || zero == (u + r) % 4 || (size == 2 && zero == (u + r + 2) % 4);
                if (size % (u * r) == 0 && wanted && cells < most)
                    run_cell(&mesh, zero, (u + r + zero) / 2 % 2);
            }
    if (comm_agree(comm, failures ? status_fail(ERR_CORRUPT, "bits differ") : OK) != OK)
        failures++;
    if (rank == 0)
        printf("%d ranks: %d cells, %d wrong\n", size, cells, failures);
    comm_destroy(comm);
    return failures > 0;
}
