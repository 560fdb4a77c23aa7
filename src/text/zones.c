/* Encoding text with the place of each token.
 *
 * Added tokens are found with their places. The texts of other tokens are matched to the document's text byte by byte: the sign
 * for a space counts as a space, and a space that the tokenizer puts in front is left out. If a normalizer has rewritten a part
 * of the text, each token of that part gets the whole part as its place. */
#include "text/zones.h"

#include "base/grow.h"
#include "base/sys.h"
#include "text/byte_level.h"
#include "text/parts.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

struct zone_encoder {
    struct encoder *e;
    const struct tokenizer *t;
    int maps_bytes;              /* 1: characters of tokens stand for bytes, in GPT-2's alphabet */
    uint8_t *guarded;            /* [added tokens]: 1: the token occurs in the chat template */
    struct text_buffer surfaces; /* texts of the tokens of the present text, one after the other */
    /* zones of the text that is being encoded: */
    const struct zone *zones;
    size_t n_zones;
};

static int is_space_only(const uint8_t *text, size_t n)
{
    size_t bytes;
    for (size_t at = 0; at < n; at += bytes)
        if (!unicode_is_space(utf8_read(text + at, &bytes)))
            return 0;
    return 1;
}

static int maps_bytes(const struct tokenizer *t)
{
    for (int i = 0; i < t->n_stages; i++)
        if (t->stage[i].kind == STAGE_BYTE_LEVEL)
            return 1;
    return 0;
}

enum status zone_encoder_create(struct encoder *e, const uint8_t *guard, size_t n, struct zone_encoder **out)
{
    struct zone_encoder *z = sys_calloc(1, sizeof *z);
    const struct added *a = &encoder_tokenizer(e)->added;
    uint8_t *guarded = sys_calloc((size_t)a->n + 1, 1);
    if (!z || !guarded) {
        free(z);
        free(guarded);
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    }
    for (int64_t i = 0; i < a->n; i++)
        guarded[i] = n > 0 && a->token[i].n > 0 && memmem(guard, n, a->token[i].text, a->token[i].n) &&
                     !is_space_only(a->token[i].text, a->token[i].n);
    *z = (struct zone_encoder){
        .e = e, .t = encoder_tokenizer(e), .maps_bytes = maps_bytes(encoder_tokenizer(e)), .guarded = guarded};
    *out = z;
    return OK;
}

void zone_encoder_free(struct zone_encoder *z)
{
    if (!z)
        return;
    free(z->guarded);
    text_buffer_free(&z->surfaces);
    free(z);
}

void token_places_free(struct token_places *places)
{
    free(places->at);
    *places = (struct token_places){.n = 0};
}

static enum status add_place(struct token_places *p, size_t first, size_t end)
{
    if ((int64_t)p->n == p->room) {
        struct token_place *at = grow(p->at, &p->room, sizeof *at, 1024, "tokens");
        if (!at)
            return ERR_NOMEM;
        p->at = at;
    }
    p->at[p->n++] = (struct token_place){first, end};
    return OK;
}

/* Returns the zone that holds a byte. */
static size_t zone_of(const struct zone_encoder *z, size_t at)
{
    size_t low = 0, high = z->n_zones;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (z->zones[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Tells whether tokens of kind `most` may stand at bytes [start, end): no zone there is stricter. */
static int zones_allow(const struct zone_encoder *z, size_t start, size_t end, enum zone_kind most)
{
    for (size_t i = zone_of(z, start); i < z->n_zones && (i == 0 || z->zones[i - 1].end < end); i++)
        if (z->zones[i].kind > most)
            return 0;
    return 1;
}

static int veto(void *user, const struct added_token *token, size_t start, size_t end)
{
    const struct zone_encoder *z = user;
    if (token->special)
        return !zones_allow(z, start, end, ZONE_ALL);
    return z->guarded[token - z->t->added.token] && !zones_allow(z, start, end, ZONE_NO_SPECIAL);
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A byte that no UTF-8 text has: it stands in for the unknown token's text. */
enum { UNKNOWN = 0xFF };

static int32_t unknown_id(const struct tokenizer *t)
{
    return t->model == MODEL_BPE ? t->bpe.unk : t->unigram.unk;
}

/* Adds a token's text in the form that documents have. */
static enum status add_surface(struct zone_encoder *z, int32_t id)
{
    struct token_text s;
    struct text_buffer *b = &z->surfaces;
    size_t bytes;
    if (id == unknown_id(z->t))
        return text_buffer_add(b, &(uint8_t){UNKNOWN}, 1);
    if (vocab_text(z->t->extra, id, &s) || (z->t->raw && vocab_text(z->t->raw, id, &s)))
        return text_buffer_add(b, s.data, s.n);
    if (!vocab_text(z->t->tokens, id, &s))
        return OK;
    if (s.n == 6 && memcmp(s.data, "<0x", 3) == 0 && hex(s.data[3]) >= 0 && hex(s.data[4]) >= 0)
        return text_buffer_add(b, &(uint8_t){(uint8_t)(hex(s.data[3]) * 16 + hex(s.data[4]))}, 1);
    for (size_t at = 0; at < s.n; at += bytes) {
        uint32_t c = utf8_read(s.data + at, &bytes);
        int byte = z->maps_bytes ? byte_of_char(c) : c == 0x2581 ? ' ' : -1;
        TRY(byte >= 0 ? text_buffer_add(b, &(uint8_t){(uint8_t)byte}, 1) : text_buffer_add(b, s.data + at, bytes));
    }
    return OK;
}

/* Finds where two texts that differ at their beginnings agree again: skips *a bytes of x and *b bytes of y, as few as possible,
 * or all of both. Some equal bytes in a row, or the ends of both, count as agreement. */
static void find_again(const uint8_t *x, size_t n_x, const uint8_t *y, size_t n_y, size_t *a, size_t *b)
{
    enum { FAR = 64, ENOUGH = 6 };
    for (size_t sum = 1; sum <= 2 * FAR; sum++)
        for (size_t i = sum > FAR ? sum - FAR : 0; i <= sum && i <= FAR; i++) {
            size_t j = sum - i, left_x = i <= n_x ? n_x - i : 0, left_y = j <= n_y ? n_y - j : 0;
            size_t n = left_x < ENOUGH && left_x == left_y ? left_x : ENOUGH;
            if (i > n_x || j > n_y || n > left_x || n > left_y || memcmp(x + i, y + j, n) != 0 || (n && (x[i] & 0xC0) == 0x80))
                continue;
            *a = i;
            *b = j;
            return;
        }
    *a = n_x;
    *b = n_y;
}

/* Returns the number of bytes of text[0 .. n-1] that an unknown token stands for: at least one character, up to where y, the
 * following tokens' texts, matches. */
static size_t skip_unknown(const uint8_t *text, size_t n, const uint8_t *y, size_t n_y)
{
    enum { ENOUGH = 16 };
    const uint8_t *next = n_y > 0 ? memchr(y, UNKNOWN, n_y) : NULL;
    size_t known = next ? (size_t)(next - y) : n_y, least = n > 0 ? utf8_length(text[0]) : 0;
    const uint8_t *found = memmem(text + least, n - least, y, known < ENOUGH ? known : ENOUGH);
    return known == 0 && n_y == 0 ? n : found ? (size_t)(found - text) : least;
}

/* Finds, for byte i of the tokens' texts, the bytes [at[2 * i], at[2 * i + 1]) of the text for which that byte stands. */
static void align(const uint8_t *text, size_t start, size_t end, const struct text_buffer *tokens, size_t *at)
{
    size_t i = 0, from = start;
    /* a space that the tokenizer has put in front */
    if (tokens->n > 0 && tokens->data[0] == ' ' && (start == end || text[start] != ' ')) {
        at[0] = at[1] = start;
        i = 1;
    }
    while (i < tokens->n) {
        if (from < end && tokens->data[i] == text[from]) {
            at[2 * i] = from++;
            at[2 * i++ + 1] = from;
            continue;
        }
        size_t a = 1, b;
        if (tokens->data[i] == UNKNOWN)
            b = skip_unknown(text + from, end - from, tokens->data + i + 1, tokens->n - i - 1);
        else
            find_again(tokens->data + i, tokens->n - i, text + from, end - from, &a, &b);
        for (size_t k = i; k < i + a; k++) {
            at[2 * k] = from;
            at[2 * k + 1] = from + b;
        }
        i += a;
        from += b;
    }
}

/* Adds the place of each of the n ids, which are those of text[start, end). */
static enum status lay(struct zone_encoder *z, const uint8_t *text, size_t start, size_t end, const int32_t *id, size_t n,
                       struct token_places *places)
{
    size_t *ends = sys_malloc((n + 1) * sizeof *ends), *at = NULL, first = 0;
    enum status st = ends ? OK : status_fail(ERR_NOMEM, "out of memory: %zu tokens", n);
    z->surfaces.n = 0;
    for (size_t i = 0; i < n && st == OK; i++) {
        st = add_surface(z, id[i]);
        ends[i] = z->surfaces.n;
    }
    if (st == OK && !(at = sys_malloc((2 * z->surfaces.n + 2) * sizeof *at)))
        st = status_fail(ERR_NOMEM, "out of memory: %zu bytes of tokens", z->surfaces.n);
    if (st == OK)
        align(text, start, end, &z->surfaces, at);
    for (size_t i = 0, last = start; i < n && st == OK; first = ends[i++]) {
        size_t from = ends[i] > first ? at[2 * first] : last;
        last = ends[i] > first ? at[2 * ends[i] - 1] : last;
        st = add_place(places, from, last);
    }
    free(ends);
    free(at);
    return st;
}

/* Encodes text without added tokens that are sought in raw text. */
static enum status add_text(struct zone_encoder *z, const uint8_t *text, size_t start, size_t end, struct ids *out,
                            struct token_places *places)
{
    size_t before = out->n;
    TRY(encoder_add_text(z->e, text + start, end - start, start, zones_allow(z, start, end, ZONE_ALL), out));
    return lay(z, text, start, end, out->id + before, out->n - before, places);
}

enum status zone_encode(struct zone_encoder *z, const uint8_t *text, size_t n, const struct zone *zones, size_t n_zones,
                        struct ids *out, struct token_places *places)
{
    struct added_scan scan = {.veto = veto, .user = z};
    struct added_part part;
    z->zones = zones;
    z->n_zones = n_zones;
    while (added_next(&z->t->added, ADDED_RAW, 1, text, n, &scan, &part)) {
        if (!part.token) {
            TRY(add_text(z, text, part.start, part.end, out, places));
            continue;
        }
        TRY(added_check(z->t, part.token));
        TRY(ids_add(out, part.token->id));
        TRY(add_place(places, part.start, part.end));
    }
    return OK;
}
