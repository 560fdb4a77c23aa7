/* Tests which degrees are legal, which are chosen, and volumes against figures computed elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/num.h"
#include "seqpar/seqpar.h"
#include "volumes.h"

#include <math.h>
#include <string.h>

static const struct seq_heads llama_8b = {32, 8, 128, 2}, qwen_7 = {28, 4, 128, 2}, mqa = {7, 1, 64, 2};
static const int64_t MILLION = 1 << 20;

static struct seq_shape shape_of(int64_t padded, int ulysses, int ring)
{
    return (struct seq_shape){
        .seq_len = padded, .padded = padded, .ulysses = ulysses, .ring = ring, .chunk = padded, .chunks = 1};
}

/* ---- legality ---- */

static void legal_degrees_divide_the_heads(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 24; ranks++)
        for (int u = 1; u <= ranks; u++) {
            int legal =
                ranks % u == 0 && 28 % u == 0 && (u <= 2 || u == 4 || u == 28); /* degrees 7 and 14 do not fit 4 KV heads */
            if (ranks % u == 0)
                assert_int_equal(seq_degrees_check(ranks, u, ranks / u, &qwen_7, 1), legal ? OK : ERR_INVALID);
        }
    struct seq_heads h = {28, 4, 128, 2};
    assert_int_equal(seq_degrees_check(56, 28, 2, &h, 1), OK); /* each KV head is replicated seven times */
    assert_int_equal(seq_degrees_check(7, 7, 1, &mqa, 1), OK);
}

static void illegal_degrees_name_the_legal_ones(void **state)
{
    (void)state;
    assert_int_equal(seq_degrees_check(12, 3, 4, &llama_8b, 1), ERR_INVALID);
    assert_string_equal(status_message(),
                        "--mesh: ulysses=3 with ring=4 cannot share 32 query heads and 8 KV heads over 12 ranks; legal: "
                        "ulysses=1 with ring=12, ulysses=2 with ring=6, ulysses=4 with ring=3");
    assert_int_equal(seq_degrees_check(8, 2, 2, &llama_8b, 1), ERR_INVALID); /* not all ranks */
    assert_int_equal(seq_degrees_check(4, 2, 2, &mqa, 1), ERR_INVALID);
    assert_non_null(strstr(status_message(), "legal: ulysses=1 with ring=4"));
    assert_int_equal(seq_degrees_check(4, 0, 4, &mqa, 1), ERR_INVALID);
    assert_int_equal(seq_degrees_check(0, 1, 1, &mqa, 1), ERR_INVALID);
    assert_int_equal(seq_degrees_check(1, 1 << 16, 1 << 16, &mqa, 1),
                     ERR_INVALID); /* the product of both degrees overflows an int */
}

/* ---- choice ---- */

static void degrees_follow_cost(void **state)
{
    (void)state;
    const struct seq_rates hopper = {500e12, 360e9, 45e9};
    static const struct {
        int ranks, per_node;
        const struct seq_heads *h;
        int ulysses, ring;
    } expected[] = {
        {1, 8, &llama_8b, 1, 1},  {8, 8, &llama_8b, 8, 1}, {64, 8, &llama_8b, 8, 8}, /* ulysses stays inside the node */
        {12, 4, &llama_8b, 4, 3}, {4, 4, &mqa, 1, 4}, /* seven heads are divisible by neither 4 nor 2 */
        {7, 7, &mqa, 7, 1},
    };
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        int u = 0, r = 0;
        assert_int_equal(
            seq_degrees_choose(expected[k].ranks, expected[k].per_node, expected[k].h, 1, MILLION, 0, &hopper, &u, &r), OK);
        assert_int_equal(u, expected[k].ulysses);
        assert_int_equal(r, expected[k].ring);
        assert_int_equal(seq_degrees_check(expected[k].ranks, u, r, expected[k].h, 1), OK);
    }
    /* The choice is always legal and always the same, whatever the rates. */
    for (int ranks = 1; ranks <= 64; ranks++)
        for (double rate = 1; rate < 1e16; rate *= 1e3) {
            const struct seq_rates rates = {rate, 1e10, 1e9};
            int u = 0, r = 0, u2 = 0, r2 = 0;
            assert_int_equal(seq_degrees_choose(ranks, 6, &qwen_7, 1, 100000, 1e9, &rates, &u, &r), OK);
            assert_int_equal(seq_degrees_choose(ranks, 6, &qwen_7, 1, 100000, 1e9, &rates, &u2, &r2), OK);
            assert_int_equal(seq_degrees_check(ranks, u, r, &qwen_7, 1), OK);
            assert_true(u == u2 && r == r2 && (ranks <= 6 || 6 % u == 0));
        }
    int u, r;
    const struct seq_rates none = {0, 1, 1};
    assert_int_equal(seq_degrees_choose(4, 4, &mqa, 1, 100, 0, &none, &u, &r), ERR_INVALID);
    assert_int_equal(seq_degrees_choose(0, 4, &mqa, 1, 100, 0, &hopper, &u, &r), ERR_INVALID);
}

/* ---- volumes ---- */

static int64_t ring_bytes(const struct seq_volume *v)
{
    return v->ring_forward + v->ring_backward;
}

static int64_t all_to_all_bytes(const struct seq_volume *v)
{
    return v->all_to_all_forward + v->all_to_all_backward;
}

/* Volumes agree with the notes' figures for an 8B at 1M tokens, in GB to one decimal. */
static void volumes_match_the_notes(void **state)
{
    (void)state;
    struct seq_shape ring = shape_of(MILLION, 1, 8), ulysses = shape_of(MILLION, 8, 1), both = shape_of(MILLION, 8, 8),
                     long_ring = shape_of(MILLION, 1, 64);
    struct seq_volume v = seq_volume(&ring, &llama_8b, SEQ_RESEND_QKV);
    assert_int_equal(all_to_all_bytes(&v), 0);
    assert_int_equal(lround((double)ring_bytes(&v) / 1e8), 150);
    v = seq_volume(&ulysses, &llama_8b, SEQ_RESEND_QKV);
    assert_int_equal(ring_bytes(&v), 0);
    assert_int_equal(lround((double)all_to_all_bytes(&v) / 1e8), 66);
    v = seq_volume(&both, &llama_8b, SEQ_RESEND_QKV);
    assert_int_equal(lround((double)all_to_all_bytes(&v) / 1e8), 8);
    assert_int_equal(lround((double)ring_bytes(&v) / 1e8), 19);
    v = seq_volume(&long_ring, &llama_8b, SEQ_RESEND_QKV);
    assert_int_equal(lround((double)ring_bytes(&v) / 1e8), 169);
    struct seq_volume kept = seq_volume(&ulysses, &llama_8b, SEQ_KEEP_QKV);
    v = seq_volume(&ulysses, &llama_8b, SEQ_RESEND_QKV);
    assert_int_equal(kept.all_to_all_forward, v.all_to_all_forward);
    assert_int_equal(v.all_to_all_backward - kept.all_to_all_backward, 7 * (MILLION / 64) * 128 * 2 * (32 + 2 * 8));
}

/* Checks the rule "pure ring is smaller iff P*K < 0.625 H + max(K, P)", for bf16 and many tokens. */
static void the_smaller_of_ring_and_ulysses(void **state)
{
    (void)state;
    static const int64_t counts[][2] = {{32, 8}, {28, 4}, {64, 8}, {32, 1}, {16, 16}, {48, 2}};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int P = 2; P <= 64; P++) {
            struct seq_heads h = {counts[k][0], counts[k][1], 128, 2};
            if (seq_degrees_check(P, P, 1, &h, 1) != OK)
                continue;
            struct seq_shape a = shape_of((int64_t)P * P * 4096, 1, P), b = shape_of((int64_t)P * P * 4096, P, 1);
            struct seq_volume ring = seq_volume(&a, &h, SEQ_RESEND_QKV), ulysses = seq_volume(&b, &h, SEQ_RESEND_QKV);
            double margin = 0.625 * (double)h.heads + (double)max_i64(h.kv_heads, P) - (double)P * (double)h.kv_heads;
            if (fabs(margin) > 0.02 * (double)h.heads) /* the rule ignores delta's 4 H bytes */
                assert_int_equal(ring_bytes(&ring) < all_to_all_bytes(&ulysses), margin > 0);
        }
}

static void zero_sends_what_its_stage_says(void **state)
{
    (void)state;
    /* stage 3 sends 3 x the parameters in bf16, other stages 2 x: of these a rank sends (P-1)/P, here 3/4 of 1000 elements */
    assert_int_equal(seq_zero_bytes(3, 1000, 4, 1, 1, 2, 2), 3 * 750 * 2);
    assert_int_equal(seq_zero_bytes(2, 1000, 4, 1, 1, 2, 2), 2 * 750 * 2);
    assert_int_equal(seq_zero_bytes(1, 1000, 4, 1, 1, 2, 2), 2 * 750 * 2);
    assert_int_equal(seq_zero_bytes(0, 1000, 4, 1, 1, 2, 2), 750 * 2 + 750 * 4); /* sums are fp32 */
    assert_int_equal(seq_zero_bytes(1, 1000, 4, 1, 5, 2, 4), 750 * 4 + 750 * 2);
    assert_int_equal(seq_zero_bytes(2, 1000, 4, 1, 5, 2, 4), 5 * 750 * 4 + 750 * 2);
    assert_int_equal(seq_zero_bytes(3, 1000, 4, 1, 5, 2, 4), 5 * (750 * 4 + 2 * 750 * 2));
    for (int stage = 0; stage <= 3; stage++)
        assert_int_equal(seq_zero_bytes(stage, 1000, 1, 0, 3, 2, 4), 0);
    /* with shares of 3, 3, 3 and 0 elements, all ranks together send as much as they receive */
    int64_t sent = 0;
    for (int rank = 0; rank < 4; rank++)
        sent += seq_zero_bytes(3, 9, 4, rank, 1, 2, 4);
    assert_int_equal(seq_zero_bytes(3, 9, 4, 3, 1, 2, 4), 9 * 4);
    assert_int_equal(sent, 3 * 9 * (4 + 2 * 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_degrees_divide_the_heads),
        cmocka_unit_test(illegal_degrees_name_the_legal_ones),
        cmocka_unit_test(degrees_follow_cost),
        cmocka_unit_test(volumes_match_the_notes),
        cmocka_unit_test(the_smaller_of_ring_and_ulysses),
        cmocka_unit_test(zero_sends_what_its_stage_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
