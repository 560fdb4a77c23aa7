/* Threads that run one job each. */
#include "base/parallel.h"

#include "base/sys.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

struct runner {
    enum status (*run)(void *job);
    void *job;
    pthread_t thread;
    int started;
    enum status st;
    char message[1024]; /* message of the job's failure, as status messages belong to threads */
};

static void *run_job(void *arg)
{
    struct runner *r = arg;
    r->st = r->run(r->job);
    if (r->st != OK)
        snprintf(r->message, sizeof r->message, "%s", status_message());
    return NULL;
}

enum status parallel_run(enum status (*run)(void *job), void *jobs, size_t size, int n)
{
    struct runner runner[PARALLEL_MOST];
    assert(n <= PARALLEL_MOST);
    for (int i = 0; i < n; i++) {
        struct runner *r = &runner[i];
        r->run = run;
        r->job = (char *)jobs + (size_t)i * size;
        r->started = i > 0 && sys_thread(&r->thread, run_job, r) == 0;
    }
    for (int i = 0; i < n; i++)
        if (!runner[i].started)
            run_job(&runner[i]);
    for (int i = 0; i < n; i++)
        if (runner[i].started)
            pthread_join(runner[i].thread, NULL);
    for (int i = 0; i < n; i++)
        if (runner[i].st != OK)
            return status_fail(runner[i].st, "%s", runner[i].message);
    return OK;
}
