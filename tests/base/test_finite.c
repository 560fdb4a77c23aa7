/* Tests finding the first value that is NaN or infinite, at any place. */
#include "base/finite.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N = 2100 }; /* two blocks and a part of one */

static void the_first_one_is_found(void **state)
{
    static float x[N];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i % 3 == 0 ? -FLT_MAX : i % 3 == 1 ? FLT_TRUE_MIN : 0.0f;
    assert_int_equal(finite_until(x, N), N);
    assert_int_equal(finite_until(x, 0), 0);
    for (int i = 0; i < N; i++) {
        float was = x[i];
        x[i] = bad[i % 3];
        assert_int_equal(finite_until(x, N), i);
        assert_int_equal(finite_until(x, i), i);
        x[i] = was;
    }
    x[7] = NAN;
    x[1500] = INFINITY;
    assert_int_equal(finite_until(x, N), 7);
    assert_string_equal(finite_word(x[7]), "NaN");
    assert_string_equal(finite_word(x[1500]), "Inf");
    assert_string_equal(finite_word(-INFINITY), "-Inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_one_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
