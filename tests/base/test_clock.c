/* Timed waits end by the monotonic clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

/* Checks that a timed wait does not return at once, as it would if its time were taken for a time of the wall clock, which is in
 * 1970 then. */
static void a_wait_ends_no_earlier(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c;
    int64_t until = clock_ns() + 20000000;
    int waits = 0;
    clock_cond_init(&c);
    pthread_mutex_lock(&lock);
    for (; clock_ns() < until; waits++)
        clock_cond_wait(&c, &lock, until);
    clock_cond_wait(&c, &lock, until); /* returns at once, since the time has passed */
    pthread_mutex_unlock(&lock);
    assert_true(waits < 100); /* spurious wake-ups are few */
    pthread_cond_destroy(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wait_ends_no_earlier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
