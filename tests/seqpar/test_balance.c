/* Tests how evenly attention work is distributed over ring members at 1M tokens, by counting it, for several mixes of documents
 * (mixes.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "mixes.h"
#include "seqpar/layouts.h"

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
        assert_true(zigzag > 2); /* zigzag is far from even on these mixes, so that an even distribution is not trivial */
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

/* Returns the imbalance of LPT scheduling: the heaviest remaining chunk always goes to the least loaded member that has room. */
static double lpt_imbalance(const struct seq_shape *s, const int32_t *lo)
{
    int64_t work[256], load[16] = {0}, total = 0, most = 0;
    int room[16], per = s->chunks / s->ring;
    for (int m = 0; m < s->ring; m++)
        room[m] = per;
    for (int c = 0; c < s->chunks; c++) {
        work[c] = 0;
        for (int64_t q = c * s->chunk; q < (c + 1) * s->chunk; q++)
            work[c] += q + 1 - lo[q];
        total += work[c];
    }
    for (int k = 0; k < s->chunks; k++) {
        int heaviest = 0, least = -1;
        for (int c = 1; c < s->chunks; c++)
            heaviest = work[c] > work[heaviest] ? c : heaviest;
        for (int m = 0; m < s->ring; m++)
            if (room[m] && (least < 0 || load[m] < load[least]))
                least = m;
        load[least] += work[heaviest];
        room[least]--;
        work[heaviest] = -1;
        most = max_i64(most, load[least]);
    }
    return (double)most * s->ring / (double)total;
}

/* A layout that sends fewer blocks may be 1% out of balance, or as much as LPT if that is more. */
static void pruning_costs_one_percent_at_most(void **state)
{
    (void)state;
    static int32_t lo[4096];
    for (int ring = 2; ring <= 16; ring += 2)
        for (uint64_t seed = 0; seed < 300; seed++) {
            int per = 2 << rng_below(seed, 1, 0, 3);
            struct seq_shape s = {.ulysses = 1, .ring = ring, .kind = SEQ_BALANCED, .chunk = 16, .chunks = per * ring};
            s.seq_len = s.padded = s.chunk * s.chunks;
            mix_pack(lo, 0, s.padded, 1.0 + (double)rng_below(seed, 2, 0, 100), 1.2, seed);
            if (seed % 3 == 0)
                mix_window(lo, s.padded, 1 + (int64_t)rng_below(seed, 3, 0, 200));
            struct seq_layout *l;
            assert_int_equal(seq_layout_create(&s, &l), OK);
            assert_int_equal(seq_layout_assign(l, lo), OK);
            assert_true(seq_imbalance(l) <= fmax(1.01, lpt_imbalance(&s, lo)) + 1e-9);
            seq_layout_destroy(l);
        }
}

/* With a thousand ranks, what every rank computes for each sequence stays small. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_is_even), cmocka_unit_test(pruning_costs_one_percent_at_most),
                                       cmocka_unit_test(work_is_even_over_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
