/* Tests that stopped ranks are distinguished from dead ranks and from ranks that answer, and that one rank names each of them
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/process.h"
#include "comm/state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 5, ME = 2, CHILD = 3 };
static const int64_t SECOND = 1000000000;

static int asked[RANKS]; /* number of questions sent to each rank */
static struct notice *into;
static struct comm c;
static FILE *said;
static int own_stderr;
static off_t at; /* bytes of the stderr file that were read so far */

enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    (void)launch, (void)timeout_seconds, (void)out;
    return OK;
}

void wire_destroy(struct wire *w, double finalize_seconds)
{
    (void)w, (void)finalize_seconds;
}

enum status wire_reserve(struct wire *w, enum channel channel, int slots)
{
    (void)w, (void)channel, (void)slots;
    return OK;
}

enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    (void)w, (void)channel, (void)slot, (void)bytes;
    asked[to] += ((const struct notice *)data)->status == NOTICE_ASKS;
    return OK;
}

enum status wire_recv(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    (void)w, (void)channel, (void)slot, (void)from, (void)bytes;
    into = data;
    return OK;
}

int wire_in_use(const struct wire *w, enum channel channel, int slot)
{
    (void)w, (void)channel, (void)slot;
    return 0;
}

enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    (void)w, (void)channel, (void)events;
    *n = 0;
    return OK;
}

const char *wire_starting(void)
{
    return "";
}

unsigned wire_calls(void)
{
    return 0;
}

/* Places ranks 0 and 1 on host a, this rank and a child of this process on b, rank 4 on c. */
static int begin(void **state)
{
    (void)state;
    memset(&c, 0, sizeof c);
    memset(asked, 0, sizeof asked);
    c.launch = (struct launch){.rank = ME, .size = RANKS, .host = "b"};
    c.wire = (struct wire *)(void *)&c;
    c.hosts = 3;
    c.peer = calloc(RANKS, sizeof *c.peer);
    c.behind.place = calloc(RANKS, sizeof *c.behind.place);
    c.behind.out = calloc(2 * (size_t)RANKS, sizeof *c.behind.out);
    c.behind.silent = calloc(RANKS, 1);
    assert_true(c.peer && c.behind.place && c.behind.out && c.behind.silent);
    for (int r = 0; r < RANKS; r++)
        snprintf(c.peer[r].host, sizeof c.peer[r].host, "%s", r < 2 ? "a" : r < 4 ? "b" : "c");
    comm_set_timeout(&c, 600);
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    assert_true(pid > 0);
    c.peer[CHILD].here = 1;
    c.peer[CHILD].pid = pid;
    assert_true(process_state(pid, &c.peer[CHILD].born) != 0);
    said = tmpfile();
    at = 0;
    assert_non_null(said);
    fflush(stderr);
    own_stderr = dup(STDERR_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    return 0;
}

static int end(void **state)
{
    (void)state;
    dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    fclose(said);
    kill(c.peer[CHILD].pid, SIGKILL);
    waitpid(c.peer[CHILD].pid, NULL, 0);
    free(c.peer);
    free(c.behind.place);
    free(c.behind.out);
    free(c.behind.silent);
    return 0;
}

/* Returns everything that was written to stderr since the last call. */
static const char *heard(void)
{
    static char text[4096];
    const ssize_t n = pread(fileno(said), text, sizeof text - 1, at);
    assert_true(n >= 0);
    text[n] = 0;
    at += n;
    return text;
}

static void look(int times)
{
    for (int i = 0; i < times; i++)
        still_look(&c, CHILD, peer_look(&c.peer[CHILD]));
}

static void stop(int on)
{
    int status;
    assert_int_equal(kill(c.peer[CHILD].pid, on ? SIGSTOP : SIGCONT), 0);
    assert_int_equal(waitpid(c.peer[CHILD].pid, &status, on ? WUNTRACED : WCONTINUED), c.peer[CHILD].pid);
}

static void stopped_process_is_named(void **state)
{
    char want[200];
    enum peer_life life;
    (void)state;
    assert_int_equal(peer_look(&c.peer[CHILD]), PEER_ALIVE);
    stop(1);
    assert_int_equal(peer_look(&c.peer[CHILD]), PEER_STOPPED);
    assert_int_equal(still_rank(&c, &life), -1);
    look(20);
    assert_string_equal(heard(), ""); /* a short pause is not reported */
    assert_int_equal(still_rank(&c, &life), CHILD);
    assert_int_equal(life, PEER_STOPPED);
    look(40);
    snprintf(want, sizeof want,
             "ltrain: waiting for rank 3 on b, which is stopped (process %d, by a signal or a debugger), up to 600 s "
             "(--comm-timeout); kill -CONT %d lets it go on\n",
             (int)c.peer[CHILD].pid, (int)c.peer[CHILD].pid);
    assert_string_equal(heard(), want);
    stop(0);
    look(3);
    assert_string_equal(heard(), "ltrain: rank 3 on b goes on\n");
    assert_int_equal(still_rank(&c, &life), -1);
}

/* Other ranks of the host with lower numbers continue, and one of them names the stopped rank. */
static void one_rank_of_a_host_speaks(void **state)
{
    (void)state;
    c.peer[0].here = c.peer[1].here = 1; /* these two continue */
    stop(1);
    look(60);
    assert_string_equal(heard(), "");
    c.peer[0].stopped = c.peer[1].stopped = 1;
    look(1);
    assert_non_null(strstr(heard(), "waiting for rank 3 on b"));
}

static void debugger_is_no_death(void **state)
{
    int status;
    const pid_t pid = c.peer[CHILD].pid;
    (void)state;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0)
        skip();
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(peer_look(&c.peer[CHILD]), PEER_STOPPED); /* state 't' in /proc */
    assert_int_equal(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
}

/* A process that has ended and was not waited for does not count as stopped. */
static void zombie_is_dead(void **state)
{
    siginfo_t info;
    (void)state;
    stop(1);
    kill(c.peer[CHILD].pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)c.peer[CHILD].pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(peer_look(&c.peer[CHILD]), PEER_DEAD);
    assert_int_equal(peer_found(&c, PEER_DEAD), CHILD);
    c.peer[CHILD].born++; /* now another process has this pid */
    assert_int_equal(peer_look(&c.peer[CHILD]), PEER_DEAD);
}

/* Starts the next round of questions, after which the ranks in the bit set `answers` answer. */
static void ask(int64_t waited_seconds, int between, unsigned answers)
{
    const struct patience p = {.waited_ns = waited_seconds * SECOND, .between = between};
    c.behind.round_ns -= 6 * SECOND;
    assert_int_equal(still_ask(&c, &p), OK);
    for (int r = 0; r < RANKS; r++) {
        c.in = (struct notice){.status = NOTICE_ANSWERS, .origin = r};
        if (answers >> r & 1)
            assert_int_equal(behind_hear(&c), OK);
    }
}

#define OTHERS (1u << 0 | 1u << 1 | 1u << 4)

static void silent_hosts_are_named(void **state)
{
    enum peer_life life;
    (void)state;
    c.behind.round_ns = clock_ns();
    ask(1, 0, 0);
    assert_int_equal(asked[0], 0); /* too early */
    ask(20, 1, 0);
    assert_int_equal(asked[0], 0); /* between programs, ranks are asked only after a longer time */
    c.behind.round_ns = 0;
    ask(5, 0, OTHERS);
    assert_true(asked[0] == 1 && asked[1] == 1 && asked[4] == 1 && asked[CHILD] == 0 && asked[ME] == 0);
    ask(10, 0, OTHERS ^ 1u << 4);
    assert_string_equal(heard(), "");
    ask(15, 0, OTHERS ^ 1u << 4);
    assert_string_equal(heard(), ""); /* ranks 0 and 1 answer, and name the others */
    ask(20, 0, 0);
    ask(25, 0, 1u << 4);
    assert_string_equal(
        heard(),
        "ltrain: waiting for rank 0 on a and 2 others, which have not answered for 25 s (stopped or busy, or the host or its "
        "network stands still), up to 600 s (--comm-timeout)\n");
    assert_int_equal(still_rank(&c, &life), 0);
    assert_int_equal(life, PEER_ALIVE);
    ask(30, 0, 1u << 4);
    assert_string_equal(heard(), "ltrain: rank 4 on c goes on\n");
    ask(35, 0, 1u << 4);
    assert_string_equal(heard(), "");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(stopped_process_is_named), TEST(one_rank_of_a_host_speaks), TEST(debugger_is_no_death),
        TEST(zombie_is_dead),           TEST(silent_hosts_are_named),
    };
    return cmocka_run_group_tests_name("still", tests, NULL, NULL);
}
