/* Members of a row beside its messages: system prompts are taken, other members are refused if their text would be lost. */
#include "chat/shapes.h"

#include <string.h>

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns the text of a JSON string without the white space around it; *n: its length in bytes. */
static const char *trimmed(const json_t *value, size_t *n)
{
    const char *text = json_string_value(value);
    size_t first = 0;
    *n = json_string_length(value);
    while (first < *n && is_blank(text[first]))
        first++;
    while (*n > first && is_blank(text[*n - 1]))
        (*n)--;
    *n -= first;
    return text + first;
}

/* Tells whether a member has a value. Tables write empty cells as null, or as strings and lists with nothing in them: these count
 * as none. */
static int is_given(const json_t *value)
{
    size_t n, i;
    const json_t *item;
    if (json_is_string(value))
        return trimmed(value, &n) && n > 0;
    json_array_foreach(value, i, item)
    {
        if (is_given(item))
            return 1;
    }
    return value && !json_is_null(value) && !json_is_array(value) && !(json_is_object(value) && json_object_size(value) == 0);
}

/* ---- system prompts ---- */

static enum status take_system(const struct chat_conversation *c, const json_t *system, const char *key, json_t *messages,
                               size_t *prompt)
{
    const json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    size_t n, m;
    if (!system || json_is_null(system))
        return OK;
    if (!json_is_string(system))
        return chat_refuse(c, "%s is not a string", key);
    if (json_string_length(system) == 0)
        return OK;
    if (!role || (strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)) {
        json_array_insert_new(messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", system));
        *prompt += *prompt > 0;
        return OK;
    }
    const json_t *content = json_object_get(first, "content");
    const char *a = trimmed(system, &n), *b = json_is_string(content) ? trimmed(content, &m) : NULL;
    return b && n == m && memcmp(a, b, n) == 0
               ? OK
               : chat_refuse(c, "it has a %s, and the conversation begins with another one: write one of them", key);
}

/* ---- other members that belong to it ---- */

/* Tells whether two texts are equal, or one contains the other and the contained one is too long to occur there by chance. */
static int repeats(const json_t *a, const json_t *b)
{
    enum { BY_CHANCE = 8 };
    size_t n, m;
    const char *x = trimmed(a, &n), *y = trimmed(b, &m);
    if (n == m)
        return memcmp(x, y, n) == 0;
    return (n < m ? n : m) >= BY_CHANCE && (n < m ? memmem(y, m, x, n) : memmem(x, n, y, m)) != NULL;
}

/* Tells whether the messages already contain the text `value`, or all texts of `value` if it is a list of messages or turns. */
static int is_said(const json_t *messages, const json_t *value)
{
    static const char *const texts[] = {"content", "value", "reasoning_content", "thinking", "reasoning"};
    size_t i;
    const json_t *m;
    json_array_foreach(value, i, m)
    {
        const json_t *text = json_object_get(m, "content") ? json_object_get(m, "content") : json_object_get(m, "value");
        if (json_is_array(text))
            text = json_object_get(json_array_get(text, 0), "text");
        if (!json_is_object(m) || (is_given(text) && !is_said(messages, text)))
            return 0;
    }
    if (json_is_array(value))
        return 1;
    json_array_foreach(messages, i, m)
    {
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            const json_t *text = json_object_get(m, texts[k]);
            if (json_is_array(text))
                text = json_object_get(json_array_get(text, 0), "text");
            if (json_is_string(text) && json_is_string(value) && repeats(text, value))
                return 1;
        }
    }
    return 0;
}

/* Tells whether the messages were made from the member named key. */
static int is_source(const json_t *object, const char *key)
{
    static const char *const sides[] = {"prompt", "completion"}, *const alpaca[] = {"instruction", "input", "output", "history"};
    if (chat_has(object, "messages") || chat_has(object, "conversations"))
        return strcmp(key, chat_has(object, "messages") ? "messages" : "conversations") == 0;
    const int is_sides = chat_has(object, "prompt") && chat_has(object, "completion");
    for (size_t i = 0; i < (is_sides ? sizeof sides : sizeof alpaca) / sizeof *sides; i++)
        if (strcmp(key, (is_sides ? sides : alpaca)[i]) == 0)
            return 1;
    return 0;
}

/* Tells whether a member whose name speaks of reasoning is only a setting ("on", "high"): no string, or a single word. */
static int is_setting(const char *key, const json_t *value)
{
    return (strstr(key, "reasoning") || strstr(key, "think")) &&
           (!json_is_string(value) || !strpbrk(json_string_value(value), " \n"));
}

static enum status refuse_unsaid(const struct chat_conversation *c, const json_t *object, const json_t *messages)
{
    static const char *const says[] = {"messages",
                                       "conversations",
                                       "conversation",
                                       "prompt",
                                       "completion",
                                       "instruction",
                                       "input",
                                       "output",
                                       "history",
                                       "query",
                                       "response",
                                       "chosen",
                                       "context",
                                       "developer",
                                       "preamble",
                                       "developer_message",
                                       "system_instruction",
                                       "system_instructions",
                                       "systemPrompt",
                                       "instructions",
                                       "reasoning",
                                       "reasoning_content",
                                       "thinking",
                                       "thought"},
                             *const rejected[] = {"rejected", "rejected_response", "rejected_messages"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        const json_t *value = json_object_get(object, says[i]);
        if (is_given(value) && !is_setting(says[i], value) && !is_source(object, says[i]) && !is_said(messages, value))
            return chat_refuse(
                c,
                "it has a \"%s\" beside its conversation, which does not say the same: put it into the conversation, or leave it out",
                says[i]);
    }
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++)
        if (is_given(json_object_get(object, rejected[i])) && !is_given(json_object_get(object, "chosen")))
            return chat_refuse(c, "it has a \"%s\", as rows of preferences have it: every answer is trained to be given",
                               rejected[i]);
    return OK;
}

static enum status refuse_unread(const struct chat_conversation *c, const json_t *object)
{
    static const char *const unread[][2] = {{"images", "only text is trained"},
                                            {"image", "only text is trained"},
                                            {"videos", "only text is trained"},
                                            {"video", "only text is trained"},
                                            {"audios", "only text is trained"},
                                            {"audio", "only text is trained"},
                                            {"functions",
                                             "call them \"tools\", each {\"type\": \"function\", \"function\": {...}}"},
                                            {"chat_template", "--chat-template names one for all rows"},
                                            {"documents",
                                             "templates get them as {\"chat_template_kwargs\": {\"documents\": [...]}}"}},
                             *const variables[] = {"enable_thinking", "thinking", "reasoning_effort"};
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (is_given(json_object_get(object, unread[i][0])))
            return chat_refuse(c, "it has \"%s\" beside its conversation, which are not read: %s", unread[i][0], unread[i][1]);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const json_t *value = json_object_get(object, variables[i]);
        if (json_is_boolean(value) || (json_is_string(value) && strcmp(variables[i], "reasoning_effort") == 0 && is_given(value)))
            return chat_refuse(
                c,
                "it has \"%s\" beside its conversation, which is not read: templates get it as {\"chat_template_kwargs\": {\"%s\": ...}}",
                variables[i], variables[i]);
    }
    return OK;
}

/* Refuses messages with content other than text. */
static enum status refuse_media(const struct chat_conversation *c, const json_t *messages)
{
    static const char *const media[] = {"images", "image", "videos", "video", "audios", "audio", "refusal"};
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m)
    {
        for (size_t k = 0; k < sizeof media / sizeof *media; k++)
            if (is_given(json_object_get(m, media[k])))
                return chat_refuse(c, "message %zu has \"%s\", which is not read: only text is trained, the \"content\"", i + 1,
                                   media[k]);
    }
    return OK;
}

enum status chat_take_beside(const struct chat_conversation *c, const json_t *object, json_t *messages, size_t *prompt)
{
    static const char *const names[] = {"system", "system_prompt", "system_message"};
    TRY(refuse_unread(c, object));
    TRY(refuse_media(c, messages));
    TRY(refuse_unsaid(c, object, messages));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(take_system(c, json_object_get(object, names[i]), names[i], messages, prompt));
    return OK;
}
