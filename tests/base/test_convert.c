/* Tests conversions against the definitions in base/num.h, and finding the first value that is not finite. */
#include "base/convert.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N = 65536, LENGTHS = 6 };
static const int length[LENGTHS] = {1, 1023, 1024, 1025, 4099, N};

/* Every bf16 value becomes the right fp32 value, in arrays of lengths around that of a chunk. */
static void halves_become_floats(void **state)
{
    static uint16_t raw[N];
    static float out[N];
    (void)state;
    for (int k = 0; k < LENGTHS; k++) {
        const int n = length[k], first = (N - n) / 2;
        for (int i = 0; i < n; i++)
            raw[i] = (uint16_t)(first + i);
        convert_values(BF16, raw, F32, out, n);
        for (int i = 0; i < n; i++) {
            const float want = bf16_to_float((uint16_t)(first + i));
            assert_memory_equal(&out[i], &want, 4);
        }
    }
}

/* Every bf16 and fp16 value becomes the bf16 value that conversion by way of fp32 gives. */
static void types_become_bf16(void **state)
{
    static uint16_t half[N], out[N];
    static float wide[N];
    static double widest[N];
    (void)state;
    for (int i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    convert_values(BF16, half, BF16, out, N);
    assert_memory_equal(out, half, sizeof half);
    convert_values(F16, half, F32, wide, N);
    convert_values(F16, half, BF16, out, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], bf16_from_float(wide[i]));
    for (int i = 0; i < N; i++)
        widest[i] = wide[i] * 1.0000001;
    convert_values(F64, widest, BF16, out, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], bf16_from_float((float)widest[i]));
    convert_values(F32, wide, BF16, out, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], bf16_from_float(wide[i]));
}

static void the_first_that_is_not_finite(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int at[] = {0, 1, 1023, 1024, 2047, 2999};
    static float x[3000], out[3000];
    static bf16 half[3000];
    (void)state;
    for (int i = 0; i < 3000; i++)
        x[i] = i % 2 ? -FLT_MAX / 2 : FLT_TRUE_MIN;
    assert_int_equal(convert_values(F32, x, F32, out, 3000), 3000);
    assert_int_equal(convert_values(F32, x, BF16, half, 3000), 3000);
    assert_int_equal(convert_values(BF16, half, F32, out, 0), 0);
    for (int k = 0; k < 6; k++) {
        const float was = x[at[k]];
        x[at[k]] = bad[k % 3];
        x[2999] = NAN;
        assert_int_equal(convert_values(F32, x, F32, out, 3000), at[k]);
        assert_int_equal(convert_values(F32, x, BF16, half, 3000), at[k]);
        assert_int_equal(convert_values(BF16, half, BF16, half, 3000), at[k]);
        assert_int_equal(convert_values(BF16, half, F32, out, 3000), at[k]);
        x[2999] = 0;
        x[at[k]] = was;
    }
    x[1500] = FLT_MAX; /* finite, but infinite as bf16 */
    assert_int_equal(convert_values(F32, x, F32, out, 3000), 3000);
    assert_int_equal(convert_values(F32, x, BF16, half, 3000), 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_become_floats),
        cmocka_unit_test(types_become_bf16),
        cmocka_unit_test(the_first_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
