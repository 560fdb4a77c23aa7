/* Parameters by name. */
#include "api/session.h"

#include "base/num.h"
#include "base/sys.h"
#include "engine/session_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int ltrain_parameter(const ltrain *s, int64_t index, struct ltrain_parameter *out)
{
    if (!s || !out)
        return status_fail(ERR_INVALID, "ltrain_parameter: there is no %s", s ? "room for the answer" : "session");
    const struct model *m = s->run.model;
    if (index < 0 || index >= m->n_params)
        return status_fail(ERR_INVALID, "ltrain_parameter: %lld: the model's tensors are 0 to %d", (long long)index,
                           m->n_params - 1);
    const struct model_param *p = &m->params[index];
    *out = (struct ltrain_parameter){.name = p->name,
                                     .rows = p->shape[0],
                                     .columns = p->shape[1] ? p->shape[1] : 1,
                                     .elements = p->elements,
                                     .trained = p->trained};
    return OK;
}

/* Elements [first, first + n) of a unit, copied from or to `data`. */
struct elements_of {
    int64_t first, n;
    int64_t seen; /* elements of the unit that this rank holds */
    double *from; /* reading: receives the elements */
    float *unit;  /* writing: the whole unit, as this rank has it */
};

static enum status take(void *part, int unit, int64_t first, int64_t n, float *data)
{
    struct elements_of *x = part;
    (void)unit;
    x->seen += n;
    for (int64_t i = max_i64(first, x->first); i < min_i64(first + n, x->first + x->n); i++)
        x->from[i - x->first] = (double)data[i - first];
    return OK;
}

static enum status take_unit(void *part, int unit, int64_t first, int64_t n, float *data)
{
    struct elements_of *x = part;
    (void)unit;
    x->seen += n;
    memcpy(x->unit + first, data, (size_t)n * sizeof *data);
    return OK;
}

static enum status give_unit(void *part, int unit, int64_t first, int64_t n, float *data)
{
    (void)unit;
    memcpy(data, ((const struct elements_of *)part)->unit + first, (size_t)n * sizeof *data);
    return OK;
}

/* Finds a tensor and makes sure that elements [first, first + n) are its own and have numbers. */
static enum status find(const ltrain *s, const char *call, const char *name, int64_t first, int64_t n,
                        const struct model_param **out)
{
    const struct model *m = s->run.model;
    const struct model_param *p = NULL;
    for (int i = 0; name && i < m->n_params && !p; i++)
        if (strcmp(m->params[i].name, name) == 0)
            p = &m->params[i];
    if (!p)
        return status_fail(ERR_INVALID, "%s: the model has no tensor '%.200s': ltrain_parameter lists them", call,
                           name ? name : "");
    if (p->packed_bytes > 0)
        return status_fail(ERR_INVALID, "%s: %s is quantised and has no numbers", call, p->name);
    if (first < 0 || n < 0 || first > p->elements || n > p->elements - first)
        return status_fail(ERR_INVALID, "%s: %lld elements from element %lld of %s on, which has %lld", call, (long long)n,
                           (long long)first, p->name, (long long)p->elements);
    const struct mesh *mesh = &s->settings.plan.mesh;
    if (mesh_degree(mesh, MESH_EP) > 1 || mesh_degree(mesh, MESH_TP) > 1 || mesh_degree(mesh, MESH_PP) > 1)
        return status_fail(ERR_INVALID,
                           "%s: ranks have different parts of the model (mesh with ep, tp or pp): export it and read the files",
                           call);
    *out = p;
    return OK;
}

/* Finds the kind of state that has a parameter's most exact values: masters, if there are any. */
static enum status exact_kind(const ltrain *s, const struct model_param *p, enum state_kind *kind)
{
    double seen[1];
    struct elements_of x = {.n = 0};
    TRY(session_visit(s->run.session, p->unit, STATE_MASTER, STATE_READ, take, &x));
    seen[0] = (double)x.seen;
    TRY(comm_sum(s->comm, seen, 1));
    *kind = seen[0] > 0 ? STATE_MASTER : STATE_PARAM;
    return OK;
}

static enum status sum(struct comm *c, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += INT_MAX)
        TRY(comm_sum(c, x + i, (int)min_i64(INT_MAX, n - i)));
    return OK;
}

static enum status read_elements(ltrain *s, const struct model_param *p, int64_t first, int64_t n, float *out)
{
    enum state_kind kind;
    struct elements_of x = {.first = p->offset + first, .n = n};
    TRY(run_flush(&s->run));
    TRY(exact_kind(s, p, &kind));
    x.from = sys_calloc((size_t)max_i64(1, n), sizeof *x.from);
    TRY(comm_agree(s->comm, x.from ? OK : status_fail(ERR_NOMEM, "out of memory: %lld elements", (long long)n)));
    enum status st = OK;
    /* sums follow, so that elements which all ranks have count once */
    if (session_holding(s->run.session, p->unit, kind) == HELD_IN_SHARDS || comm_place(s->comm) == 0)
        st = session_visit(s->run.session, p->unit, kind, STATE_READ, take, &x);
    st = comm_agree(s->comm, st);
    if (st == OK)
        st = sum(s->comm, x.from, n);
    for (int64_t i = 0; i < n && st == OK; i++)
        out[i] = (float)x.from[i];
    free(x.from);
    return st;
}

int ltrain_read(ltrain *s, const char *name, int64_t first, int64_t n, float *out)
{
    FILE *before;
    const struct model_param *p;
    TRY(api_enter(s, &before));
    enum status st = find(s, "ltrain_read", name, first, n, &p);
    if (st == OK && !out && n > 0)
        st = status_fail(ERR_INVALID, "ltrain_read: there is no room for the elements of %s", p->name);
    st = comm_agree(s->comm, st);
    if (st == OK)
        st = read_elements(s, p, first, n, out);
    return api_leave(s, before, st);
}

static enum status write_kind(ltrain *s, const struct model_param *p, enum state_kind kind, int64_t first, int64_t n,
                              const float *values, float *unit)
{
    struct elements_of x = {.unit = unit};
    TRY(session_visit(s->run.session, p->unit, kind, STATE_READ, take_unit, &x));
    if (x.seen == 0)
        return OK;
    memcpy(unit + p->offset + first, values, (size_t)n * sizeof *unit);
    return session_visit(s->run.session, p->unit, kind, STATE_WRITE, give_unit, &x);
}

static enum status write_elements(ltrain *s, const struct model_param *p, int64_t first, int64_t n, const float *values)
{
    const int64_t elements = s->run.model->units[p->unit].elements;
    TRY(run_flush(&s->run));
    float *unit = sys_calloc((size_t)max_i64(1, elements), sizeof *unit);
    enum status st = unit ? OK : status_fail(ERR_NOMEM, "out of memory: a layer of %lld elements", (long long)elements);
    if (st == OK && n > 0)
        st = write_kind(s, p, STATE_MASTER, first, n, values, unit);
    if (st == OK && n > 0)
        st = write_kind(s, p, STATE_PARAM, first, n, values, unit);
    free(unit);
    return comm_agree(s->comm, st);
}

int ltrain_write(ltrain *s, const char *name, int64_t first, int64_t n, const float *values)
{
    FILE *before;
    const struct model_param *p;
    TRY(api_enter(s, &before));
    enum status st = find(s, "ltrain_write", name, first, n, &p);
    if (st == OK && !values && n > 0)
        st = status_fail(ERR_INVALID, "ltrain_write: there are no values for %s", p->name);
    for (int64_t i = 0; i < n && st == OK; i++)
        if (!isfinite(values[i]))
            st = status_fail(ERR_INVALID, "ltrain_write: value %lld for %s is not finite", (long long)i, p->name);
    st = comm_agree(s->comm, st);
    if (st == OK)
        st = write_elements(s, p, first, n, values);
    return api_leave(s, before, st);
}
