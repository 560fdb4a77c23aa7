#include "api/options.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Moves both ends of [*from, *to) to the text between blanks. */
static void trim(const char **from, const char **to)
{
    static const char blanks[] = " \t\r";
    while (*from < *to && strchr(blanks, **from))
        ++*from;
    while (*to > *from && strchr(blanks, (*to)[-1]))
        --*to;
}

static enum status refuse_line(int number, const char *from, const char *to)
{
    return status_fail(ERR_INVALID, "settings, line %d: '%.*s' is no line such as \"seq-len = 4096\"", number,
                       (int)(to - from < 64 ? to - from : 64), from);
}

/* Adds the option of a line, if there is one. */
static enum status add_line(struct api_options *x, int number, const char *from, const char *to)
{
    trim(&from, &to);
    if (from == to || *from == '#')
        return OK;
    const char *equals = memchr(from, '=', (size_t)(to - from)), *name_end = equals, *value = equals ? equals + 1 : NULL;
    if (!equals)
        return refuse_line(number, from, to);
    trim(&from, &name_end);
    trim(&value, &to);
    if (from == name_end || strncmp(from, "--", 2) == 0)
        return refuse_line(number, from, to);
    if (asprintf(&x->option[x->n], "--%.*s=%.*s", (int)(name_end - from), from, (int)(to - value), value) < 0)
        return status_fail(ERR_NOMEM, "out of memory: the settings of a session");
    x->n++;
    return OK;
}

enum status api_options_read(const char *text, struct api_options *out)
{
    int lines = 1, number = 1;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    *out = (struct api_options){.option = sys_calloc((size_t)lines, sizeof *out->option)};
    enum status st = out->option ? OK : status_fail(ERR_NOMEM, "out of memory: the settings of a session");
    for (const char *from = text; st == OK && *from; number++) {
        const char *to = from + strcspn(from, "\n");
        st = add_line(out, number, from, to);
        from = to + (*to != 0);
    }
    if (st != OK)
        api_options_free(out);
    return st;
}

void api_options_free(struct api_options *x)
{
    for (int i = 0; i < x->n; i++)
        free(x->option[i]);
    free(x->option);
    *x = (struct api_options){.n = 0};
}
