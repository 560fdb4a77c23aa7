/* Tests Philox with known answers, and the properties on which callers rely. */
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Random123 kat_vectors, philox4x32 10 rounds. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, index;
        uint32_t want[4];
    } kat[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t got[4];
        rng_block(kat[i].seed, kat[i].stream, kat[i].index, got);
        assert_memory_equal(got, kat[i].want, sizeof got);
    }
}

static void below_stays_below_and_reaches_all(void **state)
{
    (void)state;
    int seen[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) {
        uint64_t x = rng_below(1, 2, i, 7);
        assert_true(x < 7);
        seen[x]++;
        assert_true(rng_below(1, 2, i, 1) == 0);
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150); /* 1000 expected, sigma 29 */
}

/* An element's value does not depend on which range of elements is drawn together with it. */
static void normals_do_not_depend_on_the_portion(void **state)
{
    (void)state;
    enum { N = 1000 };
    float all[N], part[N];
    rng_normals(5, 6, 0, N, all);
    for (uint64_t first = 0; first < 10; first++)
        for (int64_t n = 1; n < 10; n++) {
            rng_normals(5, 6, first, n, part);
            assert_memory_equal(part, all + first, (size_t)n * sizeof *part);
        }
}

static void normals_are_standard(void **state)
{
    (void)state;
    enum { N = 100000 };
    static float x[N];
    rng_normals(1, rng_stream("weights"), 0, N, x);
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double s = (double)x[i] * (double)x[i];
        assert_true(isfinite(x[i]));
        sum += (double)x[i];
        squares += s;
        fourth += s * s;
    }
    assert_true(fabs(sum / N) < 0.016);         /* five sigma: 5 / sqrt(N) */
    assert_true(fabs(squares / N - 1) < 0.023); /* 5 * sqrt(2 / N) */
    assert_true(fabs(fourth / N - 3) < 0.16);   /* 5 * sqrt(96 / N) */
}

static void streams_differ(void **state)
{
    (void)state;
    assert_true(rng_stream("") == 0xcbf29ce484222325ull);
    assert_true(rng_stream("a") == 0xaf63dc4c8601ec8cull);
    assert_true(rng_stream("layer.0") != rng_stream("layer.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(below_stays_below_and_reaches_all),
        cmocka_unit_test(normals_do_not_depend_on_the_portion),
        cmocka_unit_test(normals_are_standard),
        cmocka_unit_test(streams_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
