/* Functions that every template may call. */
#include "chat/jinja/run.h"

#include <string.h>
#include <time.h>

enum { MAX_RANGE = 100000 }; /* most numbers of range(), as in Jinja's sandbox */

static struct jinja_value range(struct jinja_run *run, struct jinja_call *call)
{
    int64_t part[3] = {0, 0, 1};
    struct jinja_list *out = jinja_list_new(run->task);
    if (call->n_positional < 1 || call->n_positional > 3 || call->n_named > 0)
        jinja_fail(run->task, "range() takes one to three numbers");
    for (size_t i = 0; i < call->n_positional; i++)
        part[i] = jinja_need_int(run->task, call->positional[i], "range()'s argument");
    if (call->n_positional == 1) {
        part[1] = part[0];
        part[0] = 0;
    }
    if (part[2] == 0)
        jinja_fail(run->task, "range()'s step is 0");
    for (int64_t i = part[0]; part[2] > 0 ? i < part[1] : i > part[1];) {
        if (out->n == MAX_RANGE)
            jinja_fail(run->task, "range() gives more than %d numbers", MAX_RANGE);
        jinja_list_add(run->task, out, jinja_int(i));
        if (__builtin_add_overflow(i, part[2], &i))
            break;
    }
    return jinja_of_list(JINJA_RANGE, out);
}

/* Makes a dict from another dict, or from pairs, and from named values: dict(other, a=1). */
static struct jinja_dict *make_dict(struct jinja_run *run, struct jinja_call *call, const char *what)
{
    struct jinja_dict *out = jinja_dict_new(run->task);
    if (call->n_positional > 1)
        jinja_fail(run->task, "%s takes one argument without a name", what);
    if (call->n_positional == 1 && call->positional[0].kind == JINJA_DICT) {
        const struct jinja_dict *other = call->positional[0].dict;
        for (size_t i = 0; i < other->n; i++)
            jinja_dict_add(run->task, out, other->keys[i], other->values[i]);
    } else if (call->n_positional == 1) {
        struct jinja_list *pairs = jinja_items(run->task, call->positional[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            struct jinja_list *pair = jinja_items(run->task, pairs->items[i]);
            if (pair->n != 2)
                jinja_fail(run->task, "%s takes pairs", what);
            jinja_dict_set(run->task, out, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < call->n_named; i++)
        jinja_dict_set(run->task, out, jinja_of_text(jinja_literal(run->task, call->names[i])), call->named[i]);
    return out;
}

static struct jinja_value dict(struct jinja_run *run, struct jinja_call *call)
{
    return (struct jinja_value){.kind = JINJA_DICT, .dict = make_dict(run, call, "dict()")};
}

static struct jinja_value namespace(struct jinja_run *run, struct jinja_call *call)
{
    return (struct jinja_value){.kind = JINJA_NAMESPACE, .dict = make_dict(run, call, "namespace()")};
}

static struct jinja_value raise_exception(struct jinja_run *run, struct jinja_call *call)
{
    const struct jinja_text *why = jinja_string(run->task, jinja_argument(run->task, call, 0, "message", jinja_none()));
    jinja_fail(run->task, "the template refuses the conversation: %.*s", (int)(why->n > 400 ? 400 : why->n), why->bytes);
}

static struct jinja_value strftime_now(struct jinja_run *run, struct jinja_call *call)
{
    const struct jinja_text *format =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, "format", jinja_none()), "a date's format");
    time_t now = run->now ? (time_t)run->now : time(NULL);
    struct tm parts;
    char out[512];
    if (!(run->now ? gmtime_r(&now, &parts) : localtime_r(&now, &parts)))
        jinja_fail(run->task, "the date %lld has no calendar", (long long)now);
    size_t n = format->n < 128 ? strftime(out, sizeof out, jinja_copy(run->task, format->bytes, format->n), &parts) : 0;
    if (n == 0 && format->n > 0)
        jinja_fail(run->task, "a date's format is too long or empty");
    return jinja_of_text(jinja_text(run->task, out, n, MARK_TEMPLATE));
}

static const struct {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *, struct jinja_call *);
} globals[] = {{"range", range},
               {"dict", dict},
               {"namespace", namespace},
               {"raise_exception", raise_exception},
               {"strftime_now", strftime_now},
               {"lipsum", NULL},
               {"cycler", NULL},
               {"joiner", NULL}};

int jinja_is_global(const char *name)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strcmp(globals[i].name, name) == 0)
            return 1;
    return 0;
}

struct jinja_value jinja_call_global(struct jinja_run *run, const char *name, struct jinja_call *call)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (globals[i].call && strcmp(globals[i].name, name) == 0)
            return globals[i].call(run, call);
    jinja_fail(run->task, "%s() is not supported", name);
}
