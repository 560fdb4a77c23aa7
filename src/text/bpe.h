/* Byte pair encoding. Private to this folder. */
#ifndef LTRAIN_TEXT_BPE_H
#define LTRAIN_TEXT_BPE_H

#include "base/status.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

#define UNK_NONE (-1)    /* what is unknown vanishes */
#define UNK_MISSING (-2) /* the file names a token that is not there: an error once it is needed */

struct merge {
    uint64_t key; /* left << 32 | right, + 1; 0: free */
    uint32_t rank;
    int32_t to;
};

struct bpe {
    const struct vocab *keys; /* pieces as they come: raw bytes, or characters; not owned */
    int raw;                  /* a symbol is a byte, and the vocabulary has its character of byte_level.h */
    int32_t single[256];      /* ids of bytes, or of ASCII characters; -1: unknown */
    int32_t fallback[256];    /* ids of <0xXX>; -1: not there */
    int byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;
    struct merge *merges;
    uint64_t merge_mask, n_merges;
    uint64_t *pairs;          /* characters that stand side by side in some token (x << 32 | y, + 1); NULL: pieces are not cut */
    uint64_t pair_mask, n_pairs;
    uint8_t ascii_pairs[128][128];
    /* of sentencepiece's models */
    int32_t n_ids;              /* ids from here on are characters that are no tokens, though parts of some */
    const uint8_t *unused;      /* [n_ids]: tokens that are taken apart again in the end; NULL: there are none; owned */
    const struct trie *defined; /* tokens that never merge, where `unused` is there; not owned */
};

struct bpe_halves {
    int32_t left, right;
};

/* Room of one thread. */
struct bpe_room {
    struct ids symbols;
    uint32_t *rank;
    int32_t *to, *next, *before;
    uint64_t *heap;
    size_t room, heap_n;
    struct bpe_halves *halves; /* by id: of what an unused token was last made */
};

enum status bpe_reserve_merges(struct bpe *b, uint64_t n);
/* A pair that is there already gets the rank. */
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t to);
/* Once vocabulary and merges are there: where long pieces may be cut. */
enum status bpe_find_cuts(struct bpe *b);
/* Whether a token holds x and y side by side; 1 where that is not known. */
int bpe_pair_exists(const struct bpe *b, uint32_t x, uint32_t y);
void bpe_free(struct bpe *b);

enum status bpe_encode(const struct bpe *b, struct bpe_room *room, const uint8_t *piece, size_t n, struct ids *out);
/* The beginning of a long piece that may be encoded alone, n if none may. */
size_t bpe_cut(const struct bpe *b, const uint8_t *piece, size_t n);
void bpe_room_free(struct bpe_room *room);

#endif
