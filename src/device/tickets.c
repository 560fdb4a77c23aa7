/* The ticket board: atomic counters, one lock for sleepers, a condition for each. */
#include "device/tickets.h"

#include "base/clock.h"

#include <stdio.h>

#define SLEEP_NS 2000000 /* longest delay if a ticket moves between the caller's look and the lock */

void tickets_init(struct tickets *t)
{
    pthread_mutex_init(&t->lock, NULL);
    for (int l = 0; l < LANES; l++) {
        clock_cond_init(&t->sleeper[l].moved);
        t->sleeper[l].in = NULL;
        t->sleeper[l].any = 0;
        t->sleeper[l].can_go_on = NULL;
    }
    tickets_reset(t);
}

void tickets_destroy(struct tickets *t)
{
    for (int l = 0; l < LANES; l++)
        pthread_cond_destroy(&t->sleeper[l].moved);
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
    t->sleeper[lane].p = p;
    t->sleeper[lane].in = in;
    while (!atomic_load(&t->failed) && !tickets_ready(t, p, in))
        pthread_cond_wait(&t->sleeper[lane].moved, &t->lock);
    t->sleeper[lane].in = NULL;
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&t->waited_ns[lane], clock_ns() - began);
    return atomic_load(&t->failed) ? ERR_CANCELLED : OK;
}

enum status tickets_wait_until(struct tickets *t, enum lane lane, int (*can_go_on)(void *user), void *user)
{
    int64_t began = clock_ns();
    pthread_mutex_lock(&t->lock);
    t->sleeper[lane].can_go_on = can_go_on;
    t->sleeper[lane].user = user;
    while (!atomic_load(&t->failed) && !can_go_on(user))
        pthread_cond_wait(&t->sleeper[lane].moved, &t->lock);
    t->sleeper[lane].can_go_on = NULL;
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&t->waited_ns[lane], clock_ns() - began);
    return atomic_load(&t->failed) ? ERR_CANCELLED : OK;
}

void tickets_sleep(struct tickets *t, enum lane lane)
{
    int64_t until = clock_ns() + SLEEP_NS;
    pthread_mutex_lock(&t->lock);
    t->sleeper[lane].any = 1;
    if (!atomic_load(&t->failed))
        clock_cond_wait(&t->sleeper[lane].moved, &t->lock, until);
    t->sleeper[lane].any = 0;
    pthread_mutex_unlock(&t->lock);
}

int tickets_failed(const struct tickets *t)
{
    return atomic_load(&t->failed) != 0;
}

/* Frees the lock after a change, then wakes the sleepers that can go on. Woken under the lock they would sleep again at once, on
 * it, and be woken a second time when it is free. */
static void unlock_and_wake(struct tickets *t)
{
    const int failed = atomic_load(&t->failed);
    int wakes[LANES];
    for (int l = 0; l < LANES; l++)
        wakes[l] = t->sleeper[l].any || (t->sleeper[l].in && (failed || tickets_ready(t, t->sleeper[l].p, t->sleeper[l].in))) ||
                   (t->sleeper[l].can_go_on && (failed || t->sleeper[l].can_go_on(t->sleeper[l].user)));
    pthread_mutex_unlock(&t->lock);
    for (int l = 0; l < LANES; l++)
        if (wakes[l])
            pthread_cond_signal(&t->sleeper[l].moved);
}

void tickets_nudge(struct tickets *t)
{
    pthread_mutex_lock(&t->lock);
    unlock_and_wake(t);
}

void tickets_retire(struct tickets *t, enum lane lane, int64_t ticket)
{
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->done[lane], ticket);
    unlock_and_wake(t);
}

void tickets_fail(struct tickets *t, enum status code)
{
    pthread_mutex_lock(&t->lock);
    if (!atomic_load(&t->failed)) {
        snprintf(t->message, sizeof t->message, "%s", status_message());
        atomic_store(&t->failed, code);
    }
    unlock_and_wake(t);
}

enum status tickets_status(const struct tickets *t)
{
    enum status code = (enum status)atomic_load(&t->failed);
    return code == OK ? OK : status_fail(code, "%s", t->message);
}
