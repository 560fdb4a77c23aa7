/* Making, cutting and joining marked strings. */
#include "chat/jinja/text.h"

#include <string.h>

struct jinja_text *jinja_text(struct jinja_task *task, const char *bytes, size_t n, int32_t mark)
{
    struct jinja_text *t = jinja_take(task, sizeof *t);
    *t = (struct jinja_text){.bytes = jinja_copy(task, bytes, n), .n = n, .mark = mark};
    return t;
}

struct jinja_text *jinja_literal(struct jinja_task *task, const char *string)
{
    struct jinja_text *t = jinja_take(task, sizeof *t);
    *t = (struct jinja_text){.bytes = string, .n = strlen(string), .mark = MARK_TEMPLATE};
    return t;
}

struct jinja_text *jinja_cut(struct jinja_task *task, const struct jinja_text *text, size_t first, size_t end)
{
    struct jinja_text *t = jinja_take(task, sizeof *t);
    end = end < first ? first : end;
    *t = (struct jinja_text){
        .bytes = text->bytes + first, .n = end - first, .marks = text->marks ? text->marks + first : NULL, .mark = text->mark};
    return t;
}

const struct jinja_text *jinja_as_safe(struct jinja_task *task, const struct jinja_text *of, const struct jinja_text *made)
{
    if (!of->safe || made->safe)
        return made;
    struct jinja_text *t = jinja_cut(task, made, 0, made->n);
    t->safe = 1;
    return t;
}

void jinja_check_safe(struct jinja_task *task, const struct jinja_text *safe, const struct jinja_text *other)
{
    for (size_t i = 0; safe->safe && !other->safe && i < other->n; i++)
        if (memchr("&<>'\"", other->bytes[i], 5))
            jinja_fail(task, "adding '%c' to a string that passed the filter safe escapes it: not supported", other->bytes[i]);
}

int32_t jinja_mark(const struct jinja_text *text, size_t at)
{
    return text->marks && at < text->n ? text->marks[at] : text->mark;
}

int jinja_same(const struct jinja_text *a, const struct jinja_text *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

int jinja_is(const struct jinja_text *a, const char *string)
{
    return a->n == strlen(string) && memcmp(a->bytes, string, a->n) == 0;
}

int jinja_order(const struct jinja_text *a, const struct jinja_text *b)
{
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

int64_t jinja_find(struct jinja_task *task, const struct jinja_text *text, const struct jinja_text *part, size_t from)
{
    if (from > text->n || part->n > text->n - from)
        return -1;
    const char *at = memmem(text->bytes + from, text->n - from, part->bytes, part->n);
    jinja_look(task, at ? (size_t)(at - text->bytes) - from : text->n - from);
    return at ? at - text->bytes : -1;
}

/* Makes the builder hold a mark for each byte from now on, with room for `more` bytes. */
static void mark_each(struct jinja_builder *b, size_t more)
{
    if (!b->marks) {
        b->marks_room = 0;
        b->marks = jinja_grow(b->task, NULL, 0, b->n + more, sizeof *b->marks, &b->marks_room);
        for (size_t i = 0; i < b->n; i++)
            b->marks[i] = b->mark;
    }
    b->marks = jinja_grow(b->task, b->marks, b->n, more, sizeof *b->marks, &b->marks_room);
}

/* Makes room for n bytes that all have the mark *mark; mark NULL: their marks may differ. */
static void make_room(struct jinja_builder *b, size_t n, const int32_t *mark)
{
    b->bytes = jinja_grow(b->task, b->bytes, b->n, n + 1, 1, &b->room);
    if (b->n == 0 && mark)
        b->mark = *mark;
    if (b->marks || !mark || *mark != b->mark)
        mark_each(b, n);
}

void jinja_put_part(struct jinja_builder *b, const struct jinja_text *text, size_t first, size_t end)
{
    if (end <= first)
        return;
    size_t n = end - first;
    if (!text->marks) {
        jinja_put_bytes(b, text->bytes + first, n, text->mark);
        return;
    }
    make_room(b, n, NULL);
    memcpy(b->bytes + b->n, text->bytes + first, n);
    memcpy(b->marks + b->n, text->marks + first, n * sizeof *b->marks);
    b->n += n;
}

void jinja_put(struct jinja_builder *b, const struct jinja_text *text)
{
    jinja_put_part(b, text, 0, text->n);
}

void jinja_put_bytes(struct jinja_builder *b, const char *bytes, size_t n, int32_t mark)
{
    if (n == 0)
        return;
    make_room(b, n, &mark);
    memcpy(b->bytes + b->n, bytes, n);
    if (b->marks)
        for (size_t i = 0; i < n; i++)
            b->marks[b->n + i] = mark;
    b->n += n;
}

void jinja_put_string(struct jinja_builder *b, const char *string)
{
    jinja_put_bytes(b, string, strlen(string), MARK_TEMPLATE);
}

void jinja_put_flag(struct jinja_builder *b, size_t first, int32_t flag)
{
    if (first == b->n)
        return;
    mark_each(b, 0);
    for (size_t i = first; i < b->n; i++)
        b->marks[i] |= flag;
}

struct jinja_text *jinja_built(struct jinja_builder *b)
{
    struct jinja_text *t = jinja_take(b->task, sizeof *t);
    *t = (struct jinja_text){.bytes = b->bytes ? b->bytes : "", .n = b->n, .marks = b->marks, .mark = b->mark};
    return t;
}
