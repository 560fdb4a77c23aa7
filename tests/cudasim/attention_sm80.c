/* Tests the sm_80 attention kernels in the simulator with its checker on, against the fp64 oracle and the portable CPU kernels:
 * forward, both backward modes, and the tiles for both sizes of shared memory (that of A100, and the 99 KiB of sm_86 and sm_89). */
#include "../attention/harness.h"

#include <omp.h>

#include "attention_device.h"

static struct device_kernels large = {
    "sm80", {80, 108, 163 * 1024, ATTN_DETERMINISTIC}, attn_sm80_forward, attn_sm80_backward, attn_sm80_workspace_bytes};
static struct device_kernels small = {
    "sm86", {86, 84, 99 * 1024, ATTN_DETERMINISTIC}, attn_sm80_forward, attn_sm80_backward, attn_sm80_workspace_bytes};

static unsigned seed_of_next =
    1;                 /* simulator's seed for the next problem; one of three accumulates into dk and dv, by this number */
static int checks = 1; /* 1: the simulator checks plain accesses */

/* Tells whether this is a usual run, which checks every size, head dimension class and mask at least once. LTRAIN_LONG=1 checks
 * all combinations. */
static int usual(void)
{
    return getenv("LTRAIN_LONG") == NULL;
}

/* Checks the forward, then the backward in each mode of the bit set `modes`. Every third problem accumulates gradients. */
static void check_problem(struct device_kernels *kernels, const struct shape *s, struct problem *p, int modes)
{
    sim_reset(seed_of_next);
    sim_checks(checks);
    p->attrs.attn.accumulate = seed_of_next % 3 == 0;
    device_check_forward(kernels, s, p);
    round_oracle(p);
    oracle_backward(&p->attrs, &p->x); /* for what cancels */
    for (int mode = ATTN_DETERMINISTIC; mode <= ATTN_FAST; mode++)
        if (modes >> mode & 1) {
            kernels->cuda.mode = (enum attn_cuda_mode)mode;
            device_check_backward(kernels, s, p);
        }
    seed_of_next++;
}

static void check_on(struct device_kernels *kernels, const struct shape *s, int modes)
{
    struct problem p = problem_make(s);
    check_problem(kernels, s, &p, modes);
    problem_free(&p);
}

/* Checks both modes on the large device and one on the small device: two shapes with one mode, the next two with the other. Both
 * devices get odd and even seeds. */
static void check_shape(struct shape s)
{
    static int shapes;
    s.dtype = BF16;
    s.gain = s.gain ? s.gain : 1;
    check_on(&large, &s, 3);
    check_on(&small, &s, shapes / 2 % 2 ? 1 << ATTN_FAST : 1 << ATTN_DETERMINISTIC);
    seed_of_next += (unsigned)(++shapes % 2);
}

/* Checks heads wider than 256, which are processed in two slices of 256 columns, on the large device only. */
static void check_wide(struct shape s)
{
    s.dtype = BF16;
    s.gain = 1;
    check_on(&large, &s, 1 << ATTN_DETERMINISTIC);
}

/* Sizes around multiples of 64 and 128 rows at every head dimension of the kernels; sizes around 32 rows, and two tiles of 128,
 * at one head dimension. */
static void sizes_causal(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 63, 64, 65, 127, 128, 129}, others[] = {2, 31, 32, 33, 255, 257};
    const int32_t dims[] = {64, 128, 96, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            if (d < 2 || i % 3 == 0 || !usual())
                check_shape((struct shape){.sq = sizes[i], .sk = sizes[i], .hq = 1, .hk = 1, .d = dims[d], .mask = CAUSAL});
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_shape((struct shape){.sq = others[i], .sk = others[i], .hq = 1, .hk = 1, .d = i % 2 ? 128 : 64, .mask = CAUSAL});
}

static void sizes_rectangular(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{1, 300}, {300, 1}, {130, 259}, {259, 130}, {64, 128}, {128, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_shape((struct shape){.sq = sizes[i][0], .sk = sizes[i][1], .hq = 2, .hk = 1, .d = i % 2 ? 128 : 64, .mask = FULL});
}

static void sizes_many_tiles(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 400, .sk = 400, .hq = 1, .hk = 1, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 260, .sk = 330, .hq = 1, .hk = 1, .d = 128, .mask = FULL});
}

static void head_dims(void **state)
{
    (void)state;
    const int32_t dims[] = {40, 72, 96, 120, 200, 256, 8, 32, 80, 104, 128, 136, 192, 248};
    for (size_t i = 0; i < (usual() ? 6 : sizeof dims / sizeof *dims); i++)
        check_shape((struct shape){.sq = 133, .sk = 139, .hq = 1, .hk = 1, .d = dims[i], .mask = i % 2 ? FULL : CAUSAL});
    check_wide((struct shape){.sq = 67, .sk = 70, .hq = 2, .hk = 1, .d = 512, .mask = CAUSAL});
    check_wide((struct shape){.sq = 100, .sk = 100, .hq = 1, .hk = 1, .d = usual() ? 320 : 264, .mask = WINDOW});
    check_shape((struct shape){.sq = 200, .sk = 200, .hq = 1, .hk = 1, .d = 256, .mask = WINDOW});
    check_shape((struct shape){.sq = 260, .sk = 260, .hq = 1, .hk = 1, .d = 96, .mask = DOCUMENTS});
}

/* Checks values wider and narrower than keys, by much and by less than a tile: in grouped heads, documents, ring blocks, windows
 * and with soft caps; with values so wide that only they rule out the fast mode; with slices in which the narrower of both has no
 * columns. */
static void widths(void **state)
{
    (void)state;
    const struct shape too_wide = {
        .sq = 65, .sk = 70, .hq = 1, .hk = 1, .d = 128, .w = 136, .mask = CAUSAL, .dtype = BF16, .gain = 1};
    check_shape((struct shape){.sq = 133, .sk = 139, .hq = 2, .hk = 2, .d = 192, .w = 128, .mask = CAUSAL});
    check_shape((struct shape){.sq = 140, .sk = 140, .hq = 4, .hk = 2, .d = 64, .w = 128, .mask = DOCUMENTS});
    check_shape((struct shape){.sq = 130, .sk = 200, .q0 = 1000, .k0 = 900, .hq = 2, .hk = 2, .d = 64, .w = 40, .mask = WINDOW});
    check_shape(
        (struct shape){.sq = 100, .sk = 150, .hq = 1, .hk = 1, .d = 104, .w = 192, .mask = EMPTY_ROWS, .cap = 3, .gain = 3});
    check_on(&small, &too_wide, 1 << ATTN_FAST);
    check_wide((struct shape){.sq = 67, .sk = 70, .hq = 2, .hk = 1, .d = 320, .w = 128, .mask = CAUSAL});
    check_wide((struct shape){.sq = 70, .sk = 67, .hq = 2, .hk = 1, .d = 128, .w = 320, .mask = FULL});
}

static void grouped_heads(void **state)
{
    (void)state;
    const int32_t heads[][2] = {{4, 1}, {8, 1}, {4, 2}, {3, 3}, {14, 2}};
    for (size_t i = 0; i < (usual() ? 3 : sizeof heads / sizeof *heads); i++)
        check_shape((struct shape){
            .sq = i == 1 ? 40 : 140, .sk = 140, .hq = heads[i][0], .hk = heads[i][1], .d = i % 2 ? 128 : 64, .mask = CAUSAL});
}

static void masks(void **state)
{
    (void)state;
    for (int m = DOCUMENTS; m <= EMPTY_ALL; m++)
        for (int32_t d = 64; d <= 128; d += 64)
            check_shape((struct shape){.sq = 310, .sk = 310, .hq = 1, .hk = 1, .d = d, .mask = (enum mask_kind)m});
}

/* Checks ring blocks whose keys come before, across and after the queries. */
static void ring_blocks(void **state)
{
    (void)state;
    const int64_t at[][4] = {{100, 300, 200, 0},    {300, 100, 0, 200},           {64, 64, 0, 64},     {64, 64, 63, 126},
                             {130, 256, 1000, 900}, {193, 200, 3000000, 2999900}, {150, 192, 200, 430}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int m = CAUSAL; m <= EMPTY_ROWS; m++)
            if ((m != DOCUMENTS || at[i][2] < 2000) && ((i + (size_t)m / 2) % 2 == 0 || !usual()))
                check_shape((struct shape){.sq = at[i][0],
                                           .sk = at[i][1],
                                           .q0 = at[i][2],
                                           .k0 = at[i][3],
                                           .hq = 1,
                                           .hk = 1,
                                           .d = (i + (size_t)m) % 2 ? 128 : 64,
                                           .mask = (enum mask_kind)m});
}

/* Checks scores of about +-60, where the running maximum matters. */
static void large_scores(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 200, .sk = 300, .q0 = 100, .hq = 1, .hk = 1, .d = 64, .mask = CAUSAL, .gain = 40});
    check_shape((struct shape){.sq = 200, .sk = 300, .q0 = 100, .hq = 1, .hk = 1, .d = 128, .mask = WINDOW, .gain = 40});
}

/* Checks scores of about -120: exp(-lse) overflows, so that a padding key or query beyond the end, whose score is 0, would give
 * infinities. */
static void negative_scores(void **state)
{
    (void)state;
    for (int32_t d = 64; d <= 128; d += 64) {
        const struct shape s = {.sq = 100, .sk = 70, .hq = 1, .hk = 1, .d = d, .mask = FULL, .dtype = BF16, .gain = 1};
        struct problem p = problem_make(&s);
        const double size = sqrt(120 / sqrt(d));
        for (int64_t i = 0; i < p.nq; i++)
            p.x.q[i] = stored(size * (1 + 0.5 * uniform()), BF16);
        for (int64_t i = 0; i < p.nk; i++)
            p.x.k[i] = stored(-size * (1 + 0.5 * uniform()), BF16);
        oracle_forward(&p.attrs, &p.x);
        check_problem(&large, &s, &p,
                      4); /* keys differ by a fourth of their size only, so that the ds of a query nearly cancel */
        problem_free(&p);
    }
}

/* Checks soft caps that bend every score: full and partial tiles, windows, documents, queries without keys, head dimensions
 * padded to 128 or 256; and a cap like that of Gemma 2 with scores of about +-60. */
static void caps(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 150, .sk = 200, .q0 = 50, .hq = 2, .hk = 1, .d = 128, .mask = WINDOW, .cap = 2, .gain = 3});
    check_shape((struct shape){.sq = 140, .sk = 140, .hq = 1, .hk = 1, .d = 256, .mask = CAUSAL, .cap = 1, .gain = 3});
    check_shape((struct shape){.sq = 133, .sk = 133, .hq = 1, .hk = 1, .d = 40, .mask = EMPTY_ROWS, .cap = 3, .gain = 3});
    check_shape((struct shape){.sq = 100, .sk = 150, .hq = 1, .hk = 1, .d = 128, .mask = FULL, .cap = 50, .gain = 40});
}

/* Checks that without any keys, or without any queries, the kernels write zeros and nothing else. */
static void nothing_to_attend(void **state)
{
    (void)state;
    check_shape((struct shape){.sq = 70, .sk = 0, .hq = 2, .hk = 1, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 0, .sk = 70, .hq = 2, .hk = 1, .d = 64, .mask = CAUSAL});
}

/* Checks sequences too long for the checker, which would take too much time: they run the same code with more tiles and several
 * waves of blocks. */
static void sizes_long(void **state)
{
    (void)state;
    checks = 0;
    check_shape((struct shape){.sq = 601, .sk = 601, .hq = 2, .hk = 1, .d = 64, .mask = CAUSAL});
    check_shape((struct shape){.sq = 500, .sk = 500, .hq = 1, .hk = 1, .d = 128, .mask = WINDOW});
    checks = 1;
}

/* Checks that the forward and the deterministic backward give the same bits under every schedule. */
static void same_bits_every_seed(void **state)
{
    (void)state;
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    const struct shape s = {.sq = 200, .sk = 200, .hq = 4, .hk = 2, .d = 64, .mask = CAUSAL, .dtype = BF16, .gain = 1};
    struct problem p = problem_make(&s);
    struct call first[2] = {{{{0}}}};
    large.cuda.mode = ATTN_DETERMINISTIC;
    for (unsigned run = 0; run < 4; run++)
        for (int kind = 0; kind < 2; kind++) {
            struct call c = kind ? backward_call(&p, &cpu, 0) : forward_call(&p, &cpu, 0);
            sim_reset(100 + run);
            device_must(&large, kind ? OP_ATTN_BWD : OP_ATTN_FWD, &p, &c);
            for (int i = 0; i < c.outputs && run > 0; i++)
                assert_memory_equal(c.b[i].data, first[kind].b[i].data, c.b[i].bytes);
            if (run > 0)
                call_free(&c);
            else
                first[kind] = c;
        }
    call_free(&first[0]);
    call_free(&first[1]);
    problem_free(&p);
}

/* Checks that a NaN in one query is seen in the o and lse of this query and nowhere else. */
static void nan_is_shown(void **state)
{
    (void)state;
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    const int64_t d = 64, bad = 70;
    const struct shape s = {.sq = 150, .sk = 150, .hq = 1, .hk = 1, .d = (int32_t)d, .mask = CAUSAL, .dtype = BF16, .gain = 1};
    struct problem p = problem_make(&s);
    struct call good = forward_call(&p, &cpu, 0), c = forward_call(&p, &cpu, 0);
    sim_reset(7);
    device_must(&large, OP_ATTN_FWD, &p, &good);
    memset(c.b[2].data + bad * d * 2, 0xff, 2);
    device_must(&large, OP_ATTN_FWD, &p, &c);
    bf16 *o = (bf16 *)(void *)c.b[0].data;
    assert_true(isnan(((float *)(void *)c.b[1].data)[bad]));
    for (int64_t j = 0; j < d; j++)
        assert_true(isnan(bf16_to_float(o[bad * d + j])));
    memcpy(o + bad * d, (bf16 *)(void *)good.b[0].data + bad * d, (size_t)d * 2);
    assert_memory_equal(o, good.b[0].data, p.nq * 2);
    call_free(&good);
    call_free(&c);
    problem_free(&p);
}

/* Checks that delta of a query without keys is ignored, even where it is NaN (o = 0 times an infinite do). */
static void nan_delta(void **state)
{
    (void)state;
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    const struct shape s = {.sq = 150, .sk = 150, .hq = 2, .hk = 1, .d = 64, .mask = EMPTY_ROWS, .dtype = BF16, .gain = 1};
    struct problem p = problem_make(&s);
    for (int mode = ATTN_DETERMINISTIC; mode <= ATTN_FAST; mode++) {
        struct call c = backward_call(&p, &cpu, 0);
        int empty = 0;
        for (int64_t i = 0; i < p.nl; i++)
            if (isinf(p.x.lse[i % s.hq * s.sq + i / s.hq]))
                ((float *)(void *)c.b[6].data)[i] = NAN, empty++;
        assert_true(empty > 0);
        sim_reset(9);
        large.cuda.mode = (enum attn_cuda_mode)mode;
        device_must(&large, OP_ATTN_BWD, &p, &c);
        for (int i = 0; i < 3; i++)
            for (int64_t j = 0; j < (i ? p.nk : p.nq); j++)
                assert_true(isfinite(((float *)(void *)c.b[i].data)[j]));
        call_free(&c);
    }
    problem_free(&p);
}

/* Arguments: PATTERN runs only the tests whose names match; --skip PATTERN runs only the others. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_causal),
        cmocka_unit_test(sizes_rectangular),
        cmocka_unit_test(sizes_many_tiles),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(widths),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(masks),
        cmocka_unit_test(ring_blocks),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(negative_scores),
        cmocka_unit_test(caps),
        cmocka_unit_test(nothing_to_attend),
        cmocka_unit_test(sizes_long),
        cmocka_unit_test(same_bits_every_seed),
        cmocka_unit_test(nan_is_shown),
        cmocka_unit_test(nan_delta),
    };
    if (argc > 2 && strcmp(argv[1], "--skip") == 0)
        cmocka_set_skip_filter(argv[2]);
    else if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
