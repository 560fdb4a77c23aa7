/* The data that settings name, for all their readers. */
#ifndef LTRAIN_TRAIN_DATA_H
#define LTRAIN_TRAIN_DATA_H

#include "data/corpus.h"
#include "model/model.h"
#include "settings/settings.h"

/* Takes the arguments of corpus_open, which are valid during the call only. */
typedef enum status data_reader(void *user, const struct corpus_config *config);

/* Opens the tokenizer and the chat template that the settings ask for. */
enum status data_read(const struct settings *s, const struct model *m, data_reader *read, void *user);
/* Reads the text of --data, or else of --eval-data: its first documents, with a blank line between them, up to about `most` bytes
 * of valid UTF-8. Returns nothing if neither is given. ERR_INVALID: the data are token ids. */
enum status data_read_text(const struct settings *s, int64_t most, struct text_buffer *out);
/* Opens the tokenizer that the settings ask for; NULL: ids are bytes. */
enum status data_open_tokenizer(const struct settings *s, struct tokenizer **out);

#endif
