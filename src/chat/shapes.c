/* messages, conversations, prompt and completion, Alpaca's triples. */
#include "chat/shapes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status chat_refuse(const struct chat_conversation *c, const char *format, ...)
{
    char why[700];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return status_fail(ERR_INVALID, "%s:%lld: %s", c->file, (long long)c->line, why);
}

static void add(json_t *messages, const char *role, const json_t *content)
{
    json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
}

/* A top-level system prompt comes first. */
static enum status add_system(const struct chat_conversation *c, const json_t *object, json_t *messages)
{
    const json_t *system = json_object_get(object, "system");
    if (!system || json_is_null(system))
        return OK;
    if (!json_is_string(system))
        return chat_refuse(c, "system is not a string");
    if (json_string_length(system) > 0)
        add(messages, "system", system);
    return OK;
}

/* ShareGPT's names of those who speak. */
static const char *speaker(const char *from)
{
    static const char *const names[][2] = {
        {"human", "user"},        {"user", "user"},        {"gpt", "assistant"},          {"assistant", "assistant"},
        {"chatgpt", "assistant"}, {"model", "assistant"},  {"bot", "assistant"},          {"system", "system"},
        {"tool", "tool"},         {"observation", "tool"}, {"function_response", "tool"}, {"developer", "developer"}};
    for (size_t i = 0; from && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], from) == 0)
            return names[i][1];
    return NULL;
}

static enum status shape_conversations(const struct chat_conversation *c, const json_t *object, json_t *messages)
{
    const json_t *turns = json_object_get(object, "conversations"), *turn;
    size_t i;
    if (!json_is_array(turns))
        return chat_refuse(c, "conversations is not a list");
    TRY(add_system(c, object, messages));
    json_array_foreach(turns, i, turn)
    {
        const json_t *from = json_object_get(turn, "from"), *value = json_object_get(turn, "value");
        if (!from && json_object_get(turn, "role")) { /* messages under another name */
            json_array_append(messages, (json_t *)turn);
            continue;
        }
        if (!json_is_string(from))
            return chat_refuse(c, "turn %zu has no \"from\"", i + 1);
        if (!speaker(json_string_value(from)))
            return chat_refuse(c, "turn %zu is from '%.40s': known are human, gpt, system and tool", i + 1,
                               json_string_value(from));
        if (!json_is_string(value))
            return chat_refuse(c, "turn %zu has no \"value\"", i + 1);
        add(messages, speaker(json_string_value(from)), value);
        if (json_object_get(turn, "weight"))
            json_object_set(json_array_get(messages, json_array_size(messages) - 1), "weight", json_object_get(turn, "weight"));
    }
    return OK;
}

/* A string said by `role`, or a list of messages. */
static enum status add_side(const struct chat_conversation *c, const json_t *object, const char *key, const char *role,
                            json_t *messages)
{
    const json_t *side = json_object_get(object, key);
    if (json_is_string(side))
        add(messages, role, side);
    else if (json_is_array(side))
        json_array_extend(messages, (json_t *)side);
    else
        return chat_refuse(c, "%s is neither a string nor a list of messages", key);
    return OK;
}

static enum status shape_alpaca(const struct chat_conversation *c, const json_t *object, json_t *messages)
{
    const json_t *instruction = json_object_get(object, "instruction"), *input = json_object_get(object, "input");
    const json_t *output = json_object_get(object, "output"), *history = json_object_get(object, "history"), *pair;
    size_t i;
    if (!json_is_string(instruction) || !json_is_string(output) || (input && !json_is_null(input) && !json_is_string(input)))
        return chat_refuse(c, "instruction, input and output must be strings");
    if (history && !json_is_null(history) && !json_is_array(history))
        return chat_refuse(c, "history is not a list of pairs");
    TRY(add_system(c, object, messages));
    json_array_foreach(history, i, pair)
    {
        if (!json_is_string(json_array_get(pair, 0)) || !json_is_string(json_array_get(pair, 1)))
            return chat_refuse(c, "pair %zu of history is not two strings", i + 1);
        add(messages, "user", json_array_get(pair, 0));
        add(messages, "assistant", json_array_get(pair, 1));
    }
    if (json_string_length(input) > 0) {
        json_t *both = json_pack("s%++%", json_string_value(instruction), json_string_length(instruction), "\n\n", json_string_value(input),
                                 json_string_length(input));
        add(messages, "user", both);
        json_decref(both);
    } else {
        add(messages, "user", instruction);
    }
    add(messages, "assistant", output);
    return OK;
}

int chat_has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

int chat_is_conversation(const json_t *object)
{
    return chat_has(object, "messages") || chat_has(object, "conversations") || (chat_has(object, "prompt") && chat_has(object, "completion")) ||
           (chat_has(object, "instruction") && chat_has(object, "output"));
}

static enum status shape(const struct chat_conversation *c, const json_t *object, json_t *messages, size_t *prompt)
{
    const json_t *given = json_object_get(object, "messages");
    if (chat_has(object, "messages")) {
        if (!json_is_array(given))
            return chat_refuse(c, "messages is not a list");
        json_array_extend(messages, (json_t *)given);
        return OK;
    }
    if (chat_has(object, "conversations"))
        return shape_conversations(c, object, messages);
    if (chat_has(object, "prompt")) {
        TRY(add_system(c, object, messages));
        TRY(add_side(c, object, "prompt", "user", messages));
        *prompt = json_array_size(messages);
        return add_side(c, object, "completion", "assistant", messages);
    }
    if (chat_has(object, "instruction"))
        return shape_alpaca(c, object, messages);
    return chat_refuse(c, "no conversation: expected messages, conversations, prompt and completion, or instruction and output");
}

enum status chat_shape(const struct chat_conversation *c, const json_t *object, json_t **messages, size_t *prompt)
{
    json_t *list = json_array();
    if (!list)
        return status_fail(ERR_NOMEM, "no memory for a conversation");
    enum status st = shape(c, object, list, prompt);
    if (st != OK)
        json_decref(list);
    else
        *messages = list;
    return st;
}
