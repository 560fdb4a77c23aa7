/* Options of a command line: parsing them once, and reading those that are needed before the settings are read. */
#include "settings/flags.h"

#include "base/sys.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status parse_flag(int argc, char **argv, int *at, const struct settings_key *previous, struct flag *out)
{
    const char *arg = argv[*at], *equals = strchr(arg, '=');
    char name[64];
    if (strncmp(arg, "--", 2) != 0 || !arg[2]) {
        if (previous && previous->type == KEY_LIST)
            return status_fail(ERR_INVALID,
                               "unexpected argument '%s'; several values of --%s are separated by commas (quote globs)", arg,
                               previous->name);
        if (previous && previous->type == KEY_SWITCH)
            return status_fail(ERR_INVALID, "unexpected argument '%s': --%s takes no value", arg, previous->name);
        return status_fail(ERR_INVALID, "unexpected argument '%s'; options are written --key value", arg);
    }
    int length = (int)(equals ? equals - arg : (ptrdiff_t)strlen(arg)) - 2;
    snprintf(name, sizeof name, "%.*s", length, arg + 2);
    const struct settings_key *k = length < (int)sizeof name ? settings_key_find(name) : NULL;
    if (!k) {
        const char *near = settings_key_suggest(name);
        return status_fail(ERR_INVALID, "unknown option --%s; %s%s%s", name,
                           near ? "did you mean --" : "ltrain --help lists those there are", near ? near : "", near ? "?" : "");
    }
    *out = (struct flag){k, equals ? equals + 1 : "true"};
    if (equals || k->type == KEY_SWITCH)
        return OK;
    if (*at + 1 == argc)
        return status_fail(ERR_INVALID, "--%s needs a value", k->name);
    if (strncmp(argv[*at + 1], "--", 2) == 0)
        return status_fail(ERR_INVALID, "--%s needs a value, but %s follows", k->name, argv[*at + 1]);
    out->value = argv[++*at];
    return OK;
}

enum status settings_flags_parse(int argc, char **argv, struct settings_flags **out)
{
    struct settings_flags *f = sys_calloc(1, sizeof *f + (size_t)argc * sizeof *f->flag);
    enum status st = OK;
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory");
    for (int i = 0; i < argc && st == OK; i++) {
        st = parse_flag(argc, argv, &i, f->n ? f->flag[f->n - 1].key : NULL, &f->flag[f->n]);
        f->n++;
    }
    if (st != OK) {
        snprintf(f->fault, sizeof f->fault, "%s", status_message());
        f->n = 0;
    }
    *out = f;
    return OK;
}

void settings_flags_free(struct settings_flags *f)
{
    free(f);
}

void settings_flags_take_no_data(struct settings_flags *f)
{
    f->without_data = 1;
}

const char *flag_value(const struct settings_flags *f, const char *name)
{
    for (int i = f->n - 1; i >= 0; i--)
        if (strcmp(f->flag[i].key->name, name) == 0)
            return f->flag[i].value;
    return NULL;
}

enum status settings_launch(const struct settings_flags *f, int *rank, int *size, int *local_rank)
{
    static const char *const names[] = {"rank", "world-size", "local-rank"};
    int *const fields[] = {rank, size, local_rank};
    struct settings unused;
    *rank = *size = *local_rank = -1;
    for (int i = 0; i < 3; i++) {
        const char *text = flag_value(f, names[i]);
        char where[32];
        int64_t x;
        if (!text)
            continue;
        snprintf(where, sizeof where, "--%s", names[i]);
        TRY(settings_key_set(settings_key_find(names[i]), where, text, &unused));
        TRY(units_parse_count(where, text, &x));
        *fields[i] = (int)x;
    }
    return OK;
}

double settings_patience(const struct settings_flags *f, const char *key)
{
    const struct settings_key *k = settings_key_find(key);
    struct settings s = {0};
    double seconds;
    const char *text = flag_value(f, k->name);
    if (!text || settings_key_set(k, k->name, text, &s) != OK)
        seconds = strtod(k->value, NULL);
    else
        memcpy(&seconds, (const char *)&s + k->offset, sizeof seconds);
    return seconds;
}

int settings_given(const struct settings_flags *f, const char *key)
{
    return flag_value(f, key) != NULL;
}
