/* Printing values of keys as YAML text. */
#include "settings/curriculum.h"
#include "settings/keys.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void print_string(const char *text, FILE *f)
{
    putc('"', f);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (iscntrl((unsigned char)*p))
            fprintf(f, "\\x%02x", (unsigned char)*p);
        else
            putc(*p, f);
    }
    putc('"', f);
}

/* Prints the shortest decimal that reads back as x. */
static void print_double(double x, FILE *f)
{
    char buf[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    fputs(buf, f);
}

/* Prints "name=size,..." of the sizes that are not AUTO. */
static void print_pairs(const char *const *names, const int64_t *size, FILE *f)
{
    const char *comma = "";
    for (int i = 0; names[i]; i++) {
        if (size[i] == AUTO)
            continue;
        fprintf(f, "%s%s=%lld", comma, names[i], (long long)size[i]);
        comma = ",";
    }
    if (!comma[0])
        fputs("auto", f);
}

static void print_offload(const struct settings *s, FILE *f)
{
    if (s->plan.params == s->plan.grads && s->plan.params == s->plan.optim && s->plan.params == s->plan.acts &&
        s->plan.passing == OFFLOAD_AUTO && s->plan.experts == OFFLOAD_AUTO)
        fputs(settings_tiers[s->plan.params], f);
    else
        fprintf(f, "params=%s,grads=%s,optim=%s,acts=%s", settings_tiers[s->plan.params], settings_tiers[s->plan.grads],
                settings_tiers[s->plan.optim], settings_tiers[s->plan.acts]);
    if (s->plan.passing != OFFLOAD_AUTO)
        fprintf(f, ",passing=%s", settings_tiers[s->plan.passing]);
    if (s->plan.experts != OFFLOAD_AUTO)
        fprintf(f, ",experts=%s", settings_tiers[s->plan.experts]);
}

static void print_mesh(const struct mesh *m, FILE *f)
{
    const char *keys[MESH_DIMS + 1];
    int64_t degree[MESH_DIMS];
    mesh_keys(keys);
    for (int d = 0; d < MESH_DIMS; d++)
        degree[d] = mesh_tells(m, (enum mesh_dim)d) ? m->degree[d] : AUTO;
    print_pairs(keys, degree, f);
}

static void print_stages(const struct settings_key *k, const struct mesh_stages *s, FILE *f)
{
    char text[MESH_STAGES_TEXT];
    fputs(s->n > 0 ? mesh_stages_format(s, text) : k->unset, f);
}

/* Prints the text in quotes: regular expressions have characters with a meaning in YAML. */
static void print_lora(const struct lora *x, FILE *f)
{
    char *text = lora_text(x);
    if (text)
        print_string(text, f);
    free(text);
}

static void print_alpha(const struct settings_key *k, const struct plan_request *p, FILE *f)
{
    if (p->alpha < 0) {
        fputs(k->unset, f);
        return;
    }
    if (p->alpha_by_kind) {
        fprintf(f, "%s=", settings_layer_kinds[0]);
        print_double(p->window_alpha, f);
        fprintf(f, ",%s=", settings_layer_kinds[1]);
    }
    print_double(p->alpha, f);
}

static void print_drives(const struct settings *s, FILE *f)
{
    if (s->plan.nvme_drives <= 0) {
        fputs(s->plan.nvme_drives == 0 ? "none" : "auto", f);
        return;
    }
    fprintf(f, "%dx", s->plan.nvme_drives);
    print_double(s->plan.nvme_gbps, f);
    fputs("GB/s", f);
}

static void print_device(const struct settings_key *k, const struct settings *s, FILE *f)
{
    fputs(k->choices[s->plan.device], f);
    if (s->gpu >= 0)
        fprintf(f, ":%d", s->gpu);
}

static void print_lengths(const struct settings *s, FILE *f)
{
    if (s->curriculum.n > 0)
        curriculum_print(&s->curriculum, f);
    else
        fprintf(f, "%lld", (long long)s->plan.seq_len);
}

void settings_key_print(const struct settings_key *k, const struct settings *s, FILE *f)
{
    const void *at = (const char *)s + k->offset;
    const struct string_list *list = at;
    switch (k->type) {
    case KEY_STRING:
        print_string(*(char *const *)at, f);
        return;
    case KEY_LIST:
        putc('[', f);
        for (int i = 0; i < list->n; i++) {
            fputs(i ? ", " : "", f);
            print_string(list->item[i], f);
        }
        putc(']', f);
        return;
    case KEY_COUNT:
    case KEY_BYTES:
    case KEY_INT: {
        int64_t n = k->type == KEY_INT ? *(const int *)at : *(const int64_t *)at;
        if (k->unset && n == AUTO)
            fputs(k->unset, f);
        else
            fprintf(f, "%lld", (long long)n);
        return;
    }
    case KEY_LENGTHS:
        print_lengths(s, f);
        return;
    case KEY_NUMBER:
        if (k->unset && *(const double *)at == AUTO)
            fputs(k->unset, f);
        else
            print_double(*(const double *)at, f);
        return;
    case KEY_SEED:
        fprintf(f, "%llu", (unsigned long long)*(const uint64_t *)at);
        return;
    case KEY_CHOICE:
        fputs(k->choices[*(const int *)at], f);
        return;
    case KEY_SWITCH:
        fputs(*(const int *)at ? "true" : "false", f);
        return;
    case KEY_ALPHA:
        print_alpha(k, &s->plan, f);
        return;
    case KEY_OFFLOAD:
        print_offload(s, f);
        return;
    case KEY_TILES:
        print_pairs(settings_tile_names, (int64_t[]){s->plan.row_chunk, s->plan.head_tile, s->plan.loss_tile, s->plan.group}, f);
        return;
    case KEY_MESH:
        print_mesh(&s->plan.mesh, f);
        return;
    case KEY_STAGES:
        print_stages(k, at, f);
        return;
    case KEY_LORA:
        print_lora(at, f);
        return;
    case KEY_BETAS:
        print_double(s->beta1, f);
        putc(',', f);
        print_double(s->beta2, f);
        return;
    case KEY_DTYPE:
        fputs(s->dtype_is_open ? k->unset : k->choices[s->plan.dtype], f);
        return;
    case KEY_DEVICE:
        print_device(k, s, f);
        return;
    case KEY_DRIVES:
        print_drives(s, f);
        return;
    case KEY_LAUNCH:
    case KEY_CONFIG:
        return;
    }
}

/* Returns the value as text, to be freed; NULL: no memory. */
static char *text_of_value(const struct settings_key *k, const struct settings *s)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    if (k->type == KEY_STRING && !*(char *const *)((const char *)s + k->offset))
        fputs("none", f);
    else
        settings_key_print(k, s, f);
    return fclose(f) == 0 ? text : NULL;
}

enum status settings_write_changes(const struct settings *now, const struct settings *before, FILE *f)
{
    const char *comma = "";
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        if (k->flags & KEY_FLAG_ONLY || strcmp(k->name, "out") == 0)
            continue;
        char *a = text_of_value(k, now), *b = text_of_value(k, before);
        enum status st = a && b ? OK : status_fail(ERR_NOMEM, "out of memory: what differs in the settings");
        if (st == OK && strcmp(a, b) != 0) {
            fprintf(f, "%s%s %s (was %s)", comma, k->name, a, b);
            comma = ", ";
        }
        free(a);
        free(b);
        TRY(st);
    }
    return OK;
}
