/* Two ways of moving blocks, io_uring and threads, behind one table. A `struct io` serves one direction and one calling thread. */
#ifndef LTRAIN_OFFLOAD_IO_H
#define LTRAIN_OFFLOAD_IO_H

#include "offload/store.h"

#include <stddef.h>
#include <sys/types.h>

/* One block on its way. The caller fills in the fields before `result`, and leaves them alone between start and wait. */
struct io_op {
    enum store_direction direction;
    int file; /* index into io_config.fds */
    char *memory;
    size_t bytes;
    off_t at;

    ssize_t result; /* bytes moved or a negative errno, once done */
    int done;
    int64_t due_ns; /* time at which the op counts as done (slow.c only) */
};

struct io;

struct io_config {
    const int *fds; /* valid as long as the io */
    int n_fds;
    int depth; /* most ops in flight */
    void *pinned;
    int64_t pinned_bytes;
};

struct io_way {
    const char *name;
    /* Start and wait return 0 or an errno. start: the op is on its way. wait: the started op is done; others may be, too. */
    int (*start)(struct io *io, struct io_op *op);
    int (*wait)(struct io *io, struct io_op *op);
    /* Returns 1 if the op is done; does not block. */
    int (*peek)(struct io *io, struct io_op *op);
    void (*close)(struct io *io);
};

/* Common first member of the state of either way. */
struct io {
    const struct io_way *way;
    int fixed;         /* 1: the pinned memory is registered with the kernel */
    int unfixed_error; /* errno of the failed registration; 0 if there was nothing to register */
};

/* Opens a way of I/O. Returns 0 or an errno; ENOSYS: built without liburing. */
int io_open_uring(const struct io_config *config, struct io **out);
int io_open_threads(const struct io_config *config, struct io **out);

/* Returns the rate of tests' slow drives: LTRAIN_SLOW_DRIVE, in bytes per second for each direction of each store; 0: not set. */
double io_slow_rate(void);
/* Replaces *io by a wrapper that moves blocks at that rate and owns the former one. Returns 0 or an errno. */
int io_slow(struct io **io, double bytes_per_second);

#endif
