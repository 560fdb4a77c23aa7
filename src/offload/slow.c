/* A drive slower than this machine's, for tests: a block is done when it has moved and a drive of the given rate could have moved
 * it. */
#include "offload/io.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>

struct slow {
    struct io io;
    struct io *inner;
    double bytes_per_second;
    int64_t free_ns; /* time at which the drive has finished all blocks so far */
};

static int start(struct io *io, struct io_op *op)
{
    struct slow *s = (struct slow *)io;
    s->free_ns = max_i64(s->free_ns, clock_ns()) + (int64_t)((double)op->bytes / s->bytes_per_second * 1e9);
    op->due_ns = s->free_ns;
    return s->inner->way->start(s->inner, op);
}

static int wait_for(struct io *io, struct io_op *op)
{
    struct slow *s = (struct slow *)io;
    clock_sleep_ns(op->due_ns - clock_ns());
    return s->inner->way->wait(s->inner, op);
}

static int peek(struct io *io, struct io_op *op)
{
    struct slow *s = (struct slow *)io;
    return clock_ns() >= op->due_ns && s->inner->way->peek(s->inner, op);
}

static void close_slow(struct io *io)
{
    struct slow *s = (struct slow *)io;
    s->inner->way->close(s->inner);
    free(s);
}

double io_slow_rate(void)
{
    const char *rate = getenv("LTRAIN_SLOW_DRIVE");
    return rate ? strtod(rate, NULL) : 0;
}

int io_slow(struct io **io, double bytes_per_second)
{
    static const struct io_way way = {"a slow drive", start, wait_for, peek, close_slow};
    struct slow *s = sys_calloc(1, sizeof *s);
    if (!s)
        return ENOMEM;
    *s = (struct slow){.io = **io, .inner = *io, .bytes_per_second = bytes_per_second};
    s->io.way = &way;
    *io = &s->io;
    return 0;
}
