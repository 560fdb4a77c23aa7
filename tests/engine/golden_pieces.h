/* Compares state that ranks share with a case of tests/golden. */
#ifndef LTRAIN_TESTS_ENGINE_GOLDEN_PIECES_H
#define LTRAIN_TESTS_ENGINE_GOLDEN_PIECES_H

#include "engine/rig.h"
#include "engine/weights.h"

#include <stdlib.h>
#include <string.h>

struct golden_sums {
    const struct model *m;
    struct st_file *file;
    const char *prefix; /* beginning of the golden tensors' names, with its dot */
    double *sums;       /* [params][2]: squares of differences, and of golden elements */
};

static inline enum status golden_add_pieces(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct golden_sums *x = user;
    const struct model_unit *u = &x->m->units[unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &x->m->params[i];
        int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        if (a >= b || !p->trained)
            continue;
        float *want = malloc((size_t)(b - a) * sizeof *want);
        int64_t finite;
        struct model_param named = *p; /* matrices that files have side by side are read by name; results have names of modules */
        named.root = NULL;
        named.renamed = NULL;
        const struct model_param plain = named;
        snprintf(named.name, sizeof named.name, "%.15s%.80s", x->prefix, p->name);
        enum status st = p->form == STACK_BESIDE
                             ? weights_read(x->file, &named, a - p->offset, b - a, F32, want)
                             : weights_read_tensors(x->file, x->prefix, &plain, a - p->offset, b - a, F32, want, &finite);
        for (int64_t k = a; k < b && st == OK; k++) {
            const double v = want[k - a], d = data[k - first] - v;
            x->sums[2 * i] += d * d;
            x->sums[2 * i + 1] += v * v;
        }
        free(want);
        TRY(st);
    }
    return OK;
}

/* Adds up over all ranks' pieces, parameter by parameter, the squares of differences from the golden tensors and of these. *out: freed
 * by the caller. */
static inline enum status golden_pieces(struct rig *r, struct st_file *file, enum state_kind kind, const char *prefix,
                                        double **out)
{
    struct golden_sums x = {r->model, file, prefix, calloc((size_t)r->model->n_params * 2, sizeof(double))};
    *out = x.sums;
    for (int u = 0; u < r->model->n_units; u++)
        TRY(session_visit(r->session, u, kind, STATE_READ, golden_add_pieces, &x));
    return comm_sum(r->comm, x.sums, 2 * r->model->n_params);
}

#endif
