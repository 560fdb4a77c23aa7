/* Walking the items of {% for %}, and the variable `loop`. */
#include "chat/jinja/run.h"

#include <string.h>

static int look_ahead(struct jinja_run *run, struct jinja_loop *loop)
{
    while (!loop->has_ahead && loop->at < loop->items->n) {
        struct jinja_value item = loop->items->items[loop->at++];
        jinja_step(run->task, 1);
        if (loop->filtered && !run->accepts(run, loop, item))
            continue;
        loop->ahead = item;
        loop->has_ahead = 1;
    }
    return loop->has_ahead;
}

int jinja_loop_next(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *item)
{
    if (!look_ahead(run, loop))
        return 0;
    loop->has_ahead = 0;
    loop->before = loop->current;
    *item = loop->current = loop->ahead;
    loop->index0++;
    return 1;
}

/* Counts the loop's items; those not walked yet are tested by the loop's condition for this. */
static int64_t count(struct jinja_run *run, struct jinja_loop *loop)
{
    if (loop->length >= 0)
        return loop->length;
    if (loop->filtered) {
        struct jinja_list *rest = jinja_list_new(run->task);
        for (; loop->at < loop->items->n; loop->at++)
            if (run->accepts(run, loop, loop->items->items[loop->at]))
                jinja_list_add(run->task, rest, loop->items->items[loop->at]);
        loop->items = rest;
        loop->at = 0;
        loop->filtered = 0;
        return loop->length = loop->index0 + 1 + (int64_t)rest->n + loop->has_ahead;
    }
    return loop->length = (int64_t)loop->items->n;
}

struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop, const char *name)
{
    if (strcmp(name, "index") == 0)
        return jinja_int(loop->index0 + 1);
    if (strcmp(name, "index0") == 0)
        return jinja_int(loop->index0);
    if (strcmp(name, "first") == 0)
        return jinja_bool(loop->index0 == 0);
    if (strcmp(name, "last") == 0)
        return jinja_bool(!look_ahead(run, loop));
    if (strcmp(name, "length") == 0)
        return jinja_int(count(run, loop));
    if (strcmp(name, "revindex") == 0)
        return jinja_int(count(run, loop) - loop->index0);
    if (strcmp(name, "revindex0") == 0)
        return jinja_int(count(run, loop) - loop->index0 - 1);
    if (strcmp(name, "previtem") == 0)
        return loop->index0 == 0 ? jinja_undefined("loop.previtem") : loop->before;
    if (strcmp(name, "nextitem") == 0)
        return look_ahead(run, loop) ? loop->ahead : jinja_undefined("loop.nextitem");
    if (strcmp(name, "depth") == 0)
        return jinja_int(loop->depth0 + 1);
    if (strcmp(name, "depth0") == 0)
        return jinja_int(loop->depth0);
    if (strcmp(name, "cycle") == 0 || strcmp(name, "changed") == 0) {
        struct jinja_method *method = jinja_take(run->task, sizeof *method);
        *method = (struct jinja_method){.self = {.kind = JINJA_LOOP, .loop = loop}, .name = name};
        return (struct jinja_value){.kind = JINJA_METHOD, .method = method};
    }
    return jinja_undefined(name);
}
