/* The table of commands: keys, help and what runs. */
#include "cli/commands.h"

#include "base/num.h"
#include "base/prose.h"
#include "base/watch.h"
#include "check/check.h"
#include "cli/build.h"
#include "cli/doctor.h"
#include "cli/export.h"
#include "cli/plan.h"
#include "cli/ranks.h"
#include "cli/replay.h"
#include "cli/report.h"
#include "cli/tokenize.h"
#include "eval/eval.h"
#include "eval/sample.h"
#include "replay/replay.h"
#include "train/show.h"
#include "train/train.h"
#include "train/walltime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- usage ---- */

static const char plan_usage[] = "usage: ltrain plan --model NAME --seq-len N [options]\n\n"
                                 "Says what lives where, what fits, how long a step takes, what limits it and what\n"
                                 "would help. Runs nothing.\n\n"
                                 "Does it fit? How fast? What is written a day?\n"
                                 "  ltrain plan --model 8b --seq-len 420k --dtype bf16 --machine 2xa100-80\n"
                                 "The longest sequence there:\n"
                                 "  ltrain plan --model 8b --max-seq --dtype bf16 --machine 4xa100-40\n"
                                 "With other memory and drives:\n"
                                 "  ltrain plan --model 8b --seq-len 1m --dtype bf16 --machine h200 --host-mem 2T \\\n"
                                 "              --nvme 4x7GB/s\n"
                                 "On this machine; why it is as it is:\n"
                                 "  ltrain plan --model 1b --seq-len 64k --explain\n"
                                 "On this machine, measured first:\n"
                                 "  ltrain plan --model 1b --seq-len 64k --profile\n\n";

static const char data_usage[] = "usage: ltrain data --model DIR --data PATH [--seq-len N] [options]\n\n"
                                 "Shows documents as text with what is supervised between marks (green on a\n"
                                 "terminal), how long documents are and, with --seq-len, how many tokens are kept,\n"
                                 "dropped and truncated. Other options of training are taken, too.\n\n";

static const char sample_usage[] = "usage: ltrain sample --model DIR [--prompt TEXT] [options]\n\n"
                                   "Reads a text on: --prompt, --prompt-file, or standard input. On a terminal without\n"
                                   "one of these, and with --chat, a conversation by the model's chat template.\n"
                                   "DIR is a Hugging Face directory or a run's. Parameters and the cache of keys and\n"
                                   "values lie where there is room: --offload params=TIER,acts=TIER says where.\n\n";
static const char eval_usage[] = "usage: ltrain eval --model DIR|RUN [--eval-data PATH] [--lengths N,N..M] [options]\n\n"
                                 "Evaluates a model, or the newest one of a run, on a text: that of --eval-data, or what the\n"
                                 "run has held out of its training. Nothing is trained, and parameters and activations may be\n"
                                 "in any tier, on any number of ranks.\n\n"
                                 "  ltrain eval --model runs/mine --lengths 8k..128k\n"
                                 "  ltrain eval --model DIR --eval-data book.txt --lengths 8k..128k --json\n\n"
                                 "Tasks of long contexts are generated and answered, by length and depth:\n\n"
                                 "  ltrain eval --model runs/mine --tasks needle,multikey --lengths 8k..128k\n\n";

static const char replay_usage[] = "usage: ltrain replay RUN [--steps A..B] [options]\n\n"
                                   "Does steps of a run again, from its newest checkpoint before them or from its first\n"
                                   "state, and says of each whether loss and gradient norm have the recorded bits. It\n"
                                   "writes nothing into RUN. Data may lie on any tier and be computed by any number of\n"
                                   "ranks; where that changes the numerics key, the numbers are compared within bounds\n"
                                   "that it says. The exit status is 1 if a step differs.\n\n"
                                   "  --steps A..B           the steps (default: those behind the newest checkpoint)\n\n";

/* ---- running ---- */

#define CHECK_STEPS 3

/* A command under way. */
struct call {
    struct settings *s;
    struct comm *comm;
    const struct command_line *line;
    int signal_number; /* signal that ended the command early; 0: none */
};

/* Returns the command line quoted for a shell; NULL: out of memory. */
static char *command_text(int argc, char **argv)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int i = 1; f && i <= argc; i++) {
        const char *word = i == 1 ? "ltrain" : argv[i - 1];
        const int plain =
            word[0] && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+=,@%") == strlen(word);
        fprintf(f, "%s%s", i > 1 ? " " : "", plain ? "" : "'");
        for (const char *c = word; *c; c++)
            *c == '\'' ? (void)fputs("'\\''", f) : (void)fputc(*c, f);
        fputs(plain ? "" : "'", f);
    }
    return f && fclose(f) == 0 ? text : NULL;
}

static enum status run_train(struct call *x)
{
    char *text = command_text(x->line->argc, x->line->argv);
    enum status st = comm_agree(x->comm, text ? OK : status_fail(ERR_NOMEM, "out of memory"));
    if (st == OK)
        st = train_run(x->s, x->comm,
                       &(struct train_hooks){.write_config = settings_write_yaml, .version = build_version, .command = text},
                       &x->signal_number);
    free(text);
    return st;
}

/* Checks a few steps. A settings file's steps and epochs are meant for a training run, so they are ignored. */
static enum status run_check(struct call *x)
{
    struct settings *s = x->s;
    if (s->resume)
        return status_fail(ERR_INVALID,
                           "--resume %s: ltrain check begins with the model's first state and goes on with no run: give "
                           "--config %s/config.yaml to check a run's settings, and --model for what it has trained",
                           s->resume, s->resume);
    if (s->epochs > 0 && settings_is_typed(s, "epochs"))
        return status_fail(ERR_INVALID,
                           "--epochs is for training, and ltrain check takes a few steps: give --steps, or leave it out");
    return check_run(s, x->comm, settings_is_typed(s, "steps") ? s->plan.steps : CHECK_STEPS);
}

static enum status run_plan(struct call *x)
{
    return plan_command(x->s, x->comm);
}

static enum status run_data(struct call *x)
{
    return show_data(x->s, x->comm);
}

static enum status run_sample(struct call *x)
{
    return sample_run(x->s, x->comm, &x->signal_number);
}

static enum status run_eval(struct call *x)
{
    return eval_run(x->s, x->comm, &x->signal_number);
}

static enum status run_replay(struct call *x)
{
    return replay_run(x->s, x->comm);
}

/* ---- the table ---- */

enum {
    STARTS_RANKS = 1, /* --ranks N starts processes, which run the command */
    TAKES_TEXTS = 2,  /* tokenizer and chat template come from beside an adapter */
    ANSWERS = 4,      /* stdout is for the answer alone */
};

/* clang-format off */
static const struct command {
    const char *name;
    enum settings_use keys;               /* settings that the command takes; 0: none */
    unsigned is;                          /* STARTS_RANKS, ... */
    enum status (*run)(struct call *x);   /* function of a command with settings, on all ranks */
    int (*alone)(int argc, char **argv);  /* function of a command without settings; its result is the exit status */
    const char *usage;                    /* text before the options in the command's help; NULL: the list of all commands */
    const char *summary;                  /* line in the list of commands */
} commands[] = {
    {"train", SETTINGS_TRAIN, STARTS_RANKS, .run = run_train},
    {"plan", SETTINGS_PLAN, 0, .run = run_plan, .usage = plan_usage,
     .summary = "same options: what lives where and what fits; runs nothing"},
    {"check", SETTINGS_TRAIN, STARTS_RANKS, .run = run_check,
     .summary = "same options: whether a few steps (--steps, 3) equal one rank's with everything resident"},
    {"data", SETTINGS_DATA, 0, .run = run_data, .usage = data_usage, .summary = "same options: what would be trained on, as text"},
    {"sample", SETTINGS_SAMPLE, TAKES_TEXTS | ANSWERS, .run = run_sample, .usage = sample_usage,
     .summary = "a text read on, or a chat (ltrain sample --help)"},
    {"eval", SETTINGS_EVAL, STARTS_RANKS | TAKES_TEXTS, .run = run_eval, .usage = eval_usage,
     .summary = "perplexity, loss by position, tasks such as needle (ltrain eval --help)"},
    {"export", 0, 0, .alone = export_command, .summary = "an adapter merged into its base, or alone  (ltrain export --help)"},
    {"doctor", 0, 0, .alone = doctor_command, .summary = "whether this machine is fit to train  (ltrain doctor --help)"},
    {"report", 0, 0, .alone = report_command, .summary = "one HTML file of one or more runs (ltrain report --help)"},
    {"replay", SETTINGS_REPLAY, STARTS_RANKS, .run = run_replay, .usage = replay_usage,
     .summary = "steps of a run done again, compared with what it recorded (ltrain replay --help)"},
    {"compare", 0, 0, .alone = compare_command, .summary = "two runs or checkpoints, bit for bit (ltrain compare --help)"},
    {"tokenize", 0, 0, .alone = tokenize_command, .summary = "text to token ids and back (ltrain tokenize --help)"},
};
/* clang-format on */

enum { COMMANDS = sizeof commands / sizeof *commands };

const struct command *command_find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

enum status command_refuse(const char *name)
{
    char list[160] = "";
    for (int i = 0; i < COMMANDS; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i == 0 ? "" : i == COMMANDS - 1 ? " and " : ", ", commands[i].name);
    }
    return status_fail(ERR_INVALID, "there is no command '%s'; the commands are %s", name, list);
}

int command_runs_alone(const struct command *x, int argc, char **argv, int *code)
{
    if (x->alone)
        *code = x->alone(argc, argv);
    return x->alone != NULL;
}

/* Prints the usage of training and the list of commands. */
static void print_commands(FILE *f)
{
    enum { COLUMN = 27 };
    fputs("usage: ltrain [train] --model DIR --data PATH --seq-len N [options]\n", f);
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].summary)
            prose_print(f, COLUMN, "       ltrain %s ...%*s%s", commands[i].name, 9 - (int)strlen(commands[i].name), "",
                        commands[i].summary);
    fputs("       ltrain --resume RUN [options]\n"
          "       ltrain --ranks N ..., mpiexec -n N ltrain ...,\n"
          "       srun --mpi=pmix ltrain ...:\n"
          "                           several processes\n"
          "       ltrain --version    and what it was built with\n\n",
          f);
}

void command_help(const struct command *x)
{
    if (x->usage)
        fputs(x->usage, stdout);
    else
        print_commands(stdout);
    settings_help(x->keys, stdout);
}

/* Starts the ranks. From here on this process touches no drive, and signals are for the thread that waits for the ranks. */
static enum status start_ranks(const struct settings *s, int with_dashboard, char **argv, int *code)
{
    watch_stop();
    return ranks_start((int)max_i64(1, s->plan.ranks), with_dashboard, argv, s->json ? stderr : stdout, code);
}

/* Tells whether this process shows a run that it starts for that. */
static int shows_dashboard(const struct command *x, const struct settings *s, const struct comm *c)
{
    const char *terminal = getenv("TERM");
    const int moves = terminal && terminal[0] && strcmp(terminal, "dumb") != 0; /* 1: the terminal moves its cursor */
    return s->dashboard && x->run == run_train && comm_size(c) == 1 && isatty(STDOUT_FILENO) && moves && !ranks_are_started();
}

enum status command_run(const struct command *x, struct comm *c, const struct command_line *line, int *code)
{
    struct settings s;
    TRY(train_read_settings(c, line->flags, x->keys, &s));
    watch_set_timeouts(s.drive_timeout, s.device_timeout);
    FILE *notes = s.json || (x->is & ANSWERS) ? stderr : stdout;
    const char *instead = "give the model's directory by --model, and the adapter by --adapter";
    const int with_dashboard = shows_dashboard(x, &s, c);
    const int passes_on = /* the ranks print the notes */
        with_dashboard || (comm_size(c) == 1 && s.plan.ranks > 1 && (x->is & STARTS_RANKS));
    struct call call = {.s = &s, .comm = c, .line = line};
    enum status st = train_resolve_model(&s, instead, comm_rank(c) == 0 && !passes_on ? notes : NULL);
    if (st == OK && (x->is & TAKES_TEXTS))
        st = train_take_texts(&s);
    if (st != OK)
        st = comm_agree(c, st);
    else
        st = passes_on ? start_ranks(&s, with_dashboard, line->argv, code) : x->run(&call);
    st = train_blame_pruned(&s, st);
    if (call.signal_number)
        *code = call.signal_number == WALLTIME_SIGNAL ? WALLTIME_EXIT : 128 + call.signal_number;
    settings_free(&s);
    return st;
}
