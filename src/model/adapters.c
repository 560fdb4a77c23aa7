/* Targets of adapters: names, a regular expression of whole names, or all linear maps. */
#include "model/adapters.h"

#include "base/sys.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATTERNS = 256, MOST_LAYER_NAMES = 8, NAME = 256 };

struct pattern {
    pcre2_code *code;
    double number;
    int decides; /* 1: the pattern is the first that matches for at least one noted module */
};

struct adapter_rules {
    const struct lora *lora;
    pcre2_code *targets;  /* NULL: targets are names, or all maps */
    pcre2_code *excluded; /* NULL: excluded modules are names */
    pcre2_code
        *layer[MOST_LAYER_NAMES]; /* expression of a module's name up to and including its layer's number, which is a group */
    int n_layer;
    struct pattern rank[MOST_PATTERNS], alpha[MOST_PATTERNS];
    int n_ranks, n_alphas;
};

/* Compiles a regular expression that is matched at the beginning of names. */
static enum status compile_beginning(const char *what, const char *text, uint32_t options, pcre2_code **out)
{
    int error;
    PCRE2_SIZE at;
    char why[128] = "";
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED | PCRE2_UTF | options, &error, &at, NULL);
    if (*out)
        return OK;
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return status_fail(ERR_INVALID, "--lora: %s=%s is no regular expression: %s (character %zu)", what, text, why, (size_t)at);
}

/* Compiles a regular expression that must match whole names. */
static enum status compile(const char *what, const char *text, pcre2_code **out)
{
    return compile_beginning(what, text, PCRE2_ENDANCHORED, out);
}

static int matches(const pcre2_code *code, const char *name)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int found = data && pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, NULL) >= 0;
    pcre2_match_data_free(data);
    return found;
}

/* Compiles "NAME:NUMBER;...". NAME is read as PEFT reads it: a regular expression for the end of a module's name, beginning after
 * a dot. */
static enum status compile_patterns(const char *what, const char *text, struct pattern *out, int *n)
{
    char copy[LORA_TEXT], whole[LORA_TEXT + 16], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *item; copy[0] && (item = strsep(&rest, ";"));) {
        char *colon = strrchr(item, ':');
        if (!colon || *n == MOST_PATTERNS)
            return status_fail(ERR_INVALID, "--lora: %s has at most %d parts like q_proj:32", what, MOST_PATTERNS);
        *colon = 0;
        snprintf(whole, sizeof whole, "(.*\\.)?(%s)", item);
        TRY(compile(what, whole, &out[*n].code));
        out[(*n)++].number = strtod(colon + 1, NULL);
    }
    return OK;
}

/* Compiles PEFT's rule for layers: the layer's number is the first number that follows two names; with `layers-pattern`, the
 * first that follows one of its names. */
static enum status compile_layers(struct adapter_rules *r)
{
    char name[NAME], whole[NAME + 32];
    const char *at = r->lora->layer_names;
    if (!at[0]) {
        r->n_layer = 1;
        return compile_beginning("layers-pattern", ".*?\\.[^.]*\\.(\\d+)\\.", 0, &r->layer[0]);
    }
    while (lora_next_name(&at, name, sizeof name)) {
        if (r->n_layer == MOST_LAYER_NAMES)
            return status_fail(ERR_INVALID, "--lora: layers-pattern has more than %d names", MOST_LAYER_NAMES);
        snprintf(whole, sizeof whole, "(?:^|.*?\\.)(?:%s)\\.(?<idx>\\d+)\\.", name);
        TRY(compile_beginning("layers-pattern", whole, 0, &r->layer[r->n_layer++]));
    }
    return OK;
}

enum status adapter_rules_create(const struct lora *l, struct adapter_rules **out)
{
    struct adapter_rules *r = sys_calloc(1, sizeof *r);
    if (!r)
        return status_fail(ERR_NOMEM, "out of memory for a model's adapters");
    r->lora = l;
    enum status st = lora_is_regex(l->targets) ? compile("targets", l->targets, &r->targets) : OK;
    if (st == OK && lora_is_regex(l->excluded))
        st = compile("exclude-modules", l->excluded, &r->excluded);
    if (st == OK && l->layers[0])
        st = compile_layers(r);
    if (st == OK)
        st = compile_patterns("rank-pattern", l->ranks, r->rank, &r->n_ranks);
    if (st == OK)
        st = compile_patterns("alpha-pattern", l->alphas, r->alpha, &r->n_alphas);
    if (st == OK)
        *out = r;
    else
        adapter_rules_destroy(r);
    return st;
}

void adapter_rules_destroy(struct adapter_rules *r)
{
    if (!r)
        return;
    pcre2_code_free(r->targets);
    pcre2_code_free(r->excluded);
    for (int i = 0; i < MOST_LAYER_NAMES; i++)
        pcre2_code_free(r->layer[i]);
    for (int i = 0; i < MOST_PATTERNS; i++) {
        pcre2_code_free(r->rank[i].code);
        pcre2_code_free(r->alpha[i].code);
    }
    free(r);
}

/* Returns the first pattern that matches; n if none does. */
static int first_match(const struct pattern *p, int n, const char *module)
{
    int i = 0;
    while (i < n && !matches(p[i].code, module))
        i++;
    return i;
}

static double number_for(const struct pattern *p, int n, const char *module, double otherwise)
{
    int i = first_match(p, n, module);
    return i < n ? p[i].number : otherwise;
}

static int ends_with(const char *text, size_t n, const char *ending)
{
    size_t m = strlen(ending);
    return m <= n && memcmp(text + n - m, ending, m) == 0;
}

int adapter_targeted_by(const char *name, const char *module)
{
    size_t n = strlen(module), m = strlen(name);
    return ends_with(module, n, name) && (n == m || module[n - m - 1] == '.');
}

static int is_listed(const char *list, const char *module)
{
    char name[NAME];
    for (const char *at = list; lora_next_name(&at, name, sizeof name);)
        if (adapter_targeted_by(name, module))
            return 1;
    return 0;
}

/* Returns the number of a module's layer; -1 if the module is in no layer that `layers-pattern` names. */
static long layer_of(const struct adapter_rules *r, const char *module)
{
    long number = -1;
    for (int i = 0; i < r->n_layer && number < 0; i++) {
        pcre2_match_data *data = pcre2_match_data_create_from_pattern(r->layer[i], NULL);
        int groups = data ? pcre2_match(r->layer[i], (PCRE2_SPTR)module, strlen(module), 0, 0, data, NULL) : 0;
        int group = r->lora->layer_names[0] ? pcre2_substring_number_from_name(r->layer[i], (PCRE2_SPTR) "idx") : 1;
        if (groups > group && group > 0)
            number = strtol(module + pcre2_get_ovector_pointer(data)[2 * group], NULL, 10);
        pcre2_match_data_free(data);
    }
    return number;
}

static int is_in_layers(const struct adapter_rules *r, const char *module)
{
    char item[NAME];
    const long layer = r->lora->layers[0] ? layer_of(r, module) : -1;
    for (const char *at = r->lora->layers; lora_next_name(&at, item, sizeof item);)
        if (strtol(item, NULL, 10) == layer)
            return 1;
    return !r->lora->layers[0];
}

int adapter_excludes(const struct adapter_rules *r, const char *module)
{
    return r->excluded ? matches(r->excluded, module) : is_listed(r->lora->excluded, module);
}

int adapter_is_named(const struct adapter_rules *r, const char *module)
{
    return r->targets ? matches(r->targets, module) : is_listed(r->lora->targets, module);
}

/* Applies PEFT's rule: the choice of layers restricts targets that match the end of a name, but not targets named in full (such
 * as lm_head). */
static int is_target(const struct adapter_rules *r, const char *module)
{
    char name[NAME];
    if (adapter_excludes(r, module))
        return 0;
    if (r->targets)
        return matches(r->targets, module);
    for (const char *at = r->lora->targets; lora_next_name(&at, name, sizeof name);)
        if (strcmp(name, module) == 0)
            return 1;
    return (lora_takes_all(r->lora) || is_listed(r->lora->targets, module)) && is_in_layers(r, module);
}

int adapter_rank(const struct adapter_rules *r, const char *module)
{
    if (!is_target(r, module) || adapter_saves(r, module))
        return 0;
    return (int)number_for(r->rank, r->n_ranks, module, r->lora->rank);
}

double adapter_alpha(const struct adapter_rules *r, const char *module)
{
    return number_for(r->alpha, r->n_alphas, module, r->lora->alpha);
}

float adapter_scale(const struct adapter_rules *r, const char *module)
{
    const double rank = adapter_rank(r, module), alpha = adapter_alpha(r, module);
    return (float)(alpha / (r->lora->rank_stabilised ? sqrt(rank) : rank));
}

void adapter_note_module(struct adapter_rules *r, const char *module)
{
    int rank = first_match(r->rank, r->n_ranks, module), alpha = first_match(r->alpha, r->n_alphas, module);
    if (rank < r->n_ranks)
        r->rank[rank].decides = 1;
    if (alpha < r->n_alphas)
        r->alpha[alpha].decides = 1;
}

static int first_idle(const struct pattern *p, int n)
{
    int i = 0;
    while (i < n && p[i].decides)
        i++;
    return i;
}

int adapter_idle_pattern(const struct adapter_rules *r, char *text, size_t bytes)
{
    const int rank = first_idle(r->rank, r->n_ranks), alpha = first_idle(r->alpha, r->n_alphas), of_ranks = rank < r->n_ranks;
    const char *item = of_ranks ? r->lora->ranks : r->lora->alphas;
    if (!of_ranks && alpha == r->n_alphas)
        return 0;
    for (int i = of_ranks ? rank : alpha; i > 0; i--)
        item = strchr(item, ';') + 1;
    snprintf(text, bytes, "%s=%.*s", of_ranks ? "rank-pattern" : "alpha-pattern", (int)strcspn(item, ";"), item);
    return 1;
}

int adapter_saved_by(const char *ending, const char *param)
{
    for (const char *end = param + strcspn(param, "."); *param; end += 1 + strcspn(end + 1, ".")) {
        if (ends_with(param, (size_t)(end - param), ending))
            return 1;
        if (!*end)
            break;
    }
    return 0;
}

int adapter_saves(const struct adapter_rules *r, const char *param)
{
    char name[NAME];
    for (const char *at = r->lora->saved; lora_next_name(&at, name, sizeof name);)
        if (adapter_saved_by(name, param))
            return 1;
    return 0;
}
