#include "report/history.h"

#include "base/num.h"
#include "base/sys.h"
#include "program/program.h"
#include "train/metrics_keys.h"
#include "report/line.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SERIES = METRICS_KEYS + LANES, /* one for each key, and one for the stalls caused by each lane */
    EVALUATIONS = 512,             /* at most; every second one is dropped when there are more */
    POSITIONS = 40,                /* number of positions, which are powers of two */
    EVENTS = 200,                  /* skipped steps and resumes that are listed; the others are counted */
};

struct cell {
    double sum, low, high;
    int64_t n;
};

/* Steps in a row that one point of the curves stands for. */
struct point {
    int64_t last, steps;
    struct cell of[SERIES];
};

struct evaluation_line {
    int64_t step;
    double loss, bits, by_position[POSITIONS]; /* NaN: none */
};

struct event {
    int64_t step;
    const char *what;
};

struct history {
    int64_t first, last, width; /* first and last step; steps of a point */
    int64_t steps, skipped, resumed, damaged, repeated;
    struct point point[HISTORY_POINTS];
    int n_points, n_evaluations, n_events;
    int64_t evaluations, every; /* number of evaluations read; each `every`-th one is kept */
    struct evaluation_line evaluation[EVALUATIONS];
    struct event event[EVENTS];
    double stalls[LANES][CLASSES];
    double last_loss;
    char reference[64]; /* mfu_reference of the last step */
};

/* Values of one line of metrics.jsonl, before the line is added to the history. */
struct reading {
    double value[SERIES], stalls[LANES][CLASSES];
    struct evaluation_line evaluation;
    int64_t step, steps; /* steps: number of steps that the line's sums are of */
    int skipped, resumed;
    char reference[64];
};

/* ---- a line ---- */

static int lane_find(const char *name, size_t length)
{
    for (int l = 0; l < LANES; l++)
        if (strlen(lane_name((enum lane)l)) == length && memcmp(lane_name((enum lane)l), name, length) == 0)
            return l;
    return -1;
}

static int class_find(const char *name, size_t length)
{
    for (int c = 0; c < CLASSES; c++)
        if (strlen(class_name((enum tensor_class)c)) == length && memcmp(class_name((enum tensor_class)c), name, length) == 0)
            return c;
    return -1;
}

/* Reads {"h2d": {"parameters": seconds}}; names that are not known are left out. */
static void read_stalls(const struct line_field *all, struct reading *r)
{
    struct line lanes, classes;
    struct line_field lane, class;
    if (!line_open(&lanes, all->value, all->length))
        return;
    while (line_next(&lanes, &lane) > 0) {
        const int l = lane_find(lane.key, lane.key_length);
        if (l < 0 || lane.kind != LINE_NESTED || !line_open(&classes, lane.value, lane.length))
            continue;
        while (line_next(&classes, &class) > 0) {
            const int c = class_find(class.key, class.key_length);
            if (c >= 0 && class.kind == LINE_NUMBER)
                r->stalls[l][c] += class.number;
        }
    }
    for (int l = 0; l < LANES; l++) {
        r->value[METRICS_KEYS + l] = 0;
        for (int c = 0; c < CLASSES; c++)
            r->value[METRICS_KEYS + l] += r->stalls[l][c];
    }
}

static void read_positions(const struct line_field *all, struct evaluation_line *e)
{
    struct line l;
    struct line_field f;
    if (!line_open(&l, all->value, all->length))
        return;
    while (line_next(&l, &f) > 0) {
        int bucket = 0;
        for (long long seen = strtoll(f.key, NULL, 10); seen > 1 && bucket + 1 < POSITIONS; seen /= 2)
            bucket++;
        e->by_position[bucket] = f.number;
    }
}

static int is(const struct line_field *f, const char *word)
{
    return f->length == strlen(word) && memcmp(f->value, word, f->length) == 0;
}

static void take(const struct line_field *f, int key, struct reading *r)
{
    const char *name = metrics_keys[key].name;
    if (metrics_keys[key].fold != KEY_OTHER)
        r->value[key] = f->number;
    else if (strcmp(name, "step") == 0)
        r->step = isfinite(f->number) && fabs(f->number) < 1e18 ? (int64_t)f->number : -1;
    else if (strcmp(name, "steps") == 0)
        r->steps = f->number >= 1 && f->number < 1e18 ? (int64_t)f->number : 1;
    else if (strcmp(name, "skipped") == 0)
        r->skipped = is(f, "true");
    else if (strcmp(name, "resumed") == 0)
        r->resumed = is(f, "true");
    else if (strcmp(name, "stalls") == 0)
        read_stalls(f, r);
    else if (strcmp(name, "eval_loss") == 0)
        r->evaluation.loss = f->number;
    else if (strcmp(name, "eval_bits_per_byte") == 0)
        r->evaluation.bits = f->number;
    else if (strcmp(name, "eval_loss_by_position") == 0)
        read_positions(f, &r->evaluation);
    else if (strcmp(name, "mfu_reference") == 0 && f->kind == LINE_TEXT)
        snprintf(r->reference, sizeof r->reference, "%.*s", (int)min_i64((int64_t)f->length, 63), f->value);
}

/* Reads a line. Returns 0 if it is damaged. */
static int read_line(const char *text, size_t length, struct reading *r)
{
    struct line l;
    struct line_field f;
    int next = 0, key = -1;
    memset(r->stalls, 0, sizeof r->stalls);
    for (int s = 0; s < SERIES; s++)
        r->value[s] = NAN;
    r->evaluation.loss = r->evaluation.bits = NAN;
    for (int p = 0; p < POSITIONS; p++)
        r->evaluation.by_position[p] = NAN;
    r->step = -1;
    r->steps = 1;
    r->skipped = r->resumed = 0;
    r->reference[0] = 0;
    if (!line_open(&l, text, length))
        return 0;
    while ((next = line_next(&l, &f)) > 0) {
        const int found = metrics_key_find(f.key, f.key_length, key + 1);
        if (found >= 0)
            take(&f, key = found, r);
    }
    r->evaluation.step = r->step;
    return next == 0 && r->step >= 0;
}

/* ---- adding ---- */

static void add_cell(struct cell *to, const struct cell *x)
{
    if (x->n == 0)
        return;
    to->low = to->n > 0 ? fmin(to->low, x->low) : x->low;
    to->high = to->n > 0 ? fmax(to->high, x->high) : x->high;
    to->sum += x->sum;
    to->n += x->n;
}

/* Makes every point stand for twice as many steps. */
static void widen(struct history *h)
{
    for (int p = 0; p < h->n_points; p++) {
        struct point *to = &h->point[p / 2];
        const struct point *from = &h->point[p];
        if (p % 2 == 0) {
            *to = *from;
            continue;
        }
        to->last = from->steps > 0 ? from->last : to->last;
        to->steps += from->steps;
        for (int s = 0; s < SERIES; s++)
            add_cell(&to->of[s], &from->of[s]);
    }
    h->n_points = (h->n_points + 1) / 2;
    h->width *= 2;
}

static void add_event(struct history *h, int64_t step, const char *what)
{
    if (h->n_events < EVENTS)
        h->event[h->n_events++] = (struct event){step, what};
}

static void add_step(struct history *h, const struct reading *r)
{
    if (h->steps > 0 && r->step <= h->last) {
        h->repeated++;
        return;
    }
    h->first = h->steps > 0 ? h->first : r->step;
    while ((r->step - h->first) / h->width >= HISTORY_POINTS)
        widen(h);
    const int at = (int)((r->step - h->first) / h->width);
    for (; h->n_points <= at; h->n_points++)
        h->point[h->n_points] = (struct point){0};
    struct point *p = &h->point[at];
    for (int s = 0; s < SERIES; s++)
        if (isfinite(r->value[s]))
            add_cell(&p->of[s], &(struct cell){r->value[s], r->value[s], r->value[s], 1});
    p->last = h->last = r->step;
    p->steps += r->steps;
    h->steps += r->steps;
    for (int l = 0; l < LANES; l++)
        for (int c = 0; c < CLASSES; c++)
            h->stalls[l][c] += r->stalls[l][c];
    const double loss = r->value[metrics_key_find("loss", 4, 0)];
    h->last_loss = isfinite(loss) ? loss : h->last_loss;
    if (r->reference[0])
        snprintf(h->reference, sizeof h->reference, "%s", r->reference);
    h->skipped += r->skipped;
    h->resumed += r->resumed;
    if (r->skipped)
        add_event(h, r->step, "skipped");
    if (r->resumed)
        add_event(h, r->step, "resumed");
}

static void add_evaluation(struct history *h, const struct evaluation_line *e)
{
    if (h->n_evaluations == EVALUATIONS) {
        for (int i = 0; i < EVALUATIONS; i += 2)
            h->evaluation[i / 2] = h->evaluation[i];
        h->n_evaluations = EVALUATIONS / 2;
        h->every *= 2;
    }
    if (h->evaluations++ % h->every == 0)
        h->evaluation[h->n_evaluations++] = *e;
}

enum status history_read(const char *path, struct history **out)
{
    struct history *h = sys_calloc(1, sizeof *h);
    struct reading *r = sys_calloc(1, sizeof *r);
    FILE *f = h && r ? sys_read_text(path) : NULL;
    char *text = NULL;
    size_t room = 0;
    enum status st = h && r ? OK : status_fail(ERR_NOMEM, "out of memory for the report");
    if (st == OK && !f)
        st = sys_cannot_open(path);
    if (st == OK) {
        h->width = h->every = 1;
        h->last_loss = NAN;
        for (ssize_t n; (n = getline(&text, &room, f)) > 0;) {
            if (!read_line(text, (size_t)n, r)) {
                h->damaged++;
                continue;
            }
            if (r->step > 0)
                add_step(h, r);
            if (isfinite(r->evaluation.loss))
                add_evaluation(h, &r->evaluation);
        }
        if (!feof(f))
            st = status_fail(ERR_IO, "cannot read %s: %s", path, sys_strerror(errno));
    }
    if (f)
        fclose(f);
    free(text);
    free(r);
    if (st == OK)
        *out = h;
    else
        free(h);
    return st;
}

void history_free(struct history *h)
{
    free(h);
}

/* ---- as JSON ---- */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

enum figure { FIGURE_MEAN, FIGURE_SUM, FIGURE_LOW, FIGURE_HIGH };

/* Lists one figure of a series over all points that stand for steps; null where a point has no value. */
static json_t *curve(const struct history *h, int series, enum figure figure)
{
    json_t *all = json_array();
    for (int p = 0; p < h->n_points; p++) {
        const struct cell *c = &h->point[p].of[series];
        const double x = figure == FIGURE_LOW    ? c->low
                         : figure == FIGURE_HIGH ? c->high
                         : figure == FIGURE_SUM  ? c->sum
                                                 : c->sum / (double)c->n;
        if (h->point[p].steps > 0)
            json_array_append_new(all, c->n > 0 ? number(x) : json_null());
    }
    return all;
}

static int has_values(const struct history *h, int series)
{
    for (int p = 0; p < h->n_points; p++)
        if (h->point[p].of[series].n > 0)
            return 1;
    return 0;
}

static json_t *curves(const struct history *h)
{
    static const enum figure figure[] = {
        [KEY_MEAN] = FIGURE_MEAN, [KEY_RANGE] = FIGURE_MEAN, [KEY_SUM] = FIGURE_SUM, [KEY_MOST] = FIGURE_HIGH};
    json_t *all = json_object(), *last = json_array();
    for (int k = 0; k < METRICS_KEYS; k++) {
        const enum key_fold fold = metrics_keys[k].fold;
        char name[64];
        if (fold == KEY_OTHER || !has_values(h, k))
            continue;
        json_object_set_new(all, metrics_keys[k].name, curve(h, k, figure[fold]));
        if (fold != KEY_RANGE)
            continue;
        snprintf(name, sizeof name, "%s_low", metrics_keys[k].name);
        json_object_set_new(all, name, curve(h, k, FIGURE_LOW));
        snprintf(name, sizeof name, "%s_high", metrics_keys[k].name);
        json_object_set_new(all, name, curve(h, k, FIGURE_HIGH));
    }
    for (int p = 0; p < h->n_points; p++)
        if (h->point[p].steps > 0)
            json_array_append_new(last, json_integer(h->point[p].last));
    json_object_set_new(all, "step", last);
    return all;
}

/* Makes {"lane": {"curve": [...], "classes": {"parameters": seconds}}} of the lanes that compute has waited for. */
static json_t *stalls(const struct history *h)
{
    json_t *all = json_object();
    for (int l = 0; l < LANES; l++) {
        json_t *classes = json_object();
        for (int c = 0; c < CLASSES; c++)
            if (h->stalls[l][c] > 0)
                json_object_set_new(classes, class_name((enum tensor_class)c), json_real(h->stalls[l][c]));
        if (json_object_size(classes) > 0)
            json_object_set_new(all, lane_name((enum lane)l),
                                json_pack("{s:o, s:o}", "curve", curve(h, METRICS_KEYS + l, FIGURE_SUM), "classes", classes));
        else
            json_decref(classes);
    }
    return all;
}

static json_t *evaluations(const struct history *h)
{
    json_t *all = json_array();
    for (int i = 0; i < h->n_evaluations; i++) {
        const struct evaluation_line *e = &h->evaluation[i];
        json_t *o = json_pack("{s:I, s:o, s:o}", "step", (json_int_t)e->step, "loss", number(e->loss), "bits", number(e->bits));
        json_t *positions = json_array();
        for (int p = 0; p < POSITIONS; p++)
            if (isfinite(e->by_position[p]))
                json_array_append_new(positions, json_pack("[I, f]", (json_int_t)1 << p, e->by_position[p]));
        json_object_set_new(o, "by_position", positions);
        json_array_append_new(all, o);
    }
    return all;
}

static json_t *events(const struct history *h)
{
    json_t *all = json_array();
    for (int i = 0; i < h->n_events; i++)
        json_array_append_new(all, json_pack("{s:I, s:s}", "step", (json_int_t)h->event[i].step, "what", h->event[i].what));
    return all;
}

json_t *history_json(const struct history *h)
{
    json_t *reference = json_string(h->reference); /* NULL: a damaged log's text is no UTF-8 */
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "steps", (json_int_t)h->steps,
                     "first_step", (json_int_t)h->first, "last_step", (json_int_t)h->last, "steps_per_point",
                     (json_int_t)h->width, "skipped", (json_int_t)h->skipped, "resumed", (json_int_t)h->resumed, "damaged",
                     (json_int_t)h->damaged, "repeated", (json_int_t)h->repeated, "last_loss", number(h->last_loss),
                     "mfu_reference", reference ? reference : json_string(""), "curves", curves(h), "stalls", stalls(h),
                     "evaluations", evaluations(h), "events", events(h));
}
