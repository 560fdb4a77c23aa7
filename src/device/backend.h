/* A device, as the engine knows it: memory, streams, kernels. Each backend fills one of these structs.
 *
 * 1. Device memory is one arena. Anybody computes addresses in it, but only the backend dereferences them: the engine copies,
 * fills, reads and writes through it. host_reaches tells whether the READ, WRITE and HOST lanes may be given device memory;
 * programs are made for either case (struct program's `discrete`).
 *
 * 2. Each of the lanes COMPUTE, H2D and D2H has a stream. Kernels and copies are submitted to their lane's stream, which executes
 * them in order and may not have done them when the call returns. An event, recorded after them, tells. If `streams` is set, one
 * thread submits all lanes ahead of what is done (engine/device_lanes.h), and streams wait for each other's events.
 *
 * 3. fill, read and write return when they are done; they serve work between instructions (state, canaries, chaos).
 *
 * 4. Nothing here allocates once the arena exists and all kernels are prepared.
 *
 * 5. A failure's sentence is status_message() of the library that made the backend: callers pass results through backend_status.
 *
 * The other lanes run on the host with kernels of its own. The communicator reads and writes host memory. If it does not reach
 * the device's, messages pass through bounce buffers, copied by LANE_WORLD's stream, or a library of the device carries them
 * (`meet`). The comm lanes then share that one stream, in the program's order. */
#ifndef LTRAIN_DEVICE_BACKEND_H
#define LTRAIN_DEVICE_BACKEND_H

#include "device/kernel.h"
#include "program/mesh.h"
#include "program/target.h"

#include <stdatomic.h>
#include <stdint.h>

/* Events of each stream, and the most instructions of a lane that are submitted ahead. With an event, a wait and up to six
 * launches each, they stay below the some 1,024 entries that a driver queues before a further call blocks. */
#define BACKEND_EVENTS 128
/* number of LANE_COMPUTE's extra event, which marks the beginning of a program */
#define BACKEND_BEGAN BACKEND_EVENTS
enum { BACKEND_IDENTITY = 128, BACKEND_CARRIER = 64 }; /* bytes */

struct backend {
    const char *name; /* name for messages */
    int host_reaches;
    int streams;          /* 1: submitting and executing are separate; await, elapsed and join exist */
    struct target target; /* target of programs for this backend */
    /* kernels of the compute lane; NULL: no program may have that op there */
    op_kernel *kernels[OP_COUNT];
    void *stream[LANES]; /* stream handle that kernels get; NULL: the lane has none */
    char *base;          /* base of the arena, once it is allocated */
    int64_t bytes;       /* bytes of the arena */
    int64_t host_bytes;  /* bytes of this process's own memory that the arena takes */

    /* Allocates the arena, once. ERR_NOMEM with sizes and what to change. */
    enum status (*allocate)(struct backend *b, int64_t bytes);
    /* Checks the guards around the arena, if any. ERR_CORRUPT. */
    enum status (*check)(const struct backend *b);
    /* Frees the arena and the struct. */
    void (*close)(struct backend *b);
    /* Prepares a thread that executes instructions; called by each before its first. */
    enum status (*enter)(struct backend *b);
    /* Lets kernels submitted from now on end early, with unfinished results, once *stop is not 0; stop NULL: no kernel ends
     * early. A backend without this function always finishes its kernels. */
    void (*may_stop)(struct backend *b, const atomic_int *stop);
    /* Returns the calling thread's last error sentence in the backend's library. NULL: the backend is part of this library. */
    const char *(*sentence)(void);
    /* Pins host memory, once, so that copies to and from it do not wait; it stays pinned until the backend closes. NULL: any host
     * memory will do. ERR_NOMEM with sizes: nothing was pinned. */
    enum status (*pin)(struct backend *b, void *host, int64_t bytes);
    /* Runs the kernel once on operands that are zero, so that everything is loaded and chosen; its results are garbage. NULL:
     * kernels need no preparation. */
    enum status (*prepare)(struct backend *b, enum op_kind op, const struct op_attrs *attrs, void *const *arg);
    /* Returns the bytes free on the device, whoever uses the rest. NULL: its memory is the host's. */
    enum status (*free_bytes)(struct backend *b, int64_t *out);

    /* Digests, once all kernels are prepared, the algorithms that libraries have chosen and the libraries' versions: results depend on
     * them as on programs and target. NULL: the backend uses no such libraries. */
    enum status (*digest)(struct backend *b, uint64_t *out);

    /* Copies between host and device, on the stream of lane H2D or D2H, or LANE_WORLD for messages of ranks. */
    enum status (*copy)(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes);
    /* Records event `event` of the lane: it is done once the lane's stream has done everything submitted before. */
    enum status (*record)(struct backend *b, enum lane lane, int event);
    /* Records an event for which only streams wait, never a thread; when it is done, no core is interrupted. */
    enum status (*record_quietly)(struct backend *b, enum lane lane, int event);
    enum status (*query)(struct backend *b, enum lane lane, int event, int *done); /* does not block */
    enum status (*wait)(struct backend *b, enum lane lane, int event);             /* blocks the caller until the event is done */
    /* Makes work submitted to `lane` from now on wait for the event of lane `of`. */
    enum status (*await)(struct backend *b, enum lane lane, enum lane of, int event);
    /* Returns the time from BACKEND_BEGAN to the event; both are done. */
    enum status (*elapsed)(struct backend *b, enum lane lane, int event, double *seconds);
    enum status (*join)(struct backend *b); /* blocks the caller until all streams are done */

    /* Messages between ranks, sent between places of the mesh; NULL: no library carries messages between such devices. The
     * functions are called in this order; communication begun by `meet` ends when the backend closes, or by `abort`. */
    enum status (*carrier)(struct backend *b, char name[BACKEND_CARRIER]); /* ERR_INVALID: the library is not here */
    enum status (*identity)(
        struct backend *b,
        char id[BACKEND_IDENTITY]); /* makes the identity of the group that ranks join; called by one rank only */
    /* Starts joining the other ranks; `health` tells when all have joined. group: the group of each comm lane. */
    enum status (*meet)(struct backend *b, const char id[BACKEND_IDENTITY], int place, int ranks,
                        const struct mesh_group group[LANES]);
    /* Returns a failure that has occurred meanwhile, without blocking; *joined: 1 if all ranks have joined. May be called from
     * any thread. */
    enum status (*health)(struct backend *b, int *joined);
    /* Submits a collective of the lane. send, receive: 1 if this half of an OP_EXCHANGE takes place. Counts (op_is_counted) are in host
     * memory, and may be overwritten once the call returns. */
    enum status (*collective)(struct backend *b, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg,
                              int send, int receive);
    /* Aborts running work, whose results are undefined, and allows no further work. May be called from any thread; streams then
     * drain. */
    void (*abort)(struct backend *b);

    /* Fills device memory in the arena; the caller makes sure that no instruction is under way. */
    enum status (*fill)(struct backend *b, void *device, int byte, int64_t bytes);
    /* Reads device memory; also while instructions run that leave these bytes alone. */
    enum status (*read)(struct backend *b, void *host, const void *device, int64_t bytes);
    enum status (*write)(struct backend *b, void *device, const void *host, int64_t bytes);

    void *state; /* the backend's own state */
    void *ranks; /* state of the carrier of messages */
};

/* Returns the status of a backend's function, with its sentence as this library's own. */
static inline enum status backend_status(const struct backend *b, enum status st)
{
    return st == OK || !b->sentence ? st : status_fail(st, "%s", b->sentence());
}

#endif
