/* Byte pair encoding. Private to this folder. */
#ifndef LTRAIN_TEXT_BPE_H
#define LTRAIN_TEXT_BPE_H

#include "base/status.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

#define UNK_NONE (-1)    /* unknown characters vanish */
#define UNK_MISSING (-2) /* the file names a token that does not exist: an error once it is needed */

struct merge {
    uint64_t key; /* left << 32 | right, + 1; 0: free */
    uint32_t rank;
    int32_t to;
};

struct bpe {
    const struct vocab *keys; /* pieces as raw bytes, or as characters; not owned */
    int raw;                  /* 1: a symbol is a byte, under its character of byte_level.h in the vocabulary */
    int32_t single[256];      /* ids of bytes, or of ASCII characters; -1: unknown */
    int32_t fallback[256];    /* ids of <0xXX>; -1: none */
    int byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;
    struct merge *merges;
    uint64_t merge_mask, n_merges;
    uint64_t *pairs; /* pairs of neighbouring characters in some token (x << 32 | y, + 1); NULL: pieces are not cut */
    uint64_t pair_mask, n_pairs;
    uint8_t ascii_pairs[128][128];
    /* used by sentencepiece's models: */
    int32_t n_ids;              /* larger ids are characters that are no tokens, though parts of some */
    const uint8_t *unused;      /* [n_ids]: 1: a token that is split again in the end; NULL: no such tokens; owned */
    const struct trie *defined; /* tokens that never merge, if `unused` is set; not owned */
};

struct bpe_halves {
    int32_t left, right;
};

/* Working memory of one thread. */
struct bpe_room {
    struct ids symbols;
    uint32_t *rank;
    int32_t *to, *next, *before;
    uint64_t *heap;
    size_t room, heap_n;
    struct bpe_halves *halves; /* by id: the two symbols that an unused token was last made of */
};

enum status bpe_reserve_merges(struct bpe *b, uint64_t n);
/* Adds a merge; an existing pair gets the new rank. */
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t to);
/* Finds out where long pieces may be cut; called once vocabulary and merges are complete. */
enum status bpe_find_cuts(struct bpe *b);
void bpe_free(struct bpe *b);

enum status bpe_encode(const struct bpe *b, struct bpe_room *room, const uint8_t *piece, size_t n, struct ids *out);
/* Returns the bytes at the beginning of a long piece that may be encoded alone; n if there is no such cut. */
size_t bpe_cut(const struct bpe *b, const uint8_t *piece, size_t n);
void bpe_room_free(struct bpe_room *room);

#endif
