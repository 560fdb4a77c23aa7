/* The lines of the dashboard. Private to src/cli. */
#ifndef LTRAIN_CLI_VIEW_H
#define LTRAIN_CLI_VIEW_H

#include "cli/curve.h"
#include "cli/screen.h"

#include <jansson.h>

/* A line that the run has printed. */
struct view_line {
    char *text;
    int to; /* descriptor that it was meant for */
};

struct view {
    json_t *run, *step; /* newest objects of train/live.h; NULL: none yet */
    double eval;        /* loss of the newest evaluation; NaN: none */
    double since;       /* seconds since the newest step's line, or the run's */
    struct loss_curve loss;
    const struct view_line *lines; /* the newest lines, the last one last */
    int n_lines;
};

/* Draws a frame. */
void view_draw(const struct view *v, struct screen *s);

#endif
