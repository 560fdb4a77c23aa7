/* Rotary positions that the command line asks for in place of config.json's, and their description in words. */
#include "model/model.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    enum rope_kind kind;
    /* 1: with `factor`, the model is made for that many times the positions; 0: dynamic, which grows with the sequence instead */
    int stretches;
} kinds[] = {{"linear", ROPE_LINEAR, 1}, {"llama3", ROPE_LLAMA3, 1}, {"dynamic", ROPE_DYNAMIC, 0}, {"yarn", ROPE_YARN, 1}};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST_FACTOR = 1000000 };

static enum status refuse(const char *rope)
{
    return status_fail(
        ERR_INVALID,
        "--rope %.40s: give KIND:FACTOR, as yarn:4, with one of linear, llama3, dynamic and yarn and a factor above "
        "1 and at most %d, or none",
        rope, MOST_FACTOR);
}

static void clear_scaling(struct model_config *c)
{
    c->rope = ROPE_DEFAULT;
    c->rope_factor = c->rope_low_freq = c->rope_high_freq = c->rope_original_positions = 0.0;
    c->rope_slope = 0.0; /* a part of the model's own scaling, which --rope replaces */
    c->rope_alpha = c->rope_fast = c->rope_slow = c->rope_attention = c->rope_mscale = c->rope_mscale_all = 0.0;
    c->rope_exact = 0;
    memset(c->rope_short, 0, sizeof c->rope_short);
    memset(c->rope_long, 0, sizeof c->rope_long);
}

double model_trained_positions(const struct model_config *c)
{
    int said = c->rope == ROPE_LLAMA3 || c->rope == ROPE_YARN || c->rope == ROPE_LONGROPE;
    return said ? c->rope_original_positions : (double)c->max_positions;
}

static void set_scaling(struct model_config *c, int k, double factor)
{
    const double original = model_trained_positions(c);
    if (c->rope == kinds[k].kind && c->rope_factor == factor)
        return; /* nothing to do: the checkpoint of such a run has these positions already */
    clear_scaling(c);
    c->rope = kinds[k].kind;
    c->rope_factor = factor;
    c->rope_original_positions = c->rope == ROPE_LINEAR ? 0.0 : original;
    if (c->rope == ROPE_YARN) {
        c->rope_fast = 32.0;
        c->rope_slow = 1.0;
    }
    if (c->rope == ROPE_LLAMA3) {
        c->rope_low_freq = 1.0;
        c->rope_high_freq = 4.0;
    }
    if (kinds[k].stretches && factor * original < (double)INT32_MAX)
        c->max_positions = (int64_t)(factor * original);
}

enum status model_config_set_rope(struct model_config *c, const char *rope, double base)
{
    char *end = NULL;
    if ((rope || base > 0.0) && model_learns_positions(c))
        return status_fail(ERR_INVALID, "--%s: model %s has learned positions, not rotary ones", rope ? "rope" : "rope-base",
                           c->name);
    if ((rope || base > 0.0) && !model_rotates(c))
        return status_fail(ERR_INVALID, "--%s: model %s has no positions in its attention, so there is nothing to change",
                           rope ? "rope" : "rope-base", c->name);
    if ((rope || base > 0.0) && model_fixes_rope(c))
        return status_fail(
            ERR_INVALID,
            "--%s: nothing in config.json says rotary positions of model %s, whose base is always 10000, and no reader "
            "would know of others",
            rope ? "rope" : "rope-base", c->name);
    if (rope && c->rope == ROPE_PROPORTIONAL)
        return status_fail(
            ERR_INVALID,
            "--rope %.40s: model %s rotates a part of its heads' pairs (proportional), which goes with no other scaling; "
            "--rope-base changes its base",
            rope, c->name);
    if (rope && (c->family == FAMILY_GRANITE_SWA || c->family == FAMILY_GRANITEMOE_SWA) && c->rope_local_theta > 0.0)
        return status_fail(
            ERR_INVALID,
            "--rope %.40s: the layers of model %s have different rotary bases, which go with no scaling; --rope-base changes "
            "that of layers without a window",
            rope, c->name);
    if (rope && strcmp(rope, "none") == 0) {
        c->max_positions = (int64_t)model_trained_positions(c); /* back to the number before the file's scaling */
        clear_scaling(c);
    } else if (rope) {
        const char *colon = strchr(rope, ':');
        int k = 0;
        while (colon && k < KINDS &&
               !(strlen(kinds[k].word) == (size_t)(colon - rope) && memcmp(kinds[k].word, rope, (size_t)(colon - rope)) == 0))
            k++;
        double factor = colon ? strtod(colon + 1, &end) : 0.0;
        if (!colon || k == KINDS || end == colon + 1 || *end || !(factor > 1.0 && factor <= MOST_FACTOR))
            return refuse(rope);
        set_scaling(c, k, factor);
    }
    if (base > 0.0)
        c->rope_theta = base;
    return OK;
}

/* ---- in words ---- */

static void describe_scaling(const struct model_config *c, int64_t tokens, char *text, size_t bytes)
{
    static const char *const words[] = {"", "linear", "llama3", "dynamic", "yarn", "longrope"};
    char original[32];
    units_format_count((int64_t)(c->rope_original_positions > 0.0 ? c->rope_original_positions : (double)c->max_positions),
                       original);
    if (c->rope == ROPE_DEFAULT)
        snprintf(text, bytes, "no scaling, %s positions", original);
    else if (c->rope == ROPE_LONGROPE)
        snprintf(text, bytes, "longrope with its %s factors, factor %g from %s positions",
                 (double)tokens > c->rope_original_positions ? "long" : "short", c->rope_factor, original);
    else if (c->rope_alpha > 0.0)
        snprintf(text, bytes, "raised by alpha %g, %s positions", c->rope_alpha, original);
    else if (c->rope == ROPE_PROPORTIONAL)
        snprintf(text, bytes, "proportional, %g of each head's pairs", c->rope_share > 0.0 ? c->rope_share : 1.0);
    else if (c->rope == ROPE_LINEAR)
        snprintf(text, bytes, "linear with factor %g", c->rope_factor);
    else
        snprintf(text, bytes, "%s with factor %g from %s positions", words[c->rope], c->rope_factor, original);
}

void model_describe_rope(const struct model *m, int64_t tokens, char *text, size_t bytes)
{
    const struct model_config *c = &m->config;
    char scaling[160], local[64] = "", none[64] = "";
    int unrotated = 0;
    for (int64_t l = 0; l < c->layers; l++)
        unrotated += model_bit(c->unrotated, l);
    describe_scaling(c, tokens, scaling, sizeof scaling);
    if (m->n_ropes > 0 && m->ropes[m->n_ropes - 1].local)
        snprintf(local, sizeof local, "; windowed layers: base %.9g", c->rope_local_theta);
    if (unrotated > 0)
        snprintf(none, sizeof none, "; none in %d of %d layers", unrotated, (int)c->layers);
    snprintf(text, bytes, "base %.9g, %s%s%s", model_rope_base(c, tokens), scaling, local, none);
}
