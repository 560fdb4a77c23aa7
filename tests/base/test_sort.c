/* Tests the radix sort against its definition: ascending, stable, and with the same entries. */
#include "base/num.h"
#include "base/rng.h"
#include "base/sort.h"
#include "base/sys.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 5000 };

/* Returns one of few values, so that many keys are equal; they have both signs and many magnitudes. */
static double key_at(uint64_t seed, int i)
{
    static const double values[] = {0, -0.0, 1, -1, 1e-300, -1e-300, 1e300, -1e300, 0.1, 3.5e5, 3.5e5 + 1e-9, -42};
    uint64_t pick = rng_below(seed, 1, (uint64_t)i, 40);
    return pick < 12 ? values[pick] : (double)rng_below(seed, 2, (uint64_t)i, 100) - 50;
}

static void order_is_ascending_and_stable(void **state)
{
    (void)state;
    static const int sizes[] = {0, 1, 2, 3, 100, 2047, 2049, MOST};
    static double key[MOST];
    static int index[MOST], place[MOST];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        for (int i = 0; i < n; i++) {
            key[i] = key_at(k, i);
            index[i] = place[n - 1 - i] = n - 1 - i;
        }
        for (int i = 0; i < n; i++)
            place[index[i]] = i;
        assert_true(sort_by_key(key, index, n));
        for (int i = 1; i < n; i++) {
            assert_true(key[index[i - 1]] <= key[index[i]]);
            if (key[index[i - 1]] == key[index[i]])
                assert_true(place[index[i - 1]] < place[index[i]]);
        }
        for (int i = 0; i < n; i++) { /* each entry once */
            assert_in_range(place[index[i]], 0, n - 1);
            place[index[i]] = -1;
        }
    }
}

/* Sorts keys as many as the times of a schedule, some of them neighbouring doubles, in ascending order and stably. */
static void times_are_ascending_and_stable(void **state)
{
    (void)state;
    static double key[MOST];
    static int index[MOST];
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (int i = 0; i < MOST; i++) {
            index[i] = i;
            key[i] = 1e-3 * (double)rng_below(seed, 1, (uint64_t)i, 1 << (4 + 8 * seed));
            for (uint64_t n = rng_below(seed, 2, (uint64_t)i, 8); n > 5; n--)
                key[i] = nextafter(key[i], 1e9);
        }
        assert_true(sort_by_key(key, index, MOST));
        for (int i = 1; i < MOST; i++)
            assert_true(key[index[i - 1]] < key[index[i]] || (key[index[i - 1]] == key[index[i]] && index[i - 1] < index[i]));
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void integers_are_as_qsort_has_them(void **state)
{
    (void)state;
    static int64_t got[MOST], want[MOST];
    static const uint64_t ranges[] = {1, 3, 1 << 20, (uint64_t)1 << 45, UINT64_MAX};
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++)
        for (int n = 0; n <= MOST; n = 3 * n + 1) {
            for (int i = 0; i < n; i++)
                got[i] = want[i] = (int64_t)rng_below(k, (uint64_t)n, (uint64_t)i, ranges[k]) - (k % 2 ? 2 : 0);
            qsort(want, (size_t)n, sizeof *want, compare);
            assert_true(sort_int64(got, n));
            assert_memory_equal(got, want, sizeof *got * (size_t)n);
        }
}

static void out_of_memory_leaves_the_order(void **state)
{
    (void)state;
    static const double key[] = {3, 1, 2};
    for (int nth = 1; nth <= 3; nth++) {
        int index[] = {0, 1, 2};
        sys_inject(SYS_MALLOC, nth, 12);
        assert_false(sort_by_key(key, index, 3));
        sys_inject_clear();
        assert_int_equal(index[0], 0);
        assert_int_equal(index[2], 2);
    }
    for (int nth = 1; nth <= 2; nth++) {
        int64_t at[] = {3, 1, 2};
        sys_inject(SYS_MALLOC, nth, 12);
        assert_false(sort_int64(at, 3));
        sys_inject_clear();
        assert_int_equal(at[0], 3);
        assert_int_equal(at[2], 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_ascending_and_stable),
        cmocka_unit_test(times_are_ascending_and_stable),
        cmocka_unit_test(integers_are_as_qsort_has_them),
        cmocka_unit_test(out_of_memory_leaves_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
