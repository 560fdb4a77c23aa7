/* Added tokens: strings that are cut out of the text before any other step. Private to this folder. */
#ifndef LTRAIN_TEXT_ADDED_H
#define LTRAIN_TEXT_ADDED_H

#include "base/status.h"
#include "text/trie.h"

#include <stddef.h>
#include <stdint.h>

struct added_token {
    uint8_t *text, *normal; /* normal: the string sought in normalised text; NULL: `text` is sought in raw text instead */
    size_t n, normal_n;
    int32_t id;
    int single_word, lstrip, rstrip, special;
};

enum added_stage { ADDED_RAW, ADDED_NORMAL, ADDED_STAGES };

struct added {
    struct added_token *token;
    int64_t n, room;
    struct trie trie[ADDED_STAGES]; /* strings sought in each stage; values: indices in `token` */
    int n_first[ADDED_STAGES];      /* number of different bytes with which tokens begin */
    uint8_t only_first[ADDED_STAGES];
    uint8_t first[ADDED_STAGES][256];
};

/* Adds a token, and takes over ownership of its texts. */
enum status added_put(struct added *a, const struct added_token *token);
/* Builds the index, once all tokens are added. ERR_INVALID: the same string is sought for two tokens. */
enum status added_index(struct added *a);
void added_free(struct added *a);

/* Tells whether a token found at bytes [start, end) is to be read as ordinary text. */
typedef int added_veto(void *user, const struct added_token *token, size_t start, size_t end);

struct added_scan {
    added_veto *veto; /* decides on tokens that are found; NULL: all count */
    void *user;
    size_t from, covered;
    int have;
    size_t start, end;
    const struct added_token *token;
};

struct added_part {
    size_t start, end;
    const struct added_token *token; /* the token; NULL: the part is ordinary text */
};

/* Returns 1 and the next part of a text, 0 after the last. special 0: special tokens are read as ordinary text. */
int added_next(const struct added *a, enum added_stage stage, int special, const uint8_t *text, size_t n, struct added_scan *scan,
               struct added_part *out);

#endif
