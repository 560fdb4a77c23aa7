/* 8-bit numbers in blocks: nearest values, repacking to the same bytes, means of stochastic rounding. */
#include "base/blocks8.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 5 * BLOCK8 + 77 };

/* Makes numbers of many orders of magnitude, some of them zero. */
static void some_numbers(enum blocks8_kind kind, uint64_t seed, float *x, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t r[4];
        rng_block(seed, 1, (uint64_t)i, r);
        const float size = powf(10.0f, -9.0f * (float)r[0] / 4294967296.0f);
        x[i] = r[1] % 17 == 0 ? 0.0f : (r[1] & 1 ? -size : size) * 0.037f;
        if (kind == BLOCKS8_SQUARES)
            x[i] = x[i] * x[i];
    }
}

/* Checks each code against the nearest value of the map, found by trying all; if two values are equally near, the lower one is
 * right. */
static void check_nearest(enum blocks8_kind kind, const float *x, const void *packed)
{
    const float *map = blocks8_map(kind), *scale = packed;
    const uint8_t *code = blocks8_codes(packed, N);
    for (int i = 0; i < N; i++) {
        const float s = scale[i / BLOCK8], part = s != 0.0f ? (kind == BLOCKS8_SQUARES ? sqrtf(x[i]) : x[i]) / s : 0.0f;
        int best = 0;
        for (int k = 1; k < BLOCK8_VALUES; k++)
            if (fabsf(map[k] - part) < fabsf(map[best] - part))
                best = k;
        if (kind == BLOCKS8_SQUARES && best == 0 && part > 0.0f)
            best = 1;
        assert_int_equal(code[i], best);
    }
}

static void packs(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            const enum blocks8_kind kind = (enum blocks8_kind)k;
            const size_t bytes = (size_t)blocks8_bytes(N);
            float x[N], y[N];
            void *first = calloc(1, bytes), *second = calloc(1, bytes);
            some_numbers(kind, seed, x, N);
            blocks8_pack(kind, x, N, first);
            check_nearest(kind, x, first);
            blocks8_unpack(kind, first, N, y);
            blocks8_pack(kind, y, N, second);
            assert_memory_equal(first, second,
                                bytes); /* packing is repeatable: checkpoints hold unpacked numbers, which are packed again */
            for (int b = 0; b < N; b += BLOCK8) {
                float most = 0.0f, kept = 0.0f;
                for (int i = b; i < N && i < b + BLOCK8; i++) {
                    most = fmaxf(most, fabsf(x[i]));
                    kept = fmaxf(kept, fabsf(y[i]));
                }
                assert_true(fabsf(kept - most) <= 2e-7f * most);
            }
            free(first);
            free(second);
        }
}

static void packs_nothing(void **state)
{
    (void)state;
    float x[3] = {0}, y[3] = {1, 1, 1};
    char packed[64];
    assert_int_equal(blocks8_bytes(0), 0);
    assert_int_equal(blocks8_bytes(3), 64);
    for (int k = 0; k < 2; k++) {
        blocks8_pack((enum blocks8_kind)k, x, 3, packed);
        blocks8_unpack((enum blocks8_kind)k, packed, 3, y);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    }
}

/* The mean over all random numbers is the number itself; for squares, the mean of the roots is the root. */
static void rounds_without_bias(void **state)
{
    (void)state;
    static const float parts[] = {0.7071f, 0.1234f, 0.03333f, 0.0009f, 4.4e-5f, 3e-6f};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int k = 0; k < 2; k++) {
            const enum blocks8_kind kind = (enum blocks8_kind)k;
            double sum = 0;
            for (int r = 0; r < 65536; r += 7) {
                float x[2] = {2.0f, 2.0f * parts[i]}, y[2];
                const uint16_t random[2] = {0, (uint16_t)r};
                uint8_t code[2];
                if (kind == BLOCKS8_SQUARES)
                    x[0] *= x[0], x[1] *= x[1];
                const float scale = blocks8_pack_block(kind, x, 2, random, code);
                assert_true(scale == 2.0f && blocks8_map(kind)[code[0]] == 1.0f);
                blocks8_unpack_block(kind, scale, code, 2, y);
                sum += kind == BLOCKS8_SQUARES ? sqrt((double)y[1]) : (double)y[1];
            }
            sum /= ceil(65536 / 7.0);
            assert_true(fabs(sum / (2.0 * (double)parts[i]) - 1) < 1e-3);
        }
}

/* A root that is tiny compared with its block's largest does not become 0. */
static void keeps_roots(void **state)
{
    (void)state;
    float x[2] = {1.0f, 1e-30f}, y[2];
    const uint16_t random[2] = {65535, 65535};
    uint8_t code[2];
    const float scale = blocks8_pack_block(BLOCKS8_SQUARES, x, 2, random, code);
    blocks8_unpack_block(BLOCKS8_SQUARES, scale, code, 2, y);
    assert_true(y[0] == 1.0f && y[1] > 0.0f && y[1] < 1e-12f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs),
        cmocka_unit_test(packs_nothing),
        cmocka_unit_test(rounds_without_bias),
        cmocka_unit_test(keeps_roots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
