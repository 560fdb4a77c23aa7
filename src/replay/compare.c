/* ltrain compare: two runs by their logs and common checkpoints, or two checkpoints by their tensors. */
#include "replay/replay.h"

#include "base/steps.h"
#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "replay/record.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

/* Differences between two logs. */
struct lines_apart {
    int64_t common, differ, only_a, only_b;
    char first[512];
};

static void note_step(const struct record_step *a, const struct record_step *b, struct lines_apart *out)
{
    static const char *const names[] = {"loss", "gradient norm", "evaluation's loss"};
    const double x[] = {a->loss, a->norm, a->eval_loss}, y[] = {b->loss, b->norm, b->eval_loss};
    int at = -1;
    out->common++;
    for (int i = 0; i < 3 && at < 0; i++)
        if (!(record_same(x[i], y[i])))
            at = i;
    if (at < 0 && a->skipped == b->skipped)
        return;
    if (out->differ++ > 0)
        return;
    if (at >= 0)
        snprintf(out->first, sizeof out->first, "step %lld: the %s is %.17g in the first and %.17g in the second",
                 (long long)a->step, names[at], x[at], y[at]);
    else
        snprintf(out->first, sizeof out->first, "step %lld was skipped in the %s one only", (long long)a->step,
                 a->skipped ? "first" : "second");
}

static void compare_lines(const struct record *a, const struct record *b, struct lines_apart *out)
{
    *out = (struct lines_apart){.common = 0};
    for (int64_t i = 0, j = 0; i < a->n || j < b->n;) {
        const struct record_step *x = i < a->n ? &a->steps[i] : NULL, *y = j < b->n ? &b->steps[j] : NULL;
        if (x && y && x->step == y->step)
            note_step(x, y, out);
        out->only_a += !y || (x && x->step < y->step);
        out->only_b += !x || (y && y->step < x->step);
        i += x && (!y || x->step <= y->step);
        j += y && (!x || y->step <= x->step);
    }
}

/* Compares two checkpoints and prints the result. Writes the first difference to `first`, unless a sentence stands there already. */
static enum status compare_checkpoints(const char *a, const char *b, char first[1536])
{
    struct checkpoint_difference d;
    TRY(checkpoint_compare(a, b, &d));
    printf("%s and %s: %lld tensors, ", a, b, (long long)d.tensors);
    if (d.differ == 0)
        printf("equal\n");
    else
        printf("%lld differ (%lld of %lld elements)\n", (long long)d.differ, (long long)d.unequal, (long long)d.elements);
    if (d.differ > 0 && !first[0])
        snprintf(first, 1536, "%s; %lld of %lld tensors differ", d.first, (long long)d.differ, (long long)d.tensors);
    return OK;
}

static int is_whole(const struct steps *l, int i)
{
    return l->dirs[i].form == STEP_FINAL;
}

/* Compares the checkpoints of steps that both runs have, the earliest first. */
static enum status compare_common(const char *a, const char *b, char first[1536], int *n)
{
    char path[2][PATH];
    struct steps l[2] = {{.n = 0}, {.n = 0}};
    const char *const run[2] = {a, b};
    enum status st = OK;
    for (int k = 0; k < 2 && st == OK; k++) {
        snprintf(path[k], PATH, "%s/checkpoints", run[k]);
        st = steps_list(path[k], &l[k]);
    }
    for (int i = l[0].n - 1; i >= 0 && st == OK; i--)
        for (int j = 0; j < l[1].n && st == OK; j++) {
            if (!is_whole(&l[0], i) || !is_whole(&l[1], j) || l[0].dirs[i].step != l[1].dirs[j].step)
                continue;
            snprintf(path[0], PATH, "%.3900s/checkpoints/%s", a, l[0].dirs[i].name);
            snprintf(path[1], PATH, "%.3900s/checkpoints/%s", b, l[1].dirs[j].name);
            st = compare_checkpoints(path[0], path[1], first);
            ++*n;
        }
    steps_free(&l[0]);
    steps_free(&l[1]);
    return st;
}

static enum status compare_runs(const char *a, const char *b, char first[1536])
{
    struct record x, y;
    struct lines_apart d;
    int checkpoints = 0;
    TRY(record_read(a, &x));
    enum status st = record_read(b, &y);
    if (st == OK) {
        compare_lines(&x, &y, &d);
        record_free(&y);
    }
    record_free(&x);
    TRY(st);
    if (d.common == 0)
        return status_fail(ERR_INVALID, "compare: %s and %s have recorded no step in common", a, b);
    printf("%s and %s: %lld steps in both logs, ", a, b, (long long)d.common);
    if (d.differ > 0)
        printf("%lld differ", (long long)d.differ);
    else
        printf("equal");
    if (d.only_a + d.only_b > 0)
        printf("; %lld only in the first, %lld only in the second", (long long)d.only_a, (long long)d.only_b);
    printf("\n");
    snprintf(first, 1536, "%s", d.first);
    if (d.differ > 0)
        snprintf(first + strlen(first), 1536 - strlen(first), "; %lld of %lld steps differ", (long long)d.differ,
                 (long long)d.common);
    TRY(compare_common(a, b, first, &checkpoints));
    if (checkpoints == 0)
        printf("no step has a checkpoint in both: parameters were not compared\n");
    return OK;
}

/* Tells whether a path is a checkpoint. ERR_INVALID: the path is neither a checkpoint nor a run. */
static enum status is_checkpoint(const char *path, int *out)
{
    char log[PATH];
    *out = checkpoint_is_there(path);
    if (*out)
        return OK;
    if (snprintf(log, sizeof log, "%s/metrics.jsonl", path) < (int)sizeof log && sys_access(log, F_OK) == 0)
        return OK;
    return status_fail(ERR_INVALID,
                       "compare: %s is neither the directory of a run (metrics.jsonl) nor that of a checkpoint (manifest.json): "
                       "give runs/NAME, or runs/NAME/checkpoints/step-NNNNNN",
                       path);
}

enum status replay_compare(const char *a, const char *b)
{
    char first[1536] = "";
    int one, other;
    TRY(is_checkpoint(a, &one));
    TRY(is_checkpoint(b, &other));
    if (one != other)
        return status_fail(ERR_INVALID,
                           "compare: %s is a checkpoint and %s is a run: give two runs, or one of its checkpoints, as "
                           "%s/checkpoints/step-NNNNNN",
                           one ? a : b, one ? b : a, one ? b : a);
    TRY(one ? compare_checkpoints(a, b, first) : compare_runs(a, b, first));
    if (first[0])
        return status_fail(ERR_CORRUPT, "compare: %s", first);
    printf("compare: equal\n");
    return OK;
}
