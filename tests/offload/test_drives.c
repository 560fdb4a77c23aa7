/* Every path is used, and no rank goes without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "offload/drives.h"

#include <string.h>

static void each_path_has_a_rank(void **state)
{
    (void)state;
    for (int paths = 1; paths <= 9; paths++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            int users[9] = {0}, index[9], fewest = 99, most = 0;
            for (int r = 0; r < ranks; r++) {
                int n = drives_of_rank(paths, r, ranks, index);
                fewest = n < fewest ? n : fewest;
                most = n > most ? n : most;
                for (int i = 0; i < n; i++) {
                    assert_true(index[i] >= 0 && index[i] < paths && (i == 0 || index[i] > index[i - 1]));
                    users[index[i]]++;
                }
            }
            assert_true(fewest >= 1 && most - fewest <= 1);
            for (int p = 0; p < paths; p++)
                assert_int_equal(users[p], paths >= ranks ? 1 : ranks);
        }
    int index[8];
    assert_int_equal(drives_of_rank(8, 1, 4, index), 2);
    assert_true(index[0] == 1 && index[1] == 5);
}

static void the_map_is_said(void **state)
{
    (void)state;
    char text[160];
    assert_string_equal(drives_describe(3, 1, text, sizeof text), "");
    assert_string_equal(drives_describe(0, 4, text, sizeof text), "");
    assert_non_null(
        strstr(drives_describe(1, 4, text, sizeof text), "each of the 4 ranks of a host stripes over the one nvme path"));
    assert_non_null(strstr(drives_describe(3, 4, text, sizeof text), "stripes over all nvme paths"));
    assert_non_null(strstr(drives_describe(4, 4, text, sizeof text), "the n-th of 4 nvme paths to itself"));
    assert_non_null(strstr(drives_describe(8, 4, text, sizeof text), "every 4-th to itself"));
}

/* A directory, or one that the run makes. */
static void paths_that_will_do(void **state)
{
    (void)state;
    static const struct {
        const char *path, *says;
    } cases[] = {{".", NULL},
                 {"/dev/null", "nvme path /dev/null: Not a directory"},
                 {"absent", "nvme path absent: No such file"},
                 {"absent-runs/one", NULL},
                 {"absent-runs//", NULL},
                 {"absent-runs/o", "No such file"},
                 {"absent-runs/one/more", "No such file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path[] = {".", cases[i].path};
        assert_int_equal(drives_check(path, 2, "absent-runs/one"), cases[i].says ? ERR_INVALID : OK);
        if (cases[i].says)
            assert_non_null(strstr(status_message(), cases[i].says));
    }
    assert_int_equal(drives_check(NULL, 0, "absent"), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_path_has_a_rank), cmocka_unit_test(the_map_is_said),
                                       cmocka_unit_test(paths_that_will_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
