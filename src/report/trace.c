/* A traced step: bars of each lane, and the waits between them. */
#include "base/num.h"
#include "base/sys.h"
#include "program/program.h"
#include "report/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BARS = 1500, /* a lane's width in bars: an instruction shorter than a bar is drawn together with its neighbour */
    WAITS = 12,  /* longest waits of compute that are listed */
    NAME = 48,
};

struct bar {
    double from, to; /* microseconds */
    char phase;
};

struct event {
    double from, to, ready;
    int lane, by; /* by: lane of the instruction that ended last among those waited for; -1: none */
    int instruction, by_instruction;
    char phase, name[NAME];
};

struct events {
    struct event *of;
    size_t n, room;
    double end;
};

static int read_event(const json_t *o, struct event *e)
{
    const json_t *args = json_object_get(o, "args"), *by = json_object_get(args, "released_by");
    const char *ph = json_string_value(json_object_get(o, "ph")), *name = json_string_value(json_object_get(o, "name")),
               *cat = json_string_value(json_object_get(o, "cat")), *lane = json_string_value(json_object_get(by, "lane"));
    const json_t *ready = json_object_get(args, "ready");
    if (!ph || strcmp(ph, "X") != 0 || !name || !cat)
        return 0;
    *e = (struct event){.lane = (int)json_integer_value(json_object_get(o, "tid")),
                        .from = json_number_value(json_object_get(o, "ts")),
                        .by = -1,
                        .instruction = (int)json_integer_value(json_object_get(args, "instruction")),
                        .by_instruction = (int)json_integer_value(json_object_get(by, "instruction")),
                        .phase = cat[0]};
    e->to = e->from + json_number_value(json_object_get(o, "dur"));
    e->ready = json_is_number(ready) ? json_number_value(ready) : e->from;
    snprintf(e->name, sizeof e->name, "%s", name);
    for (int l = 0; lane && l < LANES; l++)
        if (strcmp(lane, lane_name((enum lane)l)) == 0)
            e->by = l;
    return e->lane >= 0 && e->lane < LANES && e->to >= e->from;
}

/* Reads the lines of a trace, one event each. Returns 0 if a line is damaged. */
static int read_events(FILE *f, struct events *all, enum status *st)
{
    char *line = NULL;
    size_t room = 0;
    int whole = 0, opened = 0;
    for (ssize_t n; *st == OK && (n = getline(&line, &room, f)) > 0;) {
        while (n > 0 && strchr(",\n", line[n - 1]))
            n--;
        if (!opened) { /* the line that opens the list */
            opened = n > 0 && strncmp(line, "{\"traceEvents\":[", 16) == 0;
            if (!opened)
                break;
            continue;
        }
        if ((whole = n == 2 && strncmp(line, "]}", 2) == 0))
            break;
        json_t *o = json_loadb(line, (size_t)n, 0, NULL);
        struct event e;
        const int is_event = o && read_event(o, &e);
        json_decref(o);
        if (!o)
            break;
        if (!is_event)
            continue;
        if (all->n == all->room) {
            const size_t more = all->room ? 2 * all->room : 1024;
            struct event *grown = sys_realloc(all->of, more * sizeof *grown);
            if (!grown) {
                *st = status_fail(ERR_NOMEM, "out of memory for a trace of more than %zu instructions", all->n);
                break;
            }
            all->of = grown;
            all->room = more;
        }
        all->of[all->n++] = e;
        all->end = e.to > all->end ? e.to : all->end;
    }
    free(line);
    return whole;
}

/* ---- drawing ---- */

/* Merges a lane's instructions into visible bars: neighbours of one phase without a visible gap, and instructions shorter than a bar. */
static json_t *bars_of(const struct events *all, int lane, double unit)
{
    json_t *list = json_array();
    struct bar b = {0};
    double busy = 0;
    int n = 0;
    for (size_t i = 0; i <= all->n; i++) {
        const struct event *e = i < all->n ? &all->of[i] : NULL;
        if (e && e->lane != lane)
            continue;
        if (e && n > 0 && e->from - b.to < unit && (e->phase == b.phase || e->to - e->from < unit || b.to - b.from < unit)) {
            b.phase = e->to - e->from > b.to - b.from ? e->phase : b.phase;
            b.to = e->to > b.to ? e->to : b.to;
        } else {
            if (n > 0)
                json_array_append_new(list, json_pack("[f, f, s#]", b.from, b.to, &b.phase, 1));
            if (e)
                b = (struct bar){e->from, e->to, e->phase};
        }
        n += e != NULL;
        busy += e ? e->to - e->from : 0;
    }
    if (n == 0) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:s, s:i, s:f, s:o}", "name", lane_name((enum lane)lane), "instructions", n, "busy", busy, "bars", list);
}

struct pause {
    double from, to;
    const struct event *event;
};

static int longer(const void *a, const void *b)
{
    const struct pause *x = a, *y = b;
    const double left = x->to - x->from, right = y->to - y->from;
    return left < right ? 1 : left > right ? -1 : (x->from > y->from) - (x->from < y->from);
}

static const char *name_of(const struct events *all, int instruction)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->of[i].instruction == instruction)
            return all->of[i].name;
    return "";
}

/* Lists the waits of compute: [from, to, lane waited for], and the longest with their names. */
static enum status waits_of(const struct events *all, double unit, json_t *into)
{
    struct pause *w = sys_malloc((all->n + 1) * sizeof *w);
    double end = 0, by_lane[LANES] = {0};
    size_t n = 0;
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory for a trace's waits");
    for (size_t i = 0; i < all->n; i++) {
        const struct event *e = &all->of[i];
        if (e->lane != LANE_COMPUTE)
            continue;
        const double to = e->ready < e->from ? e->ready : e->from;
        if (to > end && e->by > LANE_COMPUTE) {
            w[n++] = (struct pause){end, to, e};
            by_lane[e->by] += to - end;
        }
        end = e->to > end ? e->to : end;
    }
    json_t *marks = json_array(), *longest = json_array(), *sums = json_object();
    for (size_t i = 0; i < n; i++)
        if (w[i].to - w[i].from >= unit)
            json_array_append_new(marks, json_pack("[f, f, s]", w[i].from, w[i].to, lane_name((enum lane)w[i].event->by)));
    qsort(w, n, sizeof *w, longer);
    for (size_t i = 0; i < n && i < WAITS; i++)
        json_array_append_new(longest, json_pack("[f, f, s, s, s]", w[i].from, w[i].to, lane_name((enum lane)w[i].event->by),
                                                 w[i].event->name, name_of(all, w[i].event->by_instruction)));
    for (int l = 0; l < LANES; l++)
        if (by_lane[l] > 0)
            json_object_set_new(sums, lane_name((enum lane)l), json_real(by_lane[l]));
    json_object_set_new(into, "waits", marks);
    json_object_set_new(into, "longest", longest);
    json_object_set_new(into, "waited", sums);
    free(w);
    return OK;
}

enum status report_trace(const char *path, json_t **out)
{
    struct events all = {0};
    enum status st = OK;
    FILE *f = sys_read_text(path);
    *out = NULL;
    if (!f)
        return sys_cannot_open(path);
    const int whole = read_events(f, &all, &st);
    fclose(f);
    if (st == OK && whole && all.n > 0) {
        const double unit = all.end / BARS;
        json_t *trace = json_object(), *lanes = json_array();
        for (int l = 0; l < LANES; l++) {
            json_t *lane = bars_of(&all, l, unit);
            if (lane)
                json_array_append_new(lanes, lane);
        }
        json_object_set_new(trace, "end", json_real(all.end));
        json_object_set_new(trace, "lanes", lanes);
        st = waits_of(&all, unit, trace);
        if (st == OK)
            *out = trace;
        else
            json_decref(trace);
    }
    free(all.of);
    return st;
}
