/* Every path is used, and no rank goes without a path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/disk.h"
#include "offload/drives.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A path may be an existing directory, or a directory that the run creates. */
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
        const char *path[] = {"/tmp", cases[i].path};
        assert_int_equal(drives_check(path, 2, "absent-runs/one"), cases[i].says ? ERR_INVALID : OK);
        if (cases[i].says)
            assert_non_null(strstr(status_message(), cases[i].says));
    }
    assert_int_equal(drives_check(NULL, 0, "absent"), OK);
    char here[4096 + 16];
    assert_non_null(getcwd(here, 4096));
    strcat(here, "/absent-runs");
    const char *whole[] = {here};
    assert_int_equal(drives_check(whole, 1, "absent-runs/one"), OK);
    const char *twice[] = {".", "/tmp", "./."};
    assert_int_equal(drives_check(twice, 3, "absent"), ERR_INVALID);
    assert_non_null(strstr(status_message(), "nvme paths . and ./. are the same directory: name it once"));
}

/* Paths on one file system share its free space, however many they are. Paths on different file systems each have their own. */
static void room_is_counted_by_file_system(void **state)
{
    (void)state;
    char a[] = "/tmp/ltrain-drives-XXXXXX", b[] = "/tmp/ltrain-drives-XXXXXX", c[] = "/dev/shm/ltrain-drives-XXXXXX";
    assert_true(mkdtemp(a) && mkdtemp(b));
    int elsewhere = mkdtemp(c) != NULL;
    const char *path[] = {a, b, c};
    struct disk disk, other;
    int64_t none = 0, kept = (int64_t)3 << 30;
    int tightest;
    assert_int_equal(disk_look(a, &disk), 0);
    int64_t one = drives_room(path, 1, 1, a, &none, &tightest), two = drives_room(path, 2, 1, a, &none, &tightest),
            slack = 1 << 30; /* others write, too */
    assert_true(llabs(one - disk_room(&disk)) < slack && one > 4 * slack);
    assert_true(llabs(two - one) < slack);
    assert_true(llabs(drives_room(path, 2, 2, a, &none, &tightest) - one / 2) < slack); /* one path for each of two ranks */
    assert_true(llabs(drives_room(path, 2, 4, a, &none, &tightest) - one / 4) < slack); /* four ranks that use both paths */
    assert_true(llabs(drives_room(path, 0, 2, a, &none, &tightest) - one / 2) < slack && tightest == -1);
    assert_true(llabs(drives_room(path, 1, 1, a, &kept, &tightest) - (one - 3 * slack)) < slack);
    if (elsewhere && disk_look(c, &other) == 0 && other.id != disk.id) {
        int64_t least = disk_room(&other) < one / 2 ? disk_room(&other) : one / 2;
        assert_true(llabs(drives_room(path, 3, 1, a, &none, &tightest) - 3 * least) < 3 * slack);
        assert_int_equal(tightest, disk_room(&other) < one / 2 ? 2 : 0);
    }
    const char *absent = "/absent/drive";
    assert_true(drives_room(&absent, 1, 1, a, &none, &tightest) == INT64_MAX);
    rmdir(a);
    rmdir(b);
    rmdir(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_path_has_a_rank), cmocka_unit_test(the_map_is_said),
                                       cmocka_unit_test(paths_that_will_do), cmocka_unit_test(room_is_counted_by_file_system)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
