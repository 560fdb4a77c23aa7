/* Walking over a line of JSON without building its values: logs have millions of lines. Private to src/report. */
#ifndef LTRAIN_REPORT_LINE_H
#define LTRAIN_REPORT_LINE_H

#include <stddef.h>

struct line {
    const char *at, *end; /* unread rest of the object */
};

enum line_kind { LINE_NUMBER, LINE_TEXT, LINE_WORD, LINE_NESTED };

struct line_field {
    const char *key, *value; /* borrowed from the line; neither ends in 0. Escapes in texts stay as they are. */
    size_t key_length, length;
    enum line_kind kind;
    double number; /* LINE_NUMBER: the value, to 15 digits at least; else NaN */
};

/* Begins at an object's opening brace. Returns 0 if `text` is no object. */
int line_open(struct line *l, const char *text, size_t length);
/* Reads the next field. Returns 1, 0 behind the last one, or -1 if the line is damaged. */
int line_next(struct line *l, struct line_field *out);

#endif
