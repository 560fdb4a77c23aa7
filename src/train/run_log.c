#include "train/run_log.h"

#include "base/sys.h"
#include "base/tell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KEPT_BYTES = 16 << 20 }; /* limit of the lines that wait to be written; some 16,000 steps */

struct run_log {
    int fd;
    char *path;
    off_t end;     /* end of the written lines */
    char *waiting; /* lines not written yet */
    size_t bytes;
    int64_t every;            /* steps from one line to the next */
    struct step_metrics held; /* the last step, if it has no line */
    struct step_sums without; /* sums of the steps before it that have no line */
    int holds;
    int64_t lines, lost; /* waiting lines; the oldest ones dropped because too many waited */
};

enum status run_log_open(const char *path, int append, int64_t every, struct run_log **out)
{
    struct stat s;
    struct run_log *l = sys_calloc(1, sizeof *l);
    if (!l)
        return status_fail(ERR_NOMEM, "out of memory for metrics.jsonl");
    l->path = strdup(path);
    l->every = every;
    l->fd = append ? sys_open_file(path, O_WRONLY | O_CREAT, 0666) : sys_create_file(path);
    int sized = l->fd >= 0 && sys_fstat(l->fd, &s) == 0, error = errno;
    l->end = sized ? s.st_size : 0;
    if (sized && l->path) {
        *out = l;
        return OK;
    }
    enum status st = status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(l->path ? error : ENOMEM));
    if (l->fd >= 0)
        sys_close(l->fd);
    free(l->path);
    free(l);
    return st;
}

/* Writes all waiting lines or returns an errno; a partial write is cut off again. */
static int write_waiting(struct run_log *l)
{
    size_t done = 0;
    int error = 0;
    while (done < l->bytes && !error) {
        ssize_t n = sys_pwrite(l->fd, l->waiting + done, l->bytes - done, l->end + (off_t)done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            error = n == 0 ? ENOSPC : errno;
    }
    if (error) {
        if (done > 0 && sys_ftruncate(l->fd, l->end) != 0)
            error = errno;
        return error;
    }
    l->end += (off_t)l->bytes;
    l->bytes = 0;
    l->lines = 0;
    return 0;
}

/* Drops the oldest lines until n more bytes may wait. */
static void make_room(struct run_log *l, size_t n)
{
    while (l->bytes > 0 && l->bytes + n > KEPT_BYTES) {
        char *next = memchr(l->waiting, '\n', l->bytes);
        size_t cut = next ? (size_t)(next + 1 - l->waiting) : l->bytes;
        memmove(l->waiting, l->waiting + cut, l->bytes - cut);
        l->bytes -= cut;
        l->lines--;
        l->lost++;
    }
}

static enum status keep(struct run_log *l, const struct step_metrics *m)
{
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    enum status st = f ? metrics_append(m, f) : status_fail(ERR_NOMEM, "out of memory for metrics.jsonl");
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory for metrics.jsonl");
    if (st == OK)
        make_room(l, n);
    char *more = st == OK ? sys_realloc(l->waiting, l->bytes + n) : NULL;
    if (st == OK && !more)
        st = status_fail(ERR_NOMEM, "out of memory for metrics.jsonl");
    if (more) {
        memcpy(more + l->bytes, line, n);
        l->waiting = more;
        l->bytes += n;
        l->lines++;
    }
    free(line);
    return st;
}

int run_log_is_due(const struct run_log *l, const struct step_metrics *m)
{
    return m->step % l->every == 0 || m->step == m->steps || m->evaluated || m->resumed || m->numerics || m->skipped;
}

/* Adds the step that is held to the sums of the steps without a line. */
static void let_go(struct run_log *l)
{
    if (l->holds)
        metrics_sum(&l->without, &l->held);
    l->holds = 0;
}

/* Adds the line of a step, with the sums of those before it that have none. */
static enum status keep_with_sums(struct run_log *l, const struct step_metrics *m)
{
    struct step_metrics all = *m;
    let_go(l);
    all.before = l->without;
    l->without = (struct step_sums){0};
    return keep(l, &all);
}

/* Adds the line of the last step if it has none. */
static enum status keep_held(struct run_log *l)
{
    if (!l->holds)
        return OK;
    const struct step_metrics last = l->held;
    l->holds = 0;
    return keep_with_sums(l, &last);
}

enum status run_log_add(struct run_log *l, const struct step_metrics *m)
{
    int64_t before = l->lines;
    if (!run_log_is_due(l, m)) {
        let_go(l);
        l->held = *m;
        l->holds = 1;
        return OK;
    }
    TRY(keep_with_sums(l, m));
    int error = write_waiting(l);
    if (error && before == 0)
        tell("step %lld: cannot write %s: %s; its line is kept, and tried again with the next\n", (long long)m->step, l->path,
             strerror(error));
    else if (!error && before > 0)
        tell("step %lld: %s is written again, with the lines of %lld steps that had been kept\n", (long long)m->step, l->path,
             (long long)before);
    fflush(tell_stream());
    return OK;
}

void run_log_sync(struct run_log *l)
{
    if (l && l->holds && (keep_held(l) != OK || write_waiting(l) != 0))
        tell("cannot write %s: the line of the step that is saved is written with the next\n", l->path);
    if (!l || sys_fsync(l->fd) == 0 || errno == EINVAL || errno == EROFS)
        return;
    tell("cannot sync %s: %s; after a power cut lines of it may be missing\n", l->path, strerror(errno));
    fflush(tell_stream());
}

void run_log_abandon(struct run_log *l)
{
    if (!l)
        return;
    sys_close(l->fd);
    free(l->waiting);
    free(l->path);
    free(l);
}

enum status run_log_close(struct run_log *l)
{
    if (!l)
        return OK;
    const enum status kept = keep_held(l);
    int error = l->bytes > 0 ? write_waiting(l) : 0;
    int64_t missing = l->lines + l->lost;
    if (sys_close(l->fd) != 0 && !error)
        error = errno;
    enum status st = OK;
    if (missing > 0)
        st = status_fail(ERR_IO, "the lines of %lld steps are missing in %s: %s", (long long)missing, l->path,
                         error ? strerror(error) : "too many had waited");
    else if (error)
        st = status_fail(ERR_IO, "cannot write %s: %s", l->path, strerror(error));
    else
        st = kept;
    free(l->waiting);
    free(l->path);
    free(l);
    return st;
}
