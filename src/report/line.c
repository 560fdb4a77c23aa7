#include "report/line.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64
#define NUMBER_MAX 64 /* characters of a number */

static void skip_blanks(struct line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\n' || *l->at == '\r'))
        l->at++;
}

/* Reads the character c, with blanks before it. Returns 0 if another character stands there. */
static int take(struct line *l, char c)
{
    skip_blanks(l);
    if (l->at == l->end || *l->at != c)
        return 0;
    l->at++;
    return 1;
}

/* Reads a text in quotes. Returns 0 if the closing quote is missing. */
static int take_text(struct line *l, const char **text, size_t *length)
{
    if (!take(l, '"'))
        return 0;
    const char *at = *text = l->at;
    while (at < l->end && *at != '"')
        at += *at == '\\' && at + 1 < l->end ? 2 : 1;
    l->at = at;
    *length = (size_t)(l->at - *text);
    return take(l, '"');
}

/* Skips an object or a list. Returns 0 if its closing bracket is missing, or if it is nested too deeply. */
static int skip_nested(struct line *l)
{
    static const unsigned char counts[256] = {['"'] = 1, ['{'] = 1, ['}'] = 1, ['['] = 1, [']'] = 1};
    char open[DEPTH_MAX];
    int depth = 0;
    do {
        const char *text;
        size_t length;
        const char *at = l->at;
        while (at < l->end && !counts[(unsigned char)*at])
            at++;
        l->at = at;
        if (l->at == l->end)
            return 0;
        if (*l->at == '"') {
            if (!take_text(l, &text, &length))
                return 0;
            continue;
        }
        if (*l->at == '{' || *l->at == '[') {
            if (depth == DEPTH_MAX)
                return 0;
            open[depth++] = *l->at == '{' ? '}' : ']';
        } else if (*l->at != open[--depth]) {
            return 0;
        }
        l->at++;
    } while (depth > 0);
    return 1;
}

/* Converts a number as JSON writes it; NaN: the text is none. Mantissas of up to 19 digits are exact; the power of ten rounds once,
 * to 64 bits. */
static double number_of(const char *s, size_t n)
{
    static const long double tens[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                       1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                       1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    const size_t most = sizeof tens / sizeof *tens;
    size_t i = n > 0 && s[0] == '-';
    uint64_t mantissa = 0;
    long power = 0;
    int digits = 0, point = 0;
    for (; i < n && ((s[i] >= '0' && s[i] <= '9') || s[i] == '.'); i++) {
        if (s[i] == '.') {
            point = 1;
            continue;
        }
        mantissa = mantissa * 10 + (uint64_t)(s[i] - '0');
        digits += mantissa > 0;
        power -= point;
    }
    if (i < n || digits > 19 || power <= -(long)most) {
        char copy[NUMBER_MAX + 1], *end = copy;
        memcpy(copy, s, n);
        copy[n] = 0;
        if (i < n && (s[i] == 'e' || s[i] == 'E'))
            power += strtol(copy + i + 1, &end, 10);
        if (i < n && end != copy + n)
            return NAN;
        if (digits > 19 || labs(power) >= (long)most)
            return strtod(copy, NULL);
    }
    const long double x = power < 0 ? (long double)mantissa / tens[-power] : (long double)mantissa * tens[power];
    return (double)(s[0] == '-' ? -x : x);
}

int line_open(struct line *l, const char *text, size_t length)
{
    *l = (struct line){.at = text, .end = text + length};
    return take(l, '{');
}

static int take_value(struct line *l, struct line_field *out)
{
    skip_blanks(l);
    out->value = l->at;
    out->number = NAN;
    const char first = l->at < l->end ? *l->at : 0;
    if (first == '"') {
        out->kind = LINE_TEXT;
        return take_text(l, &out->value, &out->length);
    }
    if (first == '{' || first == '[') {
        out->kind = LINE_NESTED;
        const int whole = skip_nested(l);
        out->length = (size_t)(l->at - out->value);
        return whole;
    }
    const char *at = l->at;
    while (at != l->end && *at > ' ' && *at != ',' && *at != '}' && *at != ']')
        at++;
    l->at = at;
    out->length = (size_t)(l->at - out->value);
    out->kind = first == '-' || (first >= '0' && first <= '9') ? LINE_NUMBER : LINE_WORD;
    if (out->kind == LINE_NUMBER && out->length <= NUMBER_MAX)
        out->number = number_of(out->value, out->length);
    return out->length > 0 && (out->kind == LINE_WORD || isfinite(out->number));
}

int line_next(struct line *l, struct line_field *out)
{
    if (take(l, '}')) {
        skip_blanks(l);
        return l->at == l->end ? 0 : -1;
    }
    if (!take_text(l, &out->key, &out->key_length) || !take(l, ':') || !take_value(l, out))
        return -1;
    skip_blanks(l);
    if (l->at < l->end && *l->at == '}')
        return 1;
    return take(l, ',') ? 1 : -1;
}
