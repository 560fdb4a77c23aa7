/* Scopes: names and their values. */
#include "chat/jinja/run.h"

#include <string.h>

struct jinja_scope *jinja_scope_new(struct jinja_run *run, struct jinja_scope *outer)
{
    struct jinja_scope *scope = jinja_take(run->task, sizeof *scope);
    scope->outer = outer;
    return scope;
}

void jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope, int id, struct jinja_value v)
{
    for (size_t i = 0; i < scope->n; i++)
        if (scope->ids[i] == id) {
            scope->values[i] = v;
            return;
        }
    scope->ids = jinja_grow(run->task, scope->ids, scope->n, 1, sizeof id, &scope->room);
    scope->values = jinja_grow(run->task, scope->values, scope->n, 1, sizeof v, &scope->values_room);
    scope->ids[scope->n] = id;
    scope->values[scope->n++] = v;
}

struct jinja_value jinja_look_up(struct jinja_run *run, int id)
{
    for (const struct jinja_scope *s = run->scope; s; s = s->outer)
        for (size_t i = 0; i < s->n; i++)
            if (s->ids[i] == id)
                return s->values[i];
    if (run->variables[id].kind != JINJA_UNDEFINED)
        return run->variables[id];
    const char *name = run->names->at[id];
    if (jinja_is_global(name))
        return (struct jinja_value){.kind = JINJA_GLOBAL, .name = name};
    if (strcmp(name, "self") == 0)
        jinja_fail(run->task, "self is not supported");
    return jinja_undefined(name);
}
