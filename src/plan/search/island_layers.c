/* Layers of stages that are not equally fast. */
#include "plan/search/island_layers.h"

#include "machine/islands.h"
#include "model/part.h"
#include "plan/lower/mesh_parts.h"
#include "plan/search/mesh_seconds.h"

void stages_share_layers(int stages, const double *each, const double *ends, int64_t layers, struct mesh_stages *out)
{
    *out = (struct mesh_stages){.n = stages};
    for (int s = 0; s < stages; s++)
        out->layers[s] = 1;
    for (int64_t left = layers - stages; left > 0;
         left--) { /* one layer after another, to the stage that is done first with it */
        int best = 0;
        for (int s = 1; s < stages; s++)
            if (ends[s] + each[s] * (out->layers[s] + 1) < ends[best] + each[best] * (out->layers[best] + 1))
                best = s;
        out->layers[best]++;
    }
}

/* Finds the seconds of compute of a stage with a number of layers on an island. */
static enum status seconds_on(const struct model *m, const struct plan_request *s, int island, int64_t layers,
                              const int64_t limit[TIERS], double *out)
{
    const struct model_part part = {0, layers, 0, mesh_degree(&s->mesh, MESH_TP)};
    struct plan_request r = *s;
    struct mesh_products products;
    struct mesh_figures f;
    struct model *stage;
    r.hardware = (struct hardware *)&mesh_islands(s)->of[island];
    TRY(model_part_create(m, &part, &stage));
    mesh_products_of(stage, &products);
    const enum status st = mesh_seconds(stage, &products, &r, limit, &f);
    model_destroy(stage);
    *out = f.compute;
    return st;
}

enum status island_layers(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                          struct mesh_stages *out)
{
    const struct islands *x = mesh_islands(s);
    const int stages = mesh_degree(&s->mesh, MESH_PP);
    const int64_t layers = m->config.layers, usual = ceil_div(layers, stages);
    double each[MESH_MOST_STAGES], ends[MESH_MOST_STAGES], one[MACHINE_MOST_ISLANDS], some[MACHINE_MOST_ISLANDS];
    *out = (struct mesh_stages){.n = 0};
    if (usual == 1 || stages > MESH_MOST_STAGES)
        return OK;
    for (int i = 0; i < x->n; i++) {
        TRY(seconds_on(m, s, i, 1, limit, &one[i]));
        TRY(seconds_on(m, s, i, usual, limit, &some[i]));
    }
    for (int k = 0; k < stages; k++) {
        const int i = islands_of_stage(x, k, stages);
        each[k] = (some[i] - one[i]) / (double)(usual - 1);
        ends[k] = one[i] - each[k];
    }
    stages_share_layers(stages, each, ends, layers, out);
    int even = 1;
    for (int k = 0; k < stages; k++)
        even &= out->layers[k] == layers / stages + (k < layers % stages);
    if (even)
        out->n = 0;
    return OK;
}
