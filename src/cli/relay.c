/* A thread that reads a pipe and writes what it has read. */
#include "cli/relay.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 100, ROOM = 16384 };

int relay_open(struct relay *r, int to, int *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    r->from = ends[0];
    r->to = to;
    *end = ends[1];
    return 0;
}

/* Writes all of the text; returns 0 on success. */
static int put(int to, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(to, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* full for a moment: another process has made it non-blocking */
            poll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (n < 0)
            return -1;
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static void *pass_on(void *arg)
{
    struct relay *r = arg;
    struct pollfd in = {.fd = r->from, .events = POLLIN};
    char text[ROOM];
    int failed = 0;
    for (;;) {
        int over = atomic_load(&r->over), ready = poll(&in, 1, over ? 0 : TICK_MS);
        if (ready <= 0 && over)
            return NULL;
        if (ready <= 0)
            continue;
        ssize_t n = read(r->from, text, sizeof text);
        if (n == 0 || (n < 0 && errno != EINTR))
            return NULL;
        if (n > 0 && r->dashboard)
            dashboard_take(r->dashboard, r->to, text, (size_t)n);
        else if (n > 0 && !failed && put(r->to, text, (size_t)n) != 0) {
            failed = 1;
            if (r->unread)
                (void)put(STDERR_FILENO, r->unread, strlen(r->unread));
        }
    }
}

int relay_start(struct relay *r)
{
    int error = sys_thread(&r->thread, pass_on, r);
    r->started = error == 0;
    errno = error;
    return error == 0 ? 0 : -1;
}

void relay_end(struct relay *r)
{
    atomic_store(&r->over, 1);
    if (r->started)
        pthread_join(r->thread, NULL);
    close(r->from);
}
