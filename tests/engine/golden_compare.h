/* A run's state beside a case of tests/golden. Included after cmocka.h. */
#ifndef LTRAIN_TESTS_ENGINE_GOLDEN_COMPARE_H
#define LTRAIN_TESTS_ENGINE_GOLDEN_COMPARE_H

#include "engine/golden.h"
#include "engine/rig.h"
#include "engine/weights.h"

#include <math.h>
#include <stdlib.h>

/* Largest norm-wise relative difference between a state and the golden tensors `prefix.NAME`, of what is in use: PyTorch's weight
 * decay shrinks the other rows of learned positions, which ltrain leaves as they are. Those above `say` are printed. */
static inline double golden_compare(struct rig *r, struct st_file *f, enum state_kind kind, const char *prefix, double say)
{
    double worst = 0;
    int compared = 0;
    for (int u = 0; u < r->model->n_units; u++) {
        float *have = calloc((size_t)r->model->units[u].elements, 4);
        assert_int_equal(rig_state(r, u, kind, have), OK);
        for (int i = 0; i < r->model->units[u].n_params; i++) {
            const struct model_param *p = &r->model->params[r->model->units[u].first_param + i];
            char name[160];
            struct st_info info;
            snprintf(name, sizeof name, "%s.%s", prefix, p->name);
            if (!p->trained) {
                assert_int_not_equal(st_find(f, name, &info), OK);
                continue;
            }
            assert_int_equal(st_find(f, name, &info), OK);
            assert_int_equal(info.elements, model_param_stored(p));
            float *want = malloc((size_t)p->elements * 4);
            assert_int_equal(weights_read_tensor(f, name, p, 0, p->elements, want), OK);
            double d = 0, n = 0;
            for (int64_t k = 0; k < p->elements; k++) {
                double e = (double)have[p->offset + k] - want[k];
                d += e * e;
                n += (double)want[k] * want[k];
            }
            double rel = sqrt(d / (n > 1e-24 ? n : 1));
            if (!(rel < say))
                print_message("%s: %g (norm %g)\n", name, rel, sqrt(n));
            worst = rel > worst || isnan(rel) ? rel : worst;
            compared++;
            free(want);
        }
        free(have);
    }
    assert_true(compared > 0);
    return worst;
}

#endif
