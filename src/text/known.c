/* Recognising patterns of published tokenizers. */
#include "text/known.h"

#include "text/unicode.h"

#include <string.h>

#define C "'s|'t|'re|'ve|'m|'ll|'d"
#define T "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define X "[^\\r\\n\\p{L}\\p{N}]?"
#define U "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define W "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED X U "*" W "+"
#define UPPER X U "+" W "*"

static const struct {
    const char *pattern;
    enum known_pattern known;
} patterns[] = {
    {GPT2_PATTERN, PATTERN_GPT2},
    {"(?i:" C ")|" X "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" T, PATTERN_LLAMA3},
    {"(?i:" C ")|" X "\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" T, PATTERN_LLAMA3},
    {"(?i:" C ")|" X "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" T, PATTERN_LLAMA3},
    {"(?i:" C ")|" X "\\p{L}+|\\p{N}+| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" T, PATTERN_LLAMA3},
    {"(?i:" C ")|" X "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" T, PATTERN_LLAMA3},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     PATTERN_LLAMA3},
    {CASED "|" UPPER "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" T, PATTERN_CASED},
    {CASED "(?i:" C ")?|" UPPER "(?i:" C ")?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" T, PATTERN_CASED},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" T,
     PATTERN_DEEPSEEK},
    {"[\\r\\n]", PATTERN_BREAKS},
    {"\\p{N}{1,3}", PATTERN_NO_BREAKS},
    {"\\p{N}", PATTERN_NO_BREAKS},
    {"\\p{N}+", PATTERN_NO_BREAKS},
    {"\\d{1,3}", PATTERN_NO_BREAKS},
    {"[0-9]", PATTERN_NO_BREAKS},
    {"[0-9][0-9][0-9]", PATTERN_NO_BREAKS},
    {"(?=(\\d{3})+(?!\\d))", PATTERN_NO_BREAKS},
    {"[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
     PATTERN_NO_BREAKS}, /* Chinese characters U+4E00 to U+9FA5, and kana */
    {"[\xe4\xb8\x80-\xe9\xbf\xbf\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+", PATTERN_NO_BREAKS},
    {" ?[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]+",
     PATTERN_BREAKS}, /* BLOOM */
    {"[\\p{Han}]+", PATTERN_NO_BREAKS},
};

enum known_pattern known_find(const char *pattern, size_t n)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strlen(patterns[i].pattern) == n && memcmp(patterns[i].pattern, pattern, n) == 0)
            return patterns[i].known;
    return PATTERN_UNKNOWN;
}

int known_cuts(const struct stage *stage)
{
    if (stage->kind == STAGE_CHARS)
        return stage->takes == unicode_is_space;
    if (stage->kind != STAGE_SPLIT && stage->kind != STAGE_BYTE_LEVEL)
        return 0;
    return stage->known != PATTERN_UNKNOWN && stage->known != PATTERN_NO_BREAKS && stage->behavior == SPLIT_ISOLATED;
}

int known_is_blind(const struct stage *stage)
{
    if (stage->kind == STAGE_CHARS)
        return 1;
    if (stage->kind == STAGE_METASPACE || stage->kind == STAGE_DEFINED)
        return 1;
    return stage->kind == STAGE_BYTE_LEVEL ? !stage->pattern
                                           : stage->known == PATTERN_NO_BREAKS && stage->behavior == SPLIT_ISOLATED;
}

static int is_lower(uint8_t c)
{
    return c >= 'a' && c <= 'z';
}

static int is_upper(uint8_t c)
{
    return c >= 'A' && c <= 'Z';
}

size_t known_piece(enum known_pattern known, const uint8_t *text, size_t n, size_t at)
{
    size_t i = at + (text[at] == ' '), first = i;
    if (known == PATTERN_CASED) {
        while (i < n && is_upper(text[i]))
            i++;
        while (i < n && is_lower(text[i]))
            i++;
    } else {
        while (i < n && (is_lower(text[i]) || is_upper(text[i])))
            i++;
    }
    return i > first && i < n && text[i] < 0x80 && text[i] != '\'' ? i : 0;
}
