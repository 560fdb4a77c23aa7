/* The data that settings name, for whoever reads them. Private to src/train. */
#ifndef LTRAIN_TRAIN_DATA_H
#define LTRAIN_TRAIN_DATA_H

#include "data/corpus.h"
#include "model/model.h"
#include "settings/settings.h"

/* Called with what corpus_open takes; it is there as long as the call lasts. */
typedef enum status data_reader(void *user, const struct corpus_config *config);

/* Opens the tokenizer and the chat template that the settings ask for. */
enum status data_read(const struct settings *s, const struct model *m, data_reader *read, void *user);
/* The text of their --data, or else their --eval-data: its first documents, with a blank line between them, up to about `most` bytes;
 * valid UTF-8. Nothing where they name neither. ERR_INVALID: it is no text. */
enum status data_read_text(const struct settings *s, int64_t most, struct text_buffer *out);
/* The tokenizer that they ask for; NULL: ids are bytes. */
enum status data_open_tokenizer(const struct settings *s, struct tokenizer **out);

#endif
