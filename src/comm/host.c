/* Calls between programs: small blobs to and from all ranks, agreement. */
#include "comm/state.h"

#include "base/num.h"
#include "base/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum call { CALL_BARRIER, CALL_BROADCAST, CALL_GATHER, CALL_SUM, CALL_AGREE };
static const char *const call_names[] = {"barrier", "broadcast", "gather", "sum", "agreement"};

/* Header of every message: ranks that are not at the same call report it instead of mixing up data. */
struct header {
    int64_t number, call, bytes;
};

static enum status check(struct comm *c, int from, const struct header *mine, const struct header *theirs, int64_t got,
                         int64_t wanted)
{
    if (memcmp(mine, theirs, sizeof *mine) == 0 && got == wanted)
        return OK;
    const char *their_name = theirs->call >= 0 && theirs->call <= CALL_AGREE ? call_names[theirs->call] : "?";
    if (got < (int64_t)sizeof *theirs)
        status_fail(ERR_PEER,
                    "rank %d is in its call %" PRId64 " (%s of %" PRId64
                    " bytes), rank %d in another one: the ranks do not do the same",
                    c->launch.rank, mine->number, call_names[mine->call], mine->bytes, from);
    else
        status_fail(ERR_PEER,
                    "rank %d is in its call %" PRId64 " (%s of %" PRId64 " bytes), rank %d in its call %" PRId64
                    " (%s of %" PRId64 " bytes): the ranks do not do the same",
                    c->launch.rank, mine->number, call_names[mine->call], mine->bytes, from, theirs->number, their_name,
                    theirs->bytes);
    return failure_break_and_tell(c);
}

/* Sends to one rank and receives from another (either may be -1: none), both to the end. */
static enum status swap(struct comm *c, const struct header *h, int to, const void *out, int64_t out_bytes, int from, void *in,
                        int64_t in_bytes)
{
    struct patience patience;
    int64_t got = 0;
    char what[64];
    snprintf(what, sizeof what, "call %" PRId64 " between programs (%s)", h->number, call_names[h->call]);
    c->naps = 0;
    patience_begin(&patience);
    patience.between = 1;
    if (to >= 0)
        TRY(failure_of_wire(c, wire_send(c->wire, CHANNEL_HOST, 0, to, out, (int)out_bytes)));
    if (from >= 0)
        TRY(failure_of_wire(c, wire_recv(c->wire, CHANNEL_HOST, 1, from, in, (int)in_bytes)));
    while (wire_in_use(c->wire, CHANNEL_HOST, 0) || wire_in_use(c->wire, CHANNEL_HOST, 1)) {
        const struct wire_event *event;
        int n;
        TRY(failure_of_wire(c, wire_test(c->wire, CHANNEL_HOST, &event, &n)));
        for (int i = 0; i < n; i++)
            got = event[i].slot == 1 ? event[i].bytes : got;
        if (n == 0) {
            TRY(patience_look(c, &patience, wire_in_use(c->wire, CHANNEL_HOST, 1) ? from : to, what));
            comm_nap(c);
        }
    }
    return from >= 0 ? check(c, from, h, in, got, in_bytes) : OK;
}

/* Returns memory for messages: the communicator's own if that is enough, so that small calls, agreement above all, never fail for
 * lack of memory. A rank without memory cannot take part, and the others must not wait for it: the communicator breaks. */
static enum status get_room(struct comm *c, enum call call, int64_t bytes, char **room)
{
    *room = bytes <= c->host_room_bytes ? c->host_room : sys_malloc((size_t)bytes);
    if (*room)
        return OK;
    status_fail(ERR_NOMEM, "rank %d on %s: out of memory for the %s of %d ranks", c->launch.rank, c->launch.host,
                call_names[call], c->launch.size);
    return failure_break_and_tell(c);
}

static void put_room(struct comm *c, char *room)
{
    if (room != c->host_room && !comm_broken(c)) /* MPI may still use the memory of a broken communicator */
        free(room);
}

enum status host_create(struct comm *c)
{
    int64_t blocks = (int64_t)sizeof(struct header) + HOST_SMALL * (int64_t)c->launch.size;
    c->host_room_bytes = max_i64(2 * blocks + (int64_t)sizeof(struct header), 2048);
    c->host_room = sys_malloc((size_t)c->host_room_bytes);
    c->host_all = sys_malloc((size_t)c->launch.size * HOST_SMALL);
    return c->host_room && c->host_all ? OK : status_fail(ERR_NOMEM, "out of memory for %d ranks", c->launch.size);
}

/* Gathers by Bruck's algorithm: after step k a rank holds the blocks of 2^k ranks, beginning with its own. */
static enum status all_gather(struct comm *c, enum call call, const void *own, int64_t bytes, char *all)
{
    int size = c->launch.size, rank = c->launch.rank;
    if (size == 1) {
        memcpy(all, own, (size_t)bytes);
        return OK;
    }
    TRY(failure_broken(c));
    struct header h = {c->host_calls++, call, bytes};
    int64_t room = round_up((int64_t)sizeof h + size * bytes, 8); /* rounded up, so that the second header is aligned */
    char *blocks, *in;
    if (room > INT32_MAX)
        return status_fail(ERR_INVALID, "%" PRId64 " bytes are too many for a %s of %d ranks", bytes, call_names[call], size);
    TRY(get_room(c, call, 2 * room + (int64_t)sizeof h, &blocks));
    in = blocks + room + (int64_t)sizeof h;
    memcpy(blocks, &h, sizeof h);
    memcpy(blocks + sizeof h, own, (size_t)bytes);
    enum status st = OK;
    for (int have = 1; have < size && st == OK; have *= 2) {
        int n = have < size - have ? have : size - have;
        int64_t length = (int64_t)sizeof h + n * bytes;
        st = swap(c, &h, (rank - have + size) % size, blocks, length, (rank + have) % size, in, length);
        if (st == OK)
            memcpy(blocks + sizeof h + have * bytes, in + sizeof h, (size_t)(n * bytes));
    }
    for (int b = 0; b < size && st == OK; b++)
        memcpy(all + (rank + b) % size * bytes, blocks + sizeof h + b * bytes, (size_t)bytes);
    put_room(c, blocks);
    return st;
}

enum status comm_gather(struct comm *c, const void *own, int64_t bytes, void *all)
{
    return all_gather(c, CALL_GATHER, own, bytes, all);
}

enum status comm_barrier(struct comm *c)
{
    char mine = 0;
    return all_gather(c, CALL_BARRIER, &mine, 1, c->host_all);
}

/* Broadcasts one piece down a binomial tree. */
static enum status broadcast_piece(struct comm *c, int root, char *message, int64_t bytes)
{
    int size = c->launch.size, me = (c->launch.rank - root + size) % size, bit = 1;
    struct header h = {c->host_calls++, CALL_BROADCAST, bytes};
    int64_t length = (int64_t)sizeof h + bytes;
    for (; bit < size && !(me & bit); bit *= 2)
        ;
    if (me != 0)
        TRY(swap(c, &h, -1, NULL, 0, (me - bit + root) % size, message, length));
    memcpy(message, &h, sizeof h);
    for (bit /= 2; bit > 0; bit /= 2)
        if (me + bit < size)
            TRY(swap(c, &h, (me + bit + root) % size, message, length, -1, NULL, 0));
    return OK;
}

enum status comm_broadcast(struct comm *c, int root, void *data, int64_t bytes)
{
    if (c->launch.size == 1)
        return OK;
    TRY(failure_broken(c));
    int64_t piece = min_i64(bytes, CHUNK_BYTES);
    char *message;
    TRY(get_room(c, CALL_BROADCAST, (int64_t)sizeof(struct header) + piece, &message));
    enum status st = OK;
    for (int64_t at = 0; at < bytes && st == OK; at += piece) {
        int64_t n = min_i64(piece, bytes - at);
        memcpy(message + sizeof(struct header), (char *)data + at, (size_t)n);
        st = broadcast_piece(c, root, message, n);
        if (st == OK)
            memcpy((char *)data + at, message + sizeof(struct header), (size_t)n);
    }
    put_room(c, message);
    return st;
}

enum status comm_sum(struct comm *c, double *x, int n)
{
    int size = c->launch.size, most = HOST_SMALL / (int)sizeof *x;
    const double *all = (const double *)(void *)c->host_all;
    for (int at = 0; at < n && size > 1; at += most) {
        int part = n - at < most ? n - at : most;
        TRY(all_gather(c, CALL_SUM, x + at, part * (int64_t)sizeof *x, c->host_all));
        for (int i = 0; i < part; i++) {
            x[at + i] = all[i];
            for (int r = 1; r < size; r++)
                x[at + i] += all[r * part + i];
        }
    }
    return OK;
}

struct vote {
    int64_t status;
    uint64_t sentence; /* hash of the sentence */
};

int comm_agreed(const struct comm *c)
{
    return c->agreed;
}

/* Agrees in two rounds: the first failure's sentence is sent only after votes have shown that there is one. */
enum status comm_agree(struct comm *c, enum status own)
{
    int size = c->launch.size, first = 0, same = 1;
    c->agreed = 0;
    if (size == 1)
        return own;
    char *text = c->host_room + sizeof(struct header), said[1000] = "";
    if (own != OK)
        snprintf(said, sizeof said, "%s", status_message());
    struct vote mine = {own, XXH3_64bits(said, strlen(said))};
    const struct vote *all = (const struct vote *)(void *)c->host_all;
    TRY(all_gather(c, CALL_AGREE, &mine, sizeof mine, c->host_all));
    while (first < size && all[first].status == OK)
        first++;
    if (first == size)
        return OK;
    enum status code = (enum status)all[first].status;
    for (int r = 0; r < size; r++)
        same = same && all[r].sentence == all[first].sentence;
    memcpy(text, said, sizeof said);
    TRY(broadcast_piece(c, first, c->host_room, sizeof said));
    memcpy(said, text, sizeof said);
    said[sizeof said - 1] = 0;
    c->agreed = 1;
    if (same)
        return status_fail(code, "%s", said);
    if (c->hosts > 1)
        return status_fail(code, "rank %d on %s: %s", first, c->peer[first].host, said);
    return status_fail(code, "rank %d: %s", first, said);
}
