/* A run's corpus, read as tokens of the model's tokenizer or as bytes. */
#include "train/data.h"
#include "train/run.h"
#include "train/template.h"

#include "base/cgroup.h"
#include "base/num.h"
#include "base/sys.h"
#include "base/tell.h"
#include "data/stream.h"
#include "settings/read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the directory or file of the tokenizer; NULL: texts are read as bytes. */
static enum status find_tokenizer(const struct settings *s, const char **out)
{
    *out = NULL;
    if (s->tokenizer) {
        *out = strcmp(s->tokenizer, "bytes") == 0 ? NULL : s->tokenizer;
        return OK;
    }
    if (model_is_preset(s->model))
        return OK;
    if (tokenizer_is_in(s->model))
        *out = s->model;
    return OK;
}

/* Finds the directory that keeps tokens for the next run. */
static void find_cache(const struct settings *s, char path[4096])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (s->token_cache)
        snprintf(path, 4096, "%s", s->token_cache);
    else if (cache && cache[0] == '/')
        snprintf(path, 4096, "%s/ltrain/tokens", cache);
    else
        snprintf(path, 4096, "%s/.cache/ltrain/tokens", home && home[0] ? home : "/tmp");
}

/* Settings that a corpus is opened with, and its reader. */
struct reading {
    const struct settings *s;
    const struct model *model;
    data_reader *read;
    void *user;
};

/* --data as paths and, if there are several, their weights. */
struct sources {
    char *path[SETTINGS_MAX_LIST];
    double weight[SETTINGS_MAX_LIST];
    int n, weighted;
};

static void free_sources(struct sources *x)
{
    for (int i = 0; i < x->n; i++)
        free(x->path[i]);
}

static enum status split_sources(const struct string_list *data, struct sources *x)
{
    const char *without = NULL;
    *x = (struct sources){.n = 0};
    for (int i = 0; i < data->n; i++) {
        size_t length;
        int weighted = settings_weight(data->item[i], &length, &x->weight[i]);
        x->weighted += weighted;
        without = without || weighted ? without : data->item[i];
        x->path[i] = strndup(data->item[i], length);
        if (!x->path[i])
            return status_fail(ERR_NOMEM, "out of memory: a list of files");
        x->n++;
    }
    if (x->weighted > 0 && x->weighted < x->n)
        return status_fail(
            ERR_INVALID,
            "--data: some of its %d paths have weights and others, as %.200s, have none: give each one (books=0.7,chats=0.3), or none",
            x->n, without);
    return OK;
}

static enum status check_eval_paths(const struct string_list *list)
{
    for (int i = 0; i < list->n; i++) {
        size_t length;
        double weight;
        if (settings_weight(list->item[i], &length, &weight))
            return status_fail(ERR_INVALID, "--eval-data: %s: all of it is evaluated, so it takes no weights", list->item[i]);
    }
    return OK;
}

/* ---- options that do nothing ---- */

/* An option and the kinds of files that it applies to. */
struct option {
    const char *key;
    int given;
    unsigned of; /* kinds of files on which the option has an effect (HOLDS_*) */
    const char *what;
};

/* Refuses an option on the command line that has no effect; one in a settings file, which may serve several runs, gets a remark. */
static enum status refuse_option(const struct settings *s, const struct option *o, const char *why)
{
    if (settings_is_typed(s, o->key))
        return status_fail(ERR_INVALID, "--%s is of %s, of which the data have none%s: leave it out", o->key, o->what, why);
    if (!s->plan.evaluation) /* evaluations print no remarks, since their output may be JSON */
        tell("remark: %s is of %s, of which the data have none%s: it does nothing\n", o->key, o->what, why);
    return OK;
}

/* Refuses --append-eos where no token ends a document. */
static enum status check_eos(const struct tokenizer *t)
{
    if (!t)
        return status_fail(
            ERR_INVALID,
            "--append-eos: texts are read as bytes, none of which ends a document: --tokenizer DIR names a tokenizer, or leave --append-eos out");
    if (tokenizer_eos(t) < 0)
        return status_fail(
            ERR_INVALID,
            "--append-eos: no file names the eos token of %s: write it to tokenizer_config.json beside it, as eos_token, or leave --append-eos out",
            tokenizer_path(t));
    return tokenizer_eos(t) < tokenizer_ids(t)
               ? OK
               : status_fail(
                     ERR_INVALID,
                     "--append-eos: the eos token of %s has the id %d, and the model's embedding has %lld rows: name another one in "
                     "tokenizer_config.json, or leave --append-eos out",
                     tokenizer_path(t), tokenizer_eos(t), (long long)tokenizer_ids(t));
}

static enum status check_options(const struct settings *s, const struct corpus_config *config)
{
    static const char chats[] = "conversations in .jsonl files";
    const struct option options[] = {
        {"text-column", s->text_column && strcmp(s->text_column, "text") != 0, HOLDS_ROWS, "rows of text in .jsonl files"},
        {"append-eos", s->append_eos, HOLDS_TEXTS, "text files and rows of text"},
        {"token-type", s->token_type != TOKEN_NONE, HOLDS_BARE_IDS, "ids in .bin files without a header"},
        {"token-cache", s->token_cache != NULL, HOLDS_TOKENS, "tokens that are kept for the next run"},
        {"chat-template", s->chat_template != NULL && !s->chat, HOLDS_CHATS, chats}, /* --chat applies these to tasks, too */
        {"template-var", s->template_var.n > 0 && !s->chat, HOLDS_CHATS, chats},
        {"train-on", s->train_on != TRAIN_ON_ASSISTANT, HOLDS_CHATS, chats},
        {"chat-turns", s->turns != TURNS_SPLIT, HOLDS_CHATS, chats},
    };
    struct corpus_config files = *config;
    unsigned holds = 0;
    int looked = 0;
    if (s->plan.evaluation && s->eval_data.n > 0) /* an evaluation with --eval-data reads no --data */
        files.n_paths = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i].given)
            continue;
        if (!looked++)
            TRY(corpus_look(&files, &holds));
        int as_bytes = !config->tokenizer && !(holds & HOLDS_TOKENS) && options[i].of != HOLDS_BARE_IDS;
        if (!(holds & options[i].of))
            TRY(refuse_option(s, &options[i], as_bytes ? " (they are read as bytes; --tokenizer DIR names a tokenizer)" : ""));
    }
    return s->append_eos && (holds & HOLDS_TEXTS) ? check_eos(config->tokenizer) : OK;
}

/* Refuses to read text as bytes if the model has a tokenizer that cannot be read. */
static enum status check_bytes(const struct settings *s, const struct corpus_config *config)
{
    unsigned holds = 0;
    if (config->tokenizer || s->tokenizer || model_is_preset(s->model) || tokenizer_check_others(s->model) == OK)
        return OK;
    TRY(corpus_look(config, &holds));
    return holds & HOLDS_TOKENS ? OK : tokenizer_check_others(s->model);
}

/* Makes the exclusion. Patterns of a resumed run or a settings file may match nothing: they may concern files that are not read
 * now. */
static struct exclusion exclusion_of(const struct settings *s, unsigned char used[SETTINGS_MAX_LIST])
{
    memset(used, 0, SETTINGS_MAX_LIST);
    return (struct exclusion){.patterns = (const char *const *)s->data_exclude.item,
                              .n = s->data_exclude.n,
                              .used = used,
                              .may_miss = !settings_is_typed(s, "data-exclude") && (s->resume || s->plan.evaluation)};
}

static enum status read_sources(const struct reading *x, const struct sources *sources, const struct tokenizer *t,
                                const struct chat_setup *chats)
{
    static const enum packing_kind kinds[] = {PACKING_BEST_FIT, PACKING_CONCAT};
    static const int token_bytes[] = {0, 2, 4};
    static const enum too_long longer[] = {TOO_LONG_SPLIT, TOO_LONG_DROP, TOO_LONG_TRUNCATE, TOO_LONG_REFUSE};
    const struct settings *s = x->s;
    char cache[4096], known[RUN_PATH];
    unsigned char used[SETTINGS_MAX_LIST];
    struct exclusion exclude = exclusion_of(s, used);
    find_cache(s, cache);
    struct corpus_config data = {.paths = (const char *const *)sources->path,
                                 .n_paths = sources->n,
                                 .exclude = &exclude,
                                 .weights = sources->weighted ? sources->weight : NULL,
                                 .packing = kinds[s->packing],
                                 .too_long = longer[s->too_long],
                                 .eval_paths = (const char *const *)s->eval_data.item,
                                 .n_eval_paths = s->eval_data.n,
                                 .eval_fraction = s->eval_fraction,
                                 .seq_len = s->plan.seq_len,
                                 .vocab = x->model->config.vocab,
                                 .tokenizer = t,
                                 .chats = chats,
                                 .cache = cache,
                                 .token_bytes = token_bytes[s->token_type],
                                 .column = s->text_column,
                                 .append_eos = s->append_eos && t,
                                 .threads = s->plan.threads > 0 ? s->plan.threads : cgroup_cores(),
                                 .seed = s->seed,
                                 .window = x->model->mask_window[0],
                                 .known = s->resume ? run_known_data(s->resume, known) : NULL};
    TRY(check_options(s, &data));
    TRY(check_bytes(s, &data));
    return x->read(x->user, &data);
}

static enum status read_data(const struct reading *x, const struct tokenizer *t, const struct chat_setup *chats)
{
    struct sources sources;
    enum status st = split_sources(&x->s->data, &sources);
    if (st == OK)
        st = check_eval_paths(&x->s->eval_data);
    if (st == OK)
        st = read_sources(x, &sources, t, chats);
    free_sources(&sources);
    return st;
}

/* Reads with the template. A missing or unreadable template is an error only for data that need it, or if --chat-template names
 * it. */
static enum status read_with(const struct reading *x, const struct tokenizer *t)
{
    enum { A_DAY = 1735689600 }; /* 1 January 2025: the true date would change the training data from day to day */
    static const enum chat_train trained[] = {CHAT_TRAIN_ASSISTANT, CHAT_TRAIN_LAST, CHAT_TRAIN_ALL};
    struct chat_template *chat_template = NULL;
    char missing[1024];
    json_t *variables;
    TRY(template_variables(x->s, &variables));
    enum status st = template_open(x->s, t, &chat_template);
    if (st != OK) {
        chat_template_destroy(chat_template);
        chat_template = NULL;
        if (x->s->chat_template) {
            json_decref(variables);
            return st;
        }
        snprintf(missing, sizeof missing, "%s (--chat-template)", status_message());
    }
    struct chat_setup setup = {.chat_template = chat_template,
                               .missing = missing,
                               .turns = x->s->turns == TURNS_WHOLE ? CHAT_TURNS_WHOLE : CHAT_TURNS_SPLIT,
                               .options = {.train = trained[x->s->train_on], .variables = variables, .now = A_DAY, .strict = 1}};
    st = read_data(x, t, &setup);
    chat_template_destroy(chat_template);
    json_decref(variables);
    return st;
}

static enum status read_by(const struct reading *x, const char *tokenizer)
{
    struct tokenizer *t;
    if (!tokenizer)
        return read_data(x, NULL, NULL);
    TRY(tokenizer_open(tokenizer, &t));
    tokenizer_fit(t, x->model->config.vocab);
    if (tokenizer_remark(t)[0] && !x->s->plan.evaluation) /* evaluations print no remarks, since their output may be JSON */
        tell("remark: %s\n", tokenizer_remark(t));
    enum status st = read_with(x, t);
    tokenizer_close(t);
    return st;
}

enum status data_read(const struct settings *s, const struct model *m, data_reader *read, void *user)
{
    const char *tokenizer;
    TRY(find_tokenizer(s, &tokenizer));
    return read_by(&(struct reading){s, m, read, user}, tokenizer);
}

enum status data_open_tokenizer(const struct settings *s, struct tokenizer **out)
{
    const char *path;
    *out = NULL;
    TRY(find_tokenizer(s, &path));
    if (!path && !s->tokenizer && !model_is_preset(s->model))
        TRY(tokenizer_check_others(s->model));
    return path ? tokenizer_open(path, out) : OK;
}

/* ---- a text ---- */

static enum status add_document(const struct stream *t, int64_t first, int64_t n, struct text_buffer *out)
{
    enum { AT_ONCE = 1 << 16 };
    int32_t *id = sys_malloc(AT_ONCE * sizeof *id), next;
    enum status st = id ? OK : status_fail(ERR_NOMEM, "out of memory: a text");
    for (int64_t at = 0; at < n && st == OK; at += AT_ONCE) {
        const int64_t count = min_i64(n - at, AT_ONCE);
        st = stream_read(t, first + at, count, id, &next);
        for (int64_t i = 0; i < count && st == OK; i++)
            st = text_buffer_add(out, &(uint8_t){(uint8_t)id[i]}, 1);
    }
    free(id);
    return st == OK ? text_buffer_add(out, "\n\n", 2) : st;
}

static enum status repair(struct text_buffer *text)
{
    struct text_buffer good = {.n = 0};
    int64_t n;
    TRY(text_repair(text->data, text->n, &good, &n));
    if (n > 0) {
        text_buffer_free(text);
        *text = good;
    }
    return OK;
}

static enum status read_documents(const struct settings *s, const struct sources *sources, const char *key, int64_t most,
                                  struct text_buffer *out)
{
    struct stream *t;
    char cache[4096];
    unsigned char used[SETTINGS_MAX_LIST];
    struct exclusion exclude = exclusion_of(s, used);
    find_cache(s, cache);
    TRY(stream_open(&(struct stream_config){.key = key,
                                            .paths = (const char *const *)sources->path,
                                            .n_paths = sources->n,
                                            .exclude = &exclude,
                                            .cache = cache,
                                            .column = s->text_column,
                                            .vocab = 256,
                                            .threads = 1},
                    &t));
    enum status st = exclusion_check(&exclude);
    if (st == OK)
        st = stream_has_ids(t)
                 ? status_fail(ERR_INVALID, "%s: %s holds token ids, and the tasks are made of text", key, sources->path[0])
                 : stream_survey(t, 0, NULL);
    for (int64_t i = 0; i < stream_documents(t) && st == OK && (int64_t)out->n < most; i++) {
        const int64_t first = stream_first(t, i);
        st = add_document(t, first, min_i64(stream_end(t, i) - first, most - (int64_t)out->n), out);
    }
    stream_close(t);
    return st == OK ? repair(out) : st;
}

enum status data_read_text(const struct settings *s, int64_t most, struct text_buffer *out)
{
    struct sources sources;
    const struct string_list *list = s->data.n ? &s->data : &s->eval_data;
    enum status st = split_sources(list, &sources);
    if (st == OK && sources.n > 0)
        st = read_documents(s, &sources, s->data.n ? "--data" : "--eval-data", most, out);
    free_sources(&sources);
    if (st != OK)
        text_buffer_free(out);
    return st;
}

static enum status open_corpus(void *run, const struct corpus_config *config)
{
    struct run *r = run;
    snprintf(r->inputs.tokenizer, sizeof r->inputs.tokenizer, "%s", config->tokenizer ? tokenizer_path(config->tokenizer) : "");
    return corpus_open(config, &r->inputs.corpus);
}

/* Opens the corpus: one rank of each host tokenizes, and the others take the tokens from the cache. */
enum status run_open_data(struct run *r)
{
    const struct reading x = {r->s, r->model, open_corpus, r};
    const char *path;
    enum status st = find_tokenizer(r->s, &path);
    int first = comm_local_rank(r->comm) == 0;
    if (st == OK && (!path || first))
        st = read_by(&x, path);
    TRY(comm_agree(r->comm, st));
    return comm_agree(r->comm, path && !first ? read_by(&x, path) : OK);
}
