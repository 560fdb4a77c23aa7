/* Moving blocks by io_uring: one ring per direction, files registered, the pinned arena as fixed buffers if the memlock limit
 * allows it.
 *
 * SINGLE_ISSUER and DEFER_TASKRUN are left out: they tie a ring to one task, while the store's contract lets another thread read
 * and write between steps. */
#include "build_config.h"

#include "offload/io.h"

#include <errno.h>

#ifdef HAVE_URING

#include "base/sys.h"
#include "base/watch.h"
#include "offload/files.h"

#include <liburing.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_FIXED (1LL << 30) /* the kernel's limit for one buffer */
#define MAX_BUFFERS 1024      /* limit of older kernels: UIO_MAXIOV */
#define SUBMIT_ATTEMPTS 8

struct uring {
    struct io io;
    struct io_uring ring;
    const int *fds;
    int files_registered;
    char *pinned;
    int64_t pinned_bytes;
};

static void use_fixed_buffers(struct uring *u, const struct io_config *config)
{
    int64_t n = (config->pinned_bytes + MAX_FIXED - 1) / MAX_FIXED;
    if (!config->pinned || n == 0)
        return;
    int error = n > MAX_BUFFERS ? ENOMEM : sys_fault(SYS_URING_BUFFERS);
    struct iovec *v = error ? NULL : sys_malloc((size_t)n * sizeof *v);
    if (v) {
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = config->pinned_bytes - i * MAX_FIXED;
            v[i] = (struct iovec){(char *)config->pinned + i * MAX_FIXED, (size_t)(rest < MAX_FIXED ? rest : MAX_FIXED)};
        }
        error = -io_uring_register_buffers(&u->ring, v, (unsigned)n);
        free(v);
    } else if (!error) {
        error = ENOMEM;
    }
    u->io.fixed = error == 0;
    u->io.unfixed_error = error < 0 ? EIO : error;
    u->pinned = config->pinned;
    u->pinned_bytes = config->pinned_bytes;
}

/* Returns the fixed buffer that holds all of the op's memory, or -1. */
static int fixed_buffer(const struct uring *u, const struct io_op *op)
{
    int64_t at = op->memory - u->pinned;
    if (!u->io.fixed || op->memory < u->pinned || at + (int64_t)op->bytes > u->pinned_bytes)
        return -1;
    return at / MAX_FIXED == (at + (int64_t)op->bytes - 1) / MAX_FIXED ? (int)(at / MAX_FIXED) : -1;
}

static void take_completion(struct uring *u, struct io_uring_cqe *cqe)
{
    struct io_op *op = io_uring_cqe_get_data(cqe);
    int fault = sys_fault(SYS_URING_CQE); /* a short transfer has an odd length: O_DIRECT cannot continue from there */
    if (fault == SYS_HANG) {              /* acts as if the completion had never come */
        io_uring_cqe_seen(&u->ring, cqe);
        return;
    }
    op->result = fault == 0 ? cqe->res : fault != SYS_SHORT ? -fault : cqe->res > 1 ? cqe->res / 2 | 1 : cqe->res;
    op->done = 1;
    io_uring_cqe_seen(&u->ring, cqe);
}

static int start(struct io *io, struct io_op *op)
{
    struct uring *u = (struct uring *)io;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe)
        return EBUSY; /* cannot happen: there are as many entries as ops, and each is submitted at once */
    int fd = u->files_registered ? op->file : u->fds[op->file], buffer = fixed_buffer(u, op);
    unsigned bytes = (unsigned)op->bytes;
    uint64_t at = (uint64_t)op->at;
    op->done = 0;
    if (op->direction == STORE_READ && buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, op->memory, bytes, at, buffer);
    else if (op->direction == STORE_READ)
        io_uring_prep_read(sqe, fd, op->memory, bytes, at);
    else if (buffer >= 0)
        io_uring_prep_write_fixed(sqe, fd, op->memory, bytes, at, buffer);
    else
        io_uring_prep_write(sqe, fd, op->memory, bytes, at);
    if (u->files_registered)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, op);

    int error = 0;
    for (int attempt = 0; attempt < SUBMIT_ATTEMPTS; attempt++) {
        error = sys_fault(SYS_URING_SUBMIT);
        if (error == 0) {
            int n = io_uring_submit(&u->ring);
            if (n == 1)
                return 0;
            error = n < 0 ? -n : EAGAIN;
        }
        if (error != EINTR && error != EAGAIN && error != EBUSY && error >= 0)
            return error;
        /* The kernel lacks resources that completions give back: waits 1, 2, 4, ... 128 ms, then gives up. */
        struct timespec pause = {.tv_nsec = 1000000L << attempt};
        if (error != EINTR)
            nanosleep(&pause, NULL);
    }
    return error < 0 ? EIO : error;
}

static int wait_for(struct io *io, struct io_op *op)
{
    struct uring *u = (struct uring *)io;
    int r = 0, w = op->done ? -1
                            : watch_enter(&(struct watch_call){.verb = op->direction == STORE_READ ? "read" : "write",
                                                               .fd = u->fds[op->file],
                                                               .bytes = (int64_t)op->bytes,
                                                               .at = (int64_t)op->at});
    while (!op->done && (r == 0 || r == -EINTR || r == -EAGAIN)) {
        struct io_uring_cqe *cqe;
        r = io_uring_wait_cqe(&u->ring, &cqe);
        if (r == 0)
            take_completion(u, cqe);
    }
    watch_leave(w);
    return op->done ? 0 : -r;
}

static int peek(struct io *io, struct io_op *op)
{
    struct uring *u = (struct uring *)io;
    struct io_uring_cqe *cqe;
    while (!op->done && io_uring_peek_cqe(&u->ring, &cqe) == 0)
        take_completion(u, cqe);
    return op->done;
}

static void close_ring(struct io *io)
{
    struct uring *u = (struct uring *)io;
    /* The kernel takes a ring apart only after this call has returned; its disk space and locked memory are wanted back now. */
    if (u->files_registered)
        io_uring_unregister_files(&u->ring);
    if (u->io.fixed)
        io_uring_unregister_buffers(&u->ring);
    io_uring_queue_exit(&u->ring);
    free(u);
}

/* Tries one operation on the first bytes of a file. Returns 0 or an errno. */
static int try_one(struct io_uring *ring, enum store_direction direction, int fd, void *memory)
{
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    int error = sys_fault(SYS_URING_ENTER), n;
    if (error || !sqe)
        return error ? error : EBUSY;
    if (direction == STORE_READ)
        io_uring_prep_read(sqe, fd, memory, FILES_HEADER, 0);
    else
        io_uring_prep_write(sqe, fd, memory, FILES_HEADER, 0);
    do
        n = io_uring_submit(ring);
    while (n == -EINTR);
    if (n < 0)
        return -n;
    do
        n = io_uring_wait_cqe(ring, &cqe);
    while (n == -EINTR);
    if (n != 0)
        return -n;
    error = sys_fault(SYS_URING_FIRST);
    if (error == 0)
        error = cqe->res < 0 ? -cqe->res : cqe->res < FILES_HEADER ? EIO : 0;
    io_uring_cqe_seen(ring, cqe);
    return error == EINVAL ? EOPNOTSUPP : error;
}

/* Tries a ring by reading and writing each file's header. A sandbox may allow rings but deny io_uring_enter. Kernels before 5.6
 * lack these reads and writes (EINVAL); a file system may lack them for rings (EOPNOTSUPP). Returns 0 or an errno. */
static int try_ring(struct io_uring *ring, const struct io_config *config)
{
    char *header = sys_mmap(FILES_HEADER, 0);
    int error = header ? 0 : ENOMEM;
    for (int i = 0; i < config->n_fds && error == 0; i++) {
        error = try_one(ring, STORE_READ, config->fds[i], header);
        if (error == 0)
            error = try_one(ring, STORE_WRITE, config->fds[i], header);
    }
    if (header)
        munmap(header, FILES_HEADER);
    return error;
}

int io_open_uring(const struct io_config *config, struct io **out)
{
    static const struct io_way way = {"io_uring", start, wait_for, peek, close_ring};
    struct uring *u = sys_calloc(1, sizeof *u);
    if (!u)
        return ENOMEM;
    u->io.way = &way;
    u->fds = config->fds;
    struct io_uring_params params = {0};
    int error = sys_fault(SYS_URING_SETUP);
    if (error == 0)
        error = -io_uring_queue_init_params((unsigned)config->depth, &u->ring, &params);
    if (error == 0 && (error = try_ring(&u->ring, config)) != 0)
        io_uring_queue_exit(&u->ring);
    if (error) {
        free(u);
        return error < 0 ? EIO : error;
    }
    u->files_registered = io_uring_register_files(&u->ring, config->fds, (unsigned)config->n_fds) == 0;
    use_fixed_buffers(u, config);
    *out = &u->io;
    return 0;
}

#else

int io_open_uring(const struct io_config *config, struct io **out)
{
    (void)config, (void)out;
    return ENOSYS;
}

#endif
