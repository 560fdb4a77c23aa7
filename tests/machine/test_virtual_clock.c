/* Tests the virtual clock with cases computed by hand, and the interpolation of rates between given points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "lane_times.h"
#include "machine/virtual_clock.h"
#include "program/drives.h"

#include <math.h>
#include <string.h>

/* Compares sums of a few exact binary fractions, and quotients of them. */
static void near(double x, double expected)
{
    if (!(fabs(x - expected) <= 1e-12 * (1 + fabs(expected))))
        fail_msg("%.17g instead of %.17g", x, expected);
}

/* Returns costs of one byte a second on every lane: an instruction lasts as many seconds as it has bytes. */
static struct cost_model unit_costs(void)
{
    struct cost_model m = {0};
    m.device.ops.memory = m.host.memory = (struct curve){.n = 1, .x = {1}, .y = {1}};
    for (int l = 0; l < LANES; l++)
        m.lane_bytes[l] = 1;
    return m;
}

static int add(struct program *p, enum lane lane, int64_t seconds)
{
    int i = program_add_instr(p, OP_COPY, lane);
    program_call(p, &p->instrs[i])->bytes = seconds;
    return i;
}

static struct program *empty(void)
{
    struct program *p;
    assert_int_equal(program_create("case", &p), OK);
    return p;
}

/* Lanes run their instructions in order, after dependencies and release times: h2d takes 3 s, compute waits for it and takes 4 s;
 * a second copy is released at 5 s. */
static void alone(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    struct program *p = empty();
    add(p, LANE_H2D, 3);
    add(p, LANE_COMPUTE, 4);
    int late = add(p, LANE_H2D, 2);
    const double release[] = {0, 0, 5};
    const int first[] = {0, 0, 1, 1}, dep[] = {0};
    near(program_simulate(p, &m, first, dep, release), 7);
    near(p->instrs[1].start, 3);
    near(p->instrs[late].start, 5);
    near(program_simulate(p, &m, first, dep, NULL), 7);
    near(p->instrs[late].start, 3);
    struct lane_times t;
    program_lane_times(p, &t);
    near(t.total, 7);
    near(t.busy[LANE_COMPUTE], 4);
    near(t.busy[LANE_H2D], 5);
    near(t.stall, 3);
    near(t.exposed[LANE_H2D], 3);
    near(t.exposed_any, 3);
    program_destroy(p);
}

/* Comm lanes that share a stream run one after the other: in the program's order or, with release times, before the program has
 * an order, as they become ready. */
static void chained(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    struct program *p = empty();
    add(p, LANE_WORLD, 3);
    add(p, LANE_COMPUTE, 4);
    int waits = add(p, LANE_ULYSSES, 2), free = add(p, LANE_RING, 1);
    const double release[] = {0, 0, 0, 0};
    const int first[] = {0, 0, 0, 1, 1}, dep[] = {1};
    near(program_simulate(p, &m, first, dep, NULL), 6);
    near(p->instrs[free].start, 0);
    m.chained = 1;
    near(program_simulate(p, &m, first, dep, NULL), 7);
    near(p->instrs[waits].start, 4);
    near(p->instrs[free].start, 6);
    near(program_simulate(p, &m, first, dep, release), 6);
    near(p->instrs[free].start, 3);
    near(p->instrs[waits].start, 4);
    program_destroy(p);
}

/* Two lanes with 6 and 2 seconds of work ask for the whole link. They run together from 0 to 4, each at half speed; the rest runs
 * alone. */
static void halves(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.demand[LANE_H2D][LINK_MEMORY] = m.demand[LANE_D2H][LINK_MEMORY] = 1;
    struct program *p = empty();
    add(p, LANE_H2D, 6);
    add(p, LANE_D2H, 2);
    near(program_simulate(p, &m, NULL, NULL, NULL), 8);
    near(p->instrs[0].end, 8);
    near(p->instrs[1].end, 4);
    program_destroy(p);
}

/* Compute takes all cores, a copy a quarter of them: in the copy's 2 s compute does 1.5 of its 5. A lane without demand is not
 * slowed. A second copy that asks for 0.9 shares the other three quarters with compute. */
static void uneven(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.demand[LANE_COMPUTE][LINK_CORES] = 1;
    m.demand[LANE_H2D][LINK_CORES] = 0.25;
    struct program *p = empty();
    add(p, LANE_COMPUTE, 5);
    add(p, LANE_H2D, 2);
    add(p, LANE_READ, 1);
    near(program_simulate(p, &m, NULL, NULL, NULL), 5.5);
    near(p->instrs[0].end, 5.5);
    near(p->instrs[1].end, 2);
    near(p->instrs[2].end, 1);
    m.demand[LANE_READ][LINK_CORES] = 0.9;
    /* until 2: 0.375 each, of 0.9 asked: 5/6 of the read done; then half each: the rest takes 0.3 s, compute loses 0.15 */
    near(program_simulate(p, &m, NULL, NULL, NULL), 5 + 2 * 0.625 + 0.15);
    near(p->instrs[1].end, 2);
    near(p->instrs[2].end, 2.3);
    program_destroy(p);
}

/* Two copies of 2 s each slow compute by half a second, in addition to using a share of the cores. */
static void wakes(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.demand[LANE_COMPUTE][LINK_CORES] = 1;
    m.demand[LANE_H2D][LINK_CORES] = 0.25;
    m.lane_cores[LANE_H2D] = 0.5;
    struct program *p = empty();
    add(p, LANE_COMPUTE, 10);
    add(p, LANE_H2D, 2);
    add(p, LANE_H2D, 2);
    near(program_simulate(p, &m, NULL, NULL, NULL), 12);
    near(p->instrs[2].end, 4);
    program_destroy(p);
}

/* An instruction that finds its lane idle, at first or after waiting, takes longer; one that follows at once does not. */
static void idle_lanes(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.lane_idle[LANE_READ] = 0.5;
    struct program *p = empty();
    add(p, LANE_READ, 2);
    add(p, LANE_READ, 2);
    add(p, LANE_COMPUTE, 6);
    add(p, LANE_READ, 2);
    static const int first[] = {0, 0, 0, 0, 1}, dep[] = {2};
    near(program_simulate(p, &m, first, dep, NULL), 8.5);
    near(p->instrs[0].end, 2.5);
    near(p->instrs[1].end, 4.5);
    program_destroy(p);
}

/* Demands that together fit a link slow no lane; the narrowest link of a lane decides. */
static void several_links(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.demand[LANE_READ][LINK_DRIVES] = m.demand[LANE_WRITE][LINK_DRIVES] = 0.5;
    m.demand[LANE_READ][LINK_MEMORY] = m.demand[LANE_H2D][LINK_MEMORY] = 1;
    struct program *p = empty();
    add(p, LANE_READ, 2);
    add(p, LANE_WRITE, 2);
    near(program_simulate(p, &m, NULL, NULL, NULL), 2);
    add(p, LANE_H2D, 4); /* slows the read to half, but not the write */
    near(program_simulate(p, &m, NULL, NULL, NULL), 6);
    near(p->instrs[0].end, 4);
    near(p->instrs[1].end, 2);
    program_destroy(p);
}

/* Returns costs with which either I/O lane alone moves a block per second. */
static struct cost_model drive_costs(double demand)
{
    struct cost_model m = unit_costs();
    for (int l = LANE_READ; l <= LANE_WRITE; l++) {
        m.lane_bytes[l] = DRIVE_BLOCK;
        m.demand[l][LINK_DRIVES] = demand;
    }
    return m;
}

/* One block beside 15 in flight gets a 16th of the drive, whether they are one extent or many. A queue is at most as long as the
 * window. An instruction that still waits is not in flight. */
static void drives_by_bytes_in_flight(void **state)
{
    (void)state;
    struct cost_model m = drive_costs(1);
    struct program *p = empty();
    add(p, LANE_WRITE, DRIVE_BLOCK);
    add(p, LANE_READ, 15 * DRIVE_BLOCK);
    near(program_simulate(p, &m, NULL, NULL, NULL), 16);
    near(p->instrs[0].end, 16);
    near(p->instrs[1].end, 16);
    add(p, LANE_READ, 15 * DRIVE_BLOCK);
    near(program_simulate(p, &m, NULL, NULL, NULL), 31);
    near(p->instrs[1].end, 15 * 17 / 16.0); /* until then the write gets a 17th of the drive, then a 16th */
    near(p->instrs[0].end, 15 * 17 / 16.0 + 1);
    program_destroy(p);
    p = empty();
    add(p, LANE_WRITE, DRIVE_BLOCK);
    add(p, LANE_READ, DRIVE_BLOCK);
    int waits = add(p, LANE_READ, 15 * DRIVE_BLOCK);
    const int first[] = {0, 0, 0, 1}, dep[] = {0};
    near(program_simulate(p, &m, first, dep, NULL), 17);
    near(p->instrs[0].end, 2); /* a half */
    near(p->instrs[waits].start, 2);
    program_destroy(p);
}

/* Reads of 16 blocks in flight leave writes of 4 a quarter of their rate, or all of it if the drive can spare it. This drive
 * serves reads at their full rate and 4 blocks of writes in their 16 s. The other 12 blocks follow. */
static void writes_yield(void **state)
{
    (void)state;
    struct cost_model m = drive_costs(0.75);
    struct program *p = empty();
    add(p, LANE_READ, DRIVE_DEPTH * DRIVE_BLOCK);
    add(p, LANE_WRITE, DRIVE_DEPTH * DRIVE_BLOCK);
    near(program_simulate(p, &m, NULL, NULL, NULL), 1.5 * DRIVE_DEPTH);
    p->write_depth = 4;
    near(program_simulate(p, &m, NULL, NULL, NULL), 2 * DRIVE_DEPTH - 4);
    near(p->instrs[0].end, DRIVE_DEPTH);
    program_destroy(p);
}

/* A depth of writes that is not below the blocks that were queued changes nothing; a smaller one does. */
static void deep_enough_is_no_bound(void **state)
{
    (void)state;
    enum { BLOCKS = 3 };
    struct cost_model m = drive_costs(0.75);
    struct program *p = empty();
    double ends[BLOCKS + 1];
    add(p, LANE_READ, DRIVE_DEPTH * DRIVE_BLOCK);
    add(p, LANE_WRITE, BLOCKS * DRIVE_BLOCK);
    assert_int_equal(p->writes_queued, 0);
    for (int depth = 0; depth <= BLOCKS; depth++) {
        p->write_depth = depth;
        program_simulate(p, &m, NULL, NULL, NULL);
        ends[depth] = p->instrs[1].end;
        assert_int_equal(p->writes_queued, BLOCKS); /* the most so far */
    }
    assert_true(ends[BLOCKS] == ends[0] && ends[BLOCKS - 1] > ends[0]);
    program_destroy(p);
}

static void curves(void **state)
{
    (void)state;
    struct curve c = {.n = 3, .x = {1024, 4096, 16384}, .y = {10, 30, 40}};
    near(curve_at(&c, 1), 10);
    near(curve_at(&c, 1024), 10);
    near(curve_at(&c, 2048), 20);
    near(curve_at(&c, 4096), 30);
    near(curve_at(&c, 1e9), 40);
    struct gemm_rates g;
    for (int i = 0; i < GEMM_SHAPES; i++)
        g.flops[GEMM_NT][i] = 100 * (i / 16) + 10 * (i / 4 % 4) + i % 4;
    near(gemm_rate(&g, GEMM_NT, 64, 256, 4096), 13);
    near(gemm_rate(&g, GEMM_NT, 128, 1024, 512), 50 + 20 + 1.5);
    near(gemm_rate(&g, GEMM_NT, 1e6, 1e6, 1e6), 333);
    near(gemm_rate(&g, GEMM_NT, 256, 256, 16), 110.0 / 4);
    struct attention_rates a[ATTENTION_DIMS] = {{64, {.n = 1, .x = {1}, .y = {50}}, {.n = 1, .x = {1}, .y = {40}}},
                                                {256, {.n = 1, .x = {1}, .y = {70}}, {.n = 1, .x = {1}, .y = {60}}}};
    near(attention_rate(a, OP_ATTN_FWD, 32, 100), 50);
    near(attention_rate(a, OP_ATTN_FWD, 128, 100), 60);
    near(attention_rate(a, OP_ATTN_BWD, 256, 100), 60);
    near(attention_rate(a, OP_ATTN_BWD, 512, 100), 60);
}

/* An instruction costs its work over the rate, plus the fixed part. */
static void costs(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    m.overhead = 0.5;
    m.lane_seconds[LANE_WORLD] = 0.25;
    m.device.ops.op[OP_NORM][BF16] = (struct curve){.n = 1, .x = {1}, .y = {4}};
    struct instr in = {.op = OP_NORM, .lane = LANE_COMPUTE};
    struct op_call call = {.bytes = 8};
    near(cost_seconds(&m, &in, &call), 8.5); /* fp32 has no curve of its own */
    call.attrs.norm.dtype = BF16;
    near(cost_seconds(&m, &in, &call), 2.5);
    in.lane = LANE_HOST;
    near(cost_seconds(&m, &in, &call), 8.5);
    in.lane = LANE_WORLD;
    near(cost_seconds(&m, &in, &call), 8.25);
}

/* Values of another width than keys cost as they are on CPUs; on GPUs both are as wide as the wider one, in FLOPs and in rate. */
static void widths(void **state)
{
    (void)state;
    struct cost_model m = {0};
    struct instr in = {.op = OP_ATTN_FWD, .lane = LANE_COMPUTE};
    struct op_call call = {
        .attrs.attn = {.sq = 10, .sk = 10, .hq = 1, .hk = 1, .head_dim = 192, .value_dim = 128, .dtype = BF16}};
    m.device.attention[BF16][0] = (struct attention_rates){128, {.n = 1, .x = {1}, .y = {8}}, {.n = 1, .x = {1}, .y = {8}}};
    m.device.attention[BF16][1] = (struct attention_rates){192, {.n = 1, .x = {1}, .y = {4}}, {.n = 1, .x = {1}, .y = {4}}};
    for (int i = 0; i < 4; i++) {
        in.op = i < 2 ? OP_ATTN_FWD : OP_ATTN_BWD;
        m.pads = i % 2;
        call.flops = op_flops(in.op, &call.attrs, 55);
        near(cost_seconds(&m, &in, &call),
             55.0 * (i < 2 ? 2 * 192 + 2 * (m.pads ? 192 : 128) : 6 * 192 + 4 * (m.pads ? 192 : 128)) / 4);
    }
    call.attrs.attn.head_dim = 64, call.attrs.attn.value_dim = 192;
    call.flops = op_flops(OP_ATTN_BWD, &call.attrs, 55);
    near(cost_seconds(&m, &in, &call), 55.0 * 10 * 192 / 4);
}

/* Second lines. A message of 3 s is reduced from compute's first 2 s and added to another sum in 1 s. The sum runs as soon as it
 * may and compute is free, before work that stood ahead of it. The reduction goes before a gather that compute is far from
 * needing, and after one that it is about to need. */
static void second_lines(void **state)
{
    (void)state;
    struct cost_model m = unit_costs();
    for (int soon = 0; soon < 2; soon++) {
        struct program *p = empty();
        add(p, LANE_COMPUTE, 2);
        int gather = add(p, LANE_WORLD, 3), reduction = add(p, LANE_WORLD, 3), sum = add(p, LANE_COMPUTE, 1);
        for (int i = 0; i < 4; i++)
            add(p, LANE_COMPUTE, 2);
        p->instrs[gather].depth = 1;
        const double planned[] = {0, soon ? 2 : 8, 2, 2, 2, 4, 6, 8}, release[8] = {0};
        const uint8_t in[8] = {[2] = 1, [3] = 1};
        const int first[] = {0, 0, 1, 2, 3, 4, 5, 6, 7}, dep[] = {0, 0, 2, 0, 4, 5, 6};
        const struct second_lines second = {in, planned};
        near(program_simulate_lines(p, &m, first, dep, release, &second), 11);
        near(p->instrs[reduction].start, soon ? 5 : 2);
        near(p->instrs[gather].start, soon ? 2 : 5);
        near(p->instrs[sum].start, soon ? 8 : 6);
        near(program_simulate(p, &m, first, dep, release), 17);
        program_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone),
                                       cmocka_unit_test(chained),
                                       cmocka_unit_test(second_lines),
                                       cmocka_unit_test(halves),
                                       cmocka_unit_test(uneven),
                                       cmocka_unit_test(wakes),
                                       cmocka_unit_test(idle_lanes),
                                       cmocka_unit_test(several_links),
                                       cmocka_unit_test(drives_by_bytes_in_flight),
                                       cmocka_unit_test(writes_yield),
                                       cmocka_unit_test(deep_enough_is_no_bound),
                                       cmocka_unit_test(curves),
                                       cmocka_unit_test(costs),
                                       cmocka_unit_test(widths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
