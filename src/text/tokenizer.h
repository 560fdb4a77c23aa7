/* Text to token ids and back. A tokenizer.json is read as by the `tokenizers` library, a tokenizer.model as by sentencepiece;
 * files beside either may add tokens. */
#ifndef LTRAIN_TEXT_TOKENIZER_H
#define LTRAIN_TEXT_TOKENIZER_H

#include "base/status.h"
#include "text/ids.h"
#include "text/text_buffer.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* Opens a tokenizer. path: a tokenizer.json or a NAME.model, or the directory that holds one; tokenizer.json comes first.
 * ERR_INVALID: the file is missing or broken, or has an unknown part, which the message names. `truncation` and `padding` are
 * ignored. */
enum status tokenizer_open(const char *path, struct tokenizer **out);
/* Returns the usual name in a model's directory for a tokenizer file of this name: tokenizer.json or tokenizer.model. */
const char *tokenizer_file_name(const char *name);
/* Tells whether the directory has a file that tokenizer_open reads. */
int tokenizer_is_in(const char *dir);
/* Refuses a directory that has a tokenizer only in files of other formats (ERR_INVALID); the message names the files and says
 * what to do. */
enum status tokenizer_check_others(const char *dir);
void tokenizer_close(struct tokenizer *t);
const char *tokenizer_path(const struct tokenizer *t);
/* Returns a hash of the file's bytes, and of the tokens that files beside it add. */
uint64_t tokenizer_hash(const struct tokenizer *t);
/* Returns the bound of ids: all are below. */
int64_t tokenizer_ids(const struct tokenizer *t);
/* Makes encoding fail if a text has a token that only files beside a tokenizer.json add and whose id is beyond the model's
 * `rows`. Such tokens do no harm as long as no text has them (a padding token). */
void tokenizer_fit(struct tokenizer *t, int64_t rows);
/* Returns a remark on how other programs read the tokenizer's files differently; "": none. */
const char *tokenizer_remark(const struct tokenizer *t);
/* Returns the ids that the template puts before and behind a text. */
void tokenizer_template(const struct tokenizer *t, const struct ids **before, const struct ids **behind);
/* Returns the token that ends a document: eos_token of the files beside the tokenizer, else sentencepiece's own, else
 * config.json's eos_token_id if that is a single number; -1: none is named. */
int32_t tokenizer_eos(const struct tokenizer *t);
/* Returns the id of a token by its text, special ones included; -1: none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *token);

/* Returns 1 and the text of the next special token, from *at = 0 on; 0 after the last. */
int tokenizer_special(const struct tokenizer *t, int64_t *at, const uint8_t **text, size_t *n);

/* A thread's encoder; the tokenizer must outlive it. */
struct encoder;
enum status encoder_create(const struct tokenizer *t, struct encoder **out);
void encoder_free(struct encoder *e);

enum encode_flags {
    ENCODE_CONTINUES = 1, /* the text is the rest of a document that was cut before it (tokenizer_cut) */
    ENCODE_PLAIN = 2,     /* special tokens in the text are read as ordinary text */
};

/* Adds the ids of a valid UTF-8 text, without those that the template puts before and behind. */
enum status tokenizer_encode(struct encoder *e, const uint8_t *text, size_t n, unsigned flags, struct ids *out);

/* Returns the last place in text[0 .. n-1], between a newline and an ASCII letter or digit, where a document may be cut; 0: none. The
 * parts, later ones with ENCODE_CONTINUES, have the ids of the whole document. */
size_t tokenizer_cut(const struct tokenizer *t, const uint8_t *text, size_t n);

/* Decodes ids; the text need not begin or end as valid UTF-8. special 0: special tokens are left out. An id without a token is an
 * error. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, int special, struct text_buffer *out);

/* Repairs text: each longest broken beginning of a character becomes U+FFFD (Unicode 16, section 3.9). *repaired: number of
 * replacements; *out gets the text only if that is not 0. */
enum status text_repair(const uint8_t *text, size_t n, struct text_buffer *out, int64_t *repaired);

#endif
