/* Packing in order of time: buffers that live together never share bytes, and the arena stays near the bytes live at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "plan/pack.h"

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
    top = pack_sweep(b, order, moment, N, BASE, BASE + live);
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

/* What a step looks like: kept from the forward pass until the backward pass comes by, and short-lived ones between. */
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

/* Of any sizes and lifetimes: best fit in order of time is within about a third. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nested), cmocka_unit_test(any)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
