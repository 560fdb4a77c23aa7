/* Runs golden hybrids on 2 or 4 fake GPUs whose kernels the simulator runs, under mpiexec: ranks share a sequence by ulysses, ring and
 * both, messages are carried by NCCL or staged. Results are within the tolerances for bf16, and placements change no bits.
 *
 * With LTRAIN_LONG=1 every case runs on every mesh, on host and drives, five steps. */
#include "comm/launch.h"
#include "cudasim/fake/fake.h"
#include "device/plugin.h"
#include "engine/cuda_plugin.h"
#include "engine/cuda_target.h"
#include "engine/golden.h"
#include "engine/golden_pieces.h"
#include "extent.h"

/* The marks' header compares on one rank, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/golden_compare.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROCESSORS = 4, SHORT_STEPS = 1 };

enum place { RESIDENT, HOST, NVME };

static struct comm *comm;
static int rank, size, failures, runs;

int device_plugin_expected(void)
{
    return 1;
}

/* Loads the plugin, which is a part of this program. */
enum status device_plugin_load(const struct device_plugin **out)
{
    *out = ltrain_device_plugin();
    return OK;
}

static void must(enum status st, const char *what)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s: %s\n", rank, size, what, status_message());
    comm_fail(comm, st, status_message());
    _exit(1);
}

static void settle(struct rig *r, const struct golden *g, const struct mesh *mesh, int capability, enum place place)
{
    struct plan_request *s = &r->settings.plan;
    rig_defaults(r, g->seq_len);
    r->comm = comm;
    r->gpu = cuda_target(capability, PROCESSORS, 1);
    r->settings.gpu = AUTO;
    s->device = DEVICE_CUDA;
    s->dtype = BF16;
    s->threads = 1;
    s->mesh = *mesh;
    s->zero = size == 2 ? 3 : 1;
    s->batch = mesh->degree[MESH_DP];
    s->row_chunk = s->loss_tile =
        mesh->degree[MESH_RING] == 4 ? 4 : 28; /* they divide the pieces: 16 and 28 tokens, or 28 and 56 */
    if (place == RESIDENT)
        return;
    s->params = s->grads = s->optim = s->acts = place == HOST ? OFFLOAD_CPU : OFFLOAD_NVME;
    s->alpha = place == HOST ? 0.5 : 0;
    if (place == NVME)
        s->passing = OFFLOAD_NVME;
}

static void near(const char *what, const char *of, int step, double have, double want, double mark)
{
    if (fabs(have - want) <= mark * fabs(want))
        return;
    failures++;
    fprintf(stderr, "rank %d: not ok: %s: %s of step %d: %.9g, golden %.9g; %.2g is allowed\n", rank, what, of, step, have, want,
            mark);
}

/* Compares a state, parameter by parameter, norm-wise. */
static void compare(const char *what, struct rig *r, const struct golden *g, enum state_kind kind, const char *prefix,
                    double mark)
{
    double *sums, worst = 0;
    must(golden_pieces(r, g->file, kind, prefix, &sums), what);
    for (int i = 0; i < r->model->n_params; i++)
        worst = fmax(worst, sqrt(sums[2 * i] / fmax(sums[2 * i + 1], 1e-24)));
    free(sums);
    if (rank == 0)
        printf("%s: %s differ by %.2g\n", what, prefix, worst);
    if (worst <= mark)
        return;
    failures++;
    fprintf(stderr, "rank %d: not ok: %s: %s differ by %.2g, and %.2g is allowed\n", rank, what, prefix, worst, mark);
}

/* Takes the steps, and returns the digest of this rank's state. */
static uint64_t run(const char *name, const struct mesh *mesh, int capability, int devices, enum place place)
{
    static const char *const places[] = {"resident", "host", "nvme"};
    const struct golden_marks marks = golden_bf16_marks(name);
    const int steps = extent(SHORT_STEPS, SHORT_STEPS, GOLDEN_STEPS);
    struct golden g;
    struct rig r;
    struct model *m;
    char words[120], text[MESH_TEXT], what[160];
    uint64_t digest;
    snprintf(words, sizeof words, "seed=%d,name=sim,capability=%d,processors=%d,devices=%d", 7 * ++runs + rank, capability,
             PROCESSORS, devices);
    snprintf(what, sizeof what, "%s, sm_%d, %s, %s, %d GPUs", name, capability, mesh_format(mesh, text), places[place], devices);
    fake_cuda_configure(words);
    must(comm_set_mesh(comm, mesh), what);
    must(golden_open(name, &g), what);
    settle(&r, &g, mesh, capability, place);
    must(golden_model(&g, &m), what);
    must(rig_start(&r, m), what);
    must(golden_load(&g, r.session), what);
    for (int i = 0; i < steps; i++) {
        double loss, norm;
        must(rig_step(&r, &g.sequence, 1, &loss, &norm), what);
        near(what, "loss", i, loss, g.loss[i], marks.loss);
        near(what, "norm", i, norm, g.norm[i], marks.norm);
        if (i == 0)
            compare(what, &r, &g, STATE_GRAD, "grad.", marks.gradient);
    }
    must(rig_flush(&r), what);
    if (steps == GOLDEN_STEPS)
        compare(what, &r, &g, STATE_MASTER, "step5.", marks.parameters);
    must(rig_digest(&r, &digest), what);
    rig_stop(&r);
    golden_close(&g);
    if (fake_cuda_left()[0]) {
        failures++;
        fprintf(stderr, "rank %d: not ok: %s: left:%s\n", rank, what, fake_cuda_left());
    }
    return digest;
}

/* Compares a resident run with runs elsewhere, whose messages go the other way. */
static void run_everywhere(const char *name, const struct mesh *mesh, int capability, int on_host)
{
    const uint64_t resident = run(name, mesh, capability, size, RESIDENT);
    for (int place = on_host ? HOST : NVME; place <= NVME; place++)
        if (run(name, mesh, capability, place == HOST ? size : 1, (enum place)place) != resident) {
            failures++;
            fprintf(stderr, "rank %d: not ok: %s: other bits in place %d\n", rank, name, place);
        }
}

int main(void)
{
    static const struct {
        const char *name;
        int capability, ranks, turn; /* ranks, turn: when and on which mesh it runs by default */
    } cases[] = {{"hybrid/qwen3_5", 80, 4, 1}, {"hybrid/bamba", 90, 2, 0}, {"hybrid/lfm2", 86, 2, 1}};
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 250, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    const struct mesh two[] = {{{1, 1, 2}}, {{1, 2, 1}}}, four[] = {{{1, 1, 4}}, {{1, 2, 2}}, {{2, 1, 2}}};
    const int meshes = size == 2 ? 2 : 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < meshes; k++)
            if (extent_is_long() || (cases[i].ranks == size && cases[i].turn == k))
                run_everywhere(cases[i].name, size == 2 ? &two[k] : &four[k], cases[i].capability, extent_is_long());
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
