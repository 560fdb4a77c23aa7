/* A full-screen view of a run that other processes do: it takes what they print. Private to src/cli. */
#ifndef LTRAIN_CLI_DASHBOARD_H
#define LTRAIN_CLI_DASHBOARD_H

#include "base/status.h"

#include <stddef.h>

struct dashboard;

/* Takes over the terminal that is standard output. ERR_NOMEM. */
enum status dashboard_open(struct dashboard **out);
/* Takes text that a run has printed to descriptor `to`. From any thread. */
void dashboard_take(struct dashboard *d, int to, const char *text, size_t bytes);
/* Draws a frame, at most four times a second. */
void dashboard_draw(struct dashboard *d);
/* Stops this process, as ^Z asks, with the terminal as it was before; returns once it goes on. */
void dashboard_pause(struct dashboard *d);
/* Gives the terminal back, and prints there what the run has printed. NULL is fine. */
void dashboard_close(struct dashboard *d);

#endif
