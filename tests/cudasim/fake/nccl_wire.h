/* Moves bytes between the processes that stand for GPUs, through memory that all of them map, named by the communicator's id. A
 * message between two ranks moves once both have posted their ends and both descriptions agree. Callers hold the fake's lock. */
#ifndef LTRAIN_TESTS_NCCL_WIRE_H
#define LTRAIN_TESTS_NCCL_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { NCCL_RANKS = 16 };

struct nccl_wire;

/* Description of a message on which both ends must agree. */
struct nccl_message {
    int64_t bytes;
    int kind; /* kind of call; sends and receives have the same kind */
};

/* One end of a message. */
struct nccl_end {
    int sends, peer;
    char *at;
    struct nccl_message message;
    int64_t number; /* number of the message among those of the pair of ranks */
    int64_t done;   /* bytes */
};

struct nccl_wire *nccl_wire_open(const char *name, int rank, int ranks, int device);
void nccl_wire_close(struct nccl_wire *w);
/* Tells whether all ranks have opened the shared memory. */
int nccl_wire_complete(const struct nccl_wire *w);
/* Returns another rank that has the same device; -1: none. */
int nccl_wire_twin(const struct nccl_wire *w);
/* The first function says that this rank is done; the second tells whether all ranks are. */
void nccl_wire_leave(struct nccl_wire *w);
int nccl_wire_all_left(const struct nccl_wire *w);

/* Posts the n ends of a group, all of them before the rank waits for any. */
void nccl_wire_post(struct nccl_wire *w, struct nccl_end *end, int n);
/* Moves all bytes that can move. Returns 1 if everything has arrived, 0 if not yet, -1 and a text if another rank's end disagrees
 * with ours or ranks wait in a circle. */
int nccl_wire_progress(struct nccl_wire *w, struct nccl_end *end, int n, char *text, size_t size);
/* Ends the group. */
void nccl_wire_done(struct nccl_wire *w);

#endif
