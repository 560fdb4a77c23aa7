/* Placements as points of a small design space, and the small models for them. Shared by the tests of plan and engine. */
#ifndef LTRAIN_TESTS_PLAN_CELLS_H
#define LTRAIN_TESTS_PLAN_CELLS_H

#include "base/rng.h"
#include "engine/backend_cpu.h"
#include "plan/plan.h"
#include "plan_request.h"

#include <stddef.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum factor { F_PARAMS, F_GRADS, F_OPTIM, F_ACTS, F_ALPHA, F_PREFETCH, F_UPDATE, F_DEVICE, F_INPUTS, F_PASSING, FACTORS };
static const int LEVELS[FACTORS] = {3, 3, 3, 3, 3, 3, 2, 2, 3, 3};

/* Levels of factors, by name. A factor that is not set has level 0: state is on a device that also does the updates, and all
 * inputs are kept. */
enum { ON_DEVICE, ON_HOST, ON_DRIVES };         /* params, grads, optim, acts */
enum { KEEP_ALL, KEEP_HALF, KEEP_NONE };        /* alpha: 1, 1/2, 0 */
enum { AHEAD_AUTO, AHEAD_0, AHEAD_1 };          /* prefetch distance */
enum { INPUTS_ALL, INPUTS_HALF, INPUTS_THIRD }; /* which layers keep their inputs */
enum {
    PASS_WITH_ACTS,
    PASS_ON_HOST,
    PASS_ON_DEVICE
}; /* place of hidden states between layers; never slower than that of activations */
#define EVERYTHING(tier) .params = tier, .grads = tier, .optim = tier, .acts = tier

/* Levels of one more factor, for models with both kinds of layers: the share of chunks that layers with a window keep, and the
 * share of the others. */
enum { KINDS_ALIKE, KINDS_NONE_AND_ALL, KINDS_ALL_AND_NONE, KINDS_HALF_AND_ALL };

struct cell {
    union {
        int level[FACTORS];
        struct { /* in the order of enum factor */
            int params, grads, optim, acts, alpha, prefetch, host_update, discrete, inputs, passing;
        };
    };
    int kinds;
};
_Static_assert(offsetof(struct cell, passing) == F_PASSING * sizeof(int), "a field for every factor");

/* Returns the tier of hidden states between layers; at level 0 the tier of activations. */
static inline int cell_passing(const struct cell *c)
{
    int away = 2 - c->level[F_PASSING];
    return away < c->level[F_ACTS] ? away : c->level[F_ACTS];
}

static inline const char *cell_name(const struct cell *c)
{
    static char text[192];
    static const char *const tier[] = {"none", "cpu", "nvme"}, *const alpha[] = {"1", "1/2", "0"},
                             *const ahead[] = {"auto", "0", "1"};
    static const char *const kinds[] = {"", " (window 0, full 1)", " (window 1, full 0)", " (window 1/2, full 1)"};
    snprintf(text, sizeof text,
             "params=%s grads=%s optim=%s acts=%s passing=%s alpha=%s%s prefetch=%s update=%s cpu%s inputs=1/%d",
             tier[c->level[F_PARAMS]], tier[c->level[F_GRADS]], tier[c->level[F_OPTIM]], tier[c->level[F_ACTS]],
             tier[cell_passing(c)], alpha[c->level[F_ALPHA]], kinds[c->kinds], ahead[c->level[F_PREFETCH]],
             c->level[F_UPDATE] ? "host" : "device", c->level[F_DEVICE] ? ":discrete" : "", c->level[F_INPUTS] + 1);
    return text;
}

static inline void cell_apply(const struct cell *c, struct plan_request *s)
{
    static const enum offload tier[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    static const double alpha[] = {1, 0.5, 0}, ahead[] = {AUTO, 0, 1};
    s->params = tier[c->level[F_PARAMS]];
    s->grads = tier[c->level[F_GRADS]];
    s->optim = tier[c->level[F_OPTIM]];
    s->acts = tier[c->level[F_ACTS]];
    s->passing = tier[cell_passing(c)];
    s->alpha = alpha[c->level[F_ALPHA]];
    s->alpha_by_kind = c->kinds != KINDS_ALIKE;
    if (s->alpha_by_kind) {
        s->alpha = c->kinds != KINDS_ALL_AND_NONE;
        s->window_alpha = c->kinds == KINDS_ALL_AND_NONE ? 1 : c->kinds == KINDS_HALF_AND_ALL ? 0.5 : 0;
    }
    s->prefetch = ahead[c->level[F_PREFETCH]];
    s->update = c->level[F_UPDATE] ? UPDATE_HOST : UPDATE_DEVICE;
    s->device = c->level[F_DEVICE] ? DEVICE_CPU_DISCRETE : DEVICE_CPU;
    s->keep_inputs = c->level[F_INPUTS] + 1;
}

/* Returns the target of all plans that a test executes. */
static inline struct target *cell_target(void)
{
    static struct target t;
    t = backend_cpu_target(omp_get_max_threads());
    return &t;
}

/* Sets tiny tiles: row chunks of 32, of which the last is short, one head per tile, several groups per unit. */
static inline void cell_settings(struct plan_request *s, int64_t seq_len, enum dtype dtype)
{
    plan_request_defaults(s, seq_len);
    s->target = cell_target();
    s->params = s->grads = s->optim = s->acts = OFFLOAD_NONE;
    s->passing = OFFLOAD_NVME; /* level 0: hidden states stay with the activations */
    s->alpha = 1;
    s->update = UPDATE_DEVICE;
    s->device = DEVICE_CPU;
    s->row_chunk = 32;
    s->head_tile = 1;
    s->loss_tile = 16;
    s->group = 5000;
    s->dtype = dtype;
}

/* Creates a model with products so large that drives matter; its plans are never executed. */
static inline enum status cell_wide_model(int layers, int positions, struct model **out)
{
    const struct model_config c = {.family = FAMILY_LLAMA,
                                   .name = "wide",
                                   .vocab = 256,
                                   .dim = 1024,
                                   .ffn = 2816,
                                   .layers = layers,
                                   .heads = 16,
                                   .kv_heads = 8,
                                   .head_dim = 64,
                                   .max_positions = positions,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.02f,
                                   .rope_theta = 10000};
    return model_create(&c, NULL, 0, out);
}

/* Creates a model with 4 query heads on 2 KV heads, untied; or GPT-2 (tied, biases, learned positions, 2 heads). */
static inline enum status cell_model(enum model_family family, int layers, struct model **out)
{
    struct model_config c;
    if (family == FAMILY_LLAMA || family == FAMILY_GPT_OSS) {
        c = (struct model_config){.family = family,
                                  .vocab = 96,
                                  .dim = 64,
                                  .ffn = 96,
                                  .layers = layers,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .max_positions = 4096,
                                  .norm_eps = 1e-5f,
                                  .init_std = 0.1f,
                                  .rope_theta = 10000};
        strcpy(c.name, "llama");
        if (family == FAMILY_GPT_OSS) { /* with sinks, and a window in the first layer only */
            c.window = 40;
            c.windowed[0] = 1;
            c.attention_bias = 1;
            c.gate = GATE_CLAMPED;
            c.gate_limit = 1;
            c.gate_alpha = 1.702;
            strcpy(c.name, "gpt-oss");
        }
    } else {
        c = (struct model_config){.family = family,
                                  .vocab = 96,
                                  .dim = 32,
                                  .ffn = 128,
                                  .layers = layers,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .max_positions = 256,
                                  .tied = 1,
                                  .norm_eps = 1e-5f,
                                  .init_std = 0.1f};
        strcpy(c.name, "gpt2");
    }
    return model_create(&c, NULL, 0, out);
}

/* Creates a small model with a table of learned positions that takes 8 MiB in fp32 as a whole. */
static inline enum status long_table_model(struct model **out)
{
    const struct model_config c = {.family = FAMILY_GPT2,
                                   .vocab = 96,
                                   .dim = 32,
                                   .ffn = 128,
                                   .layers = 2,
                                   .heads = 2,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .max_positions = 1 << 16,
                                   .tied = 1,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.1f,
                                   .name = "long table"};
    return model_create(&c, NULL, 0, out);
}

/* Returns the number of the combination of levels that a cell has for the factors in a set. */
static inline int cell_combination(const struct cell *c, int set)
{
    int combination = 0;
    for (int f = 0; f < FACTORS; f++)
        if (set >> f & 1)
            combination = combination * 3 + c->level[f];
    return combination;
}

/* Makes a design in which every combination of levels of any `strength` factors (2 to 4) occurs, greedily: each next cell is the
 * best of several random ones. Cell 0 is all zeros (everything resident). Returns the number of cells; -1 if max is too small. */
static inline int cells_covering(struct cell *out, int max, int strength, uint64_t seed)
{
    static char covered[1 << FACTORS][81];
    int sets[1 << FACTORS], n_sets = 0, n = 0, left = 0, draws = 0;
    for (int set = 0; set < 1 << FACTORS; set++) {
        int members = 0, combinations = 1;
        for (int f = 0; f < FACTORS; f++)
            if (set >> f & 1) {
                members++;
                combinations *= LEVELS[f];
            }
        if (members != strength)
            continue;
        sets[n_sets++] = set;
        left += combinations;
    }
    memset(covered, 0, sizeof covered);
    while (left > 0 && n < max) {
        struct cell best = {0};
        int best_gain = n == 0 ? 1000 : 0;
        for (int trial = 0; n > 0 && trial < 40; trial++) {
            struct cell c = {0};
            for (int f = 0; f < FACTORS; f++)
                c.level[f] = (int)rng_below(seed, 1, (uint64_t)draws++, (uint64_t)LEVELS[f]);
            int gain = 0;
            for (int i = 0; i < n_sets; i++)
                gain += !covered[sets[i]][cell_combination(&c, sets[i])];
            if (gain > best_gain) {
                best_gain = gain;
                best = c;
            }
        }
        if (best_gain == 0)
            continue;
        for (int i = 0; i < n_sets; i++) {
            char *seen = &covered[sets[i]][cell_combination(&best, sets[i])];
            left -= !*seen;
            *seen = 1;
        }
        out[n++] = best;
    }
    return left == 0 ? n : -1;
}

#endif
