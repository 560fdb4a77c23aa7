/* Reading settings: defaults, overridden by a file, overridden by the command line; then checks of keys that depend on each
 * other. */
#include "settings/read.h"

#include "settings/flags.h"
#include "settings/keys.h"
#include "settings/paths.h"

#include "base/sys.h"
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_FILE "ltrain.yaml"
#define UNSAID (-2) /* ZeRO stage while neither file nor flags give one */

static enum status read_file(const struct settings_flags *f, struct settings *s)
{
    const char *config = flag_value(f, "config"), *resume = flag_value(f, "resume");
    char *path = NULL;
    FILE *file = NULL;
    enum status st = OK;
    if (config && resume)
        return status_fail(
            ERR_INVALID, "--resume takes the run's own config.yaml; leave out --config (single options may be given beside it)");
    if ((config && !config[0]) || (resume && !resume[0]))
        return status_fail(ERR_INVALID, "%s: an empty name", config ? "--config" : "--resume");
    if (resume) {
        st = settings_open_run(resume, &path, &file);
    } else if (asprintf(&path, "%s", config ? config : DEFAULT_FILE) < 0) {
        return status_fail(ERR_NOMEM, "out of memory");
    } else {
        file = sys_read_text(path);
        if (!file && (config || errno != ENOENT))
            st = status_fail(ERR_INVALID, "cannot read %s%s: %s", path, config ? " (--config)" : "", sys_strerror(errno));
    }
    if (file) {
        st = settings_read_yaml(path, file, s);
        fclose(file);
    }
    if (st == OK && resume)
        st = settings_move_paths(s, resume);
    free(path);
    return st;
}

static enum status forget(struct settings *s, const struct settings_key *k)
{
    if (k->type == KEY_LIST) {
        settings_list_clear(k, s);
    } else if (k->type == KEY_STRING) {
        free(*(char **)((char *)s + k->offset));
        *(char **)((char *)s + k->offset) = NULL;
    } else {
        return settings_key_set(k, k->name, k->value, s);
    }
    return OK;
}

/* Sets keys of a training run's file back to their defaults for a command that trains nothing; likewise keys of the file's model
 * if a flag gives another model. */
static enum status forget_training(const struct settings_flags *f, enum settings_use use, struct settings *s)
{
    const char *model = flag_value(f, "model");
    const unsigned of = KEY_OF_A_RUN | (model && !(s->model && strcmp(model, s->model) == 0) ? KEY_OF_MODEL : 0);
    for (int i = 0; i < settings_n_keys && (use & (SETTINGS_EVAL | SETTINGS_SAMPLE)); i++)
        if (settings_keys[i].flags & of)
            TRY(forget(s, &settings_keys[i]));
    return OK;
}

static enum status apply_flags(const struct settings_flags *f, struct settings *s)
{
    for (int i = 0; i < f->n; i++) {
        const struct settings_key *k = f->flag[i].key;
        char where[64];
        /* 1: an earlier flag has this key; a list's first flag replaces the file's items, and later ones append */
        int again = 0;
        for (int j = 0; j < i; j++)
            again |= f->flag[j].key == k;
        snprintf(where, sizeof where, "--%s", k->name);
        if (k->type == KEY_LIST && again)
            TRY(settings_list_add_text(k, where, f->flag[i].value, s));
        else
            TRY(settings_key_set(k, where, f->flag[i].value, s));
    }
    return OK;
}

static void note_flags(const struct settings_flags *f, struct settings *s)
{
    for (int i = 0; i < f->n; i++) {
        ptrdiff_t k = f->flag[i].key - settings_keys;
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

/* Refuses settings without a required key. The message proposes to write it to the settings' file. */
static enum status check_required(const struct settings *s, const struct settings_flags *f, enum settings_use use)
{
    const char *config = flag_value(f, "config"), *file = config ? config : "./" DEFAULT_FILE;
    char names[128] = "", flags[128] = "", lines[128] = "";
    const struct settings_key *missing[8];
    int n = 0;
    for (int i = 0; i < settings_n_keys; i++)
        if ((settings_keys[i].required & use) && is_missing(&settings_keys[i], s) &&
            !(s->max_seq && settings_keys[i].type == KEY_LENGTHS) &&
            !(f->without_data && strcmp(settings_keys[i].name, "data") == 0))
            missing[n++] = &settings_keys[i];
    if (n == 0)
        return OK;
    for (int i = 0; i < n; i++) {
        const char *between = i == 0 ? "" : i == n - 1 ? " and " : ", ";
        size_t a = strlen(names), b = strlen(flags), c = strlen(lines);
        snprintf(names + a, sizeof names - a, "%s%s", between, missing[i]->name);
        snprintf(flags + b, sizeof flags - b, " --%s %.*s", missing[i]->name, (int)strcspn(missing[i]->arg, ","),
                 missing[i]->arg);
        snprintf(lines + c, sizeof lines - c, "\n    %s", missing[i]->example);
    }
    return status_fail(ERR_INVALID, "%s %s missing: give%s, or write %s to %s:%s", names, n > 1 ? "are" : "is", flags,
                       n > 1 ? "such lines" : "such a line", file, lines);
}

/* Returns how messages begin a key's name: "--" if a flag gave it, "" if the file did. */
static const char *dashes(const struct settings_flags *f, const char *key)
{
    return flag_value(f, key) ? "--" : "";
}

/* Refuses drives that are given in two ways, or for this machine although a plan for another machine is asked. */
static enum status resolve_drives(struct settings *s, const struct settings_flags *f)
{
    if (s->plan.machine && flag_value(f, "machine") && flag_value(f, "nvme-path"))
        return status_fail(ERR_INVALID,
                           "--nvme-path is where this machine's drives are, and --machine %s is another one: give its drives by "
                           "--nvme and --nvme-max",
                           s->plan.machine);
    if ((s->plan.nvme_drives > 0 && s->plan.nvme_max == 0) || (s->plan.nvme_drives == 0 && s->plan.nvme_max > 0)) {
        const char *drives = flag_value(f, "nvme"), *most = flag_value(f, "nvme-max");
        return status_fail(ERR_INVALID, "--nvme %s and --nvme-max %s contradict each other; leave one out",
                           drives ? drives : "of the file", most ? most : "of the file");
    }
    if (s->plan.nvme_drives == 0)
        s->plan.nvme_max = 0;
    return OK;
}

static enum status check_epochs(const struct settings *s, const struct settings_flags *f)
{
    if (s->epochs == 0)
        return OK;
    if (flag_value(f, "steps") && flag_value(f, "epochs"))
        return status_fail(ERR_INVALID, "--epochs and --steps both say when a run ends: leave one out");
    if (s->curriculum.n > 0)
        return status_fail(ERR_INVALID,
                           "%sepochs %g: epochs of sequences of several lengths are of different sizes: give --steps",
                           dashes(f, "epochs"), s->epochs);
    return OK;
}

/* Refuses data, and what needs them, if a program gives the sequences. */
static enum status check_data(const struct settings *s, const struct settings_flags *f)
{
    const char *key = s->data.n > 0            ? "data"
                      : s->eval_data.n > 0     ? "eval-data"
                      : s->eval_fraction > 0   ? "eval-fraction"
                      : s->plan.eval_every > 0 ? "eval-every"
                      : s->plan.eval_before    ? "eval-before"
                      : s->epochs > 0          ? "epochs"
                      : s->curriculum.n > 0    ? "seq-len with several lengths"
                                               : NULL;
    if (!f->without_data || !key)
        return OK;
    return status_fail(ERR_INVALID, "%s: the program gives the sequences itself: leave it out", key);
}

static enum status check_together(const struct settings *s, const struct settings_flags *f, enum settings_use use)
{
    TRY(flags_refuse(f, s, use));
    if (s->prompt && s->prompt_file)
        return status_fail(ERR_INVALID, "--prompt and --prompt-file both give a prompt: leave one out");
    if (s->max_seq && flag_value(f, "seq-len"))
        return status_fail(ERR_INVALID, "--max-seq looks for the longest sequence, and --seq-len gives one: leave one out");
    if (s->profile && s->plan.machine && flag_value(f, "machine"))
        return status_fail(ERR_INVALID, "--profile measures this machine, and --machine %s is another one: leave one out",
                           s->plan.machine);
    if (s->eval_data.n > 0 && s->eval_fraction > 0)
        return status_fail(ERR_INVALID, "%seval-data and %seval-fraction are both given; evaluation takes one of them",
                           dashes(f, "eval-data"), dashes(f, "eval-fraction"));
    if (s->plan.eval_before && s->eval_data.n == 0 && s->eval_fraction == 0 && use == SETTINGS_TRAIN)
        return status_fail(ERR_INVALID, "%seval-before has nothing to evaluate: give --eval-data or --eval-fraction",
                           dashes(f, "eval-before"));
    if (s->plan.eval_every > 0 && s->eval_data.n == 0 && s->eval_fraction == 0)
        return status_fail(ERR_INVALID, "%seval-every %lld has nothing to evaluate: give --eval-data or --eval-fraction",
                           dashes(f, "eval-every"), (long long)s->plan.eval_every);
    if (s->plan.link_gbps > 0 && s->plan.device != DEVICE_CPU_DISCRETE)
        return status_fail(ERR_INVALID,
                           "%slink-gbps is the speed of cpu:discrete's links: give --device cpu:discrete, or leave it out",
                           dashes(f, "link-gbps"));
    TRY(check_epochs(s, f));
    if (s->trace != AUTO && s->epochs == 0 && s->trace > s->plan.steps)
        return status_fail(ERR_INVALID, "--trace: step %lld is after the last one (--steps %lld)", (long long)s->trace,
                           (long long)s->plan.steps);
    if (s->verify_every > 0 && !s->plan.deterministic)
        return status_fail(ERR_INVALID,
                           "%sverify-every compares bits, and with --deterministic no they may be others every time: leave "
                           "one out",
                           dashes(f, "verify-every"));
    if (s->resume && flag_value(f, "out"))
        return status_fail(ERR_INVALID, "--resume continues in %s; leave out --out", s->resume);
    return OK;
}

/* Sets the number of stages where only their layers are given, and refuses another number. */
static enum status resolve_stages(struct plan_request *s)
{
    int *stages = &s->mesh.degree[MESH_PP];
    const int n = s->stage_layers.n;
    if (n > 0 && *stages > 0 && *stages != n)
        return status_fail(
            ERR_INVALID, "--stage-layers: layers of %d stages, and --mesh has pp=%d: give as many numbers as stages", n, *stages);
    *stages = n > 0 ? n : *stages;
    return OK;
}

/* Resolves the mesh and the batch. --sp sets one or two degrees of the mesh. A run resumed with another number of ranks takes a
 * new mesh. */
static enum status resolve_ranks(struct settings *s, const struct settings_flags *f)
{
    const char *mesh = flag_value(f, "mesh"), *sp = flag_value(f, "sp");
    if (mesh && !sp)
        s->sp = SP_AUTO; /* drops the file's value */
    if (sp && !mesh)
        s->plan.mesh = mesh_uniform(AUTO);
    const struct mesh asked = settings_sp_mesh(s->sp);
    for (int d = 0; d < MESH_DIMS; d++) {
        int *degree = &s->plan.mesh.degree[d];
        if (asked.degree[d] == AUTO)
            continue;
        if (*degree > asked.degree[d])
            return status_fail(ERR_INVALID, "--sp %s and --mesh %s=%d contradict each other; give one of them",
                               s->sp == SP_NONE   ? "none"
                               : s->sp == SP_RING ? "ring"
                                                  : "ulysses",
                               mesh_rows[d].key, *degree);
        *degree = asked.degree[d];
    }
    if (mesh && !flag_value(f, "stage-layers"))
        s->plan.stage_layers.n = 0; /* drops the file's value */
    TRY(resolve_stages(&s->plan));
    if (flag_value(f, "grad-accum")) {
        if (flag_value(f, "batch"))
            return status_fail(ERR_INVALID,
                               "--batch and --grad-accum are both given; a batch is --grad-accum times the data-parallel ranks");
        s->plan.batch = AUTO; /* drops the file's value */
    }
    return OK;
}

/* Sets the ZeRO stage where nobody gives one: the table's default or, of stages of layers, what planning chooses. */
static enum status resolve_zero(struct settings *s)
{
    const struct settings_key *k = settings_key_find("zero");
    s->plan.zero_is_unsaid = s->plan.zero == UNSAID;
    if (!s->plan.zero_is_unsaid)
        return OK;
    return settings_key_set(k, k->name, mesh_degree(&s->plan.mesh, MESH_PP) > 1 ? "auto" : k->value, s);
}

/* Sets the run's directory to runs/DATE-MODEL, with the time to the second; a resumed run keeps its directory. */
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

enum status settings_read(const struct settings_flags *f, enum settings_use use, struct settings *out)
{
    enum status st = OK;
    struct settings s = {0};
    if (f->fault[0])
        return status_fail(ERR_INVALID, "%s", f->fault);
    TRY_GOTO(settings_defaults(&s, 0), fail);
    s.plan.zero = UNSAID;
    TRY_GOTO(read_file(f, &s), fail);
    if (flag_value(f, "resume") && !flag_value(f, "tiles")) {
        s.tiles_mesh = s.plan.mesh;
        for (int d = 0; d < MESH_DIMS; d++) /* a run writes such a degree only if it is above 1 */
            if (mesh_rows[d].optional)
                s.tiles_mesh.degree[d] = mesh_degree(&s.plan.mesh, (enum mesh_dim)d);
    }
    const int64_t length = s.plan.seq_len;
    TRY_GOTO(forget_training(f, use, &s), fail);
    TRY_GOTO(apply_flags(f, &s), fail);
    note_flags(f, &s);
    if (flag_value(f, "steps") && !flag_value(f, "epochs"))
        s.epochs = 0; /* drops the file's value */
    TRY_GOTO(check_required(&s, f, use), fail);
    TRY_GOTO(check_data(&s, f), fail);
    TRY_GOTO(resolve_ranks(&s, f), fail);
    TRY_GOTO(resolve_zero(&s), fail);
    s.plan.packing_is_recalled = flag_value(f, "resume") && !flag_value(f, "micro-batch");
    if (s.plan.packing_is_recalled && s.plan.seq_len > length && s.plan.micro_batch > 1) /* longer ones may not fit together */
        s.plan.micro_batch = AUTO;
    TRY_GOTO(resolve_drives(&s, f), fail);
    TRY_GOTO(check_together(&s, f, use), fail);
    TRY_GOTO(resolve_out(&s), fail);
    if (s.max_seq) /* the longest single length is sought, so that the file's curriculum is dropped */
        s.curriculum.n = 0;
    *out = s;
    return OK;
fail:
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
