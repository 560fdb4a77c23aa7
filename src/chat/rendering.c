/* The variables of a render, with their marks, and the render itself. */
#include "chat/rendering.h"

#include "chat/jinja/run.h"

#include <stdlib.h>
#include <string.h>

/* Default limits of a render: bytes, and steps of 0.1 us each, so that an endless template is stopped after two seconds. */
enum { DEFAULT_BYTES = 1 << 28, STEPS_EVER = 20000000, STEPS_A_MESSAGE = 20000 };

struct request {
    const struct chat_template *t;
    const struct chat_conversation *c;
    const struct chat_options *options;
    size_t n;
    int generation_prompt;
    struct chat_rendering *out;
};

static struct jinja_value from_json(struct jinja_task *task, const json_t *v, int32_t mark);

static struct jinja_value text_of(struct jinja_task *task, const char *bytes, size_t n, int32_t mark)
{
    return jinja_of_text(jinja_text(task, bytes, n, mark));
}

static struct jinja_value list_from_json(struct jinja_task *task, const json_t *v, int32_t mark)
{
    struct jinja_list *list = jinja_list_new(task);
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item)
    {
        jinja_list_add(task, list, from_json(task, item, mark));
    }
    return jinja_of_list(JINJA_LIST, list);
}

static struct jinja_value dict_from_json(struct jinja_task *task, const json_t *v, int32_t mark)
{
    struct jinja_dict *dict = jinja_dict_new(task);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        jinja_dict_add(task, dict, text_of(task, key, strlen(key), mark), from_json(task, value, mark));
    }
    return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

static struct jinja_value from_json(struct jinja_task *task, const json_t *v, int32_t mark)
{
    struct jinja_value out;
    jinja_sink(task);
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        out = dict_from_json(task, v, mark);
        break;
    case JSON_ARRAY:
        out = list_from_json(task, v, mark);
        break;
    case JSON_STRING:
        out = text_of(task, json_string_value(v), json_string_length(v), mark);
        break;
    case JSON_INTEGER:
        out = jinja_int((int64_t)json_integer_value(v));
        break;
    case JSON_REAL:
        out = jinja_float(json_real_value(v));
        break;
    case JSON_NULL:
        out = jinja_none();
        break;
    default:
        out = jinja_bool(json_is_true(v));
    }
    jinja_rise(task);
    return out;
}

/* Returns the mark for a member of a message. Only members other than role and name are marked as words. */
static int32_t mark_of(const struct request *r, size_t message, const char *key)
{
    int32_t mark = MARK_MESSAGE + (int32_t)message;
    if (strcmp(key, "role") == 0 || strcmp(key, "name") == 0)
        return mark;
    mark |= MARK_WORDS | (strcmp(key, "tool_calls") == 0 ? MARK_CALLS : 0);
    if (!chat_is_assistant(r->c, message))
        return mark;
    int reasoning = strcmp(key, "reasoning_content") == 0 || strcmp(key, "thinking") == 0 || strcmp(key, "reasoning") == 0;
    return mark | MARK_SAID | (reasoning ? MARK_REASONING : 0);
}

/* Returns the value of a message's key; if it is a content with reasoning inside, that part is marked as reasoning. */
static struct jinja_value value_of(struct jinja_task *task, const struct request *r, size_t message, const char *key,
                                   const json_t *value)
{
    int32_t mark = mark_of(r, message, key);
    const char *text = json_string_value(value);
    size_t first, end, n = json_string_length(value);
    if (strcmp(key, "content") != 0 || !(mark & MARK_SAID) || !chat_find_reasoning(value, &first, &end))
        return from_json(task, value, mark);
    struct jinja_builder b = {.task = task};
    jinja_put_bytes(&b, text, first, mark);
    jinja_put_bytes(&b, text + first, end - first, mark | MARK_REASONING);
    jinja_put_bytes(&b, text + end, n - end, mark);
    return jinja_of_text(jinja_built(&b));
}

static struct jinja_value messages_of(struct jinja_task *task, const struct request *r)
{
    struct jinja_list *list = jinja_list_new(task);
    if (r->n > MARK_ORIGIN - MARK_MESSAGE)
        jinja_fail(task, "a conversation of %zu messages is too long", r->n);
    for (size_t i = 0; i < r->n; i++) {
        struct jinja_dict *dict = jinja_dict_new(task);
        const char *key;
        json_t *value;
        json_object_foreach(json_array_get(r->c->messages, i), key, value)
        {
            jinja_dict_add(task, dict, text_of(task, key, strlen(key), mark_of(r, i, key)), value_of(task, r, i, key, value));
        }
        jinja_list_add(task, list, (struct jinja_value){.kind = JINJA_DICT, .dict = dict});
    }
    return jinja_of_list(JINJA_LIST, list);
}

/* Returns the value of a variable that the caller gives, or undefined. */
static struct jinja_value variable(struct jinja_task *task, const struct request *r, const char *name)
{
    const json_t *given = json_object_get(r->c->variables, name);
    const char *token = chat_template_token(r->t, name);
    given = given ? given : json_object_get(r->options->variables, name);
    if (strcmp(name, "messages") == 0)
        return messages_of(task, r);
    if (strcmp(name, "add_generation_prompt") == 0)
        return jinja_bool(r->generation_prompt);
    if (strcmp(name, "tools") == 0)
        return r->c->tools ? from_json(task, r->c->tools, MARK_DATA) : jinja_none();
    if (given)
        return from_json(task, given, MARK_DATA);
    if (token)
        return text_of(task, token, strlen(token), MARK_TEMPLATE);
    return strcmp(name, "documents") == 0 ? jinja_none() : jinja_undefined(name);
}

static int id_of(const struct jinja_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i], name) == 0)
            return (int)i;
    return -1;
}

static void render(struct jinja_task *task, void *arg)
{
    struct request *r = arg;
    const struct jinja_names *names = &r->t->names;
    struct jinja_builder out = {.task = task};
    struct jinja_run run = {.task = task,
                            .names = names,
                            .out = &out,
                            .now = r->options->now,
                            .varargs = id_of(names, "varargs"),
                            .kwargs = id_of(names, "kwargs"),
                            .caller = id_of(names, "caller"),
                            .loop = id_of(names, "loop")};
    task->line = 1;
    run.variables = jinja_take(task, (names->n + 1) * sizeof *run.variables);
    for (size_t i = 0; i < names->n; i++)
        run.variables[i] = variable(task, r, names->at[i]);
    jinja_exec(&run, r->t->first);
    r->out->text = jinja_built(&out);
}

enum status chat_rendering_make(const struct chat_template *t, const struct chat_conversation *c,
                                const struct chat_options *options, size_t n, int generation_prompt, struct chat_rendering *out)
{
    struct request r = {.t = t, .c = c, .options = options, .n = n, .generation_prompt = generation_prompt, .out = out};
    jinja_task_start(&out->task, t->name, options->max_bytes ? options->max_bytes : DEFAULT_BYTES,
                     options->max_steps ? options->max_steps : STEPS_EVER + (int64_t)n * STEPS_A_MESSAGE);
    enum status st = jinja_task_run(&out->task, render, &r);
    if (st != OK)
        chat_rendering_end(out);
    return st;
}

void chat_rendering_end(struct chat_rendering *r)
{
    jinja_task_end(&r->task);
    r->text = NULL;
}
