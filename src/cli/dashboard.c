#include "cli/dashboard.h"

#include "base/clock.h"
#include "base/sys.h"
#include "cli/view.h"
#include "train/live.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_NS 250000000ll /* time between frames */

enum {
    LINES = 4096,          /* lines kept; the oldest of more are dropped */
    LONGEST_LINE = 1 << 20 /* bytes; longer ones are cut into several */
};

/* A line of a descriptor that has not ended yet. */
struct begun {
    char *text;
    size_t n, room;
};

struct dashboard {
    pthread_mutex_t lock;
    struct screen screen;
    struct view view;
    struct begun begun[2]; /* standard output's and standard error's */
    struct view_line lines[LINES];
    int64_t dropped;           /* lines that are not kept any more */
    int64_t came_ns, drawn_ns; /* times of the newest data line and of the last frame */
};

enum status dashboard_open(struct dashboard **out)
{
    struct dashboard *d = sys_calloc(1, sizeof *d);
    if (!d)
        return status_fail(ERR_NOMEM, "out of memory for --dashboard");
    pthread_mutex_init(&d->lock, NULL);
    d->view.eval = NAN;
    d->view.lines = d->lines;
    d->came_ns = clock_ns();
    screen_enter(&d->screen, STDOUT_FILENO);
    *out = d;
    return OK;
}

/* ---- what the run prints ---- */

static void keep_line(struct dashboard *d, int to, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return;
    if (d->view.n_lines == LINES) {
        free(d->lines[0].text);
        memmove(d->lines, d->lines + 1, (LINES - 1) * sizeof *d->lines);
        d->view.n_lines--;
        d->dropped++;
    }
    d->lines[d->view.n_lines++] = (struct view_line){copy, to};
}

static void replace(json_t **kept, json_t *by)
{
    json_decref(*kept);
    *kept = json_incref(by);
}

static void take_step(struct dashboard *d, json_t *step)
{
    const json_t *eval = json_object_get(step, "eval_loss"), *loss = json_object_get(step, "loss");
    if (json_is_number(eval))
        d->view.eval = json_number_value(eval);
    curve_add(&d->view.loss, json_is_number(loss) ? json_number_value(loss) : NAN);
    replace(&d->view.step, step);
}

/* Takes a data line, without its mark; one that is damaged is left out. */
static void take_data(struct dashboard *d, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    json_t *run = json_object_get(o, "run"), *step = json_object_get(o, "step");
    if (json_is_object(run))
        replace(&d->view.run, run);
    if (json_is_object(step))
        take_step(d, step);
    if (run || step)
        d->came_ns = clock_ns();
    json_decref(o);
}

/* Takes a whole line: text, a data line, or text before one. */
static void take_line(struct dashboard *d, int to, char *text)
{
    char *mark = strchr(text, LIVE_MARK);
    if (mark)
        *mark = 0;
    if (text[0] || !mark)
        keep_line(d, to, text);
    if (mark)
        take_data(d, mark + 1);
}

static void end_line(struct dashboard *d, int to)
{
    struct begun *b = &d->begun[to == STDERR_FILENO];
    if (b->text) {
        b->text[b->n] = 0;
        take_line(d, to, b->text);
    }
    b->n = 0;
}

void dashboard_take(struct dashboard *d, int to, const char *text, size_t bytes)
{
    struct begun *b = &d->begun[to == STDERR_FILENO];
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < bytes; i++) {
        if (b->n + 1 >= b->room) {
            const size_t room = b->room ? 2 * b->room : 1024;
            char *larger = realloc(b->text, room);
            if (!larger)
                break;
            b->text = larger;
            b->room = room;
        }
        if (text[i] != '\n')
            b->text[b->n++] = text[i];
        if (text[i] == '\n' || b->n == LONGEST_LINE)
            end_line(d, to);
    }
    pthread_mutex_unlock(&d->lock);
}

/* ---- the terminal ---- */

static void draw(struct dashboard *d)
{
    pthread_mutex_lock(&d->lock);
    d->drawn_ns = clock_ns();
    d->view.since = (double)(d->drawn_ns - d->came_ns) * 1e-9;
    view_draw(&d->view, &d->screen);
    pthread_mutex_unlock(&d->lock);
}

void dashboard_draw(struct dashboard *d)
{
    if (clock_ns() - d->drawn_ns >= FRAME_NS)
        draw(d);
}

void dashboard_pause(struct dashboard *d)
{
    screen_leave(&d->screen);
    raise(SIGSTOP);
    screen_enter(&d->screen, STDOUT_FILENO);
    d->drawn_ns = 0;
}

/* Prints the lines of the run, each to where it was meant for. */
static void print_lines(const struct dashboard *d)
{
    if (d->dropped > 0)
        printf("(%lld earlier lines are left out)\n", (long long)d->dropped);
    for (int i = 0; i < d->view.n_lines; i++) {
        FILE *f = d->lines[i].to == STDERR_FILENO ? stderr : stdout;
        fprintf(f, "%s\n", d->lines[i].text);
        fflush(f);
    }
}

void dashboard_close(struct dashboard *d)
{
    if (!d)
        return;
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO; to++)
        if (d->begun[to == STDERR_FILENO].n > 0)
            end_line(d, to);
    draw(d);
    screen_leave(&d->screen);
    print_lines(d);
    for (int i = 0; i < d->view.n_lines; i++)
        free(d->lines[i].text);
    for (int k = 0; k < 2; k++)
        free(d->begun[k].text);
    json_decref(d->view.run);
    json_decref(d->view.step);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
