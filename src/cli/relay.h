/* What mpiexec prints, passed on. It ends its ranks when what it prints to is closed; this goes on reading. Private to src/cli.
 */
#ifndef LTRAIN_CLI_RELAY_H
#define LTRAIN_CLI_RELAY_H

#include <pthread.h>
#include <stdatomic.h>

struct relay {
    int from, to; /* descriptors: of a pipe, of this process */
    int started;
    const char *unread; /* said on stderr once nothing can be written to `to` any more, or NULL */
    atomic_int over;    /* what is in the pipe is all that comes */
    pthread_t thread;
};

/* A pipe, whose other end the child takes and everybody else closes: *end. -1 with errno. */
int relay_open(struct relay *r, int to, int *end);
/* Begins to pass on; without a thread nothing is passed on, and -1 with errno returned. */
int relay_start(struct relay *r);
/* Passes on what is left, and closes the pipe. */
void relay_end(struct relay *r);

#endif
