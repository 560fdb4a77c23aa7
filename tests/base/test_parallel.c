/* Tests parallel jobs: they run at the same time, each of them runs, and the caller gets the first failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/parallel.h"
#include "base/sys.h"

#include <errno.h>
#include <stdatomic.h>

enum { N = PARALLEL_MOST };

static atomic_int arrived;

struct job {
    int number, fails, meets; /* meets: 1: the job returns only when all jobs have started */
    int done;
};

static enum status work(void *arg)
{
    struct job *j = arg;
    atomic_fetch_add(&arrived, 1);
    while (j->meets && atomic_load(&arrived) < N)
        ;
    j->done = 1;
    return j->fails ? status_fail(ERR_INVALID, "job %d", j->number) : OK;
}

static void run_jobs(int meets, int fails_from, enum status want)
{
    struct job job[N];
    atomic_store(&arrived, 0);
    for (int i = 0; i < N; i++)
        job[i] = (struct job){i, i >= fails_from, meets, 0};
    assert_int_equal(parallel_run(work, job, sizeof *job, N), want);
    for (int i = 0; i < N; i++)
        assert_true(job[i].done);
}

static void all_at_once(void **state)
{
    (void)state;
    run_jobs(1, N, OK);
}

static void first_failure(void **state)
{
    (void)state;
    run_jobs(1, 3, ERR_INVALID);
    assert_string_equal(status_message(), "job 3");
    run_jobs(0, 0, ERR_INVALID);
    assert_string_equal(status_message(), "job 0");
}

/* Jobs for which no thread can be started run on the caller's thread. */
static void no_thread(void **state)
{
    (void)state;
    sys_inject(SYS_THREAD, 3, EAGAIN);
    run_jobs(0, N, OK);
    assert_true(sys_count(SYS_THREAD) > 3);
    sys_inject_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_at_once), cmocka_unit_test(first_failure),
                                       cmocka_unit_test(no_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
