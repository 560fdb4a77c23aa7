/* Reading conversations written as messages, as ShareGPT's conversations, as prompt and completion, or as Alpaca's triples. */
#include "chat/shapes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define CALLER "caller" /* role of ShareGPT's function_call: an assistant whose text is a tool call */

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

/* Returns the role that a ShareGPT speaker's name stands for, capitals or not; NULL: the name is unknown. */
static const char *speaker(const char *from)
{
    static const char *const names[][2] = {
        {"human", "user"},          {"user", "user"},          {"prompter", "user"},          {"gpt", "assistant"},
        {"assistant", "assistant"}, {"chatgpt", "assistant"},  {"model", "assistant"},        {"bot", "assistant"},
        {"function_call", CALLER},  {"tool_call", CALLER},     {"system", "system"},          {"tool", "tool"},
        {"observation", "tool"},    {"tool_response", "tool"}, {"function_response", "tool"}, {"developer", "developer"}};
    for (size_t i = 0; from && i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i][0], from) == 0)
            return names[i][1];
    return NULL;
}

/* Makes tool_calls from a turn's text, which is a call {"name", "arguments"} or a list of such calls, as LLaMA-Factory writes
 * them. */
static enum status take_calls(const struct chat_conversation *c, size_t i, const json_t *value, json_t *message)
{
    size_t k;
    json_t *call, *list = json_array(),
                  *said = json_loadb(json_string_value(value), json_string_length(value), JSON_ALLOW_NUL, NULL);
    if (json_is_object(said))
        said = json_pack("[o]", said);
    json_array_foreach(said, k, call)
    {
        if (json_is_string(json_object_get(call, "name")))
            json_array_append_new(list, json_pack("{s:s, s:O}", "type", "function", "function", call));
    }
    const int good = json_array_size(said) > 0 && json_array_size(list) == json_array_size(said);
    json_decref(said);
    json_object_set_new(message, "tool_calls", list);
    json_object_del(message, "content");
    return good ? OK : chat_refuse(c, "turn %zu is a call of a tool and no JSON of a \"name\" and \"arguments\"", i + 1);
}

/* Takes a ShareGPT turn as a message: renames "from" and "value", and keeps all other members. */
static enum status take_turn(const struct chat_conversation *c, size_t i, const json_t *turn, json_t *messages)
{
    const json_t *from = json_object_get(turn, "from"), *value = json_object_get(turn, "value"),
                 *role = json_object_get(turn, "role");
    if (!json_is_string(from))
        return chat_refuse(c, "turn %zu has no \"from\"", i + 1);
    const char *who = speaker(json_string_value(from));
    if (!who)
        return chat_refuse(c, "turn %zu is from '%.40s': known are human, gpt, system, tool and function_call", i + 1,
                           json_string_value(from));
    const int calls = strcmp(who, CALLER) == 0;
    who = calls ? "assistant" : who;
    if (json_is_string(role) && strcmp(json_string_value(role), who) != 0)
        return chat_refuse(c, "turn %zu is from '%.40s', and its role is '%.40s'", i + 1, json_string_value(from),
                           json_string_value(role));
    if (!json_is_string(value) &&
        (calls || chat_has(turn, "value") || !(chat_has(turn, "tool_calls") || chat_has(turn, "reasoning_content"))))
        return chat_refuse(c, "turn %zu has no \"value\"", i + 1);
    if (chat_has(turn, "content") && !(json_is_string(value) && json_equal(value, json_object_get(turn, "content"))))
        return chat_refuse(c, "turn %zu has a \"value\" and a \"content\": write one of them", i + 1);
    json_t *message = json_copy((json_t *)turn);
    json_object_del(message, "from");
    json_object_del(message, "value");
    json_object_set_new(message, "role", json_string(who));
    if (json_is_string(value))
        json_object_set(message, "content", (json_t *)value);
    if (json_array_append_new(messages, message) != 0)
        return status_fail(ERR_NOMEM, "no memory for a conversation");
    return calls ? take_calls(c, i, value, message) : OK;
}

static enum status shape_conversations(const struct chat_conversation *c, const json_t *object, json_t *messages)
{
    const json_t *turns = json_object_get(object, "conversations"), *turn;
    size_t i;
    if (!json_is_array(turns))
        return chat_refuse(c, "conversations is not a list");
    json_array_foreach(turns, i, turn)
    {
        if (!json_object_get(turn, "from") && json_object_get(turn, "role")) /* messages in OpenAI's form, under ShareGPT's key */
            json_array_append(messages, (json_t *)turn);
        else
            TRY(take_turn(c, i, turn, messages));
    }
    return OK;
}

/* Adds the messages of a member that is a string, said by `role`, or a list of messages. */
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
    json_array_foreach(history, i, pair)
    {
        if (!json_is_string(json_array_get(pair, 0)) || !json_is_string(json_array_get(pair, 1)))
            return chat_refuse(c, "pair %zu of history is not two strings", i + 1);
        add(messages, "user", json_array_get(pair, 0));
        add(messages, "assistant", json_array_get(pair, 1));
    }
    if (json_string_length(input) > 0) {
        json_t *both = json_pack("s%++%", json_string_value(instruction), json_string_length(instruction), "\n\n",
                                 json_string_value(input), json_string_length(input));
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
    return chat_has(object, "messages") || chat_has(object, "conversations") ||
           (chat_has(object, "prompt") && chat_has(object, "completion")) ||
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
    if (chat_has(object, "prompt") && !(chat_has(object, "instruction") && !chat_has(object, "completion"))) {
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
