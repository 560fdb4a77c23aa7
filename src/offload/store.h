/* The extent store: the nvme tier. Each rank has one preallocated file on each nvme path; the logical address space [0, bytes) is
 * striped over the paths in blocks. Every written extent has an xxh3 checksum, verified when it is read back.
 *
 * Threading: one thread submits reads and another submits writes (each direction has its own ring). store_read and store_write
 * may be called from any thread while that direction's lane is idle (handed over by the caller with a lock or a join).
 *
 * Failure: after a failed transfer or checksum nothing of that direction is in flight any more, and every later call of that
 * direction returns the same failure. A refused call (ERR_INVALID, a read of what was never written) leaves the direction usable. */
#ifndef LTRAIN_OFFLOAD_STORE_H
#define LTRAIN_OFFLOAD_STORE_H

#include "base/status.h"

#include <stdint.h>

struct store;

#define STORE_ALIGN 4096 /* extents start at multiples of it */
#define STORE_MAX_PATHS 16

enum store_way { STORE_AUTO, STORE_URING, STORE_THREADS };

struct store_config {
    const char *paths[STORE_MAX_PATHS]; /* existing, writable directories */
    int n_paths;
    int64_t bytes; /* logical size */
    int rank;
    enum store_way way; /* STORE_AUTO: io_uring if the kernel allows it, else threads */
    int64_t block;      /* bytes of an I/O; 0: DRIVE_BLOCK */
    int depth;          /* blocks in flight per direction; 0: DRIVE_DEPTH */
    void *pinned;       /* host arena to register as fixed buffers, or NULL */
    int64_t pinned_bytes;
};

/* Opens the store: removes files of dead runs in the paths (known by name, magic and a lock that nobody holds), checks free
 * space, preallocates, opens with O_DIRECT. If a file system refuses O_DIRECT, the store works without it, and store_describe
 * says so.
 *
 * Errors are one sentence naming the path (too little space: ERR_NOFIT). The files ltrain-RANK-PID-HASH.store stay linked and
 * locked, so that those of a killed run can be recognised. */
enum status store_open(const struct store_config *config, struct store **out);
void store_close(struct store *s); /* removes the files; NULL is fine */
/* Returns the bytes of dead runs' files in a directory, which store_open would free first. */
int64_t store_dead_bytes(const char *path);

/* Describes the store in one line: "nvme /scratch: 3.4 GiB preallocated, io_uring, O_DIRECT, fixed buffers" or why not. Owned by
 * the store. */
const char *store_describe(const struct store *s);

enum store_direction { STORE_READ, STORE_WRITE };

/* Starts moving `bytes` between memory and the logical offset (a multiple of STORE_ALIGN). memory needs no alignment: unaligned
 * parts go through bounce blocks, and exactly `bytes` are written to it. The request is queued; the call blocks only to keep the
 * depth.
 *
 * WRITE records the extent (offset, bytes, checksum) when it completes, and forgets those it overlaps when it is submitted. READ
 * must name exactly an extent that was written whole, else ERR_CORRUPT. Overlapping writes happen in the order of their
 * submission. *ticket: increases by one per call and direction, from 1. */
enum status store_submit(struct store *s, enum store_direction d, int64_t offset, void *memory, int64_t bytes, uint64_t *ticket);
/* Waits until the request with this ticket and all earlier ones of that direction are complete and, for reads, verified. */
enum status store_wait(struct store *s, enum store_direction d, uint64_t ticket);
/* Returns the highest complete ticket in *done, without blocking (may reap completions). */
enum status store_poll(struct store *s, enum store_direction d, uint64_t *done);

/* Limits writes to `blocks` blocks in flight while reads are in flight; 0: no limit. From any thread. */
void store_limit_writes(struct store *s, int blocks);

/* Reads or writes, blocking, from the thread that owns the direction. */
enum status store_read(struct store *s, int64_t offset, void *memory, int64_t bytes);
enum status store_write(struct store *s, int64_t offset, const void *memory, int64_t bytes);

struct store_counters {
    int64_t read_bytes, written_bytes;
    int64_t read_ns, write_ns; /* time with at least one request in flight */
};
void store_get_counters(const struct store *s, struct store_counters *out);

#endif
