/* Tests the Hopper attention kernels in the simulator with its checker on, against the fp64 oracle and the portable CPU kernels.
 *
 * The shapes must cover: tiles of one row, tiles with a row less and a row more than full ones, more key tiles than pipeline
 * stages, blocks that process several tiles (few multiprocessors), head dimensions padded to 64, 96, 128, 192 or 256, every mask. */
#include "../attention/harness.h"

#include <omp.h>

#include "attention_device.h"
#include "../extent.h"

static struct device_kernels sm90 = {
    "sm90", {90, 3, 227 * 1024, ATTN_DETERMINISTIC}, attn_sm90_forward, attn_sm90_backward, attn_sm90_workspace_bytes};

static unsigned seed_of_next = 1; /* odd and even values alternate */
static int checks = 1;            /* 0 for shapes that only run code which a checked shape runs too */

/* Checks the forward and the backward. Every third problem accumulates gradients. terms: factor by which dq and dk cancel more
 * than the oracle measures. */
static void check_problem(const struct shape *s, struct problem *p, double terms)
{
    sim_reset(seed_of_next);
    sim_checks(checks);
    p->attrs.attn.accumulate = seed_of_next % 3 == 0;
    seed_of_next++;
    assert_true(attn_sm90_supports(OP_ATTN_FWD, &p->attrs, &sm90.cuda));
    device_check_forward(&sm90, s, p);
    if (!attn_sm90_supports(OP_ATTN_BWD, &p->attrs, &sm90.cuda)) {
        assert_true(op_wider_dim(&p->attrs) > 128);
        return;
    }
    round_oracle(p);
    oracle_backward(&p->attrs, &p->x); /* for what cancels */
    p->x.dq_terms *= terms;
    p->x.dk_terms *= terms;
    sim_ordered_sums(1);
    device_check_backward(&sm90, s, p);
    sim_ordered_sums(0);
}

static void check_shape(struct shape s)
{
    s.dtype = BF16;
    s.gain = s.gain ? s.gain : 1;
    struct problem p = problem_make(&s);
    check_problem(&s, &p, 1);
    problem_free(&p);
}

/* Sizes around multiples of 64, 128 and 192 rows; around 64 and 128 at every head dimension of the kernels. */
static void sizes_causal(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 63, 64, 65, 127, 128, 129}, wide[] = {191, 192, 193};
    const int32_t dims[] = {64, 128, 96, 192, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            check_shape((struct shape){.sq = sizes[i], .sk = sizes[i], .hq = 1, .hk = 1, .d = dims[d], .mask = CAUSAL});
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        check_shape((struct shape){.sq = wide[i], .sk = wide[i], .hq = 1, .hk = 1, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 2, .sk = 2, .hq = 1, .hk = 1, .d = 128, .mask = CAUSAL});
    check_shape((struct shape){.sq = 257, .sk = 257, .hq = 1, .hk = 1, .d = 128, .mask = CAUSAL});
}

static void sizes_rectangular(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{1, 300}, {300, 1}, {130, 259}, {259, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_shape((struct shape){.sq = sizes[i][0], .sk = sizes[i][1], .hq = 2, .hk = 1, .d = i % 2 ? 128 : 64, .mask = FULL});
}

/* Checks four to nine tiles that pass through two or three stages, with one to three blocks for all tiles. */
static void many_tiles(void **state)
{
    (void)state;
    sm90.cuda.processors = 1;
    check_shape((struct shape){.sq = 400, .sk = 400, .hq = 2, .hk = 1, .d = 128, .mask = CAUSAL});
    sm90.cuda.processors = 3;
    check_shape((struct shape){.sq = 530, .sk = 530, .hq = 1, .hk = 1, .d = 64, .mask = FULL});
    check_shape((struct shape){.sq = 400, .sk = 400, .hq = 1, .hk = 1, .d = 96, .mask = CAUSAL});
    check_shape(
        /* tiles of the first two KV heads alternate; those of the third head follow */
        (struct shape){.sq = 270, .sk = 270, .hq = 3, .hk = 3, .d = 128, .mask = CAUSAL});
    check_shape((struct shape){.sq = 330, .sk = 330, .hq = 1, .hk = 1, .d = 256, .mask = CAUSAL});
}

static void head_dims(void **state)
{
    (void)state;
    const int32_t dims[] = {8, 40, 72, 96, 104, 120, 136, 192, 248, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        checks = dims[i] % 96 == 0 || dims[i] == 40 || dims[i] == 120;
        check_shape((struct shape){.sq = 140, .sk = 140, .hq = 2, .hk = 2, .d = dims[i], .mask = CAUSAL});
    }
}

/* Checks values wider and narrower than keys, by whole chunks of a tile and by less: in grouped heads, documents, ring blocks and
 * with soft caps. */
static void widths(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 140, .sk = 150, .hq = 2, .hk = 2, .d = 192, .w = 128, .mask = CAUSAL});
    check_shape((struct shape){.sq = 140, .sk = 140, .hq = 4, .hk = 2, .d = 64, .w = 128, .mask = DOCUMENTS});
    check_shape((struct shape){.sq = 130, .sk = 260, .q0 = 1000, .k0 = 900, .hq = 2, .hk = 2, .d = 64, .w = 40, .mask = WINDOW});
    check_shape((struct shape){.sq = 133, .sk = 133, .hq = 1, .hk = 1, .d = 96, .w = 72, .mask = FULL});
    check_shape(
        (struct shape){.sq = 133, .sk = 133, .hq = 1, .hk = 1, .d = 128, .w = 64, .mask = EMPTY_ROWS, .cap = 3, .gain = 3});
}

static void grouped_heads(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 4, .hk = 1, .d = 128, .mask = CAUSAL});
    checks = 0;
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 4, .hk = 4, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 8, .hk = 1, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 16, .hk = 2, .d = 64, .mask = CAUSAL});
}

static void masks(void **state)
{
    (void)state;
    for (int m = DOCUMENTS; m <= EMPTY_ALL; m++)
        for (int32_t d = 64; d <= 128; d += 64)
            check_shape((struct shape){.sq = 410, .sk = 410, .hq = 1, .hk = 1, .d = d, .mask = (enum mask_kind)m});
    for (int m = FULL; m <= EMPTY_ALL; m++)
        check_shape((struct shape){.sq = 270, .sk = 270, .hq = 1, .hk = 1, .d = 256, .mask = (enum mask_kind)m});
}

/* Checks ring blocks whose keys come before, across and after the queries. */
static void ring_blocks(void **state)
{
    (void)state;
    const int64_t offsets[][2] = {{500, 0}, {500, 370}, {500, 499}, {300, 520}, {0, 900}, {3000000, 2999800}};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int m = CAUSAL; m <= WINDOW; m++) {
            checks = m == CAUSAL && i < 2;
            check_shape((struct shape){.sq = 200,
                                       .sk = 333,
                                       .q0 = offsets[i][0],
                                       .k0 = offsets[i][1],
                                       .hq = 1,
                                       .hk = 1,
                                       .d = i % 2 ? 128 : 64,
                                       .mask = (enum mask_kind)m});
        }
}

/* Checks scores of about +-60, where the running maximum matters. */
static void large_scores(void **state)
{
    (void)state;
    checks = 0;
    check_shape((struct shape){.sq = 300, .sk = 300, .hq = 1, .hk = 1, .d = 64, .mask = CAUSAL, .gain = 40});
    check_shape((struct shape){.sq = 300, .sk = 300, .hq = 1, .hk = 1, .d = 128, .mask = CAUSAL, .gain = 40});
}

/* Checks soft caps that bend every score: several tiles, windows, queries without keys, head dimensions padded to 128 or 256; and
 * a cap like that of Gemma 2 with scores of about +-60. */
static void caps(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 200, .sk = 300, .q0 = 100, .hq = 2, .hk = 1, .d = 128, .mask = WINDOW, .cap = 2, .gain = 3});
    check_shape((struct shape){.sq = 140, .sk = 140, .hq = 1, .hk = 1, .d = 256, .mask = CAUSAL, .cap = 1, .gain = 3});
    check_shape((struct shape){.sq = 133, .sk = 133, .hq = 1, .hk = 1, .d = 40, .mask = EMPTY_ROWS, .cap = 3, .gain = 3});
    check_shape((struct shape){.sq = 100, .sk = 150, .hq = 1, .hk = 1, .d = 128, .mask = FULL, .cap = 50, .gain = 40});
}

/* Checks scores of about -120: exp(-lse) overflows, so that a padding key or query beyond the end, whose score is 0, would give
 * infinities. */
static void negative_scores(void **state)
{
    (void)state;
    for (int32_t d = 64; d <= 128; d += 64) {
        const struct shape s = {.sq = 190, .sk = 70, .hq = 1, .hk = 1, .d = d, .mask = FULL, .dtype = BF16};
        struct problem p = problem_make(&s);
        const double size = sqrt(120 / sqrt(d));
        for (int64_t i = 0; i < p.nq; i++)
            p.x.q[i] = stored(size + 0.1 * uniform(), BF16);
        for (int64_t i = 0; i < p.nk; i++)
            p.x.k[i] = stored(-size + 0.1 * uniform(), BF16);
        oracle_forward(&p.attrs, &p.x);
        check_problem(&s, &p, size / 0.1); /* all keys are nearly the same, so that the ds of a query nearly add up to 0 */
        problem_free(&p);
    }
}

/* Checks that a call gives the same bits under the schedules and late copies of several seeds and on any number of
 * multiprocessors. The checker, where it is on, reports sums that are added in no fixed order; elsewhere their bits differ. */
static void check_same_bits(const struct problem *p, enum op_kind kind, int outputs)
{
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    struct call c[2];
    for (unsigned i = 0; i < 6; i++) {
        sim_reset(1000 + i);
        sim_checks(i < 3);
        sim_ordered_sums(1);
        sm90.cuda.processors = 1 + (int)i;
        c[i > 0] = kind == OP_ATTN_FWD ? forward_call(p, &cpu, 0) : backward_call(p, &cpu, 0);
        device_must(&sm90, kind, p, &c[i > 0]);
        if (i == 0)
            continue;
        for (int k = 0; k < outputs; k++)
            assert_memory_equal(c[0].b[k].data, c[1].b[k].data, c[0].b[k].bytes);
        call_free(&c[1]);
    }
    call_free(&c[0]);
    sm90.cuda.processors = 3;
}

static void same_bits_every_seed(void **state)
{
    (void)state;
    for (int32_t d = 64; d <= 128; d += 64) {
        const struct shape s = {.sq = 210, .sk = 210, .hq = 2, .hk = 1, .d = d, .mask = DOCUMENTS, .dtype = BF16, .gain = 1};
        struct problem p = problem_make(&s);
        check_same_bits(&p, OP_ATTN_FWD, 2);
        check_same_bits(&p, OP_ATTN_BWD, 3);
        problem_free(&p);
    }
}

/* Checks that results have the same bits where blocks wait for each other: every mask, grouped heads, several key tiles of two KV
 * heads that alternate, two segments of queries, soft caps. */
static void same_bits_where_blocks_wait(void **state)
{
    (void)state;
    for (int m = FULL; m <= EMPTY_ROWS; m++) {
        const struct shape s = {.sq = 330,
                                .sk = 600,
                                .q0 = 270,
                                .hq = 4,
                                .hk = 2,
                                .d = 64,
                                .mask = (enum mask_kind)m,
                                .cap = m % 2 ? 3 : 0,
                                .dtype = BF16,
                                .gain = 1};
        struct problem p = problem_make(&s);
        check_same_bits(&p, OP_ATTN_BWD, 3);
        problem_free(&p);
    }
}

static int with_checks(void **state)
{
    (void)state;
    checks = 1;
    return 0;
}

/* Arguments: PATTERN runs only the tests whose names match; --skip PATTERN runs only the others. --candidate: the bits of a
 * kernel that src has not; those of blocks that wait only with LTRAIN_LONG. */
int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--skip") == 0)
        cmocka_set_skip_filter(argv[2]);
    else if (argc > 1 && strcmp(argv[1], "--candidate") == 0)
        cmocka_set_test_filter(extent_is_long() ? "same_bits*" : "same_bits_every*");
    else if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_causal, with_checks),
        cmocka_unit_test_setup(sizes_rectangular, with_checks),
        cmocka_unit_test_setup(many_tiles, with_checks),
        cmocka_unit_test_setup(head_dims, with_checks),
        cmocka_unit_test_setup(widths, with_checks),
        cmocka_unit_test_setup(grouped_heads, with_checks),
        cmocka_unit_test_setup(masks, with_checks),
        cmocka_unit_test_setup(ring_blocks, with_checks),
        cmocka_unit_test_setup(large_scores, with_checks),
        cmocka_unit_test_setup(negative_scores, with_checks),
        cmocka_unit_test_setup(caps, with_checks),
        cmocka_unit_test_setup(same_bits_every_seed, with_checks),
        cmocka_unit_test_setup(same_bits_where_blocks_wait, with_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
