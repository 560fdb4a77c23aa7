/* config.json of Hugging Face, read strictly.
 *
 * Strict means: a key that is neither understood nor known to be without effect on training is an error, and so is a value that
 * asks for something ltrain does not do. Dropout (attention_dropout, attn_pdrop, embd_pdrop, resid_pdrop) is the exception:
 * GPT-2's published configurations ask for 0.1, ltrain always trains without, and says so. */
#include "model/config.h"
#include "model/family.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 1 << 24 };

/* ---- families ---- */

static enum status read_field(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    enum need need = k->kind == KEY_REQUIRED ? REQUIRED : OPTIONAL;
    void *at = config_field_at(c, k->field);
    double real = k->fallback;
    switch (config_fields[k->field].type) {
    case FIELD_COUNT:
        *(int64_t *)at = (int64_t)k->fallback;
        return config_read_count(r, k->name, need, 1, at);
    case FIELD_FLOAT:
        TRY(config_read_real(r, k->name, need, &real));
        *(float *)at = (float)real;
        return OK;
    case FIELD_DOUBLE:
        *(double *)at = k->fallback;
        return config_read_real(r, k->name, need, at);
    case FIELD_SWITCH:
        *(int *)at = (int)k->fallback;
        return config_read_bool(r, k->name, at);
    case FIELD_FAMILY:
    case FIELD_CHOICE:
        return OK;
    }
    return OK;
}

static enum status read_word(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    int value = (int)k->fallback;
    TRY(config_read_word(r, k->name, k->words, &value));
    if (k->field != NO_FIELD)
        *(int *)config_field_at(c, k->field) = value;
    return OK;
}

static enum status read_dropout(struct config_reader *r, const char *key, struct model_config *c)
{
    const json_t *v = config_get(r, key);
    double share = json_number_value(v);
    if (v && !(json_is_number(v) && share >= 0.0 && share <= 1.0))
        return config_refuse(r, key, "must be a number from 0 to 1");
    if (share > c->dropout)
        c->dropout = share;
    return OK;
}

static enum status read_key(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    switch (k->kind) {
    case KEY_FIELD:
    case KEY_REQUIRED:
        return read_field(r, k, c);
    case KEY_WORD:
        return read_word(r, k, c);
    case KEY_ONLY_FALSE:
    case KEY_ONLY_TRUE:
        return config_only_bool(r, k->name, k->kind == KEY_ONLY_TRUE);
    case KEY_ONLY_ONE:
        return config_only_number(r, k->name, 1.0);
    case KEY_SPECIAL:
        return k->read ? k->read(r, c) : OK;
    case KEY_DROPOUT:
        return read_dropout(r, k->name, c);
    case KEY_FALSE:
        return OK;
    }
    return OK;
}

static enum status read_family(struct config_reader *r, struct model_config *c)
{
    struct config_word types[N_FAMILIES + 1] = {{NULL, 0}};
    int family = -1;
    for (int i = 0; i < N_FAMILIES; i++)
        types[i] = (struct config_word){families[i]->name, i};
    TRY(config_read_word(r, "model_type", types, &family));
    if (family < 0)
        return config_missing(r, "model_type");
    const json_t *names = config_get(r, "architectures"), *first = json_array_get(names, 0);
    const char *class = families[family]->class;
    char instead[64];
    snprintf(instead, sizeof instead, "supported: [\"%s\"]", class);
    if (names && !(json_array_size(names) == 1 && json_is_string(first) && strcmp(json_string_value(first), class) == 0))
        return config_refuse(r, "architectures", instead);
    c->family = (enum model_family)family;
    r->family = families[family];
    return OK;
}

static enum status read_object(struct config_reader *r, struct model_config *c)
{
    TRY(read_family(r, c));
    const struct family *f = family_of(c);
    for (int i = 0; i < 2; i++)
        for (const struct config_key *k = f->keys[i]; k && k->name; k++)
            TRY(read_key(r, k, c));
    TRY(f->derive(r, c));
    return config_check_understood(r);
}

/* ---- files ---- */

static enum status read_text(const char *path, char **text, size_t *bytes)
{
    struct stat s;
    enum status st = OK;
    int fd = sys_open_file(path, O_RDONLY, 0);
    if (fd < 0)
        return status_fail(ERR_INVALID, "cannot open %s: %s", path, sys_strerror(errno));
    int failed = sys_fstat(fd, &s) == 0 ? 0 : errno;
    size_t done = 0, n = !failed && s.st_size > 0 && s.st_size <= MAX_CONFIG_BYTES ? (size_t)s.st_size : 0;
    char *buf = sys_malloc(n + 1);
    if (failed)
        st = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(failed));
    else if (!buf)
        st = status_fail(ERR_NOMEM, "out of memory: %zu bytes for %s", n, path);
    else if (n == 0)
        st = status_fail(ERR_INVALID, "%s is empty or larger than %d bytes", path, MAX_CONFIG_BYTES);
    while (st == OK && done < n) {
        ssize_t got = sys_pread(fd, buf + done, n - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            st = status_fail(ERR_IO, "cannot read %s: %s", path, got < 0 ? strerror(errno) : "it became shorter");
        else
            done += (size_t)got;
    }
    sys_close(fd);
    if (st != OK) {
        free(buf);
        return st;
    }
    *text = buf;
    *bytes = n;
    return OK;
}

enum status config_load(const char *dir, char path[CONFIG_PATH], json_t **root)
{
    char *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    if (snprintf(path, CONFIG_PATH, "%s/config.json", dir) >= CONFIG_PATH)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    TRY(read_text(path, &text, &bytes));
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!*root)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    if (json_is_object(*root))
        return OK;
    json_decref(*root);
    return status_fail(ERR_INVALID, "%s must hold an object", path);
}

/* The directory's last component, whatever way it is spelled. */
static void set_name(const char *dir, char name[64])
{
    char *canonical = sys_realpath(dir);
    const char *slash = canonical ? strrchr(canonical, '/') : NULL;
    snprintf(name, 64, "%.63s", slash ? slash + 1 : dir);
    free(canonical);
}

enum status model_config_read(const char *dir, struct model_config *out)
{
    char path[CONFIG_PATH];
    json_t *root;
    TRY(config_load(dir, path, &root));
    struct model_config c = {.family = FAMILY_LLAMA};
    struct config_reader r = {.path = path, .section = "", .object = root};
    enum status st = read_object(&r, &c);
    json_decref(root);
    if (st == OK) {
        set_name(dir, c.name);
        *out = c;
    }
    return st;
}
