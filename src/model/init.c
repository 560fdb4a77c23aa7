/* Numbers that follow from the configuration: initial weights, rotary frequencies, FLOPs. */
#include "model/block_rows.h"
#include "model/model.h"

#include "base/rng.h"

#include <math.h>

#define TWO_PI 6.283185307179586

void model_init_param(const struct model *m, int param, uint64_t seed, int64_t first, int64_t n, float *out)
{
    const struct model_param *p = &m->params[param];
    for (int64_t at = 0, whole, some; at < n; at += some) {
        some = model_param_span(p, first + at, n - at, &whole);
        if (p->init == INIT_NORMAL)
            rng_normals(seed, rng_stream(p->name), (uint64_t)whole, some, out + at);
        if (p->init == INIT_UNIFORM || p->init == INIT_DECAY || p->init == INIT_STEP)
            rng_uniforms(seed, rng_stream(p->name), (uint64_t)whole, some, out + at);
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = p->init == INIT_NORMAL    ? out[i] * p->init_std
                 : p->init == INIT_UNIFORM ? (2.0f * out[i] - 1.0f) * p->init_std
                 : p->init == INIT_DECAY   ? logf(0.01f + 15.99f * out[i])
                 : p->init == INIT_STEP    ? logf(expm1f(0.001f * powf(100.0f, out[i])))
                 : p->init == INIT_ONES    ? 1.0f
                                           : 0.0f;
}

/* ---- rotary frequencies ---- */

int64_t model_rotated(const struct model_config *c, int64_t head_dim)
{
    return c->rope_share > 0.0 && c->rope != ROPE_PROPORTIONAL ? (int64_t)((double)head_dim * c->rope_share) : head_dim;
}

/* Scales a frequency as Llama 3.1 does: wavelengths short beside the original context stay, long ones are stretched by `factor`,
 * and in between the two are blended. */
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

/* Returns the index (a real number) of the frequency that makes `turns` turns within the original context; n: rotated elements of
 * a head. */
static double yarn_turns(const struct model_config *c, int64_t n, double turns)
{
    return (double)n * log(c->rope_original_positions / (turns * TWO_PI)) / (2.0 * log(c->rope_theta));
}

/* Scales a frequency by YaRN (Peng et al. 2023): fast frequencies stay, slow ones are stretched, with a ramp in between. */
static double scale_yarn(const struct model_config *c, int64_t n, int64_t i, double freq)
{
    double low = yarn_turns(c, n, c->rope_fast), high = yarn_turns(c, n, c->rope_slow);
    if (!c->rope_exact) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(n - 1));
    if (low == high)
        high += 0.001;
    double stretched = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return freq / c->rope_factor * stretched + freq * (1.0 - stretched);
}

static double base_of(const struct model_config *c, double n, int64_t tokens)
{
    double most = (double)c->max_positions;
    if (c->rope == ROPE_DYNAMIC && c->rope_alpha > 0.0)
        return c->rope_theta * pow(c->rope_alpha, n / (n - 2.0));
    if (c->rope != ROPE_DYNAMIC || (double)tokens <= most)
        return c->rope_theta;
    return c->rope_theta * pow(c->rope_factor * (double)tokens / most - (c->rope_factor - 1.0), n / (n - 2.0));
}

double model_rope_base(const struct model_config *c, int64_t tokens)
{
    return base_of(c, (double)model_rotated(c, c->head_rotated > 0 ? c->head_rotated : c->head_dim), tokens);
}

/* Returns the i-th frequency of heads with n rotated elements, for sequences of `tokens`. */
static double frequency(const struct model_config *c, int64_t n, int64_t tokens, int64_t i)
{
    double freq = pow(base_of(c, (double)n, tokens), -2.0 * (double)i / (double)n);
    switch (c->rope) {
    case ROPE_LINEAR:
        return freq / c->rope_factor;
    case ROPE_LLAMA3:
        return scale_llama3(c, freq);
    case ROPE_YARN:
        return scale_yarn(c, n, i, freq);
    case ROPE_LONGROPE:
        return freq / ((double)tokens > c->rope_original_positions ? c->rope_long : c->rope_short)[i];
    case ROPE_PROPORTIONAL: /* like linear for the first pairs of a head; the others are not rotated */
        return i < (int64_t)(0.5 * (c->rope_share > 0.0 ? c->rope_share : 1.0) * (double)n) ? freq / c->rope_factor : 0.0;
    case ROPE_DEFAULT:
    case ROPE_DYNAMIC:
        break;
    }
    return freq;
}

void model_inv_freq(const struct model *m, int64_t tokens, float *out)
{
    struct model_config local = m->config;
    local.rope = ROPE_DEFAULT;
    local.rope_theta = local.rope_local_theta;
    for (const struct rope_set *r = m->ropes; r < m->ropes + m->n_ropes; r++)
        for (int64_t i = 0; i < r->n; i++)
            out[r->first + i] = (float)frequency(r->local ? &local : &m->config, 2 * r->n, tokens, i);
}

double model_yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

double model_rope_attention(const struct model *m, int rope)
{
    const struct model_config *c = &m->config;
    if (rope < 0 || m->ropes[rope].local || (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE))
        return 1.0;
    if (c->rope_attention > 0.0)
        return c->rope_attention;
    if (c->rope == ROPE_LONGROPE)
        return c->rope_factor <= 1.0 ? 1.0 : sqrt(1.0 + log(c->rope_factor) / log(c->rope_original_positions));
    if (c->rope_mscale > 0.0 && c->rope_mscale_all > 0.0)
        return model_yarn_scale(c->rope_factor, c->rope_mscale) / model_yarn_scale(c->rope_factor, c->rope_mscale_all);
    return model_yarn_scale(c->rope_factor, 1.0);
}

/* ---- FLOPs ---- */

double model_flops(const struct model *m, int64_t tokens, const double pairs[MODEL_MASKS])
{
    double flops = (4.0 * (double)m->matrix_params + 2.0 * (double)m->trained_matrix_params) * (double)tokens;
    for (const struct model_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++)
        for (int i = 0; i < m->layers[k->first].n_blocks; i++)
            flops += block_flops(m, &m->layers[k->first].blocks[i], k->layers, tokens, pairs);
    return flops;
}

void model_causal_pairs(const struct model *m, int64_t tokens, double pairs[MODEL_MASKS])
{
    for (int i = 0; i < MODEL_MASKS; i++) {
        double s = (double)tokens, w = m->mask_window[i] > 0 && m->mask_window[i] < tokens ? (double)m->mask_window[i] : s;
        pairs[i] = s * w - w * w / 2;
    }
}
