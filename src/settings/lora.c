/* Parsing and printing --lora. */
#include "settings/lora.h"

#include "base/names.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum part { RANK, ALPHA, DROPOUT, TARGETS, EXCLUDED, LAYERS, LAYER_NAMES, STABILISED, SAVED, RANKS, ALPHAS, TOKENS, PARTS };
static const char *const names[PARTS] = {
    "r",      "alpha",           "dropout",      "targets",       "exclude-modules", "layers-to-transform", "layers-pattern",
    "rslora", "modules-to-save", "rank-pattern", "alpha-pattern", "tokens"};
/* PEFT's names of the same settings, which are taken as well. */
static const char *const theirs[PARTS] = {
    "rank",           "lora_alpha", "lora_dropout",    "target_modules", "exclude_modules", "layers_to_transform",
    "layers_pattern", "use_rslora", "modules_to_save", "rank_pattern",   "alpha_pattern",   "trainable_token_indices"};

static int part_of(const char *name, size_t n)
{
    for (int i = 0; i < PARTS; i++)
        if ((strlen(names[i]) == n && memcmp(names[i], name, n) == 0) ||
            (strlen(theirs[i]) == n && memcmp(theirs[i], name, n) == 0))
            return i;
    return -1;
}

static enum status unknown_part(const char *where, const char *item, size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), item);
    const char *near = names_nearest(name, names, PARTS);
    return status_fail(ERR_INVALID,
                       "%s: '%s' is not one of r, alpha, dropout, targets, exclude-modules, layers-to-transform, layers-pattern, "
                       "rslora, modules-to-save, rank-pattern, alpha-pattern, tokens%s%s%s",
                       where, name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

/* Returns the length of the name if the item is NAME=...; a name has letters, dashes and underscores. Returns 0 for other items. */
static size_t name_length(const char *item)
{
    size_t n = strspn(item, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-");
    return n > 0 && item[n] == '=' ? n : 0;
}

/* Cuts the text of --lora into its settings ("r", "alpha", ...). */
static enum status cut(const char *where, const char *text, char part[PARTS][LORA_TEXT])
{
    int now = -1;
    while (*text) {
        const char *item = text + strspn(text, " "), *end = item + strcspn(item, ",");
        size_t n = name_length(item);
        text = *end ? end + 1 : end;
        if (n > 0) {
            now = part_of(item, n);
            if (now < 0)
                return unknown_part(where, item, n);
            if (part[now][0])
                return status_fail(ERR_INVALID, "%s: %s is given twice", where, names[now]);
            item += n + 1;
        } else if (now < 0) {
            return status_fail(ERR_INVALID, "%s: '%.*s' is not like r=16,alpha=32,targets=all-linear", where, (int)(end - item),
                               item);
        }
        size_t used = strlen(part[now]), room = LORA_TEXT - used;
        if ((size_t)snprintf(part[now] + used, room, "%s%.*s", used ? "," : "", (int)(end - item), item) >= room)
            return status_fail(ERR_INVALID, "%s: %s is longer than %d characters", where, names[now], LORA_TEXT - 1);
        if (!part[now][0])
            return status_fail(ERR_INVALID, "%s: %s has no value", where, names[now]);
    }
    return OK;
}

static enum status number(const char *where, const char *name, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || !(isdigit((unsigned char)text[0]) || text[0] == '.' || text[0] == '-'))
        return status_fail(ERR_INVALID, "%s: %s=%s is not a number", where, name, text);
    return OK;
}

static enum status rank(const char *where, const char *name, const char *text, int *out)
{
    double x;
    TRY(number(where, name, text, &x));
    if (x != floor(x) || x < 1 || x > LORA_MOST_RANK)
        return status_fail(ERR_INVALID, "%s: %s=%s: a rank is a whole number from 1 to %d", where, name, text, LORA_MOST_RANK);
    *out = (int)x;
    return OK;
}

static enum status alpha(const char *where, const char *name, const char *text, double *out)
{
    TRY(number(where, name, text, out));
    if (!(*out > 0 && *out <= LORA_MOST_ALPHA))
        return status_fail(ERR_INVALID, "%s: %s=%s: alpha is above 0 and at most 1e6", where, name, text);
    return OK;
}

static enum status yes(const char *where, const char *name, const char *text, int *out)
{
    static const char *const words[] = {"no", "yes", "false", "true", "0", "1", "False", "True"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i & 1;
            return OK;
        }
    return status_fail(ERR_INVALID, "%s: %s=%s is not yes or no", where, name, text);
}

static enum status dropout(const char *where, const char *text, double *out)
{
    TRY(number(where, "dropout", text, out));
    if (!(*out >= 0 && *out < 1))
        return status_fail(ERR_INVALID, "%s: dropout=%s: dropout is at least 0 and below 1", where, text);
    return OK;
}

/* Checks a text "NAME:NUMBER;NAME:NUMBER". */
static enum status check_pattern(const char *where, enum part which, const char *text)
{
    char copy[LORA_TEXT], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *item; (item = strsep(&rest, ";"));) {
        char *colon = strrchr(item, ':');
        int r;
        double a;
        if (!colon || colon == item)
            return status_fail(ERR_INVALID, "%s: %s: '%s' is not like q_proj:32", where, names[which], item);
        TRY(which == RANKS ? rank(where, names[which], colon + 1, &r) : alpha(where, names[which], colon + 1, &a));
    }
    return OK;
}

/* Rewrites a list of layers "0,1, 5" as "0,1,5", and refuses items that are no layer's number. */
static enum status layers(const char *where, const char *text, char out[LORA_TEXT])
{
    char item[32];
    size_t used = 0;
    for (const char *at = text; lora_next_name(&at, item, sizeof item);) {
        if (strlen(item) > 6 || item[strspn(item, "0123456789")])
            return status_fail(ERR_INVALID, "%s: %s: '%s' is no number of a layer, which are counted from 0", where,
                               names[LAYERS], item);
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%ld", used ? "," : "", strtol(item, NULL, 10));
    }
    return OK;
}

/* Rewrites a list "lm_head:7, 90-119" without spaces, and refuses items that are no tokens. */
static enum status tokens(const char *where, const char *text, char out[LORA_TEXT])
{
    struct lora_tokens x = {.first = 0};
    char item[128];
    size_t used = 0;
    int64_t n = 0;
    for (const char *at = text; lora_next_name(&at, item, sizeof item);) {
        const char *colon = strrchr(item, ':'), *number = colon ? colon + 1 : item, *from = item;
        const size_t digits = strspn(number, "0123456789"),
                     rest = number[digits] == '-' ? strspn(number + digits + 1, "0123456789") : 0;
        const int shaped = digits > 0 && digits < 10 && rest < 10 && !number[digits + (rest > 0) + rest];
        if (!shaped || colon == item || (colon && colon - item >= (int)sizeof x.module) || !lora_next_tokens(&from, &x) ||
            x.first >= x.end)
            return status_fail(ERR_INVALID, "%s: %s: '%s' is not like 128256, 40-79 or lm_head:7", where, names[TOKENS], item);
        if (used > 0 && colon && !strchr(out, ':'))
            return status_fail(ERR_INVALID, "%s: %s: '%s' follows tokens without a module's name: give each list one, or none",
                               where, names[TOKENS], item);
        n += x.end - x.first;
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%s", used ? "," : "", item);
    }
    if (n > LORA_MOST_TOKENS)
        return status_fail(
            ERR_INVALID,
            "%s: %s: %lld rows are more than the %d that are trained by themselves: modules-to-save=embed_tokens trains all rows",
            where, names[TOKENS], (long long)n, LORA_MOST_TOKENS);
    return OK;
}

enum status lora_check_layers(const char *where, const struct lora *x)
{
    if (x->layer_names[0] && !x->layers[0])
        return status_fail(ERR_INVALID, "%s: %s says where the layers of %s stand: give both", where, names[LAYER_NAMES],
                           names[LAYERS]);
    if (x->layers[0] && lora_is_regex(x->targets))
        return status_fail(ERR_INVALID,
                           "%s: %s goes with names of modules: %s is a regular expression, which can name the layers itself",
                           where, names[LAYERS], names[TARGETS]);
    return OK;
}

enum status lora_parse(const char *where, const char *text, struct lora *out)
{
    char part[PARTS][LORA_TEXT] = {{0}};
    struct lora x = {.rank = 16, .targets = "all-linear"};
    if (strcmp(text, "none") == 0) {
        *out = (struct lora){0};
        return OK;
    }
    if (!text[strspn(text, " ,")])
        return status_fail(ERR_INVALID, "%s: give r=16, or none", where);
    TRY(cut(where, text, part));
    if (part[RANK][0])
        TRY(rank(where, "r", part[RANK], &x.rank));
    x.alpha = 2.0 * x.rank;
    if (part[ALPHA][0])
        TRY(alpha(where, "alpha", part[ALPHA], &x.alpha));
    if (part[DROPOUT][0])
        TRY(dropout(where, part[DROPOUT], &x.dropout));
    x.no_dropout = part[DROPOUT][0] && x.dropout == 0;
    if (part[STABILISED][0])
        TRY(yes(where, "rslora", part[STABILISED], &x.rank_stabilised));
    if (part[RANKS][0])
        TRY(check_pattern(where, RANKS, part[RANKS]));
    if (part[ALPHAS][0])
        TRY(check_pattern(where, ALPHAS, part[ALPHAS]));
    if (part[TARGETS][0])
        memcpy(x.targets, part[TARGETS], LORA_TEXT);
    memcpy(x.excluded, part[EXCLUDED], LORA_TEXT);
    memcpy(x.layer_names, part[LAYER_NAMES], LORA_TEXT);
    TRY(layers(where, part[LAYERS], x.layers));
    TRY(lora_check_layers(where, &x));
    memcpy(x.saved, part[SAVED], LORA_TEXT);
    memcpy(x.ranks, part[RANKS], LORA_TEXT);
    memcpy(x.alphas, part[ALPHAS], LORA_TEXT);
    TRY(tokens(where, part[TOKENS], x.tokens));
    *out = x;
    return OK;
}

/* Prints ",NAME=x" with the fewest digits that read back as exactly x. */
static void print_number(const char *name, double x, FILE *f)
{
    char text[32];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, x);
    while (digits < 17 && strtod(text, NULL) != x);
    fprintf(f, ",%s=%s", name, text);
}

static void print_part(const char *name, const char *text, FILE *f)
{
    if (text[0])
        fprintf(f, ",%s=%s", name, text);
}

static void print(const struct lora *x, FILE *f)
{
    if (x->rank == 0) {
        fputs("none", f);
        return;
    }
    fprintf(f, "r=%d", x->rank);
    print_number(names[ALPHA], x->alpha, f);
    if (x->rank_stabilised)
        fputs(",rslora=yes", f);
    if (x->dropout > 0 || x->no_dropout)
        print_number(names[DROPOUT], x->dropout, f);
    print_part(names[TARGETS], x->targets, f);
    print_part(names[EXCLUDED], x->excluded, f);
    print_part(names[LAYERS], x->layers, f);
    print_part(names[LAYER_NAMES], x->layer_names, f);
    print_part(names[SAVED], x->saved, f);
    print_part(names[RANKS], x->ranks, f);
    print_part(names[ALPHAS], x->alphas, f);
    print_part(names[TOKENS], x->tokens, f);
}

char *lora_text(const struct lora *x)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f)
        print(x, f);
    return f && fclose(f) == 0 ? text : NULL;
}

int lora_is_regex(const char *text)
{
    return strpbrk(text, "\\^$*+?()[]{}|") != NULL;
}

int lora_is_all(const char *name)
{
    return strcmp(name, "all-linear") == 0;
}

int lora_takes_all(const struct lora *x)
{
    char name[LORA_TEXT];
    for (const char *at = x->targets; !lora_is_regex(x->targets) && lora_next_name(&at, name, sizeof name);)
        if (lora_is_all(name))
            return 1;
    return 0;
}

int lora_next_name(const char **at, char *name, size_t bytes)
{
    const char *from = *at + strspn(*at, ", ");
    size_t n = strcspn(from, ",");
    *at = from + n;
    while (n > 0 && from[n - 1] == ' ')
        n--;
    snprintf(name, bytes, "%.*s", (int)(n < bytes ? n : bytes - 1), from);
    return n > 0;
}

int lora_next_tokens(const char **at, struct lora_tokens *out)
{
    char item[128];
    if (!lora_next_name(at, item, sizeof item))
        return 0;
    const char *colon = strrchr(item, ':'), *dash;
    if (colon)
        snprintf(out->module, sizeof out->module, "%.*s", (int)(colon - item), item);
    out->first = strtoll(colon ? colon + 1 : item, NULL, 10);
    dash = strchr(colon ? colon + 1 : item, '-');
    out->end = (dash ? strtoll(dash + 1, NULL, 10) : out->first) + 1;
    return 1;
}

int lora_same_tokens(const char *a, const char *b)
{
    struct lora_tokens x = {.first = 0}, y = {.first = 0};
    for (;;) {
        const int more_x = x.first < x.end || lora_next_tokens(&a, &x), more_y = y.first < y.end || lora_next_tokens(&b, &y);
        if (!more_x || !more_y)
            return more_x == more_y;
        if (x.first++ != y.first++ || strcmp(x.module, y.module) != 0)
            return 0;
    }
}
