#include "train/walltime.h"

#include "base/clock.h"
#include "base/tell.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define SAVE_BYTES_PER_SECOND 2e8 /* assumed until a save was measured */
#define SAVE_SPARE 1.5            /* a drive that others use, too */
#define STEP_SPARE 1.1            /* steps differ by their documents */

/* Returns the seconds kept free for what is neither a step nor a save: leaving MPI, and a scheduler's own delays. */
static double spare(const struct walltime *w)
{
    return fmin(60, 0.05 * w->total);
}

static double reserve(const struct walltime *w)
{
    return SAVE_SPARE * w->save + spare(w);
}

/* Reads 8h, 1h30m, 90m, 30s. Returns -1 for another text. */
static double read_units(const char *text)
{
    double seconds = 0;
    for (char *end; *text; text = end + 1) {
        const double x = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;
        const double unit = x < 0 ? 0 : *end == 'd' ? 86400 : *end == 'h' ? 3600 : *end == 'm' ? 60 : *end == 's' ? 1 : 0;
        if (unit == 0)
            return -1;
        seconds += x * unit;
    }
    return seconds;
}

/* Reads [D-]HH:MM:SS, or MM:SS as Slurm writes it. Returns -1 for another text. */
static double read_clock(const char *text)
{
    unsigned days = 0, hours = 0, minutes = 0, seconds = 0;
    int n = -1;
    if (strchr(text, '-'))
        sscanf(text, "%5u-%2u:%2u:%2u%n", &days, &hours, &minutes, &seconds, &n);
    else if (strchr(text, ':') == strrchr(text, ':'))
        sscanf(text, "%2u:%2u%n", &minutes, &seconds, &n);
    else
        sscanf(text, "%5u:%2u:%2u%n", &hours, &minutes, &seconds, &n);
    if (n < 0 || text[n] || minutes > 59 || seconds > 59)
        return -1;
    return 86400. * days + 3600. * hours + 60. * minutes + seconds;
}

/* Returns the seconds until the job's end by the scheduler's word; infinite: it says nothing. */
static double ask_scheduler(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    char *end;
    errno = 0;
    const long long at = text && text[0] ? strtoll(text, &end, 10) : 0;
    return at > 0 && !*end && errno == 0 ? (double)at - (double)clock_wall_ns() * 1e-9 : INFINITY;
}

enum status walltime_begin(const char *text, struct walltime *out)
{
    double left = INFINITY;
    if (!text || strcmp(text, "auto") == 0)
        left = ask_scheduler();
    else if (strcmp(text, "none") != 0)
        left = strchr(text, ':') ? read_clock(text) : read_units(text);
    if (left < 1)
        return left < 0 && text && strcmp(text, "auto") != 0
                   ? status_fail(ERR_INVALID, "--walltime %.40s is no time: write 8h, 90m, 1h30m, or [days-]hh:mm:ss", text)
                   : status_fail(ERR_INVALID, "--walltime: less than a second is left, in which nothing can be trained");
    *out = (struct walltime){.end = clock_seconds() + left, .total = left};
    return OK;
}

void walltime_expect(struct walltime *w, int64_t bytes)
{
    w->save = (double)bytes / SAVE_BYTES_PER_SECOND;
}

/* Sends WALLTIME_SIGNAL after that many seconds; 0: never. */
static void set_timer(double seconds)
{
    struct itimerval t = {.it_value = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)(fmod(seconds, 1) * 1e6)}};
    setitimer(ITIMER_REAL, &t, NULL);
}

void walltime_before_step(struct walltime *w)
{
    if (isinf(w->end))
        return;
    w->begun = clock_seconds();
    const double left = w->end - w->begun - reserve(w);
    if (left <= STEP_SPARE * w->step) {
        set_timer(0);
        raise(WALLTIME_SIGNAL);
    } else {
        set_timer(left);
    }
}

void walltime_after_step(struct walltime *w)
{
    const double seconds = clock_seconds() - w->begun;
    w->step = fmax(seconds, 0.9 * w->step); /* a slow first step is forgotten within some ten */
}

void walltime_after_save(struct walltime *w, double seconds)
{
    w->save = seconds;
}

void walltime_over(const struct walltime *w)
{
    if (!isinf(w->end))
        set_timer(0);
}

void walltime_print(const struct walltime *w)
{
    if (isinf(w->end))
        return;
    const long long left = (long long)(w->end - clock_seconds());
    tell("walltime: %lld:%02lld:%02lld left; the run saves and ends with status %d before the last %.0f s, or when a step would "
         "not end in time\n",
         left / 3600, left / 60 % 60, left % 60, WALLTIME_EXIT, ceil(reserve(w)));
}
