/* Runs a test on one core: `one_core PROGRAM [ARGUMENT...]`. Lanes and ranks wake each other at every instruction, which takes a third
 * more of the processors' time across cores. LTRAIN_TEST_ALL_CORES leaves the test all cores, as tools/test.sh does for sanitizers. */
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST = 64 /* tests of one core */ };

/* Binds a socket to a name that only one process of this machine can have; the test keeps the socket until it ends. Returns 1 if the
 * name was free. */
static int take(int core, int turn)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ltrain-test-core-%d-%d", core, turn);
    const int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (s < 0)
        return 0;
    if (bind(s, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
        return 1;
    close(s);
    return 0;
}

/* Moves this process to the core that has the fewest tests. */
static void choose_core(void)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (int turn = 0; turn < MOST; turn++)
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &all) && take(core, turn)) {
                CPU_ZERO(&one);
                CPU_SET(core, &one);
                sched_setaffinity(0, sizeof one, &one);
                return;
            }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: one_core PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (!getenv("LTRAIN_TEST_ALL_CORES"))
        choose_core();
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}
