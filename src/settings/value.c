/* Parsing values of keys from text. */
#include "base/names.h"
#include "settings/curriculum.h"
#include "settings/keys.h"

#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DRIVES = 1024 }; /* most drives of a node */

static void *field(const struct settings_key *k, struct settings *s)
{
    return (char *)s + k->offset;
}

static int index_of(const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcasecmp(text, names[i]) == 0)
            return i;
    return -1;
}

static enum status parse_choice(const char *where, const char *text, const char *const *names, int *out)
{
    int i = index_of(text, names), n = 0;
    if (i >= 0) {
        *out = i;
        return OK;
    }
    char all[128] = "";
    for (; names[n]; n++) {
        strncat(all, n ? ", " : "", sizeof all - strlen(all) - 1);
        strncat(all, names[n], sizeof all - strlen(all) - 1);
    }
    const char *near = names_nearest(text, names, n);
    return status_fail(ERR_INVALID, "%s: '%s' is not one of %s%s%s%s", where, text, all, near ? " (did you mean " : "",
                       near ? near : "", near ? "?)" : "");
}

/* Sets the type from one of the words, or from `auto`. */
static enum status parse_dtype(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    int type = F32;
    const int open = strcasecmp(text, k->unset) == 0;
    if (!open)
        TRY(parse_choice(where, text, k->choices, &type));
    s->plan.dtype = (enum dtype)type;
    s->dtype_is_open = open;
    return OK;
}

static enum status parse_device(const char *where, const char *text, const char *const *names, struct settings *s)
{
    static const char *const others[] = {"gpu", "nvidia", "rocm", "hip", "mps", "xpu"}; /* names of GPUs in other programs */
    int device = DEVICE_CUDA, gpu = AUTO;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncasecmp(text, others[i], strlen(others[i])) == 0)
            return status_fail(ERR_INVALID,
                               "%s: '%s' is not there: give cuda or cuda:N for an NVIDIA GPU, else cpu or cpu:discrete", where,
                               text);
    if (strncmp(text, "cuda:", 5) == 0) {
        char *end;
        long n = strtol(text + 5, &end, 10);
        if (end == text + 5 || *end || n < 0 || n > 255)
            return status_fail(ERR_INVALID, "%s: '%s' is no GPU: they are numbered from cuda:0 on", where, text);
        gpu = (int)n;
    } else {
        TRY(parse_choice(where, text, names, &device));
    }
    s->plan.device = (enum device_kind)device;
    s->gpu = gpu;
    return OK;
}

/* Writes a limit of a key in a form that a user may type. */
static const char *print_limit(const struct settings_key *k, double x, char buf[32])
{
    int is_whole = k->type != KEY_NUMBER && k->type != KEY_BETAS;
    if (k->type == KEY_BYTES && x >= 1024)
        return units_format_short((int64_t)x, buf);
    snprintf(buf, 32, is_whole ? "%.0f" : "%g", x);
    return buf;
}

static int is_within(const struct settings_key *k, double x)
{
    int low = k->flags & KEY_ABOVE_MIN ? x > k->min : x >= k->min;
    int high = k->flags & KEY_BELOW_MAX ? x < k->max : x <= k->max;
    return low && high;
}

/* Checks the range of a number; all numbers of settings pass here. part: "rows=" of --tiles rows=N, or "". */
static enum status check_range(const struct settings_key *k, const char *where, const char *part, const char *text, double x)
{
    char min[32], max[32], used[64] = "";
    double value = x;
    if (k->flags & KEY_FP32) {
        value = (double)(float)x;
        if (is_within(k, x) && !is_within(k, value))
            snprintf(used, sizeof used, " (it is %g in fp32, in which it is used)", value);
    }
    if (!is_within(k, value))
        return status_fail(ERR_INVALID, "%s: %s%s is out of range, it must be %s %s and %s %s%s", where, part, text,
                           k->flags & KEY_ABOVE_MIN ? "above" : "at least", print_limit(k, k->min, min),
                           k->flags & KEY_BELOW_MAX ? "below" : "at most", print_limit(k, k->max, max), used);
    double least = k->flags & KEY_FP32 ? FLT_MIN : k->least;
    if (x != 0 && fabs(value) < least)
        return status_fail(ERR_INVALID, "%s: %s%s is too near 0: give %sat least %.3g", where, part, text,
                           k->flags & KEY_ABOVE_MIN ? "" : "0, or ", least);
    return OK;
}

static enum status parse_number(const struct settings_key *k, const char *where, const char *text, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || isnan(x) || (isinf(x) && !isdigit((unsigned char)end[-1])) || isspace((unsigned char)text[0]) ||
        strpbrk(text, "xX"))
        return status_fail(ERR_INVALID, "%s: '%s' is not a number like 0.1 or 3e-4%s%s", where, text, k->unset ? ", or " : "",
                           k->unset ? k->unset : "");
    TRY(check_range(k, where, "", text, x));
    *out = x;
    return OK;
}

static enum status parse_seed(const char *where, const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno)
        return status_fail(ERR_INVALID, "%s: '%s' is not a whole number from 0 to 2^64 - 1", where, text);
    *out = x;
    return OK;
}

static enum status parse_switch(const char *where, const char *text, int *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1", NULL};
    int i = index_of(text, words);
    if (i < 0)
        return status_fail(ERR_INVALID, "%s: '%s' is not true or false", where, text);
    *out = i & 1;
    return OK;
}

/* Returns the next item of a comma-separated text without the blanks around it; NULL: there is none. Cuts *rest up. */
static char *next_item(char **rest)
{
    char *item = strsep(rest, ",");
    if (!item)
        return NULL;
    while (isspace((unsigned char)*item))
        item++;
    for (size_t n = strlen(item); n > 0 && isspace((unsigned char)item[n - 1]); n--)
        item[n - 1] = 0;
    return item;
}

/* Parses "name=value,...". values[i]: value given for names[i]; NULL: none. The values point into text, which is cut up. */
static enum status parse_pairs(const char *where, char *text, const char *const *names, const char *like, const char **values)
{
    for (char *item; (item = next_item(&text));) {
        char *value = strchr(item, '=');
        if (!value)
            return status_fail(ERR_INVALID, "%s: '%s' is not like %s", where, item, like);
        *value++ = 0;
        int i = 0;
        TRY(parse_choice(where, item, names, &i));
        if (values[i])
            return status_fail(ERR_INVALID, "%s: %s is given twice", where, item);
        values[i] = value;
    }
    return OK;
}

static enum status set_offload(const char *where, char *text, struct settings *s)
{
    enum offload *const fields[] = {&s->plan.params, &s->plan.grads,   &s->plan.optim,
                                    &s->plan.acts,   &s->plan.passing, &s->plan.experts};
    enum { TIERED = sizeof fields / sizeof *fields };
    int tier[TIERED];
    for (int i = 0; i < TIERED; i++)
        tier[i] = OFFLOAD_AUTO;
    if (strchr(text, '=') || strchr(text, ',')) {
        const char *values[TIERED] = {NULL};
        TRY(parse_pairs(where, text, settings_classes, "params=nvme,grads=cpu", values));
        for (int i = 0; i < TIERED; i++)
            if (values[i])
                TRY(parse_choice(where, values[i], settings_tiers, &tier[i]));
    } else {
        TRY(parse_choice(where, text, settings_tiers, &tier[0]));
        tier[1] = tier[2] = tier[3] = tier[0];
    }
    for (int i = 0; i < TIERED; i++)
        *fields[i] = (enum offload)tier[i];
    return OK;
}

static enum status parse_part(const struct settings_key *k, const char *where, const char *name, const char *text, int64_t *out)
{
    char part[32];
    int64_t n;
    TRY(units_parse_count(where, text, &n));
    snprintf(part, sizeof part, "%s=", name);
    TRY(check_range(k, where, part, text, (double)n));
    *out = n;
    return OK;
}

/* Sets alpha from one number for all layers, or from one for each kind of layer. */
static enum status set_alpha(const struct settings_key *k, const char *where, char *text, struct settings *s)
{
    struct plan_request *p = &s->plan;
    struct settings_key number = *k;
    double alpha[2] = {AUTO, AUTO};
    const int by_kind = strchr(text, '=') || strchr(text, ',');
    if (by_kind) {
        const char *values[2] = {NULL};
        number.unset = NULL;
        TRY(parse_pairs(where, text, settings_layer_kinds, "window=0.25,full=1", values));
        for (int i = 0; i < 2; i++) {
            if (!values[i])
                return status_fail(ERR_INVALID, "%s: '%s=' is missing: window=0.25,full=1 gives both kinds of layers", where,
                                   settings_layer_kinds[i]);
            TRY(parse_number(&number, where, values[i], &alpha[i]));
        }
    } else if (strcasecmp(text, k->unset) != 0) {
        TRY(parse_number(k, where, text, &alpha[1]));
    }
    p->alpha_by_kind = by_kind;
    p->window_alpha = alpha[0];
    p->alpha = alpha[1];
    return OK;
}

static enum status set_tiles(const struct settings_key *k, const char *where, char *text, struct settings *s)
{
    int64_t *const fields[] = {&s->plan.row_chunk, &s->plan.head_tile, &s->plan.loss_tile, &s->plan.group};
    int64_t size[4] = {AUTO, AUTO, AUTO, AUTO};
    if (strcmp(text, "auto") != 0) {
        const char *values[4] = {NULL};
        TRY(parse_pairs(where, text, settings_tile_names, "rows=4096,heads=2,loss=512", values));
        for (int i = 0; i < 4; i++)
            if (values[i] && strcmp(values[i], "auto") != 0)
                TRY(parse_part(k, where, settings_tile_names[i], values[i], &size[i]));
    }
    for (int i = 0; i < 4; i++)
        *fields[i] = size[i];
    return OK;
}

static enum status set_mesh(const struct settings_key *k, const char *where, char *text, struct settings *s)
{
    struct mesh mesh;
    const char *keys[MESH_DIMS + 1], *values[MESH_DIMS] = {NULL};
    int64_t degree[MESH_DIMS];
    mesh_keys(keys);
    if (strcmp(text, "auto") != 0)
        TRY(parse_pairs(where, text, keys, "dp=2,ulysses=4,ring=2", values));
    for (int d = 0; d < MESH_DIMS; d++) {
        degree[d] = AUTO;
        if (values[d] && strcmp(values[d], "auto") != 0)
            TRY(parse_part(k, where, keys[d], values[d], &degree[d]));
        mesh.degree[d] = (int)degree[d];
    }
    if (mesh_ranks(&mesh) > SETTINGS_MOST_RANKS)
        return status_fail(ERR_INVALID, "%s: these degrees make %lld ranks, and at most %d are possible", where,
                           (long long)mesh_ranks(&mesh), SETTINGS_MOST_RANKS);
    s->plan.mesh = mesh;
    return OK;
}

/* Sets the layers of each stage from "10,10,6,6" or "auto". */
static enum status set_stages(const struct settings_key *k, const char *where, char *text, struct settings *s)
{
    struct mesh_stages x = {.n = 0};
    if (strcasecmp(text, k->unset) != 0) {
        for (char *item; (item = strsep(&text, ","));) {
            int64_t layers;
            TRY(units_parse_count(where, item, &layers));
            TRY(check_range(k, where, "", item, (double)layers));
            if (x.n == MESH_MOST_STAGES)
                return status_fail(ERR_INVALID, "%s: layers of more than %d stages", where, MESH_MOST_STAGES);
            x.layers[x.n++] = (int16_t)layers;
        }
        if (x.n < 2)
            return status_fail(ERR_INVALID, "%s: layers of one stage alone: give a number for each stage, like 10,10,6,6", where);
    }
    s->plan.stage_layers = x;
    return OK;
}

/* Sets drives from "4x7GB/s", "500MB/s" or "none". */
static enum status set_drives(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    char *end;
    long n = 1;
    double rate = 0;
    const char *times = strchr(text, 'x'), *each = times ? times + 1 : text;
    if (strcasecmp(text, "auto") == 0 || strcasecmp(text, "none") == 0 || strcmp(text, "0") == 0) {
        s->plan.nvme_drives = strcasecmp(text, "auto") == 0 ? AUTO : 0;
        s->plan.nvme_gbps = 0;
        return OK;
    }
    if (times) {
        n = strtol(text, &end, 10);
        if (end != times)
            n = 0;
    }
    double number = strtod(each, &end);
    int whole = n >= 1 && n <= MOST_DRIVES && end != each && number > 0 && !isspace((unsigned char)each[0]),
        is_rate = units_parse_rate(each, 1e9, &rate);
    if (whole && isfinite(number) && !is_rate)
        return *end
                   ? status_fail(ERR_INVALID,
                                 "%s: '%s': %s is not a unit of what drives read: give GB/s, MB/s or TB/s, like 4x7GB/s", where,
                                 text, end)
                   : status_fail(ERR_INVALID, "%s: '%s' reads %g of what? Give GB/s, MB/s or TB/s: 4x7GB/s", where, text, number);
    if (!whole || !is_rate)
        return status_fail(ERR_INVALID,
                           "%s: '%s' is not a number of drives (at most %d) and what each reads, like 4x7GB/s, or none", where,
                           text, MOST_DRIVES);
    if (!is_within(k, rate))
        return status_fail(ERR_INVALID, "%s: '%s' is out of range: a drive reads at least %g and at most %g GB/s", where, text,
                           k->min, k->max);
    s->plan.nvme_drives = (int)n;
    s->plan.nvme_gbps = rate;
    return OK;
}

/* Refuses budgets so small that a unit was probably forgotten, unless they stand in a file, such as a run's config.yaml. */
static enum status check_unit(const char *where, const char *text, int64_t bytes)
{
    if (bytes == 0 || bytes >= 1 << 20 || text[strspn(text, "0123456789")] || strncmp(where, "--", 2) != 0)
        return OK;
    return status_fail(ERR_INVALID, "%s: %s is %s bytes; did you mean %sG?", where, text, text, text);
}

static enum status set_betas(const struct settings_key *k, const char *where, char *text, struct settings *s)
{
    double beta[2];
    int n = 0;
    char *rest = strdupa(text);
    for (char *item; (item = next_item(&rest)); n++)
        if (n < 2)
            TRY(parse_number(k, where, item, &beta[n]));
    if (n != 2)
        return status_fail(ERR_INVALID, "%s: '%s' is not two numbers like 0.9,0.95", where, text);
    s->beta1 = beta[0];
    s->beta2 = beta[1];
    return OK;
}

/* Tells whether a text is UTF-8: YAML can hold nothing else, so that other names could not be read back from config.yaml. */
static int is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : *p >= 0xe0 && *p < 0xf0 ? 2 : *p >= 0xf0 && *p < 0xf5 ? 3 : -1;
        p++;
        for (; more > 0 && (*p & 0xc0) == 0x80; more--)
            p++;
        if (more != 0)
            return 0;
    }
    return 1;
}

static enum status copy_text(const char *where, const char *text, int may_be_empty, char **out)
{
    if (!text[0] && !may_be_empty)
        return status_fail(ERR_INVALID, "%s: an empty name", where);
    if (!is_utf8(text))
        return status_fail(ERR_INVALID, "%s: '%s' is not UTF-8", where, text);
    char *copy = strdup(text);
    if (!copy)
        return status_fail(ERR_NOMEM, "%s: out of memory", where);
    *out = copy;
    return OK;
}

static enum status set_string(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    char *copy, **to = field(k, s);
    /* texts for sampling may be empty or begin with blanks, names may not */
    TRY(copy_text(where, text, (k->flags & KEY_TEXT) != 0, &copy));
    free(*to);
    *to = copy;
    return OK;
}

void settings_list_clear(const struct settings_key *k, struct settings *s)
{
    struct string_list *list = field(k, s);
    for (int i = 0; i < list->n; i++)
        free(list->item[i]);
    memset(list, 0, sizeof *list);
}

enum status settings_list_add(const struct settings_key *k, const char *where, const char *item, struct settings *s)
{
    struct string_list *list = field(k, s);
    if (list->n == SETTINGS_MAX_LIST)
        return status_fail(ERR_INVALID, "%s: more than %d items; use a directory or a glob", where, SETTINGS_MAX_LIST);
    TRY(copy_text(where, item, 0, &list->item[list->n]));
    list->n++;
    return OK;
}

enum status settings_list_add_text(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    char *copy = strdup(text), *rest = copy;
    enum status st = copy ? OK : status_fail(ERR_NOMEM, "%s: out of memory", where);
    if (copy && text[0]) /* empty text: an empty list */
        for (char *item; st == OK && (item = next_item(&rest));)
            st = settings_list_add(k, where, item, s);
    free(copy);
    return st;
}

/* Sets one length, whose digits may be grouped by commas, or a curriculum. */
static enum status set_lengths(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    int64_t n;
    struct curriculum c = {.n = 0};
    if (strchr(text, '@')) {
        TRY(curriculum_parse(where, text, (int64_t)k->min, (int64_t)k->max, &c));
        n = curriculum_longest(&c);
    } else {
        TRY(units_parse_count(where, text, &n));
        TRY(check_range(k, where, "", text, (double)n));
    }
    s->plan.seq_len = n;
    s->curriculum = c;
    return OK;
}

enum status settings_key_set(const struct settings_key *k, const char *where, const char *text, struct settings *s)
{
    int64_t *count = field(k, s);
    int *number = field(k, s);
    int unset = k->unset && strcasecmp(text, k->unset) == 0;
    int64_t n = AUTO;
    char *cut;
    switch (k->type) {
    case KEY_STRING:
        return set_string(k, where, text, s);
    case KEY_LIST:
        if (!text[0] && (k->flags & KEY_TEXT))
            return status_fail(ERR_INVALID, "%s: an empty text would end every answer before it begins: leave it out", where);
        settings_list_clear(k, s);
        return settings_list_add_text(k, where, text, s);
    case KEY_COUNT:
    case KEY_BYTES:
    case KEY_INT:
        if (!unset) {
            TRY(k->type == KEY_BYTES ? units_parse_bytes(where, text, &n)
                : k->counts_steps    ? units_parse_steps(where, text, &n)
                                     : units_parse_count(where, text, &n));
            TRY(check_range(k, where, "", text, (double)n));
            if (k->type == KEY_BYTES)
                TRY(check_unit(where, text, n));
        }
        if (k->type == KEY_INT)
            *number = (int)n;
        else
            *count = n;
        return OK;
    case KEY_LENGTHS:
        return set_lengths(k, where, text, s);
    case KEY_NUMBER:
        if (!unset)
            return parse_number(k, where, text, field(k, s));
        *(double *)field(k, s) = AUTO;
        return OK;
    case KEY_SEED:
        return parse_seed(where, text, field(k, s));
    case KEY_CHOICE:
        return parse_choice(where, text, k->choices, number);
    case KEY_DTYPE:
        return parse_dtype(k, where, text, s);
    case KEY_DEVICE:
        return parse_device(where, text, k->choices, s);
    case KEY_SWITCH:
        return parse_switch(where, text, number);
    case KEY_LAUNCH:
        TRY(units_parse_count(where, text, &n));
        return check_range(k, where, "", text, (double)n);
    case KEY_CONFIG:
        return OK;
    case KEY_LORA:
        return lora_parse(where, text, field(k, s));
    case KEY_ALPHA:
    case KEY_OFFLOAD:
    case KEY_MESH:
    case KEY_STAGES:
    case KEY_TILES:
    case KEY_BETAS:
    case KEY_DRIVES:
        break;
    }
    cut = strdup(text);
    if (!cut)
        return status_fail(ERR_NOMEM, "%s: out of memory", where);
    enum status st = k->type == KEY_OFFLOAD  ? set_offload(where, cut, s)
                     : k->type == KEY_ALPHA  ? set_alpha(k, where, cut, s)
                     : k->type == KEY_TILES  ? set_tiles(k, where, cut, s)
                     : k->type == KEY_MESH   ? set_mesh(k, where, cut, s)
                     : k->type == KEY_STAGES ? set_stages(k, where, cut, s)
                     : k->type == KEY_DRIVES ? set_drives(k, where, cut, s)
                                             : set_betas(k, where, cut, s);
    free(cut);
    return st;
}
