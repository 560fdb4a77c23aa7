/* Streams and events of the fake devices. One thread executes queued work: it draws a random stream whose next work no event
 * holds back, starts that work, which poisons its results' memory, and ends it some turns later. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MUCH = 300 /* with an odd seed, number of queued things from which they are executed though nobody waits */,
    TURNS = 40 /* turns after which streams get other random speeds */
};
enum kind { WORK, RECORD, WAIT };

struct node {
    enum kind kind;
    struct fake_work work;
    int started, ready, hangs;
    struct CUevent_st *event;
    int64_t which; /* number of the event's recording */
    struct node *next;
};

struct CUstream_st {
    int alive, device, priority, used;
    struct node *head, *tail;
    int queued;
    int waiting; /* threads that wait until nothing is queued */
    uint32_t speed;
    struct CUstream_st *next;
};

static struct CUstream_st *streams; /* destroyed ones stay in the list, so that stale handles are recognised */
static struct CUevent_st *events;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER, moved = PTHREAD_COND_INITIALIZER;
static int running, blocked, draining, nudges; /* draining: threads that wait until no stream has queued work */
static long begun, executed;                   /* numbers of pieces of work that were started and ended */
static uint64_t random_state;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

long fake_executed(void)
{
    return executed;
}

static int total_queued(void)
{
    int n = 0;
    for (struct CUstream_st *s = streams; s; s = s->next)
        n += s->queued;
    return n;
}

int fake_priority(cudaStream_t stream)
{
    return stream ? stream->priority : FAKE_LEAST;
}

int fake_is_busy(void)
{
    return total_queued() > 0;
}

int fake_is_busy_beside(cudaStream_t stream)
{
    return total_queued() > stream->queued;
}

void fake_fail_device(cudaError_t error)
{
    if (!fake_sticky)
        fake_sticky = (int)error;
    pthread_cond_broadcast(&queued);
    pthread_cond_broadcast(&moved);
}

void fake_look_again(void)
{
    pthread_cond_signal(&queued);
}

/* --- The GPU's thread --- */

static int can_move(const struct CUstream_st *s)
{
    const struct node *n = s->head;
    if (!n || fake_sticky)
        return n != NULL;
    return n->kind == WAIT ? n->event->done >= n->which : !n->started || (n->ready && !n->hangs);
}

/* Asks each piece of started work whether it may end. Returns the number of pieces that may not yet. */
static int ask(void)
{
    int waiting = 0;
    for (struct CUstream_st *s = streams; s; s = s->next) {
        struct node *n = s->head;
        if (!n || n->kind != WORK || !n->started || n->ready)
            continue;
        n->ready = !n->work.ready || n->work.ready(n->work.closure);
        waiting += !n->ready;
    }
    return waiting;
}

static struct CUstream_st *draw_stream(void)
{
    static int turn;
    uint32_t total = 0;
    if (turn++ % TURNS == 0)
        for (struct CUstream_st *s = streams; s; s = s->next)
            s->speed = 1u << draw(10);
    for (struct CUstream_st *s = streams; s; s = s->next)
        total += can_move(s) ? s->speed : 0;
    if (total == 0)
        return NULL;
    uint32_t x = draw(total);
    struct CUstream_st *s = streams;
    while (!can_move(s) || x >= s->speed) {
        x -= can_move(s) ? s->speed : 0;
        s = s->next;
    }
    return s;
}

/* Removes a stream's first node, and wakes the threads that may have waited for that: each wake costs two switches between threads. */
static void pop(struct CUstream_st *s)
{
    struct node *n = s->head;
    const int waiting = n->kind == RECORD ? n->event->waiting : 0;
    s->head = n->next;
    if (!s->head)
        s->tail = NULL;
    s->queued--;
    free(n->work.closure);
    free(n);
    if (waiting || (!s->head && (s->waiting || draining)))
        pthread_cond_broadcast(&moved);
}

static void end_work(struct CUstream_st *s)
{
    struct node *n = s->head;
    const struct timespec lag = {0, fake_config.lag * 1000L};
    pthread_mutex_unlock(&fake_lock);
    if (lag.tv_nsec > 0)
        nanosleep(&lag, NULL);
    cudaError_t error = n->work.end(n->work.closure);
    pthread_mutex_lock(&fake_lock);
    if (++executed == fake_config.fail_executed)
        error = (cudaError_t)fake_config.executed_error;
    if (error != cudaSuccess)
        fake_fail_device(error);
    pop(s);
}

static void turn(struct CUstream_st *s)
{
    struct node *n = s->head;
    if (n->kind == RECORD) {
        n->event->done = n->which;
        n->event->done_ns = now_ns();
        pop(s);
    } else if (n->kind == WAIT || fake_sticky) { /* a dead device executes nothing: all its work counts as done */
        pop(s);
    } else if (!n->started) {
        n->started = 1;
        n->hangs = ++begun == fake_config.hang_executed;
        pthread_mutex_unlock(&fake_lock);
        if (n->work.start)
            n->work.start(n->work.closure);
        pthread_mutex_lock(&fake_lock);
    } else {
        end_work(s);
    }
}

static int may_execute(void)
{
    return fake_config.seed % 2 == 0 || blocked > 0 || nudges > 0 || fake_sticky || total_queued() > MUCH;
}

static void *gpu(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        const int waiting = ask();
        struct CUstream_st *s = may_execute() ? draw_stream() : NULL;
        if (!s && waiting) { /* polls, since the other process that is awaited does not signal */
            pthread_mutex_unlock(&fake_lock);
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
            pthread_mutex_lock(&fake_lock);
            continue;
        }
        if (!s) {
            pthread_cond_wait(&queued, &fake_lock);
            continue;
        }
        nudges -= nudges > 0;
        turn(s);
    }
    return NULL;
}

static void wake_gpu(void)
{
    pthread_t thread;
    if (!running) {
        running = 1;
        random_state = fake_config.seed;
        if (pthread_create(&thread, NULL, gpu, NULL) != 0)
            abort();
        pthread_detach(thread);
    }
    pthread_cond_signal(&queued);
}

/* --- Queues --- */

static cudaError_t check_stream(cudaStream_t stream)
{
    if (fake_current() < 0)
        return cudaErrorInvalidDevice;
    if (!stream)
        return fake_misuse(cudaErrorInvalidResourceHandle, "the default stream waits for all others");
    if (!stream->alive)
        return fake_misuse(cudaErrorInvalidResourceHandle, "a stream that was destroyed");
    if (stream->device != fake_current())
        return fake_misuse(cudaErrorInvalidResourceHandle, "a stream of device %d, and the thread is at %d", stream->device,
                           fake_current());
    return cudaSuccess;
}

static cudaError_t check_event(cudaEvent_t event)
{
    return event && event->alive ? cudaSuccess : fake_misuse(cudaErrorInvalidResourceHandle, "no such event");
}

static cudaError_t push(cudaStream_t s, const struct node *what)
{
    if (s->queued >= FAKE_QUEUE)
        return fake_misuse(cudaErrorInvalidValue, "%d launches are queued on a stream: the next would spin", FAKE_QUEUE);
    struct node *n = malloc(sizeof *n);
    if (!n)
        abort();
    *n = *what;
    if (s->tail)
        s->tail->next = n;
    else
        s->head = n;
    s->tail = n;
    s->queued++;
    wake_gpu();
    return cudaSuccess;
}

cudaError_t fake_enqueue(cudaStream_t stream, const struct fake_work *work)
{
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess && !stream->used)
        error = fake_take_stream();
    if (error == cudaSuccess) {
        stream->used = 1;
        error = push(stream, &(struct node){.kind = WORK, .work = *work});
    }
    if (error != cudaSuccess)
        free(work->closure);
    return error;
}

/* Waits while the condition is true; `waiting` counts such threads. */
#define BLOCK_WHILE(waiting, condition)            \
    do {                                           \
        blocked++;                                 \
        (waiting)++;                               \
        pthread_cond_signal(&queued);              \
        while (condition)                          \
            pthread_cond_wait(&moved, &fake_lock); \
        (waiting)--;                               \
        blocked--;                                 \
    } while (0)

#define CALL(body)                        \
    do {                                  \
        pthread_mutex_lock(&fake_lock);   \
        cudaError_t error = fake_enter(); \
        if (error == cudaSuccess)         \
            error = (body);               \
        pthread_mutex_unlock(&fake_lock); \
        return error;                     \
    } while (0)

/* Body of calls that undo something, which work on a dead device, too. */
#define CALL_UNDOING(body)                             \
    do {                                               \
        pthread_mutex_lock(&fake_lock);                \
        cudaError_t error = fake_enter(), done = body; \
        pthread_mutex_unlock(&fake_lock);              \
        return error == cudaSuccess ? done : error;    \
    } while (0)

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags, int priority)
{
    if (fake_current() < 0)
        return cudaErrorInvalidDevice;
    if (flags != cudaStreamNonBlocking)
        return fake_misuse(cudaErrorInvalidValue, "a stream that waits for the default stream");
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    *s = (struct CUstream_st){.alive = 1, .device = fake_current(), .priority = priority, .speed = 1, .next = streams};
    *stream = streams = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    CALL(create_stream(stream, flags, priority));
}

static cudaError_t destroy_stream(cudaStream_t stream)
{
    cudaError_t error = check_stream(stream);
    if (error != cudaSuccess)
        return error;
    if (stream->queued > 0 && !fake_sticky)
        error = fake_misuse(cudaErrorInvalidValue, "a stream is destroyed while it runs");
    BLOCK_WHILE(stream->waiting, stream->queued > 0); /* also on a dead device */
    stream->alive = 0;
    return error;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    CALL_UNDOING(destroy_stream(stream));
}

static cudaError_t synchronize_stream(cudaStream_t stream)
{
    cudaError_t error = check_stream(stream);
    if (error != cudaSuccess)
        return error;
    BLOCK_WHILE(stream->waiting, stream->queued > 0 && !fake_sticky);
    return (cudaError_t)fake_sticky;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CALL(synchronize_stream(stream));
}

static cudaError_t wait_on_stream(cudaStream_t stream, cudaEvent_t event)
{
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess)
        error = check_event(event);
    if (error != cudaSuccess)
        return error;
    if (event->recorded == 0)
        return fake_misuse(cudaErrorInvalidValue, "a stream waits for an event that was never recorded");
    return push(stream, &(struct node){.kind = WAIT, .event = event, .which = event->recorded});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    CALL(wait_on_stream(stream, event));
}

/* --- Events --- */

static cudaError_t create_event(cudaEvent_t *event, unsigned flags)
{
    if (fake_current() < 0)
        return cudaErrorInvalidDevice;
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    *e = (struct CUevent_st){.alive = 1, .device = fake_current(), .flags = (int)flags, .next = events};
    *event = events = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CALL(create_event(event, flags));
}

static cudaError_t destroy_event(cudaEvent_t event)
{
    cudaError_t error = check_event(event);
    if (error == cudaSuccess)
        event->alive = 0;
    return error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CALL_UNDOING(destroy_event(event));
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess)
        error = check_event(event);
    if (error == cudaSuccess && event->done < event->recorded)
        return fake_misuse(cudaErrorInvalidValue, "an event is recorded again before its last recording is done");
    if (error == cudaSuccess)
        error = push(stream, &(struct node){.kind = RECORD, .event = event, .which = event->recorded + 1});
    if (error == cudaSuccess)
        event->recorded++;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CALL(record(event, stream));
}

static cudaError_t synchronize_event(cudaEvent_t event)
{
    cudaError_t error = fake_current() < 0 ? cudaErrorInvalidDevice : check_event(event);
    if (error != cudaSuccess)
        return error;
    const int64_t which = event->recorded;
    if (which == 0)
        return fake_misuse(cudaErrorInvalidValue, "a thread waits for an event that was never recorded");
    if (!(event->flags & cudaEventBlockingSync))
        return fake_misuse(cudaErrorInvalidValue, "who waits for the event would spin: no cudaEventBlockingSync");
    BLOCK_WHILE(event->waiting, event->done < which && !fake_sticky);
    return (cudaError_t)fake_sticky;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CALL(synchronize_event(event));
}

static cudaError_t query_event(cudaEvent_t event)
{
    cudaError_t error = check_event(event);
    if (error != cudaSuccess || event->done == event->recorded)
        return error;
    nudges++;
    wake_gpu();
    return cudaErrorNotReady;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CALL(query_event(event));
}

static cudaError_t elapsed(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (check_event(from) != cudaSuccess || check_event(to) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    if (from->done == 0 || to->done == 0 || from->done < from->recorded || to->done < to->recorded)
        return fake_misuse(cudaErrorNotReady, "time is asked for before both events are done");
    *ms = (float)((double)(to->done_ns - from->done_ns) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    CALL(elapsed(ms, from, to));
}

/* --- Copies --- */

struct copy {
    char *to;
    const char *from; /* NULL: fills */
    int value;
    size_t bytes;
};

static void start_copy(void *closure)
{
    struct copy *c = closure;
    memset(c->to, 0xff, c->bytes);
}

static cudaError_t end_copy(void *closure)
{
    struct copy *c = closure;
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, c->value, c->bytes);
    return cudaSuccess;
}

static cudaError_t enqueue_copy(const struct copy *c, cudaStream_t stream)
{
    struct copy *closure = malloc(sizeof *closure);
    if (!closure)
        abort();
    *closure = *c;
    return fake_enqueue(stream, &(struct fake_work){.start = start_copy, .end = end_copy, .closure = closure});
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const void *host = kind == cudaMemcpyHostToDevice ? src : dst, *device = kind == cudaMemcpyHostToDevice ? dst : src;
    if (kind == cudaMemcpyDeviceToDevice) {
        if (!fake_on_device(src, bytes) || !fake_on_device(dst, bytes))
            return fake_misuse(cudaErrorInvalidValue, "a copy of %zu bytes leaves its device allocation", bytes);
        const cudaError_t loading = fake_load("a copy within the device", fake_is_busy_beside(stream));
        return loading != cudaSuccess
                   ? loading
                   : enqueue_copy(&(struct copy){.to = fake_alias(dst), .from = fake_alias(src), .bytes = bytes}, stream);
    }
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost)
        return fake_misuse(cudaErrorInvalidValue, "a copy that is neither up nor down");
    if (!fake_on_device(device, bytes))
        return fake_misuse(cudaErrorInvalidValue, "a copy of %zu bytes leaves its device allocation", bytes);
    cudaError_t error = fake_check_pinned(host, bytes);
    if (error != cudaSuccess)
        return error;
    if (fake_priority(stream) >= FAKE_LEAST)
        return fake_misuse(cudaErrorInvalidValue, "a copy whose stream is no more urgent than that of kernels");
    struct copy c = {.to = dst, .from = src, .bytes = bytes};
    if (kind == cudaMemcpyHostToDevice)
        c.to = fake_alias(dst);
    else
        c.from = fake_alias(src);
    return enqueue_copy(&c, stream);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CALL(copy(dst, src, bytes, kind, stream));
}

static cudaError_t fill(void *p, int value, size_t bytes, cudaStream_t stream)
{
    if (fake_config.dry)
        return cudaSuccess;
    if (!fake_on_device(p, bytes))
        return fake_misuse(cudaErrorInvalidValue, "a fill of %zu bytes leaves its device allocation", bytes);
    return enqueue_copy(&(struct copy){.to = fake_alias(p), .value = value, .bytes = bytes}, stream);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    CALL(fill(p, value, bytes, stream));
}

/* --- Between tests --- */

int fake_streams_left(char *text, size_t size)
{
    int n_streams = 0, n_events = 0;
    for (struct CUstream_st *s = streams; s; s = s->next)
        n_streams += s->alive;
    for (struct CUevent_st *e = events; e; e = e->next)
        n_events += e->alive;
    return n_streams || n_events ? snprintf(text, size, " %d streams, %d events", n_streams, n_events) : 0;
}

void fake_streams_reset(void)
{
    pthread_mutex_lock(&fake_lock);
    BLOCK_WHILE(draining, total_queued() > 0);
    while (streams) {
        struct CUstream_st *next = streams->next;
        free(streams);
        streams = next;
    }
    while (events) {
        struct CUevent_st *next = events->next;
        free(events);
        events = next;
    }
    begun = executed = 0;
    pthread_mutex_unlock(&fake_lock);
}
