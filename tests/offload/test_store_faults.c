/* Makes every wrapped system call of a store's life fail once, for every call, count and several errors. The store works in spite
 * of it or fails with a message, leaves nothing behind, and no read returns wrong bytes. */
#include "offload_test.h"

#include "offload/files.h"
#include "offload/io.h"
#include "scratch_place.h"

#include <errno.h>

enum { BLOCK = 8192, BYTES = 6 * BLOCK + 100, TOTAL = 16 * BLOCK };

static int count_fds(void)
{
    return count_files("/proc/self/fd");
}

/* Opens a store, writes, reads back and closes it. */
static enum status life(enum store_way way)
{
    static char from[BYTES] __attribute__((aligned(4096))), to[BYTES + 1] __attribute__((aligned(4096)));
    struct store_config c = config_of(2, TOTAL, way);
    struct store *s;
    enum status st;
    uint64_t ticket = 0;
    c.block = BLOCK;
    c.depth = 3;
    c.pinned = from;
    c.pinned_bytes = 4 * BLOCK;
    fill(from, BYTES, 6);
    memset(to, 0, sizeof to);
    TRY(store_open(&c, &s));
    TRY_GOTO(store_submit(s, STORE_WRITE, 0, from, BYTES, &ticket), close);
    TRY_GOTO(store_submit(s, STORE_WRITE, 8 * BLOCK, from + 1, BYTES - 1, &ticket), close);
    TRY_GOTO(store_wait(s, STORE_WRITE, ticket), close);
    TRY_GOTO(store_submit(s, STORE_READ, 8 * BLOCK, to + 1, BYTES - 1, &ticket), close);
    do
        TRY_GOTO(store_poll(s, STORE_READ, &ticket), close);
    while (ticket < 1 && usleep(50) == 0);
    assert_memory_equal(to + 1, from + 1, BYTES - 1);
    TRY_GOTO(store_read(s, 0, to, BYTES), close);
    assert_memory_equal(to, from, BYTES);
close:
    if (st != OK) { /* the direction that failed keeps failing with the same message; the other direction may be used */
        char before[1024], sentence[1024];
        snprintf(before, sizeof before, "%s", status_message());
        enum status w = store_wait(s, STORE_WRITE, 0), r = store_wait(s, STORE_READ, 0);
        snprintf(sentence, sizeof sentence, "%s", status_message());
        if (w != OK || r != OK)
            assert_string_equal(before, sentence);
    }
    store_close(s);
    return st;
}

static void sweep(enum store_way way, int *failures)
{
    static const int errors[] = {EIO, EINTR, SYS_SHORT, ENOSPC, EAGAIN, EINVAL, EPERM, ENOMEM};
    long counts[SYS_CALLS];
    int fds = count_fds();
    sys_inject_clear();
    if (life(way) != OK) {
        if (way == STORE_URING && strstr(status_message(), "io_uring is not available"))
            skip();
        fail_msg("%s", status_message());
    }
    for (int call = 0; call < SYS_CALLS; call++)
        counts[call] = sys_count((enum sys_call)call);
    for (int call = 0; call < SYS_CALLS; call++)
        for (long n = 1; n <= counts[call]; n++)
            for (int e = 0; e < (n <= 4 ? 8 : 3);
                 e++) { /* only three errors for later calls, which differ by where they fail, not by the error */
                status_fail(OK, "%s", "");
                sys_inject_clear();
                sys_inject((enum sys_call)call, (int)n, errors[e]);
                enum status st = life(way);
                sys_inject_clear();
                *failures += st != OK;
                if (st != OK && (strlen(status_message()) < 25 || strchr(status_message(), '\n')))
                    fail_msg("call %d, n %ld, error %d: '%s' is no sentence", call, n, errors[e], status_message());
                int transfer = call == SYS_PREAD || call == SYS_PWRITE || call == SYS_URING_CQE;
                if (transfer && (errors[e] == SYS_SHORT || errors[e] == EINTR || errors[e] == EAGAIN) && st != OK)
                    fail_msg("call %d, n %ld, error %d was not resumed: %s", call, n, errors[e], status_message());
                if (call == SYS_URING_CQE && errors[e] == EIO &&
                    (st != ERR_IO || !strstr(status_message(), "offset") ||
                     !strstr(status_message(), folder[0]) == !strstr(status_message(), folder[1]) ||
                     !strstr(status_message(), "Input/output error: check the drive")))
                    fail_msg("EIO of completion %ld: '%s'", n, status_message());
                if (count_fds() != fds)
                    fail_msg("call %d, n %ld, error %d leaks a descriptor", call, n, errors[e]);
                if (count_files(folder[0]) + count_files(folder[1]) > (call == SYS_UNLINK))
                    fail_msg("call %d, n %ld, error %d leaves a file", call, n, errors[e]);
            }
    /* opening a store removes the file that the last failed unlink left, which looks like a dead process's */
    assert_int_equal(life(way), OK);
}

static void every_call_with_io_uring(void **state)
{
    (void)state;
    int failures = 0;
    sweep(STORE_URING, &failures);
    assert_true(failures > 100);
}

static void every_call_with_threads(void **state)
{
    (void)state;
    int failures = 0;
    sweep(STORE_THREADS, &failures);
    assert_true(failures > 100);
}

static void every_call_of_the_fall_back(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_URING_SETUP, SYS_URING_BUFFERS};
    for (int c = 0; c < 2; c++)
        for (int n = 1; n <= 2; n++) {
            sys_inject_clear();
            sys_inject(calls[c], n, ENOMEM);
            assert_int_equal(life(STORE_AUTO), OK);
        }
}

/* Many more blocks are started than a ring has places for completions, before one is waited for: none is lost, and each has its bytes. */
static void completions_that_overflow(void **state)
{
    enum { OPS = 64, EACH = 4096 };
    static char data[2][OPS][EACH] __attribute__((aligned(4096)));
    struct io_op op[OPS];
    struct io *io;
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/ltrain-overflow-XXXXXX", scratch_place());
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && unlink(path) == 0 && ftruncate(fd, FILES_HEADER + OPS * EACH) == 0);
    if (io_open_uring(&(struct io_config){.fds = &fd, .n_fds = 1, .depth = 2}, &io) != 0)
        skip();
    for (int direction = STORE_WRITE; direction >= STORE_READ; direction--) {
        for (int i = 0; i < OPS; i++) {
            if (direction == STORE_WRITE)
                memset(data[STORE_WRITE][i], 1 + i, EACH);
            op[i] = (struct io_op){.direction = (enum store_direction)direction,
                                   .memory = data[direction][i],
                                   .bytes = EACH,
                                   .at = FILES_HEADER + i * EACH};
            assert_int_equal(io->way->start(io, &op[i]), 0);
        }
        for (int i = OPS - 1; i >= 0; i--) {
            assert_int_equal(io->way->wait(io, &op[i]), 0);
            assert_int_equal(op[i].result, EACH);
        }
    }
    assert_memory_equal(data[STORE_READ], data[STORE_WRITE], sizeof data[0]);
    io->way->close(io);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_call_with_io_uring, clear_faults),
        cmocka_unit_test_teardown(every_call_with_threads, clear_faults),
        cmocka_unit_test_teardown(every_call_of_the_fall_back, clear_faults),
        cmocka_unit_test(completions_that_overflow),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
