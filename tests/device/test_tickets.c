/* Tests tickets: waits end when tickets are retired or a lane fails; a throttled copy takes as long as its link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "device/copy.h"
#include "device/tickets.h"

enum { COUNT = 2000 };

/* Two lanes in lockstep: instruction i of H2D waits for instruction i of COMPUTE, and i + 1 of COMPUTE for i of H2D. */
struct pair {
    struct tickets board;
    int value;
    enum status st;
};

static enum status wait_for(struct tickets *t, enum lane waiting, enum lane lane, int64_t ticket)
{
    struct wait wait = {lane, (int32_t)ticket};
    struct instr in = {.n_waits = 1};
    return tickets_wait(t, waiting, &(struct program){.waits = &wait}, &in);
}

static void *follow(void *arg)
{
    struct pair *p = arg;
    for (int64_t i = 1; i <= COUNT; i++) {
        p->st = wait_for(&p->board, LANE_H2D, LANE_COMPUTE, i);
        if (p->st != OK)
            return NULL;
        p->value = -p->value; /* not atomic: tickets order the accesses */
        tickets_retire(&p->board, LANE_H2D, i);
    }
    return NULL;
}

static void lockstep(void **state)
{
    (void)state;
    struct pair p = {.value = 0};
    pthread_t thread;
    tickets_init(&p.board);
    assert_int_equal(pthread_create(&thread, NULL, follow, &p), 0);
    int want = 0;
    for (int64_t i = 1; i <= COUNT; i++) {
        assert_int_equal(wait_for(&p.board, LANE_COMPUTE, LANE_H2D, i - 1), OK);
        p.value++;
        want = -(want + 1);
        tickets_retire(&p.board, LANE_COMPUTE, i);
    }
    pthread_join(thread, NULL);
    assert_int_equal(p.st, OK);
    assert_int_equal(p.value, want);
    tickets_destroy(&p.board);
}

static void a_failure_wakes_everybody(void **state)
{
    (void)state;
    struct pair p = {.st = OK};
    pthread_t thread;
    tickets_init(&p.board);
    assert_int_equal(pthread_create(&thread, NULL, follow, &p), 0);
    tickets_fail(&p.board, status_fail(ERR_IO, "the first sentence"));
    tickets_fail(&p.board, status_fail(ERR_CORRUPT, "a later one"));
    pthread_join(thread, NULL);
    assert_int_equal(p.st, ERR_CANCELLED);
    assert_int_equal(tickets_status(&p.board), ERR_IO);
    assert_string_equal(status_message(), "the first sentence");
    tickets_reset(&p.board);
    assert_int_equal(tickets_status(&p.board), OK);
    struct wait wait = {LANE_READ, 0};
    struct instr in = {.n_waits = 1};
    assert_true(tickets_ready(&p.board, &(struct program){.waits = &wait}, &in));
    tickets_destroy(&p.board);
}

struct late {
    float *dst, *src;
    int64_t bytes;
};

static void *copy_slowly(void *arg)
{
    struct late *l = arg;
    device_copy(&(struct copy_link){.late = 1, .bytes_per_second = (double)l->bytes / 0.2}, l->dst, l->src, l->bytes);
    return NULL;
}

static void a_throttled_copy_takes_its_time(void **state)
{
    (void)state;
    static float src[1024], dst[1024];
    struct late l = {dst, src, sizeof src};
    for (int i = 0; i < 1024; i++)
        src[i] = (float)i;
    int64_t began = clock_ns();
    copy_slowly(&l);
    assert_true(clock_ns() - began >= 190000000); /* the link's 0.2 s are a lower bound, not a timing */
    assert_memory_equal(dst, src, sizeof src);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lockstep), cmocka_unit_test(a_failure_wakes_everybody),
                                       cmocka_unit_test(a_throttled_copy_takes_its_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
