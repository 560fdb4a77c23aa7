#include "eval/held_out.h"

#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "settings/read.h"
#include "train/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMEDY "give --eval-data PATH, what is evaluated on"

/* ---- the run ---- */

/* Cuts off the last part of a path. */
static void cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    else
        strcpy(path, ".");
}

/* Finds RUN from RUN/hf or RUN/checkpoints/step-000100. */
static int find_run(const char *state, char run[RUN_PATH])
{
    char config[RUN_PATH + 16];
    snprintf(run, RUN_PATH, "%s", state);
    for (size_t n = strlen(run); n > 1 && run[n - 1] == '/'; n--)
        run[n - 1] = 0;
    const char *slash = strrchr(run, '/');
    const int saved = checkpoint_is_there(run);
    if (!saved && strcmp(slash ? slash + 1 : run, "hf") != 0)
        return 0;
    cut(run);
    if (saved) /* the directory checkpoints */
        cut(run);
    snprintf(config, sizeof config, "%s/config.yaml", run);
    return saved || sys_access(config, F_OK) == 0;
}

/* Reads the list of the run's files; NULL: neither the run nor its newest checkpoint has it. */
static char *read_files(const char *run)
{
    char path[RUN_PATH], *text = NULL;
    size_t room = 0;
    struct checkpoint_texts texts;
    FILE *f = run_data_list(run, path) ? sys_read_text(path) : NULL;
    if (f) {
        ssize_t n = getdelim(&text, &room, 0, f);
        fclose(f);
        if (n > 0)
            return text;
        free(text);
    }
    if (checkpoint_newest(run, path, sizeof path) != OK || checkpoint_read_texts(path, &texts) != OK)
        return NULL;
    free(texts.settings);
    if (texts.data[0])
        return texts.data;
    free(texts.data);
    return NULL;
}

/* Tells whether a file, a directory or a match of a pattern exists. */
static int is_there(const char *path)
{
    glob_t g = {0};
    struct stat sb;
    if (sys_stat(path, &sb) == 0)
        return 1;
    const int matches = sys_glob(path, 0, &g) == 0;
    globfree(&g);
    return matches;
}

static const struct string_list *paths_of(const struct held_out *h)
{
    return h->settings.eval_data.n > 0 ? &h->settings.eval_data : &h->settings.data;
}

static enum status check_paths(const struct held_out *h)
{
    const struct string_list *paths = paths_of(h);
    for (int i = 0; i < paths->n; i++) {
        char path[RUN_PATH];
        size_t n;
        double weight;
        settings_weight(paths->item[i], &n, &weight);
        snprintf(path, sizeof path, "%.*s", (int)n, paths->item[i]);
        if (!is_there(path))
            return status_fail(ERR_INVALID, "what %s held out is gone: %s is not there any more (--%s of the run): " REMEDY,
                               h->run, path, h->settings.eval_data.n > 0 ? "eval-data" : "data");
    }
    return OK;
}

static enum status take_tokenizer(struct settings *s, const struct settings *run)
{
    if (settings_is_typed(s, "tokenizer") || !run->tokenizer)
        return OK;
    free(s->tokenizer);
    s->tokenizer = strdup(run->tokenizer);
    return s->tokenizer ? OK : status_fail(ERR_NOMEM, "out of memory");
}

enum status held_out_find(struct settings *s, struct held_out *out)
{
    struct held_out h = {.taken = 1};
    if (!find_run(s->adapter ? s->adapter : s->model, h.run))
        return status_fail(ERR_INVALID, "eval-data is missing: " REMEDY " (of a run its own held-out text is taken)");
    TRY(settings_read_run(h.run, &h.settings));
    enum status st = OK;
    if (h.settings.eval_data.n == 0 && h.settings.eval_fraction == 0)
        st = status_fail(ERR_INVALID,
                         "%s has held nothing out of its training (it had neither eval-data nor eval-fraction): " REMEDY, h.run);
    if (st == OK)
        st = check_paths(&h);
    if (st == OK)
        st = take_tokenizer(s, &h.settings);
    if (st == OK)
        h.files = read_files(h.run);
    if (st == OK)
        *out = h;
    else
        settings_free(&h.settings);
    return st;
}

void held_out_free(struct held_out *h)
{
    if (h->taken)
        settings_free(&h->settings);
    free(h->files);
    *h = (struct held_out){.taken = 0};
}

void held_out_apply(const struct held_out *h, struct settings *s)
{
    const struct settings *run = &h->settings;
    s->data = run->data;
    s->eval_data = run->eval_data;
    s->eval_fraction = run->eval_fraction;
    s->packing = run->packing;
    s->too_long = run->too_long;
    if (!settings_is_typed(s, "text-column"))
        s->text_column = run->text_column;
    if (!settings_is_typed(s, "data-exclude"))
        s->data_exclude = run->data_exclude;
    if (!settings_is_typed(s, "append-eos"))
        s->append_eos = run->append_eos;
    if (!settings_is_typed(s, "token-type"))
        s->token_type = run->token_type;
    if (!settings_is_typed(s, "chat-template"))
        s->chat_template = run->chat_template;
    if (!settings_is_typed(s, "template-var"))
        s->template_var = run->template_var;
    if (!settings_is_typed(s, "train-on"))
        s->train_on = run->train_on;
    if (!settings_is_typed(s, "chat-turns"))
        s->turns = run->turns;
}

/* ---- the text ---- */

static enum status refuse_changed(const struct held_out *h, const char *what)
{
    return status_fail(ERR_INVALID, "what %s held out is not there as it was: %s: " REMEDY, h->run, what);
}

/* Compares `now`, the list of the opened files, with the run's. Files of --eval-data are all that was held out. For a share,
 * tokenizer and sequences decide where it begins and must be equal, too. */
static enum status compare(const struct held_out *h, const char *now)
{
    struct fingerprint_difference d;
    struct corpus_layout is, was;
    char what[1024];
    const int whole = h->settings.eval_data.n > 0;
    if (fingerprint_lists_differ(now, h->files, whole ? "eval-data" : "data", &d)) {
        fingerprint_describe(&d, what, sizeof what);
        return refuse_changed(h, what);
    }
    if (whole)
        return OK;
    if (fingerprint_lists_differ(now, h->files, "tokenizer", &d))
        return refuse_changed(
            h,
            "the tokenizer is another one, or --text-column, --append-eos, --chat-template, --template-var, --chat-turns or --train-on");
    if (!corpus_read_layout(now, &is) || !corpus_read_layout(h->files, &was) || is.trained_below != was.trained_below)
        return refuse_changed(h, "its documents are cut into other sequences");
    return OK;
}

static enum status check_files(const struct held_out *h, const struct windows *w)
{
    char *text = NULL;
    size_t size = 0;
    if (!h->files)
        return OK;
    FILE *f = open_memstream(&text, &size);
    enum status st = f ? windows_write_contents(w, f) : status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    if (st == OK)
        st = compare(h, text);
    free(text);
    return st;
}

enum status held_out_open(const struct held_out *h, const struct corpus_config *config, int64_t stride, struct windows **out)
{
    struct corpus_config all = *config;
    struct windows *w;
    all.seq_len = h->settings.plan.seq_len;
    TRY(config->n_eval_paths > 0 ? windows_open(config, stride, &w) : windows_open_held_out(&all, config->seq_len, stride, &w));
    enum status st = check_files(h, w);
    if (st == OK)
        *out = w;
    else
        windows_close(w);
    return st;
}

/* ---- lines about the text ---- */

void held_out_print(const struct held_out *h, FILE *f)
{
    enum { SHOWN = 3 };
    const struct string_list *paths = paths_of(h);
    const int whole = h->settings.eval_data.n > 0;
    fprintf(f, "text: what %s has held out of its training: ", h->run);
    if (!whole)
        fprintf(f, "the last %.4g%% of ", 100 * h->settings.eval_fraction);
    for (int i = 0; i < paths->n && i < SHOWN; i++)
        fprintf(f, "%s%s", i ? ", " : "", paths->item[i]);
    if (paths->n > SHOWN)
        fprintf(f, " and %d more", paths->n - SHOWN);
    fprintf(f, " (its --%s), %s\n", whole ? "eval-data" : "eval-fraction",
            h->files ? "as it was then" : "whether as it was then nothing says: its data.txt is gone");
}

enum status held_out_add(const struct held_out *h, json_t *o)
{
    const struct string_list *paths = paths_of(h);
    json_t *list = json_array();
    for (int i = 0; i < paths->n; i++)
        json_array_append_new(list, json_string(paths->item[i]));
    json_t *text = json_pack("{s:s, s:o, s:f, s:b}", "run", h->run, "paths", list, "fraction",
                             h->settings.eval_data.n > 0 ? 1.0 : h->settings.eval_fraction, "checked", h->files != NULL);
    return text && json_object_set_new(o, "held_out_of", text) == 0 ? OK
                                                                    : status_fail(ERR_NOMEM, "out of memory for what was found");
}
