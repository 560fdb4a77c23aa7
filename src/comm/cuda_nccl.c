/* Messages between GPUs, carried by NCCL.
 *
 * 1. There is one communicator of all ranks, numbered by their places in the mesh, and one stream, LANE_WORLD's. All ranks give
 * it all collectives in one order, so that no two ranks wait for each other in a circle. Groups are subsets in sends and
 * receives.
 *
 * 2. NCCL moves bytes; sums are added here, by ops/reduce.h, with the bits of comm/collective.c. The planner asked collective.c
 * for the size of `work`, too; here a piece takes both of its places.
 *
 * 3. The communicator does not block: a call begins something, and its caller polls until that is done (settle, and health while
 * ranks join), so that failures of others are seen meanwhile. Within a group nothing is under way yet.
 *
 * 4. Before the arena exists, ranks greet each other by each kind of call that steps make. So connections are made, their memory
 * is taken and kernels are loaded then. Ways of gathering that would take more memory at the first gather of some size are
 * switched off (open_library).
 *
 * 5. One thread at a time calls NCCL, under the lock. `aborted` is set before the lock is asked for, and ends polling. */
#include "comm/cuda_nccl.h"

#include "base/clock.h"
#include "base/sys.h"
#include "comm/flows.h"
#include "device/cuda/errors.h"
#include "device/cuda/libraries.h"
#include "ops/cuda_ops.h"
#include "ops/reduce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POLL_NS = 50000, GREETING = 16 /* bytes of each rank's greeting */, LEAST_BLOCK = 4096 };
#ifndef CUDA_NCCL_MUCH                     /* less in tests */
#define CUDA_NCCL_MUCH ((int64_t)16 << 20) /* bytes of a large gather; NCCL has other code for it than for small ones */
#endif
static const double LEAVE_SECONDS = 5; /* seconds that leaving waits for the last messages */
static const double LOCK_SECONDS = 2;  /* seconds that an abort waits for a thread inside NCCL */
static const double ABORT_SECONDS = 5; /* seconds that an abort may take: on a GPU that has failed it may never return */

_Static_assert(sizeof(ncclUniqueId) <= BACKEND_IDENTITY, "an identity is NCCL's");

/* Steps of joining, in order; the state is the step begun last. */
enum joining { ALONE, JOINING, GATHERING, GATHERING_MUCH, SWAPPING, ARRIVING, JOINED };

struct ranks {
    struct backend *b;
    void (*close)(struct backend *b); /* the device's own close */
    const struct nccl *api;           /* NULL: not opened yet */
    pthread_mutex_t lock;
    atomic_int aborted;
    enum joining phase;
    ncclComm_t comm; /* NULL: none, or no more */
    int rank, size;
    struct mesh_group group[LANES];
    char *greeting; /* device memory: a block for each rank, and one that this rank sends */
    int64_t block;
};

static struct ranks *ranks_of(const struct backend *b)
{
    return b->ranks;
}

static cudaStream_t stream_of(const struct ranks *r)
{
    return (cudaStream_t)r->b->stream[LANE_WORLD];
}

static enum status nccl_status(const struct ranks *r, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess)
        return OK;
    const char *last = r->api->ncclGetLastError(r->comm);
    return status_fail(ERR_IO, "NCCL: %.*s: %s%s%.300s", (int)strcspn(call, "("), call, r->api->ncclGetErrorString(result),
                       last && last[0] ? ": " : "", last && last[0] ? last : "");
}
#define NCCL_STATUS(call) nccl_status(r, r->api->call, #call)

static enum status gone(void)
{
    return status_fail(ERR_PEER, "NCCL: the communicator has been aborted");
}

/* Checks the status of a call that may continue in the background after it returns. */
static enum status begun(const struct ranks *r, ncclResult_t result, const char *call)
{
    return result == ncclInProgress ? OK : nccl_status(r, result, call);
}
#define NCCL_BEGUN(call) begun(r, r->api->call, #call)

/* Opens NCCL without the gather algorithms that connect only at the first size which suits them. NVLS then takes some GiB; PAT,
 * in NCCL since 2.23 for hosts with one rank each, leaves the ring to sizes that may come only in steps. A user's own choice
 * stays. */
static enum status open_library(struct ranks *r)
{
    static const char *const left_out[] = {"NCCL_NVLS_ENABLE", "NCCL_PAT_ENABLE"};
    if (r->api)
        return OK;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (setenv(left_out[i], "0", 0) != 0)
            return status_fail(ERR_NOMEM, "out of memory for the environment");
    return cuda_libraries_nccl(&r->api);
}

/* Waits until a call that continues in the background has ended, and returns its result. The caller holds the lock. */
static enum status settle(struct ranks *r, ncclResult_t result, const char *call)
{
    while (result == ncclInProgress && !atomic_load(&r->aborted)) {
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        TRY(NCCL_STATUS(ncclCommGetAsyncError(r->comm, &result)));
    }
    return atomic_load(&r->aborted) ? gone() : nccl_status(r, result, call);
}

/* --- Groups of messages --- */

static enum status send_part(struct ranks *r, struct flow_part part, int to)
{
    return part.bytes == 0 ? OK : NCCL_BEGUN(ncclSend(part.at, (size_t)part.bytes, ncclInt8, to, r->comm, stream_of(r)));
}

static enum status receive_part(struct ranks *r, struct flow_part part, int from)
{
    return part.bytes == 0 ? OK : NCCL_BEGUN(ncclRecv(part.at, (size_t)part.bytes, ncclInt8, from, r->comm, stream_of(r)));
}

static int place_of(const struct mesh_group *g, int member)
{
    return g->first + member * g->stride;
}

/* Begins sends and receives with all members of a group, neighbours first, so that not everybody sends to the same member. out,
 * in: the part for each member. A failed group is closed and starts nothing. */
static enum status begin_swap(struct ranks *r, const struct mesh_group *g, struct flow_part (*out)(const void *user, int m),
                              struct flow_part (*in)(const void *user, int m), const void *user)
{
    TRY(NCCL_STATUS(ncclGroupStart()));
    enum status st = OK;
    for (int d = 1; d < g->members && st == OK; d++) {
        const int to = (g->member + d) % g->members, from = (g->member - d + g->members) % g->members;
        st = send_part(r, out(user, to), place_of(g, to));
        if (st == OK)
            st = receive_part(r, in(user, from), place_of(g, from));
    }
    if (st == OK)
        return NCCL_BEGUN(ncclGroupEnd());
    (void)r->api->ncclGroupEnd();
    return st;
}

/* Swaps parts with all members, and waits until that is on the stream. */
static enum status swap_parts(struct ranks *r, enum lane lane, struct flow_part (*out)(const void *user, int m),
                              struct flow_part (*in)(const void *user, int m), const void *user)
{
    TRY(begin_swap(r, &r->group[lane], out, in, user));
    return settle(r, ncclInProgress, "ncclGroupEnd");
}

/* --- Joining --- */

static enum status carrier(struct backend *b, char name[BACKEND_CARRIER])
{
    struct ranks *r = ranks_of(b);
    int version = 0;
    TRY(open_library(r));
    TRY(NCCL_STATUS(ncclGetVersion(&version)));
    snprintf(name, BACKEND_CARRIER, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    /* before 2.19 an abort does not end another thread's wait (NVIDIA/nccl issue 992) */
    return version >= 21900 ? OK : status_fail(ERR_INVALID, "%s is too old: 2.19 or later is wanted", name);
}

static enum status identity(struct backend *b, char id[BACKEND_IDENTITY])
{
    struct ranks *r = ranks_of(b);
    ncclUniqueId own;
    TRY(open_library(r));
    TRY(NCCL_STATUS(ncclGetUniqueId(&own)));
    memset(id, 0, BACKEND_IDENTITY);
    memcpy(id, &own, sizeof own);
    return OK;
}

static enum status meet(struct backend *b, const char id[BACKEND_IDENTITY], int rank, int size,
                        const struct mesh_group group[LANES])
{
    struct ranks *r = ranks_of(b);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId own;
    TRY(open_library(r));
    memcpy(&own, id, sizeof own);
    memcpy(r->group, group, sizeof r->group);
    r->rank = rank;
    r->size = size;
    config.blocking = 0;
    TRY(NCCL_BEGUN(ncclCommInitRankConfig(&r->comm, size, own, rank, &config)));
    r->phase = JOINING;
    return OK;
}

static void write_greeting(char text[GREETING], int from)
{
    memset(text, 0, GREETING);
    snprintf(text, GREETING, "rank %d", from);
}

/* Runs the kernels that messages use once (sums, roundings and copies), on any contents. A kernel's first launch may wait for all
 * work that is under way. */
static enum status load_kernels(struct ranks *r)
{
    enum { N = 64 };
    float *const x = (float *)(void *)r->greeting;
    for (int shift = 0; shift < 2; shift++) { /* with operands that are aligned to vectors, and with others */
        struct reduce_pieces any = {
            .dst = x + shift, .own = x + shift, .pieces = (const char *)(x + 2 * N), .n = N, .stride = 4 * N, .members = 2};
        for (any.type = F32; any.type <= BF16; any.type++)
            TRY(ops_cuda_reduce(&any, stream_of(r)));
        TRY(ops_cuda_cast_rows((bf16 *)(void *)(x + 2 * N) + shift, N, x, N, 1, N - 8, stream_of(r)));
    }
    TRY(CUDA_STATUS(cudaMemcpyAsync(x + 2 * N, x, N * sizeof *x, cudaMemcpyDeviceToDevice, stream_of(r))));
    return r->b->join(r->b);
}

static enum status prepare_greeting(struct ranks *r)
{
    char own[GREETING];
    void *memory = NULL;
    r->block = max_i64(LEAST_BLOCK, CUDA_NCCL_MUCH / r->size / GREETING * GREETING);
    TRY(CUDA_STATUS(cudaMalloc(&memory, (size_t)((r->size + 1) * r->block))));
    r->greeting = memory;
    write_greeting(own, r->rank);
    TRY(load_kernels(r));
    return r->b->write(r->b, r->greeting + r->size * r->block, own, GREETING);
}

static struct flow_part own_greeting(const void *user, int m)
{
    const struct ranks *r = user;
    (void)m;
    return (struct flow_part){r->greeting + r->size * r->block, GREETING};
}

static struct flow_part others_greeting(const void *user, int m)
{
    const struct ranks *r = user;
    return (struct flow_part){r->greeting + m * r->block, GREETING};
}

static enum status gather_greetings(struct ranks *r, int64_t bytes)
{
    return NCCL_BEGUN(ncclAllGather(own_greeting(r, r->rank).at, r->greeting, (size_t)bytes, ncclInt8, r->comm, stream_of(r)));
}

static enum status end_greeting(struct ranks *r)
{
    char want[GREETING], have[GREETING];
    int done = 0;
    TRY(r->b->query(r->b, LANE_WORLD, 0, &done));
    if (!done)
        return OK;
    for (int from = 0; from < r->size; from++) {
        write_greeting(want, from);
        TRY(r->b->read(r->b, have, r->greeting + from * r->block, GREETING));
        if (memcmp(want, have, GREETING) != 0)
            return status_fail(ERR_CORRUPT, "NCCL: what was to come from the rank at place %d is not what it sent", from);
    }
    void *memory = r->greeting;
    r->greeting = NULL;
    TRY(CUDA_STATUS(cudaFree(memory)));
    r->phase = JOINED;
    return OK;
}

/* Begins the next step of joining, once the last one is done. */
static enum status go_on(struct ranks *r)
{
    const struct mesh_group all = {.members = r->size, .member = r->rank, .stride = 1};
    switch (r->phase) {
    case JOINING:
        TRY(prepare_greeting(r));
        r->phase = GATHERING;
        return gather_greetings(r, GREETING);
    case GATHERING:
        r->phase = GATHERING_MUCH;
        return gather_greetings(r, r->block);
    case GATHERING_MUCH:
        r->phase = SWAPPING;
        return begin_swap(r, &all, own_greeting, others_greeting, r);
    case SWAPPING:
        r->phase = ARRIVING;
        return r->b->record(r->b, LANE_WORLD, 0);
    case ARRIVING:
        return end_greeting(r);
    default:
        return OK;
    }
}

/* Looks at the communicator's state and goes on with joining. Under the lock. */
static enum status look(struct ranks *r, int *joined)
{
    ncclResult_t result = ncclSuccess;
    if (!r->comm)
        return atomic_load(&r->aborted) ? gone() : OK;
    TRY(NCCL_STATUS(ncclCommGetAsyncError(r->comm, &result)));
    if (result == ncclInProgress)
        return OK;
    TRY(nccl_status(r, result, "an operation that was under way"));
    TRY(go_on(r));
    *joined = r->phase == JOINED;
    return OK;
}

static enum status health(struct backend *b, int *joined)
{
    struct ranks *r = ranks_of(b);
    *joined = 0;
    if (pthread_mutex_trylock(&r->lock) != 0) /* another thread is inside NCCL, and notices failures itself */
        return OK;
    enum status st = look(r, joined);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* --- Collectives; all under the lock --- */

static enum status copy_own(struct ranks *r, const struct collective *x)
{
    char *to;
    const struct flow_part own = flows_own(x, &to);
    if (own.bytes == 0)
        return OK;
    return CUDA_STATUS(cudaMemcpyAsync(to, own.at, (size_t)own.bytes, cudaMemcpyDeviceToDevice, stream_of(r)));
}

static struct flow_part out_of(const void *user, int m)
{
    return flows_out(user, m);
}

static struct flow_part into(const void *user, int m)
{
    return flows_in(user, m);
}

/* Tells whether the collective gathers equal shares of all ranks, so that the library may choose the algorithm. */
static int is_even_gather(const struct ranks *r, enum lane lane, const struct collective *x)
{
    const struct op_attrs *a = x->attrs;
    return x->op == OP_ALL_GATHER && lane == LANE_WORLD && x->members == r->size && a->comm.n == a->comm.share * x->members;
}

/* Zeroes the end of this rank's share, beyond the data. element: bytes of an element. */
static enum status clear_rest(struct ranks *r, const struct collective *x, int64_t element)
{
    const int64_t there = flows_share(x->attrs, x->me), share = x->attrs->comm.share;
    char *const rest = (char *)x->arg[1] + there * element;
    return there == share ? OK : CUDA_STATUS(cudaMemsetAsync(rest, 0, (size_t)((share - there) * element), stream_of(r)));
}

static enum status move(struct ranks *r, enum lane lane, const struct collective *x)
{
    if (is_even_gather(r, lane, x)) {
        const struct flow_part own = flows_out(x, x->me);
        return settle(r, r->api->ncclAllGather(own.at, x->arg[1], (size_t)own.bytes, ncclInt8, r->comm, stream_of(r)),
                      "ncclAllGather");
    }
    TRY(copy_own(r, x));
    if (x->op == OP_DEAL)
        TRY(clear_rest(r, x, x->attrs->comm.element));
    return swap_parts(r, lane, out_of, into, x);
}

/* One piece of each member's share, reduced together. */
struct pieces {
    const struct collective *x;
    /* first: elements of each share before the piece; most: most elements of the piece; element: bytes of an element that travels */
    int64_t first, most, element;
    char *arrives, *leaves; /* buffers, member m's at m * most elements; leaves NULL: sent from where the addends are */
};

static int64_t piece_elements(const struct pieces *p, int m)
{
    return max_i64(0, min_i64(p->most, flows_share(p->x->attrs, m) - p->first));
}

static struct flow_part piece_out(const void *user, int m)
{
    const struct pieces *p = user;
    char *at = p->leaves ? p->leaves + m * p->most * p->element
                         : (char *)p->x->arg[0] + (m * p->x->attrs->comm.share + p->first) * p->element;
    return (struct flow_part){at, piece_elements(p, m) * p->element};
}

static struct flow_part piece_in(const void *user, int m)
{
    const struct pieces *p = user;
    return (struct flow_part){p->arrives + m * p->most * p->element, piece_elements(p, p->x->me) * p->element};
}

/* Rounds all members' pieces to bf16. Whole pieces are handled as rows of a matrix; at most one piece is shorter. */
static enum status round_pieces(struct ranks *r, const struct pieces *p)
{
    const int64_t share = p->x->attrs->comm.share, columns = min_i64(p->most, share - p->first);
    const float *src = (const float *)p->x->arg[0] + p->first;
    bf16 *dst = (bf16 *)p->leaves;
    int rows = 0;
    while (rows < p->x->members && piece_elements(p, rows) == columns)
        rows++;
    TRY(ops_cuda_cast_rows(dst, p->most, src, share, rows, columns, stream_of(r)));
    if (rows == p->x->members || piece_elements(p, rows) == 0)
        return OK;
    return ops_cuda_cast_rows(dst + rows * p->most, p->most, src + rows * share, share, 1, piece_elements(p, rows), stream_of(r));
}

static enum status add_pieces(struct ranks *r, const struct pieces *p, float *dst)
{
    const struct collective *x = p->x;
    const struct reduce_pieces sum = {.dst = dst + p->first,
                                      .own = (const float *)x->arg[0] + x->me * x->attrs->comm.share + p->first,
                                      .pieces = p->arrives,
                                      .n = piece_elements(p, x->me),
                                      .stride = p->most * p->element,
                                      .members = x->members,
                                      .me = x->me,
                                      .type = x->attrs->comm.type};
    return sum.n == 0 ? OK : ops_cuda_reduce(&sum, stream_of(r));
}

static enum status reduce(struct ranks *r, enum lane lane, const struct collective *x)
{
    const int in_place = x->op == OP_ALL_REDUCE;
    const int64_t share = x->attrs->comm.share;
    float *dst = in_place ? (float *)x->arg[0] + x->me * share : x->arg[1];
    struct pieces p = {.x = x,
                       .most = 2 * flows_piece(x->attrs, x->members, CHUNK_BYTES),
                       .element = flows_wire_element(x->attrs),
                       .arrives = in_place ? x->arg[1] : x->arg[2]};
    if (p.element == 2)
        p.leaves = p.arrives + x->members * p.most * p.element;
    for (; p.first < share; p.first += p.most) {
        if (p.leaves)
            TRY(round_pieces(r, &p));
        TRY(swap_parts(r, lane, piece_out, piece_in, &p));
        TRY(add_pieces(r, &p, dst));
    }
    if (!in_place)
        return clear_rest(r, x, sizeof(float));
    struct op_attrs attrs;
    struct collective gather;
    void *arg[2];
    flows_gather_sums(x, &attrs, arg, &gather);
    return move(r, lane, &gather);
}

static enum status collective(struct backend *b, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg,
                              int send, int receive)
{
    struct ranks *r = ranks_of(b);
    const struct collective x = {.op = op,
                                 .attrs = attrs,
                                 .arg = arg,
                                 .members = r->group[lane].members,
                                 .me = r->group[lane].member,
                                 .send = send,
                                 .receive = receive};
    pthread_mutex_lock(&r->lock);
    enum status st = !r->comm || atomic_load(&r->aborted) ? gone() : flows_check(&x);
    if (st == OK)
        st = flows_is_reduction(op) ? reduce(r, lane, &x) : move(r, lane, &x);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* --- Leaving --- */

static int take_lock(struct ranks *r)
{
    const double until = clock_seconds() + LOCK_SECONDS;
    int taken;
    while (!(taken = pthread_mutex_trylock(&r->lock) == 0) && clock_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    return taken;
}

/* Arguments of a thread that aborts; if the abort does not return, the thread is left behind. */
struct aborting {
    const struct nccl *api;
    ncclComm_t comm;
    int device;
    atomic_int done;
};

static void *abort_comm(void *user)
{
    struct aborting *a = user;
    (void)cudaSetDevice(a->device); /* without this, NCCL would make a context on the first device */
    (void)a->api->ncclCommAbort(a->comm);
    atomic_store(&a->done, 1);
    return NULL;
}

static void abort_in_time(const struct ranks *r)
{
    const double until = clock_seconds() + ABORT_SECONDS;
    struct aborting *a = sys_calloc(1, sizeof *a);
    pthread_t thread;
    if (!a) {
        (void)r->api->ncclCommAbort(r->comm);
        return;
    }
    a->api = r->api;
    a->comm = r->comm;
    (void)cudaGetDevice(&a->device);
    if (sys_thread(&thread, abort_comm, a) == 0)
        pthread_detach(thread);
    else
        abort_comm(a);
    while (!atomic_load(&a->done) && clock_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    if (atomic_load(&a->done))
        free(a);
}

static void abort_ranks(struct backend *b)
{
    struct ranks *r = ranks_of(b);
    atomic_store(&r->aborted, 1);
    const int locked = take_lock(r); /* 0: a thread is stuck in a call of NCCL, which the abort ends */
    if (r->comm)
        abort_in_time(r);
    r->comm = NULL;
    if (locked)
        pthread_mutex_unlock(&r->lock);
}

/* Waits for the last messages of all ranks. */
static int finalize(struct ranks *r)
{
    const double until = clock_seconds() + LEAVE_SECONDS;
    ncclResult_t result = r->api->ncclCommFinalize(r->comm);
    while (result == ncclInProgress && clock_seconds() < until) {
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        if (r->api->ncclCommGetAsyncError(r->comm, &result) != ncclSuccess)
            return 0;
    }
    return result == ncclSuccess;
}

/* Tells whether leaving has worked: work under way then ends by itself. */
static int has_left(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

static void close_ranks(struct backend *b)
{
    struct ranks *r = ranks_of(b);
    if (r->comm && r->phase == JOINED && b->join(b) == OK && finalize(r) && has_left(r->api->ncclCommDestroy(r->comm)))
        r->comm = NULL;
    abort_ranks(b);
    if (r->greeting)
        (void)cudaFree(r->greeting);
    pthread_mutex_destroy(&r->lock);
    b->ranks = NULL;
    r->close(b);
    free(r);
}

enum status cuda_nccl_attach(struct backend *b)
{
    struct ranks *r = sys_calloc(1, sizeof *r);
    if (!r)
        return status_fail(ERR_NOMEM, "out of memory for the device");
    pthread_mutex_init(&r->lock, NULL);
    r->b = b;
    r->close = b->close;
    b->ranks = r;
    b->carrier = carrier;
    b->identity = identity;
    b->meet = meet;
    b->collective = collective;
    b->health = health;
    b->abort = abort_ranks;
    b->close = close_ranks;
    return OK;
}
