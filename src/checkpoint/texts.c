/* Copying the files beside config.json that say how a model is used: tokenizer, chat template, generation.
 *
 * They are copied byte for byte, so that a run's export has them even if the model's own directory is gone by then. */
#include "checkpoint/texts.h"

#include "base/directory.h"
#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "engine/weights.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Names of these files: first the model's own, then the tokenizer's without a vocabulary, then those with one. */
/* clang-format off */
static const char *const names[] = {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                    "chat_template.jinja",    "chat_template.json",    "tokenizer.json",          "tokenizer.model",
                                    "vocab.json",             "merges.txt",            "tekken.json",          "spiece.model",
                                    "tiktoken.model",         "vocab.txt",             "sentencepiece.bpe.model"};
/* clang-format on */
enum { N_NAMES = sizeof names / sizeof *names, OF_TOKENIZER = 1, WITH_VOCABULARY = 6 };

/* Tells whether a file in additional_chat_templates/ is a template by its name. */
static int is_template(const char *name)
{
    const size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".jinja") == 0;
}

/* Copies templates by name: additional_chat_templates/NAME.jinja, and nothing else that lies there. */
static enum status copy_templates(const char *from, const char *to)
{
    char source[CKPT_PATH], target[CKPT_PATH], a[CKPT_PATH], b[CKPT_PATH];
    struct dirent *e;
    enum status st = OK;
    TRY(ckpt_path(source, from, CKPT_TEMPLATES, ""));
    TRY(ckpt_path(target, to, CKPT_TEMPLATES, ""));
    DIR *d = sys_opendir(source);
    if (!d)
        return sys_is_absent(errno) ? OK : sys_cannot_open(source);
    while (st == OK && (e = sys_readdir(d)) != NULL) {
        if (!is_template(e->d_name))
            continue;
        st = ckpt_make_dir(target);
        if (st == OK)
            st = ckpt_path(a, source, e->d_name, "");
        if (st == OK)
            st = ckpt_path(b, target, e->d_name, "");
        if (st == OK)
            st = ckpt_copy(a, b);
    }
    closedir(d);
    return st;
}

/* Removes templates by name. */
static enum status remove_templates(const char *dir)
{
    char path[CKPT_PATH];
    TRY(ckpt_path(path, dir, CKPT_TEMPLATES, ""));
    ckpt_remove_dir(path);
    return OK;
}

static enum status copy_named(const char *from, const char *to, int first, int end)
{
    return ckpt_copy_named(from, to, names + first, end - first);
}

enum status texts_copy(const char *from, const char *to)
{
    TRY(copy_named(from, to, 0, N_NAMES));
    return copy_templates(from, to);
}

static enum status copy_with_templates(const char *from, const char *to, int end)
{
    TRY(copy_named(from, to, OF_TOKENIZER, end));
    return copy_templates(from, to);
}

/* Copies a tokenizer. tokenizer: its directory, or its file, which may have any name. Files beside that file are copied, too,
 * except those with another vocabulary. */
static enum status copy_tokenizer(const char *tokenizer, const char *to)
{
    char dir[CKPT_PATH], target[CKPT_PATH];
    struct stat s;
    if (sys_stat(tokenizer, &s) == 0 && S_ISDIR(s.st_mode))
        return copy_with_templates(tokenizer, to, N_NAMES);
    const char *slash = strrchr(tokenizer, '/'), *name = slash ? slash + 1 : tokenizer;
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - tokenizer) + (slash == tokenizer) : 1, slash ? tokenizer : ".");
    if (strcmp(name, "tokenizer.json") == 0)
        return copy_with_templates(dir, to, N_NAMES);
    TRY(copy_with_templates(dir, to, WITH_VOCABULARY));
    TRY(ckpt_path(target, to, tokenizer_file_name(name), ""));
    return ckpt_copy(tokenizer, target);
}

int texts_has(const char *name)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return strcmp(name, CKPT_TEMPLATES) == 0;
}

enum status texts_gather(const char *model, const char *tokenizer, const char *to)
{
    TRY(copy_named(model, to, 0, tokenizer ? OF_TOKENIZER : N_NAMES));
    if (!tokenizer)
        TRY(copy_templates(model, to));
    return tokenizer && tokenizer[0] ? copy_tokenizer(tokenizer, to) : OK;
}

/* Moves the templates that are kept by name over the former ones. whole: former templates are removed even if there are no new
 * ones. */
static enum status move_templates(const char *from, const char *to, int whole)
{
    static const char *const name[] = {CKPT_TEMPLATES};
    char path[CKPT_PATH];
    struct stat s;
    TRY(ckpt_path(path, from, CKPT_TEMPLATES, ""));
    const int there = sys_stat(path, &s) == 0;
    if (there || whole)
        TRY(remove_templates(to));
    return there ? ckpt_move_named(from, to, name, 1) : OK;
}

enum status texts_move(const char *from, const char *to)
{
    char path[CKPT_PATH];
    int kept[N_NAMES];
    const int whole = tokenizer_is_in(from);
    for (int i = 0; i < N_NAMES; i++) {
        TRY(ckpt_path(path, from, names[i], ""));
        TRY(ckpt_look(path, &kept[i]));
    }
    TRY(ckpt_move_named(from, to, names, N_NAMES));
    for (int i = OF_TOKENIZER; i < N_NAMES && whole; i++) {
        TRY(ckpt_path(path, to, names[i], ""));
        if (!kept[i])
            sys_unlink(path);
    }
    return move_templates(from, to, whole);
}

static enum status remove_named(const char *dir)
{
    char path[CKPT_PATH];
    for (int i = -1; i < N_NAMES; i++) {
        TRY(ckpt_path(path, dir, i < 0 ? "config.json" : names[i], ""));
        sys_unlink(path);
    }
    return remove_templates(dir);
}

static enum status copy_others(const char *from, const char *to)
{
    static const char *const others[] = {CKPT_OTHERS};
    return ckpt_copy_named(from, to, others, 1);
}

/* Tells whether files of the model may have tensors beside it; those of a multimodal model have some. */
static int may_have_others(const struct model *m)
{
    return m->config.wrapped || m->config.further_layers > 0;
}

enum status checkpoint_keep_others(const char *from, const struct model *m, const char *to)
{
    char partial[CKPT_PATH], target[CKPT_PATH];
    struct weights_others others;
    struct st_file *f;
    int some = 0;
    if (!may_have_others(m))
        return OK;
    TRY(ckpt_path(partial, to, CKPT_OTHERS, ".partial"));
    TRY(ckpt_path(target, to, CKPT_OTHERS, ""));
    TRY(ckpt_make_dir(to));
    TRY(st_open(from, &f));
    enum status st = weights_others(f, m, &others);
    if (st == OK) {
        some = others.n > 0 || m->config.wrapped;
        st = some ? st_copy(f, others.names, others.n, partial) : OK;
        weights_others_free(&others);
    }
    st_close(f);
    return st == OK && some ? ckpt_rename(partial, target) : st;
}

/* Refuses a directory without the file of a multimodal model's other tensors: an export would load with random ones. */
enum status checkpoint_check_others(const char *dir, const struct model *m)
{
    char path[CKPT_PATH];
    int there = 0;
    if (!m->config.wrapped)
        return OK;
    if (dir) {
        TRY(ckpt_path(path, dir, CKPT_OTHERS, ""));
        TRY(ckpt_look(path, &there));
    }
    return there ? OK
                 : status_fail(ERR_INVALID,
                               "%s/" CKPT_OTHERS
                               " is missing: of a multimodal model an export must have the tensors beside the text "
                               "model's, which a run keeps there",
                               dir ? dir : "the run's original");
}

int64_t checkpoint_others_bytes(const char *from, const struct model *m)
{
    struct weights_others others;
    struct st_file *f;
    int64_t bytes = 0;
    if (!may_have_others(m) || st_open(from, &f) != OK)
        return 0;
    if (weights_others(f, m, &others) == OK) {
        bytes = others.bytes;
        weights_others_free(&others);
    }
    st_close(f);
    return bytes;
}

/* Removes config.json first and writes it last, since readers expect all other files beside it. */
enum status checkpoint_keep_texts(const char *from, const char *tokenizer, const char *to)
{
    char source[CKPT_PATH], partial[CKPT_PATH], target[CKPT_PATH];
    int has_config;
    TRY(ckpt_path(source, from, "config.json", ""));
    TRY(ckpt_path(partial, to, "config.json", ".partial"));
    TRY(ckpt_path(target, to, "config.json", ""));
    TRY(ckpt_look(source, &has_config));
    TRY(ckpt_make_dir(to));
    TRY(remove_named(to));
    TRY(texts_gather(from, tokenizer, to));
    TRY(copy_others(from, to));
    if (has_config) {
        TRY(ckpt_copy(source, partial));
        TRY(ckpt_rename(partial, target));
    }
    return directory_sync(to);
}

/* Copies the new files before the former ones are removed: a link among the new may lead to a former one. */
enum status checkpoint_keep_tokenizer(const char *tokenizer, const char *to)
{
    char partial[CKPT_PATH];
    TRY(ckpt_path(partial, to, "tokenizer", ".partial"));
    TRY(ckpt_make_dir(to));
    ckpt_remove_dir(partial);
    TRY(ckpt_make_dir(partial));
    enum status st = copy_tokenizer(tokenizer, partial);
    if (st == OK)
        st = texts_move(partial, to);
    ckpt_remove_dir(partial);
    return st == OK ? directory_sync(to) : st;
}

static enum status replace(const char *text, const char *to, const char *name)
{
    char path[CKPT_PATH], partial[CKPT_PATH];
    TRY(ckpt_path(path, to, name, ""));
    TRY(ckpt_path(partial, to, name, ".partial"));
    TRY(ckpt_write_text(partial, text));
    return ckpt_rename(partial, path);
}

enum status checkpoint_keep_generation(const char *text, const char *to)
{
    TRY(replace(text, to, "generation_config.json"));
    return directory_sync(to);
}

enum status checkpoint_keep_template(const char *text, const char *tools, const char *to)
{
    static const char of_tools[] = CKPT_TEMPLATES "/tool_use.jinja";
    char path[CKPT_PATH], dir[CKPT_PATH];
    TRY(replace(text, to, "chat_template.jinja"));
    TRY(ckpt_path(dir, to, CKPT_TEMPLATES, ""));
    TRY(ckpt_path(path, to, of_tools, ""));
    if (tools) {
        TRY(ckpt_make_dir(dir));
        TRY(replace(tools, to, of_tools));
        TRY(directory_sync(dir));
    } else {
        sys_unlink(path);
        sys_rmdir(dir); /* succeeds only if no other files are left */
    }
    TRY(ckpt_path(path, to, "chat_template.json", ""));
    sys_unlink(path);
    return directory_sync(to);
}

/* Returns the size of a regular file of a directory; 0: there is none. */
static int64_t bytes_of(const char *dir, const char *name)
{
    char path[CKPT_PATH];
    struct stat s;
    return ckpt_path(path, dir, name, "") == OK && sys_stat(path, &s) == 0 && S_ISREG(s.st_mode) ? (int64_t)s.st_size : 0;
}

int64_t checkpoint_texts_bytes(const char *from)
{
    char templates[CKPT_PATH];
    struct stat s;
    int64_t bytes = 0;
    if (sys_stat(from, &s) == 0 && S_ISREG(s.st_mode))
        return (int64_t)s.st_size;
    for (int i = -1; i < N_NAMES; i++)
        bytes += bytes_of(from, i < 0 ? "config.json" : names[i]);
    DIR *d = ckpt_path(templates, from, CKPT_TEMPLATES, "") == OK ? sys_opendir(templates) : NULL;
    for (struct dirent *e; d && (e = sys_readdir(d)) != NULL;)
        if (is_template(e->d_name))
            bytes += bytes_of(templates, e->d_name);
    if (d)
        closedir(d);
    return bytes;
}
