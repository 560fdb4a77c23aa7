#include "train/metrics_file.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/tell.h"
#include "train/metrics_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BETWEEN 1.0 /* least seconds between two files; node_exporter reads them every 15 s */

struct metrics_file {
    char *path, *partial, *run;
    json_t *last;        /* object of the last step; NULL: none yet */
    json_t *evaluation;  /* members of the last evaluation, shown until the next one */
    double written;      /* time of the last file */
    int waiting, failed; /* waiting: `last` is not in the file; failed: that was reported */
};

/* Writes a label's value, in which the format escapes three characters. */
static void write_label(FILE *f, const char *name, const char *value)
{
    fprintf(f, "%s=\"", name);
    for (; *value; value++)
        if (*value == '\n')
            fputs("\\n", f);
        else
            fprintf(f, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    fputc('"', f);
}

struct label {
    const char *name, *value;
};

static void write_sample(const struct metrics_file *m, FILE *f, const char *key, const struct label *more, int n, const json_t *x)
{
    fprintf(f, "ltrain_%s{", key);
    write_label(f, "run", m->run);
    for (int i = 0; i < n; i++) {
        fputc(',', f);
        write_label(f, more[i].name, more[i].value);
    }
    if (json_is_null(x))
        fputs("} NaN\n", f);
    else if (json_is_integer(x))
        fprintf(f, "} %lld\n", (long long)json_integer_value(x));
    else
        fprintf(f, "} %.17g\n", json_is_real(x) ? json_real_value(x) : json_is_true(x));
}

/* Writes a key's samples: a number, a text as a label, or numbers of an object by their names in it. */
static void write_value(const struct metrics_file *m, FILE *f, const char *key, json_t *x)
{
    const int by_lane = strcmp(key, "stalls") == 0;
    const char *name, *class;
    json_t *part, *y;
    if (json_is_string(x)) {
        write_sample(m, f, key, &(struct label){"value", json_string_value(x)}, 1, json_true());
        return;
    }
    if (!json_is_object(x)) {
        write_sample(m, f, key, NULL, 0, x);
        return;
    }
    json_object_foreach(x, name, part)
    {
        if (!by_lane)
            write_sample(m, f, key, &(struct label){"seen", name}, 1, part);
        json_object_foreach(part, class, y)
        {
            write_sample(m, f, key, (struct label[]){{"lane", name}, {"class", class}}, 2, y);
        }
    }
}

static void write_key(const struct metrics_file *m, FILE *f, const struct metrics_key *k)
{
    json_t *x = json_object_get(m->last, k->name);
    x = x ? x : json_object_get(m->evaluation, k->name);
    if (!x || (json_is_object(x) && json_object_size(x) == 0))
        return;
    fprintf(f, "# HELP ltrain_%s %s%s%s%s\n# TYPE ltrain_%s gauge\n", k->name, k->meaning, k->unit[0] ? " (" : "", k->unit,
            k->unit[0] ? ")" : "", k->name);
    write_value(m, f, k->name, x);
}

/* Writes all keys beside the file and renames, so that nobody reads a part. Returns an errno. */
static int write_all(struct metrics_file *m)
{
    int error = 0;
    FILE *f = sys_write_text(m->partial);
    if (!f)
        return errno;
    for (int k = 0; k < METRICS_KEYS; k++)
        write_key(m, f, &metrics_keys[k]);
    if (fflush(f) != 0 || ferror(f))
        error = errno ? errno : EIO;
    if (fclose(f) != 0 && !error)
        error = errno;
    if (!error && sys_rename(m->partial, m->path) != 0)
        error = errno;
    if (error)
        sys_unlink(m->partial);
    m->written = clock_seconds();
    m->waiting = 0;
    return error;
}

static void destroy(struct metrics_file *m)
{
    json_decref(m->last);
    json_decref(m->evaluation);
    free(m->path);
    free(m->partial);
    free(m->run);
    free(m);
}

enum status metrics_file_open(const char *path, const char *run, struct metrics_file **out)
{
    struct metrics_file *m = sys_calloc(1, sizeof *m);
    int error = ENOMEM;
    if (!m)
        return status_fail(ERR_NOMEM, "out of memory for --metrics-file");
    m->path = strdup(path);
    m->run = sys_realpath(run);
    m->evaluation = json_object();
    if (asprintf(&m->partial, "%s.%d.partial", path, (int)getpid()) < 0)
        m->partial = NULL;
    if (m->path && m->run && m->partial && m->evaluation)
        error = write_all(m);
    if (error) {
        destroy(m);
        return status_fail(ERR_IO, "--metrics-file: cannot write %s: %s", path, sys_strerror(error));
    }
    m->written -= BETWEEN; /* the first step is written at once */
    *out = m;
    return OK;
}

static void write_waiting(struct metrics_file *m)
{
    const int error = write_all(m), told = m->failed;
    m->failed = error != 0;
    if (error && !told)
        tell("cannot write %s: %s; the next step tries again\n", m->path, sys_strerror(error));
}

void metrics_file_add(struct metrics_file *m, const struct step_metrics *step)
{
    const char *key;
    json_t *all = m ? metrics_object(step) : NULL, *x;
    if (!all)
        return;
    json_decref(m->last);
    m->last = all;
    m->waiting = 1;
    json_object_foreach(all, key, x)
    {
        if (strncmp(key, "eval_", 5) == 0)
            json_object_set(m->evaluation, key, x);
    }
    if (clock_seconds() - m->written >= BETWEEN)
        write_waiting(m);
}

void metrics_file_close(struct metrics_file *m)
{
    if (!m)
        return;
    if (m->waiting)
        write_waiting(m);
    destroy(m);
}
