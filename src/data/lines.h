/* Rows of .jsonl files: one JSON object a line, which is a text, a conversation or token ids. Private to this folder. */
#ifndef LTRAIN_DATA_LINES_H
#define LTRAIN_DATA_LINES_H

#include "base/status.h"
#include "text/ids.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct input;

enum lines_kind { LINES_NONE, LINES_TEXT, LINES_CHATS, LINES_IDS };

/* Most bytes of a row in an archive: a small archive might hold a row that fills the memory. */
#define LINES_MOST_ROW ((size_t)256 << 20)

/* Tells whether a file's name is one of a file of rows: .jsonl, .ndjson, .jsonlines or .ldjson, in any case, perhaps with .gz or
 * .zst behind; or .parquet. */
int lines_are_in(const char *path);

/* Finds the kind of a file's rows by the keys of the first row; LINES_NONE if the file's name is not one of a file of rows.
 * column: key of the member that is the text; NULL: "text".
 *
 * If `column` was given and the row has that member, rows are texts. Otherwise they are conversations if they have the keys of
 * one (chat/chat.h), ids if they have input_ids, and else texts. ERR_IO, ERR_CORRUPT. */
enum status lines_look(const char *path, const char *column, enum lines_kind *out);

/* Leaves out the columns of a .parquet that reading rows of that kind does not look at; column: as in lines_look. */
void lines_select(struct input *in, enum lines_kind kind, const char *column);

/* Called with each row and its number. */
typedef enum status lines_visitor(void *user, const char *row, size_t n, int64_t line);

/* Visits the rows in text[0 .. n): whole lines, of which the last may lack its newline; blank lines are skipped. line: number of
 * the first line. */
enum status lines_visit(const uint8_t *text, size_t n, int64_t line, lines_visitor *visit, void *user);

/* Most bytes of memory that jansson may take for a row. A row of text takes little more than its own size, a row of millions of
 * values many times that. */
#define LINES_MOST_MEMORY ((int64_t)256 << 20)
/* Refuses a row whose values would take more than LINES_MOST_MEMORY, before it is parsed; the lengths of its strings do not count. */
enum status lines_check_row(const char *path, int64_t line, const char *row, size_t n);

/* Reads the text of a row; the caller releases *out (json_decref). ERR_INVALID names path and line. */
enum status lines_read_text(const char *path, int64_t line, const char *column, const char *row, size_t n, json_t **out);

/* Reads the ids of a row without its padding; an id that is not trained is written as id + ids. ERR_INVALID: an id is not below
 * `ids`. */
enum status lines_read_ids(const char *path, int64_t line, const char *row, size_t n, int64_t ids, struct ids *out);

/* Returns ERR_INVALID for a row of an archive that is longer than LINES_MOST_ROW. */
enum status lines_refuse_long(const char *path, int64_t line);

#endif
