/* Strings that know where each of their bytes comes from. Private to this folder.
 *
 * Most strings have one origin and carry one mark; joining different ones gives a mark per byte. Every operation on strings
 * keeps the marks of the bytes that it keeps, and gives bytes that it makes of others (an escape, a capital) their marks. */
#ifndef LTRAIN_CHAT_TEXT_H
#define LTRAIN_CHAT_TEXT_H

#include "chat/task.h"

/* Marks: an origin, and flags. */
enum {
    MARK_TEMPLATE = 0,
    MARK_DATA = 1,    /* data of no message */
    MARK_MESSAGE = 2, /* MARK_MESSAGE + i: message i */
    MARK_ORIGIN = 0x3FFFFFF,
    MARK_WORDS = 1 << 26,     /* of a message, and not how it is addressed */
    MARK_CALLS = 1 << 27,     /* of those, its calls of tools */
    MARK_SAID = 1 << 28,      /* what an assistant said */
    MARK_GENERATED = 1 << 29, /* inside {% generation %} */
    MARK_REASONING = 1 << 30, /* said, and thought before the answer */
};

struct jinja_text {
    const char *bytes; /* valid UTF-8 */
    size_t n;
    const int32_t *marks; /* [n], or NULL: all bytes have `mark` */
    int32_t mark;
    int safe; /* passed the filter safe, or escape: what is added to it would be escaped by Jinja */
};

struct jinja_text *jinja_text(struct jinja_task *task, const char *bytes, size_t n, int32_t mark); /* a copy */
struct jinja_text *jinja_literal(struct jinja_task *task, const char *string);                     /* the template's, no copy */
/* Bytes [first, end) of text: no copy. */
struct jinja_text *jinja_cut(struct jinja_task *task, const struct jinja_text *text, size_t first, size_t end);
int32_t jinja_mark(const struct jinja_text *text, size_t at);
int jinja_same(const struct jinja_text *a, const struct jinja_text *b);
int jinja_is(const struct jinja_text *a, const char *string);
/* Byte order, which is that of code points. */
int jinja_order(const struct jinja_text *a, const struct jinja_text *b);
/* Where part begins in text at or after `from`; -1: nowhere. */
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

/* Code points. */
size_t jinja_chars(struct jinja_task *task, const struct jinja_text *text);
/* The byte at which code point i begins; text->n beyond the last. */
size_t jinja_char_at(struct jinja_task *task, const struct jinja_text *text, size_t i);
/* The code point at *at, which moves behind it. */
int32_t jinja_next_char(const struct jinja_text *text, size_t *at);
/* The start of the code point that ends at `end`. */
size_t jinja_char_before(const struct jinja_text *text, size_t end);
size_t jinja_encode(int32_t c, char out[4]);

/* Python's str.isspace of one code point, and its line ends. */
int jinja_is_space(int32_t c);
int jinja_is_line_end(int32_t c);
/* str.isprintable of one code point. */
int jinja_is_printable(int32_t c);
int jinja_is_upper(int32_t c);
int jinja_is_lower(int32_t c);
int jinja_is_digit(int32_t c);
int jinja_is_letter(int32_t c);
/* str.isdigit of one code point, which takes superscripts, too; a character of a word of regular expressions. */
int jinja_is_digit_sign(int32_t c);
int jinja_is_word(int32_t c);
/* Appends the small letter, the capital, or the capital that begins words, of c; letters that become several, or depend on their place, end the task. */
enum jinja_letter { LETTER_SMALL, LETTER_CAPITAL, LETTER_TITLE };
void jinja_put_case(struct jinja_builder *b, int32_t c, enum jinja_letter letter, int32_t mark);

#endif
