/* Passing on started processes' output. mpiexec ends its ranks when its output is closed; a relay goes on reading. Private to
 * src/cli. */
#ifndef LTRAIN_CLI_RELAY_H
#define LTRAIN_CLI_RELAY_H

#include "cli/dashboard.h"

#include <pthread.h>
#include <stdatomic.h>

struct relay {
    int from, to; /* descriptors: of a pipe, of this process */
    int started;
    struct dashboard *dashboard; /* receiver of the text instead of `to`, or NULL; borrowed */
    const char *unread;          /* message on stderr once nothing can be written to `to` any more, or NULL */
    atomic_int over;             /* 1: nothing more will come into the pipe */
    pthread_t thread;
};

/* Opens a pipe. *end: its other end, which the child takes and all others close. Returns -1 with errno on failure. */
int relay_open(struct relay *r, int to, int *end);
/* Starts to pass on. Without a thread it passes nothing on and returns -1 with errno. */
int relay_start(struct relay *r);
/* Passes on the rest, and closes the pipe. */
void relay_end(struct relay *r);

#endif
