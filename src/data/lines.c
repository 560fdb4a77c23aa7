/* Rows of .jsonl files. */
#include "data/lines.h"

#include "base/num.h"
#include "base/sys.h"
#include "chat/chat.h"
#include "data/file.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const char *column)
{
    return column ? column : "text";
}

static int is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return 0;
    return 1;
}

enum status lines_visit(const uint8_t *bytes, size_t n, int64_t line, lines_visitor *visit, void *user)
{
    const char *text = (const char *)bytes;
    for (size_t at = 0; at < n; line++) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - text) : n;
        if (!is_blank(text + at, end - at))
            TRY(visit(user, text + at, end - at, line));
        at = end + 1;
    }
    return OK;
}

/* The first row in text[0 .. n) that ends there, or at the end of the file if the text does. Its bytes; 0: there is none. */
static size_t find_row(const char *text, size_t n, int is_all, const char **row)
{
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - text) : n;
        if (!newline && !is_all)
            return 0;
        if (!is_blank(text + at, end - at)) {
            *row = text + at;
            return end - at;
        }
        at = end + 1;
    }
    return 0;
}

static enum lines_kind kind_of(const char *row, size_t n, const char *column)
{
    json_t *object = json_loadb(row, n, JSON_ALLOW_NUL, NULL);
    enum lines_kind kind =
        object && !(column && json_object_get(object, column)) && chat_is_conversation(object) ? LINES_CHATS : LINES_TEXT;
    json_decref(object);
    return kind;
}

/* In a buffer that grows until the row is in it. */
static enum status look(int fd, const char *path, int64_t bytes, const char *column, enum lines_kind *out)
{
    enum { FIRST = 1 << 16 };
    enum status st = OK;
    char *text = NULL;
    const char *row;
    size_t length = 0;
    for (int64_t have = 0, want = FIRST; have < bytes && length == 0; want *= 2) {
        want = min_i64(want, bytes);
        char *more = sys_realloc(text, (size_t)want);
        if (!more)
            TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: a line of %s", path), done);
        text = more;
        TRY_GOTO(file_read(fd, path, text + have, (size_t)(want - have), have), done);
        have = want;
        length = find_row(text, (size_t)have, have == bytes, &row);
    }
    *out = length > 0 ? kind_of(row, length, column) : LINES_TEXT;
done:
    free(text);
    return st;
}

enum status lines_look(const char *path, const char *column, enum lines_kind *out)
{
    size_t length = strlen(path);
    int fd;
    int64_t bytes;
    *out = LINES_NONE;
    if (length < 6 || strcmp(path + length - 6, ".jsonl") != 0)
        return OK;
    TRY(file_open(path, &fd, &bytes));
    enum status st = look(fd, path, bytes, column, out);
    sys_close(fd);
    return st;
}

/* What a row without text has instead. */
static enum status refuse_row(const char *path, int64_t line, const char *column, const json_t *row)
{
    if (!json_is_object(row))
        return status_fail(ERR_INVALID, "%s:%lld: it is no JSON object", path, (long long)line);
    if (json_object_get(row, column))
        return status_fail(ERR_INVALID, "%s:%lld: its \"%.60s\" is no string", path, (long long)line, column);
    if (chat_is_conversation(row))
        return status_fail(ERR_INVALID,
                           "%s:%lld: it is a conversation, and the file's first row is a text: give each kind a file of its own",
                           path, (long long)line);
    const char *first = json_object_iter_key(json_object_iter((json_t *)row));
    return status_fail(ERR_INVALID, "%s:%lld: it has no \"%.60s\"%s%.40s%s", path, (long long)line, column,
                       first ? " (its first member is \"" : "", first ? first : "",
                       first ? "\"; --text-column NAME names the one that is the text)" : "");
}

enum status lines_read_text(const char *path, int64_t line, const char *column, const char *row, size_t n, json_t **out)
{
    json_error_t error;
    json_t *object = json_loadb(row, n, JSON_ALLOW_NUL, &error);
    if (!object)
        return status_fail(ERR_INVALID, "%s:%lld: broken JSON: %s", path, (long long)line, error.text);
    json_t *value = json_object_get(object, name_of(column));
    enum status st = json_is_string(value) ? OK : refuse_row(path, line, name_of(column), object);
    if (st == OK)
        *out = json_incref(value);
    json_decref(object);
    return st;
}
