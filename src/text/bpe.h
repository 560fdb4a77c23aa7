/* Byte pair encoding. Private to this folder. */
#ifndef LTRAIN_TEXT_BPE_H
#define LTRAIN_TEXT_BPE_H

#include "base/status.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

#define UNK_NONE (-1)    /* value of unk: unknown characters are left out */
#define UNK_MISSING (-2) /* value of unk: the file names an unknown token that does not exist; an error if text needs the token */

struct merge {
    uint64_t key; /* pair of ids: (left << 32 | right) + 1; 0: free slot */
    uint32_t rank;
    int32_t to;
};

struct bpe {
    const struct vocab *keys; /* tokens by text: raw bytes (raw 1) or characters (raw 0); not owned */
    int raw; /* 1: symbols are bytes, which the tokenizer's file writes as characters of GPT-2's alphabet (byte_level.h) */
    int32_t single[256];   /* ids of bytes, or of ASCII characters; -1: unknown */
    int32_t fallback[256]; /* ids of the tokens <0x00> .. <0xFF>; -1: no such token */
    int byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;
    struct merge *merges;
    uint64_t merge_mask, n_merges;
    /* hash table of the pairs of characters x, y side by side in some token, as (x << 32 | y) + 1; NULL: pieces are not cut */
    uint64_t *pairs;
    uint64_t pair_mask, n_pairs;
    uint8_t ascii_pairs[128][128];
    /* set for sentencepiece's models only: */
    int32_t n_ids; /* number of tokens; ids from there on are single characters that are parts of tokens but no tokens */
    /* [n_ids]: 1: a token that helps merging, but is split again afterwards; NULL: there are none; owned */
    const uint8_t *unused;
    const struct trie *defined; /* user-defined tokens, which never merge; set only if `unused` is; not owned */
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
    struct bpe_halves *halves; /* [n_ids]: the two symbols that last merged to an unused token; left -1: none */
};

enum status bpe_reserve_merges(struct bpe *b, uint64_t n);
/* Adds a merge; a pair that has one already gets the new rank. */
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t to);
/* Prepares bpe_cut: collects the pairs of characters inside tokens. Called once vocabulary and merges are complete. */
enum status bpe_find_cuts(struct bpe *b);
void bpe_free(struct bpe *b);

enum status bpe_encode(const struct bpe *b, struct bpe_room *room, const uint8_t *piece, size_t n, struct ids *out);
/* Returns the number of bytes at a long piece's beginning that may be encoded separately with the same ids; n: the piece may not
 * be cut. */
size_t bpe_cut(const struct bpe *b, const uint8_t *piece, size_t n);
void bpe_room_free(struct bpe_room *room);

#endif
