/* Recording ancestors of checkpoints, and ordering checkpoints by them. */
#include "checkpoint/lineage.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A listed checkpoint and its lineage. */
struct member {
    struct step_dir dir;
    struct lineage lineage;
    int known; /* 1: its manifest is readable */
};

static int is_same(const struct checkpoint_id *a, const struct checkpoint_id *b)
{
    return a->step == b->step && a->saved_ns == b->saved_ns;
}

static int has_ancestor(const struct lineage *l, const struct checkpoint_id *id)
{
    int found = 0;
    for (int i = 0; i < l->n && !found; i++)
        found = is_same(&l->ancestor[i], id);
    return found;
}

static int read_lineage(const char *dir, const char *name, struct lineage *out)
{
    char path[CKPT_PATH];
    return ckpt_path(path, dir, name, "") == OK && manifest_read_lineage(path, out) == OK;
}

/* Reads the manifests of a list; *out is to be freed, and NULL for an empty list. */
static enum status read_members(const char *dir, const struct steps *l, struct member **out)
{
    *out = NULL;
    if (l->n == 0)
        return OK;
    struct member *m = sys_calloc((size_t)l->n, sizeof *m);
    if (!m)
        return status_fail(ERR_NOMEM, "out of memory: a list of checkpoints");
    for (int i = 0; i < l->n; i++) {
        m[i].dir = l->dirs[i];
        m[i].known = l->dirs[i].form != STEP_PARTIAL && read_lineage(dir, l->dirs[i].name, &m[i].lineage);
    }
    *out = m;
    return OK;
}

/* Returns the newest save of at most `most` steps that is not yet taken, or -1. Among saves without a recorded time, the one of
 * the last step is the newest. */
static int newest(const struct member *m, int n, const char *taken, int64_t most)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && m[i].known && m[i].dir.step <= most &&
            (best < 0 || m[i].lineage.self.saved_ns > m[best].lineage.self.saved_ns ||
             (m[i].lineage.self.saved_ns == m[best].lineage.self.saved_ns && m[i].dir.step > m[best].dir.step)))
            best = i;
    return best;
}

/* Appends member `head` and then its ancestors, newest first (the list's order), to l. */
static void take_branch(const struct member *m, int n, int head, char *taken, struct steps *l)
{
    taken[head] = 1;
    l->dirs[l->n++] = m[head].dir;
    for (int i = 0; i < n; i++)
        if (!taken[i] && m[i].known && has_ancestor(&m[head].lineage, &m[i].lineage.self)) {
            taken[i] = 1;
            l->dirs[l->n++] = m[i].dir;
        }
}

/* Appends the members without a readable manifest to l. */
static void take_damaged(const struct member *m, int n, char *taken, struct steps *l)
{
    for (int i = 0; i < n; i++)
        if (!m[i].known) {
            taken[i] = 1;
            l->dirs[l->n++] = m[i].dir;
        }
}

enum status lineage_sort(const char *dir, enum lineage_damaged damaged, struct steps *l, int *branches)
{
    struct member *m;
    const int n = l->n;
    int head = -1;
    *branches = 0;
    TRY(read_members(dir, l, &m));
    char *taken = n ? sys_calloc((size_t)n, 1) : NULL;
    if (n && !taken) {
        free(m);
        return status_fail(ERR_NOMEM, "out of memory: a list of checkpoints");
    }
    l->n = 0;
    if (damaged == DAMAGED_FIRST)
        take_damaged(m, n, taken, l);
    for (int i = 0; i < n; i++)
        if (m[i].known && strcmp(m[i].dir.name, l->latest) == 0)
            head = i;
    /* if `latest` does not tell its branch, steps beyond it still cannot have led to it */
    for (int64_t most = l->latest[0] ? l->latest_step : INT64_MAX, next = 0; next < 2; most = INT64_MAX, next++)
        for (head = head < 0 ? newest(m, n, taken, most) : head; head >= 0; head = newest(m, n, taken, most)) {
            take_branch(m, n, head, taken, l);
            (*branches)++;
        }
    if (damaged == DAMAGED_LAST)
        take_damaged(m, n, taken, l);
    free(taken);
    free(m);
    return OK;
}

int lineage_is_known(const char *dir, const char *name)
{
    struct lineage l;
    return read_lineage(dir, name, &l);
}

int lineage_leads_to(const char *dir, const char *of, const char *name)
{
    struct lineage a, b;
    return !read_lineage(dir, of, &a) || !read_lineage(dir, name, &b) || is_same(&a.self, &b.self) || has_ancestor(&a, &b.self);
}

/* Tells whether `path` lies in `dir`, and reads its lineage. */
static int read_origin(const char *dir, const char *path, struct lineage *out)
{
    char parent[CKPT_PATH];
    struct stat a, b;
    const char *slash = strrchr(path, '/');
    if (!slash || snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path) >= (int)sizeof parent)
        return 0;
    return sys_stat(parent, &a) == 0 && sys_stat(dir, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
           manifest_read_lineage(path, out) == OK;
}

/* Tells whether the checkpoint with a listed name is `from` or an ancestor of `from`; *out: its step and time of save by the
 * lineage. A later save of that step, which may have replaced the directory since, has another time. */
static int find_ancestor(const struct step_dir *d, const struct lineage *from, struct checkpoint_id *out)
{
    *out = (struct checkpoint_id){.step = d->step};
    if (d->form != STEP_FINAL)
        return 0;
    if (d->step == from->self.step)
        out->saved_ns = from->self.saved_ns;
    for (int i = 0; i < from->n; i++)
        if (from->ancestor[i].step == d->step)
            out->saved_ns = from->ancestor[i].saved_ns;
    return out->saved_ns > 0 || (from->self.saved_ns == 0 && d->step <= from->self.step);
}

enum status lineage_of_save(const char *dir, const char *origin, int64_t step, struct lineage *out)
{
    struct steps l;
    struct lineage from = {.n = 0};
    *out = (struct lineage){.self = {.step = step, .saved_ns = clock_wall_ns()}};
    TRY(steps_list(dir, &l));
    if (origin[0] && read_origin(dir, origin, &from)) {
        out->self.saved_ns = max_i64(out->self.saved_ns, from.self.saved_ns + 1);
        for (int i = 0; i < l.n && out->n < LINEAGE_MOST; i++)
            if (l.dirs[i].step < step && find_ancestor(&l.dirs[i], &from, &out->ancestor[out->n]))
                out->n++;
    }
    steps_free(&l);
    return OK;
}
