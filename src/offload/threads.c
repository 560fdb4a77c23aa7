/* Moving blocks by pread and pwrite in a few threads, if io_uring is missing or forbidden (containers often deny it). */
#include "offload/io.h"

#include "base/sys.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define MAX_WORKERS 4

struct pool {
    struct io io;
    const int *fds;
    pthread_mutex_t lock;
    pthread_cond_t queued, finished;
    /* under the lock */
    struct io_op **queue; /* ring of `depth` */
    int depth, head, n_queued, stopping;
    /* without the lock */
    int n_workers;
    pthread_t workers[MAX_WORKERS];
};

static void *work(void *arg)
{
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->n_queued == 0 && !p->stopping)
            pthread_cond_wait(&p->queued, &p->lock);
        if (p->n_queued == 0)
            break;
        struct io_op *op = p->queue[p->head];
        p->head = (p->head + 1) % p->depth;
        p->n_queued--;
        pthread_mutex_unlock(&p->lock);

        ssize_t r = op->direction == STORE_READ ? sys_pread(p->fds[op->file], op->memory, op->bytes, op->at)
                                                : sys_pwrite(p->fds[op->file], op->memory, op->bytes, op->at);
        r = r < 0 ? -errno : r;

        pthread_mutex_lock(&p->lock);
        op->result = r;
        op->done = 1;
        pthread_cond_signal(&p->finished); /* at most one thread waits */
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start(struct io *io, struct io_op *op)
{
    struct pool *p = (struct pool *)io;
    pthread_mutex_lock(&p->lock);
    op->done = 0;
    p->queue[(p->head + p->n_queued++) % p->depth] = op;
    pthread_cond_signal(&p->queued);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static int wait_for(struct io *io, struct io_op *op)
{
    struct pool *p = (struct pool *)io;
    pthread_mutex_lock(&p->lock);
    while (!op->done)
        pthread_cond_wait(&p->finished, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static int peek(struct io *io, struct io_op *op)
{
    struct pool *p = (struct pool *)io;
    pthread_mutex_lock(&p->lock);
    int done = op->done;
    pthread_mutex_unlock(&p->lock);
    return done;
}

static void close_pool(struct io *io)
{
    struct pool *p = (struct pool *)io;
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    pthread_cond_broadcast(&p->queued);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i], NULL);
    pthread_cond_destroy(&p->queued);
    pthread_cond_destroy(&p->finished);
    pthread_mutex_destroy(&p->lock);
    free(p->queue);
    free(p);
}

int io_open_threads(const struct io_config *config, struct io **out)
{
    static const struct io_way way = {"threads", start, wait_for, peek, close_pool};
    struct pool *p = sys_calloc(1, sizeof *p);
    if (!p)
        return ENOMEM;
    p->queue = sys_calloc((size_t)config->depth, sizeof(struct io_op *));
    if (!p->queue) {
        free(p);
        return ENOMEM;
    }
    p->io.way = &way;
    p->fds = config->fds;
    p->depth = config->depth;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->queued, NULL);
    pthread_cond_init(&p->finished, NULL);
    int error = 0, want = config->depth < MAX_WORKERS ? config->depth : MAX_WORKERS;
    while (p->n_workers < want && (error = sys_thread(&p->workers[p->n_workers], work, p)) == 0)
        p->n_workers++;
    if (p->n_workers == 0) { /* fewer workers than wanted are only slower; with none, nothing would move */
        close_pool(&p->io);
        return error;
    }
    *out = &p->io;
    return 0;
}
