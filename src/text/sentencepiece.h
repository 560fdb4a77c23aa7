/* sentencepiece's tokenizer.model: a protocol buffer (sentencepiece_model.proto, ModelProto). Private to this folder. */
#ifndef LTRAIN_TEXT_SENTENCEPIECE_H
#define LTRAIN_TEXT_SENTENCEPIECE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum sp_type { SP_NORMAL = 1, SP_UNKNOWN, SP_CONTROL, SP_USER_DEFINED, SP_UNUSED, SP_BYTE };
enum sp_model { SP_UNIGRAM = 1, SP_BPE, SP_WORD, SP_CHAR };

struct sp_text {
    const uint8_t *data; /* points into the file's bytes, which must outlive it */
    size_t n;
};

struct sp_piece {
    struct sp_text text; /* valid UTF-8, at least one character */
    float score;         /* finite */
    enum sp_type type;
};

/* Parts of the file that encoding depends on; the rest describes its training. */
struct sp_file {
    struct sp_piece *piece; /* pieces by id */
    size_t n;
    int64_t room;
    int64_t model; /* enum sp_model */
    int byte_fallback, space_as_suffix;
    struct sp_text bos, eos; /* texts of these two pieces, which need not exist */
    struct sp_text char_map; /* map of characters; empty: characters stay as they are */
    int dummy_prefix, removes_spaces, escapes_spaces;
    int has_denormalizer;
    int64_t unk; /* id of the one unknown piece */
};

/* Reads a file. ERR_INVALID: it is no such file, it is damaged, or its pieces break sentencepiece's rules. */
enum status sp_read(const void *data, size_t n, struct sp_file *out);
void sp_free(struct sp_file *f);

#endif
