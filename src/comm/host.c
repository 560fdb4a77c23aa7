/* Between programs: small blobs to and from all ranks, agreement. */
#include "comm/state.h"

#include "base/num.h"
#include "base/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum call { CALL_BARRIER, CALL_BROADCAST, CALL_GATHER, CALL_SUM, CALL_AGREE };
static const char *const call_names[] = {"barrier", "broadcast", "gather", "sum", "agreement"};

/* Stands before every message, so that ranks which are not at the same place say so instead of mixing up their data. */
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
    return watch_break_and_tell(c);
}

/* Sends to one rank and receives from another (either may be -1: not at all), both to the end. */
static enum status swap(struct comm *c, const struct header *h, int to, const void *out, int64_t out_bytes, int from, void *in,
                        int64_t in_bytes)
{
    struct patience patience;
    int64_t got = 0;
    int idle = 0;
    char what[64];
    snprintf(what, sizeof what, "call %" PRId64 " between programs (%s)", h->number, call_names[h->call]);
    watch_begin(&patience);
    if (to >= 0)
        TRY(watch_wire(c, wire_send(c->wire, CHANNEL_HOST, 0, to, out, (int)out_bytes)));
    if (from >= 0)
        TRY(watch_wire(c, wire_recv(c->wire, CHANNEL_HOST, 1, from, in, (int)in_bytes)));
    while (wire_in_use(c->wire, CHANNEL_HOST, 0) || wire_in_use(c->wire, CHANNEL_HOST, 1)) {
        const struct wire_event *event;
        int n;
        TRY(watch_wire(c, wire_test(c->wire, CHANNEL_HOST, &event, &n)));
        for (int i = 0; i < n; i++)
            got = event[i].slot == 1 ? event[i].bytes : got;
        if (n == 0) {
            TRY(watch_look(c, &patience, wire_in_use(c->wire, CHANNEL_HOST, 1) ? from : to, what));
            comm_nap(&idle);
        }
    }
    return from >= 0 ? check(c, from, h, in, got, in_bytes) : OK;
}

/* Bruck's all-gather: after step k a rank holds the blocks of 2^k ranks, beginning with its own. */
static enum status all_gather(struct comm *c, enum call call, const void *own, int64_t bytes, char *all)
{
    int size = c->launch.size, rank = c->launch.rank;
    if (size == 1) {
        memcpy(all, own, (size_t)bytes);
        return OK;
    }
    TRY(watch_broken(c));
    struct header h = {c->host_calls++, call, bytes};
    int64_t room = (int64_t)sizeof h + size * bytes;
    char *blocks = sys_malloc((size_t)(room + (int64_t)sizeof h)), *in = sys_malloc((size_t)room);
    enum status st = blocks && in ? OK : status_fail(ERR_NOMEM, "out of memory for the %s of %d ranks", call_names[call], size);
    if (st == OK && room > INT32_MAX)
        st = status_fail(ERR_INVALID, "%" PRId64 " bytes are too many for a %s of %d ranks", bytes, call_names[call], size);
    if (st == OK) {
        memcpy(blocks, &h, sizeof h);
        memcpy(blocks + sizeof h, own, (size_t)bytes);
    }
    for (int have = 1; have < size && st == OK; have *= 2) {
        int n = have < size - have ? have : size - have;
        int64_t length = (int64_t)sizeof h + n * bytes;
        st = swap(c, &h, (rank - have + size) % size, blocks, length, (rank + have) % size, in, length);
        if (st == OK)
            memcpy(blocks + sizeof h + have * bytes, in + sizeof h, (size_t)(n * bytes));
    }
    for (int b = 0; b < size && st == OK; b++)
        memcpy(all + (rank + b) % size * bytes, blocks + sizeof h + b * bytes, (size_t)bytes);
    if (!comm_broken(c)) { /* else MPI may still use them */
        free(blocks);
        free(in);
    }
    return st;
}

enum status comm_gather(struct comm *c, const void *own, int64_t bytes, void *all)
{
    return all_gather(c, CALL_GATHER, own, bytes, all);
}

enum status comm_barrier(struct comm *c)
{
    if (c->launch.size == 1)
        return OK;
    char mine = 0, *all = sys_malloc((size_t)c->launch.size);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory for a barrier of %d ranks", c->launch.size);
    enum status st = all_gather(c, CALL_BARRIER, &mine, 1, all);
    free(all);
    return st;
}

/* One piece down a binomial tree. */
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
    TRY(watch_broken(c));
    int64_t piece = min_i64(bytes, CHUNK_BYTES);
    char *message = sys_malloc(sizeof(struct header) + (size_t)piece);
    if (!message)
        return status_fail(ERR_NOMEM, "out of memory for a broadcast of %" PRId64 " bytes", bytes);
    enum status st = OK;
    for (int64_t at = 0; at < bytes && st == OK; at += piece) {
        int64_t n = min_i64(piece, bytes - at);
        memcpy(message + sizeof(struct header), (char *)data + at, (size_t)n);
        st = broadcast_piece(c, root, message, n);
        if (st == OK)
            memcpy((char *)data + at, message + sizeof(struct header), (size_t)n);
    }
    if (!comm_broken(c))
        free(message);
    return st;
}

enum status comm_sum(struct comm *c, double *x, int n)
{
    int size = c->launch.size;
    if (size == 1)
        return OK;
    double *all = sys_malloc((size_t)size * (size_t)n * sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory for a sum over %d ranks", size);
    enum status st = all_gather(c, CALL_SUM, x, n * (int64_t)sizeof *x, (char *)all);
    for (int i = 0; i < n && st == OK; i++) {
        x[i] = all[i];
        for (int r = 1; r < size; r++)
            x[i] += all[r * n + i];
    }
    free(all);
    return st;
}

struct verdict {
    int32_t status;
    char text[1020];
};

/* Sentences go out only after a first round of statuses has shown that there is a failure. */
enum status comm_agree(struct comm *c, enum status own)
{
    int size = c->launch.size;
    if (size == 1)
        return own;
    struct verdict mine = {.status = own};
    if (own != OK)
        snprintf(mine.text, sizeof mine.text, "%.1000s", status_message());
    int32_t *codes = sys_malloc((size_t)size * sizeof *codes);
    struct verdict *all = NULL;
    enum status st = codes ? all_gather(c, CALL_AGREE, &mine.status, sizeof *codes, (char *)codes)
                           : status_fail(ERR_NOMEM, "out of memory for an agreement of %d ranks", size);
    int first = 0, same = 1;
    while (st == OK && first < size && codes[first] == OK)
        first++;
    if (st != OK || first == size) {
        free(codes);
        return st;
    }
    all = sys_malloc((size_t)size * sizeof *all);
    st = all ? all_gather(c, CALL_AGREE, &mine, sizeof mine, (char *)all)
             : status_fail(ERR_NOMEM, "out of memory for an agreement of %d ranks", size);
    for (int r = 0; r < size && st == OK; r++)
        same = same && strcmp(all[r].text, all[first].text) == 0;
    if (st == OK)
        st = same ? status_fail((enum status)codes[first], "%s", all[first].text)
                  : status_fail((enum status)codes[first], "rank %d: %.1000s", first, all[first].text);
    free(codes);
    free(all);
    return st;
}
