/* Unigram: Viterbi over bytes, as in sentencepiece's optimised encoder. */
#include "text/unigram.h"

#include "text/unicode.h"

#include <stdlib.h>

#define UNKNOWN_PENALTY 10.0
#define FAR_BELOW (-1e5)

/* The best way found so far to cut the text up to a byte. */
struct unigram_end {
    double score;
    int64_t from; /* byte at which that way's last token begins; -1: no way is known yet */
    int32_t id;
};

void unigram_free(struct unigram *u)
{
    free(u->score);
    trie_free(&u->trie);
    *u = (struct unigram){.unk = -1};
}

void unigram_room_free(struct unigram_room *room)
{
    free(room->ends);
    free(room->backwards.id);
    *room = (struct unigram_room){.room = 0};
}

static void offer(const struct unigram *u, struct unigram_end *end, size_t from, double score, int32_t id)
{
    score = u->as_sentencepiece ? (float)score : score;
    if (end->from < 0 || score > end->score)
        *end = (struct unigram_end){score, (int64_t)from, id};
}

/* Restarts the sums of scores at 0. sentencepiece does so once a sum has become large, as it keeps sums as floats with 24 bits
 * (measured; since version 0.2.3). */
static void count_anew(const struct unigram *u, struct unigram_end *ends, size_t at, size_t n)
{
    double sum = ends[at].score;
    for (size_t i = at; i <= n && i <= at + u->longest; i++)
        if (ends[i].from >= 0)
            ends[i].score -= sum;
}

static enum status find_ways(const struct unigram *u, struct unigram_end *ends, const uint8_t *piece, size_t n)
{
    ends[0] = (struct unigram_end){.from = -1};
    for (size_t i = 1; i <= n; i++)
        ends[i].from = -1;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        if (u->as_sentencepiece && at && ends[at].score < FAR_BELOW)
            count_anew(u, ends, at, n);
        double here = at ? ends[at].score : 0.0;
        uint32_t node = 0;
        int single = 0;
        bytes = utf8_length(piece[at]);
        for (size_t i = at; i < n && (node = trie_step(&u->trie, node, piece[i])) != 0; i++) {
            int32_t id = u->trie.values[node];
            if (id < 0)
                continue;
            offer(u, &ends[i + 1], at, u->score[id] + here, id);
            single |= i + 1 - at == bytes;
        }
        if (single)
            continue;
        if (u->unk < 0)
            return status_fail(ERR_INVALID,
                               "the text has characters that the tokenizer does not know, and it has no token for them");
        offer(u, &ends[at + bytes], at, u->lowest - UNKNOWN_PENALTY + here, u->unk);
    }
    return OK;
}

/* Adds a run of unknown characters, with its ids in reverse order: as the token of its own, if there is one, or bytes, or the
 * unknown token. */
static enum status add_run(const struct unigram *u, const uint8_t *text, size_t n, struct ids *out)
{
    int32_t id = u->as_sentencepiece ? -1 : vocab_find(u->tokens, text, n);
    if (id >= 0)
        return ids_add(out, id);
    int all = u->byte_fallback;
    for (size_t i = 0; i < n && all; i++)
        all = u->fallback[text[i]] >= 0;
    if (!all)
        return ids_add(out, u->unk);
    for (size_t i = n; i > 0; i--)
        TRY(ids_add(out, u->fallback[text[i - 1]]));
    return OK;
}

enum status unigram_encode(const struct unigram *u, struct unigram_room *room, const uint8_t *piece, size_t n, struct ids *out)
{
    if (room->room < n + 1) {
        struct unigram_end *ends = sys_realloc(room->ends, 2 * (n + 1) * sizeof *ends);
        if (!ends)
            return status_fail(ERR_NOMEM, "out of memory: a piece of text of %zu bytes", n);
        room->ends = ends;
        room->room = 2 * (n + 1);
    }
    TRY(find_ways(u, room->ends, piece, n));
    struct ids *back = &room->backwards;
    back->n = 0;
    for (size_t end = n; end > 0;) {
        const struct unigram_end *e = &room->ends[end];
        size_t from = (size_t)e->from;
        if (u->unk < 0 || e->id != u->unk) {
            TRY(ids_add(back, e->id));
            end = from;
            continue;
        }
        while (from > 0 && room->ends[from].id == u->unk)
            from = (size_t)room->ends[from].from;
        TRY(add_run(u, piece + from, end - from, back));
        end = from;
    }
    TRY(ids_reserve(out, back->n));
    for (size_t i = back->n; i > 0; i--)
        out->id[out->n++] = back->id[i - 1];
    return OK;
}
