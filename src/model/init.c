/* Numbers that follow from the configuration: initial weights, rotary frequencies, FLOPs. */
#include "model/model.h"

#include "base/rng.h"

#include <math.h>

void model_init_param(const struct model *m, int param, uint64_t seed, int64_t first, int64_t n, float *out)
{
    const struct model_param *p = &m->params[param];
    if (p->init == INIT_NORMAL)
        rng_normals(seed, rng_stream(p->name), (uint64_t)first, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = p->init == INIT_NORMAL ? out[i] * p->init_std : p->init == INIT_ONES ? 1.0f : 0.0f;
}

/* Llama 3.1: wavelengths short against the original context stay, long ones are stretched by `factor`, those between are blended.
 */
static double scale_llama3(const struct model_config *c, double freq)
{
    double turns = c->rope_original_positions * freq / 6.283185307179586; /* original context / wavelength */
    if (turns > c->rope_high_freq)
        return freq;
    if (turns < c->rope_low_freq)
        return freq / c->rope_factor;
    double smooth = (turns - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1.0 - smooth) * freq / c->rope_factor + smooth * freq;
}

void model_inv_freq(const struct model_config *config, float *out)
{
    for (int64_t i = 0; i < config->head_dim / 2; i++) {
        double freq = pow(config->rope_theta, -2.0 * (double)i / (double)config->head_dim);
        if (config->rope == ROPE_LINEAR)
            freq /= config->rope_factor;
        else if (config->rope == ROPE_LLAMA3)
            freq = scale_llama3(config, freq);
        out[i] = (float)freq;
    }
}

double model_flops(const struct model *m, int64_t tokens, double pairs)
{
    double h = (double)(m->config.heads * m->config.head_dim);
    return 6.0 * (double)m->matrix_params * (double)tokens + 12.0 * (double)m->config.layers * h * pairs;
}
