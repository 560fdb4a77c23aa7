/* Printing the options, one a line. */
#include "settings/keys.h"

#include "base/prose.h"

#include <string.h>

enum { COLUMN = 26 };

static void print_key(const struct settings_key *k, enum settings_use use, FILE *f)
{
    char name[64], choices[128] = "", value[64] = "";
    snprintf(name, sizeof name, "--%s%s%s", k->name, k->arg ? " " : "", k->arg ? k->arg : "");
    for (int c = 0; k->choices && k->choices[c]; c++) {
        size_t n = strlen(choices);
        snprintf(choices + n, sizeof choices - n, "%s%s", c ? ", " : ": ", k->choices[c]);
    }
    if (k->value && k->type != KEY_SWITCH)
        snprintf(value, sizeof value, " (%s)", k->value);
    else if (k->required & use)
        snprintf(value, sizeof value, " (required)");
    prose_print(f, COLUMN, "  %-*s %s%s%s", COLUMN - 3, name, k->help, choices, value);
}

/* Lists the options of the command line that a file cannot have: "--config, --resume". */
static const char *no_keys(enum settings_use use, char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < settings_n_keys; i++) {
        size_t n = strlen(text);
        if ((settings_keys[i].shown & use) && (settings_keys[i].flags & KEY_FLAG_ONLY))
            snprintf(text + n, size - n, "%s--%s", n ? ", " : "", settings_keys[i].name);
    }
    return text;
}

void settings_help(enum settings_use use, FILE *f)
{
    char exceptions[512];
    const char *group = NULL;
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        group = k->group ? k->group : group;
        if (!(k->shown & use))
            continue;
        if (group)
            fprintf(f, "%s%s:\n", i ? "\n" : "", group);
        group = NULL;
        print_key(k, use, f);
    }
    prose_print(f, 0,
                "\nEvery option is also a key of the YAML file, without the dashes, but for %s; options win over the file. "
                "Lengths take k, m (1024); bytes take K, M, G, T. Lists are separated by commas or given by repeating the "
                "option.",
                no_keys(use, exceptions, sizeof exceptions));
}
