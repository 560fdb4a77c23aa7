/* Recognising files of tokenizers in other formats, which are not read, and naming the way to a tokenizer.json. */
#include "text/tokenizer.h"

#include "base/sys.h"
#include "text/json.h"
#include "text/parts.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* File names of other formats. If several exist the first in this list is named in the message. */
static const struct form {
    const char *glob, *with; /* with: a second file of the same tokenizer, named too if it exists; NULL: none */
    int tiktoken;
} forms[] = {{"tekken*.json", NULL, 0},        {"vocab.json", "merges.txt", 0},
             {"encoder.json", "vocab.bpe", 0}, {"merges.txt", NULL, 0},
             {"vocab.bpe", NULL, 0},           {"*tiktoken.model", NULL, 1},
             {"*.tiktoken", NULL, 1},          {"*spiece.model", NULL, 0},
             {"*.bpe.model", NULL, 0},         {"*.spm", NULL, 0},
             {"spm.model", NULL, 0},           {"tokenizer.model.v*", NULL, 0},
             {"*tokenizer*.model", NULL, 0},   {"*_text.model", NULL, 0},
             {"vocab.txt", NULL, 0},           {"sentencepiece.model", NULL, 0},
             {"tokenizer.bin", NULL, 0},       {"bpe.codes", NULL, 0}};
enum { FORMS = sizeof forms / sizeof *forms };

/* Files that stand only in directories which also have a vocabulary. */
static const char *const companions[] = {"added_tokens.json", "special_tokens_map.json", "tokenization_*.py"};

/* Returns the first entry of `forms` that matches a file of the directory, and the file's name; FORMS: none does. */
static int find_form(const char *dir, char name[256])
{
    int found = FORMS;
    DIR *d = sys_opendir(dir);
    for (struct dirent *e; d && (e = sys_readdir(d));)
        for (int i = 0; i < found; i++)
            if (fnmatch(forms[i].glob, e->d_name, FNM_PERIOD) == 0) {
                snprintf(name, 256, "%s", e->d_name);
                found = i;
            }
    if (d)
        closedir(d);
    return found;
}

/* Returns the class that tokenizer_config.json names, to be freed; NULL: none. */
static char *find_class(const char *dir)
{
    char path[4096], *text, *class = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    if (sys_access(path, F_OK) != 0 || read_whole(path, &text, &n) != OK)
        return NULL;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const char *word = json_word(root, "tokenizer_class");
    if (word[0])
        class = strdup(word);
    free(text);
    json_decref(root);
    return class;
}

/* Returns 1, and the file's name, if the directory has one of `companions`. */
static int find_companion(const char *dir, char name[256])
{
    int found = 0;
    DIR *d = sys_opendir(dir);
    for (struct dirent *e; d && !found && (e = sys_readdir(d));)
        for (size_t i = 0; i < sizeof companions / sizeof *companions && !found; i++)
            if ((found = fnmatch(companions[i], e->d_name, FNM_PERIOD) == 0))
                snprintf(name, 256, "%s", e->d_name);
    if (d)
        closedir(d);
    return found;
}

static enum status refuse(const char *dir, const char *what, int tiktoken)
{
    static const char last[] = "--tokenizer DIR names another one, and --tokenizer bytes reads the bytes of text as ids 0 to 255";
    if (tiktoken)
        return status_fail(
            ERR_INVALID,
            "%s has its tokenizer in %s, which is not read: convert_tiktoken_to_fast of transformers.integrations.tiktoken makes a tokenizer.json of "
            "tiktoken's encoding; %s",
            dir, what, last);
    return status_fail(ERR_INVALID,
                       "%s has its tokenizer in %s, which is not read: python3 -c 'from transformers import AutoTokenizer as T; "
                       "T.from_pretrained(\"%s\").save_pretrained(\"%s\")' writes a tokenizer.json of it; %s",
                       dir, what, dir, dir, last);
}

enum status tokenizer_check_others(const char *dir)
{
    char name[256], what[600], path[4096];
    int form = find_form(dir, name);
    if (form < FORMS) {
        const char *with = forms[form].with ? forms[form].with : "";
        snprintf(path, sizeof path, "%s/%s", dir, with);
        const int both = with[0] && sys_access(path, F_OK) == 0;
        snprintf(what, sizeof what, "%s%s%s", name, both ? " and " : "", both ? with : "");
        return refuse(dir, what, forms[form].tiktoken);
    }
    static const char cure[] =
        "and no file of its vocabulary is there: download tokenizer.json, too, or let transformers write it (save_pretrained); --tokenizer DIR names "
        "another one, and --tokenizer bytes reads the bytes of text as ids 0 to 255";
    char *class = find_class(dir);
    if (!class)
        return find_companion(dir, name) ? status_fail(ERR_INVALID, "%s/%s belongs to a tokenizer, %s", dir, name, cure) : OK;
    enum status st = status_fail(ERR_INVALID, "%s/tokenizer_config.json names a %.60s, %s", dir, class, cure);
    free(class);
    return st;
}
