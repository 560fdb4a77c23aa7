#include "model/adapter_names.h"

#include <string.h>

const char *adapter_names_layer(const char *name)
{
    if (strpbrk(name, "\\^$*+?()[]{}|"))
        return NULL;
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        size_t digits = strspn(at, "0123456789");
        if (digits > 0 && at[digits] == '.' && at[digits + 1])
            return at;
    }
    return NULL;
}

/* ---- groups ---- */

/* Appends a text to the texts of a key, which bars separate. Returns 0 if memory is short. */
static int add(json_t *groups, const char *key, const char *text)
{
    json_t *was = json_object_get(groups, key);
    json_t *now = was ? json_sprintf("%s|%s", json_string_value(was), text) : json_string(text);
    return now && json_object_set_new(groups, key, now) == 0;
}

enum { SEPARATOR = '\n' };

/* Adds a text under the key that joins `first` (n characters) and `second`. */
static int add_pair(json_t *groups, const char *first, size_t n, const char *second, const char *text)
{
    json_t *key = json_sprintf("%.*s%c%s", (int)n, first, SEPARATOR, second);
    int added = key && add(groups, json_string_value(key), text);
    json_decref(key);
    return added;
}

/* Groups layer numbers by the texts before and behind them; names without a layer go to *alone. */
static int group_numbers(const json_t *list, json_t *layers, json_t *alone)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i)), *at = adapter_names_layer(name);
        size_t digits = at ? strspn(at, "0123456789") : 0;
        char number[32] = "";
        if (digits >= sizeof number)
            return 0;
        memcpy(number, at ? at : "", digits);
        if (at ? !add_pair(layers, name, (size_t)(at - name), at + digits + 1, number)
               : json_array_append(alone, json_array_get(list, i)) != 0)
            return 0;
    }
    return 1;
}

/* Groups the texts behind the numbers by the text before them and the numbers. */
static int group_names(const json_t *layers, json_t *names)
{
    const char *key;
    json_t *numbers;
    json_object_foreach((json_t *)layers, key, numbers)
    {
        const char *end = strchr(key, SEPARATOR);
        if (!add_pair(names, key, (size_t)(end - key), json_string_value(numbers), end + 1))
            return 0;
    }
    return 1;
}

/* ---- text ---- */

struct text {
    char *out;
    size_t used;
    int fits;
};

/* Appends text; a dot of a name is written [.] so that it matches only a dot. */
static void put(struct text *t, const char *from, size_t n, int is_name)
{
    for (size_t i = 0; i < n && t->fits; i++) {
        const char *what = is_name && from[i] == '.' ? "[.]" : (char[]){from[i], 0};
        t->used += (size_t)snprintf(t->out + t->used, LORA_TEXT - t->used, "%s", what);
        t->fits = t->used < LORA_TEXT;
    }
}

static void put_word(struct text *t, const char *word)
{
    put(t, word, strlen(word), 0);
}

static void put_groups(struct text *t, const json_t *names, const json_t *alone)
{
    const char *key;
    json_t *behind;
    int n = 0;
    json_object_foreach((json_t *)names, key, behind)
    {
        const char *end = strchr(key, SEPARATOR);
        put_word(t, n++ ? "|" : "");
        put(t, key, (size_t)(end - key), 1);
        put_word(t, "(");
        put_word(t, end + 1);
        put_word(t, ")[.](");
        put(t, json_string_value(behind), json_string_length(behind), 1);
        put_word(t, ")");
    }
    for (size_t i = 0; i < json_array_size(alone); i++) {
        put_word(t, n++ ? "|" : "");
        put(t, json_string_value(json_array_get(alone, i)), json_string_length(json_array_get(alone, i)), 1);
    }
}

int adapter_names_join(const json_t *list, const char *before, const char *after, char out[LORA_TEXT])
{
    struct text t = {.out = out, .fits = 1};
    json_t *layers = json_object(), *names = json_object(), *alone = json_array();
    int grouped = layers && names && alone && group_numbers(list, layers, alone) && group_names(layers, names);
    out[0] = 0;
    put_word(&t, before);
    if (grouped)
        put_groups(&t, names, alone);
    put_word(&t, after);
    json_decref(layers);
    json_decref(names);
    json_decref(alone);
    return grouped && t.fits;
}

/* ---- restrictions ---- */

/* Puts names of a list with bars between them. */
static void put_either(struct text *t, const json_t *names)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        put_word(t, i ? "|" : "");
        put(t, json_string_value(json_array_get(names, i)), json_string_length(json_array_get(names, i)), 1);
    }
}

/* Puts the items of a list that commas separate, with bars between them. */
static void put_list(struct text *t, const char *list, int is_name)
{
    for (const char *at = list; *at; at++)
        put(t, *at == ',' ? "|" : at, 1, is_name && *at != ',');
}

/* Puts a condition on names: their layer's number follows one of the names for layers, or two names, and is listed. */
static void put_layers(struct text *t, const struct lora *l)
{
    put_word(t, "(?=");
    if (l->layer_names[0]) {
        put_word(t, "(.*?[.])?(");
        put_list(t, l->layer_names, 0);
        put_word(t, ")");
    } else {
        put_word(t, ".*?[.][^.]*");
    }
    put_word(t, "[.](");
    put_list(t, l->layers, 0);
    put_word(t, ")[.])");
}

int adapter_names_guard(const json_t *names, const char *expression, const json_t *parameters, struct lora *l)
{
    char joined[LORA_TEXT] = "";
    struct text t = {.out = joined, .fits = 1};
    if (l->excluded[0]) {
        put_word(&t, lora_is_regex(l->excluded) ? "(?!(" : "(?!(.*[.])?(");
        put_list(&t, l->excluded, !lora_is_regex(l->excluded));
        put_word(&t, ")$)");
    }
    put_word(&t, "(");
    if (l->layers[0]) { /* names in full are in any layer */
        put_either(&t, names);
        put_word(&t, "|");
        put_layers(&t, l);
    }
    put_word(&t, expression ? "(" : "(.*[.])?(");
    if (expression)
        put_word(&t, expression);
    else
        put_either(&t, names);
    put_word(&t, "))|(.*[.])?(");
    put_either(&t, parameters);
    put_word(&t, ")");
    if (!t.fits)
        return 0;
    memcpy(l->targets, joined, sizeof joined);
    memset(l->excluded, 0, sizeof l->excluded);
    memset(l->layers, 0, sizeof l->layers);
    memset(l->layer_names, 0, sizeof l->layer_names);
    return 1;
}
