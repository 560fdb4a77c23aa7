/* Parsing and printing of counts and bytes. */
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Removes the commas of a grouped number such as "430,080"; other texts stay as they are. */
static const char *ungrouped(const char *text, char buf[32])
{
    size_t n = strspn(text, "0123456789,"), o = 0;
    if (text[n] || n >= 32 || n % 4 == 0 || !strchr(text, ','))
        return text;
    for (size_t i = 0; i < n; i++) {
        if ((text[i] == ',') != ((n - i) % 4 == 0))
            return text;
        if (text[i] != ',')
            buf[o++] = text[i];
    }
    buf[o] = 0;
    return buf;
}

static enum status parse_scaled(const char *key, const char *text, const char *letters, const char *example, int64_t *out)
{
    char *end, digits[32];
    text = ungrouped(text, digits);
    if (text[0] == '-' && isdigit((unsigned char)text[1]))
        return status_fail(ERR_INVALID, "%s: %s is negative; give a number like %s", key, text, example);
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return status_fail(ERR_INVALID, "%s: '%s' is not a number like %s", key, text, example);
    double value = strtod(text, &end);
    int power = 0;
    const char *letter = *end ? strchr(letters, tolower((unsigned char)*end)) : NULL;
    if (letter) {
        power = (int)(letter - letters) + 1;
        end++;
        if (letters[3] && (strcasecmp(end, "ib") == 0 || strcasecmp(end, "b") == 0))
            end += strlen(end);
    } else if (letters[3] && strcasecmp(end, "b") == 0) {
        end++;
    }
    double scaled = value * pow(1024.0, power);
    if (letters[3] && power > 0) /* a size such as 1.9T, which is no whole number of bytes, is rounded down */
        scaled = floor(scaled);
    if (*end || scaled != floor(scaled))
        return status_fail(ERR_INVALID, "%s: '%s' is not a %s like %s", key, text, letters[3] ? "size" : "whole number", example);
    *out = scaled < 9e18 ? (int64_t)scaled : INT64_MAX;
    return OK;
}

enum status units_parse_count(const char *key, const char *text, int64_t *out)
{
    return parse_scaled(key, text, "kmg", "4096, 420k or 1m", out);
}

enum status units_parse_steps(const char *key, const char *text, int64_t *out)
{
    const size_t n = strlen(text);
    if (n > 1 && isdigit((unsigned char)text[0]) && strchr("kmgKMG", text[n - 1]))
        return status_fail(ERR_INVALID,
                           "%s: '%s' could be thousands, or 1024s, as of tokens: steps are written out, as 1000 or 20,000", key,
                           text);
    return parse_scaled(key, text, "kmg", "1000 or 20,000", out);
}

enum status units_parse_bytes(const char *key, const char *text, int64_t *out)
{
    return parse_scaled(key, text, "kmgt", "512M, 80G or 1.5GiB", out);
}

int units_parse_rate(const char *text, double unit, double *out)
{
    static const char *const name[] = {"kB/s", "MB/s", "GB/s", "TB/s"};
    char *end;
    double x = strtod(text, &end), scale = 1e3;
    if (end == text || !(x > 0) || !isfinite(x))
        return 0;
    end += strspn(end, " ");
    if (isupper((unsigned char)end[0]) && end[1] == 'b') /* Gb/s means bits */
        return 0;
    for (int i = 0; i < 4; i++, scale *= 1000)
        if (strcasecmp(end, name[i]) == 0) {
            *out = x * (scale / unit);
            return 1;
        }
    return 0;
}

/* Formats bytes with `more` digits than usual. */
static const char *format(int64_t bytes, int more, char *buf, const char *const unit[5])
{
    double x = (double)bytes;
    int i = 0;
    while (x >= 1024.0 && i < 4) {
        x /= 1024.0;
        i++;
    }
    snprintf(buf, 32, "%.*f%s", i > 0 ? more + (x < 10.0) : 0, x, unit[i]);
    return buf;
}

static const char *const long_unit[5] = {" B", " KiB", " MiB", " GiB", " TiB"};

const char *units_format_bytes(int64_t bytes, char buf[32])
{
    return format(bytes, 0, buf, long_unit);
}

void units_format_apart(int64_t a, int64_t b, char text_a[32], char text_b[32])
{
    int more = 0;
    do {
        format(a, more, text_a, long_unit);
        format(b, more, text_b, long_unit);
        more += 1 + (more == 0); /* another digit, as 38.0 and 38.1 GiB are hard to tell apart */
    } while (a != b && strcmp(text_a, text_b) == 0 && more < 12);
}

const char *units_format_short(int64_t bytes, char buf[32])
{
    static const char *const unit[5] = {"B", "K", "M", "G", "T"};
    return format(bytes, 0, buf, unit);
}

const char *units_format_count(int64_t n, char buf[32])
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), o = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && digits[i - 1] != '-' && (len - i) % 3 == 0)
            buf[o++] = ',';
        buf[o++] = digits[i];
    }
    buf[o] = 0;
    return buf;
}
