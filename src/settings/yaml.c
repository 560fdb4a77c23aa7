/* Settings from and to a YAML file: one mapping of key to value. */
#include "settings/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct file {
    const char *path;
    yaml_document_t doc;
    struct settings *s;
};

static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* Tells whether a key has no value: `key:` or `key: null`. */
static int is_null(const yaml_node_t *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text_of(node), words[i]) == 0)
            return 1;
    return 0;
}

/* Refuses a node that is no scalar, or has a zero byte inside, which the C strings of all other code could not hold. */
static enum status check_scalar(const char *where, const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE)
        return status_fail(ERR_INVALID, "%s: a value is expected, not a %s", where,
                           node->type == YAML_SEQUENCE_NODE ? "list" : "mapping");
    if (is_null(node))
        return status_fail(ERR_INVALID, "%s has no value", where);
    if (strlen(text_of(node)) != node->data.scalar.length)
        return status_fail(ERR_INVALID, "%s: a value with a zero byte in it", where);
    return OK;
}

/* Sets a key from a YAML list: keys that are lists item by item; betas, lengths, offload, alpha, tiles, mesh and stages as if the items
 * were joined by commas. */
static enum status set_sequence(struct file *f, const struct settings_key *k, const char *where, const yaml_node_t *node)
{
    const yaml_node_item_t *item = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    char joined[512] = "";
    if (k->type != KEY_LIST && k->type != KEY_BETAS && k->type != KEY_OFFLOAD && k->type != KEY_ALPHA && k->type != KEY_TILES &&
        k->type != KEY_MESH && k->type != KEY_STAGES && k->type != KEY_LENGTHS)
        return status_fail(ERR_INVALID, "%s takes one value, not a list", where);
    if (k->type == KEY_LIST)
        settings_list_clear(k, f->s);
    for (int i = 0; item < end; item++, i++) {
        const yaml_node_t *value = yaml_document_get_node(&f->doc, *item);
        TRY(check_scalar(where, value));
        if (k->type == KEY_LIST) {
            TRY(settings_list_add(k, where, text_of(value), f->s));
        } else {
            strncat(joined, i ? "," : "", sizeof joined - strlen(joined) - 1);
            strncat(joined, text_of(value), sizeof joined - strlen(joined) - 1);
        }
    }
    return k->type == KEY_LIST ? OK : settings_key_set(k, where, joined, f->s);
}

/* Appends a scalar as text, or the scalars of a sequence joined by commas. */
static enum status join_value(struct file *f, const char *where, const yaml_node_t *value, char *joined, size_t bytes)
{
    if (value->type != YAML_SEQUENCE_NODE) {
        TRY(check_scalar(where, value));
        snprintf(joined + strlen(joined), bytes - strlen(joined), "%s", text_of(value));
        return OK;
    }
    const yaml_node_item_t *item = value->data.sequence.items.start, *end = value->data.sequence.items.top;
    for (int i = 0; item < end; item++, i++) {
        const yaml_node_t *one = yaml_document_get_node(&f->doc, *item);
        TRY(check_scalar(where, one));
        snprintf(joined + strlen(joined), bytes - strlen(joined), "%s%s", i ? "," : "", text_of(one));
    }
    return OK;
}

static enum status too_long(const char *where, const char *joined, size_t bytes)
{
    return strlen(joined) + 1 < bytes ? OK : status_fail(ERR_INVALID, "%s: longer than %zu characters", where, bytes - 1);
}

/* Sets `offload: {params: nvme, grads: cpu}` as if written params=nvme,grads=cpu; alpha, tiles, mesh and lora likewise. */
static enum status set_mapping(struct file *f, const struct settings_key *k, const char *where, const yaml_node_t *node)
{
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start, *end = node->data.mapping.pairs.top;
    char joined[4 * LORA_TEXT] = "";
    if (k->type != KEY_OFFLOAD && k->type != KEY_ALPHA && k->type != KEY_TILES && k->type != KEY_MESH && k->type != KEY_LORA)
        return status_fail(ERR_INVALID, "%s takes %s, not a mapping", where, k->type == KEY_LIST ? "a list" : "one value");
    for (int i = 0; pair < end; pair++, i++) {
        const yaml_node_t *name = yaml_document_get_node(&f->doc, pair->key),
                          *value = yaml_document_get_node(&f->doc, pair->value);
        TRY(check_scalar(where, name));
        size_t used = strlen(joined);
        snprintf(joined + used, sizeof joined - used, "%s%s=", i ? "," : "", text_of(name));
        TRY(k->type == KEY_LORA ? OK : check_scalar(where, value));
        TRY(join_value(f, where, value, joined, sizeof joined));
    }
    TRY(too_long(where, joined, sizeof joined));
    return settings_key_set(k, where, joined, f->s);
}

/* Sets `data: {books: 0.7, chats: 0.3}` as if written books=0.7,chats=0.3. */
static enum status set_weights(struct file *f, const struct settings_key *k, const char *where, const yaml_node_t *node)
{
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start, *end = node->data.mapping.pairs.top;
    settings_list_clear(k, f->s);
    for (; pair < end; pair++) {
        const yaml_node_t *name = yaml_document_get_node(&f->doc, pair->key),
                          *value = yaml_document_get_node(&f->doc, pair->value);
        char item[4200];
        TRY(check_scalar(where, name));
        TRY(check_scalar(where, value));
        char *rest;
        (void)strtod(text_of(value), &rest);
        if (rest == text_of(value) || *rest)
            return status_fail(ERR_INVALID, "%s: the weight of %.200s is '%.60s', which is no number", where, text_of(name),
                               text_of(value));
        snprintf(item, sizeof item, "%s=%s", text_of(name), text_of(value));
        TRY(too_long(where, item, sizeof item));
        TRY(settings_list_add(k, where, item, f->s));
    }
    return OK;
}

static enum status set_pair(struct file *f, const yaml_node_t *name, const yaml_node_t *value, size_t *seen_line)
{
    char where[512];
    if (name->type != YAML_SCALAR_NODE)
        return status_fail(ERR_INVALID, "%s:%zu: a key is expected", f->path, line_of(name));
    const struct settings_key *k = settings_key_find(text_of(name));
    if (!k) {
        const char *near = settings_key_suggest(text_of(name));
        return status_fail(ERR_INVALID, "%s:%zu: unknown key %s%s%s%s", f->path, line_of(name), text_of(name),
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (k->flags & KEY_FLAG_ONLY)
        return status_fail(ERR_INVALID, "%s:%zu: %s is not a key of a file; give --%s", f->path, line_of(name), k->name, k->name);
    size_t *seen = &seen_line[k - settings_keys];
    if (*seen)
        return status_fail(ERR_INVALID, "%s:%zu: %s is given twice, first in line %zu", f->path, line_of(name), k->name, *seen);
    *seen = line_of(name);
    snprintf(where, sizeof where, "%s:%zu: %s", f->path, line_of(name), k->name);
    if (value->type == YAML_SEQUENCE_NODE)
        return set_sequence(f, k, where, value);
    if (value->type == YAML_MAPPING_NODE)
        return k->flags & KEY_WEIGHED ? set_weights(f, k, where, value) : set_mapping(f, k, where, value);
    TRY(check_scalar(where, value));
    return settings_key_set(k, where, text_of(value), f->s);
}

static enum status set_document(struct file *f)
{
    size_t *seen_line = calloc((size_t)settings_n_keys, sizeof *seen_line);
    if (!seen_line)
        return status_fail(ERR_NOMEM, "%s: out of memory", f->path);
    enum status st = OK;
    const yaml_node_t *root = yaml_document_get_root_node(&f->doc);
    if (root && root->type != YAML_MAPPING_NODE) {
        st = status_fail(ERR_INVALID, "%s:%zu: lines like `seq-len: 4096` are expected", f->path, line_of(root));
    } else if (root) {
        const yaml_node_pair_t *pair = root->data.mapping.pairs.start, *end = root->data.mapping.pairs.top;
        for (; st == OK && pair < end; pair++)
            st = set_pair(f, yaml_document_get_node(&f->doc, pair->key), yaml_document_get_node(&f->doc, pair->value), seen_line);
    }
    const size_t steps = seen_line[settings_key_find("steps") - settings_keys],
                 epochs = seen_line[settings_key_find("epochs") - settings_keys];
    if (st == OK && steps && epochs && f->s->epochs > 0)
        st = status_fail(ERR_INVALID, "%s:%zu: epochs and, in line %zu, steps both say when a run ends: leave one out", f->path,
                         epochs, steps);
    free(seen_line);
    return st;
}

static enum status load_failed(const char *path, const yaml_parser_t *parser)
{
    const char *problem = parser->problem;
    if (!problem) /* libyaml has a text for every fault but a failed allocation */
        return status_fail(ERR_NOMEM, "%s: out of memory", path);
    if (parser->error == YAML_READER_ERROR)
        return status_fail(ERR_INVALID, "%s: %s (at byte %zu)", path, problem, parser->problem_offset);
    return status_fail(ERR_INVALID, "%s:%zu: %s%s%s%s", path, parser->problem_mark.line + 1, problem, parser->context ? " (" : "",
                       parser->context ? parser->context : "", parser->context ? ")" : "");
}

enum status settings_read_yaml(const char *path, FILE *stream, struct settings *s)
{
    struct file f = {.path = path, .s = s};
    yaml_parser_t parser;
    yaml_document_t next;
    if (!yaml_parser_initialize(&parser))
        return status_fail(ERR_NOMEM, "%s: out of memory", path);
    yaml_parser_set_input_file(&parser, stream);
    enum status st;
    if (!yaml_parser_load(&parser, &f.doc)) {
        st = load_failed(path, &parser);
        goto parser;
    }
    st = set_document(&f);
    if (st == OK && yaml_document_get_root_node(&f.doc)) {
        if (!yaml_parser_load(&parser, &next)) {
            st = load_failed(path, &parser);
        } else {
            if (yaml_document_get_root_node(&next))
                st = status_fail(ERR_INVALID, "%s:%zu: one document is expected, a second one begins", path,
                                 next.start_mark.line + 1);
            yaml_document_delete(&next);
        }
    }
    yaml_document_delete(&f.doc);
parser:
    yaml_parser_delete(&parser);
    return st;
}

enum status settings_write_yaml(const struct settings *s, FILE *f)
{
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        if (k->flags & KEY_FLAG_ONLY || (k->type == KEY_STRING && !*(char *const *)((const char *)s + k->offset)))
            continue;
        fprintf(f, "%s: ", k->name);
        settings_key_print(k, s, f);
        putc('\n', f);
    }
    if (fflush(f) != 0 || ferror(f))
        return status_fail(ERR_IO, "cannot write the settings: %s", strerror(errno));
    return OK;
}
