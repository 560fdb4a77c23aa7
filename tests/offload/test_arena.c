/* Tests arenas: alignment, canaries, pinning and the messages about pinning. */
#include "offload/arena.h"

#include "base/sys.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int clear(void **state)
{
    (void)state;
    sys_inject_clear();
    return 0;
}

static void sizes_and_alignment(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 4095, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 200 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = ARENA_PLAIN; kind <= ARENA_PINNED; kind++) {
            struct arena *a;
            assert_int_equal(arena_create("test arena", sizes[i], (enum arena_kind)kind, &a), OK);
            char *base = arena_base(a);
            assert_true((uintptr_t)base % 4096 == 0);
            assert_true(sizes[i] < 2 << 20 || (uintptr_t)base % (2 << 20) == 0);
            assert_true(arena_bytes(a) == sizes[i]);
            if (sizes[i] > 0) {
                assert_int_equal(base[0] | base[sizes[i] - 1] | base[sizes[i] / 2], 0);
                memset(base, 0xff, (size_t)sizes[i]);
            }
            assert_int_equal(arena_check(a), OK);
            arena_destroy(a);
        }
    arena_destroy(NULL);
}

static void an_overwrite_is_found_and_placed(void **state)
{
    (void)state;
    struct arena *a;
    static const int64_t at[] = {0, 5, 4095 + 4096};
    for (int i = 0; i < 3; i++) {
        char want[64];
        assert_int_equal(arena_create("host arena", 12289, ARENA_PLAIN, &a), OK);
        char *p = (char *)arena_base(a) + 12289 + at[i];
        if (i < 2 || at[i] < 4095 + 4096)
            *p = 0;
        else
            *--p = 0; /* overwrites the last canary before the guard page */
        assert_int_equal(arena_check(a), ERR_CORRUPT);
        assert_non_null(strstr(status_message(), "host arena"));
        snprintf(want, sizeof want, "%d bytes behind its end", (int)(p - (char *)arena_base(a) - 12289));
        assert_non_null(strstr(status_message(), want));
        arena_destroy(a);
    }
    assert_int_equal(arena_create("host arena", 4096, ARENA_PLAIN, &a), OK);
    ((char *)arena_base(a))[-3] = 0;
    assert_int_equal(arena_check(a), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "3 bytes before its start"));
    arena_destroy(a);
}

static void a_far_overwrite_faults(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        pid_t child = fork();
        if (child == 0) {
            struct arena *a;
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGSEGV, SIG_DFL); /* replaces cmocka's handler */
            if (arena_create("host arena", 8192, ARENA_PLAIN, &a) != OK)
                _exit(1);
            volatile char *p = arena_base(a);
            p[side ? 8192 + 4096 : -4097] = 1;
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        /* ASan handles the signal and exits with its own status. */
        assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 1));
    }
}

static void the_size_and_pinning_are_said(void **state)
{
    (void)state;
    struct arena *a;
    assert_int_equal(arena_create("host arena", 3 << 20, ARENA_PLAIN, &a), OK);
    assert_string_equal(arena_describe(a), "3.0 MiB");
    arena_destroy(a);
    sys_inject(SYS_MLOCK, 1, EIO);
    assert_int_equal(arena_create("host arena", 3 << 20, ARENA_PINNED, &a), OK);
    assert_non_null(strstr(arena_describe(a), "3.0 MiB, not pinned: Input/output error"));
    arena_destroy(a);
}

/* Runs as user nobody, who may lock only as much memory as the limit allows. */
static int low_memlock_child(void)
{
    struct rlimit limit = {64 << 10, 64 << 10};
    struct arena *a;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return 77;
    static char page[1 << 20];
    if (mlock(page, sizeof page) == 0) /* sanitizers make mlock a no-op */
        return 77;
    if (arena_create("host arena", 1 << 20, ARENA_PINNED, &a) != OK)
        return 1;
    int said = strstr(arena_describe(a), "not pinned: memlock limit is 64 KiB (ulimit -l)") != NULL;
    arena_destroy(a);
    return said ? 0 : 2;
}

static void a_low_memlock_limit_is_no_failure(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(low_memlock_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void every_failing_call_gives_a_sentence(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_MALLOC, SYS_MMAP, SYS_MLOCK, SYS_THREAD};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct arena *a;
        sys_inject_clear();
        assert_int_equal(arena_create("host arena", 130 << 20, ARENA_PINNED, &a), OK);
        arena_destroy(a);
        long n = sys_count(calls[i]);
        for (long nth = 1; nth <= n; nth++) {
            status_fail(OK, "%s", "");
            sys_inject_clear();
            sys_inject(calls[i], (int)nth, ENOMEM);
            enum status st = arena_create("host arena", 130 << 20, ARENA_PINNED, &a);
            if (st == OK) {
                assert_int_equal(arena_check(a), OK);
                arena_destroy(a);
            } else {
                assert_int_equal(st, ERR_NOMEM);
                assert_non_null(strstr(status_message(), "host arena"));
            }
            assert_true((st == OK) == (calls[i] == SYS_MLOCK || calls[i] == SYS_THREAD));
        }
    }
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct arena *a;
    assert_int_equal(arena_create("host arena", -1, ARENA_PLAIN, &a), ERR_INVALID);
    assert_int_equal(arena_create("host arena", INT64_MAX, ARENA_PLAIN, &a), ERR_INVALID);
    assert_int_equal(arena_create("host arena", 1LL << 60, ARENA_PLAIN, &a), ERR_NOMEM);
    assert_non_null(strstr(status_message(), "host arena"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_alignment),
        cmocka_unit_test(an_overwrite_is_found_and_placed),
        cmocka_unit_test(a_far_overwrite_faults),
        cmocka_unit_test_teardown(the_size_and_pinning_are_said, clear),
        cmocka_unit_test(a_low_memlock_limit_is_no_failure),
        cmocka_unit_test_teardown(every_failing_call_gives_a_sentence, clear),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
