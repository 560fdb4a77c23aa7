/* Paragraphs broken into lines. */
#include "base/prose.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* Tells whether a line may end at the blank `at`, if the word before begins at `word`. An option stays together with its value,
 * and a number with its unit. */
static int may_break(const char *word, const char *at)
{
    return (strncmp(word, "--", 2) != 0 || at[-1] == ',') && !isdigit((unsigned char)at[-1]);
}

/* Returns the length of the first line of `text`: up to the last possible break within `width` columns, or to the first one if it
 * lies beyond. The line ends at two blanks in its second half, if there are any. */
static size_t line_length(const char *text, size_t width)
{
    size_t best = 0, wide = 0;
    const char *word = text;
    for (const char *at = text; *at; at++) {
        if (*at != ' ' || at == word)
            continue;
        if (at[-1] != ' ' && may_break(word, at)) {
            if ((size_t)(at - text) > width && best > 0)
                break;
            best = (size_t)(at - text);
            if (at[1] == ' ' && best > width / 2)
                wide = best;
        }
        word = at + 1;
    }
    if (strlen(text) <= width || best == 0)
        return strlen(text);
    return wide > 0 ? wide : best;
}

void prose_print(FILE *f, int indent, const char *format, ...)
{
    char buf[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(buf, sizeof buf, format, args);
    va_end(args);
    const char *text = buf;
    for (int first = 1; first || *text; first = 0) {
        int margin = first ? 0 : indent;
        size_t n = line_length(text, (size_t)(PROSE_WIDTH - margin));
        fprintf(f, "%*s%.*s\n", margin, "", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}
