/* What is planned for. */
#include "plan/search/problem.h"

#include "machine/rank_cost.h"

#include <string.h>

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    out->model = m;
    out->request = *s;
    plan_cost_model(&out->request, &out->cost);
    memcpy(out->limit, limit, sizeof out->limit);
}

enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out)
{
    struct model_config c = p->model->config;
    c.layers = layers;
    return model_create(&c, (const char *const *)p->request.freeze.item, p->request.freeze.n, out);
}
