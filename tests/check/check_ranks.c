/* Compares the state of all ranks with one rank's, under mpiexec or alone. Right gradients are accepted in every ZeRO stage. One
 * wrong element of the last rank is found, with its tensor, place and values. */
#include "check/compare.h"
#include "engine/rig.h"

#include "comm/launch.h"
#include "plan/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { S = 96 };

static struct comm *comm;
static int rank, size, failures;

static void must(enum status st)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, status_message());
    comm_fail(comm, st, status_message());
    exit(1);
}

static void complain(int zero, const char *what, const char *tensor)
{
    failures++;
    printf("not ok: %d ranks, zero %d: %s (%s)\n", size, zero, what, tensor);
}

static void train(struct rig *r, struct comm *on, int zero)
{
    struct sequence batch[2];
    struct model *m;
    double loss, norm;
    rig_defaults(r, S);
    r->comm = on;
    r->settings.plan.mesh.degree[MESH_DP] = on && size > 2 ? 2 : 1;
    r->settings.plan.mesh.degree[MESH_RING] = on && size > 1 ? size / r->settings.plan.mesh.degree[MESH_DP] : 1;
    r->settings.plan.mesh.degree[MESH_ULYSSES] = 1;
    r->settings.plan.batch = 2;
    r->settings.plan.grad_accum = 2 / r->settings.plan.mesh.degree[MESH_DP];
    r->settings.plan.zero = zero;
    r->settings.plan.threads = 1;
    if (on) {
        r->settings.plan.params = r->settings.plan.grads = r->settings.plan.optim = r->settings.plan.acts = OFFLOAD_NVME;
        r->settings.plan.device = DEVICE_CPU_DISCRETE;
        must(comm_set_mesh(on,
                           &(struct mesh){{r->settings.plan.mesh.degree[MESH_DP], 1, r->settings.plan.mesh.degree[MESH_RING]}}));
    }
    for (int i = 0; i < 2; i++)
        sequence_random(&batch[i], S, 96, 5 + (uint64_t)i, NULL);
    must(cell_model(FAMILY_LLAMA, 2, &m));
    must(rig_start(r, m));
    must(session_initialise(r->session, 3));
    for (int i = 0; i < 2; i++)
        must(rig_step(r, batch, 2, &loss, &norm));
    for (int i = 0; i < 2; i++)
        sequence_free(&batch[i]);
}

/* ---- one wrong element ---- */

struct spoil {
    float *unit; /* this rank's part of the unit */
    int64_t at;  /* first element of that part; -1: none */
};

static enum status keep(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct spoil *s = user;
    (void)unit;
    memcpy(s->unit + first, data, (size_t)n * sizeof *data);
    s->at = s->at < 0 ? first : s->at;
    return OK;
}

static enum status give_back(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct spoil *s = user;
    (void)unit;
    memcpy(data, s->unit + first, (size_t)n * sizeof *data);
    return OK;
}

/* Adds 1 to the first gradient that the last rank holds of the unit; returns its index to all ranks. */
static int64_t spoil(struct rig *r, int unit)
{
    double at = 0;
    if (rank == size - 1) {
        struct spoil s = {calloc((size_t)r->model->units[unit].elements, sizeof(float)), -1};
        must(session_visit(r->session, unit, STATE_GRAD, STATE_READ, keep, &s));
        s.unit[s.at] += 1;
        must(session_visit(r->session, unit, STATE_GRAD, STATE_WRITE, give_back, &s));
        free(s.unit);
        at = (double)s.at;
    }
    must(comm_sum(comm, &at, 1));
    return (int64_t)at;
}

/* ---- results of check_unit ---- */

/* Tells whether a tensor is right. The limit is 1e-5, since several ranks add in another order (check/check.c). */
static int is_right(const struct model_param *p, const struct difference *d)
{
    return d->n == p->elements && !d->rank && (size == 1 ? d->unequal == 0 : difference_relative(d, 0) < 1e-5);
}

static void check_right(struct rig *given, struct rig *alone, int zero, struct difference *d, enum state_kind kind)
{
    for (int u = 0; u < given->model->n_units; u++)
        must(check_unit(given->session, rank ? NULL : alone->session, u, kind, (struct excuse){0}, d));
    for (int i = 0; i < given->model->n_params && rank == 0; i++)
        if (!is_right(&given->model->params[i], &d[i]))
            complain(zero, "a right tensor is said to differ", given->model->params[i].name);
}

static void check_wrong(struct rig *given, struct rig *alone, int zero, struct difference *d)
{
    const struct model *m = given->model;
    for (int u = 0; u < m->n_units; u++) {
        int64_t at = spoil(given, u);
        must(check_unit(given->session, rank ? NULL : alone->session, u, STATE_GRAD, (struct excuse){0}, d));
        for (int i = m->units[u].first_param; i < m->units[u].first_param + m->units[u].n_params && rank == 0; i++) {
            const struct model_param *p = &m->params[i];
            int here = at >= p->offset && at < p->offset + p->elements;
            if (here == is_right(p, &d[i]))
                complain(zero, here ? "a wrong element is not found" : "a right tensor is said to differ", p->name);
            if (here && zero > 0 && (d[i].at != at - p->offset || fabs(d[i].given - d[i].alone - 1) > 1e-5))
                complain(zero, "a wrong element is found elsewhere", p->name);
            if (here && zero == 0 && size > 1 && d[i].rank != size - 1)
                complain(zero, "a wrong copy is not found", p->name);
        }
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
    for (int zero = 0; zero <= 3; zero++) {
        struct rig given, alone = {0};
        train(&given, comm, zero);
        if (rank == 0)
            train(&alone, NULL, 0);
        struct difference *d = calloc((size_t)given.model->n_params, sizeof *d);
        check_right(&given, &alone, zero, d, STATE_GRAD);
        check_right(&given, &alone, zero, d, STATE_PARAM);
        check_wrong(&given, &alone, zero, d);
        free(d);
        rig_stop(&given);
        if (rank == 0)
            rig_stop(&alone);
    }
    if (rank == 0)
        printf("%d ranks: %d failures\n", size, failures);
    must(comm_barrier(comm));
    comm_destroy(comm);
    return failures > 0;
}
