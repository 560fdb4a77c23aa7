/* Shares of ranks tile the elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/comm.h"

static void self_is_alone(void **state)
{
    (void)state;
    struct comm c = comm_self();
    assert_int_equal(c.rank, 0);
    assert_int_equal(c.size, 1);
}

static void shares_tile(void **state)
{
    (void)state;
    static const int64_t n[] = {0, 1, 7, 64, 1000, 4097}, grain[] = {1, 3, 64};
    for (int i = 0; i < 6; i++)
        for (int g = 0; g < 3; g++)
            for (int size = 1; size <= 9; size++) {
                int64_t next = 0, first, count;
                for (int rank = 0; rank < size; rank++) {
                    comm_share(n[i], grain[g], rank, size, &first, &count);
                    assert_int_equal(first, next);
                    assert_true(count >= 0 && (first % grain[g] == 0 || first == n[i]));
                    next = first + count;
                }
                assert_int_equal(next, n[i]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(self_is_alone), cmocka_unit_test(shares_tile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
