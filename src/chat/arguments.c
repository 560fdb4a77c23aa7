/* Arguments of tool calls, which are JSON text in OpenAI's API and objects in most templates. */
#include "chat/rendering.h"
#include "chat/shapes.h"

#include <string.h>

/* ---- the forms that a template takes ---- */

#define PROBE(arguments)                                                                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": "    \
    "\"123456789\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments                                     \
    "}}]}, {\"role\": \"tool\", \"name\": "                                                                                                \
    "\"f\", \"tool_call_id\": \"123456789\", \"content\": \"R\"}, {\"role\": \"assistant\", \"content\": \"A\"}], \"tools\": [{\"type\": " \
    "\"function\", \"function\": {\"name\": \"f\", \"description\": \"D\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]}"

/* Tells whether the template renders the conversation `json` to a text that contains `has` and does not contain `has_not`. */
static int writes(const struct chat_template *t, const struct chat_options *options, const char *json, const char *has,
                  const char *has_not)
{
    struct chat_conversation *c = NULL;
    struct chat_rendering r;
    int yes = 0;
    if (chat_read(json, strlen(json), "", 1, &c) != OK)
        return 0;
    if (chat_rendering_make(t, c, options, (size_t)chat_messages(c), 0, &r) == OK) {
        yes = memmem(r.text->bytes, r.text->n, has, strlen(has)) && !memmem(r.text->bytes, r.text->n, has_not, strlen(has_not));
        chat_rendering_end(&r);
    }
    chat_destroy(c);
    return yes;
}

unsigned chat_template_takes_arguments(const struct chat_template *t, const struct chat_options *options)
{
    /* a key in single quotes is an object printed by Python, not as JSON */
    const int objects = writes(t, options, PROBE("{\"akey\": \"avalue\"}"), "avalue", "'akey'");
    const int texts = writes(t, options, PROBE("\"{\\\"akey\\\": \\\"avalue\\\"}\""), "{\"akey\": \"avalue\"}", "\\\"akey");
    return (objects ? CHAT_ARGUMENTS_OBJECTS : 0) | (texts ? CHAT_ARGUMENTS_TEXTS : 0);
}

/* ---- the forms that it is given ---- */

static enum status take_call(const struct chat_conversation *c, size_t i, json_t *holder, unsigned takes, int64_t *changed)
{
    json_t *arguments = json_object_get(holder, "arguments"), *object;
    if (json_is_object(arguments) && takes == CHAT_ARGUMENTS_TEXTS)
        return chat_refuse(
            c,
            "a call in message %zu has arguments that are an object, of which the chat template writes no JSON: give them as text, \"arguments\": "
            "\"{...}\"",
            i + 1);
    if (!json_is_string(arguments) || !(takes & CHAT_ARGUMENTS_OBJECTS))
        return OK;
    const char *text = json_string_value(arguments);
    object = text[strspn(text, " \t\r\n")]
                 ? json_loadb(text, json_string_length(arguments), JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL)
                 : json_object();
    if (json_is_object(object)) {
        ++*changed;
        return json_object_set_new(holder, "arguments", object) == 0 ? OK
                                                                     : status_fail(ERR_NOMEM, "no memory for a conversation");
    }
    json_decref(object);
    if (takes & CHAT_ARGUMENTS_TEXTS)
        return OK;
    return chat_refuse(
        c,
        "a call in message %zu has arguments that are neither an object nor the text of a JSON object, and the chat template takes no other",
        i + 1);
}

enum status chat_take_arguments(struct chat_conversation *c, unsigned takes, int64_t *changed)
{
    size_t i, k;
    json_t *m, *call;
    *changed = 0;
    json_array_foreach(c->messages, i, m)
    {
        json_array_foreach(json_object_get(m, "tool_calls"), k, call)
        {
            json_t *function = json_object_get(call, "function");
            TRY(take_call(c, i, json_is_object(function) ? function : call, takes, changed));
        }
    }
    return OK;
}
