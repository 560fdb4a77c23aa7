/* Arguments of filters, tests, methods and functions, by place or by name. */
#include "chat/jinja/run.h"

#include <string.h>

static int named(const struct jinja_call *call, const char *name)
{
    for (size_t i = 0; name && i < call->n_named; i++)
        if (strcmp(call->names[i], name) == 0)
            return (int)i;
    return -1;
}

int jinja_argument_given(const struct jinja_call *call, int place, const char *name)
{
    return (place >= 0 && (size_t)place < call->n_positional) || named(call, name) >= 0;
}

struct jinja_value jinja_argument(struct jinja_task *task, struct jinja_call *call, int place, const char *name,
                                  struct jinja_value fallback)
{
    int at = named(call, name), by_place = place >= 0 && (size_t)place < call->n_positional;
    if (by_place && at >= 0)
        jinja_fail(task, "argument '%s' is given twice", name);
    if (name && call->n_used < sizeof call->used / sizeof *call->used)
        call->used[call->n_used++] = name;
    return by_place ? call->positional[place] : at >= 0 ? call->named[at] : fallback;
}

void jinja_arguments_end(struct jinja_task *task, const struct jinja_call *call, const char *what, int places)
{
    if (call->n_positional > (size_t)places)
        jinja_fail(task, "%s takes at most %d arguments, %zu are given", what, places, call->n_positional);
    for (size_t i = 0; i < call->n_named; i++) {
        size_t j = 0;
        while (j < call->n_used && strcmp(call->used[j], call->names[i]) != 0)
            j++;
        if (j == call->n_used)
            jinja_fail(task, "%s takes no argument '%s'", what, call->names[i]);
    }
}
