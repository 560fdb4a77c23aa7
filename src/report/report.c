#include "report/report.h"

#include "base/sys.h"
#include "train/metrics_keys.h"
#include "report/page.h"
#include "report/run.h"

#include <errno.h>
#include <string.h>

static int is_directory(const char *path)
{
    struct stat s;
    return sys_stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* Reads every path into the page's data: directories are runs, files are scores. *runs: their number; *only: the last one. */
static enum status gather(const struct report_request *r, json_t *data, int *runs, const char **only)
{
    json_t *all = json_array(), *scores = json_array();
    enum status st = OK;
    for (int i = 0; st == OK && i < r->n_paths; i++) {
        json_t *part = NULL;
        struct stat s;
        if (sys_stat(r->path[i], &s) != 0) {
            st = status_fail(ERR_INVALID, "report: cannot look at %s: %s", r->path[i], sys_strerror(errno));
        } else if (is_directory(r->path[i])) {
            st = report_run(r->path[i], &part);
            *only = r->path[i];
            *runs += 1;
        } else {
            st = report_scores(r->path[i], &part);
        }
        if (st == OK)
            json_array_append_new(is_directory(r->path[i]) ? all : scores, part);
    }
    json_object_set_new(data, "runs", all);
    json_object_set_new(data, "scores", scores);
    return st;
}

/* Refuses to replace a file that is no report. */
static enum status look_at_target(const char *path)
{
    char text[sizeof PAGE_BEGINNING] = "";
    FILE *f = sys_read_text(path);
    if (!f)
        return sys_is_absent(errno) ? OK : sys_cannot_open(path);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    return n == 0 || strcmp(text, PAGE_BEGINNING) == 0
               ? OK
               : status_fail(ERR_INVALID, "report: %s is there and is no report: give another name with --to", path);
}

static enum status write_page(const char *path, const json_t *data)
{
    char partial[REPORT_PATH + 16];
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *f = sys_write_text(partial);
    int failed = f ? !page_write(f, data) : 1, reason = errno;
    if (f && fclose(f) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    if (!failed && sys_rename(partial, path) == 0)
        return OK;
    reason = failed ? reason : errno;
    if (f)
        sys_unlink(partial);
    return status_fail(ERR_IO, "cannot write %s: %s; --to FILE writes it elsewhere", path, sys_strerror(reason));
}

enum status report_write(const struct report_request *r)
{
    char path[REPORT_PATH] = "report.html";
    const char *only = NULL;
    int runs = 0;
    json_t *data = json_object();
    enum status st = data ? gather(r, data, &runs, &only) : status_fail(ERR_NOMEM, "out of memory for the report");
    if (st == OK && (r->to || runs == 1)) {
        const int n = r->to ? snprintf(path, sizeof path, "%s", r->to) : snprintf(path, sizeof path, "%s/report.html", only);
        if (n >= (int)sizeof path)
            st = status_fail(ERR_INVALID, "report: %.64s...: the path is too long", r->to ? r->to : only);
    }
    if (st == OK)
        st = look_at_target(path);
    if (st == OK)
        st = write_page(path, data);
    json_decref(data);
    if (st == OK)
        printf("report: %s\n", path);
    return st;
}

void report_print_keys(FILE *f)
{
    fputs("| key | unit | meaning |\n|---|---|---|\n", f);
    for (int k = 0; k < METRICS_KEYS; k++)
        fprintf(f, "| `%s` | %s | %s |\n", metrics_keys[k].name, metrics_keys[k].unit, metrics_keys[k].meaning);
}
