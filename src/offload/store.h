/* The extent store: the nvme tier. Per rank one preallocated file on each nvme path; the logical address space [0, bytes) is
 * striped over the paths in blocks of `stripe` bytes. Every extent that is written has an xxh3 checksum, verified when it is read
 * back.
 *
 * Threading: one thread submits reads and another submits writes (each lane its own ring); store_read and store_write from any
 * thread while the lane of that direction is idle (handed over by the caller with a lock or a join).
 *
 * Failure: after a failed transfer or checksum nothing of that direction is in flight any more, and every later call of that
 * direction returns the same failure. A call that was refused (ERR_INVALID, a read of what was never written) leaves the
 * direction usable. */
#ifndef LTRAIN_OFFLOAD_STORE_H
#define LTRAIN_OFFLOAD_STORE_H

#include "base/status.h"

#include <stdint.h>

struct store;

#define STORE_ALIGN 4096 /* extents start at multiples of it */
#define STORE_MAX_PATHS 16

enum store_way { STORE_AUTO, STORE_URING, STORE_THREADS };

struct store_config {
    const char *paths[STORE_MAX_PATHS]; /* directories, must exist and be writable */
    int n_paths;
    int64_t bytes; /* logical size */
    int rank;
    enum store_way way; /* STORE_AUTO: io_uring if the kernel allows it, else threads */
    int64_t block;      /* I/O size, 0: DRIVE_BLOCK */
    int depth;          /* blocks in flight per direction, 0: DRIVE_DEPTH */
    void *pinned;       /* host arena to register as fixed buffers, or NULL */
    int64_t pinned_bytes;
};

/* Removes files of dead runs in the paths (recognised by name, magic and a lock that nobody holds), checks free space,
 * preallocates, opens with O_DIRECT (without it where the file system refuses, which is said in store_describe). Errors: one
 * sentence naming the path (too little space: ERR_NOFIT). The files ltrain-RANK-PID-HASH.store stay linked and locked, so that a
 * killed run's can be recognised. */
enum status store_open(const struct store_config *config, struct store **out);
void store_close(struct store *s); /* removes the files; NULL is fine */
/* Bytes in a directory that store_open would free first: files of dead runs. */
int64_t store_dead_bytes(const char *path);

/* One line for people: "nvme /scratch: 3.4 GiB preallocated, io_uring, O_DIRECT, fixed buffers" or why not. Owned by the store.
 */
const char *store_describe(const struct store *s);

enum store_direction { STORE_READ, STORE_WRITE };

/* Starts moving `bytes` between memory and the logical offset (a multiple of STORE_ALIGN). memory needs no alignment (unaligned
 * parts go through bounce blocks; exactly `bytes` are written to it). The request is queued; it blocks only to keep the depth.
 * WRITE records the extent (offset, bytes, checksum) when it completes and forgets those it overlaps when it is submitted; READ
 * must name exactly an extent that was written whole, else ERR_CORRUPT. Writes that overlap happen in the order of their
 * submission. *ticket: increases by one per call and direction, starting at 1. */
enum status store_submit(struct store *s, enum store_direction d, int64_t offset, void *memory, int64_t bytes, uint64_t *ticket);
/* Waits until the request with this ticket and all earlier ones of that direction are complete and, for reads, verified. */
enum status store_wait(struct store *s, enum store_direction d, uint64_t ticket);
/* Highest ticket that is complete, without blocking (may reap completions). */
enum status store_poll(struct store *s, enum store_direction d, uint64_t *done);

/* From now on writes put at most `blocks` blocks in flight while reads have some; 0: no limit. From any thread. */
void store_limit_writes(struct store *s, int blocks);

/* Blocking read or write from the thread that owns direction d. */
enum status store_read(struct store *s, int64_t offset, void *memory, int64_t bytes);
enum status store_write(struct store *s, int64_t offset, const void *memory, int64_t bytes);

struct store_counters {
    int64_t read_bytes, written_bytes;
    int64_t read_ns, write_ns; /* time with at least one request in flight */
};
void store_get_counters(const struct store *s, struct store_counters *out);

#endif
