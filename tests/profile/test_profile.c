/* Figures of a machine that are kept: found again, told from broken ones, replaced whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/sys.h"
#include "profile/profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char cache[] = "/tmp/ltrain-profile-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(cache) && setenv("XDG_CACHE_HOME", cache, 1) == 0 ? 0 : -1;
}

/* The one file that is kept; how many there are. */
static int kept(char path[512])
{
    char directory[64];
    int n = 0;
    snprintf(directory, sizeof directory, "%s/ltrain", cache);
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, 512, "%s/%.255s", directory, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static int leave(void **state)
{
    char path[512];
    (void)state;
    if (kept(path) == 1)
        unlink(path);
    snprintf(path, sizeof path, "%s/ltrain", cache);
    return rmdir(path) == 0 && rmdir(cache) == 0 ? 0 : -1;
}

static void kept_and_found(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2}, other = {.plan.threads = 3};
    struct hardware h, back;
    char path[512];
    int found = 7;
    hardware_assumed(&h);
    strcpy(h.source, "measured");
    h.cores[LANE_HOST] = 0.75;
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 0);
    assert_int_equal(profile_save(&s, &h), OK);
    assert_int_equal(kept(path), 1);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 1);
    assert_string_equal(back.source, "measured");
    assert_true(back.cpu && back.cores[LANE_HOST] == 0.75 && back.h2d == h.h2d);
    assert_int_equal(profile_load(&other, &back, &found), OK); /* measured with another number of threads */
    assert_int_equal(found, 0);
}

static void whole_or_not_at_all(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2};
    struct hardware h, back;
    char path[512];
    int found;
    hardware_assumed(&h);
    h.read = 7e9;
    sys_inject(SYS_RENAME, 1, ENOSPC);
    assert_int_equal(profile_save(&s, &h), ERR_IO);
    sys_inject_clear();
    assert_int_equal(kept(path), 1); /* the former one */
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_true(found == 1 && back.read != 7e9);
}

static void broken_ones(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2};
    struct hardware back;
    char path[512];
    int found;
    assert_int_equal(kept(path), 1);
    FILE *f = fopen(path, "r+");
    assert_true(f && fseek(f, -20, SEEK_END) == 0 && fputs("9", f) >= 0 && fclose(f) == 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
    struct hardware h;
    hardware_assumed(&h);
    assert_int_equal(profile_save(&s, &h), OK);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 1);
    assert_int_equal(truncate(path, 2000), 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept_and_found), cmocka_unit_test(whole_or_not_at_all),
                                       cmocka_unit_test(broken_ones)};
    return cmocka_run_group_tests(tests, enter, leave);
}
