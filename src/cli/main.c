/* ltrain: subcommands and exit statuses. */
#include "base/progress.h"
#include "base/sys.h"
#include "base/watch.h"
#include "check/check.h"
#include "cli/build.h"
#include "cli/export.h"
#include "cli/ranks.h"
#include "cli/tokenize.h"
#include "comm/launch.h"
#include "eval/eval.h"
#include "eval/result_file.h"
#include "eval/sample.h"
#include "plan/report/advise.h"
#include "plan/report/explain.h"
#include "plan/report/json.h"
#include "plan/report/refuse.h"
#include "plan/report/svg.h"
#include "plan/report/text.h"
#include "settings/read.h"
#include "train/show.h"
#include "train/space.h"
#include "train/train.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char usage[] = "usage: ltrain [train] --model DIR --data PATH --seq-len N [options]\n"
                            "       ltrain plan ...     same options: what lives where and what fits; runs\n"
                            "                           nothing\n"
                            "       ltrain check ...    same options: whether a few steps (--steps, 3) equal\n"
                            "                           one rank's with everything resident\n"
                            "       ltrain data ...     same options: what would be trained on, as text\n"
                            "       ltrain sample ...   a text read on, or a chat (ltrain sample --help)\n"
                            "       ltrain eval ...     perplexity, loss by position, tasks such as needle\n"
                            "                           (ltrain eval --help)\n"
                            "       ltrain export ...   an adapter merged into its base, or alone\n"
                            "                           (ltrain export --help)\n"
                            "       ltrain tokenize ... text to token ids and back (ltrain tokenize --help)\n"
                            "       ltrain --resume RUN [options]\n"
                            "       ltrain --ranks N ..., mpiexec -n N ltrain ...,\n"
                            "       srun --mpi=pmix ltrain ...:\n"
                            "                           several processes\n"
                            "       ltrain --version    and what it was built with\n\n";

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

#define CHECK_STEPS 3

static enum status write_picture(const struct plan *plan, const struct model *model, const char *path)
{
    struct result_file x;
    TRY(result_file_begin(&x, "svg", path));
    return result_file_end(&x, plan_write_svg(plan, model, x.f));
}

/* Checks a few steps. Steps and epochs of a file are a training run's and do not count here. */
static enum status check_command(struct settings *s, struct comm *c)
{
    if (s->epochs > 0 && settings_is_typed(s, "epochs"))
        return status_fail(ERR_INVALID,
                           "--epochs is for training, and ltrain check takes a few steps: give --steps, or leave it out");
    return check_run(s, c, settings_is_typed(s, "steps") ? s->plan.steps : CHECK_STEPS);
}

/* Finds what decisions are worth, which takes long, and shows progress. Advice after the table shows progress only where that
 * disturbs no pager. */
static enum status find_decisions(const struct plan *plan, const struct model *model, const struct settings *s,
                                  const struct comm *comm, struct explanation *out)
{
    train_show_progress(s, comm);
    enum status st = explain_make(plan, model, &s->plan, out);
    progress_end();
    return st;
}

static enum status find_advice(const struct plan *plan, const struct model *model, const struct settings *s,
                               const struct comm *comm, struct advice *out)
{
    if (s->json || isatty(STDOUT_FILENO))
        train_show_progress(s, comm);
    enum status st = advise_find(plan, model, &s->plan, out);
    progress_end();
    return st;
}

/* Writes the table or JSON, advice, the picture, and the message if the plan does not fit. */
static enum status write_plan(const struct plan *plan, const struct model *model, const struct settings *s,
                              const struct comm *comm)
{
    struct advice advice = {0};
    struct explanation e;
    int explain = s->explain && plan->fits;
    if (explain)
        TRY(find_decisions(plan, model, s, comm, &e));
    if (s->json) {
        TRY(find_advice(plan, model, s, comm, &advice));
        TRY(plan_write_json(plan, model, &s->plan, &advice, explain ? &e : NULL, stdout));
    } else {
        TRY(plan_print(plan, model, &s->plan, stdout));
        train_print_notes(s, model, stdout);
        if (explain) {
            TRY(plan_print_bounds(plan, model, stdout));
            explain_print(plan, &e, stdout);
        } else if (s->explain) {
            printf("\n--explain says something of plans that fit.\n");
        }
        fflush(stdout);
        TRY(find_advice(plan, model, s, comm, &advice));
        advise_print(plan, &advice, stdout);
    }
    if (s->svg)
        TRY(write_picture(plan, model, s->svg));
    if (s->verbose)
        plan_print_passes(plan, stderr);
    if (s->verbose && !s->json)
        program_print(plan->programs[PLAN_UPDATE_STEP], stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        return status_fail(ERR_IO, "cannot write the plan: standard output is full or closed");
    return plan->fits ? OK : train_say_length(s, s->plan.seq_len, refuse_advised(plan, &s->plan, &advice));
}

/* Refuses a plan that does not fit, for a length that is not the longest. */
static enum status refuse_length(const struct plan *plan, const struct model *model, const struct settings *s)
{
    struct plan_request request = s->plan;
    request.seq_len = plan_length(plan);
    return plan->fits ? OK : train_say_length(s, request.seq_len, refuse_plan(plan, model, &request));
}

static enum status plan_command(struct settings *s, struct comm *c)
{
    struct model *model = NULL;
    struct train_plans plans = {.n = 0};
    int64_t limit[TIERS];
    TRY(s->svg ? result_file_check("svg", s->svg, s) : OK); /* before planning, which may take long */
    TRY(train_open_model(s, &model));
    enum status st = train_plan(s, c, comm_size(c) > 1 ? comm_size(c) : train_planned_ranks(s), model, &plans, limit);
    if (st == OK && s->max_seq) { /* the model for the length that was found */
        model_destroy(model);
        model = NULL;
        st = train_open_model(s, &model);
    }
    if (st == OK)
        st = write_plan(plans.plan[0], model, s, c);
    for (int i = 1; i < plans.n && st == OK; i++)
        st = refuse_length(plans.plan[i], model, s);
    if (st == OK)
        st = run_space_check(s, model);
    train_plans_destroy(&plans);
    model_destroy(model);
    return st;
}

/* Tells whether one of the arguments is that option, whatever the others are. */
static int asks_for(int argc, char **argv, const char *option, const char *letter)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], option) == 0 || strcmp(argv[i], letter) == 0)
            return 1;
    return 0;
}

static enum settings_use use_of(const char *command)
{
    return strcmp(command, "plan") == 0     ? SETTINGS_PLAN
           : strcmp(command, "data") == 0   ? SETTINGS_DATA
           : strcmp(command, "sample") == 0 ? SETTINGS_SAMPLE
           : strcmp(command, "eval") == 0   ? SETTINGS_EVAL
                                            : SETTINGS_TRAIN;
}

static void print_help(enum settings_use use)
{
    static const char *const texts[] = {[SETTINGS_TRAIN] = usage,
                                        [SETTINGS_PLAN] = plan_usage,
                                        [SETTINGS_DATA] = data_usage,
                                        [SETTINGS_SAMPLE] = sample_usage,
                                        [SETTINGS_EVAL] = eval_usage};
    fputs(texts[use], stdout);
    settings_help(use, stdout);
}

#define DRIVE_PATIENCE 30 /* seconds until a message says that a drive does not answer */

static struct comm *watching;

static void say_of_drive(const char *sentence)
{
    char rank[128] = "";
    if (comm_hosts(watching) > 1)
        snprintf(rank, sizeof rank, "rank %d on %s: ", comm_rank(watching), comm_host(watching, comm_rank(watching)));
    else if (comm_size(watching) > 1)
        snprintf(rank, sizeof rank, "rank %d: ", comm_rank(watching));
    fprintf(stderr, "ltrain: %s%s\n", rank, sentence);
}

/* Ends the process while a drive does not answer: threads inside the kernel cannot be waited for. The next run recognises the
 * nvme tier's files as a dead run's. */
static void give_up_drive(const char *sentence)
{
    if (comm_speak(watching))
        say_of_drive(sentence);
    _exit(1);
}

/* Begins to watch drives, before the settings are read, which may lie on such a drive. */
static enum status watch_drives(struct comm *c, int argc, char **argv)
{
    watching = c;
    return comm_agree(c, watch_start(&(struct watch_rules){.patience = DRIVE_PATIENCE,
                                                           .timeout = settings_patience(argc, argv, "drive-timeout"),
                                                           .device_timeout = settings_patience(argc, argv, "device-timeout"),
                                                           .say = say_of_drive,
                                                           .end = give_up_drive}));
}

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

static enum status train(struct settings *s, struct comm *c, int argc, char **argv, int *signal_number)
{
    char *text = command_text(argc, argv);
    enum status st = comm_agree(c, text ? OK : status_fail(ERR_NOMEM, "out of memory"));
    if (st == OK)
        st =
            train_run(s, c, &(struct train_hooks){.write_config = settings_write_yaml, .version = build_version, .command = text},
                      signal_number);
    free(text);
    return st;
}

/* Starts the ranks. From here on this process touches no drive, and signals are for the thread that waits for the ranks. */
static enum status start_ranks(const struct settings *s, char **argv, int *code)
{
    watch_stop();
    return ranks_start(s->plan.ranks, argv, s->json ? stderr : stdout, code);
}

/* Runs a command. *code: the exit status, if all goes well. */
static enum status command(struct comm *c, int first, int argc, char **argv, int *code)
{
    struct settings s;
    int signal_number = 0;
    const char *name = first == 2 ? argv[1] : "train";
    enum settings_use use = use_of(name);
    int check = strcmp(name, "check") == 0;
    if (use == SETTINGS_TRAIN && !check && strcmp(name, "train") != 0)
        return comm_agree(
            c,
            status_fail(ERR_INVALID,
                        "there is no command '%s'; the commands are train, plan, check, data, sample, eval, export and tokenize",
                        name));
    TRY(ranks_read_settings(c, argc - first, argv + first, use, &s));
    watch_set_timeouts(s.drive_timeout, s.device_timeout);
    FILE *notes = s.json || use == SETTINGS_SAMPLE ? stderr : stdout; /* stdout is for the answer alone */
    const char *instead = "give the model's directory by --model, and the adapter by --adapter";
    /* the ranks started from here print it */
    const int passes_on = comm_size(c) == 1 && s.plan.ranks > 1 && (use == SETTINGS_TRAIN || use == SETTINGS_EVAL);
    enum status st = train_resolve_model(&s, instead, comm_rank(c) == 0 && !passes_on ? notes : NULL);
    if (st == OK && (use == SETTINGS_SAMPLE || use == SETTINGS_EVAL))
        st = train_take_texts(&s);
    if (st != OK)
        st = comm_agree(c, st);
    else if (use == SETTINGS_PLAN)
        st = plan_command(&s, c);
    else if (use == SETTINGS_DATA)
        st = show_data(&s, c);
    else if (use == SETTINGS_SAMPLE)
        st = sample_run(&s, c, &signal_number);
    else if (comm_size(c) == 1 && s.plan.ranks > 1)
        st = start_ranks(&s, argv, code);
    else if (use == SETTINGS_EVAL)
        st = eval_run(&s, c, &signal_number);
    else if (check)
        st = check_command(&s, c);
    else
        st = train(&s, c, argc, argv, &signal_number);
    st = train_blame_pruned(&s, st);
    if (signal_number)
        *code = 128 + signal_number;
    settings_free(&s);
    return st;
}

/* Restarts the program so that libgomp's idle threads spin 1,000 times before they sleep; libgomp reads the environment before
 * main().
 *
 * By default they spin 300,000 times. Beside another busy program, the thread that they wait for does not run meanwhile: steps took 11
 * times as long instead of twice. With more threads than cores, as with those of a host lane, libgomp spins only 100 times. Waking up
 * between two ops then takes 0.1 ms: steps with updates on the host took up to 25% longer. OMP_WAIT_POLICY=active applies our number
 * there, too. */
#define SPINS "1000"

static void spin_briefly(char **argv)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || setenv("GOMP_SPINCOUNT", SPINS, 1) != 0 ||
        setenv("OMP_WAIT_POLICY", "active", 1) != 0)
        return;
    self[n] = 0;
    execv(self, argv);
}

/* Makes threads share one arena if addresses are limited (RLIMIT_AS): glibc reserves 64 MiB of addresses for each thread that
 * allocates. */
static void save_addresses(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

int main(int argc, char **argv)
{
    spin_briefly(argv);
    save_addresses();
    signal(SIGXFSZ, SIG_IGN); /* writes beyond the limit of a file's size fail with EFBIG, which is reported */
    int first = argc > 1 && argv[1][0] != '-' ? 2 : 1, flags_n = argc > first ? argc - first : 0, code = 0;
    struct launch_flags flags;
    struct launch launch;
    struct comm *comm = NULL;
    if (first == 2 && strcmp(argv[1], "tokenize") == 0)
        return tokenize_command(argc - first, argv + first);
    if (first == 2 && strcmp(argv[1], "export") == 0)
        return export_command(argc - first, argv + first);
    settings_launch(flags_n, argv + first, &flags.rank, &flags.size, &flags.local_rank);
    enum status st = launch_detect(&flags, &launch);
    if (st != OK)
        return ranks_leave(NULL, st);
    ranks_hush(&launch);
    if (asks_for(argc, argv, "--help", "-h")) {
        print_help(use_of(first == 2 ? argv[1] : "train"));
        return 0;
    }
    if (asks_for(argc, argv, "--version", "-V") || (first == 2 && strcmp(argv[1], "version") == 0)) {
        fputs(build_text, stdout);
        return 0;
    }
    st = comm_create(&launch, settings_patience(flags_n, argv + first, "comm-timeout"), &comm);
    if (st != OK && launch.size > 1) { /* each rank prints by itself: perhaps there is no other */
        fprintf(stderr, "ltrain: rank %d: %s\n", launch.rank, status_message());
        return st == ERR_INVALID ? 2 : 1;
    }
    if (st == OK)
        st = build_compare(comm);
    if (st == OK)
        st = watch_drives(comm, flags_n, argv + first);
    if (st == OK)
        st = command(comm, first, argc, argv, &code);
    watch_stop();
    int failed = ranks_leave(comm, st);
    return failed ? failed : code;
}
