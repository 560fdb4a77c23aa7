/* One step as a picture: the work of the lanes, and the contents of each tier.
 *
 * Time is cut into columns of equal width; a lane's column is a stack of the seconds spent on each thing. So the file's size
 * depends on the picture, not on the program. */
#include "plan/report/svg.h"

#include "base/sys.h"
#include "base/units.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"
#include "program/stalls.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 600, COLUMN_WIDTH = 2, LEFT = 110, RIGHT = 24, TOP = 76, LANE_HEIGHT = 24, GAP = 12, TIER_HEIGHT = 120 };
enum { WIDTH = LEFT + COLUMNS * COLUMN_WIDTH + RIGHT };
/* Number of things shown: the compute lane shows kinds of work, all other lanes the class of the moved data. */
enum { THINGS = OPS_COMPUTED + CLASSES };

static const struct {
    const char *name, *colour;
} thing[THINGS] = {
    [OPS_MATRIX] = {"matrix products", "#4c72b0"},
    [OPS_ATTENTION] = {"attention", "#dd8452"},
    [OPS_RECURRENT] = {"linear attention", "#e2a76f"},
    [OPS_ELEMENTWISE] = {"element-wise", "#a5b8d8"},
    [OPS_COMPUTED + CLASS_PARAM] = {"parameters", "#55a868"},
    [OPS_COMPUTED + CLASS_GRAD] = {"gradients", "#c44e52"},
    [OPS_COMPUTED + CLASS_OPTIM] = {"optimizer", "#8172b3"},
    [OPS_COMPUTED + CLASS_ACT] = {"activations", "#f0d264"},
    [OPS_COMPUTED + CLASS_WORK] = {"workspace", "#8c8c8c"},
    [OPS_COMPUTED + CLASS_IO] = {"input/output", "#64b5cd"},
};

struct picture {
    FILE *f;
    const struct program *p;
    double span; /* seconds */
    int y;
};

static double column_of(const struct picture *s, double time)
{
    return time / s->span * COLUMNS;
}

static int x_of(double column)
{
    return LEFT + (int)(column * COLUMN_WIDTH + 0.5);
}

/* --- Stacks of columns --- */

struct band {
    float share[COLUMNS][THINGS]; /* shares of a column's height */
};

/* Draws each thing's part of the stack; equal neighbours become one rectangle. */
static void draw_band(struct picture *s, const struct band *b, int top, int height)
{
    for (int k = 0; k < THINGS; k++) {
        int open = 0, from = 0, was_y = 0, was_h = 0;
        for (int c = 0; c <= COLUMNS; c++) {
            double below = 0;
            for (int j = 0; c < COLUMNS && j < k; j++)
                below += b->share[c][j];
            int y0 = (int)lround(below * height), y1 = c < COLUMNS ? (int)lround((below + b->share[c][k]) * height) : y0;
            if (was_h > 0 && (y1 - y0 != was_h || y0 != was_y)) {
                if (!open)
                    fprintf(s->f, "<path fill=\"%s\" d=\"", thing[k].colour);
                open = 1;
                fprintf(s->f, "M%d %dh%dv-%dh-%dz", x_of(from), top + height - was_y, (c - from) * COLUMN_WIDTH, was_h,
                        (c - from) * COLUMN_WIDTH);
            }
            if (y1 - y0 != was_h || y0 != was_y)
                from = c;
            was_y = y0;
            was_h = y1 - y0;
        }
        if (open)
            fprintf(s->f, "\"/>\n");
    }
}

static int thing_of(const struct program *p, const struct instr *in)
{
    return in->lane == LANE_COMPUTE ? (int)op_class(in->op) : OPS_COMPUTED + (int)stalls_class(p, in);
}

static void add_time(const struct picture *s, struct band *b, const struct instr *in, int what)
{
    double from = column_of(s, in->start), to = fmin(column_of(s, in->end), COLUMNS);
    for (int c = (int)from; c < COLUMNS && c < to; c++)
        b->share[c][what] += (float)(fmin(to, c + 1) - fmax(from, c));
}

static void draw_lanes(struct picture *s, struct band *b)
{
    for (int l = 0; l < LANES; l++) {
        double busy = 0;
        memset(b, 0, sizeof *b);
        for (int i = 0; i < s->p->n_instrs; i++) {
            const struct instr *in = &s->p->instrs[i];
            if ((int)in->lane != l)
                continue;
            busy += in->end - in->start;
            add_time(s, b, in, thing_of(s->p, in));
        }
        if (busy <= 0)
            continue;
        fprintf(s->f,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f2f2f2\"/>\n"
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s %.0f%%</text>\n",
                LEFT, s->y, COLUMNS * COLUMN_WIDTH, LANE_HEIGHT, LEFT - 8, s->y + 17, lane_name((enum lane)l),
                100 * busy / s->span);
        draw_band(s, b, s->y, LANE_HEIGHT);
        s->y += LANE_HEIGHT + 4;
    }
}

/* --- Phases --- */

/* Draws a thin line over the lanes for the phases, with their names if there is room. */
static void draw_phases(struct picture *s)
{
    static const enum phase phase[] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_LOSS, PHASE_UPDATE};
    static const char *const name[] = {"forward", "backward", "loss", "update"}, *const colour[] = {"#333", "#999", "#c44e52",
                                                                                                    "#8172b3"};
    float share[COLUMNS][4] = {{0}};
    for (int i = 0; i < s->p->n_instrs; i++) {
        const struct instr *in = &s->p->instrs[i];
        int at = 0;
        while (at < 4 && (in->lane != LANE_COMPUTE || in->phase != phase[at]))
            at++;
        double from = column_of(s, in->start), to = fmin(column_of(s, in->end), COLUMNS);
        for (int c = (int)from; at < 4 && c < COLUMNS && c < to; c++)
            share[c][at] += (float)(fmin(to, c + 1) - fmax(from, c));
    }
    int from = 0, was = -1;
    for (int c = 0; c <= COLUMNS; c++) {
        int most = was < 0 ? 0 : was;
        for (int k = 0; c < COLUMNS && k < 4; k++)
            if (share[c][k] > share[c][most])
                most = k;
        if (c < COLUMNS && (most == was || was < 0)) {
            was = most;
            continue;
        }
        fprintf(s->f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"3\" fill=\"%s\"/>\n", x_of(from), s->y,
                (c - from) * COLUMN_WIDTH, colour[was]);
        if (c - from > 30)
            fprintf(s->f, "<text x=\"%d\" y=\"%d\">%s</text>\n", x_of(from), s->y - 4, name[was]);
        from = c;
        was = most;
    }
    s->y += 8;
}

/* --- Memory --- */

struct event {
    double time;
    double bytes; /* freed: negative */
    enum tensor_class class;
};

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Lists the events of a tier's transient buffers, which come with their first access and go with their last. Returns the number
 * of events. */
static int tier_events(const struct program *p, enum tier t, const double (*life)[2], struct event *out)
{
    int n = 0;
    for (int b = p->n_persistent; b < p->n_buffers; b++) {
        const struct buffer *buf = &p->buffers[b];
        double bytes = (double)round_up(buf->bytes, BUFFER_ALIGN);
        if (buf->tier != t || life[b][1] <= life[b][0])
            continue;
        out[n++] = (struct event){life[b][0], bytes, buf->class};
        out[n++] = (struct event){life[b][1], -bytes, buf->class};
    }
    qsort(out, (size_t)n, sizeof *out, by_time);
    return n;
}

/* Fills each column with the memory at that moment of the column when the most bytes are live. */
static void memory_band(const struct picture *s, enum tier t, const struct event *event, int n, double scale, struct band *b)
{
    double live[CLASSES] = {0}, total = 0;
    memset(b, 0, sizeof *b);
    for (int i = 0; i < s->p->n_persistent; i++)
        if (s->p->buffers[i].tier == t)
            live[s->p->buffers[i].class] += (double)round_up(s->p->buffers[i].bytes, BUFFER_ALIGN);
    for (int k = 0; k < CLASSES; k++)
        total += live[k];
    for (int c = 0, i = 0; c < COLUMNS; c++) {
        double most = -1;
        do {
            if (total > most)
                for (int k = 0; k < CLASSES; k++)
                    b->share[c][OPS_COMPUTED + k] = (float)(live[k] / scale);
            most = fmax(most, total);
            if (i >= n || column_of(s, event[i].time) >= c + 1)
                break;
            live[event[i].class] += event[i].bytes;
            total += event[i].bytes;
            i++;
        } while (1);
    }
}

static void draw_tier(struct picture *s, enum tier t, const struct plan *plan, const double (*life)[2], struct event *event,
                      struct band *b)
{
    char peak[32], limit[32] = "no limit";
    int64_t arena = s->p->arena[t];
    int has_limit = plan->limit[t] != INT64_MAX, in_sight = has_limit && plan->limit[t] <= 3 * arena;
    double scale = 1.05 * (double)(in_sight ? max_i64(arena, plan->limit[t]) : arena);
    if (arena == 0)
        return;
    fprintf(s->f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f7f7f7\"/>\n", LEFT, s->y, COLUMNS * COLUMN_WIDTH,
            TIER_HEIGHT);
    memory_band(s, t, event, tier_events(s->p, t, life, event), scale, b);
    draw_band(s, b, s->y, TIER_HEIGHT);
    if (has_limit)
        units_format_bytes(plan->limit[t], limit);
    int y = s->y + TIER_HEIGHT - (int)lround((double)plan->limit[t] / scale * TIER_HEIGHT);
    if (in_sight)
        fprintf(s->f, "<path d=\"M%d %dh%d\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n", LEFT, y, COLUMNS * COLUMN_WIDTH);
    fprintf(s->f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-weight=\"bold\">%s</text>\n"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">peak %s</text>\n"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s%s</text>\n",
            LEFT - 8, s->y + 16, tier_name(t), LEFT - 8, s->y + 34, units_format_bytes(arena, peak), LEFT - 8, s->y + 50,
            has_limit ? "limit " : "", limit);
    s->y += TIER_HEIGHT + GAP;
}

static enum status draw_memory(struct picture *s, const struct plan *plan, struct band *b)
{
    const struct program *p = s->p;
    double(*life)[2] = sys_malloc(sizeof *life * (size_t)(p->n_buffers + 1));
    struct event *event = sys_malloc(sizeof *event * (size_t)(2 * p->n_buffers + 1));
    if (!life || !event) {
        free(life);
        free(event);
        return status_fail(ERR_NOMEM, "out of memory for the picture of a plan");
    }
    for (int i = 0; i < p->n_buffers; i++)
        life[i][0] = INFINITY, life[i][1] = -INFINITY;
    for (int i = 0; i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            double *of = life[p->operands[p->instrs[i].first_operand + k].buffer];
            of[0] = fmin(of[0], p->instrs[i].start);
            of[1] = fmax(of[1], p->instrs[i].end);
        }
    for (int t = 0; t < TIERS; t++)
        draw_tier(s, (enum tier)t, plan, (const double(*)[2])life, event, b);
    free(life);
    free(event);
    return OK;
}

/* --- The page --- */

/* Draws round times on an axis over everything below `top`. */
static void draw_axis(struct picture *s, int top)
{
    double unit;
    const char *name = report_time_unit(s->span, &unit);
    double span = s->span / unit, power = pow(10, floor(log10(span / 4)));
    double step = span / power > 20 ? 5 * power : span / power > 8 ? 2 * power : power;
    for (int i = 0; i * step <= span; i++) {
        int x = x_of(column_of(s, i * step * unit));
        fprintf(s->f,
                "<path d=\"M%d %dV%d\" stroke=\"#000\" stroke-opacity=\".18\"/><text x=\"%d\" y=\"%d\" "
                "text-anchor=\"middle\">%.10g %s</text>\n",
                x, top, s->y, x, s->y + 14, i * step, name);
    }
    s->y += 24;
}

static void draw_legend(struct picture *s)
{
    int x = LEFT, is_recurrent = 0;
    for (int i = 0; i < s->p->n_instrs; i++)
        is_recurrent |= op_class(s->p->instrs[i].op) == OPS_RECURRENT;
    for (int k = 0; k < THINGS; k++) {
        if (k == OPS_RECURRENT && !is_recurrent)
            continue;
        fprintf(s->f, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", x,
                s->y, thing[k].colour, x + 17, s->y + 11, thing[k].name);
        x += 40 + 7 * (int)strlen(thing[k].name);
    }
    s->y += 24;
}

static void escaped(const char *text, FILE *f)
{
    for (; *text; text++)
        *text == '<' ? fputs("&lt;", f) : *text == '&' ? fputs("&amp;", f) : fputc(*text, f);
}

static int page_height(const struct program *p)
{
    int lanes = 0, tiers = 0, seen[LANES] = {0};
    for (int i = 0; i < p->n_instrs; i++)
        lanes += !seen[p->instrs[i].lane]++;
    for (int t = 0; t < TIERS; t++)
        tiers += p->arena[t] > 0;
    return TOP + 8 + lanes * (LANE_HEIGHT + 4) + tiers * (TIER_HEIGHT + GAP) + GAP + 56;
}

enum status plan_write_svg(const struct plan *plan, const struct model *m, FILE *f)
{
    struct picture s = {.f = f, .p = plan->programs[PLAN_UPDATE_STEP], .y = TOP};
    struct band *b = sys_malloc(sizeof *b);
    char tokens[32], line[256], span[32];
    if (!b)
        return status_fail(ERR_NOMEM, "out of memory for the picture of a plan");
    s.span = s.p->seconds;
    plan_describe(plan, line, sizeof line);
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"bold\">",
        WIDTH, page_height(s.p), LEFT);
    escaped(m->config.name, f);
    fprintf(f, ", %s tokens%s: %s of %s</text>\n<text x=\"%d\" y=\"42\">%s</text>\n",
            units_format_count(plan->tokens / plan->sequences, tokens), plan->strategy.ranks > 1 ? ", one of the ranks" : "",
            plan->micro_batches > 1 ? "the first micro-batch of a step" : "a step", report_duration(s.span, span), LEFT, line);
    draw_phases(&s);
    draw_lanes(&s, b);
    s.y += GAP;
    enum status st = draw_memory(&s, plan, b);
    draw_axis(&s, TOP);
    draw_legend(&s);
    fprintf(f, "</svg>\n");
    free(b);
    if (st == OK && ferror(f))
        st = status_fail(ERR_IO, "cannot write the picture of a plan: %s", strerror(errno));
    return st;
}
