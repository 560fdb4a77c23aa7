#include "train/nonfinite.h"

#include "base/sys.h"
#include "engine/session_state.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>

/* Marks of the tensors whose gradient has an element that is not finite: on this rank, then on any. */
struct marks {
    const struct model *m; /* this rank's part of the model */
    double *bad;           /* [n_params of the whole model] */
};

static enum status mark_piece(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct marks *marks = user;
    const struct model_unit *u = &marks->m->units[unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &marks->m->params[i];
        const int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        double *bad = &marks->bad[p->whole];
        for (int64_t at = a; at < b && p->trained && !*bad; at++)
            *bad = !isfinite(data[at - first]);
    }
    return OK;
}

static enum status mark(struct run *r, struct marks *marks)
{
    enum status st = OK;
    const int n = marks->m->whole->n_params;
    marks->bad = sys_calloc((size_t)n, sizeof *marks->bad);
    if (!marks->bad)
        st = status_fail(ERR_NOMEM, "out of memory for marks of gradients");
    for (int u = 0; u < marks->m->n_units && st == OK; u++)
        st = session_visit(r->session, u, STATE_GRAD, STATE_READ, mark_piece, marks);
    TRY(comm_agree(r->comm, st));
    return comm_sum(r->comm, marks->bad, n);
}

enum status nonfinite_name(struct run *r, char *text, size_t bytes)
{
    struct marks marks = {.m = r->session->model};
    const struct model *whole = marks.m->whole;
    int named = -1, all = 0;
    text[0] = 0;
    const enum status st = mark(r, &marks);
    for (int i = 0; i < whole->n_params && st == OK; i++) {
        if (!marks.bad[i])
            continue;
        const int better = named < 0 || whole->params[i].shape[1] > 0 || whole->params[named].shape[1] == 0;
        named = better ? i : named;
        all++;
    }
    if (all == 1)
        snprintf(text, bytes, "%s", whole->params[named].name);
    else if (all > 1)
        snprintf(text, bytes, "%s and %d other tensor%s", whole->params[named].name, all - 1, all == 2 ? "" : "s");
    free(marks.bad);
    return st;
}
