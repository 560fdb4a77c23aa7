/* Matching regular expressions by PCRE2, with machine code where the processor allows it. */
#include "text/regex.h"

#include "base/sys.h"
#include "text/text_buffer.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define MATCH_LIMIT 20000000 /* limit of backtracking in one match: a fraction of a second */
#define JIT_STACK_BYTES ((size_t)8 << 20)

struct regex {
    pcre2_code *code;
    int jit;
};

struct regex_room {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static enum status compile(const char *text, size_t n, uint32_t options, struct regex **out)
{
    int error;
    size_t at;
    struct regex *r = sys_calloc(1, sizeof *r);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!r || !context) {
        free(r);
        pcre2_compile_context_free(context);
        return status_fail(ERR_NOMEM, "out of memory: a regular expression");
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((const uint8_t *)text, n, options | PCRE2_UTF, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!r->code) {
        PCRE2_UCHAR message[120] = "";
        pcre2_get_error_message(error, message, sizeof message);
        free(r);
        return status_fail(ERR_INVALID, "the regular expression cannot be compiled: %s", (char *)message);
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    return OK;
}

enum status regex_compile(const char *pattern, size_t n, struct regex **out)
{
    char *text;
    if (utf8_valid((const uint8_t *)pattern, n) < n)
        return status_fail(ERR_INVALID, "the regular expression is no valid UTF-8");
    TRY(regex_translate(pattern, n, &text));
    enum status st = compile(text, strlen(text), PCRE2_NEVER_BACKSLASH_C, out);
    free(text);
    return st;
}

enum status regex_compile_literal(const char *text, size_t n, struct regex **out)
{
    return compile(text, n, PCRE2_LITERAL, out);
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

enum status regex_room_create(struct regex_room **out)
{
    struct regex_room *room = sys_calloc(1, sizeof *room);
    if (room) {
        room->match = pcre2_match_data_create(1, NULL);
        room->context = pcre2_match_context_create(NULL);
        room->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL);
    }
    if (!room || !room->match || !room->context || !room->stack) {
        regex_room_free(room);
        return status_fail(ERR_NOMEM, "out of memory: matching regular expressions");
    }
    pcre2_set_match_limit(room->context, MATCH_LIMIT);
    pcre2_jit_stack_assign(room->context, NULL, room->stack);
    *out = room;
    return OK;
}

void regex_room_free(struct regex_room *room)
{
    if (!room)
        return;
    pcre2_match_data_free(room->match);
    pcre2_match_context_free(room->context);
    pcre2_jit_stack_free(room->stack);
    free(room);
}

enum status regex_find(const struct regex *r, struct regex_room *room, const uint8_t *text, size_t n, size_t from,
                       struct regex_match *out)
{
    int rc = r->jit ? pcre2_jit_match(r->code, text, n, from, 0, room->match, room->context)
                    : pcre2_match(r->code, text, n, from, PCRE2_NO_UTF_CHECK, room->match, room->context);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return status_fail(ERR_INVALID,
                           "a regular expression of the tokenizer gives up on the text (PCRE2 error %d): it backtracks too much",
                           rc);
    const size_t *place = pcre2_get_ovector_pointer(room->match);
    out->start = rc < 0 ? n + 1 : place[0];
    out->end = rc < 0 ? n + 1 : place[1];
    return OK;
}

enum status regex_next(const struct regex *r, struct regex_room *room, const uint8_t *text, size_t n, struct regex_scan *scan,
                       struct regex_match *out)
{
    for (;;) {
        out->start = out->end = n + 1;
        if (scan->from > n)
            return OK;
        TRY(regex_find(r, room, text, n, scan->from, out));
        if (out->start > n)
            return OK;
        if (out->end > out->start || !scan->any || scan->last_end != out->end)
            break;
        scan->from += scan->from < n ? utf8_length(text[scan->from]) : 1;
    }
    scan->from = scan->last_end = out->end;
    scan->any = 1;
    return OK;
}
