/* Unigram: the most probable way to cut a piece. Private to this folder. */
#ifndef LTRAIN_TEXT_UNIGRAM_H
#define LTRAIN_TEXT_UNIGRAM_H

#include "base/status.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

struct unigram {
    const struct vocab *tokens; /* not owned */
    double *score;              /* scores by id */
    double lowest;
    struct trie trie; /* values: ids */
    int32_t unk;      /* id of the unknown token; -1: there is none */
    int byte_fallback;
    int32_t fallback[256];
    int as_sentencepiece; /* 1: sums are rounded as in sentencepiece, and a run of unknown characters is never looked up as a token */
    size_t longest;       /* bytes of the longest token, or of the longest character if that is more */
};

struct unigram_room {
    struct unigram_end *ends;
    size_t room;
    struct ids backwards;
};

void unigram_free(struct unigram *u);
enum status unigram_encode(const struct unigram *u, struct unigram_room *room, const uint8_t *piece, size_t n, struct ids *out);
void unigram_room_free(struct unigram_room *room);

#endif
