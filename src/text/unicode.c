/* UTF-8 and the tables of characters. */
#include "text/unicode.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct category_run {
    uint32_t first;
    uint8_t category;
};

#include "text/unicode_tables.inc"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- UTF-8 ---- */

size_t utf8_write(uint32_t c, uint8_t *out)
{
    if (c < 0x80)
        return out[0] = (uint8_t)c, 1;
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xe0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

/* Returns the number of bytes at p that begin a valid character; *whole: 1 if they are the whole character. */
static size_t character(const uint8_t *p, size_t n, int *whole)
{
    uint8_t lead = p[0], low = 0x80, high = 0xbf;
    *whole = lead < 0x80;
    if (lead < 0x80 || lead < 0xc2 || lead > 0xf4)
        return 1;
    size_t length = utf8_length(lead), i = 1;
    low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : low;
    high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : high;
    for (; i < length && i < n && p[i] >= low && p[i] <= high; i++) {
        low = 0x80;
        high = 0xbf;
    }
    *whole = i == length;
    return i;
}

size_t utf8_valid(const uint8_t *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint64_t eight;
        int whole;
        while (at + 8 <= n && (memcpy(&eight, text + at, 8), (eight & 0x8080808080808080u) == 0))
            at += 8;
        if (at == n)
            break;
        size_t length = character(text + at, n - at, &whole);
        if (!whole)
            return at;
        at += length;
    }
    return at;
}

size_t utf8_broken(const uint8_t *text, size_t n)
{
    int whole;
    return character(text, n, &whole);
}

/* ---- tables ---- */

static int is_in(const struct code_range *table, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && c >= table[low].first;
}

#define IN(table, c) is_in(table, COUNT(table), c)

int unicode_is_space(uint32_t c)
{
    return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) : IN(space_ranges, c);
}

int unicode_is_numeric(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : IN(numeric_ranges, c);
}

int unicode_is_punctuation(uint32_t c)
{
    return IN(punctuation_ranges, c);
}

int unicode_is_word(uint32_t c)
{
    return IN(rust_word_ranges, c);
}

int unicode_is_inert(uint32_t c)
{
    return c >= 0x300 && IN(inert_ranges, c);
}

/* ---- sets ---- */

enum status code_set_add(struct code_set *s, uint32_t first, uint32_t last)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct code_range *ranges = sys_realloc(s->ranges, room * sizeof *ranges);
        if (!ranges)
            return status_fail(ERR_NOMEM, "out of memory: a set of characters");
        s->ranges = ranges;
        s->room = room;
    }
    s->ranges[s->n++] = (struct code_range){first, last};
    return OK;
}

static int compare(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void code_set_sort(struct code_set *s)
{
    size_t kept = 0;
    if (s->n)
        qsort(s->ranges, s->n, sizeof *s->ranges, compare);
    for (size_t i = 0; i < s->n; i++) {
        struct code_range *last = kept ? &s->ranges[kept - 1] : NULL;
        if (last && s->ranges[i].first <= last->last + 1)
            last->last = s->ranges[i].last > last->last ? s->ranges[i].last : last->last;
        else
            s->ranges[kept++] = s->ranges[i];
    }
    s->n = kept;
}

void code_set_free(struct code_set *s)
{
    free(s->ranges);
    *s = (struct code_set){0};
}

/* ---- properties ---- */

#define BIT(c) (1u << (c))
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define SYMBOLS (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))
#define SEPARATORS (BIT(ZS) | BIT(ZL) | BIT(ZP))
#define OTHER (BIT(CC) | BIT(CF) | BIT(CS) | BIT(CO) | BIT(CN))
#define TABLE(t) .table = t, .n = COUNT(t)

static const struct named {
    const char *name, *long_name;
    struct property property;
} properties[] = {
    {"l", "letter", {"\\p{L}", LETTERS}},
    {"lu", "uppercaseletter", {"\\p{Lu}", BIT(LU)}},
    {"ll", "lowercaseletter", {"\\p{Ll}", BIT(LL)}},
    {"lt", "titlecaseletter", {"\\p{Lt}", BIT(LT)}},
    {"lm", "modifierletter", {"\\p{Lm}", BIT(LM)}},
    {"lo", "otherletter", {"\\p{Lo}", BIT(LO)}},
    {"m", "mark", {"\\p{M}", MARKS}},
    {"mn", "nonspacingmark", {"\\p{Mn}", BIT(MN)}},
    {"mc", "spacingmark", {"\\p{Mc}", BIT(MC)}},
    {"me", "enclosingmark", {"\\p{Me}", BIT(ME)}},
    {"n", "number", {"\\p{N}", NUMBERS}},
    {"nd", "decimalnumber", {"\\p{Nd}", BIT(ND)}},
    {"nl", "letternumber", {"\\p{Nl}", BIT(NL)}},
    {"no", "othernumber", {"\\p{No}", BIT(NO)}},
    {"p", "punctuation", {"\\p{P}", PUNCTUATION}},
    {"pc", "connectorpunctuation", {"\\p{Pc}", BIT(PC)}},
    {"pd", "dashpunctuation", {"\\p{Pd}", BIT(PD)}},
    {"ps", "openpunctuation", {"\\p{Ps}", BIT(PS)}},
    {"pe", "closepunctuation", {"\\p{Pe}", BIT(PE)}},
    {"pi", "initialpunctuation", {"\\p{Pi}", BIT(PI)}},
    {"pf", "finalpunctuation", {"\\p{Pf}", BIT(PF)}},
    {"po", "otherpunctuation", {"\\p{Po}", BIT(PO)}},
    {"s", "symbol", {"\\p{S}", SYMBOLS}},
    {"sm", "mathsymbol", {"\\p{Sm}", BIT(SM)}},
    {"sc", "currencysymbol", {"\\p{Sc}", BIT(SC)}},
    {"sk", "modifiersymbol", {"\\p{Sk}", BIT(SK)}},
    {"so", "othersymbol", {"\\p{So}", BIT(SO)}},
    {"z", "separator", {NULL, SEPARATORS}},
    {"zs", "spaceseparator", {NULL, BIT(ZS)}},
    {"zl", "lineseparator", {NULL, BIT(ZL)}},
    {"zp", "paragraphseparator", {NULL, BIT(ZP)}},
    {"c", "other", {NULL, OTHER}},
    {"cc", "control", {NULL, BIT(CC)}},
    {"cf", "format", {NULL, BIT(CF)}},
    {"co", "privateuse", {NULL, BIT(CO)}},
    {"cn", "unassigned", {NULL, BIT(CN)}},
    {"han", "script=han", {"\\p{sc:Han}", 0, TABLE(script_han)}},
    {"hiragana", "script=hiragana", {"\\p{sc:Hiragana}", 0, TABLE(script_hiragana)}},
    {"katakana", "script=katakana", {"\\p{sc:Katakana}", 0, TABLE(script_katakana)}},
    {"hangul", "script=hangul", {"\\p{sc:Hangul}", 0, TABLE(script_hangul)}},
    {"latin", "script=latin", {"\\p{sc:Latin}", 0, TABLE(script_latin)}},
    {"cyrillic", "script=cyrillic", {"\\p{sc:Cyrillic}", 0, TABLE(script_cyrillic)}},
    {"greek", "script=greek", {"\\p{sc:Greek}", 0, TABLE(script_greek)}},
    {"arabic", "script=arabic", {"\\p{sc:Arabic}", 0, TABLE(script_arabic)}},
    {"hebrew", "script=hebrew", {"\\p{sc:Hebrew}", 0, TABLE(script_hebrew)}},
    {"thai", "script=thai", {"\\p{sc:Thai}", 0, TABLE(script_thai)}},
    {"devanagari", "script=devanagari", {"\\p{sc:Devanagari}", 0, TABLE(script_devanagari)}},
    {"\\s", "\\s", {NULL, 0, TABLE(space_ranges)}},
    {"\\d", "\\d", {"\\p{Nd}", BIT(ND)}},
    {"\\w", "\\w", {"\\p{L}\\p{M}\\p{Nd}\\p{Pc}", 0, TABLE(word_ranges)}},
    {"[\\w]", "[\\w]", {"\\p{L}\\p{M}\\p{Nd}\\p{Pc}", 0, TABLE(word_ranges), .beyond_latin_1 = 1}},
};

const struct property *property_find(const char *name, size_t n)
{
    char plain[32];
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == ' ' || name[i] == '-' || name[i] == '_')
            continue;
        if (length + 1 >= sizeof plain)
            return NULL;
        plain[length++] = name[i];
    }
    plain[length] = 0;
    for (size_t i = 0; i < COUNT(properties); i++)
        if (strcasecmp(properties[i].name, plain) == 0 || strcasecmp(properties[i].long_name, plain) == 0)
            return &properties[i].property;
    return NULL;
}

/* Adds the characters of a range that were assigned after Unicode 14. */
static enum status add_recent(struct code_set *out, uint32_t first, uint32_t last)
{
    for (size_t i = 0; i < COUNT(since_14); i++) {
        uint32_t a = first > since_14[i].first ? first : since_14[i].first, b = last < since_14[i].last ? last : since_14[i].last;
        if (a <= b)
            TRY(code_set_add(out, a, b));
    }
    return OK;
}

/* Adds the characters of \w that are in none of the categories L, M, Nd, Pc: some with the property Alphabetic, and numbers of
 * Latin-1 (not in brackets). */
static enum status add_words(const struct property *p, struct code_set *out)
{
    uint32_t least = p->beyond_latin_1 ? 0x100 : 0;
    for (size_t i = 0; i < COUNT(category_runs); i++) {
        uint32_t end = i + 1 < COUNT(category_runs) ? category_runs[i + 1].first : UNICODE_END;
        if ((LETTERS | MARKS | BIT(ND) | BIT(PC)) & BIT(category_runs[i].category))
            continue;
        for (uint32_t c = category_runs[i].first; c < end; c++)
            if (c >= least && IN(word_ranges, c))
                TRY(code_set_add(out, c, c));
    }
    return OK;
}

enum status property_add(const struct property *p, int lacking_only, struct code_set *out)
{
    lacking_only = lacking_only && p->pcre;
    for (size_t i = 0; p->table && i < p->n; i++)
        TRY(lacking_only ? add_recent(out, p->table[i].first, p->table[i].last)
                         : code_set_add(out, p->table[i].first, p->table[i].last));
    if (lacking_only && p->table == word_ranges)
        TRY(add_words(p, out));
    for (size_t i = 0; !p->table && i < COUNT(category_runs); i++) {
        uint32_t end = i + 1 < COUNT(category_runs) ? category_runs[i + 1].first : UNICODE_END;
        if (p->categories & BIT(category_runs[i].category))
            TRY(lacking_only ? add_recent(out, category_runs[i].first, end - 1)
                             : code_set_add(out, category_runs[i].first, end - 1));
    }
    return OK;
}
