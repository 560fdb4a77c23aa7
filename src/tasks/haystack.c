#include "tasks/haystack.h"

#include "base/grow.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Lengths, in bytes, at which sentences and paragraphs are ended: tables and code have no full stops, and some scripts no blanks.
 * WORDS_OF_PARAGRAPH: fewest words of a paragraph. */
enum { LONG_SENTENCE = 300, LONGEST_SENTENCE = 1000, LONG_PARAGRAPH = 1200, WORDS_OF_PARAGRAPH = 8 };

/* The filler text of RULER, called "noise" there. */
static const char filler[] = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ";

struct piece {
    size_t first, end;
};

struct pieces {
    struct piece *at;
    int64_t n, room;
};

struct haystack {
    char *text;
    size_t n;
    int given;
    struct pieces sentences, paragraphs;
};

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static enum status add_piece(struct pieces *p, size_t first, size_t end)
{
    if (p->n == p->room) {
        struct piece *at = grow(p->at, &p->room, sizeof *at, 256, "sentences");
        if (!at)
            return ERR_NOMEM;
        p->at = at;
    }
    p->at[p->n++] = (struct piece){first, end};
    return OK;
}

/* Tells whether a sentence ends at `at`: behind . ! ? and closing quotes before a blank, behind an ideographic full stop, or at
 * the line's end. */
static int ends_sentence(const char *text, size_t at, size_t n)
{
    static const char stop[] = "\xe3\x80\x82"; /* U+3002, the ideographic full stop */
    char c = text[at];
    if (c == '\n' || at + 1 == n)
        return 1;
    if (at >= 2 && memcmp(text + at - 2, stop, 3) == 0)
        return 1;
    if (!is_blank(text[at + 1]))
        return 0;
    while (at > 0 && (c == '"' || c == '\'' || c == ')' || c == ']'))
        c = text[--at];
    return c == '.' || c == '!' || c == '?';
}

static enum status find_sentences(struct haystack *h)
{
    size_t first = 0;
    for (size_t i = 0; i < h->n; i++) {
        const int is_long = i - first >= LONG_SENTENCE && is_blank(h->text[i]);
        const int is_longest = i - first >= LONGEST_SENTENCE && i + 1 < h->n && (h->text[i + 1] & 0xc0) != 0x80;
        if (!is_long && !is_longest && !ends_sentence(h->text, i, h->n))
            continue;
        while (i + 1 < h->n && is_blank(h->text[i + 1]))
            i++;
        TRY(add_piece(&h->sentences, first, i + 1));
        first = i + 1;
    }
    return OK;
}

/* Tells whether a paragraph ends with this sentence: at a blank line or, in a text without blank lines (by_line), at any line's
 * end. */
static int ends_paragraph(const struct haystack *h, const struct piece *sentence, int by_line)
{
    int lines = 0;
    for (size_t i = sentence->end; i > sentence->first && is_blank(h->text[i - 1]); i--)
        lines += h->text[i - 1] == '\n';
    return sentence->end == h->n || lines > !by_line;
}

static int words_of(const struct haystack *h, size_t first, size_t end)
{
    int words = 0;
    for (size_t i = first; i < end; i++)
        words += !is_blank(h->text[i]) && (i + 1 == end || is_blank(h->text[i + 1]));
    return words;
}

static enum status find_paragraphs(struct haystack *h)
{
    const int by_line = memmem(h->text, h->n, "\n\n", 2) == NULL && memmem(h->text, h->n, "\n\r\n", 3) == NULL;
    size_t first = 0;
    for (int64_t i = 0; i < h->sentences.n; i++) {
        const struct piece *s = &h->sentences.at[i];
        if (!ends_paragraph(h, s, by_line) && s->end - first < LONG_PARAGRAPH)
            continue;
        if (words_of(h, first, s->end) < WORDS_OF_PARAGRAPH)
            continue;
        size_t end = s->end;
        while (end > first && is_blank(h->text[end - 1]))
            end--;
        while (first < end && is_blank(h->text[first]))
            first++;
        TRY(add_piece(&h->paragraphs, first, end));
        first = s->end;
    }
    return OK;
}

enum status haystack_create(const char *text, size_t n, struct haystack **out)
{
    enum status st;
    struct haystack *h = sys_calloc(1, sizeof *h);
    if (!h)
        return status_fail(ERR_NOMEM, "out of memory: a haystack");
    h->given = n > 0;
    text = h->given ? text : filler;
    h->n = h->given ? n : sizeof filler - 1;
    h->text = sys_malloc(h->n + 1);
    st = h->text ? OK : status_fail(ERR_NOMEM, "out of memory: a haystack of %zu bytes", h->n);
    if (st == OK) {
        memcpy(h->text, text, h->n);
        if (!is_blank(h->text[h->n - 1])) /* a blank at the end, as the repeated text's beginning may follow */
            h->text[h->n++] = '\n';
        st = words_of(h, 0, h->n) > 0 ? OK : status_fail(ERR_INVALID, "the text that is to be the haystack has no words in it");
    }
    if (st == OK)
        st = find_sentences(h);
    if (st == OK)
        st = find_paragraphs(h);
    if (st == OK)
        *out = h;
    else
        haystack_destroy(h);
    return st;
}

void haystack_destroy(struct haystack *h)
{
    if (!h)
        return;
    free(h->text);
    free(h->sentences.at);
    free(h->paragraphs.at);
    free(h);
}

int haystack_is_given(const struct haystack *h)
{
    return h->given;
}

int64_t haystack_sentences(const struct haystack *h)
{
    return h->sentences.n;
}

int64_t haystack_paragraphs(const struct haystack *h)
{
    return h->paragraphs.n;
}

static const char *piece_text(const struct haystack *h, const struct pieces *p, int64_t i, size_t *n)
{
    const struct piece *piece = &p->at[i % p->n];
    *n = piece->end - piece->first;
    return h->text + piece->first;
}

const char *haystack_sentence(const struct haystack *h, int64_t i, size_t *n)
{
    return piece_text(h, &h->sentences, i, n);
}

const char *haystack_paragraph(const struct haystack *h, int64_t i, size_t *n)
{
    return piece_text(h, &h->paragraphs, i, n);
}

int haystack_has(const struct haystack *h, const char *text)
{
    return memmem(h->text, h->n, text, strlen(text)) != NULL;
}
