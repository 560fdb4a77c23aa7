/* The extent store: requests are cut into blocks, and each direction has a window of blocks in flight (store_lanes.h). */
#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"
#include "offload/store_lanes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_ATTEMPTS 8 /* attempts without progress */

static const char *verb(const struct store_lane *l)
{
    return l->direction == STORE_READ ? "read" : "write";
}

void lane_drain(struct store *s, struct store_lane *l)
{
    for (; l->head < l->tail; l->head++) {
        struct io_op *op = &l->window[l->head % (uint64_t)s->depth].op;
        /* waits for the op, or returns at once if it is done; `done` itself is read only by the implementation of I/O */
        l->io->way->wait(l->io, op);
    }
}

/* Makes the failure recorded with status_fail the lane's for good. */
static enum status lane_fail(struct store *s, struct store_lane *l, enum status code)
{
    l->failed = code;
    snprintf(l->failure, sizeof l->failure, "%s", status_message());
    lane_drain(s, l);
    atomic_store(&l->busy_since, 0);
    return status_fail(code, "%s", l->failure);
}

static enum status lane_check(const struct store_lane *l)
{
    return l->failed == OK ? OK : status_fail(l->failed, "%s", l->failure);
}

static enum status io_failed(const struct store *s, const struct store_lane *l, const struct slot *b, int error)
{
    const char *remedy = error == ENOSPC || error == EDQUOT ? "free space there" : "check the drive";
    return status_fail(ERR_IO, "cannot %s %zu bytes at offset %lld in %s (rank %d): %s: %s", verb(l), b->op.bytes,
                       (long long)b->op.at, s->files.names[b->op.file], s->rank, strerror(error), remedy);
}

static enum status start(const struct store *s, const struct store_lane *l, struct slot *b)
{
    int error = l->io->way->start(l->io, &b->op);
    if (error == 0)
        return OK;
    b->op.done = 1; /* not in flight, so nobody may wait for it */
    return io_failed(s, l, b, error);
}

/* Examines a block that is done. *whole: all of it has moved; else it is in flight again. */
static enum status examine(const struct store *s, const struct store_lane *l, struct slot *b, int *whole)
{
    ssize_t r = b->op.result;
    *whole = r == (ssize_t)b->op.bytes;
    if (*whole)
        return OK;
    int again = r == -EINTR || r == -EAGAIN || r == -ECANCELED;
    if (r < 0 && !(again && b->attempts < MAX_ATTEMPTS))
        return io_failed(s, l, b, (int)-r);
    if (r == 0 && l->direction == STORE_READ)
        return status_fail(ERR_CORRUPT, "%s (rank %d) ends before offset %lld: something cut it: check the drive",
                           s->files.names[b->op.file], s->rank, (long long)b->op.at);
    /* O_DIRECT continues only from an aligned position. */
    size_t progress = r < 0 ? 0 : s->files.memory_align > 1 ? (size_t)r & ~(size_t)(STORE_ALIGN - 1) : (size_t)r;
    if (progress == 0 && b->attempts++ >= MAX_ATTEMPTS)
        return io_failed(s, l, b, EIO);
    if (r == -EAGAIN) {
        struct timespec pause = {.tv_nsec = 1000000L << b->attempts};
        nanosleep(&pause, NULL);
    }
    b->op.memory += progress;
    b->op.bytes -= progress;
    b->op.at += (off_t)progress;
    return start(s, l, b);
}

static void hash_block(struct store_lane *l, const char *data, int64_t bytes, int first)
{
    if (first)
        XXH3_64bits_reset(l->hash);
    XXH3_64bits_update(l->hash, data, (size_t)bytes);
}

/* Ends a block that has moved: hashes it if it was read, and ends its request if it is the last. */
static enum status finish(struct store *s, struct store_lane *l, struct slot *b)
{
    struct request *q = &b->request;
    if (l->direction == STORE_READ) {
        if (b->bounce)
            memcpy(b->user, b->bounce, (size_t)b->bytes);
        hash_block(l, b->user, b->bytes, b->first);
        if (b->last && XXH3_64bits_digest(l->hash) != q->hash)
            return status_fail(
                ERR_CORRUPT,
                "extent of %lld bytes at offset %lld in %s (rank %d) does not hold what was written: check the drive",
                (long long)q->bytes, (long long)q->offset, s->files.names[(q->offset / s->block) % s->files.n], s->rank);
    } else if (b->last) {
        extents_finish(s->extents, q->offset, q->bytes, q->hash);
    }
    l->head++;
    atomic_fetch_add(&l->moved_bytes, b->bytes);
    if (l->head == l->tail) {
        atomic_fetch_add(&l->busy_ns, clock_ns() - atomic_load(&l->busy_since));
        atomic_store(&l->busy_since, 0);
    }
    if (b->last)
        l->done = q->ticket;
    return OK;
}

/* Retires the oldest block. */
static enum status retire(struct store *s, struct store_lane *l)
{
    struct slot *b = &l->window[l->head % (uint64_t)s->depth];
    for (int whole = 0; !whole;) {
        int error = l->io->way->wait(l->io, &b->op);
        enum status st = error ? io_failed(s, l, b, error) : examine(s, l, b, &whole);
        if (st != OK)
            return lane_fail(s, l, st);
    }
    enum status st = finish(s, l, b);
    return st == OK ? OK : lane_fail(s, l, st);
}

/* Retires blocks that a write would overlap: two writes of one place in flight would land in any order. */
static enum status retire_overlapping(struct store *s, struct store_lane *l, int64_t offset, int64_t bytes)
{
    int64_t end = round_up(offset + bytes, STORE_ALIGN);
    uint64_t until = l->head;
    for (uint64_t i = l->head; i < l->tail; i++) {
        const struct slot *b = &l->window[i % (uint64_t)s->depth];
        if (b->offset < end && offset < round_up(b->offset + b->bytes, STORE_ALIGN))
            until = i + 1;
    }
    while (l->head < until)
        TRY(retire(s, l));
    return OK;
}

/* Returns the bytes of a request's next block. A direct transfer between file and caller's memory is aligned at both ends; other
 * bytes go through a bounce buffer (*bounces: 1). */
static int64_t block_bytes(const struct store *s, int64_t offset, const char *user, int64_t bytes, int *bounces)
{
    int64_t n = min_i64(s->block - offset % s->block, bytes);
    *bounces = 0;
    if (s->files.memory_align == 1)
        return n;
    if ((uintptr_t)user % (uintptr_t)s->files.memory_align == 0 && n >= STORE_ALIGN)
        return n / STORE_ALIGN * STORE_ALIGN;
    *bounces = 1;
    return min_i64(n, BOUNCE_BYTES);
}

/* Returns the most blocks that may be in flight. */
static uint64_t window(struct store *s, const struct store_lane *l)
{
    int limit = l->direction == STORE_WRITE ? atomic_load(&s->write_limit) : 0;
    return (uint64_t)(limit > 0 && limit < s->depth && atomic_load(&s->lanes[STORE_READ].busy_since) ? limit : s->depth);
}

void store_limit_writes(struct store *s, int blocks)
{
    atomic_store(&s->write_limit, blocks);
}

/* Sends the request's next block, which begins at `done`, on its way. *pushed: its bytes. */
static enum status push_block(struct store *s, struct store_lane *l, const struct request *q, char *user, int64_t done,
                              int64_t *pushed)
{
    int bounces;
    int64_t offset = q->offset + done, block = offset / s->block;
    int64_t bytes = block_bytes(s, offset, user, q->bytes - done, &bounces);
    if (l->direction == STORE_WRITE) /* hashes before waiting for room in the window, so that the drive works meanwhile */
        hash_block(l, user, bytes, done == 0);
    while (l->tail - l->head >= window(s, l))
        TRY(retire(s, l));
    struct slot *b = &l->window[l->tail % (uint64_t)s->depth];
    *b = (struct slot){.user = user, .offset = offset, .bytes = bytes, .request = *q};
    b->first = done == 0;
    b->last = done + bytes == q->bytes;
    b->bounce = bounces ? l->bounce + (int64_t)(l->tail % (uint64_t)s->depth) * BOUNCE_BYTES : NULL;
    b->op = (struct io_op){.direction = l->direction, .file = (int)(block % s->files.n)};
    b->op.memory = bounces ? b->bounce : user;
    b->op.bytes = (size_t)(bounces ? round_up(bytes, STORE_ALIGN) : bytes);
    b->op.at = FILES_HEADER + block / s->files.n * s->block + offset % s->block;
    if (l->direction == STORE_WRITE) {
        if (b->last)
            b->request.hash = XXH3_64bits_digest(l->hash);
        if (bounces) {
            memcpy(b->bounce, user, (size_t)bytes);
            memset(b->bounce + bytes, 0, b->op.bytes - (size_t)bytes);
        }
    }
    if (l->head == l->tail)
        atomic_store(&l->busy_since, clock_ns());
    enum status st = start(s, l, b);
    if (st != OK)
        return lane_fail(s, l, st);
    l->tail++;
    *pushed = bytes;
    return OK;
}

enum status store_submit(struct store *s, enum store_direction d, int64_t offset, void *memory, int64_t bytes, uint64_t *ticket)
{
    struct store_lane *l = &s->lanes[d];
    struct request q = {.offset = offset, .bytes = bytes, .ticket = l->submitted + 1};
    TRY(lane_check(l));
    if (offset < 0 || offset % STORE_ALIGN != 0 || bytes <= 0 || bytes > s->bytes || offset > s->bytes - bytes)
        return status_fail(
            ERR_INVALID,
            "cannot %s an extent of %lld bytes at offset %lld: the store has %lld bytes, offsets are multiples of %d", verb(l),
            (long long)bytes, (long long)offset, (long long)s->bytes, STORE_ALIGN);
    if (d == STORE_WRITE) {
        TRY(retire_overlapping(s, l, offset, bytes));
        TRY(extents_begin(s->extents, offset, bytes));
    } else if (!extents_find(s->extents, offset, bytes, &q.hash)) {
        return status_fail(
            ERR_CORRUPT,
            "no extent of %lld bytes at offset %lld in %s (rank %d) was written whole: this is a bug of ltrain, please report it",
            (long long)bytes, (long long)offset, s->files.names[(offset / s->block) % s->files.n], s->rank);
    }
    l->submitted = q.ticket;
    for (int64_t done = 0, n = 0; done < bytes; done += n)
        TRY(push_block(s, l, &q, (char *)memory + done, done, &n));
    *ticket = q.ticket;
    return OK;
}

enum status store_wait(struct store *s, enum store_direction d, uint64_t ticket)
{
    struct store_lane *l = &s->lanes[d];
    TRY(lane_check(l));
    if (ticket > l->submitted)
        return status_fail(ERR_INVALID, "nvme %s ticket %llu was never given out", verb(l), (unsigned long long)ticket);
    while (l->done < ticket)
        TRY(retire(s, l));
    return OK;
}

enum status store_poll(struct store *s, enum store_direction d, uint64_t *done)
{
    struct store_lane *l = &s->lanes[d];
    TRY(lane_check(l));
    while (l->head < l->tail) {
        struct slot *b = &l->window[l->head % (uint64_t)s->depth];
        int whole;
        if (!l->io->way->peek(l->io, &b->op))
            break;
        enum status st = examine(s, l, b, &whole);
        if (st == OK && whole)
            st = finish(s, l, b);
        if (st != OK)
            return lane_fail(s, l, st);
    }
    *done = l->done;
    return OK;
}

enum status store_read(struct store *s, int64_t offset, void *memory, int64_t bytes)
{
    uint64_t ticket;
    TRY(store_submit(s, STORE_READ, offset, memory, bytes, &ticket));
    return store_wait(s, STORE_READ, ticket);
}

enum status store_write(struct store *s, int64_t offset, const void *memory, int64_t bytes)
{
    uint64_t ticket;
    TRY(store_submit(s, STORE_WRITE, offset, (void *)(uintptr_t)memory, bytes, &ticket)); /* a write only reads memory */
    return store_wait(s, STORE_WRITE, ticket);
}

static void counters_of(const struct store_lane *l, int64_t *bytes, int64_t *ns)
{
    int64_t since = atomic_load(&l->busy_since);
    *bytes = atomic_load(&l->moved_bytes);
    *ns = atomic_load(&l->busy_ns) + (since ? clock_ns() - since : 0);
}

void store_get_counters(const struct store *s, struct store_counters *out)
{
    counters_of(&s->lanes[STORE_READ], &out->read_bytes, &out->read_ns);
    counters_of(&s->lanes[STORE_WRITE], &out->written_bytes, &out->write_ns);
}
