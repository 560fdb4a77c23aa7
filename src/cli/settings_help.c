/* The options, one a line. */
#include "cli/settings_keys.h"

enum { COLUMN = 26 };

static void print_key(const struct settings_key *k, FILE *f)
{
    int width = fprintf(f, "  --%s%s%s", k->name, k->arg ? " " : "", k->arg ? k->arg : "");
    fprintf(f, "%*s%s", width < COLUMN ? COLUMN - width : 1, "", k->help);
    if (k->choices)
        for (int c = 0; k->choices[c]; c++)
            fprintf(f, "%s%s", c ? ", " : ": ", k->choices[c]);
    if (k->value && k->type != KEY_SWITCH)
        fprintf(f, " (%s)", k->value);
    else if (k->flags & KEY_REQUIRED)
        fputs(" (required)", f);
    putc('\n', f);
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
    fputs("\nEvery option but --config and --resume is also a key of the YAML file, without the dashes; options win over the "
          "file. Lengths take k, m "
          "(1024);\n"
          "bytes take K, M, G, T. Lists are separated by commas or given by repeating the option.\n",
          f);
}
