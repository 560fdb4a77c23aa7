/* Code points of strings, and Python's predicates on them; implements a part of text.h. */
#include "chat/jinja/text.h"

#include <utf8proc.h>

size_t jinja_chars(struct jinja_task *task, const struct jinja_text *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++)
        n += ((unsigned char)text->bytes[i] & 0xC0) != 0x80;
    jinja_look(task, text->n);
    return n;
}

size_t jinja_char_at(struct jinja_task *task, const struct jinja_text *text, size_t i)
{
    size_t at = 0;
    for (; at < text->n; at++)
        if (((unsigned char)text->bytes[at] & 0xC0) != 0x80 && i-- == 0)
            break;
    jinja_look(task, at);
    return at;
}

int32_t jinja_next_char(const struct jinja_text *text, size_t *at)
{
    const unsigned char *b = (const unsigned char *)text->bytes + *at;
    size_t n = b[0] < 0x80 ? 1 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (n > text->n - *at)
        n = text->n - *at;
    int32_t c = n == 1 ? b[0] : b[0] & (0xFF >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (b[i] & 0x3F);
    *at += n;
    return c;
}

size_t jinja_char_before(const struct jinja_text *text, size_t end)
{
    while (end > 0 && ((unsigned char)text->bytes[--end] & 0xC0) == 0x80)
        ;
    return end;
}

size_t jinja_encode(int32_t c, char out[4])
{
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

int jinja_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

int jinja_is_line_end(int32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

int jinja_is_printable(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return 1;
    }
}

int jinja_is_upper(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
           (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

int jinja_is_lower(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LL || (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9) ||
           c == 0xAA || c == 0xBA;
}

int jinja_is_digit(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

int jinja_is_digit_sign(int32_t c)
{
    static const int32_t ranges[][2] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return 1;
    return jinja_is_digit(c);
}

int jinja_is_word(int32_t c)
{
    const utf8proc_category_t g = utf8proc_category(c);
    return c == '_' || jinja_is_letter(c) || g == UTF8PROC_CATEGORY_ND || g == UTF8PROC_CATEGORY_NL || g == UTF8PROC_CATEGORY_NO;
}

int jinja_is_letter(int32_t c)
{
    utf8proc_category_t g = utf8proc_category(c);
    return g >= UTF8PROC_CATEGORY_LU && g <= UTF8PROC_CATEGORY_LO;
}

/* Tells whether changing the case of c is not simple: its capital is several letters (SpecialCasing.txt), or its small letter is,
 * or depends on the place in the word. */
static int is_special(int32_t c, int upper)
{
    static const int32_t ranges[][2] = {{0xDF, 0xDF},     {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
                                        {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1F50, 0x1F56},
                                        {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB7}, {0x1FBC, 0x1FBC}, {0x1FC2, 0x1FCC},
                                        {0x1FD2, 0x1FD7}, {0x1FE2, 0x1FE7}, {0x1FF2, 0x1FFC}, {0xFB00, 0xFB17}};
    if (!upper)
        return c == 0x130 || c == 0x3A3;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return 1;
    return 0;
}

void jinja_put_case(struct jinja_builder *b, int32_t c, enum jinja_letter letter, int32_t mark)
{
    char bytes[4];
    const int upper = letter != LETTER_SMALL;
    if (is_special(c, upper))
        jinja_fail(b->task, "U+%04X has no single %s letter: not supported", (unsigned)c, upper ? "capital" : "small");
    int32_t other = c < 128                  ? (upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c))
                    : letter == LETTER_TITLE ? utf8proc_totitle(c)
                                             : (upper ? utf8proc_toupper(c) : utf8proc_tolower(c));
    jinja_put_bytes(b, bytes, jinja_encode(other, bytes), mark);
}
