/* What is planned for. */
#include "plan/search/problem.h"

#include "machine/rank_cost.h"

#include <math.h>
#include <string.h>

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    out->model = m;
    out->request = *s;
    plan_cost_model(&out->request, &out->cost);
    memcpy(out->limit, limit, sizeof out->limit);
}

/* Where some layers have a window and others attend more, a few layers stand for all: the first one has the window, so that there
 * are as many masks, and the others one with as many pairs as the model's layers have on average. */
static void level_windows(const struct model *m, int64_t tokens, struct model_config *c)
{
    double pairs[MODEL_MASKS], mean = 0, s = (double)tokens;
    model_causal_pairs(m, tokens, pairs);
    for (int i = 0; i < m->n_masks; i++)
        mean += pairs[i] * m->mask_layers[i] / (double)m->config.layers;
    double window = s - sqrt(fmax(s * s - 2 * mean, 0)); /* of s * w - w * w / 2 pairs */
    c->wide = window < s ? max_i64((int64_t)window, m->mask_window[m->n_masks - 1] + 1) : 0;
    memset(c->windowed, 0, sizeof c->windowed);
    c->windowed[0] = 1;
}

enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out)
{
    struct model_config c = p->model->config;
    c.layers = layers;
    if (p->model->n_masks > 1)
        level_windows(p->model, p->request.seq_len, &c);
    return model_create(&c, (const char *const *)p->request.freeze.item, p->request.freeze.n, out);
}
