#include "engine/expert_load.h"

int expert_counts(const struct session *s)
{
    return model_expert_layers(s->model->whole) * (int)s->model->config.experts;
}

int expert_counts_first(const struct session *s)
{
    const struct model *m = s->model;
    int before = 0;
    for (int64_t l = 0; m->config.experts > 0 && l < m->part.first_layer; l++)
        before += model_find_block(&m->whole->layers[l], BLOCK_EXPERTS) != NULL;
    return before * (int)m->config.experts;
}

void expert_counts_add(struct session *s, double *counts)
{
    const int first = expert_counts_first(s), n = model_expert_layers(s->model) * (int)s->model->config.experts;
    const int32_t *own = n > 0 ? session_io(s, s->plan->io.load) : NULL;
    for (int i = 0; i < n; i++)
        counts[first + i] += own[i];
}

double expert_balance_of(const struct model *m, const int32_t *plain, int parts, const float *sums)
{
    const int64_t experts = m->config.experts;
    double rows = 0, sum = 0;
    for (int64_t e = 0; e < experts; e++) {
        double count = 0;
        for (int64_t part = 0; part < parts; part++)
            count += plain[part * experts + e];
        rows += count / (double)m->config.experts_used;
        sum += count * sums[e];
    }
    return rows > 0 ? (double)experts * sum / rows / rows : 0;
}

double expert_balance(struct session *s)
{
    if (expert_counts(s) == 0 || model_aux(&s->model->config) == 0)
        return 0;
    const int32_t *own = (const int32_t *)session_io(s, s->plan->io.load) + expert_counts(s),
                  *plain = s->plan->io.plain >= 0 ? session_io(s, s->plan->io.plain) : own;
    const float *sums = (const float *)(own + s->model->config.experts);
    return expert_balance_of(s->model, plain, s->plan->io.plain >= 0 ? mesh_sharing(&s->plan->strategy.key.mesh) : 1, sums);
}
