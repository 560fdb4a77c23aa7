/* Finding added tokens in text: the leftmost first; of several tokens that begin at the same place, the longest. */
#include "text/added.h"

#include "base/grow.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum status added_put(struct added *a, const struct added_token *token)
{
    if (a->n == a->room) {
        struct added_token *tokens = grow(a->token, &a->room, sizeof *tokens, 64, "added tokens");
        if (!tokens)
            return ERR_NOMEM;
        a->token = tokens;
    }
    a->token[a->n++] = *token;
    return OK;
}

static const uint8_t *sought(const struct added_token *t, size_t *n)
{
    *n = t->normal ? t->normal_n : t->n;
    return t->normal ? t->normal : t->text;
}

enum status added_index(struct added *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        const struct added_token *t = &a->token[i];
        enum added_stage stage = t->normal ? ADDED_NORMAL : ADDED_RAW;
        size_t n;
        const uint8_t *text = sought(t, &n);
        if (n == 0)
            return status_fail(ERR_INVALID, "the added token %.*s is normalised to nothing", (int)(t->n > 40 ? 40 : t->n),
                               (const char *)t->text);
        uint32_t node = 0, k = 0;
        struct trie *trie = &a->trie[stage];
        for (; k < n && trie->nodes && (k == 0 || node); k++)
            node = trie_step(trie, node, text[k]);
        if (k == n && node && trie->values[node] >= 0)
            return status_fail(ERR_INVALID, "the added token %.*s is there twice", (int)(t->n > 40 ? 40 : t->n),
                               (const char *)t->text);
        TRY(trie_add(trie, text, n, (int32_t)i));
        a->n_first[stage] += !a->first[stage][text[0]];
        a->first[stage][text[0]] = 1;
        a->only_first[stage] = text[0];
    }
    return OK;
}

void added_free(struct added *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        free(a->token[i].text);
        free(a->token[i].normal);
    }
    free(a->token);
    for (int s = 0; s < ADDED_STAGES; s++)
        trie_free(&a->trie[s]);
    *a = (struct added){.n = 0};
}

/* Returns the longest token at `at`, or NULL. */
static const struct added_token *longest(const struct added *a, enum added_stage stage, const uint8_t *text, size_t n, size_t at,
                                         size_t *end)
{
    const struct trie *trie = &a->trie[stage];
    const struct added_token *found = NULL;
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = trie_step(trie, node, text[i])) != 0; i++)
        if (trie->values[node] >= 0) {
            found = &a->token[trie->values[node]];
            *end = i + 1;
        }
    return found;
}

static const struct added_token *find(const struct added *a, enum added_stage stage, const uint8_t *text, size_t n, size_t *at,
                                      size_t *end)
{
    const uint8_t *first = a->first[stage];
    if (a->n_first[stage] == 0)
        return NULL;
    for (; *at < n; ++*at) {
        if (a->n_first[stage] == 1) {
            const uint8_t *next = memchr(text + *at, a->only_first[stage], n - *at);
            if (!next)
                return NULL;
            *at = (size_t)(next - text);
        } else if (!first[text[*at]]) {
            continue;
        }
        const struct added_token *t = longest(a, stage, text, n, *at, end);
        if (t)
            return t;
    }
    return NULL;
}

static int stands_alone(const uint8_t *text, size_t n, size_t start, size_t end)
{
    size_t bytes;
    return (start == 0 || !unicode_is_word(utf8_read(text + utf8_before(text, start), &bytes))) &&
           (end == n || !unicode_is_word(utf8_read(text + end, &bytes)));
}

static size_t strip_left(const uint8_t *text, size_t start, size_t least)
{
    size_t bytes;
    while (start > least) {
        size_t last = utf8_before(text, start);
        if (!unicode_is_space(utf8_read(text + last, &bytes)))
            break;
        start = last;
    }
    return start > least ? start : least;
}

static size_t strip_right(const uint8_t *text, size_t n, size_t end)
{
    size_t bytes;
    while (end < n && unicode_is_space(utf8_read(text + end, &bytes)))
        end += bytes;
    return end;
}

int added_next(const struct added *a, enum added_stage stage, int special, const uint8_t *text, size_t n, struct added_scan *scan,
               struct added_part *out)
{
    if (scan->have) {
        scan->have = 0;
        *out = (struct added_part){scan->start, scan->end, scan->token};
        return 1;
    }
    for (;;) {
        size_t start = scan->from, end = 0;
        const struct added_token *t = find(a, stage, text, n, &start, &end);
        if (!t)
            break;
        scan->from = end;
        if ((t->special && !special) || (t->single_word && !stands_alone(text, n, start, end)))
            continue;
        if (scan->veto && scan->veto(scan->user, t, start, end))
            continue;
        if (t->lstrip)
            start = strip_left(text, start, scan->covered);
        if (t->rstrip)
            end = strip_right(text, n, end);
        if (end <= start) /* the token before has taken this white space already (rstrip) */
            continue;
        size_t before = scan->covered;
        scan->covered = end;
        *out = (struct added_part){start, end, t};
        if (before < start) {
            scan->have = 1;
            scan->start = start;
            scan->end = end;
            scan->token = t;
            *out = (struct added_part){before, start, NULL};
        }
        return 1;
    }
    scan->from = n;
    if (scan->covered >= n)
        return 0;
    *out = (struct added_part){scan->covered, n, NULL};
    scan->covered = n;
    return 1;
}
