/* Reading conversations from rows of .jsonl files. */
#include "chat/conversation.h"

#include "base/sys.h"
#include "chat/marks.h"
#include "chat/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Members in which templates look for reasoning: most read the first, gpt-oss's the second; transformers does the same. */
static const char *const reasoning_keys[] = {"reasoning_content", "thinking", "reasoning"};

static const json_t *reasoning_of(const struct chat_conversation *c, size_t message)
{
    const json_t *m = json_array_get(c->messages, message);
    for (size_t i = 0; i < sizeof reasoning_keys / sizeof *reasoning_keys; i++)
        if (json_object_get(m, reasoning_keys[i]))
            return json_object_get(m, reasoning_keys[i]);
    return NULL;
}

int chat_is_trained(const struct chat_conversation *c, int64_t message)
{
    return chat_is_assistant(c, (size_t)message) && !c->untrained[message];
}

int64_t chat_last_trained(const struct chat_conversation *c)
{
    int64_t last = chat_messages(c) - 1;
    while (last >= 0 && !chat_is_trained(c, last))
        last--;
    return last;
}

static const char *const usual_roles[] = {"system", "developer", "user", "assistant", "tool"};

int chat_is_usual(const char *role)
{
    for (size_t i = 0; i < sizeof usual_roles / sizeof *usual_roles; i++)
        if (strcmp(role, usual_roles[i]) == 0)
            return 1;
    return 0;
}

/* Refuses " User" for "user": templates would see another role. */
static enum status check_role(const struct chat_conversation *c, size_t i, const char *role)
{
    const char *word = role + strspn(role, " \t\r\n");
    const size_t n = strcspn(word, " \t\r\n");
    for (size_t k = 0; k < sizeof usual_roles / sizeof *usual_roles; k++)
        if (strlen(usual_roles[k]) == n && strncasecmp(word, usual_roles[k], n) == 0 && !word[n + strspn(word + n, " \t\r\n")] &&
            strcmp(role, usual_roles[k]) != 0)
            return chat_refuse(c, "the role of message %zu is '%.40s': write %s", i + 1, role, usual_roles[k]);
    return OK;
}

int chat_is_assistant(const struct chat_conversation *c, size_t message)
{
    return strcmp(chat_role(c, (int64_t)message), "assistant") == 0;
}

static int says(const json_t *v)
{
    size_t i;
    const json_t *part;
    if (json_is_string(v))
        return json_string_value(v)[strspn(json_string_value(v), " \t\r\n")] != 0;
    if (json_is_object(v)) /* a part, or a tool call */
        return !json_object_get(v, "text") || says(json_object_get(v, "text"));
    json_array_foreach(v, i, part)
    {
        if (says(part))
            return 1;
    }
    return 0;
}

int chat_says_something(const struct chat_conversation *c, size_t message)
{
    const json_t *m = json_array_get(c->messages, message);
    return says(json_object_get(m, "content")) || says(json_object_get(m, "tool_calls")) || says(reasoning_of(c, message));
}

int chat_only_calls(const struct chat_conversation *c, size_t message)
{
    return chat_calls(c, message) > 0 && !says(json_object_get(json_array_get(c->messages, message), "content")) &&
           !says(reasoning_of(c, message));
}

int chat_find_reasoning(const json_t *content, size_t *first, size_t *end)
{
    static const char begins[] = "<think>", ends[] = "</think>";
    const char *text = json_string_value(content), *close = NULL, *open;
    size_t n = json_string_length(content);
    for (const char *at = text; at && (at = memmem(at, n - (size_t)(at - text), ends, sizeof ends - 1)); at += sizeof ends - 1)
        close = at; /* the last </think> counts, as in templates */
    if (!close)
        return 0;
    open = memmem(text, (size_t)(close - text), begins, sizeof begins - 1);
    *first = open ? (size_t)(open - text) + sizeof begins - 1 : 0;
    *end = (size_t)(close - text);
    return *first + strspn(text + *first, " \t\r\n") < *end;
}

int chat_answers(const struct chat_conversation *c, size_t message)
{
    const json_t *content = json_object_get(json_array_get(c->messages, message), "content");
    size_t first, end;
    if (!chat_find_reasoning(content, &first, &end))
        return says(content);
    const char *behind = json_string_value(content) + end + strlen("</think>");
    return behind[strspn(behind, " \t\r\n")] != 0;
}

int chat_reasons(const struct chat_conversation *c, size_t message)
{
    size_t first, end;
    return says(reasoning_of(c, message)) ||
           chat_find_reasoning(json_object_get(json_array_get(c->messages, message), "content"), &first, &end);
}

size_t chat_calls(const struct chat_conversation *c, size_t message)
{
    return json_array_size(json_object_get(json_array_get(c->messages, message), "tool_calls"));
}

/* Copies a message without members that are null, and with its reasoning under each name that templates read. */
static json_t *normalize(const json_t *message)
{
    json_t *out = json_object(), *reasoning = NULL;
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof reasoning_keys / sizeof *reasoning_keys && !reasoning; i++) {
        reasoning = json_object_get(message, reasoning_keys[i]);
        reasoning = json_is_null(reasoning) ? NULL : reasoning;
    }
    if (reasoning)
        json_object_set(out, "thinking", reasoning);
    json_object_foreach((json_t *)message, key, value)
    {
        if (!json_is_null(value))
            json_object_set(out, key, value);
    }
    if (reasoning)
        json_object_set(out, "reasoning_content", reasoning);
    return out;
}

static enum status check_content(const struct chat_conversation *c, size_t i, const json_t *content)
{
    size_t at;
    const json_t *part;
    if (json_is_string(content))
        return OK;
    if (!json_is_array(content))
        return chat_refuse(c, "the content of message %zu is neither a string nor a list of parts", i + 1);
    json_array_foreach(content, at, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_object(part) || (type && strcmp(type, "text") != 0))
            return chat_refuse(c, "message %zu has a part of type '%.40s': only text is supported", i + 1, type ? type : "?");
        if (!json_is_string(json_object_get(part, "text")))
            return chat_refuse(c, "message %zu has a part without text", i + 1);
    }
    return OK;
}

static enum status check_message(const struct chat_conversation *c, size_t i, const json_t *m)
{
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    const json_t *calls = json_object_get(m, "tool_calls");
    if (!json_is_object(m))
        return chat_refuse(c, "message %zu is not an object", i + 1);
    if (!role)
        return chat_refuse(c, "message %zu has no role", i + 1);
    if (!json_is_string(role))
        return chat_refuse(c, "the role of message %zu is not a string", i + 1);
    TRY(check_role(c, i, json_string_value(role)));
    if (json_object_get(m, "function_call"))
        return chat_refuse(
            c,
            "message %zu has a \"function_call\": calls are read of \"tool_calls\", [{\"type\": \"function\", \"function\": {\"name\", "
            "\"arguments\"}}]",
            i + 1);
    if (json_object_get(m, "reasoning_content") && !json_is_string(json_object_get(m, "reasoning_content")))
        return chat_refuse(c, "the reasoning of message %zu is not a string", i + 1);
    if (calls && !json_is_array(calls))
        return chat_refuse(c, "the tool_calls of message %zu are not a list", i + 1);
    if (content)
        return check_content(c, i, content);
    if (json_array_size(calls) > 0 || json_object_get(m, "reasoning_content"))
        return OK;
    return chat_refuse(c, "message %zu (%.40s) has neither content nor tool_calls", i + 1, json_string_value(role));
}

/* Takes over the messages, checked and normalized. The first `prompt` messages are read but not trained. */
static enum status take_messages(struct chat_conversation *c, const json_t *messages, size_t prompt)
{
    size_t i, n = json_array_size(messages);
    const json_t *m;
    if (n == 0)
        return chat_refuse(c, "the conversation is empty");
    c->untrained = sys_calloc(n, 1);
    c->marks = sys_calloc(n, 1);
    c->messages = json_array();
    if (!c->untrained || !c->marks || !c->messages)
        return status_fail(ERR_NOMEM, "no memory for a conversation");
    json_array_foreach(messages, i, m)
    {
        json_t *clean = json_is_object(m) ? normalize(m) : NULL;
        enum status st = check_message(c, i, clean);
        if (json_array_append_new(c->messages, clean) != 0 && st == OK)
            st = status_fail(ERR_NOMEM, "no memory for a conversation");
        TRY(st);
        enum chat_mark mark;
        TRY(marks_of_message(c, i, m, &mark));
        c->marks[i] = (char)mark;
        c->untrained[i] = i < prompt || mark == CHAT_MARK_UNTRAINED;
    }
    return OK;
}

/* Takes over the tools, given as a list or as the JSON text of a list. */
static enum status take_tools(struct chat_conversation *c, const json_t *object)
{
    const json_t *tools = json_object_get(object, "tools");
    if (!tools || json_is_null(tools))
        return OK;
    if (json_is_string(tools) && json_string_length(tools) == 0)
        return OK;
    c->tools = json_is_string(tools) ? json_loadb(json_string_value(tools), json_string_length(tools), JSON_ALLOW_NUL, NULL)
                                     : json_incref((json_t *)tools);
    if (!json_is_array(c->tools))
        return chat_refuse(c, "tools is not a list");
    if (json_array_size(c->tools) == 0) {
        json_decref(c->tools);
        c->tools = NULL;
    }
    return OK;
}

static enum status take(struct chat_conversation *c, const json_t *object)
{
    size_t prompt = 0;
    json_t *messages = NULL;
    const json_t *variables = json_object_get(object, "chat_template_kwargs");
    if (!json_is_object(object))
        return chat_refuse(c, "a conversation is an object");
    TRY(chat_check_row(object, CHAT_ROW_CHAT, c->file, c->line));
    TRY(chat_shape(c, object, &messages, &prompt));
    enum status st = chat_take_beside(c, object, messages, &prompt);
    if (st == OK)
        st = take_messages(c, messages, prompt);
    json_decref(messages);
    TRY(st);
    TRY(take_tools(c, object));
    if (variables && !json_is_null(variables) && !json_is_object(variables))
        return chat_refuse(c, "chat_template_kwargs is not an object");
    c->variables = json_is_object(variables) ? json_incref((json_t *)variables) : NULL;
    return OK;
}

enum status chat_from_json(const json_t *object, const char *file, int64_t line, struct chat_conversation **out)
{
    struct chat_conversation *c = sys_calloc(1, sizeof *c);
    if (!c || !(c->file = strdup(file))) {
        free(c);
        return status_fail(ERR_NOMEM, "no memory for a conversation");
    }
    c->line = line;
    enum status st = take(c, object);
    if (st != OK) {
        chat_destroy(c);
        return st;
    }
    *out = c;
    return OK;
}

enum status chat_read(const char *json, size_t n, const char *file, int64_t line, struct chat_conversation **out)
{
    json_error_t error;
    json_t *object = json_loadb(json, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return status_fail(ERR_INVALID, "%s:%lld: not JSON: %s (column %d)", file, (long long)line, error.text, error.column);
    enum status st = chat_from_json(object, file, line, out);
    json_decref(object);
    return st;
}

static json_t *joined(const json_t *parts)
{
    size_t i, n = 0;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        n += json_string_length(json_object_get(part, "text"));
    }
    char *all = sys_malloc(n + 1), *to = all;
    if (!all)
        return NULL;
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        memcpy(to, json_string_value(text), json_string_length(text));
        to += json_string_length(text);
    }
    json_t *out = json_stringn(all, n);
    free(all);
    return out;
}

enum status chat_join_parts(struct chat_conversation *c)
{
    size_t i;
    json_t *m;
    json_array_foreach(c->messages, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        if (json_is_array(content) && json_object_set_new(m, "content", joined(content)) != 0)
            return status_fail(ERR_NOMEM, "no memory for a conversation");
    }
    return OK;
}

int chat_has_tools(const struct chat_conversation *c)
{
    return c->tools != NULL;
}

int64_t chat_messages(const struct chat_conversation *c)
{
    return (int64_t)json_array_size(c->messages);
}

const char *chat_role(const struct chat_conversation *c, int64_t message)
{
    return json_string_value(json_object_get(json_array_get(c->messages, (size_t)message), "role"));
}

void chat_destroy(struct chat_conversation *c)
{
    if (!c)
        return;
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->variables);
    free(c->untrained);
    free(c->marks);
    free(c->file);
    free(c);
}
