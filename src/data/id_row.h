/* Rows of token ids: ids, what is trained of them, and rows that hold several documents. Private to this folder. */
#ifndef LTRAIN_DATA_ID_ROW_H
#define LTRAIN_DATA_ID_ROW_H

#include "base/status.h"
#include "text/ids.h"

#include <jansson.h>
#include <stdint.h>

/* Where a row stands, for messages. */
struct lines_place {
    const char *path;
    int64_t line;
};

/* Adds the ids of a row, those that are not trained + ids; without padding. ERR_INVALID: ids that are not below `ids`, a mark that is not
 * known, several documents in one row. */
enum status id_row_add(const struct lines_place *at, const json_t *row, int64_t ids, struct ids *out);

#endif
