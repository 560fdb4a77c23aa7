/* Parsing a template, and its tokens. */
#include "chat/template.h"

#include "base/sys.h"
#include "chat/jinja/parser.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_SOURCE = 4 << 20, PARSE_BYTES = 1 << 30, PARSE_STEPS = 100000000 };

static void parse(struct jinja_task *task, void *arg)
{
    struct chat_template *t = arg;
    task->line = 1;
    for (size_t at = 0; at < t->n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)t->source + at, (utf8proc_ssize_t)(t->n - at), &c);
        if (n < 1)
            jinja_fail(task, "the template is not UTF-8");
        task->line += c == '\n';
        at += (size_t)n;
    }
    struct jinja_parser p = {.task = task, .at = jinja_lex(task, t->source, t->n)->at, .names = &t->names};
    t->first = jinja_parse(&p);
    t->generations = p.generations;
}

enum status chat_template_parse(const char *source, size_t n, const char *name, struct chat_template **out)
{
    if (n > MAX_SOURCE)
        return status_fail(ERR_INVALID, "%s: a chat template of %zu bytes: at most %d are read", name, n, MAX_SOURCE);
    struct chat_template *t = sys_calloc(1, sizeof *t);
    char *copy = sys_malloc(n + 1), *name_copy = t && copy ? strdup(name) : NULL;
    if (!name_copy) {
        free(t);
        free(copy);
        return status_fail(ERR_NOMEM, "no memory for a chat template");
    }
    memcpy(copy, source, n);
    copy[n] = 0;
    t->source = copy;
    t->n = n;
    t->name = name_copy;
    jinja_task_start(&t->task, name_copy, PARSE_BYTES, PARSE_STEPS);
    enum status st = jinja_task_run(&t->task, parse, t);
    if (st != OK) {
        chat_template_destroy(t);
        return st;
    }
    *out = t;
    return OK;
}

enum status chat_template_set_token(struct chat_template *t, const char *variable, const char *token)
{
    size_t i = 0;
    while (i < t->n_tokens && strcmp(t->tokens[i].variable, variable) != 0)
        i++;
    if (i == CHAT_MAX_TOKENS)
        return status_fail(ERR_INVALID, "%s: more than %d special tokens have names", t->name, CHAT_MAX_TOKENS);
    char *copy = strdup(token), *name = i == t->n_tokens ? strdup(variable) : t->tokens[i].variable;
    if (!copy || !name) {
        free(copy);
        if (i == t->n_tokens)
            free(name);
        return status_fail(ERR_NOMEM, "no memory for a chat template");
    }
    if (i < t->n_tokens)
        free(t->tokens[i].token);
    t->tokens[i].variable = name;
    t->tokens[i].token = copy;
    t->n_tokens += i == t->n_tokens;
    return t->for_tools ? chat_template_set_token(t->for_tools, variable, token) : OK;
}

const char *chat_template_token(const struct chat_template *t, const char *variable)
{
    for (size_t i = 0; i < t->n_tokens; i++)
        if (strcmp(t->tokens[i].variable, variable) == 0)
            return t->tokens[i].token;
    return NULL;
}

const struct chat_template *chat_template_for_tools(const struct chat_template *t)
{
    return t->for_tools;
}

const char *chat_template_tools_error(const struct chat_template *t)
{
    return t->tools_error;
}

const char *chat_template_source(const struct chat_template *t, size_t *n)
{
    *n = t->n;
    return t->source;
}

void chat_template_destroy(struct chat_template *t)
{
    if (!t)
        return;
    chat_template_destroy(t->for_tools);
    free(t->tools_error);
    jinja_task_end(&t->task);
    for (size_t i = 0; i < t->n_tokens; i++) {
        free(t->tokens[i].variable);
        free(t->tokens[i].token);
    }
    free((char *)t->source);
    free((char *)t->name);
    free(t);
}
