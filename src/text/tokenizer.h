/* Text to token ids and back, as a tokenizer.json says, with the tokens of the files beside it: the ids of the `tokenizers` library; or as sentencepiece's tokenizer.model
 * says: that library's ids, with the added tokens of the files beside it. */
#ifndef LTRAIN_TEXT_TOKENIZER_H
#define LTRAIN_TEXT_TOKENIZER_H

#include "base/status.h"
#include "text/ids.h"
#include "text/text_buffer.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* path: a tokenizer.json or a NAME.model, or the directory that holds one; of both, tokenizer.json is taken. ERR_INVALID: it is not
 * there, it is broken, or it has a part that is not known here, which is named. `truncation` and `padding` are left out. */
enum status tokenizer_open(const char *path, struct tokenizer **out);
/* What a directory calls a tokenizer's file of this name: tokenizer.json, or tokenizer.model. */
const char *tokenizer_file_name(const char *name);
/* Whether the directory has a file that tokenizer_open takes. */
int tokenizer_is_in(const char *dir);
/* ERR_INVALID: the directory, which has no such file, has a tokenizer in others; the sentence names them and what to do. */
enum status tokenizer_check_others(const char *dir);
void tokenizer_close(struct tokenizer *t);
const char *tokenizer_path(const struct tokenizer *t);
/* Of the file's bytes, and of the tokens that files beside it add. */
uint64_t tokenizer_hash(const struct tokenizer *t);
/* Ids are below it. */
int64_t tokenizer_ids(const struct tokenizer *t);
/* Makes tokens that only files beside a tokenizer.json add, and that are beyond a model's rows, an error where they stand in a text, as a padding token
 * of no row is of no harm. */
void tokenizer_fit(struct tokenizer *t, int64_t rows);
/* A sentence on what its files say otherwise than other programs take it; "": nothing. */
const char *tokenizer_remark(const struct tokenizer *t);
/* What the template puts before and behind a text. */
void tokenizer_template(const struct tokenizer *t, const struct ids **before, const struct ids **behind);
/* The id of a token by its text, special ones included; -1: there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *token);

/* Special tokens in turn, from *at = 0 on; 0: there is no further one. */
int tokenizer_special(const struct tokenizer *t, int64_t *at, const uint8_t **text, size_t *n);

/* What one thread needs to encode; the tokenizer must outlive it. */
struct encoder;
enum status encoder_create(const struct tokenizer *t, struct encoder **out);
void encoder_free(struct encoder *e);

enum encode_flags {
    ENCODE_CONTINUES = 1, /* the text goes on behind a cut (tokenizer_cut) */
    ENCODE_PLAIN = 2,     /* special tokens in the text are text */
};

/* Adds the ids of valid UTF-8, without the template's. */
enum status tokenizer_encode(struct encoder *e, const uint8_t *text, size_t n, unsigned flags, struct ids *out);

/* Whether a document may be encoded in parts, the further ones with ENCODE_CONTINUES, with the ids of the whole. */
int tokenizer_can_cut(const struct tokenizer *t);
/* The last place in text[0 .. n-1] where it may be cut: behind a newline, before a letter or digit of ASCII; 0: there is none. */
size_t tokenizer_cut(const struct tokenizer *t, const uint8_t *text, size_t n);

/* The text of ids, which may be no valid UTF-8's beginning or end. special: 0 leaves special tokens out. Ids that no token has are an
 * error. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, int special, struct text_buffer *out);

/* text as valid UTF-8: each longest beginning of a character that is broken becomes U+FFFD, as everywhere (Unicode 16, 3.9). Returns
 * how many; *out has the text only if that is not 0. */
enum status text_repair(const uint8_t *text, size_t n, struct text_buffer *out, int64_t *repaired);

#endif
