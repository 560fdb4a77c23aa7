/* What --lora means for a model: whether its names are modules of it, and what has adapters. */
#include "model/adapters.h"
#include "model/model.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* The module of an adapter's A; 0: the parameter is none. */
static int adapted_module(const struct model_param *p, char module[96])
{
    const char *end = p->adapter ? strstr(p->name, ".lora_A.weight") : NULL;
    if (!end && p->adapter)
        end = strstr(p->name, ".lora_embedding_A");
    if (end)
        snprintf(module, 96, "%.*s", (int)(end - p->name), p->name);
    return end != NULL;
}

static int some_module_is(const struct model *m, const char *name)
{
    char module[96];
    for (int i = 0; i < m->n_params; i++)
        if (adapted_module(&m->params[i], module) && adapter_targeted_by(name, module))
            return 1;
    return 0;
}

static int some_parameter_of(const struct model *m, const char *ending)
{
    for (int i = 0; i < m->n_params; i++)
        if (!m->params[i].adapter && adapter_saved_by(ending, m->params[i].name))
            return 1;
    return 0;
}

/* The last parts of the names of a layer's adapted maps, or of all its maps: "q_proj, k_proj". */
static void list_maps(const struct model *m, char *text, size_t bytes)
{
    const struct model_unit *u = &m->units[1];
    text[0] = 0;
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &m->params[i];
        size_t n = strlen(p->name), used = strlen(text);
        const char *dot = p->shape[1] && !p->of_norm && !p->adapter && n > 7 ? p->name + n - 7 : NULL, *from = dot;
        while (from && from > p->name && from[-1] != '.')
            from--;
        if (dot)
            snprintf(text + used, bytes - used, "%s%.*s", used ? ", " : "", (int)(dot - from), from);
    }
}

/* The head or the embedding. */
static int is_at_an_end(const struct model *m, const char *name)
{
    char module[96];
    model_head_name(&m->config, module);
    module[strlen(module) - strlen(".weight")] = 0;
    if (adapter_targeted_by(name, module))
        return 1;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(m->params[m->embed].name) - strlen(".weight")), m->params[m->embed].name);
    return adapter_targeted_by(name, module);
}

/* Why a name of the targets is no map's that may have an adapter. */
static enum status refuse_target(const struct model *m, const char *name)
{
    char maps[512];
    list_maps(m, maps, sizeof maps);
    if (some_parameter_of(m, name) && (strstr(maps, name) || is_at_an_end(m, name)))
        return status_fail(ERR_INVALID, "--lora: %s is a target and among modules-to-save: leave out one of them", name);
    return status_fail(ERR_INVALID, "--lora: targets=%s matches no linear map of the model: its layers have %s", name, maps);
}

static enum status check_saved(const struct model *m, const char *name)
{
    const char *embedding = m->params[m->embed].name;
    if (!some_parameter_of(m, name) && !(m->config.tied && strcmp(name, "lm_head") == 0))
        return status_fail(ERR_INVALID, "--lora: modules-to-save=%s: no module's name ends so; they look like %.*s", name,
                           (int)(strlen(embedding) - strlen(".weight")), embedding);
    if (m->config.tied && (strcmp(name, "lm_head") == 0 || adapter_saved_by(name, embedding)))
        return status_fail(ERR_INVALID,
                           "--lora: modules-to-save=%s: the head and the embedding are one matrix, of which PEFT saves and trains "
                           "one side only: leave it out, or untie them (tie_word_embeddings false and lm_head.weight in the model's "
                           "files)",
                           name);
    return OK;
}

enum status model_check_patterns(const struct model *m, char *text, size_t bytes)
{
    struct adapter_rules *rules;
    char module[96];
    text[0] = 0;
    if (!m->config.lora.ranks[0] && !m->config.lora.alphas[0])
        return OK;
    TRY(adapter_rules_create(&m->config.lora, &rules));
    for (int i = 0; i < m->n_params; i++)
        if (adapted_module(&m->params[i], module))
            adapter_note_module(rules, module);
    int idle = adapter_idle_pattern(rules, text, bytes);
    adapter_rules_destroy(rules);
    return !idle ? OK
                 : status_fail(ERR_INVALID, "--lora: %s is no adapter's: no map with an adapter is called so, or an earlier part has all that are",
                               text);
}

enum status model_check_adapters(const struct model *m)
{
    const struct lora *l = &m->config.lora;
    char name[128], maps[512];
    if (l->rank == 0)
        return OK;
    if (m->config.wrapped)
        return status_fail(ERR_INVALID, "--lora: config.json is a multimodal model's, of which ltrain trains the text model whole: adapters of "
                                        "a part of such a model are not written; take out the text model, or leave out --lora");
    int named = !lora_targets_regex(l) && strcmp(l->targets, "all-linear") != 0;
    for (const char *at = l->targets; named && lora_next_name(&at, name, sizeof name);)
        if (!some_module_is(m, name))
            return refuse_target(m, name);
    for (const char *at = l->saved; lora_next_name(&at, name, sizeof name);)
        TRY(check_saved(m, name));
    if (m->most_rank > 0)
        return OK;
    list_maps(m, maps, sizeof maps);
    return status_fail(ERR_INVALID, "--lora: targets=%s matches no linear map of the model: its layers have %s", l->targets, maps);
}

/* Parameters that are trained as they are; of a layer those of the first one, in which names are cut. */
static void list_saved(const struct model *m, char *text, size_t bytes)
{
    const int units[] = {0, m->n_units - 1, 1};
    text[0] = 0;
    for (int k = 0; k < 3; k++) {
        const struct model_unit *u = &m->units[units[k]];
        for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
            const struct model_param *p = &m->params[i];
            const char *of_layer = units[k] == 1 ? strstr(p->name, ".0.") : NULL;
            size_t used = strlen(text);
            if (p->trained && !p->adapter)
                snprintf(text + used, bytes - used, "%s%s%s", used ? ", " : "", of_layer ? "each layer's " : "",
                         of_layer ? of_layer + 3 : p->name);
        }
    }
}

void model_describe_adapters(const struct model *m, char *text, size_t bytes)
{
    const struct lora *l = &m->config.lora;
    char trained[32], all[32], saved[512], module[96], dropout[40] = "";
    int maps = 0;
    text[0] = 0;
    if (l->rank == 0)
        return;
    for (int i = 0; i < m->n_params; i++)
        maps += adapted_module(&m->params[i], module);
    if (l->dropout > 0)
        snprintf(dropout, sizeof dropout, ", dropout %g", l->dropout);
    const int looked_up = m->embedding.rank > 0;
    size_t n = (size_t)snprintf(text, bytes, "lora: r %d, alpha %g%s%s%s: %d linear maps%s (%s); %s of %s parameters are trained\n", l->rank, l->alpha,
                                l->rank_stabilised ? " over the root of r" : "", l->ranks[0] || l->alphas[0] ? ", others by pattern" : "", dropout, maps - looked_up,
                                looked_up ? " and the embedding" : "", l->targets, units_format_count(m->trained_params, trained), units_format_count(m->total_params, all));
    list_saved(m, saved, sizeof saved);
    if (l->saved[0] && n < bytes)
        snprintf(text + n, bytes - n, "lora: modules-to-save=%s also trains, whole, %s\n", l->saved, saved);
}
