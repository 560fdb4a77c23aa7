/* State that the store's files share: a window of blocks per direction. Private to src/offload.
 *
 * Invariants of a lane (one direction, one thread):
 *  1. Blocks head..tail-1 are the window; block number b lives in slot b % depth; blocks retire in order of submission, so at
 * most one request at a time is being hashed and tickets complete in order.
 *  2. A block in the window is in flight (op.done == 0) or done and not yet examined.
 *  3. A short or interrupted transfer is started again for its remainder when it is examined; a block retires when all of it has
 * moved.
 *  4. After a failure the window is empty: nothing touches the caller's memory any more.
 *
 *        push_block            io              examine (whole)
 *   free ----------> in flight -----> done ----------------------> free, hashed, extent recorded or verified
 *                        ^--------------' examine (remainder)
 */
#ifndef LTRAIN_OFFLOAD_STORE_LANES_H
#define LTRAIN_OFFLOAD_STORE_LANES_H

#include "base/xxh3.h"
#include "offload/extents.h"
#include "offload/files.h"
#include "offload/io.h"
#include "offload/store.h"
#include "program/drives.h"

#include <stdatomic.h>

#define BOUNCE_BYTES (128 << 10)

struct request {
    int64_t offset, bytes;
    uint64_t ticket, hash; /* hash of a READ: the one that the data must have */
};

struct slot {
    struct io_op op; /* remainder of the block */
    char *user;
    int64_t offset, bytes;     /* logical, without padding */
    char *bounce;              /* NULL: straight to the user's memory */
    int attempts, first, last; /* first, last: 1 for the first and the last block of the request */
    struct request request;
};

struct store_lane {
    enum store_direction direction;
    struct io *io;
    struct slot *window;
    char *bounce; /* BOUNCE_BYTES for each slot */
    uint64_t head, tail;
    uint64_t submitted, done; /* tickets */
    XXH3_state_t *hash;
    enum status failed;
    char failure[1024];
    /* Read by store_get_counters from other threads. */
    _Atomic int64_t moved_bytes, busy_ns, busy_since;
};

struct store {
    struct files files;
    struct extents *extents;
    struct store_lane lanes[2];
    int64_t bytes, block;
    int depth, rank;
    atomic_int write_limit;
    char describe[1024];
};

/* Waits for everything in flight, whether it succeeds or not. */
void lane_drain(struct store *s, struct store_lane *l);

#endif
