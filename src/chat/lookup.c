/* The template of a Hugging Face directory. */
#include "chat/chat.h"

#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, MAX_FILE = 64 << 20 };

/* The whole file, with a 0 behind it; *text NULL: it is not there. */
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
    /* model_max_length is 10^30 in most files, which no integer here holds */
    *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    free(text);
    if (!*out)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    return OK;
}

/* "eos_token": "</s>", or {"content": "</s>", ...}. */
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

/* Of a list of {name, template}. */
static const json_t *choose(const json_t *list, const char *variant)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, variant) == 0)
            return json_object_get(entry, "template");
    }
    return NULL;
}

static enum status parse_of_config(const json_t *config, const char *path, const char *dir, const char *variant,
                                   struct chat_template **out)
{
    const json_t *found = json_object_get(config, "chat_template");
    char name[PATH_BYTES + 80];
    snprintf(name, sizeof name, "%s: chat_template", path);
    if (json_is_array(found)) {
        snprintf(name, sizeof name, "%s: chat_template %.60s", path, variant);
        if (!choose(found, variant))
            return status_fail(ERR_INVALID, "%s has no chat template '%.60s'", path, variant);
        found = choose(found, variant);
    }
    if (json_is_null(found) || !found)
        return status_fail(
            ERR_INVALID,
            "%s has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): name one of "
            "ltrain's own, chatml for example",
            dir);
    if (!json_is_string(found))
        return status_fail(ERR_INVALID, "%s must be a string, or a list of {name, template}", name);
    return chat_template_parse(json_string_value(found), json_string_length(found), name, out);
}

static enum status load(const char *dir, const char *variant, const json_t *config, const char *config_path,
                        struct chat_template **out)
{
    char path[PATH_BYTES], *text;
    size_t n;
    enum status st;
    TRY(read_file(dir, "chat_template.jinja", path, &text, &n));
    st = text ? chat_template_parse(text, n, path, out) : parse_of_config(config, config_path, dir, variant, out);
    free(text);
    TRY(st);
    return chat_template_read_tokens(*out, dir);
}

enum status chat_template_load(const char *dir, const char *variant, struct chat_template **out)
{
    char path[PATH_BYTES];
    json_t *config;
    struct chat_template *t = NULL;
    TRY(read_json(dir, "tokenizer_config.json", path, &config));
    enum status st = load(dir, variant ? variant : "default", config, path, &t);
    json_decref(config);
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
