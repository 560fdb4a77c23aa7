/* Choosing the carrier of messages, and starting its library. */
#include "engine/carrier.h"

#include "base/clock.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t POLL_NS = 2000000;
static const int64_t GRACE_NS =
    700000000; /* nanoseconds to wait until the cause of a library's failure is known, mostly another rank's end */

struct facts {
    char device[192], library[BACKEND_CARRIER];
    char why[224]; /* reason that the rank has no library; "": it has one */
};

static void find_facts(struct backend *b, struct facts *own)
{
    memset(own, 0, sizeof *own);
    snprintf(own->device, sizeof own->device, "%s", b->name);
    if (backend_status(b, b->carrier(b, own->library)) != OK)
        snprintf(own->why, sizeof own->why, "%.220s", status_message());
}

/* Returns the GPU's PCI address, which ends the device's name. Ranks may see one GPU under different numbers
 * (CUDA_VISIBLE_DEVICES). */
static const char *card_of(const struct facts *f)
{
    const char *space = strrchr(f->device, ' ');
    return space ? space : f->device;
}

/* Writes why the library cannot carry messages, or "" if it can. */
static void find_hindrance(const struct comm *c, const struct facts *all, char *why, size_t size)
{
    const int n = comm_size(c);
    why[0] = 0;
    for (int r = 0; r < n && !why[0]; r++) {
        if (all[r].why[0])
            snprintf(why, size, "rank %d on %s: %s", r, comm_host(c, r), all[r].why);
        else if (strcmp(all[r].library, all[0].library) != 0)
            snprintf(why, size, "rank %d on %s has %s, rank 0 has %s", r, comm_host(c, r), all[r].library, all[0].library);
        for (int q = 0; q < r && !why[0]; q++)
            if (strcmp(comm_host(c, q), comm_host(c, r)) == 0 && strcmp(card_of(&all[q]), card_of(&all[r])) == 0)
                snprintf(why, size, "ranks %d and %d share %s", q, r, all[r].device);
    }
}

/* Looks at the library's progress and at what the other ranks say; *joined: the library has started. */
static enum status look(const struct exec_context *x, int *joined)
{
    struct backend *b = x->backend;
    TRY(comm_wait_look(x->comm, "the start of NCCL", 1));
    enum status st = backend_status(b, b->health(b, joined));
    if (st == OK)
        return OK;
    char said[900];
    snprintf(said, sizeof said, "%s", status_message());
    for (const int64_t until = clock_ns() + GRACE_NS; clock_ns() < until; clock_sleep_ns(POLL_NS))
        TRY(comm_wait_look(x->comm, "the start of NCCL", 1));
    return status_fail(st, "%s", said);
}

static enum status join(const struct exec_context *x, const char id[BACKEND_IDENTITY])
{
    struct backend *b = x->backend;
    struct mesh_group group[LANES] = {{0}};
    int joined = 0;
    for (int l = LANE_WORLD; l < LANES; l++)
        group[l] = comm_group_of(x->comm, (enum lane)l);
    comm_wait_begin(x->comm, LANE_WORLD, -1, 0);
    enum status st = backend_status(b, b->meet(b, id, comm_place(x->comm), comm_size(x->comm), group));
    while (st == OK && !joined) {
        st = look(x, &joined);
        if (st == OK && !joined)
            clock_sleep_ns(POLL_NS);
    }
    if (st == OK)
        return OK;
    char said[1000];
    snprintf(said, sizeof said, "%s", status_message());
    b->abort(b);
    if (!comm_broken(x->comm)) /* the other ranks wait inside the library for this rank */
        comm_fail(x->comm, st, said);
    return status_fail(st, "%s", said);
}

static enum status meet(const struct exec_context *x)
{
    struct comm *c = x->comm;
    struct backend *b = x->backend;
    char id[BACKEND_IDENTITY] = {0};
    const int maker = comm_rank_at(c, 0);
    TRY(comm_agree(c, comm_rank(c) == maker ? backend_status(b, b->identity(b, id)) : OK));
    TRY(comm_broadcast(c, maker, id, sizeof id));
    TRY(join(x, id));
    enum status st = comm_barrier(c);
    if (st != OK)
        b->abort(b);
    return st;
}

static void describe(const struct comm *c, struct carrier *out)
{
    snprintf(out->text, sizeof out->text, "messages are carried by NCCL%s",
             comm_hosts(c) > 1 ? ", which finds the network's interfaces itself (NCCL_SOCKET_IFNAME, NCCL_IB_HCA)" : "");
}

enum status carrier_open(struct exec_context *x, enum carriers wanted, struct carrier *out)
{
    struct comm *c = x->comm;
    struct facts own, *all;
    char why[512] = "";
    memset(out, 0, sizeof *out);
    if (comm_size(c) == 1 || !x->backend->meet)
        return OK;
    if (wanted == CARRIER_STAGED) {
        snprintf(out->text, sizeof out->text, "messages are staged through host memory (--comm staged)");
        return OK;
    }
    all = sys_calloc((size_t)comm_size(c), sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory for %d ranks", comm_size(c));
    find_facts(x->backend, &own);
    enum status st = comm_gather(c, &own, sizeof own, all);
    if (st == OK)
        find_hindrance(c, all, why, sizeof why);
    free(all);
    TRY(st);
    if (why[0] && wanted == CARRIER_NCCL)
        return comm_agree(c, status_fail(ERR_INVALID,
                                         "--comm nccl: %s: leave out --comm, and messages are staged through host "
                                         "memory",
                                         why));
    if (why[0]) {
        snprintf(out->text, sizeof out->text, "messages are staged through host memory: %.240s", why);
        return OK;
    }
    TRY(meet(x));
    snprintf(out->library, sizeof out->library, "%s", own.library);
    describe(c, out);
    x->carried = 1;
    return OK;
}
