/* Golden data from PyTorch on meshes of 1 and of 4 ranks, to be started under mpiexec: learned positions in a table much longer
 * than the run, and every kind of layer under ulysses, ring and both; losses, gradient norms and the parameters in use, resident
 * and all on nvme. */
#include "engine/golden.h"
#include "engine/rig.h"

#include "comm/launch.h"

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

struct layout {
    struct mesh mesh;
    int zero, nvme;
};

static void settle(struct settings *s, const struct layout *l)
{
    s->plan.mesh = l->mesh;
    s->plan.zero = l->zero;
    s->plan.batch = l->mesh.degree[MESH_DP]; /* the ranks beside the one that has the sequence have none */
    s->plan.threads = 1;
    if (l->nvme) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.carry = OFFLOAD_NVME;
        s->plan.device = DEVICE_CPU_DISCRETE;
        s->plan.alpha = 0;
    }
}

/* Squares of the differences of this rank's parameters, and of the golden ones. */
struct sums {
    const struct model *m;
    struct st_file *file;
    double difference, norm;
};

static enum status add_pieces(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct sums *x = user;
    const struct model_unit *u = &x->m->units[unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &x->m->params[i];
        int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        char name[160];
        if (a >= b)
            continue;
        snprintf(name, sizeof name, "step%d.%s", GOLDEN_STEPS, p->name);
        float *want = malloc((size_t)(b - a) * sizeof *want);
        enum status st = st_read_f32(x->file, name, a - p->offset, b - a, want);
        for (int64_t k = a; k < b && st == OK; k++) {
            double v = want[k - a], d = data[k - first] - v;
            x->difference += d * d;
            x->norm += v * v;
        }
        free(want);
        TRY(st);
    }
    return OK;
}

/* Norm-wise, over all ranks' pieces. */
static double difference_of(struct rig *r, const struct golden *g)
{
    struct sums x = {.m = r->model, .file = g->file};
    for (int u = 0; u < r->model->n_units; u++)
        must(session_visit(r->session, u, STATE_PARAM, STATE_READ, add_pieces, &x), "visit");
    double both[2] = {x.difference, x.norm};
    must(comm_sum(comm, both, 2), "sum");
    return sqrt(both[0] / both[1]);
}

static void check(const struct golden *g, const struct layout *l)
{
    struct rig r;
    struct model *m;
    must(comm_set_mesh(comm, &l->mesh), "mesh");
    rig_defaults(&r, g->seq_len);
    settle(&r.settings, l);
    r.comm = comm;
    must(golden_model(g, &m), "model");
    must(rig_start(&r, m), "start");
    must(session_load(r.session, g->path), "load");
    char what[160], mesh[MESH_TEXT];
    snprintf(what, sizeof what, "%.40s %s zero=%d %s", strrchr(g->path, '/') + 1, mesh_format(&l->mesh, mesh), l->zero,
             l->nvme ? "nvme" : "resident");
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        double loss, norm;
        must(rig_step(&r, &g->sequence, 1, &loss, &norm), "step");
        if (fabs(loss - g->loss[step]) < 2e-6 * g->loss[step] && fabs(norm - g->norm[step]) < 1e-5 * g->norm[step])
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

/* Where tokens of a sequence are shared: the degrees that its heads allow. */
static void check_kinds(void)
{
    static const char *const two_heads[] = {"qwen3-windows", "smollm3", "gemma2", "gemma3", "olmo3", "starcoder2", "phi3-long"};
    static const char *const four_heads[] = {"qwen3", "glm4"};
    static const struct layout both[] = {{{{1, 2, 2}}, 3, 0}, {{{1, 1, 4}}, 1, 1}};
    static const struct layout ulysses[] = {{{{1, 4, 1}}, 2, 0}, {{{1, 2, 2}}, 3, 1}};
    for (size_t i = 0; i < sizeof two_heads / sizeof *two_heads; i++)
        check_case(two_heads[i], both, 2);
    for (size_t i = 0; i < sizeof four_heads / sizeof *four_heads; i++)
        check_case(four_heads[i], ulysses, 2);
}

int main(void)
{
    static const struct layout alone[] = {{{{1, 1, 1}}, 0, 0}, {{{1, 1, 1}}, 3, 1}};
    static const struct layout four[] = {{{{4, 1, 1}}, 0, 0}, {{{2, 2, 1}}, 1, 1}, {{{1, 2, 2}}, 2, 0},
                                         {{{1, 2, 2}}, 3, 1}, {{{1, 1, 4}}, 3, 0}, {{{4, 1, 1}}, 3, 1}};
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 60, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    if (size == 1)
        check_case("gpt2-positions", alone, sizeof alone / sizeof *alone);
    if (size == 4)
        check_case("gpt2-positions", four, sizeof four / sizeof *four);
    if (size == 4)
        check_kinds();
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
