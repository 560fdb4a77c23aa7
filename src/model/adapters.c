/* Targets of adapters: names, a regular expression of whole names, or all linear maps. */
#include "model/adapters.h"

#include "base/sys.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATTERNS = 32, NAME = 256 };

struct pattern {
    pcre2_code *code;
    double number;
    int decides; /* it is the first that matches some module that was noted */
};

struct adapter_rules {
    const struct lora *lora;
    pcre2_code *targets; /* NULL: names, or all maps */
    struct pattern rank[MOST_PATTERNS], alpha[MOST_PATTERNS];
    int n_ranks, n_alphas;
};

/* Of whole names. */
static enum status compile(const char *what, const char *text, pcre2_code **out)
{
    int error;
    PCRE2_SIZE at;
    char why[128] = "";
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &error, &at, NULL);
    if (*out)
        return OK;
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return status_fail(ERR_INVALID, "--lora: %s=%s is no regular expression: %s (character %zu)", what, text, why, (size_t)at);
}

static int matches(const pcre2_code *code, const char *name)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int found = data && pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, NULL) >= 0;
    pcre2_match_data_free(data);
    return found;
}

/* "NAME:NUMBER;...", NAME as PEFT reads it: a regular expression of the end of a module's name, from a dot on. */
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

enum status adapter_rules_create(const struct lora *l, struct adapter_rules **out)
{
    struct adapter_rules *r = sys_calloc(1, sizeof *r);
    if (!r)
        return status_fail(ERR_NOMEM, "out of memory for a model's adapters");
    r->lora = l;
    enum status st = lora_targets_regex(l) ? compile("targets", l->targets, &r->targets) : OK;
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
    for (int i = 0; i < MOST_PATTERNS; i++) {
        pcre2_code_free(r->rank[i].code);
        pcre2_code_free(r->alpha[i].code);
    }
    free(r);
}

/* The first pattern that matches; n: none does. */
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

static int is_target(const struct adapter_rules *r, const char *module)
{
    char name[NAME];
    if (r->targets)
        return matches(r->targets, module);
    if (strcmp(r->lora->targets, "all-linear") == 0)
        return 1;
    for (const char *at = r->lora->targets; lora_next_name(&at, name, sizeof name);)
        if (adapter_targeted_by(name, module))
            return 1;
    return 0;
}

int adapter_takes_ends(const struct adapter_rules *r)
{
    return strcmp(r->lora->targets, "all-linear") != 0;
}

int adapter_rank(const struct adapter_rules *r, const char *module)
{
    if (!is_target(r, module) || adapter_saves(r, module))
        return 0;
    return (int)number_for(r->rank, r->n_ranks, module, r->lora->rank);
}

float adapter_scale(const struct adapter_rules *r, const char *module)
{
    double rank = adapter_rank(r, module), alpha = number_for(r->alpha, r->n_alphas, module, r->lora->alpha);
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
