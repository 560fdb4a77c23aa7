/* Rows of token ids: reading the ids and their marks of training, refusing rows that hold several documents. Private to this
 * folder. */
#ifndef LTRAIN_DATA_ID_ROW_H
#define LTRAIN_DATA_ID_ROW_H

#include "base/status.h"
#include "text/ids.h"

#include <jansson.h>
#include <stdint.h>

/* Place of a row, for messages. */
struct lines_place {
    const char *path;
    int64_t line;
};

/* Adds the ids of a row without padding; an id that is not trained is written as id + ids. ERR_INVALID: an id is not below `ids`,
 * a mark is not known, or a row has several documents. */
enum status id_row_add(const struct lines_place *at, const json_t *row, int64_t ids, struct ids *out);

#endif
