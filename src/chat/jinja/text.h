/* Strings that know the origin of each of their bytes. Private to src/chat.
 *
 * Most strings have one origin, and so a single mark; a string joined of different ones has a mark for each byte. Every operation
 * keeps the marks of bytes that it copies; bytes made from others (an escape, a capital) get the marks of these. */
#ifndef LTRAIN_CHAT_JINJA_TEXT_H
#define LTRAIN_CHAT_JINJA_TEXT_H

#include "chat/jinja/task.h"

/* Marks of bytes: an origin (the low bits), and flags. */
enum {
    MARK_TEMPLATE = 0,
    MARK_DATA = 1,    /* data that belong to no message */
    MARK_MESSAGE = 2, /* MARK_MESSAGE + i: message i */
    MARK_ORIGIN = 0x3FFFFFF,
    MARK_WORDS = 1 << 26,     /* words of a message, not its role or name */
    MARK_CALLS = 1 << 27,     /* words of tool calls */
    MARK_SAID = 1 << 28,      /* words of an assistant */
    MARK_GENERATED = 1 << 29, /* inside {% generation %} */
    MARK_REASONING = 1 << 30, /* words of an assistant that are reasoning */
};

struct jinja_text {
    const char *bytes; /* valid UTF-8 */
    size_t n;
    const int32_t *marks; /* [n], or NULL: all bytes have `mark` */
    int32_t mark;
    int safe; /* 1: the text passed the filter `safe` or `escape`; Jinja would escape text that is joined to it */
};

struct jinja_text *jinja_text(struct jinja_task *task, const char *bytes, size_t n, int32_t mark); /* copies bytes */
/* Makes a text of the template, with the mark MARK_TEMPLATE; the string is not copied. */
struct jinja_text *jinja_literal(struct jinja_task *task, const char *string);
/* Returns bytes [first, end) of text, not copied. */
struct jinja_text *jinja_cut(struct jinja_task *task, const struct jinja_text *text, size_t first, size_t end);
/* Returns `made`, the result of a Python str method called on the text `of`; if `of` is marked as safe, returns a copy that is
 * marked as safe, too. */
const struct jinja_text *jinja_as_safe(struct jinja_task *task, const struct jinja_text *of, const struct jinja_text *made);
/* Refuses a text `other` with HTML's special characters if it is to be joined to a safe text, as Jinja would escape it. */
void jinja_check_safe(struct jinja_task *task, const struct jinja_text *safe, const struct jinja_text *other);
int32_t jinja_mark(const struct jinja_text *text, size_t at);
int jinja_same(const struct jinja_text *a, const struct jinja_text *b);
int jinja_is(const struct jinja_text *a, const char *string);
/* Compares two texts byte by byte, which gives the order of code points. */
int jinja_order(const struct jinja_text *a, const struct jinja_text *b);
/* Returns the first place at or after `from` at which `part` begins in text; -1: nowhere. */
int64_t jinja_find(struct jinja_task *task, const struct jinja_text *text, const struct jinja_text *part, size_t from);

struct jinja_builder {
    struct jinja_task *task;
    char *bytes;
    int32_t *marks; /* NULL while all bytes have `mark` */
    size_t n, room, marks_room;
    int32_t mark;
};

void jinja_put(struct jinja_builder *b, const struct jinja_text *text);
void jinja_put_part(struct jinja_builder *b, const struct jinja_text *text, size_t first, size_t end);
void jinja_put_bytes(struct jinja_builder *b, const char *bytes, size_t n, int32_t mark);
void jinja_put_string(struct jinja_builder *b, const char *string);
/* Sets a flag in the marks of bytes [first, b->n). */
void jinja_put_flag(struct jinja_builder *b, size_t first, int32_t flag);
struct jinja_text *jinja_built(struct jinja_builder *b);

/* Counts code points. */
size_t jinja_chars(struct jinja_task *task, const struct jinja_text *text);
/* Returns the byte at which code point i begins; text->n beyond the last. */
size_t jinja_char_at(struct jinja_task *task, const struct jinja_text *text, size_t i);
/* Returns the code point at *at, and moves *at behind it. */
int32_t jinja_next_char(const struct jinja_text *text, size_t *at);
/* Returns the start of the code point that ends at `end`. */
size_t jinja_char_before(const struct jinja_text *text, size_t end);
size_t jinja_encode(int32_t c, char out[4]);

/* Tells whether c is space (Python's str.isspace), or a line end. */
int jinja_is_space(int32_t c);
int jinja_is_line_end(int32_t c);
/* Tells whether c is printable (str.isprintable). */
int jinja_is_printable(int32_t c);
int jinja_is_upper(int32_t c);
int jinja_is_lower(int32_t c);
int jinja_is_digit(int32_t c);
int jinja_is_letter(int32_t c);
/* Tells whether c is a digit by str.isdigit, superscripts included (jinja_is_digit_sign), or a word character of Python's regular
 * expressions (jinja_is_word). */
int jinja_is_digit_sign(int32_t c);
int jinja_is_word(int32_t c);
/* Letter cases for jinja_put_case, which appends c in that case. A letter that would become several, or whose case depends on its
 * place, ends the task. */
enum jinja_letter { LETTER_SMALL, LETTER_CAPITAL, LETTER_TITLE };
void jinja_put_case(struct jinja_builder *b, int32_t c, enum jinja_letter letter, int32_t mark);

#endif
