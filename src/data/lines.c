/* Reading rows of .jsonl files. */
#include "data/lines.h"

#include "base/sys.h"
#include "base/units.h"
#include "chat/chat.h"
#include "data/id_row.h"
#include "data/input.h"
#include "data/row_members.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Returns the length of the byte order mark before the first line, which some programs write; 0: there is none. */
static size_t order_mark(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, "\357\273\277", 3) == 0 ? 3 : 0;
}

enum status lines_visit(const uint8_t *bytes, size_t n, int64_t line, lines_visitor *visit, void *user)
{
    const char *text = (const char *)bytes;
    for (size_t at = line == 1 ? order_mark(text, n) : 0; at < n; line++) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - text) : n;
        if (!is_blank(text + at, end - at))
            TRY(visit(user, text + at, end - at, line));
        at = end + 1;
    }
    return OK;
}

/* Finds the first row that is not blank and ends within text[0 .. n), by a newline or, if is_all, by the file's end. Returns the
 * row's bytes; 0: there is none. */
static size_t find_row(const char *text, size_t n, int is_all, const char **row)
{
    for (size_t at = order_mark(text, n); at < n;) {
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

/* Bytes that jansson 2.14 takes on a 64-bit machine, malloc's overhead included, for an object, a list, a string or key, and any
 * other value. */
enum { OF_OBJECT = 240, OF_LIST = 128, OF_STRING = 80, OF_VALUE = 48 };

/* Estimates the memory that jansson takes for a row, without the bytes of its strings. */
static int64_t memory_of(const char *row, size_t n)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        switch (row[i]) {
        case '{':
            bytes += OF_OBJECT;
            break;
        case '[':
            bytes += OF_LIST;
            break;
        case ',':
            bytes += OF_VALUE;
            break;
        case '"':
            bytes += OF_STRING;
            for (i++; i < n && row[i] != '"'; i++)
                i += row[i] == '\\';
            break;
        }
    return bytes;
}

enum status lines_check_row(const char *path, int64_t line, const char *row, size_t n)
{
    char need[32], most[32];
    if ((int64_t)n * OF_OBJECT <= LINES_MOST_MEMORY) /* short enough: at most one value begins at each byte */
        return OK;
    const int64_t bytes = memory_of(row, n);
    if (bytes <= LINES_MOST_MEMORY)
        return OK;
    return status_fail(ERR_INVALID,
                       "%s:%lld: reading the values of this row would take %s, and a row may take %s: cut it into several", path,
                       (long long)line, units_format_bytes(bytes, need), units_format_bytes(LINES_MOST_MEMORY, most));
}

static enum lines_kind kind_of(const char *row, size_t n, const char *column)
{
    /* integers become reals, as 64-bit hashes would overflow jansson's integers */
    json_t *object = json_loadb(row, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    enum lines_kind kind = !object || (column && json_object_get(object, column)) ? LINES_TEXT
                           : chat_is_conversation(object)                         ? LINES_CHATS
                           : chat_has(object, "input_ids")                        ? LINES_IDS
                                                                                  : LINES_TEXT;
    json_decref(object);
    return kind;
}

/* Finds the kind of the first row, which is read into a buffer that grows until it has the whole row. */
static enum status look(struct input *in, const char *path, const char *column, enum lines_kind *out)
{
    enum { FIRST = 1 << 16 };
    enum status st = OK;
    char *text = NULL;
    const char *row;
    size_t length = 0, have = 0, want = FIRST, got = 0;
    for (int all = 0; !all && length == 0; want *= 2) {
        if (have > LINES_MOST_ROW && input_is_compressed(path))
            TRY_GOTO(lines_refuse_long(path, 1), done);
        char *more = sys_realloc(text, want);
        if (!more)
            TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: a line of %s", path), done);
        text = more;
        TRY_GOTO(input_read(in, (uint8_t *)text + have, want - have, &got), done);
        have += got;
        all = have < want;
        length = find_row(text, have, all, &row);
    }
    if (length > 0)
        TRY_GOTO(lines_check_row(path, 1, row, length), done);
    *out = length > 0 ? kind_of(row, length, column) : LINES_TEXT;
done:
    free(text);
    return st;
}

int lines_are_in(const char *path)
{
    static const char *const names[] = {".jsonl", ".ndjson", ".jsonlines", ".ldjson"};
    const size_t n = input_name(path);
    if (input_is_parquet(path))
        return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t m = strlen(names[i]);
        if (n > m && strncasecmp(path + n - m, names[i], m) == 0)
            return 1;
    }
    return 0;
}

/* Refuses columns of a .parquet that are read, if it has them, and have a type that rows do not have; others are left out. */
static enum status check_columns(const struct input *in, const char *column)
{
    static const char *const read[] = {"messages", "conversations", "prompt", "completion", "instruction",          "input",
                                       "output",   "system",        "tools",  "history",    "chat_template_kwargs", "input_ids",
                                       "labels",   "attention_mask"};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        TRY(input_check_column(in, read[i]));
    return input_check_column(in, name_of(column));
}

/* Rows, of which some members are read. */
struct reader {
    enum lines_kind kind;
    const char *column;
};

static int reads(void *reader, const char *name)
{
    const struct reader *r = reader;
    return row_members_are_read(r->kind, r->column, name);
}

void lines_select(struct input *in, enum lines_kind kind, const char *column)
{
    struct reader r = {kind, column};
    /* without a column of texts all columns stay selected, since the refusal names the first one */
    if (kind != LINES_TEXT || input_has_column(in, name_of(column)))
        input_select(in, reads, &r);
}

enum status lines_look(const char *path, const char *column, enum lines_kind *out)
{
    struct input *in;
    *out = LINES_NONE;
    if (!lines_are_in(path))
        return OK;
    TRY(input_open(path, NULL, &in));
    enum status st = check_columns(in, column);
    if (st == OK)
        st = look(in, path, column, out);
    input_close(in);
    return st;
}

enum status lines_refuse_long(const char *path, int64_t line)
{
    return status_fail(ERR_INVALID,
                       "%s:%lld: more than %zu MiB come out of the archive without an end of a line or another place to cut: "
                       "decompress it, if this is meant",
                       path, (long long)line, LINES_MOST_ROW >> 20);
}

/* Refuses a row without text, and says what it has instead. */
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
    return status_fail(
        ERR_INVALID, "%s:%lld: it has no \"%.60s\"%s%.40s%s", path, (long long)line, column,
        first ? " (its first member is \"" : "", first ? first : "",
        first ? "\"; --text-column NAME names the one that is the text; rows of chats have messages, or prompt and completion)"
              : "");
}

enum status lines_read_text(const char *path, int64_t line, const char *column, const char *row, size_t n, json_t **out)
{
    json_error_t error;
    TRY(lines_check_row(path, line, row, n));
    json_t *object = json_loadb(row, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    /* a number too large for jansson's integers, perhaps a 64-bit hash in another member: read numbers as reals */
    if (!object && json_error_code(&error) == json_error_numeric_overflow)
        object = json_loadb(row, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!object)
        return status_fail(ERR_INVALID, "%s:%lld: broken JSON: %s", path, (long long)line, error.text);
    json_t *value = json_object_get(object, name_of(column));
    enum status st = json_is_string(value) ? chat_check_row(object, CHAT_ROW_TEXT, path, line)
                                           : refuse_row(path, line, name_of(column), object);
    if (st == OK)
        *out = json_incref(value);
    json_decref(object);
    return st;
}

enum status lines_read_ids(const char *path, int64_t line, const char *row, size_t n, int64_t ids, struct ids *out)
{
    json_error_t error;
    TRY(lines_check_row(path, line, row, n));
    json_t *object = json_loadb(row, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return status_fail(ERR_INVALID, "%s:%lld: broken JSON: %s", path, (long long)line, error.text);
    enum status st = id_row_add(&(struct lines_place){path, line}, object, ids, out);
    json_decref(object);
    return st;
}
