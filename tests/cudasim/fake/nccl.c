/* NCCL between processes that stand for GPUs. It reports as errors what NCCL lets pass: ends of messages that do not match, ranks
 * that wait for each other in a circle, a blocking start, calls before all ranks have joined or before the previous call is done,
 * connections made while streams run, results that overlap, streams held up by kernels, ways of gathering that would allocate
 * memory later. A call's work is put on its stream only after somebody has polled for it. */
#include "fake.h"
#include "nccl_wire.h"

#include <nccl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_CALLS = 4 * NCCL_RANKS,
    CALL_SEND = 0,
    CALL_GATHER = 1,
    VERSION = 22809,
    MUCH = 1024 /* gathers of more bytes are done in another way */
};

struct ncclComm {
    int alive, joined, finalizing, connected[NCCL_RANKS], gathers[2];
    int rank, ranks;
    ncclResult_t async;
    struct nccl_wire *wire;
    struct group *begun; /* group not yet on its stream; NULL: none */
    cudaStream_t stream;
    int polls;
    struct ncclComm *next;
};

/* The sends and receives of a group, which a stream executes together. */
struct group {
    struct ncclComm *comm;
    struct nccl_end end[MOST_CALLS];
    char *own_to;
    const char *own_from;
    size_t own_bytes;
    int n, posted, hangs;
};

/* State of the thread's open group, or of a call outside groups. */
static _Thread_local struct {
    int depth;
    ncclResult_t failed;
    cudaStream_t stream;
    struct group *group;
} call;

static void start_group(void *closure);
static int group_is_ready(void *closure);
static cudaError_t end_group(void *closure);

static struct ncclComm *comms;
static char last_error[256];
static long finished, sent, begun;
static struct {
    char function[48];
    long number, seen;
    int error;
} fails;
static long hang_at, break_at, stall_at;
static int break_error, absent, joins_nobody, abort_sticks, own_version = VERSION;

#define EXPORT __attribute__((visibility("default")))

/* --- Words of the configuration --- */

int nccl_configure(const char *word)
{
    if (sscanf(word, "nccl=%47[^:]:%ld:%d", fails.function, &fails.number, &fails.error) == 3)
        return 1;
    if (strcmp(word, "nccl=none") == 0)
        return absent = 1;
    if (strcmp(word, "nccl=alone") == 0)
        return joins_nobody = 1;
    if (strcmp(word, "nccl=sticks") == 0)
        return abort_sticks = 1;
    return sscanf(word, "nccl-version=%d", &own_version) == 1 || sscanf(word, "nccl-hangs=%ld", &hang_at) == 1 ||
           sscanf(word, "nccl-stalls=%ld", &stall_at) == 1 || sscanf(word, "nccl-breaks=%ld:%d", &break_at, &break_error) == 2;
}

void nccl_reset(void)
{
    while (comms) {
        struct ncclComm *next = comms->next;
        free(comms);
        comms = next;
    }
    memset(&fails, 0, sizeof fails);
    last_error[0] = 0;
    hang_at = break_at = stall_at = finished = sent = begun = 0;
    break_error = absent = joins_nobody = abort_sticks = 0;
    own_version = VERSION;
}

int nccl_is_absent(void)
{
    pthread_mutex_lock(&fake_lock);
    (void)fake_enter(); /* the environment's words */
    const int none = absent;
    pthread_mutex_unlock(&fake_lock);
    return none;
}

int nccl_left(char *text, size_t size)
{
    int n = 0;
    for (struct ncclComm *c = comms; c; c = c->next)
        n += c->alive;
    return n ? snprintf(text, size, " %d communicators", n) : 0;
}

/* Returns the bytes that this process's groups have sent to others. */
EXPORT long fake_nccl_sent(void)
{
    pthread_mutex_lock(&fake_lock);
    long n = sent;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

/* --- Errors --- */

__attribute__((format(printf, 1, 2))) static ncclResult_t misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    (void)fake_misuse(cudaErrorInvalidValue, "NCCL: %s", last_error);
    return ncclInvalidUsage;
}

static ncclResult_t enter(const char *function)
{
    if (fake_enter() != cudaSuccess)
        return ncclUnhandledCudaError;
    if (strcmp(function, fails.function) != 0 || ++fails.seen != fails.number)
        return ncclSuccess;
    snprintf(last_error, sizeof last_error, "as the test wants it");
    return (ncclResult_t)fails.error;
}

#define CALL(body)                             \
    do {                                       \
        pthread_mutex_lock(&fake_lock);        \
        ncclResult_t result = enter(__func__); \
        if (result == ncclSuccess)             \
            result = (body);                   \
        pthread_mutex_unlock(&fake_lock);      \
        return result;                         \
    } while (0)

static const char *get_error_string(ncclResult_t result)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return names[result];
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return get_error_string(result);
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

/* --- Communicators --- */

static ncclResult_t version(int *out)
{
    *out = own_version;
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *out)
{
    CALL(version(out));
}

static ncclResult_t unique_id(ncclUniqueId *id)
{
    static int n;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/ltrain-fake-nccl-%d-%d", (int)getpid(), n++);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    CALL(unique_id(id));
}

/* Returns a number of the device that is unique among all hosts: in tests, ranks may each have a host name and a boot id of their
 * own. */
static int device_number(void)
{
    char host[128] = "";
    int number = 0;
    gethostname(host, 63);
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (boot) {
        if (!fgets(host + strlen(host), 64, boot))
            host[0] = 0;
        fclose(boot);
    }
    for (const char *c = host; *c; c++)
        number = (number * 31 + *c) % 100003;
    return number * FAKE_DEVICES + (fake_config.instances ? 0 : fake_number_on_host(fake_current()));
}

/* Returns the variable of a way of gathering that is not disabled and that NCCL might choose later, allocating memory then; NULL:
 * all are disabled. */
static const char *late_way(void)
{
    static const char *const ways[] = {"NCCL_NVLS_ENABLE", "NCCL_PAT_ENABLE"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!getenv(ways[i]))
            return ways[i];
    return NULL;
}

static ncclResult_t init(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
    if (fake_current() < 0)
        return misuse("a thread joins that has no device");
    if (config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
        return misuse("whoever joins would wait for ever for one that does not: blocking is not 0");
    if (late_way())
        return misuse("memory may be taken at some later gather: nobody has set %s", late_way());
    if (ranks < 1 || ranks > NCCL_RANKS || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    *c = (struct ncclComm){.alive = 1, .rank = rank, .ranks = ranks, .next = comms};
    c->wire = nccl_wire_open(joins_nobody ? "/ltrain-fake-nccl-alone" : id->internal, rank, ranks, device_number());
    *out = comms = c;
    return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    CALL(init(out, ranks, &id, rank, config));
}

static ncclResult_t check_comm(ncclComm_t c)
{
    return c && c->alive ? ncclSuccess : misuse("no such communicator");
}

/* Puts the work of the call in progress on its stream, after enough polls. */
static ncclResult_t go_on(ncclComm_t c)
{
    if (!c->begun || --c->polls > 0 || begun == stall_at)
        return c->begun ? ncclInProgress : ncclSuccess;
    struct group *g = c->begun;
    c->begun = NULL;
    const cudaError_t error = fake_enqueue(
        c->stream, &(struct fake_work){.start = start_group, .ready = group_is_ready, .end = end_group, .closure = g});
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t async_error(ncclComm_t c, ncclResult_t *error)
{
    ncclResult_t result = check_comm(c);
    if (result != ncclSuccess)
        return result;
    if (!c->joined && nccl_wire_complete(c->wire) && c->async == ncclSuccess) {
        const int twin = nccl_wire_twin(c->wire);
        c->joined = 1;
        if (twin >= 0) {
            snprintf(last_error, sizeof last_error, "Duplicate GPU detected: ranks %d and %d", c->rank, twin);
            c->async = ncclInvalidUsage;
        }
    }
    const ncclResult_t last = go_on(c);
    *error = c->async != ncclSuccess                         ? c->async
             : last != ncclSuccess                           ? last
             : !c->joined                                    ? ncclInProgress
             : c->finalizing && !nccl_wire_all_left(c->wire) ? ncclInProgress
                                                             : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    CALL(async_error(c, error));
}

static ncclResult_t finalize(ncclComm_t c)
{
    ncclResult_t result = check_comm(c);
    if (result != ncclSuccess)
        return result;
    if (!c->joined || c->finalizing || c->begun)
        return misuse("a communicator is ended that is not in use");
    if (fake_is_busy())
        return misuse("a communicator is ended while streams run");
    c->finalizing = 1;
    nccl_wire_leave(c->wire);
    return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    CALL(finalize(c));
}

/* Ends groups in progress at once; their results are undefined. */
static void discard(ncclComm_t c)
{
    c->alive = 0;
    free(c->begun);
    c->begun = NULL;
    nccl_wire_close(c->wire);
    c->wire = NULL;
    fake_look_again();
}

static ncclResult_t destroy(ncclComm_t c)
{
    ncclResult_t result = check_comm(c);
    if (result != ncclSuccess)
        return result;
    if (!c->finalizing)
        result = misuse("a communicator is destroyed that is in use");
    discard(c);
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    CALL(destroy(c));
}

static ncclResult_t abort_comm(ncclComm_t c)
{
    ncclResult_t result = check_comm(c);
    if (result == ncclSuccess)
        discard(c);
    return result;
}

/* Aborts the communicator, even on a dead device. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    pthread_mutex_lock(&fake_lock);
    ncclResult_t result = enter(__func__),
                 done = fake_current() < 0 ? misuse("a thread aborts that has no device") : abort_comm(c);
    pthread_mutex_unlock(&fake_lock);
    while (abort_sticks)
        sleep(1);
    return result == ncclSuccess ? done : result;
}

/* --- Groups as streams execute them --- */

static void start_group(void *closure)
{
    struct group *g = closure;
    for (int i = 0; i < g->n; i++)
        if (!g->end[i].sends)
            memset(g->end[i].at, 0xff, (size_t)g->end[i].message.bytes);
    if (g->own_bytes)
        memcpy(g->own_to, g->own_from, g->own_bytes);
}

/* Called with the lock held. */
static int group_is_ready(void *closure)
{
    struct group *g = closure;
    struct ncclComm *c = g->comm;
    char text[200];
    if (!c->alive || fake_sticky)
        return 1;
    if (!g->posted) {
        g->posted = 1;
        finished++;
        g->hangs = finished == hang_at;
        if (finished == break_at) {
            snprintf(last_error, sizeof last_error, "as the test wants it");
            c->async = (ncclResult_t)break_error;
        }
        if (!g->hangs && c->async == ncclSuccess)
            nccl_wire_post(c->wire, g->end, g->n);
    }
    if (g->hangs || c->async != ncclSuccess)
        return 0;
    const int there = nccl_wire_progress(c->wire, g->end, g->n, text, sizeof text);
    if (there < 0)
        c->async = misuse("%s", text);
    if (there <= 0)
        return 0;
    nccl_wire_done(c->wire);
    return 1;
}

static cudaError_t end_group(void *closure)
{
    (void)closure;
    return cudaSuccess;
}

static ncclResult_t enqueue(struct group *g, cudaStream_t stream)
{
    if (fake_priority(stream) > FAKE_GREATEST)
        return misuse("messages on a stream that is not the most urgent one");
    struct group *closure = malloc(sizeof *closure);
    if (!closure)
        abort();
    *closure = *g;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->n; k++)
            if (i != k && !g->end[i].sends && g->end[i].at < g->end[k].at + g->end[k].message.bytes &&
                g->end[k].at < g->end[i].at + g->end[i].message.bytes) {
                free(closure);
                return misuse("what is received lies where something else of the group does");
            }
    begun++;
    g->comm->begun = closure;
    g->comm->stream = stream;
    g->comm->polls = 1 + (int)(begun % 2);
    return ncclInProgress;
}

/* --- Calls --- */

static ncclResult_t check_call(ncclComm_t c, const void *p, size_t bytes, ncclDataType_t type)
{
    ncclResult_t result = check_comm(c);
    if (result != ncclSuccess)
        return result;
    if (!c->joined || c->finalizing)
        return misuse("messages before all ranks have joined, or after one has left");
    if (c->begun)
        return misuse("the next call before the last one is done");
    if (type != ncclInt8)
        return misuse("the fake has bytes only");
    if (!fake_on_device(p, bytes))
        return misuse("a message of %zu bytes leaves its device allocation", bytes);
    return ncclSuccess;
}

static ncclResult_t connect_to(ncclComm_t c, int peer)
{
    if (peer < 0 || peer >= c->ranks || peer == c->rank)
        return misuse("rank %d talks to rank %d of %d", c->rank, peer, c->ranks);
    if (!c->connected[peer] && fake_is_busy())
        return misuse("the first message of ranks %d and %d while streams run: memory is taken for their connection now", c->rank,
                      peer);
    c->connected[peer] = 1;
    return ncclSuccess;
}

static ncclResult_t add_end(struct group *g, ncclComm_t c, const struct nccl_end *end)
{
    ncclResult_t result = connect_to(c, end->peer);
    if (result != ncclSuccess || end->message.bytes == 0)
        return result;
    if (g->n == MOST_CALLS)
        return misuse("a group of more than %d calls", MOST_CALLS);
    if (g->comm && g->comm != c)
        return misuse("a group of two communicators");
    g->comm = c;
    g->end[g->n++] = *end;
    if (end->sends)
        sent += end->message.bytes;
    return ncclSuccess;
}

static ncclResult_t message(const void *p, size_t bytes, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream,
                            int sends)
{
    struct group alone = {.n = 0}, *g = call.depth ? call.group : &alone;
    ncclResult_t result = check_call(c, p, bytes, type);
    if (result == ncclSuccess)
        result = add_end(
            g, c,
            &(struct nccl_end){
                .sends = sends, .peer = peer, .at = fake_alias(p), .message = {.bytes = (int64_t)bytes, .kind = CALL_SEND}});
    if (result == ncclSuccess && call.depth && call.stream && call.stream != stream)
        result = misuse("a group on two streams");
    call.stream = stream;
    if (result != ncclSuccess)
        call.failed = result;
    return result == ncclSuccess && !call.depth ? enqueue(&alone, stream) : result;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t c, cudaStream_t stream)
{
    CALL(message(from, count, type, to, c, stream, 1));
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t c, cudaStream_t stream)
{
    CALL(message(to, count, type, from, c, stream, 0));
}

static ncclResult_t gather(const void *from, void *to, size_t bytes, ncclDataType_t type, ncclComm_t c, cudaStream_t stream)
{
    struct group g = {.comm = c};
    ncclResult_t result = check_call(c, from, bytes, type);
    if (result == ncclSuccess)
        result = check_call(c, to, bytes * (size_t)c->ranks, type);
    if (result != ncclSuccess || bytes == 0)
        return result;
    if (!c->gathers[bytes > MUCH] && fake_is_busy_beside(stream))
        return misuse("the first gather of %zu bytes while streams run: memory is taken for its connections now", bytes);
    c->gathers[bytes > MUCH] = 1;
    char *all = fake_alias(to), *own = all + (size_t)c->rank * bytes;
    const char *mine = fake_alias(from);
    if (mine != own && mine < all + bytes * (size_t)c->ranks && all < mine + bytes)
        return misuse("a gather whose source lies elsewhere in its result");
    if (call.depth)
        return misuse("the fake has no gathers in groups");
    for (int r = 0; r < c->ranks && result == ncclSuccess; r++) {
        const struct nccl_message m = {.bytes = (int64_t)bytes, .kind = CALL_GATHER};
        if (r == c->rank)
            continue;
        /* in an in-place gather, `from` is the own part's place in the result */
        result = add_end(&g, c, &(struct nccl_end){.sends = 1, .peer = r, .at = fake_alias(from), .message = m});
        if (result == ncclSuccess)
            result = add_end(&g, c, &(struct nccl_end){.peer = r, .at = all + (size_t)r * bytes, .message = m});
    }
    if (mine != own) {
        g.own_to = own;
        g.own_from = mine;
        g.own_bytes = bytes;
    }
    return result == ncclSuccess ? enqueue(&g, stream) : result;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t stream)
{
    CALL(gather(from, to, count, type, c, stream));
}

static ncclResult_t group_start(void)
{
    if (call.depth++ > 0)
        return ncclSuccess;
    call.failed = ncclSuccess;
    call.stream = NULL;
    if (!call.group && !(call.group = malloc(sizeof *call.group)))
        abort();
    memset(call.group, 0, sizeof *call.group);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    CALL(group_start());
}

static ncclResult_t group_end(void)
{
    if (call.depth == 0)
        return misuse("a group is ended that was not started");
    if (--call.depth > 0)
        return ncclSuccess;
    ncclResult_t result = call.failed;
    if (result == ncclSuccess && call.group->n > 0)
        result = enqueue(call.group, call.stream);
    free(call.group);
    call.group = NULL;
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    pthread_mutex_lock(&fake_lock);
    ncclResult_t result = enter(__func__);
    if (result != ncclSuccess)
        call.failed = result;
    result = group_end();
    pthread_mutex_unlock(&fake_lock);
    return result;
}
