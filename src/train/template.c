/* The chat template of a run. */
#include "train/template.h"

#include "base/sys.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Finds the directory of the tokenizer's file. */
static void directory_of(const char *path, char dir[4096])
{
    snprintf(dir, 4096, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    else
        strcpy(dir, ".");
}

/* Opens --chat-template (a directory, a file, a name that the tokenizer's directory has, or one of ltrain's own), or that directory's. */
enum status template_open(const struct settings *s, const struct tokenizer *t, struct chat_template **out)
{
    char dir[4096];
    struct stat what;
    *out = NULL;
    directory_of(tokenizer_path(t), dir);
    if (!s->chat_template)
        return chat_template_load(dir, out);
    if (sys_stat(s->chat_template, &what) != 0) {
        if (strchr(s->chat_template, '/'))
            return status_fail(ERR_INVALID, "--chat-template: %s is not there", s->chat_template);
        TRY(chat_template_find(dir, s->chat_template, out));
        return *out ? OK : chat_template_builtin(s->chat_template, out);
    }
    if (S_ISDIR(what.st_mode))
        return chat_template_load(s->chat_template, out);
    TRY(chat_template_open(s->chat_template, out));
    return chat_template_read_tokens(*out, dir);
}

static int is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(isalpha((unsigned char)text[i]) || text[i] == '_' || (i > 0 && isdigit((unsigned char)text[i]))))
            return 0;
    return n > 0;
}

/* Adds a variable. true, false, null, numbers and quoted texts are read as JSON; any other value is text as it stands. */
static enum status add_variable(const char *given, json_t *all)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    const size_t n = strcspn(given, "=");
    char name[128];
    if (!given[n] || n >= sizeof name || !is_name(given, n))
        return status_fail(ERR_INVALID, "--template-var: '%.100s' is no NAME=VALUE, as enable_thinking=false", given);
    snprintf(name, sizeof name, "%.*s", (int)n, given);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return status_fail(ERR_INVALID, "--template-var: %s is each conversation's own, and no variable that can be given",
                               name);
    if (json_object_get(all, name))
        return status_fail(ERR_INVALID, "--template-var: %s is given twice", name);
    json_t *value = json_loads(given + n + 1, JSON_DECODE_ANY, NULL);
    value = value ? value : json_string(given + n + 1);
    return json_object_set_new(all, name, value) == 0
               ? OK
               : status_fail(ERR_INVALID, "--template-var: the value of %s is no UTF-8", name);
}

enum status template_variables(const struct settings *s, json_t **out)
{
    enum status st = OK;
    *out = NULL;
    if (s->template_var.n == 0)
        return OK;
    json_t *all = json_object();
    for (int i = 0; i < s->template_var.n && st == OK; i++)
        st = add_variable(s->template_var.item[i], all);
    if (st == OK)
        *out = all;
    else
        json_decref(all);
    return st;
}

/* Adds a template line that sets a token's name to the value used in rendering, if the files beside the template give another
 * value. */
static enum status add_token(const struct chat_template *used, const struct chat_template *beside, const char *name,
                             struct text_buffer *out)
{
    size_t n;
    const char *its = chat_template_token(used, name), *other = chat_template_token(beside, name);
    its = its ? its : "";
    if (!strstr(chat_template_source(used, &n), name) || strcmp(its, other ? other : "") == 0)
        return OK;
    TRY(text_buffer_print(out, "{%% set %s = '", name));
    for (; *its; its++) {
        if (*its == '\'' || *its == '\\')
            TRY(text_buffer_add(out, "\\", 1));
        TRY(text_buffer_add(out, its, 1));
    }
    return text_buffer_print(out, "' %%}\n");
}

enum status template_text(const struct chat_template *used, const char *dir, struct text_buffer *out)
{
    static const char *const names[] = {"bos_token", "eos_token"};
    size_t n;
    struct chat_template *beside;
    const char *source = chat_template_source(used, &n);
    TRY(chat_template_parse("", 0, dir, &beside));
    enum status st = chat_template_read_tokens(beside, dir);
    for (size_t i = 0; i < sizeof names / sizeof *names && st == OK; i++)
        st = add_token(used, beside, names[i], out);
    chat_template_destroy(beside);
    return st == OK ? text_buffer_add(out, source, n + 1) : st;
}
