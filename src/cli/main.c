/* ltrain: subcommands and exit statuses. */
#include "cli/settings.h"
#include "engine/train.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: ltrain [train] --model DIR --data PATH --seq-len N [options]\n"
                            "       ltrain plan ...     same options: what lives where and what fits; runs nothing\n"
                            "       ltrain --resume RUN [options]\n\n";

static int exit_status(enum status st)
{
    if (st == OK)
        return 0;
    fflush(stdout);
    fprintf(stderr, "ltrain: %s\n", status_message());
    return st == ERR_INVALID ? 2 : st == ERR_NOFIT ? 3 : 1;
}

static enum status plan_command(struct settings *s)
{
    struct model *model = NULL;
    struct plan *plan = NULL;
    int64_t limit[TIERS];
    TRY(train_plan(s, &model, &plan, limit));
    plan_print(plan, model, stdout);
    if (s->verbose)
        program_print(plan->programs[PLAN_UPDATE_STEP], stdout);
    enum status st = plan->fits ? OK : plan_refuse(plan, model, s, limit);
    plan_destroy(plan);
    model_destroy(model);
    return st;
}

int main(int argc, char **argv)
{
    int first = 1, plan_only = 0, signal_number = 0;
    struct settings s;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            settings_help(stdout);
            return 0;
        }
    if (argc > 1 && argv[1][0] != '-') {
        plan_only = strcmp(argv[1], "plan") == 0;
        if (!plan_only && strcmp(argv[1], "train") != 0) {
            fprintf(stderr, "ltrain: there is no command '%s'; the commands are train and plan\n", argv[1]);
            return 2;
        }
        first = 2;
    }
    enum status st = settings_read(argc - first, argv + first, &s);
    if (st != OK)
        return exit_status(st);
    if (plan_only)
        st = plan_command(&s);
    else
        st = train_run(&s, &(struct train_hooks){.write_config = settings_write_yaml}, &signal_number);
    settings_free(&s);
    if (st == OK && signal_number)
        return 128 + signal_number;
    return exit_status(st);
}
