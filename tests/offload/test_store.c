/* Tests how the extent store moves bytes: sizes, alignments, both kinds of I/O (io_uring and threads), many in flight, both
 * directions at once, corruption. */
#include "offload_test.h"

#include "offload/arena.h"
#include "offload/store_lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static const enum store_way ways[] = {STORE_URING, STORE_THREADS};

/* Opens a store; skips a kind of I/O that this kernel denies. */
static int opened(const struct store_config *c, struct store **s)
{
    enum status st = store_open(c, s);
    if (st != OK && c->way == STORE_URING && strstr(status_message(), "io_uring is not available"))
        return 0;
    if (st != OK)
        fail_msg("%s", status_message());
    return 1;
}

/* Writes and reads an extent, and checks that bytes around the read's target are unchanged. */
static void round_trip(struct store *s, int64_t offset, int64_t bytes, int skew_write, int skew_read, uint64_t seed)
{
    enum { MARGIN = 64 };
    char *from = aligned_alloc(4096, (size_t)(bytes + 8192 + 4095) & ~(size_t)4095);
    char *to = aligned_alloc(4096, (size_t)(bytes + 3 * 4096 + 4095) & ~(size_t)4095);
    fill(from + skew_write, bytes, seed);
    memset(to, 0x5a, (size_t)bytes + 2 * 4096);
    assert_int_equal(store_write(s, offset, from + skew_write, bytes), OK);
    enum status st = store_read(s, offset, to + 4096 + skew_read, bytes);
    if (st != OK)
        fail_msg("%lld bytes at %lld: %s", (long long)bytes, (long long)offset, status_message());
    assert_memory_equal(from + skew_write, to + 4096 + skew_read, (size_t)bytes);
    for (int i = 0; i < MARGIN; i++) {
        assert_int_equal(to[4096 + skew_read - 1 - i], 0x5a);
        assert_int_equal(to[4096 + skew_read + bytes + i], 0x5a);
    }
    free(from);
    free(to);
}

static void all_sizes_and_alignments(void **state)
{
    (void)state;
    enum { BLOCK = 16384, TOTAL = 40 * BLOCK + 100 };
    static const int64_t sizes[] = {1,
                                    2,
                                    511,
                                    512,
                                    513,
                                    4095,
                                    4096,
                                    4097,
                                    8192,
                                    BLOCK - 1,
                                    BLOCK,
                                    BLOCK + 1,
                                    2 * BLOCK,
                                    3 * BLOCK + 5,
                                    7 * BLOCK,
                                    9 * BLOCK,
                                    100001,
                                    12 * BLOCK + 4096,
                                    12 * BLOCK - 1,
                                    20 * BLOCK + 512};
    static const int skews[] = {0, 1, 8, 64, 512, 513};
    for (int w = 0; w < 2; w++)
        for (int n = 1; n <= 3; n += 2) {
            struct store_config c = config_of(n, TOTAL, ways[w]);
            struct store *s;
            c.block = BLOCK;
            c.depth = 3;
            if (!opened(&c, &s))
                continue;
            uint64_t seed = 0;
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int k = 0; k < 6; k++) {
                    seed++;
                    int64_t room = (TOTAL - sizes[i]) / STORE_ALIGN;
                    int64_t offset = (int64_t)rng_below(1, 2, seed, (uint64_t)room + 1) * STORE_ALIGN;
                    round_trip(s, offset, sizes[i], skews[k], skews[seed % 6], seed);
                }
            round_trip(s, 0, TOTAL, 0, 1, 99);        /* the whole extent */
            round_trip(s, 40 * BLOCK, 100, 0, 0, 99); /* the extent's end, in a block that is not full */
            store_close(s);
            for (int i = 0; i < 3; i++)
                assert_int_equal(count_files(folder[i]), 0);
        }
}

/* Neighbouring extents do not disturb one another, whatever order they are written and read in. */
static void many_in_flight(void **state)
{
    (void)state;
    enum { N = 300, SLOT = 5 * STORE_ALIGN };
    static char from[N][SLOT], to[N][SLOT];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(3, (int64_t)N * SLOT, ways[w]);
        struct store *s;
        uint64_t ticket = 0, done = 0, tickets[N];
        int order[N];
        int64_t bytes[N];
        c.block = 2 * STORE_ALIGN;
        if (!opened(&c, &s))
            continue;
        for (int i = 0; i < N; i++)
            order[i] = i;
        for (int round = 0; round < 3; round++) {
            for (int i = N - 1; i > 0; i--) {
                int j = (int)rng_below(3, (uint64_t)round, (uint64_t)i, (uint64_t)i + 1), t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
            for (int i = 0; i < N; i++) {
                int x = order[i];
                bytes[x] = 1 + (int64_t)rng_below(4, (uint64_t)round, (uint64_t)x, SLOT);
                fill(from[x], bytes[x], (uint64_t)(x + 1000 * round));
                assert_int_equal(store_submit(s, STORE_WRITE, (int64_t)x * SLOT, from[x], bytes[x], &ticket), OK);
                assert_true(ticket == (uint64_t)(round * N + i + 1));
            }
            assert_int_equal(store_wait(s, STORE_WRITE, ticket), OK);
            assert_int_equal(store_poll(s, STORE_WRITE, &done), OK);
            assert_true(done == ticket);
            memset(to, 0, sizeof to);
            for (int i = 0; i < N; i++) {
                int x = order[N - 1 - i];
                assert_int_equal(store_submit(s, STORE_READ, (int64_t)x * SLOT, to[x], bytes[x], &tickets[x]), OK);
                if (i % 3 == 0) {
                    assert_int_equal(store_poll(s, STORE_READ, &done), OK);
                    assert_true(done <= tickets[x]);
                }
                if (i % 50 == 49) {
                    int y = order[N - 1 - i + 20];
                    assert_int_equal(store_wait(s, STORE_READ, tickets[y]), OK);
                    assert_memory_equal(from[y], to[y], (size_t)bytes[y]);
                }
            }
            do /* the reads are also finished by polling alone */
                assert_int_equal(store_poll(s, STORE_READ, &done), OK);
            while (done < tickets[order[0]] && usleep(100) == 0);
            for (int x = 0; x < N; x++)
                assert_memory_equal(from[x], to[x], (size_t)bytes[x]);
        }
        assert_int_equal(store_wait(s, STORE_READ, tickets[order[0]] + 1), ERR_INVALID);
        store_close(s);
    }
}

/* Several writes of the same place that are in flight together take effect in the order of submission. */
static void overlapping_writes_keep_their_order(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10 };
    static char from[20][BYTES], to[BYTES];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, 4 * BYTES, ways[w]);
        struct store *s;
        uint64_t ticket = 0;
        c.block = 8192;
        if (!opened(&c, &s))
            continue;
        for (int i = 0; i < 20; i++) {
            fill(from[i], BYTES, (uint64_t)i);
            assert_int_equal(store_submit(s, STORE_WRITE, i % 2 ? 4096 : 0, from[i], BYTES - 4096 * (i % 3), &ticket), OK);
        }
        assert_int_equal(store_wait(s, STORE_WRITE, ticket), OK);
        assert_int_equal(store_read(s, 4096, to, BYTES - 4096), OK); /* i = 19 */
        assert_memory_equal(from[19], to, BYTES - 4096);
        assert_int_equal(store_read(s, 0, to, BYTES), ERR_CORRUPT); /* overlapped by it */
        store_close(s);
    }
}

/* This order holds even if the first write has to be started again long after the second was submitted. */
static void an_interrupted_write_does_not_land_on_a_later_one(void **state)
{
    (void)state;
    static char from[2][8192] __attribute__((aligned(4096))), to[8192];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, 1 << 20, ways[w]);
        struct store *s;
        uint64_t ticket;
        if (!opened(&c, &s))
            continue;
        fill(from[0], 8192, 1);
        fill(from[1], 8192, 2);
        sys_inject(w ? SYS_PWRITE : SYS_URING_CQE, 1, EAGAIN);
        assert_int_equal(store_submit(s, STORE_WRITE, 4096, from[0], 8192, &ticket), OK);
        assert_int_equal(store_submit(s, STORE_WRITE, 4096, from[1], 8192, &ticket), OK);
        assert_int_equal(store_wait(s, STORE_WRITE, ticket), OK);
        assert_int_equal(store_read(s, 4096, to, 8192), OK);
        assert_memory_equal(to, from[1], 8192);
        store_close(s);
    }
}

/* After a failed read its memory belongs to the caller again, although later blocks were in flight. */
static void a_failure_leaves_nothing_in_flight(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20 };
    char *memory = aligned_alloc(4096, BYTES);
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, BYTES, ways[w]);
        struct store *s;
        uint64_t ticket;
        c.block = 2 << 20;
        c.depth = 16;
        if (!opened(&c, &s))
            continue;
        fill(memory, BYTES, 1);
        assert_int_equal(store_write(s, 0, memory, BYTES), OK);
        sys_inject(w ? SYS_PREAD : SYS_URING_CQE, 1, EIO);
        assert_int_equal(store_submit(s, STORE_READ, 0, memory, BYTES, &ticket), OK);
        assert_int_equal(store_wait(s, STORE_READ, ticket), ERR_IO);
        memset(memory, 0x5a, BYTES);
        store_close(s);
        for (int64_t i = 0; i < BYTES; i++)
            if (memory[i] != 0x5a)
                fail_msg("byte %lld was read after the failure", (long long)i);
    }
    free(memory);
}

static void what_was_not_written_cannot_be_read(void **state)
{
    (void)state;
    static char memory[16384];
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    struct store *s;
    uint64_t ticket;
    c.rank = 5;
    assert_true(opened(&c, &s));
    assert_int_equal(store_read(s, 0, memory, 4096), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "no extent of 4096 bytes at offset 0"));
    assert_non_null(strstr(status_message(), "rank 5"));
    assert_int_equal(store_write(s, 8192, memory, 8192), OK);
    assert_int_equal(store_read(s, 8192, memory, 4096), ERR_CORRUPT); /* no checksum is known for a part of an extent */
    assert_int_equal(store_read(s, 4096, memory, 8192), ERR_CORRUPT);
    assert_int_equal(store_read(s, 8192, memory, 8192), OK); /* the refused reads leave the store usable */
    assert_int_equal(store_write(s, 12288, memory, 1), OK);
    assert_int_equal(store_read(s, 8192, memory, 8192), ERR_CORRUPT); /* partly overwritten */
    assert_int_equal(store_read(s, 12288, memory, 1), OK);

    static const int64_t bad[][2] = {{1, 1},           {-4096, 1}, {0, 0}, {0, -1}, {1 << 20, 1}, {(1 << 20) - 4096, 4097},
                                     {4096, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int d = STORE_READ; d <= STORE_WRITE; d++)
            assert_int_equal(store_submit(s, (enum store_direction)d, bad[i][0], memory, bad[i][1], &ticket), ERR_INVALID);
    store_close(s);
}

/* A flipped bit anywhere in the file is found; the message has file, offset, rank and remedy. */
static void corruption_is_found(void **state)
{
    (void)state;
    enum { BLOCK = 8192, BYTES = 5 * BLOCK + 77 };
    static char memory[BYTES];
    for (int w = 0; w < 2; w++)
        for (int where = 0; where < 4; where++) {
            struct store_config c = config_of(1, 64 * BLOCK, ways[w]);
            struct store *s;
            char name[256], byte;
            static const int64_t at[] = {0, BLOCK + 4000, 3 * BLOCK, BYTES - 1};
            uint64_t good, bad;
            c.block = BLOCK;
            c.rank = 3;
            if (!opened(&c, &s))
                continue;
            fill(memory, BYTES, 8);
            assert_int_equal(store_write(s, 2 * BLOCK, memory, BYTES), OK);
            assert_int_equal(store_write(s, 20 * BLOCK, memory, BYTES), OK);
            store_file_name(folder[0], 3, getpid(), name);
            int fd = open(name, O_RDWR);
            assert_true(fd >= 0);
            off_t place = STORE_ALIGN + 2 * BLOCK + at[where];
            assert_int_equal(pread(fd, &byte, 1, place), 1);
            byte ^= 4;
            assert_int_equal(pwrite(fd, &byte, 1, place), 1);
            fsync(fd);
            close(fd);
            assert_int_equal(store_submit(s, STORE_READ, 20 * BLOCK, memory, BYTES, &good), OK);
            assert_int_equal(store_wait(s, STORE_READ, good), OK);
            enum status st = store_submit(s, STORE_READ, 2 * BLOCK, memory, BYTES, &bad);
            assert_int_equal(st == OK ? store_wait(s, STORE_READ, bad) : st, ERR_CORRUPT);
            static const char *const says[] = {"extent of 41037 bytes", "offset 16384", "rank 3",
                                               "does not hold what was written", "check the drive"};
            for (int i = 0; i < 5; i++)
                assert_non_null(strstr(status_message(), says[i]));
            assert_non_null(strstr(status_message(), name));
            assert_int_equal(store_wait(s, STORE_READ, good), ERR_CORRUPT); /* reads fail from now on; writes do not */
            assert_int_equal(store_write(s, 2 * BLOCK, memory, BYTES), OK);
            store_close(s);
        }
}

static void a_cut_file_is_found(void **state)
{
    (void)state;
    static char memory[32768];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, 1 << 20, ways[w]);
        struct store *s;
        char name[256];
        if (!opened(&c, &s))
            continue;
        assert_int_equal(store_write(s, 65536, memory, sizeof memory), OK);
        store_file_name(folder[0], 0, getpid(), name);
        assert_int_equal(truncate(name, STORE_ALIGN + 65536 + 8192), 0);
        assert_int_equal(store_read(s, 65536, memory, sizeof memory), ERR_CORRUPT);
        assert_non_null(strstr(status_message(), "ends before offset"));
        store_close(s);
    }
}

static void the_pinned_arena_is_registered(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    struct arena *a;
    struct store *s;
    static char plain[BYTES];
    assert_int_equal(arena_create("host arena", BYTES, ARENA_PINNED, &a), OK);
    struct store_config c = config_of(2, BYTES, STORE_AUTO);
    c.pinned = arena_base(a);
    c.pinned_bytes = BYTES;
    c.block = 256 << 10;
    assert_true(opened(&c, &s));
    char *pinned = arena_base(a);
    fill(pinned, BYTES, 3);
    memcpy(plain, pinned, BYTES);
    assert_int_equal(store_write(s, 0, pinned, BYTES / 2), OK);
    assert_int_equal(store_write(s, BYTES / 2, plain + BYTES / 2, BYTES / 2), OK);
    memset(pinned, 0, BYTES);
    assert_int_equal(store_read(s, 0, pinned + 4096, BYTES / 2), OK); /* read directly into pinned memory */
    assert_memory_equal(pinned + 4096, plain, BYTES / 2);
    assert_int_equal(store_read(s, BYTES / 2, pinned + 1, BYTES / 2), OK); /* read through a bounce buffer */
    assert_memory_equal(pinned + 1, plain + BYTES / 2, BYTES / 2);
    struct store_counters n;
    store_get_counters(s, &n);
    assert_true(n.read_bytes == BYTES && n.written_bytes == BYTES && n.read_ns > 0 && n.write_ns > 0);
    store_close(s);
    assert_int_equal(arena_check(a), OK);
    arena_destroy(a);
}

/* One thread writes while another reads what has already been written. */
enum { PIECES = 200, PIECE = 40000, PIECE_SPACE = 40960 };

static struct {
    struct store *s;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int written, failed;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void *writer(void *arg)
{
    char *memory = malloc((size_t)PIECES * PIECE);
    uint64_t ticket = 0, last = 0;
    for (int i = 0; i < PIECES; i++) {
        fill(memory + (size_t)i * PIECE, PIECE, (uint64_t)i);
        int bad = store_submit(shared.s, STORE_WRITE, (int64_t)i * PIECE_SPACE, memory + (size_t)i * PIECE, PIECE, &ticket) != OK;
        bad |= last && store_wait(shared.s, STORE_WRITE, last) != OK;
        pthread_mutex_lock(&shared.lock);
        shared.failed |= bad;
        shared.written = (int)last;
        pthread_cond_signal(&shared.moved);
        pthread_mutex_unlock(&shared.lock);
        last = ticket;
    }
    int bad = store_wait(shared.s, STORE_WRITE, last) != OK;
    pthread_mutex_lock(&shared.lock);
    shared.failed |= bad;
    shared.written = PIECES;
    pthread_cond_signal(&shared.moved);
    pthread_mutex_unlock(&shared.lock);
    free(memory);
    return arg;
}

static void both_directions_at_once(void **state)
{
    (void)state;
    static char want[PIECE], got[PIECE];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(3, (int64_t)PIECES * PIECE_SPACE, ways[w]);
        struct store_counters n;
        pthread_t t;
        c.block = 16384;
        shared.written = shared.failed = 0;
        if (!opened(&c, &shared.s))
            continue;
        assert_int_equal(pthread_create(&t, NULL, writer, NULL), 0);
        for (int i = 0; i < PIECES; i++) {
            pthread_mutex_lock(&shared.lock);
            while (shared.written <= i)
                pthread_cond_wait(&shared.moved, &shared.lock);
            assert_int_equal(shared.failed, 0);
            pthread_mutex_unlock(&shared.lock);
            fill(want, PIECE, (uint64_t)i);
            assert_int_equal(store_read(shared.s, (int64_t)i * PIECE_SPACE, got, PIECE), OK);
            assert_memory_equal(want, got, PIECE);
            store_get_counters(shared.s, &n);
        }
        pthread_join(t, NULL);
        store_get_counters(shared.s, &n);
        assert_true(n.read_bytes == (int64_t)PIECES * PIECE && n.written_bytes == n.read_bytes);
        store_close(shared.s);
    }
}

/* Once they are told to yield, writes use only a part of their window while a read is in flight, and all of it when the read has
 * ended. */
static void writes_yield_to_reads(void **state)
{
    (void)state;
    enum { BLOCK = 16384, BLOCKS = 10, LIMIT = 4 };
    static char memory[2][BLOCKS * BLOCK];
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, 2 * BLOCKS * BLOCK, ways[w]);
        struct store *s;
        uint64_t read, written;
        c.block = BLOCK;
        if (!opened(&c, &s))
            continue;
        const struct store_lane *l = &s->lanes[STORE_WRITE];
        assert_int_equal(store_write(s, 0, memory[0], BLOCK), OK);
        store_limit_writes(s, LIMIT);
        assert_int_equal(store_submit(s, STORE_READ, 0, memory[0], BLOCK, &read), OK);
        assert_int_equal(store_submit(s, STORE_WRITE, BLOCKS * BLOCK, memory[1], BLOCKS * BLOCK, &written), OK);
        assert_int_equal(l->tail - l->head, LIMIT);
        assert_int_equal(store_wait(s, STORE_READ, read), OK);
        assert_int_equal(store_wait(s, STORE_WRITE, written), OK);
        assert_int_equal(store_submit(s, STORE_WRITE, BLOCKS * BLOCK, memory[1], BLOCKS * BLOCK, &written), OK);
        assert_int_equal(l->tail - l->head, BLOCKS);
        assert_int_equal(store_wait(s, STORE_WRITE, written), OK);
        store_close(s);
    }
}

/* Memory may be freed after a failure or a close, since nothing is in flight then. (Otherwise ASan or the kernel would report
 * it.) */
static void closing_waits_for_what_is_in_flight(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    for (int w = 0; w < 2; w++) {
        struct store_config c = config_of(1, BYTES, ways[w]);
        struct store *s;
        uint64_t ticket;
        if (!opened(&c, &s))
            continue;
        char *memory = aligned_alloc(4096, BYTES);
        fill(memory, BYTES, 1);
        assert_int_equal(store_submit(s, STORE_WRITE, 0, memory, BYTES, &ticket), OK);
        store_close(s);
        free(memory);
    }
    store_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_and_alignments),
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(overlapping_writes_keep_their_order),
        cmocka_unit_test_teardown(an_interrupted_write_does_not_land_on_a_later_one, clear_faults),
        cmocka_unit_test_teardown(a_failure_leaves_nothing_in_flight, clear_faults),
        cmocka_unit_test(what_was_not_written_cannot_be_read),
        cmocka_unit_test(corruption_is_found),
        cmocka_unit_test(a_cut_file_is_found),
        cmocka_unit_test(the_pinned_arena_is_registered),
        cmocka_unit_test(both_directions_at_once),
        cmocka_unit_test(writes_yield_to_reads),
        cmocka_unit_test(closing_waits_for_what_is_in_flight),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
