/* The directory of a run. */
#include "train/ends.h"
#include "train/run.h"
#include "train/template.h"

#include "base/directory.h"
#include "base/sys.h"
#include "base/tell.h"
#include "data/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tells whether a path exists. ERR_IO if that is unknown: the path might be overwritten. */
static enum status look(const char *path, int *there)
{
    *there = sys_access(path, F_OK) == 0;
    return *there || sys_is_absent(errno) ? OK : status_fail(ERR_IO, "cannot look at %s: %s", path, strerror(errno));
}

/* Refuses to overwrite another run. One that ended before its first checkpoint left only its log, which is kept (run_open_files):
 * the run starts anew, as a requeued job does. */
static enum status refuse_old(const struct settings *s)
{
    char path[4096], newest[4096];
    int there;
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->out);
    TRY(look(path, &there));
    if (!there)
        return OK;
    enum status found = checkpoint_newest(s->out, newest, sizeof newest);
    if (found != OK && found != ERR_INVALID)
        return found;
    if (found == OK)
        return status_fail(ERR_INVALID, "%s already holds a run: continue it with --resume %s, or give another --out", s->out,
                           s->out);
    snprintf(path, sizeof path, "%s/hf", s->out);
    TRY(look(path, &there));
    if (there)
        return status_fail(ERR_INVALID,
                           "%s already holds a run and its model, without a checkpoint to continue from: give another --out, or "
                           "remove it",
                           s->out);
    return OK;
}

enum status run_keep_log(const char *run)
{
    char path[4096], aside[4096];
    int there, n;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    TRY(look(path, &there));
    for (n = 0; there && n < 100000;) {
        snprintf(aside, sizeof aside, "%s/metrics-%d.jsonl", run, ++n);
        TRY(look(aside, &there));
    }
    if (n == 0)
        return OK;
    if (sys_rename(path, aside) != 0)
        return status_fail(ERR_IO, "cannot rename %s to %s: %s", path, aside, strerror(errno));
    tell("run: %s held a run that ended before its first checkpoint: it starts anew, and the former log is metrics-%d.jsonl\n",
         run, n);
    return OK;
}

/* Makes sure that a directory can be made: `path` itself, or the nearest of its parents that exists, decides. */
enum status run_check_can_be_made(const char *option, const char *path)
{
    char at[4096];
    struct stat sb;
    int there;
    snprintf(at, sizeof at, "%s", path);
    while (!(there = sys_stat(at, &sb) == 0) && sys_is_absent(errno) && strcmp(at, ".") != 0) {
        if (sys_lstat(at, &sb) == 0)
            return status_fail(ERR_INVALID,
                               "%s %s: %s is a link to something that is not there: make that directory, or give another", option,
                               path, at);
        char *slash = strrchr(at, '/');
        if (!slash)
            strcpy(at, ".");
        else
            slash[slash == at ? 1 : 0] = 0;
    }
    if (there && S_ISDIR(sb.st_mode) && sys_access(at, W_OK | X_OK) == 0)
        return OK;
    return status_fail(ERR_INVALID, "%s %s: %s: %s: give another directory", option, path, at,
                       strerror(there && !S_ISDIR(sb.st_mode) ? ENOTDIR : errno));
}

/* Refuses a new run in a directory, or through a link, that another user owns: that user could put files of a run there
 * beforehand, or replace them. */
static enum status refuse_another_owner(const char *path, const struct stat *dir)
{
    struct stat link;
    int linked = sys_lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    const uid_t me = geteuid(), owner = linked && link.st_uid != me && link.st_uid != 0 ? link.st_uid : dir->st_uid;
    if (owner == me)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--out %s belongs to user %lld and this process to user %lld: a new run needs a directory of its own: give one "
        "that is not there yet, such as %s/run",
        path, (long long)owner, (long long)me, path);
}

/* Refuses directories of the run that another user has linked elsewhere; the user's own links may lead to a larger drive. */
static enum status check_links(const char *out)
{
    static const char *const names[] = {"checkpoints", "hf"};
    char path[4096];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        TRY(directory_check_link(path));
    }
    return OK;
}

static enum status check_directory(const struct settings *s, int *exists)
{
    struct stat sb;
    TRY(run_check_can_be_made(s->resume ? "--resume" : "--out", s->out));
    *exists = !s->out_is_default && sys_stat(s->out, &sb) == 0;
    if (*exists && !s->resume)
        TRY(refuse_another_owner(s->out, &sb));
    return *exists ? check_links(s->out) : OK;
}

/* Locks the directory, then checks it, so that a run that is just beginning is not misread. */
static enum status lock(struct run *r)
{
    int leads = comm_rank(r->comm) == 0;
    TRY(run_lock_take(r->comm, r->s->out, &r->place.lock));
    r->place.locked = 1;
    if (leads)
        checkpoint_remove_dead(r->s->out);
    TRY(comm_agree(r->comm, leads && !r->s->resume ? refuse_old(r->s) : OK));
    return checkpoint_compare_place(r->comm, r->s->out);
}

enum status run_claim_directory(struct run *r)
{
    int32_t exists = 0;
    int there = 0, leads = comm_rank(r->comm) == 0;
    TRY(comm_agree(r->comm, leads ? check_directory(r->s, &there) : OK));
    exists = there;
    TRY(comm_broadcast(r->comm, 0, &exists, sizeof exists));
    return exists ? lock(r) : OK;
}

#define SAME_SECOND 10000 /* limit of directories for runs that begin at one time */

/* Makes a distinct directory for each of several runs that begin in the same second: NAME, NAME-2, NAME-3, ... */
enum status run_make_distinct(const char *name, char path[RUN_PATH])
{
    char parent[RUN_PATH];
    const char *slash = strrchr(name, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - name) : 0, name);
    if (parent[0])
        TRY(directory_make(parent));
    for (int n = 1; n <= SAME_SECOND; n++) {
        int length = n == 1 ? snprintf(path, RUN_PATH, "%s", name) : snprintf(path, RUN_PATH, "%s-%d", name, n);
        if (length >= RUN_PATH)
            return status_fail(ERR_INVALID, "%.64s...: the path is too long", name);
        if (sys_mkdir(path, 0777) == 0)
            return directory_keep(path);
        if (errno != EEXIST)
            break;
    }
    return status_fail(ERR_IO, "cannot make the directory %s: %s", path, strerror(errno));
}

enum status run_make_directory(struct run *r)
{
    char path[RUN_PATH] = "";
    int leads = comm_rank(r->comm) == 0;
    if (r->place.locked)
        return OK;
    if (!r->s->out_is_default) {
        TRY(comm_agree(r->comm, leads ? directory_make(r->s->out) : OK));
        return lock(r);
    }
    TRY(comm_agree(r->comm, leads ? run_make_distinct(r->s->out, path) : OK));
    TRY(comm_broadcast(r->comm, 0, path, sizeof path));
    char *out = strdup(path);
    TRY(comm_agree(r->comm, out ? OK : status_fail(ERR_NOMEM, "out of memory")));
    free(r->s->out);
    r->s->out = out;
    return lock(r);
}

enum status run_check_place(struct run *r)
{
    enum status st = comm_agree(r->comm, r->place.lock ? run_lock_check(r->place.lock) : OK);
    r->place.taken_over = st == ERR_INVALID;
    return r->place.taken_over ? ERR_IO : st; /* a failure while running, not one of the settings */
}

static int has_config(const char *dir)
{
    char path[RUN_PATH + 16];
    snprintf(path, sizeof path, "%s/config.json", dir);
    return sys_access(path, F_OK) == 0 || !sys_is_absent(errno); /* the reader reports why it cannot be opened */
}

const char *run_original(const struct settings *s, char path[RUN_PATH])
{
    snprintf(path, RUN_PATH, "%s/original", s->out);
    return (model_is_preset(s->model) ? tokenizer_is_in(path) : has_config(path)) ? path : NULL;
}

static int is_same(const char *a, const char *b)
{
    struct stat x, y;
    return sys_stat(a, &x) == 0 && sys_stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int is_in(const char *file, const char *dir)
{
    char its[RUN_PATH];
    const char *slash = strrchr(file, '/');
    snprintf(its, sizeof its, "%.*s", slash ? (int)(slash - file) + (slash == file) : 1, slash ? file : ".");
    return is_same(its, dir);
}

/* Returns the file of --tokenizer unless it is the model's own; else NULL. The same file in another directory may have another
 * chat template beside it. */
static const char *other_tokenizer(const struct run *r)
{
    char own[RUN_PATH];
    if (!r->s->tokenizer || !r->inputs.tokenizer[0])
        return NULL;
    snprintf(own, sizeof own, "%s/%s", r->s->model, tokenizer_file_name(r->inputs.tokenizer));
    return is_same(own, r->inputs.tokenizer) && is_in(r->inputs.tokenizer, r->s->model) ? NULL : r->inputs.tokenizer;
}

/* Replaces the tokenizer of a resumed run, whose copy may be another one or incomplete. */
static enum status replace_tokenizer(const char *tokenizer, const char *path)
{
    return is_in(tokenizer, path) ? OK : checkpoint_keep_tokenizer(tokenizer, path);
}

/* Tells whether texts were read as bytes: the model's own tokenizer would then make other tokens than it was trained on. */
static int reads_bytes(const struct run *r)
{
    return r->s->tokenizer && !r->inputs.tokenizer[0] && !model_is_preset(r->s->model) && r->inputs.corpus &&
           !stream_has_ids(corpus_get_source(r->inputs.corpus, 0).documents);
}

static enum status keep_original(const struct run *r, const char *tokenizer, const char *path)
{
    const struct settings *s = r->s;
    struct stat from, to;
    char was[RUN_PATH];
    /* the copy is replaced even by the model's own tokenizer, since the copied one may be another */
    if (s->resume && run_original(s, was)) {
        TRY(checkpoint_check_others(was, r->model));
        return s->tokenizer && r->inputs.tokenizer[0] ? replace_tokenizer(r->inputs.tokenizer, was) : OK;
    }
    if (model_is_preset(s->model) || !has_config(s->model))
        return tokenizer ? checkpoint_keep_tokenizer(tokenizer, path) : OK;
    int both = sys_stat(s->model, &from) == 0 && sys_stat(path, &to) == 0;
    if (!both && !sys_is_absent(errno))
        return status_fail(ERR_IO, "cannot look at %s or %s: %s", s->model, path, strerror(errno));
    if (both && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return tokenizer ? replace_tokenizer(tokenizer, path) : OK;
    TRY(checkpoint_keep_others(s->model, r->model,
                               path)); /* comes first: config.json, copied last, shows that all files are there */
    return checkpoint_keep_texts(s->model, reads_bytes(r) ? "" : tokenizer, path);
}

/* ---- the chat template ---- */

static enum status write_template(const struct run *r, const struct tokenizer *t, const char *dir)
{
    struct chat_template *used = NULL;
    struct text_buffer text = {.n = 0}, tools = {.n = 0};
    enum status st = template_open(r->s, t, &used);
    const struct chat_template *of_tools = st == OK ? chat_template_for_tools(used) : NULL;
    if (st == OK)
        st = template_text(used, dir, &text);
    if (st == OK && of_tools)
        st = template_text(of_tools, dir, &tools);
    if (st == OK)
        st = checkpoint_keep_template((const char *)text.data, of_tools ? (const char *)tools.data : NULL, dir);
    text_buffer_free(&text);
    text_buffer_free(&tools);
    chat_template_destroy(used);
    return st;
}

/* Keeps --chat-template if conversations were read by it. */
static enum status keep_template(const struct run *r)
{
    char dir[RUN_PATH];
    struct tokenizer *t;
    if (!r->s->chat_template || !r->inputs.tokenizer[0] || corpus_get_report(r->inputs.corpus)->chats.conversations == 0 ||
        !run_original(r->s, dir))
        return OK;
    TRY(tokenizer_open(r->inputs.tokenizer, &t));
    enum status st = write_template(r, t, dir);
    tokenizer_close(t);
    if (st == OK)
        tell("template: the result gets that of %s (--chat-template)\n", r->s->chat_template);
    return st;
}

/* Keeps the tokens that end the trained turns of conversations. */
static enum status keep_ends(const struct run *r)
{
    char dir[RUN_PATH];
    struct tokenizer *t;
    const struct chat_counts *chats = &corpus_get_report(r->inputs.corpus)->chats;
    if (!r->inputs.tokenizer[0] || chats->n_ends == 0 || !run_original(r->s, dir))
        return OK;
    TRY(tokenizer_open(r->inputs.tokenizer, &t));
    enum status st = ends_keep(chats, t, dir, r->s->plan.lora.rank > 0);
    tokenizer_close(t);
    return st;
}

/* Prints a remark if documents of ids end with a token that the model does not know as an end. */
static enum status remark_ends(const struct run *r)
{
    char dir[RUN_PATH];
    struct tokenizer *t = NULL;
    enum status st = OK;
    if (!run_original(r->s, dir))
        return OK;
    if (r->inputs.tokenizer[0])
        TRY(tokenizer_open(r->inputs.tokenizer, &t));
    for (int i = 0; i < corpus_sources(r->inputs.corpus) && st == OK; i++) {
        const struct corpus_source source = corpus_get_source(r->inputs.corpus, i);
        st = ends_remark(&source, t, dir);
    }
    tokenizer_close(t);
    return st;
}

enum status run_keep_original(const struct run *r)
{
    char path[RUN_PATH];
    const char *tokenizer = other_tokenizer(r);
    snprintf(path, sizeof path, "%s/original", r->s->out);
    TRY(keep_original(r, tokenizer, path));
    if (tokenizer)
        tell("tokenizer: the result gets that of %s%s\n", tokenizer, model_is_preset(r->s->model) ? "" : ", not the model's own");
    else if (reads_bytes(r))
        tell("tokenizer: the result gets none, as its text was read as bytes (--tokenizer bytes)\n");
    if (!r->inputs.corpus)
        return OK;
    TRY(keep_template(r));
    TRY(keep_ends(r));
    return remark_ends(r);
}
