/* Tests the mesh verifier: correct meshes are accepted, one rank's deviation is rejected with the right message, and deadlocks
 * are found exactly where brute force finds them. */
#include "base/rng.h"
#include "base/sys.h"
#include "extent.h"
#include "verify/build.h"
#include "verify/grid.h"
#include "verify/mutate.h"
#include "verify/verify.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PAGE 4096

enum { FLOATS = PAGE / 4 };

/* --- Programs --- */

static struct instr *last(struct program *p)
{
    return &p->instrs[p->n_instrs - 1];
}

/* Adds tensor t, which is in page t, as an operand; `version` is the version that is read or made. */
static void operand(struct program *p, int arg, enum access access, int t, int version, int64_t rows)
{
    build_operand(p, arg, access, t, 0, t, version, 0, rows);
}

static void collective(struct program *p, enum op_kind op, enum lane lane, int64_t n, int64_t share)
{
    program_add_instr(p, op, lane);
    program_call(p, last(p))->attrs.comm.n = n;
    program_call(p, last(p))->attrs.comm.share = share;
    program_call(p, last(p))->attrs.comm.element = 4;
}

static void wait_for_last_of(struct program *p, enum lane lane)
{
    int64_t ticket = 0;
    for (int i = 0; i < p->n_instrs - 1; i++)
        ticket += p->instrs[i].lane == lane;
    if (ticket > 0)
        build_wait(p, lane, ticket);
}

enum { SHARD, PARAM, Q, HEADS, K, FAR_K, V, FAR_V, GRAD, SHARD_GRAD, COPY, N_TENSORS };

/* Makes a program of `layers` rounds: parameters are gathered, heads exchanged, k and v passed on, gradients scattered. Each
 * round makes new values. */
static struct program *layers_of(const char *name, int world, int ulysses, int ring, int layers)
{
    static const char *const names[] = {"shard", "param", "q", "heads", "k", "far_k", "v", "far_v", "grad", "shard_grad", "copy"};
    struct program *p = build_begin(name, N_TENSORS * PAGE, 0, 0);
    p->group_size[LANE_WORLD] = world;
    p->group_size[LANE_ULYSSES] = ulysses;
    p->group_size[LANE_RING] = ring;
    p->group_size[LANE_SEQUENCE] = ulysses > 1 && ring > 1 && world > ulysses * ring ? ulysses * ring : 1;
    for (int t = 0; t < N_TENSORS; t++) {
        program_add_tensor(p, names[t], CLASS_ACT, FLOATS, 4);
        build_buffer(p, TIER_DEVICE, t * PAGE, PAGE, 1);
        build_bind(p, 0, t, 0, t, 0, 0, FLOATS);
    }
    int64_t share = (FLOATS + world - 1) / world;
    for (int v = 1; v <= layers; v++) {
        collective(p, OP_ALL_GATHER, LANE_WORLD, FLOATS, share);
        operand(p, 0, ACCESS_READ, SHARD, 0, share);
        operand(p, 1, ACCESS_WRITE, PARAM, v, FLOATS);
        wait_for_last_of(p, LANE_COMPUTE);
        for (int t = Q; t <= V; t += 2) {
            program_add_instr(p, OP_GELU, LANE_COMPUTE);
            operand(p, 0, ACCESS_WRITE, t, v, FLOATS);
            operand(p, 1, ACCESS_READ, PARAM, v, FLOATS);
            wait_for_last_of(p, LANE_WORLD);
            wait_for_last_of(p, LANE_RING);
            wait_for_last_of(p, LANE_ULYSSES);
        }
        if (ulysses > 1) {
            collective(p, OP_ALL_TO_ALL, LANE_ULYSSES, FLOATS, FLOATS / ulysses);
            operand(p, 0, ACCESS_READ, Q, v, FLOATS);
            operand(p, 1, ACCESS_WRITE, HEADS, v, FLOATS);
            wait_for_last_of(p, LANE_COMPUTE);
        }
        for (int s = 1; s < ring; s++) {
            for (int t = K; t <= V; t += 2) {
                collective(p, OP_EXCHANGE, LANE_RING, FLOATS, FLOATS);
                program_call(p, last(p))->attrs.comm.distance = s;
                program_call(p, last(p))->attrs.comm.send_if = 2 * s;
                program_call(p, last(p))->attrs.comm.recv_if = 2 * s - 1;
                operand(p, 0, ACCESS_READ, t, v, FLOATS);
                operand(p, 1, ACCESS_WRITE, t + 1, v, FLOATS);
                if (s == 1)
                    wait_for_last_of(p, LANE_COMPUTE);
            }
        }
        program_add_instr(p, OP_GELU, LANE_COMPUTE);
        operand(p, 0, ACCESS_WRITE, GRAD, v, FLOATS);
        operand(p, 1, ACCESS_READ, HEADS, ulysses > 1 ? v : 0, FLOATS);
        wait_for_last_of(p, LANE_WORLD);
        wait_for_last_of(p, LANE_ULYSSES);
        collective(p, OP_REDUCE_SCATTER, LANE_WORLD, FLOATS, share);
        operand(p, 0, ACCESS_READ, GRAD, v, FLOATS);
        operand(p, 1, ACCESS_WRITE, SHARD_GRAD, v, share);
        wait_for_last_of(p, LANE_COMPUTE);
    }
    program_number(p);
    return p;
}

static void expect_verified(const struct program *p)
{
    if (program_verify(p) != OK)
        fail_msg("rejected: %s", status_message());
}

static void test_grids(void **state)
{
    (void)state;
    static const int shapes[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 2, 2}, {2, 3, 4}, {4, 4, 8}, {3, 5, 2}, {1, 1, 8}};
    static struct grid g;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int dp = shapes[s][0], ring = shapes[s][1], ulysses = shapes[s][2];
        struct program *p = layers_of("layers", dp * ring * ulysses, ulysses, ring, 3);
        expect_verified(p);
        grid_make(&g, dp, ring, ulysses);
        if (program_verify_mesh((const struct program *const[]){p}, 1, &g.m) != OK)
            fail_msg("rejected: %s", status_message());
        program_destroy(p);
    }
    /* a program for one rank has no groups */
    struct program *alone = build_begin("alone", 0, 0, 0);
    grid_make(&g, 1, 1, 1);
    assert_int_equal(program_verify_mesh((const struct program *const[]){alone}, 1, &g.m), OK);
    program_destroy(alone);
}

/* Roles may differ in what concerns no other rank: one has more compute in between, and more waits. */
static void test_roles(void **state)
{
    (void)state;
    static struct grid g;
    struct program *p = layers_of("plain", 8, 2, 2, 2), *q = layers_of("more", 8, 2, 2, 2);
    program_add_instr(q, OP_GELU, LANE_COMPUTE);
    operand(q, 0, ACCESS_WRITE, COPY, 9, FLOATS);
    operand(q, 1, ACCESS_READ, SHARD, 0, FLOATS);
    program_number(q);
    expect_verified(q);
    grid_make(&g, 2, 2, 2);
    for (int set = 0; set < 256; set++) {
        for (int r = 0; r < 8; r++)
            g.role[r] = set >> r & 1;
        if (program_verify_mesh((const struct program *const[]){p, q}, 2, &g.m) != OK)
            fail_msg("roles %02x: %s", (unsigned)set, status_message());
    }
    program_destroy(p);
    program_destroy(q);
}

/* Ranks may start collectives of two lanes in different orders, unless these share a stream. */
static void test_one_stream(void **state)
{
    (void)state;
    static struct grid g;
    struct program *of[2];
    for (int turned = 0; turned < 2; turned++) {
        struct program *p = of[turned] = build_begin("two lanes", N_TENSORS * PAGE, 0, 0);
        p->group_size[LANE_WORLD] = p->group_size[LANE_RING] = 2;
        for (int t = SHARD; t <= HEADS; t++) {
            program_add_tensor(p, t == SHARD || t == Q ? "from" : "to", CLASS_ACT, FLOATS, 4);
            build_buffer(p, TIER_DEVICE, t * PAGE, PAGE, 1);
            build_bind(p, 0, t, 0, t, 0, 0, FLOATS);
        }
        for (int k = 0; k < 2; k++) {
            const int ring = k != turned;
            collective(p, ring ? OP_ALL_TO_ALL : OP_ALL_GATHER, ring ? LANE_RING : LANE_WORLD, FLOATS, FLOATS / 2);
            operand(p, 0, ACCESS_READ, ring ? Q : SHARD, 0, ring ? FLOATS : FLOATS / 2);
            operand(p, 1, ACCESS_WRITE, ring ? HEADS : PARAM, 1, FLOATS);
        }
        program_number(p);
        expect_verified(p);
    }
    grid_make(&g, 1, 2, 1);
    for (int turned = 0; turned < 2; turned++)
        for (g.m.chained = 0; g.m.chained < 2; g.m.chained++) {
            g.role[1] = turned;
            const enum status st = program_verify_mesh((const struct program *const *)of, 2, &g.m);
            assert_int_equal(st, turned && g.m.chained ? ERR_CORRUPT : OK);
            if (st != OK)
                assert_non_null(strstr(status_message(), "deadlock"));
        }
    g.m.chained = g.role[1] = 0;
    program_destroy(of[0]);
    program_destroy(of[1]);
}

/* --- One rank deviates --- */

static struct op_attrs *attrs(struct program *p, enum lane lane, int k)
{
    return &program_call(p, &p->instrs[mutate_find(p, lane, k)])->attrs;
}

/* Plants a deviation; so do the functions that follow. Instructions of the world lane: gather, scatter, gather, scatter; of the
 * ring lane: messages of k and v at 1 and 2, twice. */
static void other_share(struct program *p)
{
    attrs(p, LANE_WORLD, 0)->comm.share =
        FLOATS / 8; /* with this larger share fewer members have a part than with the others' share */
    p->operands[p->instrs[mutate_find(p, LANE_WORLD, 0)].first_operand].bytes = FLOATS / 8 * 4;
}
static void other_size(struct program *p)
{
    struct instr *in = &p->instrs[mutate_find(p, LANE_RING, 3)];
    program_call(p, in)->attrs.comm.n = program_call(p, in)->attrs.comm.share = FLOATS / 2;
    for (int k = 0; k < 2; k++)
        p->operands[in->first_operand + k].bytes = PAGE / 2;
}
static void other_wire(struct program *p)
{
    attrs(p, LANE_WORLD, 3)->comm.type = BF16;
}
static void other_element(struct program *p)
{
    struct op_attrs *a = attrs(p, LANE_ULYSSES, 0);
    a->comm.element = 2;
    a->comm.n *= 2;
    a->comm.share *= 2;
}
static void flipped(struct program *p)
{
    struct op_attrs *a = attrs(p, LANE_RING, 0);
    a->comm.distance = -1;
    a->comm.send_if = 1;
    a->comm.recv_if = 2;
}
static void same_way(struct program *p)
{
    attrs(p, LANE_RING, 0)->comm.distance = 1 - 4;
}
static void never_leaves_out(struct program *p)
{
    attrs(p, LANE_RING, 2)->comm.send_if = attrs(p, LANE_RING, 2)->comm.recv_if = 0;
}
static void swapped(struct program *p) /* k and v */
{
    int i = mutate_find(p, LANE_RING, 2);
    struct instr t = p->instrs[i];
    p->instrs[i] = p->instrs[i + 1];
    p->instrs[i + 1] = t;
    program_number(p);
}
static void other_rows(struct program *p)
{
    struct operand *o = &p->operands[p->instrs[mutate_find(p, LANE_WORLD, 0)].first_operand];
    o->row0 += 8, o->offset += 32;
}
static void dropped(struct program *p)
{
    mutate_drop(p, LANE_RING, 5);
}
static void dropped_last(struct program *p)
{
    mutate_drop(p, LANE_WORLD, 3);
}
static void other_op(struct program *p)
{
    struct instr *in = &p->instrs[mutate_find(p, LANE_WORLD, 2)];
    in->op = OP_EXCHANGE;
    program_call(p, in)->attrs.comm.distance = 1;
    program_call(p, in)->attrs.comm.n = program_call(p, in)->attrs.comm.share;
    p->operands[in->first_operand + 1].bytes = p->operands[in->first_operand].bytes;
}
static void made_for_others(struct program *p)
{
    p->group_size[LANE_WORLD] = 25;
}

static const struct deviation {
    const char *name;
    void (*plant)(struct program *p);
    const char *sentence;
} deviations[] = {
    {"share", other_share,
     "mesh: at instruction number 1 of lane world, rank 0 (program layers) has share = 43, but rank 13 (program layers) 128"},
    {"size", other_size,
     "at instruction number 4 of lane ring, rank 9 (program layers) has n = 1024, but rank 13 (program layers) 512"},
    {"wire", other_wire,
     "at instruction number 4 of lane world, rank 0 (program layers) has type = 0, but rank 13 (program layers) 1"},
    {"element", other_element,
     "at instruction number 1 of lane ulysses, rank 12 (program layers) has n = 1024, but rank 13 (program layers) 2048"},
    {"distance", flipped,
     "at instruction number 1 of lane ring, rank 9 (program layers) has distance = 1, but rank 13 (program layers) -1"},
    {"distance by another name", same_way, "has distance = 1, but rank 13 (program layers) -3"},
    {"predicates", never_leaves_out,
     "at instruction number 3 of lane ring, rank 9 (program layers) has send_if = 4, but rank 13 (program layers) 0"},
    {"swapped", swapped,
     "at instruction number 3 of lane ring, rank 9 (program layers) has argument 0 = k from row 0, but rank 13 (program layers) "
     "v from row 0"},
    {"rows", other_rows, "has argument 0 = shard from row 0, but rank 13 (program layers) shard from row 8"},
    {"dropped", dropped,
     "at instruction number 6 of lane ring, rank 9 (program layers) has distance = 3, but rank 13 (program layers) 1"},
    {"dropped at the end", dropped_last,
     "lane world of rank 0 (program layers) has 4 instructions, that of rank 13 (program layers) 3: number 4 has no partner"},
    {"op", other_op,
     "at instruction number 3 of lane world, rank 0 (program layers) has op all_gather, but rank 13 (program layers) exchange"},
    {"made for others", made_for_others, "rank 13's group on lane world has 24 members, but its program layers was made for 25"},
};

/* Every deviation of rank 13 is found on dp 3 x ring 4 x ulysses 2. Rank 13 is place (1, 2, 1): its ring starts with rank 9, its
 * ulysses group with rank 12. */
static void test_deviations(void **state)
{
    (void)state;
    static struct grid g;
    for (size_t i = 0; i < sizeof deviations / sizeof *deviations; i++) {
        struct program *p = layers_of("layers", 24, 2, 4, 2), *q = layers_of("layers", 24, 2, 4, 2);
        grid_make(&g, 3, 4, 2);
        g.role[13] = 1;
        deviations[i].plant(q);
        enum status st = program_verify_mesh((const struct program *const[]){p, q}, 2, &g.m);
        if (st != ERR_CORRUPT || !strstr(status_message(), deviations[i].sentence))
            fail_msg("%s: status %d, \"%s\"; expected \"%s\"", deviations[i].name, (int)st,
                     st == OK ? "accepted" : status_message(), deviations[i].sentence);
        /* if all ranks have the deviating program, they match, except in the one case that is made for another number of ranks */
        for (int r = 0; r < g.m.n_ranks; r++)
            g.role[r] = 1;
        if (deviations[i].plant != made_for_others)
            assert_int_equal(program_verify_mesh((const struct program *const[]){p, q}, 2, &g.m), OK);
        program_destroy(p);
        program_destroy(q);
    }
}

static void test_descriptions(void **state)
{
    (void)state;
    static struct grid g;
    struct program *p = layers_of("layers", 12, 2, 3, 1);
    const struct program *const roles[] = {p};
    grid_make(&g, 2, 3, 2);
    assert_int_equal(program_verify_mesh(roles, 1, &g.m), OK);
    const struct {
        int32_t *at, value;
        const char *sentence;
    } faults[] = {
        {&g.role[3], 1, "rank 3 has role 1 of 1"},
        {&g.role[3], -1, "rank 3 has role -1 of 1"},
        {&g.group[1][4], 12, "rank 4 is in group 12 of lane ulysses, of 12 ranks"},
        {&g.group[1][4], -1, "rank 4 is in group -1 of lane ulysses, of 12 ranks"},
        {&g.group[1][4], 1, "on lane ulysses"},
        {&g.member[2][4], 3, "rank 4 is member 3 of a group of 3 on lane ring"},
        {&g.member[2][4], -1, "rank 4 is member -1 of a group of 3 on lane ring"},
        {&g.member[0][4], 5, "ranks 4 and 5 are both member 5 of one group on lane world"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int32_t before = *faults[i].at;
        *faults[i].at = faults[i].value;
        assert_int_equal(program_verify_mesh(roles, 1, &g.m), ERR_CORRUPT);
        if (!strstr(status_message(), faults[i].sentence))
            fail_msg("\"%s\", expected \"%s\"", status_message(), faults[i].sentence);
        *faults[i].at = before;
    }
    g.m.group[LANE_RING] = NULL;
    assert_int_equal(program_verify_mesh(roles, 1, &g.m), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "rank 0's group on lane ring has 1 members, but its program layers was made for 3"));
    program_destroy(p);
}

/* --- Deadlock --- */

/* Makes a program with a sum over all ranks and a message around the ring, in either order; the second one waits for the first. */
static struct program *in_order(const char *name, enum lane first, int strict)
{
    struct program *p = build_begin(name, 4 * PAGE, 0, 0);
    p->group_size[LANE_WORLD] = 4;
    p->group_size[LANE_RING] = 2;
    for (int t = 0; t < 3; t++) {
        program_add_tensor(p, t == 0 ? "sum" : t == 1 ? "k" : "far_k", CLASS_ACT, FLOATS, 4);
        build_buffer(p, TIER_DEVICE, t * PAGE, PAGE, 1);
        build_bind(p, 0, t, 0, t, 0, 0, FLOATS);
    }
    for (int k = 0; k < 2; k++) {
        if ((k == 0) == (first == LANE_WORLD)) {
            collective(p, OP_ALL_REDUCE, LANE_WORLD, FLOATS, FLOATS / 4);
            operand(p, 0, ACCESS_UPDATE, 0, 0, FLOATS);
        } else {
            collective(p, OP_EXCHANGE, LANE_RING, FLOATS, FLOATS);
            program_call(p, last(p))->attrs.comm.distance = 1;
            operand(p, 0, ACCESS_READ, 1, 0, FLOATS);
            operand(p, 1, ACCESS_WRITE, 2, 1, FLOATS);
        }
        if (k == 1 && strict)
            build_wait(p, first, 1);
    }
    program_number(p);
    return p;
}

static void test_deadlock(void **state)
{
    (void)state;
    static struct grid g;
    struct program *world = in_order("world first", LANE_WORLD, 1), *ring = in_order("ring first", LANE_RING, 1),
                   *free_order = in_order("any order", LANE_RING, 0);
    const struct program *const roles[] = {world, ring, free_order};
    expect_verified(world);
    expect_verified(ring);
    expect_verified(free_order);
    grid_make(&g, 2, 2, 1);
    for (int set = 0; set < 81; set++) {
        int uses[3] = {0};
        for (int r = 0, x = set; r < 4; r++, x /= 3)
            uses[g.role[r] = x % 3] = 1;
        int apart =
            1; /* ranks of one ring have the same order; rings are connected only by the sum, which some rings then start later */
        for (int r = 0; r < 4; r += 2)
            apart &= !((g.role[r] == 0 && g.role[r + 1] == 1) || (g.role[r] == 1 && g.role[r + 1] == 0));
        enum status st = program_verify_mesh(roles, 3, &g.m);
        assert_int_equal(st, uses[0] && uses[1] && !apart ? ERR_CORRUPT : OK);
    }
    memcpy(g.role, (int32_t[]){2, 2, 0, 1}, sizeof(int32_t[4]));
    assert_int_equal(program_verify_mesh(roles, 3, &g.m), ERR_CORRUPT);
    static const char *const sentence =
        "mesh: deadlock, each waiting for the next: rank 2 (program world first), ring number 1 (exchange), for rank 2 (program "
        "world first), world number 1 (all_reduce), for rank 3 (program ring first), world number 1 (all_reduce), for rank 3 "
        "(program ring first), ring number 1 (exchange), for the first of these";
    if (strcmp(status_message(), sentence) != 0)
        fail_msg("%s", status_message());
    program_destroy(world);
    program_destroy(ring);
    program_destroy(free_order);
}

/* --- Against brute force --- */

enum { RANDOM_MESHES = 4000, RANKS = 8, PER_LANE = 4, MOST = 20 /* instructions of a random program */ };

static uint64_t stream, drawn;

static int below(int n)
{
    return (int)rng_below(11, stream, drawn++, (uint64_t)n);
}

/* Makes a random program: equal collectives on each comm lane, the lanes interleaved at random, with compute and random waits. */
static struct program *random_program(const int *sizes)
{
    struct program *p = build_begin("random", 4 * PAGE, 0, 0);
    int left[4] = {0, 0, 0, below(MOST - 3 * PER_LANE + 1)};
    program_add_tensor(p, "x", CLASS_ACT, FLOATS, 4);
    build_buffer(p, TIER_DEVICE, 0, PAGE, 1);
    build_buffer(p, TIER_DEVICE, PAGE, PAGE, 1);
    for (int l = 0; l < 3; l++) {
        p->group_size[LANE_WORLD + l] = sizes[l];
        left[l] = sizes[l] > 1 ? PER_LANE : 0;
    }
    while (left[0] + left[1] + left[2] + left[3] > 0) {
        int l = below(4);
        if (left[l] == 0)
            continue;
        left[l]--;
        if (l < 3) {
            collective(p, OP_ALL_REDUCE, (enum lane)(LANE_WORLD + l), FLOATS, FLOATS);
            build_operand(p, 0, ACCESS_UPDATE, 0, 0, 0, 0, 0, FLOATS);
        } else {
            program_add_instr(p, OP_GELU, LANE_COMPUTE);
            build_operand(p, 0, ACCESS_WRITE, 1, 0, 0, 1, 0, FLOATS);
            build_operand(p, 1, ACCESS_READ, 0, 0, 0, 0, 0, FLOATS);
        }
    }
    program_number(p);
    for (int i = 1; i < p->n_instrs; i++) {
        const struct instr *other = &p->instrs[below(i)];
        if (below(3))
            program_add_wait(p, i, (struct wait){other->lane, other->ticket});
    }
    return p;
}

/* Shuffles the ranks into groups of the given size for lane l, independently of the other lanes' groups. */
static void random_groups(struct grid *g, int l, int n, int size)
{
    int order[RANKS];
    for (int r = 0; r < n; r++)
        order[r] = r;
    for (int r = n - 1; r > 0; r--) {
        int k = below(r + 1), t = order[r];
        order[r] = order[k];
        order[k] = t;
    }
    for (int k = 0; k < n; k++) {
        g->group[l][order[k]] = k / size;
        g->member[l][order[k]] = k % size;
    }
    g->m.group[LANE_WORLD + l] = size > 1 ? g->group[l] : NULL;
    g->m.member[LANE_WORLD + l] = size > 1 ? g->member[l] : NULL;
}

static struct {
    unsigned char edge[RANKS * MOST * 2][RANKS * MOST * 2];
    int n;
} graph;

static int node(int rank, int instr, int retired)
{
    return (rank * MOST + instr) * 2 + retired;
}

/* Tells whether the graph of all ranks has no cycle. Its nodes are start and retirement of each instruction, its edges all orders
 * between them. */
static int is_acyclic(const struct program *const *roles, const struct grid *g)
{
    int n = g->m.n_ranks, in[RANKS * MOST * 2] = {0}, done = 0, more = 1;
    static unsigned char gone[RANKS * MOST * 2];
    memset(&graph, 0, sizeof graph);
    memset(gone, 0, sizeof gone);
    graph.n = n * MOST * 2;
    for (int r = 0; r < n; r++) {
        const struct program *p = roles[g->role[r]];
        for (int i = 0; i < p->n_instrs; i++) {
            const struct instr *x = &p->instrs[i];
            graph.edge[node(r, i, 0)][node(r, i, 1)] = 1;
            for (int j = 0; j < p->n_instrs; j++) {
                if (p->instrs[j].lane == x->lane && p->instrs[j].ticket + 1 == x->ticket)
                    graph.edge[node(r, j, 1)][node(r, i, 0)] = 1;
                for (int w = 0; w < x->n_waits; w++) {
                    if ((int)p->instrs[j].lane == program_waits(p, x)[w].lane &&
                        p->instrs[j].ticket == program_waits(p, x)[w].ticket)
                        graph.edge[node(r, j, 1)][node(r, i, 0)] = 1;
                }
            }
            for (int s = 0; s < n && lane_is_comm(x->lane); s++) {
                const struct program *q = roles[g->role[s]];
                for (int j = 0; j < q->n_instrs && g->group[x->lane - LANE_WORLD][s] == g->group[x->lane - LANE_WORLD][r]; j++) {
                    if (q->instrs[j].lane == x->lane && q->instrs[j].ticket == x->ticket)
                        graph.edge[node(s, j, 0)][node(r, i, 1)] = 1;
                }
            }
        }
    }
    for (int a = 0; a < graph.n; a++) {
        for (int b = 0; b < graph.n; b++)
            in[b] += graph.edge[a][b];
    }
    while (more) {
        more = 0;
        for (int a = 0; a < graph.n; a++) {
            if (gone[a] || in[a] > 0)
                continue;
            gone[a] = 1;
            more = 1;
            done++;
            for (int b = 0; b < graph.n; b++)
                in[b] -= graph.edge[a][b];
        }
    }
    return done == graph.n;
}

static void test_random(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4, 6, 8};
    static struct grid g;
    int accepted = 0, rejected = 0;
    for (stream = 0; stream < RANDOM_MESHES; stream++) {
        drawn = 0;
        memset(&g, 0, sizeof g);
        int n = ranks[below(5)], n_roles = 1 + below(3), sizes[3];
        struct program *roles[3];
        g.m.n_ranks = n;
        g.m.role = g.role;
        for (int l = 0; l < 3; l++) {
            do
                sizes[l] = 1 + below(n);
            while (n % sizes[l] != 0);
            random_groups(&g, l, n, sizes[l]);
        }
        for (int k = 0; k < n_roles; k++)
            roles[k] = random_program(sizes);
        for (int r = 0; r < n; r++)
            g.role[r] = below(n_roles);
        int right = is_acyclic((const struct program *const *)roles, &g);
        enum status st = program_verify_mesh((const struct program *const *)roles, n_roles, &g.m);
        if (right != (st == OK) || (!right && !strstr(status_message(), "deadlock")))
            fail_msg("stream %llu: brute force says %s, the verifier %s", (unsigned long long)stream, right ? "right" : "wrong",
                     st == OK ? "right" : status_message());
        (*(right ? &accepted : &rejected))++;
        for (int k = 0; k < n_roles; k++)
            program_destroy(roles[k]);
    }
    print_message("%d accepted, %d rejected\n", accepted, rejected);
    assert_true(accepted > 500 && rejected > 500);
}

/* --- Many ranks --- */

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The steps that the verifier takes do not depend on the number of ranks. Counted allocations show that without measuring time. */
static void test_many_ranks(void **state)
{
    (void)state;
    static struct grid g;
    static const int shapes[][3] = {{2, 2, 2}, {16, 8, 8}};
    const int layers = extent(400, 2000, 2000);
    long allocations[2];
    for (int k = 0; k < 2; k++) {
        int dp = shapes[k][0], ring = shapes[k][1], ulysses = shapes[k][2];
        struct program *p = layers_of("layers", dp * ring * ulysses, ulysses, ring, layers), *q = mutate_copy(p);
        grid_make(&g, dp, ring, ulysses);
        long before = sys_count(SYS_MALLOC);
        double start = cpu_seconds();
        assert_int_equal(program_verify_mesh((const struct program *const[]){p}, 1, &g.m), OK);
        allocations[k] = sys_count(SYS_MALLOC) - before;
        print_message("%d ranks, %d instructions: %.3f s", g.m.n_ranks, p->n_instrs, cpu_seconds() - start);
        g.role[g.m.n_ranks - 1] = 1; /* another role breaks the symmetry, which makes more colours, but not as many as ranks */
        start = cpu_seconds();
        assert_int_equal(program_verify_mesh((const struct program *const[]){p, q}, 2, &g.m), OK);
        print_message(", with a role for the last rank %.3f s", cpu_seconds() - start);
        for (int l = 0; l < 3; l++)
            assert_true(g.m.group[LANE_WORLD + l] != NULL);
        program_call(q, &q->instrs[mutate_find(q, LANE_WORLD, layers - 1)])->attrs.comm.type = BF16;
        start = cpu_seconds();
        assert_int_equal(program_verify_mesh((const struct program *const[]){p, q}, 2, &g.m), ERR_CORRUPT);
        print_message(", if that deviates %.3f s\n", cpu_seconds() - start);
        program_destroy(p);
        program_destroy(q);
    }
    assert_int_equal(allocations[0], allocations[1]);
}

/* Every allocation fails once, and each failure is reported. */
static void test_out_of_memory(void **state)
{
    (void)state;
    static struct grid g;
    struct program *p = layers_of("plain", 4, 2, 2, 1), *q = mutate_copy(p);
    const struct program *const roles[] = {p, q};
    grid_make(&g, 1, 2, 2);
    g.role[2] = 1;
    long before = sys_count(SYS_MALLOC);
    assert_int_equal(program_verify_mesh(roles, 2, &g.m), OK);
    long n = sys_count(SYS_MALLOC) - before;
    assert_true(n > 10);
    for (int i = 1; i <= n; i++) {
        sys_inject(SYS_MALLOC, i, ENOMEM);
        assert_int_equal(program_verify_mesh(roles, 2, &g.m), ERR_NOMEM);
        sys_inject_clear();
    }
    program_destroy(p);
    program_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids),      cmocka_unit_test(test_roles),        cmocka_unit_test(test_one_stream),
        cmocka_unit_test(test_deviations), cmocka_unit_test(test_descriptions), cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_random),     cmocka_unit_test(test_many_ranks),   cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
