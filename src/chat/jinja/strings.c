/* Stripping, replacing, splitting into lines and changing case, with the bytes' marks kept. */
#include "chat/jinja/methods.h"

#include <string.h>

static int has_char(const struct jinja_text *chars, int32_t c)
{
    for (size_t at = 0; at < chars->n;)
        if (jinja_next_char(chars, &at) == c)
            return 1;
    return 0;
}

const struct jinja_text *jinja_strip(struct jinja_task *task, const struct jinja_text *text, struct jinja_value chars,
                                     enum jinja_side side)
{
    const struct jinja_text *set = chars.kind == JINJA_NONE ? NULL : jinja_need_text(task, chars, "strip's set of characters");
    size_t first = 0, end = text->n;
    while ((side & SIDE_LEFT) && first < end) {
        size_t next = first;
        int32_t c = jinja_next_char(text, &next);
        if (!(set ? has_char(set, c) : jinja_is_space(c)))
            break;
        first = next;
    }
    while ((side & SIDE_RIGHT) && end > first) {
        size_t before = jinja_char_before(text, end), next = before;
        int32_t c = jinja_next_char(text, &next);
        if (!(set ? has_char(set, c) : jinja_is_space(c)))
            break;
        end = before;
    }
    jinja_look(task, (text->n - (end - first)) * (set ? 1 + set->n : 1));
    return jinja_cut(task, text, first, end);
}

const struct jinja_text *jinja_replace(struct jinja_task *task, const struct jinja_text *text, const struct jinja_text *from,
                                       const struct jinja_text *to, int64_t times)
{
    struct jinja_builder b = {.task = task};
    size_t at = 0;
    while (times != 0) {
        int64_t found = jinja_find(task, text, from, at);
        if (found < 0)
            break;
        jinja_step(task, 1);
        jinja_put_part(&b, text, at, (size_t)found);
        jinja_put(&b, to);
        times -= times > 0;
        at = (size_t)found + from->n;
        if (from->n == 0) { /* an empty `from` stands before each character, and at the end */
            size_t next = at;
            if (at == text->n)
                break;
            jinja_next_char(text, &next);
            jinja_put_part(&b, text, at, next);
            at = next;
        }
    }
    jinja_put_part(&b, text, at, text->n);
    return jinja_built(&b);
}

struct jinja_list *jinja_lines(struct jinja_task *task, const struct jinja_text *text, int keep_ends)
{
    struct jinja_list *out = jinja_list_new(task);
    for (size_t at = 0, first = 0; at < text->n; first = at) {
        size_t end = at;
        while (at < text->n) {
            end = at;
            int32_t c = jinja_next_char(text, &at);
            if (jinja_is_line_end(c)) {
                at += c == '\r' && at < text->n && text->bytes[at] == '\n';
                break;
            }
            end = at;
        }
        jinja_list_add(task, out, jinja_of_text(jinja_cut(task, text, first, keep_ends ? at : end)));
    }
    return out;
}

/* Tells whether a letter behind the character c begins a word for the filter title. */
static int begins_word(int32_t c)
{
    return jinja_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

const struct jinja_text *jinja_case(struct jinja_task *task, const struct jinja_text *text, enum jinja_casing casing)
{
    struct jinja_builder b = {.task = task};
    int first = 1;
    for (size_t at = 0, from = 0; at < text->n; from = at) {
        int32_t c = jinja_next_char(text, &at);
        const int upper = casing == CASE_UPPER || (casing != CASE_LOWER && first),
                  title = casing == CASE_CAPITALIZE || casing == CASE_TITLE_METHOD;
        jinja_put_case(&b, c, !upper ? LETTER_SMALL : title ? LETTER_TITLE : LETTER_CAPITAL, jinja_mark(text, from));
        first = casing == CASE_TITLE_METHOD ? !jinja_is_letter(c) : casing == CASE_TITLE_FILTER ? begins_word(c) : 0;
    }
    return jinja_built(&b);
}

int jinja_is_case(const struct jinja_text *text, int upper)
{
    int some = 0;
    for (size_t at = 0; at < text->n;) {
        int32_t c = jinja_next_char(text, &at);
        if (upper ? jinja_is_lower(c) : jinja_is_upper(c))
            return 0;
        some |= upper ? jinja_is_upper(c) : jinja_is_lower(c);
    }
    return some;
}
