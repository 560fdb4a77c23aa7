/* Rates of copies and drives, and the slowdown of compute beside each lane. */
#include "profile/profile.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"
#include "device/copy.h"
#include "offload/store.h"
#include "ops/ops.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks of the size of an update group, over more memory than caches hold. */
#define BLOCK (4ll << 20)
#define BLOCKS 64
#define SIDE 512 /* m, n and k of the product that is timed beside other lanes */
#define BESIDE_SECONDS 0.3
#define SHORT (256ll << 10) /* bytes of small models' chunks */
#define SINGLE_BLOCKS 8     /* number of blocks whose short extents are moved one after the other */
#define THROTTLE 1e9        /* bytes per second */
/* bytes per second: limit for disturbed measurements, in which long copies seem to cost no more than short ones */
#define MOST_COPIED 100e9

struct bench {
    char *from, *to; /* BLOCKS blocks each */
    struct store *store;
    op_kernel *kernels[OP_COUNT];
    int threads;
};

/* A lane's thread: it does `work` again and again until told to stop, or once through all blocks. */
struct worker {
    struct bench *b;
    enum status (*work)(struct worker *w);
    enum lane lane;
    int first, n;    /* blocks */
    double throttle; /* copies: bytes per second of the link; 0: no limit */
    int64_t piece;   /* copies: bytes of one copy, a part of a block */
    int late;        /* 1: copies first fill their target with NaN, as on cpu:discrete */
    atomic_int stop;
    int64_t bytes;
    double seconds;
    enum status st;
    char message[512];
};

static enum status copy_blocks(struct worker *w)
{
    struct copy_link link = {.late = w->late, .bytes_per_second = w->throttle};
    for (int64_t i = 0; i < w->n * (BLOCK / w->piece) && !atomic_load(&w->stop); i++) {
        device_copy(&link, w->b->to + i * w->piece, w->b->from + i * w->piece, w->piece);
        w->bytes += w->piece;
    }
    return OK;
}

/* Moves blocks with a few extents in flight, as the I/O lanes do. */
static enum status move_blocks(struct worker *w)
{
    enum store_direction d = w->lane == LANE_READ ? STORE_READ : STORE_WRITE;
    char *memory = d == STORE_READ ? w->b->to : w->b->from;
    uint64_t ticket = 0;
    for (int i = 0; i < w->n && !atomic_load(&w->stop); i++) {
        int64_t at = (w->first + i) * BLOCK;
        TRY(store_submit(w->b->store, d, at, memory + at, BLOCK, &ticket));
        w->bytes += BLOCK;
    }
    return ticket ? store_wait(w->b->store, d, ticket) : OK;
}

/* Moves one short extent after the other, each awaited. */
static enum status move_singly(struct worker *w)
{
    enum store_direction d = w->lane == LANE_READ ? STORE_READ : STORE_WRITE;
    char *memory = d == STORE_READ ? w->b->to : w->b->from;
    for (int64_t at = 0; at < SINGLE_BLOCKS * BLOCK && !atomic_load(&w->stop); at += SHORT) {
        uint64_t ticket = 0;
        TRY(store_submit(w->b->store, d, at, memory + at, SHORT, &ticket));
        TRY(store_wait(w->b->store, d, ticket));
        w->bytes += SHORT;
    }
    return OK;
}

/* Runs AdamW on fp32 blocks: four arrays of a quarter of the memory each. */
static enum status update_blocks(struct worker *w)
{
    int64_t n = BLOCK / 4, part = BLOCKS / 4 * n;
    struct norm_result norm = {.factor = 1};
    struct step_record record = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .bias1 = 1, .bias2 = 1};
    struct op_attrs a = {.vec = {.n = n, .n_decay = n}};
    float *x = (float *)(void *)w->b->to;
    for (int i = 0; i < BLOCKS / 4 && !atomic_load(&w->stop); i++) {
        float *at = x + i * n;
        (void)w->b->kernels[OP_ADAMW](&a, (void *[]){at, at + part, at + 2 * part, at + 3 * part, &norm, &record, NULL}, NULL);
        w->bytes += 7 * BLOCK;
    }
    return OK;
}

static void *worker_thread(void *user)
{
    struct worker *w = user;
    omp_set_num_threads(w->b->threads);
    double began = clock_seconds();
    do
        w->st = w->work(w);
    while (w->st == OK && atomic_load(&w->stop) == 0 && w->seconds < 0);
    w->seconds = clock_seconds() - began;
    if (w->st != OK)
        snprintf(w->message, sizeof w->message, "%s", status_message());
    return NULL;
}

/* Stops the thread and passes its error on to the caller's. */
static enum status finish(struct worker *w, pthread_t thread)
{
    atomic_store(&w->stop, 1);
    pthread_join(thread, NULL);
    return w->st == OK ? OK : status_fail(w->st, "%s", w->message);
}

static enum status once(struct worker *w, double *rate)
{
    pthread_t thread;
    if (sys_thread(&thread, worker_thread, w))
        return status_fail(ERR_NOMEM, "cannot start a thread to measure lanes");
    pthread_join(thread, NULL);
    *rate = (double)w->bytes / w->seconds;
    return w->st == OK ? OK : status_fail(w->st, "%s", w->message);
}

/* Measures the rate of a second pass: the first one also touches memory and allocates the drive's blocks. */
static enum status warm_rate(const struct worker *like, double *rate)
{
    struct worker first = *like, second = *like;
    TRY(once(&first, rate));
    return once(&second, rate);
}

struct product {
    op_kernel *kernel;
    float *memory;
};

static const struct op_attrs SQUARE = {.gemm = {.m = SIDE, .n = SIDE, .k = SIDE, .lda = SIDE, .ldb = SIDE, .ldc = SIDE}};

static void multiply(void *user)
{
    struct product *p = user;
    (void)p->kernel(
        &SQUARE, (void *[]){p->memory, p->memory + SIDE * SIDE, p->memory + 2 * SIDE * SIDE, p->memory + 3 * SIDE * SIDE}, NULL);
}

static double product_seconds(struct product *p, double during)
{
    double began = clock_seconds();
    int n = 0;
    do
        multiply(p);
    while (n++, clock_seconds() - began < during);
    return (clock_seconds() - began) / n;
}

/* Measures how much slower compute is beside a lane, that is the share of the cores that the lane asks for. rate: NULL, or the
 * lane's bytes per second meanwhile. */
static enum status beside(struct product *p, const struct worker *like, double *share, double *rate)
{
    pthread_t thread;
    double alone = product_seconds(p, BESIDE_SECONDS / 2);
    struct worker w = *like;
    w.seconds = -1;
    if (sys_thread(&thread, worker_thread, &w))
        return status_fail(ERR_NOMEM, "cannot start a thread to measure lanes");
    double together = product_seconds(p, BESIDE_SECONDS);
    TRY(finish(&w, thread));
    alone = (alone + product_seconds(p, BESIDE_SECONDS / 2)) / 2;
    *share = together > alone ? 1 - alone / together : 0;
    if (rate)
        *rate = (double)max_i64(w.bytes, 1) / w.seconds; /* a thread that never ran has moved nothing */
    return OK;
}

/* Measures the seconds that compute loses by one throttled copy of `piece` bytes. *late: seconds that the copy lasts beyond its
 * link's time. */
static enum status beside_throttled(struct product *p, const struct worker *like, int64_t piece, double *lost, double *late)
{
    struct worker w = *like;
    double share, rate;
    w.throttle = THROTTLE;
    w.piece = piece;
    TRY(beside(p, &w, &share, &rate));
    *lost = share * (double)piece / rate;
    *late = fmax(0, (double)piece / rate - (double)piece / THROTTLE);
    return OK;
}

/* Measures compute's loss by throttled copies: a line through short and long ones. */
static enum status throttled(struct product *p, const struct worker *w, struct hardware *h)
{
    double brief, whole, late;
    TRY(beside_throttled(p, w, BLOCK, &whole, &late));
    TRY(beside_throttled(p, w, SHORT, &brief, &h->wake_seconds));
    double per_byte = fmax((whole - brief) / (double)(BLOCK - SHORT), 1 / MOST_COPIED);
    h->throttled_bytes = 1 / per_byte;
    h->throttled_cores = fmax(0, brief - per_byte * SHORT);
    return OK;
}

static enum status copies(struct bench *b, struct product *p, struct hardware *h)
{
    struct worker w = {.b = b, .work = copy_blocks, .lane = LANE_H2D, .n = BLOCKS, .piece = BLOCK};
    TRY(warm_rate(&w, &h->h2d));
    h->d2h = h->h2d;
    TRY(beside(p, &w, &h->cores[LANE_H2D], NULL));
    h->cores[LANE_D2H] = h->cores[LANE_H2D];
    w.late = 1;
    TRY(throttled(p, &w, h));
    return warm_rate(&w, &h->late);
}

static enum status both_at_once(struct bench *b, double *sum)
{
    struct worker r = {.b = b, .work = move_blocks, .lane = LANE_READ, .n = BLOCKS / 2},
                  w = {.b = b, .work = move_blocks, .lane = LANE_WRITE, .first = BLOCKS / 2, .n = BLOCKS / 2};
    pthread_t thread;
    double began = clock_seconds();
    if (sys_thread(&thread, worker_thread, &r))
        return status_fail(ERR_NOMEM, "cannot start a thread to measure lanes");
    worker_thread(&w);
    pthread_join(thread, NULL);
    *sum = (double)(r.bytes + w.bytes) / (clock_seconds() - began);
    return r.st != OK ? status_fail(r.st, "%s", r.message) : w.st;
}

/* Measures, while compute runs, by how many seconds a short extent on its own takes longer than at the lane's full rate. */
static enum status idle_lane(struct product *p, const struct worker *like, double full, double *seconds)
{
    struct worker w = *like;
    double share, rate;
    w.work = move_singly;
    if (w.lane == LANE_WRITE)
        TRY(once(&w, &rate)); /* extents that are read must have been written whole */
    TRY(beside(p, &w, &share, &rate));
    *seconds = fmax(0, SHORT / rate - SHORT / full);
    return OK;
}

static enum status drives(struct bench *b, struct product *p, const char *path, struct hardware *h)
{
    struct store_config c = {
        .paths = {path}, .n_paths = 1, .bytes = BLOCKS * BLOCK, .pinned = b->from, .pinned_bytes = 2 * BLOCKS * BLOCK};
    TRY(store_open(&c, &b->store));
    struct worker w = {.b = b, .work = move_blocks, .lane = LANE_WRITE, .n = BLOCKS},
                  r = {.b = b, .work = move_blocks, .lane = LANE_READ, .n = BLOCKS};
    enum status st = warm_rate(&w, &h->write);
    if (st == OK)
        st = warm_rate(&r, &h->read);
    if (st == OK)
        st = both_at_once(b, &h->both);
    if (st == OK)
        st = beside(p, &r, &h->cores[LANE_READ], NULL);
    if (st == OK)
        st = beside(p, &w, &h->cores[LANE_WRITE], NULL);
    if (st == OK)
        st = idle_lane(p, &w, h->write, &h->write_seconds);
    if (st == OK)
        st = idle_lane(p, &r, h->read, &h->read_seconds);
    store_close(b->store);
    h->both = h->both < h->read + h->write ? h->both : h->read + h->write;
    return st;
}

enum status profile_lanes(const struct settings *s, const char *path, struct hardware *h)
{
    struct bench b = {.threads = s->plan.threads};
    struct product p = {
        .memory = sys_calloc(1, 3 * SIDE * SIDE * sizeof(float) + (size_t)op_workspace_bytes(OP_GEMM, &SQUARE, s->plan.threads))};
    char *memory = sys_mmap((size_t)(2 * BLOCKS * BLOCK), 0);
    ops_cpu_kernels(b.kernels);
    p.kernel = b.kernels[OP_GEMM];
    enum status st = OK;
    if (!memory || !p.memory) {
        st = status_fail(ERR_NOMEM, "out of memory for measuring lanes");
        goto out;
    }
    memset(memory, 0, (size_t)(2 * BLOCKS * BLOCK));
    b.from = memory;
    b.to = memory + BLOCKS * BLOCK;
    struct worker update = {.b = &b, .work = update_blocks, .lane = LANE_HOST};
    TRY_GOTO(copies(&b, &p, h), out);
    TRY_GOTO(beside(&p, &update, &h->cores[LANE_HOST], NULL), out);
    TRY_GOTO(drives(&b, &p, path, h), out);
    h->host_memory = 2 * h->h2d;
out:
    free(p.memory);
    if (memory)
        munmap(memory, (size_t)(2 * BLOCKS * BLOCK));
    return st;
}
