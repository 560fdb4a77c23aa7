/* Checks and descriptions of --lora for a model: whether its names are modules, and which maps have adapters. */
#include "model/adapters.h"
#include "model/model.h"

#include "base/units.h"
#include "model/config/token_rows.h"
#include "model/family/experts.h"
#include "model/family/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int adapter_module_of(const struct model_param *p, char module[ADAPTED_NAME])
{
    const char *end = p->adapter ? strstr(p->name, ".lora_A.weight") : NULL;
    if (!end && p->adapter)
        end = strstr(p->name, ".lora_embedding_A");
    if (!end)
        return 0;
    if (p->adapted && strstr(p->name, ".base_layer.lora_A"))
        end = strstr(p->name, ".base_layer.lora_A");
    snprintf(module, ADAPTED_NAME, "%.*s%s%s", (int)(end - p->name), p->name, p->adapted ? "." : "",
             p->adapted ? p->adapted : "");
    return 1;
}

static int some_module_is(const struct model *m, const char *name)
{
    char module[ADAPTED_NAME];
    for (int i = 0; i < m->n_params; i++)
        if (adapter_module_of(&m->params[i], module) && adapter_targeted_by(name, module))
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

/* Returns the name of the first stack of experts, in a model that has some. */
static const char *first_stack(const struct model *m)
{
    return experts_first(family_of(&m->config)->experts);
}

/* Lists the last parts of the names of the first layer's maps without adapters: "q_proj, k_proj". */
static void list_maps(const struct model *m, char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        size_t n = strlen(p->name), used = strlen(text);
        const char *dot =
                       m->units[p->unit].layer == 0 && p->linear && p->shape[1] && !p->adapter && n > 7 ? p->name + n - 7 : NULL,
                   *from = dot;
        while (from && from > p->name && from[-1] != '.')
            from--;
        if (dot)
            snprintf(text + used, bytes - used, "%s%.*s", used ? ", " : "", (int)(dot - from), from);
    }
    const size_t used = strlen(text);
    if (m->config.experts > 0)
        snprintf(text + used, bytes - used, ", experts.%s, experts.down_proj, and the router, %s", first_stack(m),
                 experts_router_module(family_of(&m->config)->experts));
}

/* Tells whether a target's name is that of the head or the embedding. */
static int is_at_an_end(const struct model *m, const char *name)
{
    char module[96];
    model_head_name(&m->config, module);
    module[strlen(module) - strlen(".weight")] = 0;
    if (adapter_targeted_by(name, module))
        return 1;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(m->params[m->embed].name) - strlen(".weight")),
             m->params[m->embed].name);
    return adapter_targeted_by(name, module);
}

/* Refuses a target that is the name of no map that may have an adapter, and says why. */
static enum status refuse_target(const struct model *m, const char *name)
{
    char maps[512];
    list_maps(m, maps, sizeof maps);
    if (m->config.lora.saved[0] && some_parameter_of(m, name) && (strstr(maps, name) || is_at_an_end(m, name)))
        return status_fail(ERR_INVALID, "--lora: %s is a target and among modules-to-save: leave out one of them", name);
    return status_fail(ERR_INVALID, "--lora: targets=%s matches no linear map of the model: its layers have %s", name, maps);
}

/* Refuses to train stacks of experts whole beside adapters: PEFT would save each layer's module, which files split. */
static enum status check_no_stack(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        if (p->experts > 0 && !p->adapter && !p->constant && adapter_saved_by(name, p->name))
            return status_fail(ERR_INVALID,
                               "--lora: modules-to-save=%s takes experts (%s), which are not trained whole beside adapters: give "
                               "them adapters, or train without --lora",
                               name, p->name);
    }
    return OK;
}

static enum status check_saved(const struct model *m, const char *name)
{
    const char *embedding = m->params[m->embed].name;
    TRY(check_no_stack(m, name));
    if (!some_parameter_of(m, name) && !(m->config.tied && strcmp(name, "lm_head") == 0))
        return status_fail(ERR_INVALID, "--lora: modules-to-save=%s: no module's name ends so; they look like %.*s", name,
                           (int)(strlen(embedding) - strlen(".weight")), embedding);
    if (m->config.tied && (strcmp(name, "lm_head") == 0 || adapter_saved_by(name, embedding)))
        return status_fail(
            ERR_INVALID,
            "--lora: modules-to-save=%s: the head and the embedding are one matrix, of which PEFT saves and trains "
            "one side only: leave it out, or untie them (tie_word_embeddings false and lm_head.weight in the model's "
            "files)",
            name);
    return OK;
}

/* ---- parts that change nothing ---- */

static int names_targets(const struct lora *l)
{
    return !lora_is_regex(l->targets) && !lora_is_all(l->targets);
}

static enum status check_targets(const struct model *m, char *text, size_t bytes)
{
    char name[128];
    for (const char *at = m->config.lora.targets; names_targets(&m->config.lora) && lora_next_name(&at, name, sizeof name);)
        if (!lora_is_all(name) && !some_module_is(m, name)) {
            snprintf(text, bytes, "targets=%s", name);
            return refuse_target(m, name);
        }
    return OK;
}

static enum status check_layers(const struct model *m, char *text, size_t bytes)
{
    char number[16];
    for (const char *at = m->config.lora.layers; lora_next_name(&at, number, sizeof number);)
        if (strtoll(number, NULL, 10) >= m->config.layers) {
            snprintf(text, bytes, "layers-to-transform=%s", number);
            return status_fail(ERR_INVALID, "--lora: %s: the model has %lld layers, counted from 0", text,
                               (long long)m->config.layers);
        }
    return OK;
}

/* Tells whether the rules exclude a module of a layer, such as "mlp.experts" with `leaf` down_proj; leaf "": the module itself. */
static int excludes(const struct adapter_rules *rules, int64_t layer, const char *module, const char *leaf)
{
    char name[ADAPTED_NAME];
    snprintf(name, sizeof name, "model.layers.%lld.%s%s%s", (long long)layer, module, leaf[0] ? "." : "", leaf);
    return adapter_excludes(rules, name);
}

/* Tells whether the rules exclude a stack of experts or a router. */
static int excludes_experts(const struct model *m, const struct adapter_rules *rules)
{
    const struct experts_form *f = family_of(&m->config)->experts;
    for (int64_t l = 0; l < m->config.layers && m->config.experts > 0; l++)
        if (experts_has(&m->config, l) &&
            (excludes(rules, l, experts_module(f), experts_first(f)) || excludes(rules, l, experts_module(f), "down_proj") ||
             excludes(rules, l, experts_router_module(f), "")))
            return 1;
    return 0;
}

/* Refuses `exclude-modules` that match no module (ERR_INVALID). In a list of names, the first one without a module is reported. */
static enum status check_excluded(const struct model *m, char *text, size_t bytes)
{
    struct lora one = m->config.lora;
    const int regex = lora_is_regex(one.excluded);
    for (const char *at = m->config.lora.excluded;
         regex ? at == m->config.lora.excluded : lora_next_name(&at, one.excluded, sizeof one.excluded); at += regex) {
        struct adapter_rules *rules;
        TRY(adapter_rules_create(&one, &rules));
        int found = excludes_experts(m, rules);
        for (int i = 0; i < m->n_params && !found; i++) {
            const char *name = m->params[i].name, *end = strrchr(name, '.');
            char module[96];
            snprintf(module, sizeof module, "%.*s", (int)(end ? end - name : 0), name);
            found = !m->params[i].adapter && adapter_excludes(rules, module);
        }
        adapter_rules_destroy(rules);
        if (found)
            continue;
        snprintf(text, bytes, "exclude-modules=%s", one.excluded);
        return status_fail(ERR_INVALID, "--lora: %.200s: no module is called so", text);
    }
    return OK;
}

static enum status check_patterns(const struct model *m, char *text, size_t bytes)
{
    struct adapter_rules *rules;
    char module[ADAPTED_NAME];
    if (!m->config.lora.ranks[0] && !m->config.lora.alphas[0])
        return OK;
    TRY(adapter_rules_create(&m->config.lora, &rules));
    for (int i = 0; i < m->n_params; i++)
        if (adapter_module_of(&m->params[i], module))
            adapter_note_module(rules, module);
    int idle = adapter_idle_pattern(rules, text, bytes);
    adapter_rules_destroy(rules);
    return !idle ? OK
                 : status_fail(
                       ERR_INVALID,
                       "--lora: %s is no adapter's: no map with an adapter is called so, or an earlier part has all that are",
                       text);
}

enum status model_check_patterns(const struct model *m, char *text, size_t bytes)
{
    text[0] = 0;
    if (m->config.lora.rank == 0)
        return OK;
    TRY(check_layers(m, text, bytes));
    TRY(check_targets(m, text, bytes));
    if (m->config.lora.excluded[0])
        TRY(check_excluded(m, text, bytes));
    return check_patterns(m, text, bytes);
}

/* ---- the whole ---- */

/* Checks rows of tokens that are trained by themselves. A trained bias of the head would miss the gradients of their columns. */
static enum status check_rows(const struct model *m)
{
    struct token_rows_list rows;
    if (!m->config.lora.tokens[0])
        return OK;
    TRY(token_rows_of(m, &rows));
    token_rows_free(&rows);
    if (m->head_rows >= 0 && m->head.bias >= 0 && m->params[m->head.bias].trained)
        return status_fail(
            ERR_INVALID,
            "--lora: tokens: the head's bias is trained, beside which rows of the head are not: leave out one of them");
    return OK;
}

/* Refuses dropout beside adapters of experts and routers, which PEFT adapts as parameters. */
static enum status check_dropout(const struct model *m)
{
    const double dropout = m->config.lora.dropout;
    if (dropout > 0 && m->most_stack_rank > 0)
        return status_fail(ERR_INVALID,
                           "--lora: dropout=%g: adapters of experts have no dropout, here as in PEFT: leave it out, or leave out "
                           "experts (exclude-modules=experts.%s,experts.down_proj)",
                           dropout, first_stack(m));
    if (dropout > 0 && m->adapts_routers)
        return status_fail(ERR_INVALID,
                           "--lora: dropout=%g: adapters of routers have no dropout, here as in PEFT: leave it out, or leave out "
                           "routers (exclude-modules=%s)",
                           dropout, experts_router_module(family_of(&m->config)->experts));
    return OK;
}

enum status model_check_adapters(const struct model *m)
{
    const struct lora *l = &m->config.lora;
    char name[128], maps[512];
    if (l->rank == 0)
        return OK;
    if (m->config.wrapped)
        return status_fail(
            ERR_INVALID, "--lora: config.json is a multimodal model's, of which ltrain trains the text model whole: adapters of "
                         "a part of such a model are not written; take out the text model, or leave out --lora");
    TRY(check_dropout(m));
    if (m->refused_target)
        return status_fail(
            ERR_INVALID,
            "--lora: targets=%.200s: in models of type %s PEFT gives %s no adapter: leave it out, or give all-linear, "
            "which does",
            l->targets, family_of(&m->config)->name, m->refused_target);
    for (const char *at = l->saved; m->most_rank > 0 && lora_next_name(&at, name, sizeof name);)
        TRY(check_saved(m, name));
    if (m->most_rank > 0)
        return check_rows(m);
    if (names_targets(l) && strcspn(l->targets, ",") == strlen(l->targets) && !l->layers[0] && !l->excluded[0])
        return refuse_target(m, l->targets);
    list_maps(m, maps, sizeof maps);
    return status_fail(ERR_INVALID, "--lora: targets=%.200s matches no linear map of the model%s: its layers have %s", l->targets,
                       l->layers[0] || l->excluded[0] ? " that layers-to-transform and exclude-modules leave" : "", maps);
}

/* Lists parameters that are trained whole. Parameters of layers are listed for the first layer only, without the layer's prefix. */
static void list_saved(const struct model *m, char *text, size_t bytes)
{
    const int layers[] = {-1, (int)m->config.layers, 0};
    text[0] = 0;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < m->n_params; i++) {
            const struct model_param *p = &m->params[i];
            const char *of_layer = layers[k] == 0 ? strstr(p->name, ".0.") : NULL;
            size_t used = strlen(text);
            if (m->units[p->unit].layer == layers[k] && p->trained && !p->adapter)
                snprintf(text + used, bytes - used, "%s%s%s", used ? ", " : "", of_layer ? "each layer's " : "",
                         of_layer ? of_layer + 3 : p->name);
        }
    }
}

/* Writes targets, layers and excluded modules; each is cut at 120 characters. */
static void describe_places(const struct lora *l, char *text, size_t bytes)
{
    const struct {
        const char *what, *value;
    } parts[] = {{"", l->targets}, {"; layers ", l->layers}, {" of ", l->layer_names}, {"; none in ", l->excluded}};
    size_t used = 0;
    for (int i = 0; i < 4; i++)
        if (parts[i].value[0])
            used += (size_t)snprintf(text + used, bytes - used, "%s%.120s%s", parts[i].what, parts[i].value,
                                     strlen(parts[i].value) > 120 ? "..." : "");
}

/* Writes how many rows are trained by themselves; returns the length. */
static size_t describe_rows(const struct model *m, char *text, size_t bytes)
{
    const int both = m->embed_rows >= 0 && m->head_rows >= 0 && m->embed_rows != m->head_rows;
    const struct model_param *p = &m->params[m->embed_rows >= 0 ? m->embed_rows : m->head_rows];
    const char *of = m->embed_rows < 0               ? "head"
                     : m->embed_rows == m->head_rows ? "embedding, which is the head's matrix"
                                                     : "embedding";
    char head[48] = "";
    if (both)
        snprintf(head, sizeof head, " and %lld of the head", (long long)m->params[m->head_rows].shape[0]);
    return (size_t)snprintf(text, bytes, "lora: tokens also trains %lld rows of the %s%s\n", (long long)p->shape[0], of, head);
}

void model_describe_adapters(const struct model *m, char *text, size_t bytes)
{
    const struct lora *l = &m->config.lora;
    char trained[32], all[32], saved[512], module[ADAPTED_NAME], dropout[40] = "", stacked[64] = "", places[640];
    int maps = 0, stacks = 0;
    text[0] = 0;
    if (l->rank == 0)
        return;
    for (int i = 0; i < m->n_params; i++) {
        const int found = adapter_module_of(&m->params[i], module);
        stacks += found && m->params[i].adapted;
        maps += found && !m->params[i].adapted;
    }
    if (stacks > 0)
        snprintf(stacked, sizeof stacked, " and %d stacks of %lld experts", stacks, (long long)m->config.experts);
    if (l->dropout > 0)
        snprintf(dropout, sizeof dropout, ", dropout %g", l->dropout);
    describe_places(l, places, sizeof places);
    const int looked_up = m->embedding.rank > 0;
    size_t n = (size_t)snprintf(
        text, bytes, "lora: r %d, alpha %g%s%s%s: %d linear maps%s%s (%s); %s of %s parameters are trained\n", l->rank, l->alpha,
        l->rank_stabilised ? " over the root of r" : "", l->ranks[0] || l->alphas[0] ? ", others by pattern" : "", dropout,
        maps - looked_up, looked_up ? " and the embedding" : "", stacked, places, units_format_count(m->trained_params, trained),
        units_format_count(m->total_params, all));
    if (model_has_rows(m) && n < bytes)
        n += describe_rows(m, text + n, bytes - n);
    list_saved(m, saved, sizeof saved);
    if (l->saved[0] && n < bytes)
        snprintf(text + n, bytes - n, "lora: modules-to-save=%.200s also trains, whole, %s\n", l->saved, saved);
}
