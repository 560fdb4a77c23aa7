/* A device, as the engine knows it: memory, streams, kernels. Each backend fills one of these structs.
 *
 * 1. Device memory is one arena. Addresses in it are computed by everybody and dereferenced by the backend alone: the engine
 *    copies, fills, reads and writes through it. host_reaches is about lanes: whether the READ, WRITE and HOST lanes may be given
 *    device memory, for which a program is made (struct program's `discrete`).
 * 2. Each of the lanes COMPUTE, H2D and D2H has a stream. Kernels and copies are submitted to their lane's stream, which executes
 *    them in order, and may not be done when the call returns. An event, recorded after them, tells. Where `streams` is set, one
 *    thread submits all lanes ahead of what is done (engine/device_lanes.h), and streams wait for each other's events.
 * 3. fill, read and write return when they are done; they are for what runs between instructions (state, canaries, chaos).
 * 4. Nothing here allocates once the arena is there and all kernels are prepared.
 * 5. A failure's sentence is status_message() of whoever made the backend: callers pass what they get through backend_status.
 *
 * The other lanes run on the host with kernels of its own. The communicator reads and writes host memory; where it does not reach
 * the device's, messages pass through bounce buffers, copied by the stream of LANE_WORLD, or a library of the device carries them
 * (`meet`): the comm lanes have that one stream then, in the program's order. */
#ifndef LTRAIN_DEVICE_BACKEND_H
#define LTRAIN_DEVICE_BACKEND_H

#include "device/kernel.h"
#include "program/mesh.h"
#include "program/target.h"

#include <stdatomic.h>
#include <stdint.h>

/* Of each stream. A lane is submitted that many instructions ahead at most: with an event and a wait for each and up to six
 * launches that is below the about 1,024 things that a driver queues before the next one spins. */
#define BACKEND_EVENTS 128
/* One more, of LANE_COMPUTE: when a program began. */
#define BACKEND_BEGAN BACKEND_EVENTS
enum { BACKEND_IDENTITY = 128, BACKEND_CARRIER = 64 }; /* bytes */

struct backend {
    const char *name; /* for people */
    int host_reaches;
    int streams;          /* submitting and executing are two things: await, elapsed and join are there */
    struct target target; /* what programs for it are made with */
    /* Of the compute lane; NULL: no program may have that op there. */
    op_kernel *kernels[OP_COUNT];
    void *stream[LANES]; /* what kernels get; NULL where the lane has none */
    char *base;          /* of the arena, once it is allocated */
    int64_t bytes;       /* of the arena */
    int64_t host_bytes;  /* of this process's own memory that the arena takes */

    /* Once. ERR_NOMEM with sizes and what to change. */
    enum status (*allocate)(struct backend *b, int64_t bytes);
    /* Guards around the arena, where there are any: ERR_CORRUPT. */
    enum status (*check)(const struct backend *b);
    /* Frees the arena and the struct. */
    void (*close)(struct backend *b);
    /* By every thread that executes instructions, before its first. */
    enum status (*enter)(struct backend *b);
    /* Kernels that are submitted from now on may end early, as they are, once *stop is not 0; stop NULL: they are finished.
     * NULL: all are. */
    void (*may_stop)(struct backend *b, const atomic_int *stop);
    /* NULL: everything lies in this library. Else the calling thread's last sentence where the backend comes from. */
    const char *(*sentence)(void);
    /* Once: makes host memory such that copies to and from it do not wait. NULL: any host memory is. ERR_NOMEM with numbers, and
     * nothing is pinned then. Ends with the backend. */
    enum status (*pin)(struct backend *b, void *host, int64_t bytes);
    /* Runs the kernel once on operands that are zero, with everything that is to be loaded or chosen for it; what it leaves in
     * its results is nothing. NULL: kernels need nothing. */
    enum status (*prepare)(struct backend *b, enum op_kind op, const struct op_attrs *attrs, void *const *arg);
    /* Bytes that are free on the device, whoever has the others. NULL: its memory is the host's. */
    enum status (*free_bytes)(struct backend *b, int64_t *out);

    /* What decides results beside programs and the target, once all kernels are prepared: algorithms that libraries have chosen,
     * and their versions. NULL: nothing does. */
    enum status (*digest)(struct backend *b, uint64_t *out);

    /* Between host and device, on the stream of lane H2D or D2H, or LANE_WORLD for what ranks send. */
    enum status (*copy)(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes);
    /* Event `event` of the lane is what its stream has been given so far. */
    enum status (*record)(struct backend *b, enum lane lane, int event);
    /* The same where only streams wait for the event and no thread does: its end interrupts no core. */
    enum status (*record_quietly)(struct backend *b, enum lane lane, int event);
    enum status (*query)(struct backend *b, enum lane lane, int event, int *done); /* does not block */
    enum status (*wait)(struct backend *b, enum lane lane, int event);             /* blocks the caller until it is done */
    /* What `lane` is given from now on waits for the event of lane `of`. */
    enum status (*await)(struct backend *b, enum lane lane, enum lane of, int event);
    /* From BACKEND_BEGAN to the event; both are done. */
    enum status (*elapsed)(struct backend *b, enum lane lane, int event, double *seconds);
    enum status (*join)(struct backend *b); /* blocks the caller until all streams have done all */

    /* Ranks; NULL: no library carries messages between devices of this kind. In this order; what begins with `meet` ends with the
     * backend, and with abort. Messages go between places of the mesh. */
    enum status (*carrier)(struct backend *b, char name[BACKEND_CARRIER]); /* ERR_INVALID: the library is not here */
    enum status (*identity)(struct backend *b, char id[BACKEND_IDENTITY]); /* of what the ranks join: one rank makes it */
    /* group: of each comm lane. Starts to join the others, which health ends. */
    enum status (*meet)(struct backend *b, const char id[BACKEND_IDENTITY], int place, int ranks,
                        const struct mesh_group group[LANES]);
    /* Does not block. What has failed meanwhile; *joined: all have. From any thread. */
    enum status (*health)(struct backend *b, int *joined);
    /* Submits a collective of the lane. send, receive: the halves of OP_EXCHANGE. */
    enum status (*collective)(struct backend *b, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg,
                              int send, int receive);
    /* Ends what is under way, whose results are anything, and lets nothing follow. From any thread; streams drain then. */
    void (*abort)(struct backend *b);

    /* `device` in the arena; the caller sees to it that no instruction is under way. */
    enum status (*fill)(struct backend *b, void *device, int byte, int64_t bytes);
    enum status (*read)(struct backend *b, void *host, const void *device, int64_t bytes);
    enum status (*write)(struct backend *b, void *device, const void *host, int64_t bytes);

    void *state; /* the backend's own */
    void *ranks; /* and of who carries messages */
};

/* What a backend's function returned, with its sentence as this library's own. */
static inline enum status backend_status(const struct backend *b, enum status st)
{
    return st == OK || !b->sentence ? st : status_fail(st, "%s", b->sentence());
}

#endif
