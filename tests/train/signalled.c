/* Two ranks of which one takes signals as requests before the other does: `signalled HOW FILE`. Rank 1 gets SIGTERM as soon as it
 * takes requests, and makes FILE; then rank 0 ends by SIGTERM ("alone") or takes requests, too ("together"). */
#include "base/clock.h"
#include "train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int64_t MS = 1000000;
static const char *file;
static void (*early)(int);

static void (*get_handler(void))(int)
{
    struct sigaction now;
    sigaction(SIGTERM, NULL, &now);
    return now.sa_handler;
}

static void *signal_once_remembered(void *none)
{
    while (get_handler() == early)
        clock_sleep_ns(MS);
    kill(getpid(), SIGTERM);
    while (atomic_load(signals_first()) == 0)
        clock_sleep_ns(MS);
    FILE *f = fopen(file, "we");
    if (f)
        fclose(f);
    return none;
}

int main(int argc, char **argv)
{
    struct launch l;
    struct comm *c;
    pthread_t thread;
    int number = 0;
    if (argc != 3 || launch_detect(NULL, &l) != OK || comm_create(&l, 60, &c) != OK)
        _exit(2);
    file = argv[2];
    signals_join(c);
    signals_before_first_step(comm_rank(c) == 0);
    early = get_handler();
    if (comm_rank(c) == 1 && pthread_create(&thread, NULL, signal_once_remembered, NULL) != 0)
        _exit(2);
    while (comm_rank(c) == 0 && access(file, F_OK) != 0)
        clock_sleep_ns(MS);
    if (comm_rank(c) == 0 && strcmp(argv[1], "alone") == 0)
        raise(SIGTERM);
    enum status st = signals_stop_run(c, STOP_NOW);
    if (st == OK)
        st = signals_agree(c, &number);
    printf("rank %d: signal %d: %s\n", comm_rank(c), number, st == OK ? "goes on" : status_message());
    fflush(stdout);
    if (comm_rank(c) == 1)
        pthread_join(thread, NULL);
    comm_destroy(c);
    if (st != OK)
        _exit(1);
    return 0;
}
