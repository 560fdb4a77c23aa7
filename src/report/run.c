#include "report/run.h"

#include "base/sys.h"
#include "report/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TRACES_MAX = 4, CHECKPOINTS_MAX = 64 };

static enum status join(const char *directory, const char *name, char path[REPORT_PATH])
{
    return snprintf(path, REPORT_PATH, "%s/%s", directory, name) < REPORT_PATH
               ? OK
               : status_fail(ERR_INVALID, "report: %.64s...: the path is too long", directory);
}

/* Adds a sentence about something that the report lacks. */
static void note(json_t *notes, const char *sentence)
{
    json_array_append_new(notes, json_string(sentence));
}

/* Loads a JSON object of the run; NULL: the file is absent or, with a note, damaged. */
static json_t *load(const char *directory, const char *name, json_t *notes)
{
    char path[REPORT_PATH], sentence[256];
    json_error_t error;
    if (join(directory, name, path) != OK)
        return NULL;
    FILE *f = sys_read_text(path);
    const char *why = f ? "damaged, so nothing of it is shown" : sys_is_absent(errno) ? "not there" : sys_strerror(errno);
    json_t *root = f ? json_loadf(f, 0, &error) : NULL;
    if (f)
        fclose(f);
    if (json_is_object(root))
        return root;
    json_decref(root);
    snprintf(sentence, sizeof sentence, "%s: %s.", name, why);
    note(notes, sentence);
    return NULL;
}

/* Copies the members of plan.json that the page shows. */
static json_t *plan_part(json_t *plan)
{
    static const char *const names[] = {"model", "machine",  "seq_len", "effort",  "peak",
                                        "limit", "strategy", "step",    "classes", "lanes"};
    json_t *part = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(plan, names[i]))
            json_object_set(part, names[i], json_object_get(plan, names[i]));
    return part;
}

/* Reads the lines "key: value" of config.yaml, in their order. */
static json_t *settings_of(const char *directory, json_t *notes)
{
    char path[REPORT_PATH], *line = NULL;
    size_t room = 0;
    json_t *all = json_array();
    FILE *f = join(directory, "config.yaml", path) == OK ? sys_read_text(path) : NULL;
    if (!f)
        note(notes, "config.yaml cannot be read.");
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0;) {
        char *colon = strstr(line, ": ");
        line[strcspn(line, "\n")] = 0;
        if (!colon)
            continue;
        *colon = 0;
        json_t *pair = json_pack("[s, s]", line, colon + 2);
        if (pair) /* NULL: a value that is no UTF-8 */
            json_array_append_new(all, pair);
    }
    free(line);
    if (f)
        fclose(f);
    return all;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names in a directory that begin with `prefix`, in order; the last `most` of them. */
static json_t *names_in(const char *directory, const char *prefix, size_t most)
{
    json_t *all = json_array();
    char **name = NULL;
    size_t n = 0;
    DIR *d = sys_opendir(directory);
    for (const struct dirent *e; d && (e = sys_readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || strstr(e->d_name, ".partial"))
            continue;
        char **more = sys_realloc(name, (n + 1) * sizeof *name), *copy = more ? strdup(e->d_name) : NULL;
        name = more ? more : name;
        if (!copy)
            break;
        name[n++] = copy;
    }
    if (d)
        closedir(d);
    if (n > 0)
        qsort(name, n, sizeof *name, by_name);
    for (size_t i = 0; i < n; i++) {
        if (i + most >= n)
            json_array_append_new(all, json_string(name[i]));
        free(name[i]);
    }
    free(name);
    return all;
}

static enum status traces_of(const char *directory, json_t *notes, json_t *into)
{
    json_t *names = names_in(directory, "trace-", TRACES_MAX), *name, *trace;
    enum status st = OK;
    size_t i;
    json_array_foreach(names, i, name)
    {
        char path[REPORT_PATH], sentence[REPORT_PATH + 64];
        st = join(directory, json_string_value(name), path);
        if (st == OK)
            st = report_trace(path, &trace);
        if (st != OK)
            break;
        if (!trace) {
            snprintf(sentence, sizeof sentence, "%s is damaged, so it is not drawn.", json_string_value(name));
            note(notes, sentence);
            continue;
        }
        json_object_set(trace, "file", name);
        json_array_append_new(into, trace);
    }
    json_decref(names);
    return st;
}

/* Returns the last part of a path, which may end in slashes; the name of the working directory is ".". */
static json_t *last_part(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/')
        from--;
    json_t *name = json_stringn(path + from, end - from);
    return name ? name : json_string("run");
}

static void note_lines(const json_t *history, json_t *notes)
{
    static const struct {
        const char *key, *what;
    } counts[] = {{"damaged", "could not be read"}, {"repeated", "had the number of an earlier step, and are left out"}};
    for (size_t i = 0; i < 2; i++) {
        char sentence[128];
        const long long n = json_integer_value(json_object_get(history, counts[i].key));
        snprintf(sentence, sizeof sentence, "Lines of metrics.jsonl that %s: %lld.", counts[i].what, n);
        if (n > 0)
            note(notes, sentence);
    }
    if (json_integer_value(json_object_get(history, "steps")) == 0)
        note(notes, "No step has been recorded yet.");
}

enum status report_run(const char *directory, json_t **out)
{
    char path[REPORT_PATH];
    struct history *h = NULL;
    struct stat s;
    TRY(join(directory, "metrics.jsonl", path));
    if (sys_stat(path, &s) != 0)
        return sys_is_absent(errno)
                   ? status_fail(ERR_INVALID,
                                 "report: %s is no run's directory: it has no metrics.jsonl; give the --out of a run", directory)
                   : sys_cannot_open(path);
    TRY(history_read(path, &h));
    json_t *run = json_object(), *notes = json_array(), *traces = json_array(), *history = history_json(h);
    history_free(h);
    enum status st = history ? traces_of(directory, notes, traces) : status_fail(ERR_NOMEM, "out of memory for the report");
    if (st == OK) {
        json_t *card = load(directory, "card.json", notes), *plan = load(directory, "plan.json", notes);
        note_lines(history, notes);
        join(directory, "checkpoints", path);
        json_object_set_new(run, "name", last_part(directory));
        json_object_set_new(run, "history", history);
        json_object_set_new(run, "card", card ? card : json_object());
        json_object_set_new(run, "plan", plan_part(plan));
        json_object_set_new(run, "settings", settings_of(directory, notes));
        json_object_set_new(run, "checkpoints", names_in(path, "step-", CHECKPOINTS_MAX));
        json_object_set_new(run, "traces", traces);
        json_object_set_new(run, "notes", notes);
        json_decref(plan);
        *out = run;
        return OK;
    }
    json_decref(run);
    json_decref(notes);
    json_decref(traces);
    json_decref(history);
    return st;
}
