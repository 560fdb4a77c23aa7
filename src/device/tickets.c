/* The ticket board: atomic counters, one lock and condition for those who must sleep. */
#include "device/tickets.h"

#include "base/clock.h"

#include <stdio.h>
#include <time.h>

void tickets_init(struct tickets *t)
{
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->moved, NULL);
    tickets_reset(t);
}

void tickets_destroy(struct tickets *t)
{
    pthread_cond_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
}

void tickets_reset(struct tickets *t)
{
    for (int l = 0; l < LANES; l++) {
        atomic_store(&t->done[l], 0);
        atomic_store(&t->waited_ns[l], 0);
    }
    atomic_store(&t->failed, 0);
}

int tickets_ready(const struct tickets *t, const struct program *p, const struct instr *in)
{
    for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
        if (atomic_load(&t->done[w->lane]) < w->ticket)
            return 0;
    return 1;
}

enum status tickets_wait(struct tickets *t, enum lane lane, const struct program *p, const struct instr *in)
{
    if (tickets_ready(t, p, in) && !atomic_load(&t->failed))
        return OK;
    int64_t began = clock_ns();
    pthread_mutex_lock(&t->lock);
    while (!atomic_load(&t->failed) && !tickets_ready(t, p, in))
        pthread_cond_wait(&t->moved, &t->lock);
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&t->waited_ns[lane], clock_ns() - began);
    return atomic_load(&t->failed) ? ERR_CANCELLED : OK;
}

void tickets_sleep(struct tickets *t)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000; /* what moved between the caller's look and the lock costs no more than this */
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&t->lock);
    if (!atomic_load(&t->failed))
        pthread_cond_timedwait(&t->moved, &t->lock, &until);
    pthread_mutex_unlock(&t->lock);
}

int tickets_failed(const struct tickets *t)
{
    return atomic_load(&t->failed) != 0;
}

void tickets_retire(struct tickets *t, enum lane lane, int64_t ticket)
{
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->done[lane], ticket);
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

void tickets_fail(struct tickets *t, enum status code)
{
    pthread_mutex_lock(&t->lock);
    if (!atomic_load(&t->failed)) {
        snprintf(t->message, sizeof t->message, "%s", status_message());
        atomic_store(&t->failed, code);
    }
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

enum status tickets_status(const struct tickets *t)
{
    enum status code = (enum status)atomic_load(&t->failed);
    return code == OK ? OK : status_fail(code, "%s", t->message);
}
