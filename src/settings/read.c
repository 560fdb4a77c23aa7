/* Reading settings: the command line overrides the file it names, which overrides the defaults; then checks across keys. */
#include "settings/read.h"

#include "settings/keys.h"
#include "settings/paths.h"

#include "base/sys.h"
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_FILE "ltrain.yaml"

/* A flag of the command line. */
struct flag {
    const struct settings_key *key;
    const char *value;
};

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

static enum status parse_flags(int argc, char **argv, struct flag *flags, int *n)
{
    *n = 0;
    for (int i = 0; i < argc; i++) {
        TRY(parse_flag(argc, argv, &i, *n ? flags[*n - 1].key : NULL, &flags[*n]));
        ++*n;
    }
    return OK;
}

/* Returns the last value of a flag, or NULL. */
static const char *flag_value(const struct flag *flags, int n, const char *name)
{
    for (int i = n - 1; i >= 0; i--)
        if (strcmp(flags[i].key->name, name) == 0)
            return flags[i].value;
    return NULL;
}

static enum status read_file(const struct flag *flags, int n, struct settings *s)
{
    const char *config = flag_value(flags, n, "config"), *resume = flag_value(flags, n, "resume");
    char *path = NULL;
    FILE *f = NULL;
    enum status st = OK;
    if (config && resume)
        return status_fail(
            ERR_INVALID, "--resume takes the run's own config.yaml; leave out --config (single options may be given beside it)");
    if ((config && !config[0]) || (resume && !resume[0]))
        return status_fail(ERR_INVALID, "%s: an empty name", config ? "--config" : "--resume");
    if (resume) {
        st = settings_open_run(resume, &path, &f);
    } else if (asprintf(&path, "%s", config ? config : DEFAULT_FILE) < 0) {
        return status_fail(ERR_NOMEM, "out of memory");
    } else {
        f = sys_read_text(path);
        if (!f && (config || errno != ENOENT))
            st = status_fail(ERR_INVALID, "cannot read %s%s: %s", path, config ? " (--config)" : "", sys_strerror(errno));
    }
    if (f) {
        st = settings_read_yaml(path, f, s);
        fclose(f);
    }
    if (st == OK && resume)
        st = settings_move_paths(s, resume);
    free(path);
    return st;
}

static enum status forget(struct settings *s, const char *name)
{
    const struct settings_key *k = settings_key_find(name);
    if (k->type == KEY_LIST) {
        settings_list_clear(k, s);
    } else if (k->type == KEY_STRING) {
        free(*(char **)((char *)s + k->offset));
        *(char **)((char *)s + k->offset) = NULL;
    } else {
        return settings_key_set(k, name, k->value, s);
    }
    return OK;
}

/* Forgets keys of a training run's file that do not concern a command that trains nothing: those that make new adapters or hold
 * text out. Keys of the file's model are forgotten if a flag gives another model. */
static enum status forget_training(const struct flag *flags, int n, enum settings_use use, struct settings *s)
{
    static const char *const of_training[] = {"lora", "eval-fraction", "eval-every", "eval-before"},
                             *const of_model[] = {"adapter",        "rope",      "rope-base",     "base",
                                                  "ignore-tensors", "tokenizer", "chat-template", "template-var"};
    const char *model = flag_value(flags, n, "model");
    if (use != SETTINGS_EVAL && use != SETTINGS_SAMPLE)
        return OK;
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++)
        TRY(forget(s, of_training[i]));
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model && model && !(s->model && strcmp(model, s->model) == 0); i++)
        TRY(forget(s, of_model[i]));
    return OK;
}

static enum status apply_flags(const struct flag *flags, int n, struct settings *s)
{
    for (int i = 0; i < n; i++) {
        const struct settings_key *k = flags[i].key;
        char where[64];
        int again =
            0; /* 1: a list's later flags append, while its first one replaces the file's items; other keys take the last flag */
        for (int j = 0; j < i; j++)
            again |= flags[j].key == k;
        snprintf(where, sizeof where, "--%s", k->name);
        if (k->type == KEY_LIST && again)
            TRY(settings_list_add_text(k, where, flags[i].value, s));
        else
            TRY(settings_key_set(k, where, flags[i].value, s));
    }
    return OK;
}

static void note_flags(const struct flag *flags, int n, struct settings *s)
{
    for (int i = 0; i < n; i++) {
        ptrdiff_t k = flags[i].key - settings_keys;
        s->typed[k / 64] |= (uint64_t)1 << k % 64;
    }
}

int settings_is_typed(const struct settings *s, const char *key)
{
    ptrdiff_t k = settings_key_find(key) - settings_keys;
    return s->typed[k / 64] >> k % 64 & 1;
}

static int is_missing(const struct settings_key *k, const struct settings *s)
{
    const char *at = (const char *)s + k->offset;
    if (k->type == KEY_LIST)
        return ((const struct string_list *)at)->n == 0;
    return k->type == KEY_STRING ? *(char *const *)at == NULL : *(const int64_t *)at == 0;
}

/* Returns an example line for a key in a file. */
static const char *example_of(const struct settings_key *k)
{
    return strcmp(k->name, "model") == 0 ? "model: tiny" : strcmp(k->name, "data") == 0 ? "data: texts/*.txt" : "seq-len: 4096";
}

/* Refuses missing keys that are required. file: where to write them. */
static enum status check_required(const struct settings *s, enum settings_use use, const char *file)
{
    char names[128] = "", flags[128] = "", lines[128] = "";
    const struct settings_key *missing[8];
    int n = 0;
    for (int i = 0; i < settings_n_keys; i++)
        if ((settings_keys[i].flags & KEY_REQUIRED) && is_missing(&settings_keys[i], s) &&
            ((use != SETTINGS_PLAN && use != SETTINGS_SAMPLE && use != SETTINGS_EVAL) ||
             strcmp(settings_keys[i].name, "data") != 0) &&
            ((!s->max_seq && use != SETTINGS_DATA && use != SETTINGS_SAMPLE && use != SETTINGS_EVAL) ||
             strcmp(settings_keys[i].name, "seq-len") != 0))
            missing[n++] = &settings_keys[i];
    if (n == 0)
        return OK;
    for (int i = 0; i < n; i++) {
        const char *between = i == 0 ? "" : i == n - 1 ? " and " : ", ";
        size_t a = strlen(names), b = strlen(flags), c = strlen(lines);
        snprintf(names + a, sizeof names - a, "%s%s", between, missing[i]->name);
        snprintf(flags + b, sizeof flags - b, " --%s %.*s", missing[i]->name, (int)strcspn(missing[i]->arg, ","),
                 missing[i]->arg);
        snprintf(lines + c, sizeof lines - c, "\n    %s", example_of(missing[i]));
    }
    return status_fail(ERR_INVALID, "%s %s missing: give%s, or write %s to %s:%s", names, n > 1 ? "are" : "is", flags,
                       n > 1 ? "such lines" : "such a line", file, lines);
}

/* Returns the prefix of a key's name in messages: the dashes of the flag that gave it, or nothing, as in the file. */
static const char *dashes(const struct flag *flags, int n, const char *key)
{
    return flag_value(flags, n, key) ? "--" : "";
}

/* Refuses drives that are given twice, or for this machine although another one is planned for. */
static enum status resolve_drives(struct settings *s, const struct flag *flags, int n)
{
    if (s->plan.machine && flag_value(flags, n, "machine") && flag_value(flags, n, "nvme-path"))
        return status_fail(ERR_INVALID,
                           "--nvme-path is where this machine's drives are, and --machine %s is another one: give its drives by "
                           "--nvme and --nvme-max",
                           s->plan.machine);
    if ((s->plan.nvme_drives > 0 && s->plan.nvme_max == 0) || (s->plan.nvme_drives == 0 && s->plan.nvme_max > 0)) {
        const char *drives = flag_value(flags, n, "nvme"), *most = flag_value(flags, n, "nvme-max");
        return status_fail(ERR_INVALID, "--nvme %s and --nvme-max %s contradict each other; leave one out",
                           drives ? drives : "of the file", most ? most : "of the file");
    }
    if (s->plan.nvme_drives == 0)
        s->plan.nvme_max = 0;
    return OK;
}

/* Refuses options of `ltrain plan` that this command would ignore. */
static enum status refuse_plans_options(const struct settings *s, enum settings_use use)
{
    const int evaluates = use == SETTINGS_EVAL; /* results of evaluation may be JSON or a picture */
    const char *given = s->explain                          ? "--explain"
                        : evaluates                         ? NULL
                        : s->json && use != SETTINGS_SAMPLE ? "--json"
                        : s->svg                            ? "--svg"
                                                            : NULL;
    if (s->max_seq)
        return status_fail(ERR_INVALID, "--max-seq is for ltrain plan; give --seq-len what that finds");
    return given ? status_fail(ERR_INVALID, "%s is for ltrain plan, and this %s: leave it out, or write ltrain plan ...", given,
                               use == SETTINGS_DATA     ? "shows data"
                               : use == SETTINGS_SAMPLE ? "samples"
                               : use == SETTINGS_EVAL   ? "evaluates"
                                                        : "trains")
                 : OK;
}

/* Refuses options of another command. */
static enum status refuse_others_options(const struct flag *flags, int n, enum settings_use use)
{
    for (int i = 0; i < n && use != SETTINGS_SAMPLE; i++)
        if ((flags[i].key->flags & KEY_OF_SAMPLING) && !(use == SETTINGS_EVAL && (flags[i].key->flags & KEY_EVAL_TOO)))
            return status_fail(ERR_INVALID, "--%s is for ltrain sample: leave it out, or write ltrain sample ...",
                               flags[i].key->name);
    for (int i = 0; i < n && use != SETTINGS_EVAL; i++)
        if (flags[i].key->flags & KEY_OF_EVAL)
            return status_fail(ERR_INVALID, "--%s is for ltrain eval: leave it out, or write ltrain eval ...",
                               flags[i].key->name);
    return OK;
}

/* Tells whether ltrain eval generates tasks, which take their texts from --data, beside evaluating texts as they are. */
static int generates_tasks(const struct settings *s)
{
    for (int i = 0; i < s->tasks.n; i++)
        if (strcmp(s->tasks.item[i], "ppl") != 0 && strcmp(s->tasks.item[i], "position") != 0)
            return 1;
    return 0;
}

static int evaluates_texts(const struct settings *s)
{
    int all = s->tasks.n == 0;
    for (int i = 0; i < s->tasks.n; i++)
        all |= strcmp(s->tasks.item[i], "ppl") == 0 || strcmp(s->tasks.item[i], "position") == 0;
    return all;
}

/* Refuses options that do nothing if ltrain eval generates tasks and evaluates no texts. */
static enum status refuse_unread_by_tasks(const struct settings *s, const struct flag *flags, int n)
{
    const struct {
        const char *name;
        int reads;
        const char *without;
    } options[] = {{"chat-template", s->chat, "--chat"},
                   {"template-var", s->chat, "--chat"},
                   {"train-on", s->write_samples != NULL, "--write-samples"},
                   {"text-column", s->data.n > 0, "--data"},
                   {"chat-turns", 0, "--eval-data"},
                   {"append-eos", 0, "--eval-data"},
                   {"data-exclude", s->data.n > 0, "--data"},
                   {"token-type", 0, "--eval-data"},
                   {"stride", 0, "--eval-data"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!options[i].reads && flag_value(flags, n, options[i].name))
            return status_fail(ERR_INVALID, "--%s does nothing to these tasks without %s: leave it out", options[i].name,
                               options[i].without);
    return OK;
}

/* Refuses flags that ltrain eval and ltrain sample ignore, as they train nothing. Such keys in a file, which may be a run's, do
 * no harm. */
static enum status refuse_training(const struct settings *s, const struct flag *flags, int n, enum settings_use use)
{
    const char *command = use == SETTINGS_EVAL ? "eval" : "sample";
    if (use != SETTINGS_EVAL && use != SETTINGS_SAMPLE)
        return OK;
    for (int i = 0; i < n; i++)
        if (flags[i].key->flags & KEY_OF_TRAINING)
            return status_fail(ERR_INVALID, "--%s is for training, and ltrain %s trains nothing: leave it out",
                               flags[i].key->name, command);
    if (flag_value(flags, n, "lora") && !s->adapter)
        return status_fail(
            ERR_INVALID,
            "--lora makes new adapters, and ltrain %s trains none: give the trained ones by --adapter DIR, or leave it out",
            command);
    return OK;
}

/* Refuses options of data that the command ignores. */
static enum status refuse_unread(const struct settings *s, const struct flag *flags, int n, enum settings_use use)
{
    static const char *const packing[] = {"packing", "too-long", "eval-fraction"}, *const trained[] = {"data", "eval-every",
                                                                                                       "eval-before"};
    for (size_t i = 0; i < sizeof packing / sizeof *packing; i++) {
        if (use == SETTINGS_DATA && s->plan.seq_len == 0 && flag_value(flags, n, packing[i]))
            return status_fail(ERR_INVALID,
                               "--%s is of documents in sequences: say how long these are by --seq-len, or leave it out",
                               packing[i]);
        if (use == SETTINGS_EVAL && flag_value(flags, n, packing[i]))
            return status_fail(
                ERR_INVALID,
                "--%s is for training: ltrain eval reads all of --eval-data, in windows (--lengths, --stride); leave it out",
                packing[i]);
        if (use == SETTINGS_EVAL && flag_value(flags, n, trained[i]) && !(strcmp(trained[i], "data") == 0 && generates_tasks(s)))
            return status_fail(ERR_INVALID, "--%s is for training, and ltrain eval reads --eval-data once: leave it out",
                               trained[i]);
    }
    for (int i = 0; i < n && use == SETTINGS_SAMPLE; i++)
        if ((flags[i].key->flags & KEY_OF_DATA) && !(flags[i].key->flags & KEY_SAMPLING_TOO))
            return status_fail(ERR_INVALID, "--%s is of data, and ltrain sample reads none: leave it out", flags[i].key->name);
    if (use == SETTINGS_EVAL && generates_tasks(s) && s->eval_data.n == 0 && !evaluates_texts(s))
        TRY(refuse_unread_by_tasks(s, flags, n));
    if (use == SETTINGS_EVAL && flag_value(flags, n, "max-new-tokens") && !generates_tasks(s))
        return status_fail(ERR_INVALID,
                           "--max-new-tokens is for tasks that are answered: give --tasks needle, or others, or leave it out");
    if (use == SETTINGS_EVAL && flag_value(flags, n, "samples") && !generates_tasks(s))
        return status_fail(ERR_INVALID,
                           "--samples is for tasks that are answered: give --tasks needle, or others, or leave it out");
    if (!s->resume && flag_value(flags, n, "data-changed"))
        return status_fail(ERR_INVALID, "--data-changed is for a run that is resumed: leave it out, or name the run by --resume");
    return OK;
}

static enum status check_epochs(const struct settings *s, const struct flag *flags, int n)
{
    if (s->epochs == 0)
        return OK;
    if (flag_value(flags, n, "steps") && flag_value(flags, n, "epochs"))
        return status_fail(ERR_INVALID, "--epochs and --steps both say when a run ends: leave one out");
    if (s->curriculum.n > 0)
        return status_fail(ERR_INVALID,
                           "%sepochs %g: epochs of sequences of several lengths are of different sizes: give --steps",
                           dashes(flags, n, "epochs"), s->epochs);
    return OK;
}

static enum status check_together(const struct settings *s, const struct flag *flags, int n, enum settings_use use)
{
    if (use != SETTINGS_DATA && use != SETTINGS_EVAL && flag_value(flags, n, "samples"))
        return status_fail(ERR_INVALID, "--samples is for ltrain data: leave it out, or write ltrain data ...");
    TRY(refuse_others_options(flags, n, use));
    TRY(refuse_unread(s, flags, n, use));
    TRY(refuse_training(s, flags, n, use));
    if (s->prompt && s->prompt_file)
        return status_fail(ERR_INVALID, "--prompt and --prompt-file both give a prompt: leave one out");
    if (use != SETTINGS_PLAN)
        TRY(refuse_plans_options(s, use));
    if (s->max_seq && flag_value(flags, n, "seq-len"))
        return status_fail(ERR_INVALID, "--max-seq looks for the longest sequence, and --seq-len gives one: leave one out");
    if (s->profile && s->plan.machine && flag_value(flags, n, "machine"))
        return status_fail(ERR_INVALID, "--profile measures this machine, and --machine %s is another one: leave one out",
                           s->plan.machine);
    if (s->plan.micro_batch != 1)
        return status_fail(ERR_INVALID,
                           "%smicro-batch %lld: only 1 is supported; --grad-accum %lld takes that many sequences per step",
                           dashes(flags, n, "micro-batch"), (long long)s->plan.micro_batch, (long long)s->plan.micro_batch);
    if (s->eval_data.n > 0 && s->eval_fraction > 0)
        return status_fail(ERR_INVALID, "%seval-data and %seval-fraction are both given; evaluation takes one of them",
                           dashes(flags, n, "eval-data"), dashes(flags, n, "eval-fraction"));
    if (s->plan.eval_before && s->eval_data.n == 0 && s->eval_fraction == 0 && use == SETTINGS_TRAIN)
        return status_fail(ERR_INVALID, "%seval-before has nothing to evaluate: give --eval-data or --eval-fraction",
                           dashes(flags, n, "eval-before"));
    if (s->plan.eval_every > 0 && s->eval_data.n == 0 && s->eval_fraction == 0)
        return status_fail(ERR_INVALID, "%seval-every %lld has nothing to evaluate: give --eval-data or --eval-fraction",
                           dashes(flags, n, "eval-every"), (long long)s->plan.eval_every);
    if (s->plan.link_gbps > 0 && s->plan.device != DEVICE_CPU_DISCRETE)
        return status_fail(ERR_INVALID,
                           "%slink-gbps is the speed of cpu:discrete's links: give --device cpu:discrete, or leave it out",
                           dashes(flags, n, "link-gbps"));
    TRY(check_epochs(s, flags, n));
    if (s->trace != AUTO && s->epochs == 0 && s->trace > s->plan.steps)
        return status_fail(ERR_INVALID, "--trace: step %lld is after the last one (--steps %lld)", (long long)s->trace,
                           (long long)s->plan.steps);
    if (s->resume && flag_value(flags, n, "out"))
        return status_fail(ERR_INVALID, "--resume continues in %s; leave out --out", s->resume);
    return OK;
}

/* Resolves the mesh and batch. --sp sets one or two degrees of the mesh. A run resumed by another number of ranks takes a new
 * mesh. */
static enum status resolve_ranks(struct settings *s, const struct flag *flags, int n)
{
    const char *mesh = flag_value(flags, n, "mesh"), *sp = flag_value(flags, n, "sp");
    if (mesh && !sp)
        s->sp = SP_AUTO; /* discards the file's */
    if (sp && !mesh)
        s->plan.mesh = (struct mesh){{AUTO, AUTO, AUTO}};
    int *ulysses = s->sp == SP_NONE || s->sp == SP_RING ? &s->plan.mesh.degree[MESH_ULYSSES] : NULL;
    int *ring = s->sp == SP_NONE || s->sp == SP_ULYSSES ? &s->plan.mesh.degree[MESH_RING] : NULL;
    if ((ulysses && *ulysses > 1) || (ring && *ring > 1))
        return status_fail(ERR_INVALID, "--sp %s and --mesh %s=%d contradict each other; give one of them",
                           s->sp == SP_NONE   ? "none"
                           : s->sp == SP_RING ? "ring"
                                              : "ulysses",
                           ulysses && *ulysses > 1 ? "ulysses" : "ring", ulysses && *ulysses > 1 ? *ulysses : *ring);
    if (ulysses)
        *ulysses = 1;
    if (ring)
        *ring = 1;
    if (flag_value(flags, n, "grad-accum")) {
        if (flag_value(flags, n, "batch"))
            return status_fail(ERR_INVALID,
                               "--batch and --grad-accum are both given; a batch is --grad-accum times the data-parallel ranks");
        s->plan.batch = AUTO; /* discards the file's */
    }
    return OK;
}

/* Sets the run's directory: runs/DATE-MODEL, to the second; a resumed run keeps its own. */
static enum status resolve_out(struct settings *s)
{
    char date[32], *path = NULL;
    struct tm tm;
    time_t now = time(NULL);
    if (!s->resume && s->out)
        return OK;
    if (s->resume) {
        path = strdup(s->resume);
    } else {
        size_t end = strlen(s->model);
        while (end > 1 && s->model[end - 1] == '/')
            end--;
        size_t begin = end;
        while (begin > 0 && s->model[begin - 1] != '/')
            begin--;
        strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
        if (asprintf(&path, "runs/%s-%.*s", date, (int)(end - begin), s->model + begin) < 0)
            path = NULL;
    }
    if (!path)
        return status_fail(ERR_NOMEM, "out of memory");
    free(s->out);
    s->out = path;
    s->out_is_default = !s->resume;
    return OK;
}

void settings_launch(int argc, char **argv, int *rank, int *size, int *local_rank)
{
    static const char *const names[] = {"rank", "world-size", "local-rank"};
    int *const fields[] = {rank, size, local_rank};
    int n = 0;
    struct settings unused;
    struct flag *flags = calloc((size_t)argc + 1, sizeof *flags);
    *rank = *size = *local_rank = -1;
    if (flags && parse_flags(argc, argv, flags, &n) == OK)
        for (int i = 0; i < 3; i++) {
            const char *text = flag_value(flags, n, names[i]);
            int64_t x;
            if (text && settings_key_set(settings_key_find(names[i]), names[i], text, &unused) == OK &&
                units_parse_count(names[i], text, &x) == OK)
                *fields[i] = (int)x;
        }
    free(flags);
}

double settings_patience(int argc, char **argv, const char *key)
{
    int n = 0;
    const struct settings_key *k = settings_key_find(key);
    struct settings s = {0};
    double seconds;
    struct flag *flags = calloc((size_t)argc + 1, sizeof *flags);
    const char *text = flags && parse_flags(argc, argv, flags, &n) == OK ? flag_value(flags, n, k->name) : NULL;
    if (!text || settings_key_set(k, k->name, text, &s) != OK)
        seconds = strtod(k->value, NULL);
    else
        memcpy(&seconds, (const char *)&s + k->offset, sizeof seconds);
    free(flags);
    return seconds;
}

int settings_given(int argc, char **argv, const char *key)
{
    int n = 0, given = 0;
    struct flag *flags = calloc((size_t)argc + 1, sizeof *flags);
    if (flags && parse_flags(argc, argv, flags, &n) == OK)
        given = flag_value(flags, n, key) != NULL;
    free(flags);
    return given;
}

enum status settings_read(int argc, char **argv, enum settings_use use, struct settings *out)
{
    enum status st = OK;
    struct settings s = {0};
    int n = 0;
    struct flag *flags = calloc((size_t)argc + 1, sizeof *flags);
    if (!flags)
        return status_fail(ERR_NOMEM, "out of memory");
    TRY_GOTO(parse_flags(argc, argv, flags, &n), fail);
    TRY_GOTO(settings_defaults(&s, 0), fail);
    TRY_GOTO(read_file(flags, n, &s), fail);
    if (flag_value(flags, n, "resume") && !flag_value(flags, n, "tiles"))
        s.tiles_mesh = s.plan.mesh;
    TRY_GOTO(forget_training(flags, n, use, &s), fail);
    TRY_GOTO(apply_flags(flags, n, &s), fail);
    note_flags(flags, n, &s);
    if (flag_value(flags, n, "steps") && !flag_value(flags, n, "epochs"))
        s.epochs = 0; /* discards the file's */
    const char *config = flag_value(flags, n, "config");
    TRY_GOTO(check_required(&s, use, config ? config : "./" DEFAULT_FILE), fail);
    TRY_GOTO(resolve_ranks(&s, flags, n), fail);
    TRY_GOTO(resolve_drives(&s, flags, n), fail);
    TRY_GOTO(check_together(&s, flags, n, use), fail);
    TRY_GOTO(resolve_out(&s), fail);
    if (s.max_seq) /* one length is sought, whatever the file has */
        s.curriculum.n = 0;
    free(flags);
    *out = s;
    return OK;
fail:
    free(flags);
    settings_free(&s);
    return st;
}

enum status settings_read_text(const char *path, const char *text, struct settings *out)
{
    struct settings s = {0};
    FILE *f = text[0] ? fmemopen((char *)text, strlen(text), "r") : NULL;
    enum status st = f || !text[0] ? settings_defaults(&s, 0) : status_fail(ERR_NOMEM, "out of memory: the settings in %s", path);
    if (st == OK && f)
        st = settings_read_yaml(path, f, &s);
    if (f)
        fclose(f);
    if (st == OK)
        *out = s;
    else
        settings_free(&s);
    return st;
}

enum status settings_read_run(const char *run, struct settings *out)
{
    struct settings s = {0};
    char *path = NULL;
    FILE *f = NULL;
    enum status st = settings_open_run(run, &path, &f);
    if (st == OK)
        st = settings_defaults(&s, 0);
    if (st == OK)
        st = settings_read_yaml(path, f, &s);
    if (st == OK)
        st = settings_move_paths(&s, run);
    if (f)
        fclose(f);
    free(path);
    if (st == OK)
        *out = s;
    else
        settings_free(&s);
    return st;
}

void settings_free(struct settings *s)
{
    if (!s)
        return;
    for (int i = 0; i < settings_n_keys; i++) {
        const struct settings_key *k = &settings_keys[i];
        if (k->type == KEY_LIST)
            settings_list_clear(k, s);
        else if (k->type == KEY_STRING)
            free(*(char **)((char *)s + k->offset));
    }
    free(s->plan.hardware);
    free(s->plan.target);
    memset(s, 0, sizeof *s);
}
