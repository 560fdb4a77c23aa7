/* Timed waits end by the monotonic clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

/* A condition that took the time for wall clock time, by which it lies in 1970, would return at once. */
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
    clock_cond_wait(&c, &lock, until); /* no wait for a time that has passed */
    pthread_mutex_unlock(&lock);
    assert_true(waits < 100); /* spurious wake-ups are few */
    pthread_cond_destroy(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wait_ends_no_earlier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
