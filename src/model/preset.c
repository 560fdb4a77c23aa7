/* Model shapes known by name. */
#include "model/model.h"

#include "base/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MILLION_POSITIONS (1 << 20)

/* One paragraph a model. */
/* clang-format off */
static const struct model_config presets[] = {
    {.name = "tiny", .family = FAMILY_LLAMA, .vocab = 256, .dim = 64, .ffn = 256,
     .layers = 2, .heads = 2, .kv_heads = 2, .head_dim = 32, .max_positions = MILLION_POSITIONS, .tied = 1,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 500000.0},
    {.name = "25m", .family = FAMILY_LLAMA, .vocab = 8192, .dim = 512, .ffn = 1408,
     .layers = 8, .heads = 8, .kv_heads = 2, .head_dim = 64, .max_positions = MILLION_POSITIONS, .tied = 1,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 500000.0},
    {.name = "125m", .family = FAMILY_LLAMA, .vocab = 32000, .dim = 768, .ffn = 2048,
     .layers = 12, .heads = 12, .kv_heads = 4, .head_dim = 64, .max_positions = MILLION_POSITIONS, .tied = 1,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 500000.0},
    /* Llama 3.2 1B */
    {.name = "1b", .family = FAMILY_LLAMA, .vocab = 128256, .dim = 2048, .ffn = 8192,
     .layers = 16, .heads = 32, .kv_heads = 8, .head_dim = 64, .max_positions = 131072, .tied = 1,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 500000.0,
     .rope = ROPE_LLAMA3, .rope_factor = 32.0, .rope_low_freq = 1.0, .rope_high_freq = 4.0, .rope_original_positions = 8192.0},
    /* Llama 3.1 8B */
    {.name = "8b", .family = FAMILY_LLAMA, .vocab = 128256, .dim = 4096, .ffn = 14336,
     .layers = 32, .heads = 32, .kv_heads = 8, .head_dim = 128, .max_positions = 131072, .tied = 0,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 500000.0,
     .rope = ROPE_LLAMA3, .rope_factor = 8.0, .rope_low_freq = 1.0, .rope_high_freq = 4.0, .rope_original_positions = 8192.0},
    {.name = "gpt2-tiny", .family = FAMILY_GPT2, .vocab = 256, .dim = 64, .ffn = 256,
     .layers = 2, .heads = 2, .kv_heads = 2, .head_dim = 32, .max_positions = 4096, .tied = 1,
     .norm_eps = 1e-5f, .activation = GELU_TANH, .init_std = 0.02f},
    {.name = "gpt2-125m", .family = FAMILY_GPT2, .vocab = 50257, .dim = 768, .ffn = 3072,
     .layers = 12, .heads = 12, .kv_heads = 12, .head_dim = 64, .max_positions = 1024, .tied = 1,
     .norm_eps = 1e-5f, .activation = GELU_TANH, .init_std = 0.02f},
    {.name = "gpt-25b", .family = FAMILY_GPT2, .vocab = 50257, .dim = 8192, .ffn = 32768,
     .layers = 30, .heads = 64, .kv_heads = 64, .head_dim = 128, .max_positions = MILLION_POSITIONS, .tied = 1,
     .norm_eps = 1e-5f, .activation = GELU_TANH, .init_std = 0.02f},
    /* OLMoE, small: 32 experts of a layer, 4 of them a token, and the auxiliary loss */
    {.name = "moe-20m", .family = FAMILY_OLMOE, .vocab = 8192, .dim = 256, .ffn = 192,
     .layers = 4, .heads = 4, .kv_heads = 4, .head_dim = 64, .max_positions = MILLION_POSITIONS, .tied = 1,
     .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 10000.0, .experts = 32, .experts_used = 4, .expert_ffn = 192,
     .router_aux = 0.01, .router_aux_used = 1},
#ifdef LTRAIN_TOY_BLOCK /* tests only (tests/toy): layers with one, two and three blocks, with and without attention and a window */
    {.name = "toy", .family = FAMILY_TOY, .vocab = 256, .dim = 32, .ffn = 64, .window = 48,
     .layers = 6, .heads = 2, .kv_heads = 1, .head_dim = 16, .max_positions = 4096, .windowed = {1 << 5},
     .norm_eps = 1e-5f, .init_std = 0.1f, .rope_theta = 10000.0, .blocks_of = {0, 1, 2, 3, 1, 0}},
#endif
};
/* clang-format on */
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

static const struct model_config *find(const char *name)
{
    for (int i = 0; i < N_PRESETS; i++)
        if (strcasecmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

int model_is_preset(const char *name)
{
    return find(name) != NULL;
}

enum status model_preset(const char *name, struct model_config *out)
{
    const struct model_config *preset = find(name);
    if (preset) {
        *out = *preset;
        return OK;
    }
    char list[256] = "";
    const char *names[N_PRESETS];
    int used = 0;
    for (int i = 0; i < N_PRESETS; i++) {
        names[i] = presets[i].name;
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", i ? ", " : "", presets[i].name);
    }
    /* too short to guess: a single letter of "7b" would be half of the name */
    const char *nearest = strlen(name) > 2 ? names_nearest(name, names, N_PRESETS) : NULL;
    if (nearest)
        return status_fail(ERR_INVALID,
                           "--model: '%s' is not a preset; did you mean %s? Presets are %s, or give a directory with config.json",
                           name, nearest, list);
    return status_fail(ERR_INVALID, "--model: '%s' is not a preset; presets are %s, or give a directory with config.json", name,
                       list);
}
