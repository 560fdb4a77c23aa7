/* Reading the numbers that a run has recorded. */
#include "replay/record.h"

#include "base/num.h"
#include "base/sys.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element; returns 0 without memory. */
static int grow(void **list, int64_t n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0)
        return 1; /* room is doubled at powers of two */
    void *more = sys_realloc(*list, (size_t)max_i64(1, 2 * n) * size);
    *list = more ? more : *list;
    return more != NULL;
}

static double number(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* Reads a step from a line's object; returns 0 if the object describes no step. */
static int take(const json_t *o, struct record_step *out)
{
    const json_t *step = json_object_get(o, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        return 0;
    *out = (struct record_step){.step = json_integer_value(step),
                                .steps = max_i64(1, json_integer_value(json_object_get(o, "steps"))),
                                .loss = number(o, "loss"),
                                .norm = number(o, "grad_norm"),
                                .lr = number(o, "lr"),
                                .eval_loss = number(o, "eval_loss"),
                                .evaluated = json_object_get(o, "eval_loss") != NULL,
                                .skipped = json_is_true(json_object_get(o, "skipped")),
                                .resumed = json_is_true(json_object_get(o, "resumed"))};
    return out->step == 0 || json_object_get(o, "loss") != NULL;
}

static struct record_updates updates_of(const json_t *o)
{
    const json_t *batch = json_object_get(o, "batch");
    return (struct record_updates){.batch = json_integer_value(batch),
                                   .weight_decay = number(o, "weight_decay"),
                                   .beta1 = number(o, "beta1"),
                                   .beta2 = number(o, "beta2"),
                                   .eps = number(o, "eps"),
                                   .clip = number(o, "clip"),
                                   .router_bias_rate = number(o, "router_bias_rate")};
}

static enum status add(struct record *r, const struct record_step *x, const json_t *o)
{
    const char *key = json_string_value(json_object_get(o, "numerics"));
    if (!grow((void **)&r->steps, r->n, sizeof *r->steps) || (key && !grow((void **)&r->keys, r->n_keys, sizeof *r->keys)))
        return status_no_memory("while reading metrics.jsonl");
    r->steps[r->n++] = *x;
    if (!key)
        return OK;
    struct record_key *k = &r->keys[r->n_keys++];
    k->step = x->step;
    k->updates = updates_of(json_object_get(o, "updates"));
    snprintf(k->text, sizeof k->text, "%s", key);
    return OK;
}

static enum status read_line(const char *path, const char *text, int64_t line, struct record *r)
{
    struct record_step x;
    json_t *o = json_loads(text, 0, NULL);
    enum status st = OK;
    if (!o || !take(o, &x))
        st = status_fail(ERR_CORRUPT, "%s:%lld is not the line of a step", path, (long long)line);
    else if (r->n > 0 && x.step <= r->steps[r->n - 1].step)
        st = status_fail(ERR_CORRUPT, "%s:%lld is of step %lld, behind one of step %lld", path, (long long)line,
                         (long long)x.step, (long long)r->steps[r->n - 1].step);
    x.line = line;
    if (st == OK)
        st = add(r, &x, o);
    json_decref(o);
    return st;
}

enum status record_read(const char *run, struct record *out)
{
    char path[4096], *text = NULL;
    size_t room = 0;
    enum status st = OK;
    *out = (struct record){.n = 0};
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", run) >= (int)sizeof path)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", run);
    FILE *f = sys_read_text(path);
    if (!f)
        return status_fail(sys_is_absent(errno) ? ERR_INVALID : ERR_IO, "cannot read %s: %s: is %s the directory of a run?", path,
                           sys_strerror(errno), run);
    int64_t line = 0;
    for (ssize_t n; st == OK && (n = getline(&text, &room, f)) > 0;)
        if (text[n - 1] == '\n')
            st = read_line(path, text, ++line, out);
    if (st == OK && !feof(f))
        st = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
    free(text);
    fclose(f);
    if (st != OK)
        record_free(out);
    return st;
}

void record_free(struct record *r)
{
    free(r->steps);
    free(r->keys);
    *r = (struct record){.n = 0};
}

int64_t record_find(const struct record *r, int64_t step)
{
    int64_t low = 0, high = r->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r->steps[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct record_key *record_key_of(const struct record *r, int64_t step)
{
    const struct record_key *key = NULL;
    for (int64_t i = 0; i < r->n_keys && r->keys[i].step <= step; i++)
        key = &r->keys[i];
    return key;
}

int record_same(double a, double b)
{
    return (!isfinite(a) && !isfinite(b)) || memcmp(&a, &b, sizeof a) == 0;
}
