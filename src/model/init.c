/* Numbers that follow from the configuration: initial weights, rotary frequencies, FLOPs. */
#include "model/model.h"

#include "base/rng.h"

#include <math.h>

#define TWO_PI 6.283185307179586

void model_init_param(const struct model *m, int param, uint64_t seed, int64_t first, int64_t n, float *out)
{
    const struct model_param *p = &m->params[param];
    if (p->init == INIT_NORMAL)
        rng_normals(seed, rng_stream(p->name), (uint64_t)first, n, out);
    if (p->init == INIT_UNIFORM)
        rng_uniforms(seed, rng_stream(p->name), (uint64_t)first, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = p->init == INIT_NORMAL    ? out[i] * p->init_std
                 : p->init == INIT_UNIFORM ? (2.0f * out[i] - 1.0f) * p->init_std
                 : p->init == INIT_ONES    ? 1.0f
                                           : 0.0f;
}

/* ---- rotary frequencies ---- */

int64_t model_rotated(const struct model_config *c)
{
    return c->rope_share > 0.0 ? (int64_t)((double)c->head_dim * c->rope_share) : c->head_dim;
}

/* Llama 3.1: wavelengths short against the original context stay, long ones are stretched by `factor`, those between are blended.
 */
static double scale_llama3(const struct model_config *c, double freq)
{
    double turns = c->rope_original_positions * freq / TWO_PI; /* original context / wavelength */
    if (turns > c->rope_high_freq)
        return freq;
    if (turns < c->rope_low_freq)
        return freq / c->rope_factor;
    double smooth = (turns - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1.0 - smooth) * freq / c->rope_factor + smooth * freq;
}

/* The (real-valued) frequency that turns so often within the original context. */
static double yarn_turns(const struct model_config *c, double turns)
{
    return (double)model_rotated(c) * log(c->rope_original_positions / (turns * TWO_PI)) / (2.0 * log(c->rope_theta));
}

/* YaRN (Peng et al. 2023): frequencies that turn often stay, slow ones are stretched, with a ramp between. */
static double scale_yarn(const struct model_config *c, int64_t i, double freq)
{
    double low = yarn_turns(c, c->rope_fast), high = yarn_turns(c, c->rope_slow);
    if (!c->rope_exact) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(model_rotated(c) - 1));
    if (low == high)
        high += 0.001;
    double stretched = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return freq / c->rope_factor * stretched + freq * (1.0 - stretched);
}

double model_rope_base(const struct model_config *c, int64_t tokens)
{
    double n = (double)model_rotated(c), most = (double)c->max_positions;
    if (c->rope != ROPE_DYNAMIC || (double)tokens <= most)
        return c->rope_theta;
    return c->rope_theta * pow(c->rope_factor * (double)tokens / most - (c->rope_factor - 1.0), n / (n - 2.0));
}

static double frequency(const struct model_config *c, int64_t tokens, int64_t i)
{
    double freq = pow(model_rope_base(c, tokens), -2.0 * (double)i / (double)model_rotated(c));
    switch (c->rope) {
    case ROPE_LINEAR:
        return freq / c->rope_factor;
    case ROPE_LLAMA3:
        return scale_llama3(c, freq);
    case ROPE_YARN:
        return scale_yarn(c, i, freq);
    case ROPE_LONGROPE:
        return freq / ((double)tokens > c->rope_original_positions ? c->rope_long : c->rope_short)[i];
    case ROPE_DEFAULT:
    case ROPE_DYNAMIC:
        break;
    }
    return freq;
}

void model_inv_freq(const struct model *m, int64_t tokens, float *out)
{
    int64_t half = model_rotated(&m->config) / 2;
    struct model_config local = m->config;
    local.rope = ROPE_DEFAULT;
    local.rope_theta = local.rope_local_theta;
    for (int r = 0; r < m->n_ropes; r++)
        for (int64_t i = 0; i < half; i++)
            out[r * half + i] = (float)frequency(r ? &local : &m->config, tokens, i);
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

double model_rope_attention(const struct model_config *c, int rope)
{
    if (rope > 0 || (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE))
        return 1.0;
    if (c->rope_attention > 0.0)
        return c->rope_attention;
    if (c->rope == ROPE_LONGROPE)
        return c->rope_factor <= 1.0 ? 1.0 : sqrt(1.0 + log(c->rope_factor) / log(c->rope_original_positions));
    if (c->rope_mscale > 0.0 && c->rope_mscale_all > 0.0)
        return yarn_scale(c->rope_factor, c->rope_mscale) / yarn_scale(c->rope_factor, c->rope_mscale_all);
    return yarn_scale(c->rope_factor, 1.0);
}

/* ---- FLOPs ---- */

double model_flops(const struct model *m, int64_t tokens, const double pairs[MODEL_MASKS])
{
    double h = (double)(m->config.heads * m->config.head_dim), flops = (4.0 * (double)m->matrix_params + 2.0 * (double)m->trained_matrix_params) * (double)tokens;
    for (int i = 0; i < m->n_masks; i++)
        flops += 12.0 * m->mask_layers[i] * h * pairs[i];
    return flops;
}

void model_causal_pairs(const struct model *m, int64_t tokens, double pairs[MODEL_MASKS])
{
    for (int i = 0; i < MODEL_MASKS; i++) {
        double s = (double)tokens, w = m->mask_window[i] > 0 && m->mask_window[i] < tokens ? (double)m->mask_window[i] : s;
        pairs[i] = s * w - w * w / 2;
    }
}
