/* Tests packing in order of time: buffers with overlapping lifetimes never share bytes, and the arena stays near the bytes live
 * at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "plan/schedule/pack_sweep.h"

#include <stdlib.h>

enum { N = 3000, BASE = 3 * BUFFER_ALIGN };

static int64_t padded(const struct buffer *b)
{
    return round_up(b->bytes, BUFFER_ALIGN);
}

static void check(struct buffer *b, double most)
{
    int order[N];
    int64_t live = 0, top, highest = BASE;
    for (int i = 0; i < N; i++)
        order[i] = i;
    for (int i = 0; i < N; i++) {
        int64_t now = 0;
        for (int k = 0; k < N; k++)
            if (b[k].t0 <= b[i].t0 && b[i].t0 < b[k].t1)
                now += padded(&b[k]);
        live = max_i64(live, now);
    }
    int *moment = pack_moments(b, order, N);
    assert_non_null(moment);
    top = pack_sweep(b, order, moment, N, BASE, BASE + live, BASE + live);
    free(moment);
    for (int i = 0; i < N; i++) {
        assert_true(b[i].address >= BASE && b[i].address % BUFFER_ALIGN == 0);
        highest = max_i64(highest, b[i].address + padded(&b[i]));
        for (int k = 0; k < N; k++) {
            if (k < i && b[k].t0 < b[i].t1 && b[i].t0 < b[k].t1)
                assert_true(b[k].address + padded(&b[k]) <= b[i].address || b[i].address + padded(&b[i]) <= b[k].address);
        }
    }
    assert_int_equal(top, highest);
    assert_true((double)(top - BASE) <= most * (double)live);
}

/* A step's usual pattern packs well: buffers kept from the forward pass to the backward pass, and short-lived ones between. */
static void nested(void **state)
{
    static struct buffer b[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        int kept = i % 3 == 0;
        double t0 = i, t1 = kept ? 2 * N - i : i + 2;
        b[i] = (struct buffer){.bytes = kept ? 40000 : 100000, .t0 = t0, .t1 = t1};
    }
    check(b, 1.02);
}

/* Any sizes and lifetimes pack well: best fit in order of time is within about a third. */
static void any(void **state)
{
    static struct buffer b[N];
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        for (int i = 0; i < N; i++) {
            double t0 = (double)rng_below(seed, 1, (uint64_t)i, 10000);
            b[i] = (struct buffer){.bytes = 1 + (int64_t)rng_below(seed, 2, (uint64_t)i, 1 << 20),
                                   .t0 = t0,
                                   .t1 = t0 + 1 + (double)rng_below(seed, 3, (uint64_t)i, 300)};
        }
        check(b, 1.4);
    }
}

/* Every 50th buffer is placed first, one above the other; the others are packed around these, even if these begin later. */
static void around(void **state)
{
    static struct buffer b[N];
    int order[N], placed[N / 50];
    int64_t address[N / 50], top = BASE, highest = BASE, end;
    (void)state;
    for (int i = 0; i < N; i++) {
        double t0 = (double)rng_below(7, 1, (uint64_t)i, 1000);
        b[i] = (struct buffer){.bytes = 1 + (int64_t)rng_below(7, 2, (uint64_t)i, 1 << 20),
                               .t0 = t0,
                               .t1 = t0 + 1 + (double)rng_below(7, 3, (uint64_t)i, i % 50 ? 30 : 300)};
        order[i] = i;
    }
    for (int k = 0; k < N / 50; k++) {
        placed[k] = 50 * k;
        address[k] = top;
        top += padded(&b[50 * k]);
    }
    int *moment = pack_moments(b, order, N);
    assert_non_null(moment);
    end = pack_sweep_around(b, order, moment, N, BASE, BASE, INT64_MAX, placed, address, N / 50);
    for (int k = 0; k < N / 50; k++)
        assert_int_equal(b[50 * k].address, address[k]);
    for (int i = 0; i < N; i++) {
        highest = max_i64(highest, b[i].address + padded(&b[i]));
        assert_true(b[i].address >= BASE && b[i].address % BUFFER_ALIGN == 0);
        for (int k = 0; k < i; k++)
            if (b[k].t0 < b[i].t1 && b[i].t0 < b[k].t1)
                assert_true(b[k].address + padded(&b[k]) <= b[i].address || b[i].address + padded(&b[i]) <= b[k].address);
    }
    assert_int_equal(end, highest);
    assert_int_equal(pack_sweep_around(b, order, moment, N, BASE, BASE, highest / 2, placed, address, 0), highest / 2);
    free(moment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nested), cmocka_unit_test(any), cmocka_unit_test(around)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
