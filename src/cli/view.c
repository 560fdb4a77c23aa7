#include "cli/view.h"

#include "base/num.h"
#include "base/units.h"
#include "plan/report/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROOM = 1024, /* bytes of a line */
    MOST_COLUMNS = 300,
    BAR = 24,        /* columns of a bar */
    CURVE_LINES = 8, /* lines of the curve at most, and at least 2 */
    LABEL = 10,      /* columns of a label or a number beside the curve */
    MESSAGES = 4,    /* lines that are left for the newest messages before the curve grows */
};

static double number(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

static const char *text(const json_t *o, const char *key)
{
    const char *x = json_string_value(json_object_get(o, key));
    return x ? x : "";
}

#define SHORT_STEP 1.0 /* seconds; shorter steps have no bar of their own */

/* ---- bars ---- */

/* Appends a bar of `share` of `cells` columns to a line. */
static void add_bar(const struct screen *s, double share, int cells, char line[ROOM])
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int eighths = isfinite(share) ? (int)lround(8 * cells * fmin(1, fmax(0, share))) : 0;
    const int full = s->utf8 ? eighths / 8 : (eighths + 4) / 8, part = s->utf8 ? eighths % 8 : 0;
    size_t n = strlen(line);
    for (int i = 0; i < full; i++)
        n += (size_t)snprintf(line + n, ROOM - n, "%s", s->utf8 ? "█" : "#");
    n += (size_t)snprintf(line + n, ROOM - n, "%s", parts[part]);
    for (int i = full + (part > 0); i < cells; i++)
        n += (size_t)snprintf(line + n, ROOM - n, "%s", s->utf8 ? "·" : ".");
}

static void add_duration(double seconds, char line[ROOM])
{
    const size_t n = strlen(line);
    char duration[32];
    snprintf(line + n, ROOM - n, "%s", isfinite(seconds) ? report_duration(seconds, duration) : "-");
}

/* ---- the run and its newest step ---- */

static void draw_title(const struct view *v, struct screen *s)
{
    char line[ROOM], tokens[32];
    if (!v->run) {
        screen_add(s, SCREEN_TITLE, " ltrain: reading and planning");
        return;
    }
    const double ranks = number(v->run, "ranks");
    snprintf(line, sizeof line, " ltrain  %.200s  %s tokens  %.0f rank%s  %.300s", text(v->run, "model"),
             units_format_count((int64_t)number(v->run, "seq_len"), tokens), ranks, ranks == 1 ? "" : "s",
             text(v->run, "directory"));
    screen_add(s, SCREEN_TITLE, line);
}

/* Draws how far the run and its present step are. A step is expected to take as long as the one before, or as planned. */
static void draw_progress(const struct view *v, struct screen *s)
{
    const json_t *newest = v->step ? v->step : v->run;
    const double step = number(newest, "step"), steps = number(newest, "steps"),
                 expected = v->step ? number(v->step, "seconds") : number(v->run, "planned_seconds");
    char line[ROOM];
    snprintf(line, sizeof line, "%-*s", LABEL, "run");
    add_bar(s, step / steps, BAR, line);
    size_t n = strlen(line);
    snprintf(line + n, sizeof line - n, "  step %.0f of %.0f, to go ", step, steps);
    add_duration(v->step ? number(v->step, "eta_seconds") : (steps - step) * expected, line);
    screen_add(s, SCREEN_PLAIN, line);
    if (step >= steps || expected < SHORT_STEP)
        return;
    snprintf(line, sizeof line, "step %-*.0f", LABEL - 5, step + 1);
    add_bar(s, v->since / expected, BAR, line);
    n = strlen(line);
    snprintf(line + n, sizeof line - n, "  ");
    add_duration(v->since, line);
    n = strlen(line);
    snprintf(line + n, sizeof line - n, " of about ");
    add_duration(expected, line);
    screen_add(s, SCREEN_PLAIN, line);
}

static void draw_figures(const struct view *v, struct screen *s)
{
    char line[ROOM];
    if (!v->step)
        return;
    int n = snprintf(line, sizeof line, "%-*s%.4f", LABEL, "loss", number(v->step, "loss"));
    if (isfinite(v->eval))
        n += snprintf(line + n, sizeof line - (size_t)n, "   held out %.4f", v->eval);
    n += snprintf(line + n, sizeof line - (size_t)n, "   gradient norm %.3g   rate %.1e", number(v->step, "grad_norm"),
                  number(v->step, "lr"));
    screen_add(s, SCREEN_HEADING, line);
    n = snprintf(line, sizeof line, "%-*s%.4g tokens/s   MFU %.0f%%   step ", LABEL, "speed",
                 number(v->step, "tokens_per_second"), 100 * number(v->step, "mfu"));
    add_duration(number(v->step, "seconds"), line);
    n = (int)strlen(line);
    snprintf(line + n, sizeof line - (size_t)n, " (planned ");
    add_duration(number(v->step, "planned_seconds"), line);
    n = (int)strlen(line);
    n += snprintf(line + n, sizeof line - (size_t)n, ")");
    if (isfinite(number(v->step, "hidden")))
        snprintf(line + n, sizeof line - (size_t)n, "   transfers hidden %.0f%%", 100 * number(v->step, "hidden"));
    screen_add(s, SCREEN_PLAIN, line);
}

/* ---- the curve ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Finds the range of the curve's axis. The highest fiftieth is cut off, so that the first steps do not flatten all others. */
static int find_range(const double *value, int n, double *low, double *high)
{
    double sorted[MOST_COLUMNS];
    int finite = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(value[i]))
            sorted[finite++] = value[i];
    if (finite == 0)
        return 0;
    qsort(sorted, (size_t)finite, sizeof *sorted, compare);
    *low = sorted[0];
    *high = sorted[finite - 1 - finite / 50];
    return 1;
}

static void draw_curve(const struct view *v, struct screen *s, int lines)
{
    static const char *const levels[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double value[MOST_COLUMNS], low, high;
    const int n = curve_columns(&v->loss, (int)max_i64(1, min_i64(MOST_COLUMNS, s->width - LABEL)), value);
    if (n < 2 || !find_range(value, n, &low, &high))
        return;
    for (int row = 0; row < lines; row++) {
        char line[ROOM];
        size_t at = 0;
        if (row == 0 || row == lines - 1)
            at = (size_t)snprintf(line, sizeof line, "%-*.4g", LABEL, row == 0 ? high : low);
        else
            at = (size_t)snprintf(line, sizeof line, "%*s", LABEL, "");
        for (int k = 0; k < n; k++) {
            const double share = high > low ? fmin(1, (value[k] - low) / (high - low)) : 0.5;
            const int filled = isfinite(value[k]) ? 1 + (int)lround(share * (8 * lines - 1)) - 8 * (lines - 1 - row) : 0;
            const int level = (int)min_i64(8, max_i64(0, filled));
            at += (size_t)snprintf(line + at, sizeof line - at, "%s", s->utf8 ? levels[level] : level >= 4 ? "#" : " ");
        }
        screen_add(s, SCREEN_CURVE, line);
    }
}

/* ---- memory and lanes ---- */

static void draw_memory(const struct view *v, struct screen *s)
{
    const char *name;
    json_t *tier;
    json_object_foreach(json_object_get(v->run, "tiers"), name, tier)
    {
        const double bytes = number(tier, "bytes"), limit = number(tier, "limit");
        char line[ROOM], a[32], b[32];
        if (!(bytes > 0))
            continue;
        snprintf(line, sizeof line, "%-*s", LABEL, name);
        add_bar(s, isfinite(limit) ? bytes / limit : 0, BAR, line);
        const size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, "  %s%s%s", units_format_bytes((int64_t)bytes, a), isfinite(limit) ? " of " : "",
                 isfinite(limit) ? units_format_bytes((int64_t)limit, b) : "");
        screen_add(s, SCREEN_PLAIN, line);
    }
}

/* Adds up the seconds for which compute waited for a lane. */
static double waited_for(const json_t *step, const char *lane)
{
    const char *class;
    json_t *seconds, *all = json_object_get(json_object_get(step, "stalls"), lane);
    double sum = 0;
    json_object_foreach(all, class, seconds) sum += json_number_value(seconds);
    return sum;
}

static void draw_lanes(const struct view *v, struct screen *s)
{
    const char *name;
    json_t *busy;
    const double seconds = number(v->step, "seconds");
    json_object_foreach(json_object_get(v->step, "busy"), name, busy)
    {
        const double share = json_number_value(busy) / seconds, waited = waited_for(v->step, name);
        char line[ROOM];
        snprintf(line, sizeof line, "%-*s", LABEL, name);
        add_bar(s, share, BAR, line);
        const size_t n = strlen(line);
        if (waited > 0.001 * seconds)
            snprintf(line + n, sizeof line - n, "  busy %.0f%%, compute waited %.0f%%", 100 * share, 100 * waited / seconds);
        else
            snprintf(line + n, sizeof line - n, "  busy %.0f%%", 100 * share);
        screen_add(s, SCREEN_PLAIN, line);
    }
}

/* ---- messages ---- */

static void draw_messages(const struct view *v, struct screen *s)
{
    const int shown = (int)min_i64(v->n_lines, screen_left(s));
    for (int i = v->n_lines - shown; i < v->n_lines; i++)
        screen_add(s, v->lines[i].to == STDERR_FILENO ? SCREEN_BAD : SCREEN_PLAIN, v->lines[i].text);
}

/* Draws everything but the messages, with a curve of `lines` lines. */
static void draw_figures_with(const struct view *v, struct screen *s, int lines)
{
    draw_title(v, s);
    if (!v->run)
        return;
    draw_progress(v, s);
    draw_figures(v, s);
    if (lines >= 2)
        draw_curve(v, s, lines);
    draw_memory(v, s);
    draw_lanes(v, s);
}

void view_draw(const struct view *v, struct screen *s)
{
    enum { OTHERS = 6 }; /* lines above the curve, and an empty one */
    screen_begin(s);
    const int bars =
        (int)(json_object_size(json_object_get(v->run, "tiers")) + json_object_size(json_object_get(v->step, "busy")));
    draw_figures_with(v, s, (int)min_i64(CURVE_LINES, s->height - OTHERS - bars - MESSAGES));
    if (screen_left(s) > 1)
        screen_add(s, SCREEN_PLAIN, "");
    draw_messages(v, s);
    screen_end(s);
}
