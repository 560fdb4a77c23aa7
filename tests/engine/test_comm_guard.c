/* Tests the order in which the guard of ranks ends a failed program: the board first, then at once the library's messages, for
 * which the other lanes' streams wait. No clock decides: the rank that made the failure known may not sleep, nor see lanes end,
 * before it aborts. clock_sleep_ns and tickets_sleep are wrapped (meson.build). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/comm_guard.h"

enum { MOST_NAPS = 50 }; /* naps after which lanes end without an abort, so that a guard which waits for them returns */

static struct tickets board;
static atomic_int others;
static int naps, looks, failing_look; /* naps: number of naps after the board has failed */
static enum { BY_LIBRARY, BY_LANE } cause;
static struct {
    int calls, board_failed, naps, others;
} aborted;

static void nap(void)
{
    if (tickets_failed(&board) && ++naps == MOST_NAPS)
        atomic_store(&others, 0);
}

void __real_clock_sleep_ns(int64_t ns);
void __wrap_clock_sleep_ns(int64_t ns);
void __wrap_clock_sleep_ns(int64_t ns)
{
    nap();
    __real_clock_sleep_ns(ns);
}

void __real_tickets_sleep(struct tickets *t, enum lane lane);
void __wrap_tickets_sleep(struct tickets *t, enum lane lane);
void __wrap_tickets_sleep(struct tickets *t, enum lane lane)
{
    nap();
    __real_tickets_sleep(t, lane);
}

static enum status health(struct backend *b, int *joined)
{
    (void)b;
    *joined = 1;
    if (++looks < failing_look)
        return OK;
    if (cause == BY_LIBRARY)
        return status_fail(ERR_IO, "the library has failed");
    tickets_fail(&board, status_fail(ERR_IO, "another lane has failed"));
    return OK;
}

/* Records the abort, without which the other lanes do not end. */
static void note_abort(struct backend *b)
{
    (void)b;
    aborted.calls++;
    aborted.board_failed = tickets_failed(&board);
    aborted.naps = naps;
    aborted.others = atomic_load(&others);
    atomic_store(&others, 0);
}

static void settle(void *user)
{
    (void)user;
}

static void run(int by, int look)
{
    struct backend b = {.name = "a library", .health = health, .abort = note_abort};
    struct program p = {.name = "tried"};
    struct comm *self;
    assert_int_equal(comm_create_self(&self), OK);
    struct exec_context x = {.backend = &b, .comm = self};
    struct comm_run r = {.context = &x, .program = &p, .tickets = &board, .others = &others, .settle = settle};
    tickets_init(&board);
    atomic_store(&others, 3);
    naps = looks = 0;
    failing_look = look;
    cause = by;
    aborted.calls = 0;
    assert_int_equal(comm_guard_run(&r), ERR_CANCELLED);
    assert_int_equal(aborted.calls, 1);
    assert_true(aborted.board_failed);
    assert_int_equal(aborted.naps, 0);
    assert_int_equal(aborted.others, 3);
    assert_int_equal(tickets_status(&board), ERR_IO);
    tickets_destroy(&board);
    comm_destroy(self);
}

static void a_failure_of_the_library_aborts_before_lanes_end(void **state)
{
    (void)state;
    run(BY_LIBRARY, 1);
    run(BY_LIBRARY, 3);
}

static void a_failure_of_another_lane_aborts_before_lanes_end(void **state)
{
    (void)state;
    run(BY_LANE, 1);
    run(BY_LANE, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_of_the_library_aborts_before_lanes_end),
        cmocka_unit_test(a_failure_of_another_lane_aborts_before_lanes_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
