/* Rows of .jsonl files: one JSON object a line, which is a text, a conversation or token ids. Private to this folder. */
#ifndef LTRAIN_DATA_LINES_H
#define LTRAIN_DATA_LINES_H

#include "base/status.h"
#include "text/ids.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum lines_kind { LINES_NONE, LINES_TEXT, LINES_CHATS, LINES_IDS };

/* Bytes of the longest row read from an archive: a small archive may hold a row that fills the memory. */
#define LINES_MOST_ROW ((size_t)256 << 20)

/* Tells whether a file's name is one of a file of rows: .jsonl, .ndjson, .jsonlines or .ldjson, in any case, perhaps with .gz or
 * .zst behind. */
int lines_are_in(const char *path);

/* Finds what a file holds: LINES_NONE unless its name is one of rows, else by the keys of its first row. column: the member that
 * is the text; NULL: "text". A row with a `column` that was named is a text. Other rows are conversations if they have the keys
 * of one (chat/chat.h), ids if they have input_ids, and texts otherwise. ERR_IO, ERR_CORRUPT. */
enum status lines_look(const char *path, const char *column, enum lines_kind *out);

/* Called with each row and its number. */
typedef enum status lines_visitor(void *user, const char *row, size_t n, int64_t line);

/* Visits the rows in text[0 .. n): whole lines, the last one perhaps without its newline; blank lines are skipped. The first
 * line's number is `line`. */
enum status lines_visit(const uint8_t *text, size_t n, int64_t line, lines_visitor *visit, void *user);

/* Bytes that jansson may take for a row. A row of text needs little more than its own size, a row of millions of values many
 * times that. */
#define LINES_MOST_MEMORY ((int64_t)400 << 20)
/* Refuses a row whose values would take more than LINES_MOST_MEMORY, before it is parsed; the lengths of its strings do not count. */
enum status lines_check_row(const char *path, int64_t line, const char *row, size_t n);

/* Reads the text of a row; the caller releases *out (json_decref). ERR_INVALID names path and line. */
enum status lines_read_text(const char *path, int64_t line, const char *column, const char *row, size_t n, json_t **out);

/* Reads the ids of a row of ids without padding; an id that is not trained is written as id + ids. ERR_INVALID: an id is not
 * below ids. */
enum status lines_read_ids(const char *path, int64_t line, const char *row, size_t n, int64_t ids, struct ids *out);

/* Refuses a row of an archive that is longer than LINES_MOST_ROW: ERR_INVALID. */
enum status lines_refuse_long(const char *path, int64_t line);

#endif
