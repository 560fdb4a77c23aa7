/* Byte pair encoding: the pair of lowest rank is merged first, among equal ranks the leftmost. */
#include "text/bpe.h"

#include "text/byte_level.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

#define SHORT 40         /* most symbols of a piece whose ranks are searched linearly */
#define NEVER UINT32_MAX /* rank of a pair that does not merge */
#define WORTH_CUTTING 24 /* fewest bytes of a piece that is cut before encoding */

/* ---- merges ---- */

static uint64_t hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

enum status bpe_reserve_merges(struct bpe *b, uint64_t n)
{
    uint64_t slots = 1024;
    while (slots < 2 * n)
        slots *= 2;
    b->merges = sys_calloc(slots, sizeof *b->merges);
    if (!b->merges)
        return status_fail(ERR_NOMEM, "out of memory: %llu merges", (unsigned long long)n);
    b->merge_mask = slots - 1;
    return OK;
}

static struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1, slot = hash(key) & b->merge_mask;
    while (b->merges[slot].key && b->merges[slot].key != key)
        slot = (slot + 1) & b->merge_mask;
    return &b->merges[slot];
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t to)
{
    struct merge *m = find_merge(b, left, right);
    b->n_merges += m->key == 0;
    *m = (struct merge){((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1, rank, to};
}

static uint32_t rank_of(const struct bpe *b, int32_t left, int32_t right, int32_t *to)
{
    const struct merge *m = find_merge(b, left, right);
    *to = m->to;
    return m->key ? m->rank : NEVER;
}

void bpe_free(struct bpe *b)
{
    free(b->merges);
    free(b->pairs);
    free((void *)b->unused);
    *b = (struct bpe){.unk = UNK_NONE};
}

void bpe_room_free(struct bpe_room *room)
{
    free(room->symbols.id);
    free(room->rank);
    free(room->to);
    free(room->next);
    free(room->before);
    free(room->heap);
    free(room->halves);
    *room = (struct bpe_room){.room = 0};
}

/* ---- cuts ---- */

static uint64_t pair_slot(const struct bpe *b, uint64_t key)
{
    uint64_t slot = hash(key) & b->pair_mask;
    while (b->pairs[slot] && b->pairs[slot] != key)
        slot = (slot + 1) & b->pair_mask;
    return slot;
}

static enum status add_pair(struct bpe *b, uint32_t x, uint32_t y)
{
    if (x < 128 && y < 128)
        return b->ascii_pairs[x][y] = 1, OK;
    if (2 * b->n_pairs >= b->pair_mask) {
        uint64_t *former = b->pairs, slots = former ? b->pair_mask + 1 : 0;
        uint64_t *pairs = sys_calloc(slots ? 2 * slots : 4096, sizeof *pairs);
        if (!pairs)
            return status_fail(ERR_NOMEM, "out of memory: pairs of characters");
        b->pairs = pairs;
        b->pair_mask = (slots ? 2 * slots : 4096) - 1;
        for (uint64_t i = 0; i < slots; i++)
            if (former[i])
                b->pairs[pair_slot(b, former[i])] = former[i];
        free(former);
    }
    uint64_t key = ((uint64_t)x << 32 | y) + 1, slot = pair_slot(b, key);
    b->n_pairs += b->pairs[slot] == 0;
    b->pairs[slot] = key;
    return OK;
}

/* Tells whether a piece of text must not be cut before it is encoded, since the tokens could depend on the cut: unknown tokens or
 * byte tokens merge with others, or unknown tokens mix with byte tokens. */
static int needs_neighbours(const struct bpe *b)
{
    for (int k = 0; k < 256 && b->byte_fallback && b->unk != UNK_NONE; k++)
        if (b->fallback[k] < 0)
            return 1;
    for (uint64_t i = 0; i <= b->merge_mask; i++) {
        int32_t left = (int32_t)((b->merges[i].key - 1) >> 32), right = (int32_t)(b->merges[i].key - 1);
        if (!b->merges[i].key)
            continue;
        if (left == b->unk || right == b->unk)
            return 1;
        for (int k = 0; k < 256 && b->byte_fallback; k++)
            if (left == b->fallback[k] || right == b->fallback[k])
                return 1;
    }
    return 0;
}

enum status bpe_find_cuts(struct bpe *b)
{
    if (b->raw || b->ignore_merges || b->unused || needs_neighbours(b))
        return OK;
    TRY(add_pair(b, UNICODE_END, UNICODE_END)); /* a pair that is never looked up, so that the table exists in any case */
    for (int64_t i = 0; i < vocab_count(b->keys); i++) {
        int32_t id;
        struct token_text t = vocab_at(b->keys, i, &id);
        uint32_t before = 0, c;
        for (size_t at = 0, n; at < t.n; at += n, before = c) {
            c = utf8_read(t.data + at, &n);
            if (at > 0)
                TRY(add_pair(b, before, c));
        }
    }
    return OK;
}

/* Tells whether some token has the characters x and y side by side; 1 also if that is not known. */
static int pair_exists(const struct bpe *b, uint32_t x, uint32_t y)
{
    if (!b->pairs)
        return 1;
    if (x < 128 && y < 128)
        return b->ascii_pairs[x][y];
    return b->pairs[pair_slot(b, ((uint64_t)x << 32 | y) + 1)] != 0;
}

/* Tells whether a character needs no unknown token: it has its own token, or each of its bytes has one. */
static int stands_alone(const struct bpe *b, const uint8_t *c, size_t n)
{
    int32_t id = n == 1 ? b->single[*c] : vocab_find(b->keys, c, n);
    if (id >= 0 && id < b->n_ids)
        return 1;
    int all = b->byte_fallback;
    for (size_t i = 0; i < n && all; i++)
        all = b->fallback[c[i]] >= 0;
    return all;
}

size_t bpe_cut(const struct bpe *b, const uint8_t *piece, size_t n)
{
    size_t first = 0, bytes, next;
    if (!b->pairs || n < WORTH_CUTTING)
        return n;
    uint32_t x = utf8_read(piece, &bytes);
    for (size_t at = bytes; at < n; first = at, at += next) {
        uint32_t y = utf8_read(piece + at, &next);
        if (!pair_exists(b, x, y) && stands_alone(b, piece + first, at - first) && stands_alone(b, piece + at, next))
            return at;
        x = y;
    }
    return n;
}

/* ---- symbols ---- */

/* Adds a character without a token of its own: as the tokens of its bytes, or as the unknown token. With fuse_unk, unknown tokens
 * in a row become a single one. */
static enum status add_unknown(const struct bpe *b, const uint8_t *c, size_t n, int32_t *pending, struct ids *out)
{
    int all = b->byte_fallback;
    for (size_t i = 0; i < n && all; i++)
        all = b->fallback[c[i]] >= 0;
    for (size_t i = 0; i < n && all; i++)
        TRY(ids_add(out, b->fallback[c[i]]));
    if (all || b->unk == UNK_NONE)
        return OK;
    if (b->unk == UNK_MISSING)
        return status_fail(ERR_INVALID,
                           "the text has characters that the tokenizer does not know, and its token for them is not in its "
                           "vocabulary");
    if (*pending >= 0 && !b->fuse_unk)
        TRY(ids_add(out, *pending));
    *pending = b->unk;
    return OK;
}

/* Returns the bytes of the longest token in `defined` with which the piece begins; 0: there is none. */
static size_t defined_at(const struct bpe *b, const uint8_t *piece, size_t n, int32_t *id)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; b->defined && i < n && (node = trie_step(b->defined, node, piece[i])) != 0; i++)
        if (b->defined->values[node] >= 0) {
            *id = b->defined->values[node];
            longest = i + 1;
        }
    return longest;
}

static enum status split(const struct bpe *b, const uint8_t *piece, size_t n, struct ids *out)
{
    int32_t pending = -1;
    size_t bytes;
    out->n = 0;
    TRY(ids_reserve(out, n + 1));
    for (size_t at = 0; at < n; at += bytes) {
        uint8_t lead = piece[at];
        int32_t id;
        bytes = defined_at(b, piece + at, n - at, &id);
        if (bytes == 0) {
            bytes = b->raw ? 1 : utf8_length(lead);
            id = bytes == 1 ? b->single[lead] : vocab_find(b->keys, piece + at, bytes);
        }
        if (id < 0) {
            uint8_t c[4];
            size_t length = bytes;
            b->raw ? (void)(length = utf8_write(byte_to_char(lead), c)) : (void)memcpy(c, piece + at, bytes);
            TRY(add_unknown(b, c, length, &pending, out));
            continue;
        }
        if (pending >= 0)
            TRY(ids_add(out, pending));
        pending = -1;
        TRY(ids_add(out, id));
    }
    return pending >= 0 ? ids_add(out, pending) : OK;
}

/* ---- merging ---- */

/* Looks up the rank of a pair in the text. If the pair makes an unused token, notes the token's two halves. */
static uint32_t consider(const struct bpe *b, struct bpe_room *r, int32_t left, int32_t right, int32_t *to)
{
    uint32_t rank = rank_of(b, left, right, to);
    if (b->unused && rank != NEVER && b->unused[*to])
        r->halves[*to] = (struct bpe_halves){left, right};
    return rank;
}

static size_t merge_short(const struct bpe *b, struct bpe_room *r, int32_t *id, size_t n)
{
    uint32_t rank[SHORT];
    int32_t to[SHORT];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = consider(b, r, id[i], id[i + 1], &to[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == NEVER)
            break;
        id[best] = to[best];
        for (size_t i = best + 1; i + 1 < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1 < n - 1 ? i + 1 : i];
            to[i] = to[i + 1 < n - 1 ? i + 1 : i];
        }
        n--;
        if (best > 0)
            rank[best - 1] = consider(b, r, id[best - 1], id[best], &to[best - 1]);
        if (best + 1 < n)
            rank[best] = consider(b, r, id[best], id[best + 1], &to[best]);
    }
    return n;
}

static enum status reserve(struct bpe_room *r, size_t n)
{
    if (r->room >= n)
        return OK;
    size_t room = 2 * n;
    void *rank = sys_realloc(r->rank, room * sizeof *r->rank);
    r->rank = rank ? rank : r->rank;
    void *to = sys_realloc(r->to, room * sizeof *r->to);
    r->to = to ? to : r->to;
    void *next = sys_realloc(r->next, room * sizeof *r->next);
    r->next = next ? next : r->next;
    void *before = sys_realloc(r->before, room * sizeof *r->before);
    r->before = before ? before : r->before;
    void *heap = sys_realloc(r->heap, 3 * room * sizeof *r->heap);
    r->heap = heap ? heap : r->heap;
    if (!rank || !to || !next || !before || !heap)
        return status_fail(ERR_NOMEM, "out of memory: a piece of text of %zu symbols", n);
    r->room = room;
    return OK;
}

/* Adds an entry to the heap, whose smallest is on top. An entry is rank << 32 | place of the pair. */
static void push(struct bpe_room *r, uint64_t value)
{
    size_t i = r->heap_n++;
    for (; i > 0 && r->heap[(i - 1) / 2] > value; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = value;
}

static uint64_t pop(struct bpe_room *r)
{
    uint64_t top = r->heap[0], last = r->heap[--r->heap_n];
    size_t i = 0;
    for (size_t child = 1; child < r->heap_n; child = 2 * i + 1) {
        child += child + 1 < r->heap_n && r->heap[child + 1] < r->heap[child];
        if (r->heap[child] >= last)
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = last;
    return top;
}

static void rank_pair(const struct bpe *b, struct bpe_room *r, int32_t i)
{
    const int32_t *id = r->symbols.id;
    r->rank[i] = r->next[i] < 0 ? NEVER : consider(b, r, id[i], id[r->next[i]], &r->to[i]);
    if (r->rank[i] != NEVER)
        push(r, (uint64_t)r->rank[i] << 32 | (uint32_t)i);
}

/* Merges a long piece with a heap. An entry is stale if the pair at its place has another rank by now. Each merge adds at most
 * two entries and removes a symbol. */
static enum status merge_long(const struct bpe *b, struct bpe_room *r)
{
    int32_t *id = r->symbols.id, n = (int32_t)r->symbols.n;
    TRY(reserve(r, (size_t)n));
    r->heap_n = 0;
    for (int32_t i = 0; i < n; i++) {
        r->next[i] = i + 1 < n ? i + 1 : -1;
        r->before[i] = i - 1;
    }
    for (int32_t i = 0; i < n; i++)
        rank_pair(b, r, i);
    while (r->heap_n > 0) {
        uint64_t top = pop(r);
        int32_t i = (int32_t)(uint32_t)top, gone;
        if (r->rank[i] != top >> 32)
            continue;
        gone = r->next[i];
        id[i] = r->to[i];
        r->next[i] = r->next[gone];
        r->rank[gone] = NEVER;
        if (r->next[i] >= 0)
            r->before[r->next[i]] = i;
        if (r->before[i] >= 0)
            rank_pair(b, r, r->before[i]);
        rank_pair(b, r, i);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i >= 0; i = r->next[i])
        id[kept++] = id[i];
    r->symbols.n = (size_t)kept;
    return OK;
}

/* ---- remaining symbols of sentencepiece ---- */

/* Adds a symbol as tokens. An unused token is split into its halves again; a character that is no token becomes the tokens of its
 * bytes, or the unknown token. */
static enum status settle(const struct bpe *b, const struct bpe_room *r, int32_t id, struct ids *out)
{
    struct token_text c;
    int unused = id < b->n_ids && b->unused && b->unused[id], unknown = unused || id >= b->n_ids;
    if (unused && r->halves[id].left >= 0) {
        TRY(settle(b, r, r->halves[id].left, out));
        return settle(b, r, r->halves[id].right, out);
    }
    if (unknown && b->byte_fallback && vocab_text(b->keys, id, &c)) {
        for (size_t i = 0; i < c.n; i++)
            TRY(ids_add(out, b->fallback[c.data[i]]));
        return OK;
    }
    id = unknown ? b->unk : id;
    return id == b->unk && out->n > 0 && out->id[out->n - 1] == id ? OK : ids_add(out, id);
}

static enum status settle_all(const struct bpe *b, const struct bpe_room *r, struct ids *out)
{
    struct ids own = {0};
    enum status st = OK;
    for (size_t i = 0; i < r->symbols.n && st == OK; i++)
        st = settle(b, r, r->symbols.id[i], &own);
    for (size_t i = 0; i < own.n && st == OK; i++)
        st = ids_add(out, own.id[i]);
    free(own.id);
    return st;
}

static enum status forget_halves(const struct bpe *b, struct bpe_room *r)
{
    if (!r->halves)
        r->halves = sys_malloc((size_t)b->n_ids * sizeof *r->halves);
    if (!r->halves)
        return status_fail(ERR_NOMEM, "out of memory: %d tokens", b->n_ids);
    for (int32_t i = 0; i < b->n_ids; i++)
        r->halves[i] = (struct bpe_halves){-1, -1};
    return OK;
}

enum status bpe_encode(const struct bpe *b, struct bpe_room *r, const uint8_t *piece, size_t n, struct ids *out)
{
    if (b->ignore_merges) {
        int32_t id = vocab_find(b->keys, piece, n);
        if (id >= 0)
            return ids_add(out, id);
    }
    TRY(split(b, piece, n, &r->symbols));
    if (b->unused)
        TRY(forget_halves(b, r));
    if (r->symbols.n <= SHORT)
        r->symbols.n = merge_short(b, r, r->symbols.id, r->symbols.n);
    else
        TRY(merge_long(b, r));
    if (b->unused || vocab_end(b->keys) > b->n_ids)
        return settle_all(b, r, out);
    if (r->symbols.n == 0)
        return OK;
    TRY(ids_reserve(out, r->symbols.n));
    memcpy(out->id + out->n, r->symbols.id, r->symbols.n * sizeof *out->id);
    out->n += r->symbols.n;
    return OK;
}
