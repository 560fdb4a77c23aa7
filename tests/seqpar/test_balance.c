/* Attention work over ring members at 1M tokens, counted, for the document mixes of shared/seqpar-notes.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "mixes.h"
#include "seqpar/seqpar.h"

#include <stdlib.h>

enum { SEEDS = 3 };

static void check_mix(int ring, enum mix mix, int32_t *lo)
{
    struct seq_shape s;
    struct seq_layout *l;
    double worst = 1, zigzag = 1, limit = mix == MIX_WEB ? 1.05 : 1.02;
    assert_int_equal(seq_shape_create(1 << 20, 1, ring, SEQ_AUTO, &s), OK);
    assert_int_equal(s.kind, SEQ_BALANCED);
    assert_int_equal(s.padded, 1 << 20);
    assert_int_equal(seq_layout_create(&s, &l), OK);
    for (uint64_t seed = 101; seed < 101 + SEEDS; seed++) {
        mix_fill(mix, s.padded, seed, lo);
        assert_int_equal(seq_layout_assign(l, lo), OK);
        worst = fmax(worst, seq_imbalance(l));
        zigzag = fmax(zigzag, seq_imbalance_zigzag(l));
    }
    print_message("ring %2d  %-36s %.4f  (zigzag %.4f)\n", ring, mix_names[mix], worst, zigzag);
    assert_true(worst <= limit);
    if (mix == MIX_WEB || mix == MIX_EIGHTH_ONE)
        assert_true(zigzag > 2); /* these mixes are hard: balance is not a gift */
    seq_layout_destroy(l);
}

static void work_is_even(void **state)
{
    (void)state;
    int32_t *lo = malloc(sizeof *lo << 20);
    assert_non_null(lo);
    for (int mix = 0; mix < MIXES; mix++) {
        check_mix(8, (enum mix)mix, lo);
        check_mix(64, (enum mix)mix, lo);
    }
    free(lo);
}

/* A thousand ranks: what every rank computes for each sequence stays small. */
static void work_is_even_over_many(void **state)
{
    (void)state;
    int32_t *lo = malloc(sizeof *lo << 22);
    struct seq_shape s;
    struct seq_layout *l;
    assert_non_null(lo);
    assert_int_equal(seq_shape_create(1 << 22, 8, 1024, SEQ_AUTO, &s), OK);
    assert_int_equal(seq_layout_create(&s, &l), OK);
    mix_fill(MIX_BOOKS, s.padded, 1, lo);
    assert_int_equal(seq_layout_assign(l, lo), OK);
    assert_true(seq_imbalance(l) <= 1.02);
    seq_layout_destroy(l);
    free(lo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_is_even), cmocka_unit_test(work_is_even_over_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
