/* What each file of a list holds, by its name and its beginning. Private to this folder. */
#ifndef LTRAIN_DATA_KINDS_H
#define LTRAIN_DATA_KINDS_H

#include "base/status.h"
#include "data/documents.h"
#include "data/id_file.h"
#include "data/lines.h"

struct file_kind {
    enum lines_kind lines; /* LINES_NONE: a text, or a file of ids */
    struct id_file ids;    /* .format IDS_NONE: none */
    int json_rows;         /* a text that is a JSON list of rows, or rows in a file named .json */
};

struct kinds_config {
    const char *column; /* of rows: the text; NULL: "text" */
    int token_bytes;    /* of files of ids without a header, 0: refused */
    int has_tokenizer;  /* 0: texts are their bytes, and so are rows, but for those of ids */
};

/* file [documents], to be given to kinds_free. *tokens: tokens have to be made of them, as they are not the bytes of the files. ERR_INVALID
 * also: a format that is not read (Parquet and others, with the line that converts it; JSON lists only where they are named, not where a directory has them), or ids and texts without a tokenizer together. */
enum status kinds_find(const struct documents *d, const struct kinds_config *config, struct file_kind **file, int *tokens);
void kinds_free(struct file_kind *file, int64_t n);
/* Says that it is a text as a whole, or rows of texts. */
int kinds_are_text(const struct file_kind *k);
/* Ids and not text are in it. */
int kinds_are_ids(const struct file_kind *k);

#endif
