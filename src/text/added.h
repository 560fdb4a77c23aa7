/* Added tokens: strings that are cut out of the text before any other step. Private to this folder. */
#ifndef LTRAIN_TEXT_ADDED_H
#define LTRAIN_TEXT_ADDED_H

#include "base/status.h"
#include "text/trie.h"

#include <stddef.h>
#include <stdint.h>

struct added_token {
    uint8_t *text, *normal; /* normal: the form sought in normalised text; NULL: `text` is sought in raw text */
    size_t n, normal_n;
    int32_t id;
    int single_word, lstrip, rstrip, special;
};

enum added_stage { ADDED_RAW, ADDED_NORMAL, ADDED_STAGES };

struct added {
    struct added_token *token;
    int64_t n, room;
    struct trie trie[ADDED_STAGES]; /* values: indices in `token` */
    int n_first[ADDED_STAGES];      /* number of bytes that some token begins with */
    uint8_t only_first[ADDED_STAGES];
    uint8_t first[ADDED_STAGES][256];
};

/* Adds a token, and takes over its texts. */
enum status added_put(struct added *a, const struct added_token *token);
/* Builds the index, once all tokens are added. ERR_INVALID: two of them are sought as the same string. */
enum status added_index(struct added *a);
void added_free(struct added *a);

/* Tells whether a token found at bytes [start, end) is text after all. */
typedef int added_veto(void *user, const struct added_token *token, size_t start, size_t end);

struct added_scan {
    added_veto *veto; /* or NULL */
    void *user;
    size_t from, covered;
    int have;
    size_t start, end;
    const struct added_token *token;
};

struct added_part {
    size_t start, end;
    const struct added_token *token; /* NULL: text */
};

/* Returns the parts of a text in turn; 0: there are no more. special 0: special tokens are left in the text. */
int added_next(const struct added *a, enum added_stage stage, int special, const uint8_t *text, size_t n, struct added_scan *scan,
               struct added_part *out);

#endif
