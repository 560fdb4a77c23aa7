/* Checks the extent table against a map of pages that does no sorting. */
#include "offload/extents.h"

#include "base/rng.h"
#include "base/sys.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PAGES = 64, ROUNDS = 20000 };

/* Holds the owner of each page. A write is intact if it still owns all its pages and has finished. */
static struct {
    int64_t offset, bytes;
    uint64_t hash;
    int finished;
} writes[ROUNDS + 1];
static int owner[PAGES];

static int oracle(int64_t offset, int64_t bytes, uint64_t *hash)
{
    int w = owner[offset];
    if (w == 0 || writes[w].offset != offset || writes[w].bytes != bytes || !writes[w].finished)
        return 0;
    for (int64_t p = offset; p < offset + bytes; p++)
        if (owner[p] != w)
            return 0;
    *hash = writes[w].hash;
    return 1;
}

static void any_order_of_writes(void **state)
{
    (void)state;
    struct extents *e = extents_create();
    int found = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        uint32_t r[4];
        rng_block(1, 2, (uint64_t)i, r);
        int64_t offset = r[0] % PAGES, bytes = 1 + r[1] % (i % 3 ? 3 : 20);
        bytes = bytes < PAGES - offset ? bytes : PAGES - offset;
        writes[i].offset = offset;
        writes[i].bytes = bytes;
        writes[i].hash = (uint64_t)i * 77;
        assert_int_equal(extents_begin(e, offset, bytes), OK);
        for (int64_t p = 0; p < PAGES; p++) { /* a write that is partly overwritten is forgotten entirely */
            int w = owner[p];
            if (w && writes[w].offset < offset + bytes && offset < writes[w].offset + writes[w].bytes)
                owner[p] = 0;
        }
        for (int64_t p = offset; p < offset + bytes; p++)
            owner[p] = i;
        /* Some writes finish at once, some after the next write (which may have overwritten them), some never. */
        int late = i - (int)(r[2] % 3);
        if (late > 0 && !writes[late].finished) {
            extents_finish(e, writes[late].offset, writes[late].bytes, writes[late].hash);
            int w = owner[writes[late].offset];
            if (w == late)
                writes[late].finished = 1;
            else if (w && writes[w].offset == writes[late].offset && writes[w].bytes == writes[late].bytes) {
                writes[w].finished =
                    1; /* write w is of the same place: the store never begins it before the first write has finished */
                writes[w].hash = writes[late].hash;
            }
        }
        for (int64_t o = 0; o < PAGES; o++)
            for (int64_t n = 1; n <= 3 && o + n <= PAGES; n++) {
                uint64_t got = 1, want = 1;
                assert_int_equal(extents_find(e, o, n, &got), oracle(o, n, &want));
                assert_true(got == want);
                found += got != 1;
            }
    }
    assert_true(found > ROUNDS); /* otherwise the test would prove nothing */
    extents_destroy(e);
    extents_destroy(NULL);
}

static void running_out_of_memory(void **state)
{
    (void)state;
    uint64_t hash;
    sys_inject_clear();
    sys_inject(SYS_MALLOC, 1, ENOMEM);
    assert_null(extents_create());
    struct extents *e = extents_create();
    for (int64_t i = 0; i < 64; i++) {
        assert_int_equal(extents_begin(e, i * 4096, 100), OK);
        extents_finish(e, i * 4096, 100, (uint64_t)i);
    }
    sys_inject(SYS_MALLOC, 1, ENOMEM);
    assert_int_equal(extents_begin(e, 64 * 4096, 100), ERR_NOMEM);
    for (int64_t i = 0; i < 64; i++) {
        assert_true(extents_find(e, i * 4096, 100, &hash));
        assert_true(hash == (uint64_t)i);
    }
    assert_int_equal(extents_begin(e, 64 * 4096, 100), OK);
    extents_destroy(e);
    sys_inject_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_order_of_writes), cmocka_unit_test(running_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
