/* Kinds of files, found by name and first bytes. Private to this folder. */
#ifndef LTRAIN_DATA_KINDS_H
#define LTRAIN_DATA_KINDS_H

#include "base/status.h"
#include "data/documents.h"
#include "data/id_file.h"
#include "data/lines.h"

struct file_kind {
    enum lines_kind lines; /* kind of the rows; LINES_NONE: the file is a whole text or a file of ids */
    struct id_file ids;    /* .format IDS_NONE: no file of ids */
    int json_rows;         /* 1: the text is a JSON list of rows, or rows in a file named .json */
};

struct kinds_config {
    const char *column; /* key of the member of rows that is the text; NULL: "text" */
    int token_bytes;    /* bytes of an id in files without a header; 0: such files are refused */
    int has_tokenizer;  /* 0: texts and rows are read as bytes, except for rows of ids */
};

/* Finds the kind of each file. file [documents]: to be freed by kinds_free. *tokens: 1 if some file's tokens are not its bytes,
 * so that a file of tokens must be made.
 *
 * ERR_INVALID also: a format that is not read (for Parquet and others the message has the command that converts the file; JSON
 * lists are refused only if named, not in a directory), or ids and texts together without a tokenizer. */
enum status kinds_find(const struct documents *d, const struct kinds_config *config, struct file_kind **file, int *tokens);
void kinds_free(struct file_kind *file, int64_t n);
/* Tells whether a file is one text as a whole, or has rows that are texts. */
int kinds_are_text(const struct file_kind *k);
/* Tells whether a file has ids and no text. */
int kinds_are_ids(const struct file_kind *k);

#endif
