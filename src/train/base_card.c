#include "train/base_card.h"

#include "base/sys.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tells whether an id, a license's name or a link has only characters that keep the front matter intact. */
static int is_plain(const char *text)
{
    return text[0] && strlen(text) == strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+?=&%~");
}

/* Finds the hub's id in a path like .../models--ORG--NAME/snapshots/HASH. */
static int find_id(const char *dir, char id[256])
{
    const char *at = strstr(dir, "/models--");
    if (!at)
        return 0;
    at += strlen("/models--");
    snprintf(id, 256, "%.*s", (int)strcspn(at, "/"), at);
    char *cut = strstr(id, "--");
    if (cut) {
        *cut = '/';
        memmove(cut + 1, cut + 2, strlen(cut + 2) + 1);
    }
    return is_plain(id) && !strstr(id, "--");
}

/* Copies the value of a line "KEY: VALUE", without quotes and blanks around it. */
static int value_of(char *line, const char *key, char out[256])
{
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0 || line[n] != ':')
        return 0;
    char *from = line + n + 1 + strspn(line + n + 1, " \t\"'"), *end = from + strlen(from);
    while (end > from && (isspace((unsigned char)end[-1]) || end[-1] == '"' || end[-1] == '\''))
        *--end = 0;
    snprintf(out, 256, "%s", from);
    return is_plain(out);
}

/* Reads the license from the front matter: from a first line "---" to the next one. */
static void read_license(FILE *f, json_t *out)
{
    static const char *const keys[] = {"license", "license_name", "license_link"};
    char *line = NULL, value[256];
    size_t room = 0;
    int inside = getline(&line, &room, f) > 0 && strncmp(line, "---", 3) == 0;
    while (inside && getline(&line, &room, f) > 0 && strncmp(line, "---", 3) != 0)
        for (int i = 0; i < 3; i++)
            if (value_of(line, keys[i], value))
                json_object_set_new(out, keys[i], json_string(value));
    free(line);
}

/* Replaces a link to a file of the base's directory with the hub's URL; without an id the link is removed. */
static void mend_link(json_t *out)
{
    const char *link = json_string_value(json_object_get(out, "license_link")),
               *id = json_string_value(json_object_get(out, "id"));
    char whole[600];
    if (!link || strstr(link, "://"))
        return;
    if (!id) {
        json_object_del(out, "license_link");
        return;
    }
    snprintf(whole, sizeof whole, "https://huggingface.co/%s/blob/main/%s", id, link);
    json_object_set_new(out, "license_link", json_string(whole));
}

json_t *base_card_read(const char *dir, const char *name)
{
    char path[4096], id[256];
    json_t *out = json_object();
    int known = find_id(dir, id);
    json_object_set_new(out, "name", json_string(known ? strchr(id, '/') ? strchr(id, '/') + 1 : id : name));
    if (known)
        json_object_set_new(out, "id", json_string(id));
    FILE *f = snprintf(path, sizeof path, "%s/README.md", dir) < (int)sizeof path ? sys_read_text(path) : NULL;
    if (f) {
        read_license(f, out);
        fclose(f);
    }
    mend_link(out);
    return out;
}
