/* The options, one a line. */
#include "cli/settings_keys.h"

#include "base/prose.h"

#include <string.h>

enum { COLUMN = 26 };

static void print_key(const struct settings_key *k, FILE *f)
{
    char name[64], choices[128] = "", value[64] = "";
    snprintf(name, sizeof name, "--%s%s%s", k->name, k->arg ? " " : "", k->arg ? k->arg : "");
    for (int c = 0; k->choices && k->choices[c]; c++) {
        size_t n = strlen(choices);
        snprintf(choices + n, sizeof choices - n, "%s%s", c ? ", " : ": ", k->choices[c]);
    }
    if (k->value && k->type != KEY_SWITCH)
        snprintf(value, sizeof value, " (%s)", k->value);
    else if (k->flags & KEY_REQUIRED)
        snprintf(value, sizeof value, " (required)");
    prose_print(f, COLUMN, "  %-*s %s%s%s", COLUMN - 3, name, k->help, choices, value);
}

void settings_help(enum settings_use use, FILE *f)
{
    const char *group = NULL;
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        group = k->group ? k->group : group;
        if ((k->flags & KEY_HIDDEN) || (use == SETTINGS_PLAN && (k->flags & KEY_OF_RUNS)))
            continue;
        if (group)
            fprintf(f, "%s%s:\n", i ? "\n" : "", group);
        group = NULL;
        print_key(k, f);
    }
    prose_print(
        f, 0,
        "\nEvery option but --config and --resume is also a key of the YAML file, without the dashes; options win over the "
        "file. Lengths take k, m (1024); bytes take K, M, G, T. Lists are separated by commas or given by repeating the "
        "option.");
}
