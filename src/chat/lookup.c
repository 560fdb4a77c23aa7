/* The templates of a Hugging Face directory. */
#include "chat/template.h"

#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, MAX_FILE = 64 << 20 };

/* Reads a whole file, and puts a 0 behind it; *text NULL: there is no such file. */
static enum status read_file(const char *dir, const char *file, char path[PATH_BYTES], char **text, size_t *n)
{
    size_t room = 0;
    *text = NULL;
    *n = 0;
    if (snprintf(path, PATH_BYTES, "%s%s%s", file[0] == '/' ? "" : dir, file[0] == '/' ? "" : "/", file) >= PATH_BYTES)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    FILE *f = sys_read_text(path);
    if (!f)
        return errno == ENOENT ? OK : sys_cannot_open(path);
    for (size_t got = 1; got > 0 && *n <= MAX_FILE;) {
        if (*n + 1 >= room) {
            room = room ? 2 * room : 1 << 16;
            char *more = realloc(*text, room);
            if (!more) {
                free(*text);
                fclose(f);
                return status_fail(ERR_NOMEM, "no memory for %s", path);
            }
            *text = more;
        }
        got = fread(*text + *n, 1, room - *n - 1, f);
        *n += got;
    }
    int failed = ferror(f);
    fclose(f);
    if (failed || *n > MAX_FILE) {
        free(*text);
        return status_fail(ERR_INVALID, failed ? "cannot read %s" : "%s is larger than any such file", path);
    }
    (*text)[*n] = 0;
    return OK;
}

static enum status read_json(const char *dir, const char *file, char path[PATH_BYTES], json_t **out)
{
    char *text;
    size_t n;
    json_error_t error;
    *out = NULL;
    TRY(read_file(dir, file, path, &text, &n));
    if (!text)
        return OK;
    /* reads integers as reals: model_max_length is 10^30 in most files, which no integer here holds */
    *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    free(text);
    if (!*out)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    return OK;
}

/* Takes special tokens from "eos_token": "</s>", or {"content": "</s>", ...}. */
static enum status take_tokens(struct chat_template *t, const json_t *config)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        size_t n = strlen(key);
        if (n < 7 || strcmp(key + n - 6, "_token") != 0 || !json_is_string(content) || chat_template_token(t, key))
            continue;
        TRY(chat_template_set_token(t, key, json_string_value(content)));
    }
    return OK;
}

/* ---- templates by name ---- */

/* Templates of a directory by name, and for each the place that messages name. */
struct named {
    json_t *source, *label; /* {name: string} */
};

static void free_named(struct named *x)
{
    json_decref(x->source);
    json_decref(x->label);
}

static enum status add_named(struct named *x, const char *name, const char *label, json_t *source)
{
    if (!json_is_string(source)) {
        json_decref(source);
        return status_fail(ERR_INVALID, "%s must be a string, or a list of {name, template}", label);
    }
    return json_object_set_new(x->source, name, source) == 0 && json_object_set_new(x->label, name, json_string(label)) == 0
               ? OK
               : status_fail(ERR_NOMEM, "no memory for the chat template %s", label);
}

static enum status add_file(struct named *x, const char *dir, const char *file, const char *name)
{
    char path[PATH_BYTES], *text;
    size_t n;
    TRY(read_file(dir, file, path, &text, &n));
    if (!text)
        return OK;
    json_t *source = json_stringn(text, n);
    free(text);
    return source ? add_named(x, name, path, source) : status_fail(ERR_INVALID, "%s: the template is not UTF-8", path);
}

/* Adds the templates additional_chat_templates/NAME.jinja. */
static enum status add_additional(struct named *x, const char *dir)
{
    static const char end[] = ".jinja";
    char path[PATH_BYTES], file[512], name[256];
    struct dirent *e;
    enum status st = OK;
    if (snprintf(path, PATH_BYTES, "%s/" CHAT_MORE_TEMPLATES, dir) >= PATH_BYTES)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    DIR *d = sys_opendir(path);
    if (!d)
        return sys_is_absent(errno) ? OK : sys_cannot_open(path);
    while (st == OK && (e = sys_readdir(d)) != NULL) {
        const size_t n = strlen(e->d_name);
        if (n < sizeof end || strcmp(e->d_name + n - (sizeof end - 1), end) != 0)
            continue;
        snprintf(file, sizeof file, CHAT_MORE_TEMPLATES "/%s", e->d_name);
        snprintf(name, sizeof name, "%.*s", (int)(n - (sizeof end - 1)), e->d_name);
        st = add_file(x, dir, file, name);
    }
    closedir(d);
    return st;
}

/* Adds the templates in `chat_template` of tokenizer_config.json. */
static enum status add_of_config(struct named *x, const char *dir)
{
    char path[PATH_BYTES], label[PATH_BYTES + 80];
    json_t *config, *entry;
    size_t i;
    enum status st = OK;
    TRY(read_json(dir, "tokenizer_config.json", path, &config));
    json_t *found = json_object_get(config, "chat_template");
    snprintf(label, sizeof label, "%s: chat_template", path);
    if (found && !json_is_null(found) && !json_is_array(found))
        st = add_named(x, "default", label, json_incref(found));
    if (json_is_array(found))
        json_array_foreach(found, i, entry)
        {
            const char *name = json_string_value(json_object_get(entry, "name"));
            snprintf(label, sizeof label, "%s: chat_template %.60s", path, name ? name : "");
            if (st == OK && name)
                st = add_named(x, name, label, json_incref(json_object_get(entry, "template")));
        }
    json_decref(config);
    return st;
}

/* Finds all templates of a directory. If there are files with templates the configuration's are ignored, as in transformers. */
static enum status list_named(const char *dir, struct named *out)
{
    enum status st;
    *out = (struct named){json_object(), json_object()};
    TRY_GOTO(add_file(out, dir, "chat_template.jinja", "default"), fail);
    TRY_GOTO(add_additional(out, dir), fail);
    if (json_object_size(out->source) == 0)
        TRY_GOTO(add_of_config(out, dir), fail);
    return OK;
fail:
    free_named(out);
    return st;
}

static enum status parse_named(const struct named *x, const char *name, struct chat_template **out)
{
    const json_t *source = json_object_get(x->source, name);
    *out = NULL;
    return source ? chat_template_parse(json_string_value(source), json_string_length(source),
                                        json_string_value(json_object_get(x->label, name)), out)
                  : OK;
}

/* Refuses a directory without a default template; the message has the names of the templates that are there. */
static enum status refuse_none(const struct named *x, const char *dir)
{
    char names[200] = "";
    const char *name;
    json_t *source;
    json_object_foreach(x->source, name, source)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s", names[0] ? ", " : "", name);
    return names[0] ? status_fail(ERR_INVALID, "%s has no default chat template: name one of its others (%s) by --chat-template",
                                  dir, names)
                    : status_fail(
                          ERR_INVALID,
                          "%s has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): name one of "
                          "ltrain's own, chatml for example",
                          dir);
}

enum status chat_template_find(const char *dir, const char *name, struct chat_template **out)
{
    struct named x;
    TRY(list_named(dir, &x));
    enum status st = parse_named(&x, name, out);
    free_named(&x);
    if (st == OK && *out && (st = chat_template_read_tokens(*out, dir)) != OK) {
        chat_template_destroy(*out);
        *out = NULL;
    }
    return st;
}

enum status chat_template_load(const char *dir, struct chat_template **out)
{
    struct named x;
    struct chat_template *t = NULL;
    TRY(list_named(dir, &x));
    enum status st = parse_named(&x, "default", &t);
    if (st == OK && !t)
        st = refuse_none(&x, dir);
    /* no error yet: conversations without tools do not need this template */
    if (st == OK && parse_named(&x, CHAT_TOOL_TEMPLATE, &t->for_tools) != OK)
        t->tools_error = strdup(status_message());
    free_named(&x);
    if (st == OK)
        st = chat_template_read_tokens(t, dir);
    if (st != OK)
        chat_template_destroy(t);
    else
        *out = t;
    return st;
}

enum status chat_template_read_tokens(struct chat_template *t, const char *dir)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *config;
        TRY(read_json(dir, files[i], path, &config));
        enum status st = take_tokens(t, config);
        json_decref(config);
        TRY(st);
    }
    return OK;
}

enum status chat_template_open(const char *file, struct chat_template **out)
{
    char path[PATH_BYTES], *text;
    size_t n;
    TRY(read_file(".", file, path, &text, &n));
    if (!text)
        return status_fail(ERR_INVALID, "cannot open %s: %s", file, sys_strerror(ENOENT));
    enum status st = chat_template_parse(text, n, file, out);
    free(text);
    return st;
}
