/* The options, one a line. */
#include "cli/settings_keys.h"

enum { COLUMN = 26 };

void settings_help(FILE *f)
{
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        if (k->flags & KEY_HIDDEN)
            continue;
        if (k->group)
            fprintf(f, "%s%s:\n", i ? "\n" : "", k->group);
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
    fputs("\nEvery option but config and resume is also a key of the YAML file; options win over the file. Lengths take k, m "
          "(1024);\n"
          "bytes take K, M, G, T. Lists are separated by commas or given by repeating the option.\n",
          f);
}
