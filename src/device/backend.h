/* A device, as the engine knows it: memory, streams, kernels. Each backend fills one of these structs.
 *
 * 1. Device memory is one arena. Addresses in it are computed by everybody and dereferenced by the backend alone: the engine
 *    copies, fills, reads and writes through it. host_reaches is about lanes: whether the READ, WRITE and HOST lanes may be given
 *    device memory, for which a program is made (struct program's `discrete`).
 * 2. Each of the lanes COMPUTE, H2D and D2H has a stream. Kernels and copies are submitted to their lane's stream, which executes
 *    them in order, and may not be done when the call returns. An event, recorded after them, tells.
 * 3. fill, read and write return when they are done; they are for what runs between instructions (state, canaries, chaos).
 * 4. Nothing here allocates once the arena is there.
 *
 * The other lanes run on the host with kernels of its own; the communicator reads and writes device memory itself. */
#ifndef LTRAIN_DEVICE_BACKEND_H
#define LTRAIN_DEVICE_BACKEND_H

#include "device/kernel.h"
#include "program/program.h"
#include "program/target.h"

#include <stdint.h>

#define BACKEND_EVENTS 256 /* of each stream; the engine so far waits after each instruction and needs one */

struct backend {
    const char *name; /* for people */
    int host_reaches;
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
    void (*enter)(struct backend *b);

    /* Between host and device, on the stream of lane H2D or D2H. */
    enum status (*copy)(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes);
    /* Event `event` of the lane is what its stream has been given so far. */
    enum status (*record)(struct backend *b, enum lane lane, int event);
    enum status (*query)(struct backend *b, enum lane lane, int event, int *done); /* does not block */
    enum status (*wait)(struct backend *b, enum lane lane, int event);             /* blocks the caller until it is done */

    /* `device` in the arena; the caller sees to it that no instruction is under way. */
    enum status (*fill)(struct backend *b, void *device, int byte, int64_t bytes);
    enum status (*read)(struct backend *b, void *host, const void *device, int64_t bytes);
    enum status (*write)(struct backend *b, void *device, const void *host, int64_t bytes);

    void *state; /* the backend's own */
};

#endif
