/* Tests collectives and predicates in one rank's program: right ones are accepted, and each planted fault is rejected with the
 * right message. */
#include "verify/build.h"
#include "verify/mutate.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROW 1024
#define PAGE 4096

enum { WORLD = 6, ULYSSES = 2, RING = 3 };
enum { FLOATS = PAGE / 4 }; /* elements of a tensor: each tensor has a page */
enum tensor_index {
    SHARD,
    PARAM,
    Q,
    HEADS,
    K,
    FAR_K,
    O,
    LSE,
    O_PART,
    LSE_PART,
    LO,
    DELTA,
    D_O,
    DQ,
    DQ_PART,
    DK,
    DK_PART,
    DV_PART,
    BACK_K,
    SUM,
    N_TENSORS
};
static const char *const names[] = {"shard",   "param",  "q",        "heads",   "k",      "far_k", "o",
                                    "lse",     "o_part", "lse_part", "lo",      "delta",  "d_o",   "dq",
                                    "dq_part", "dk",     "dk_part",  "dv_part", "back_k", "sum"};

/* Adds a whole tensor in its own buffer as an operand: `in` reads it at version `v`, `upd` updates it at version `v`, `out`
 * writes it first. */
static void in(struct program *p, int arg, int t, int v)
{
    build_operand(p, arg, ACCESS_READ, t, 0, t, v, 0, 4);
}
static void upd(struct program *p, int arg, int t, int v)
{
    build_operand(p, arg, ACCESS_UPDATE, t, 0, t, v, 0, 4);
}
static void out(struct program *p, int arg, int t)
{
    build_operand(p, arg, ACCESS_WRITE, t, 0, t, 0, 0, 4);
}

static struct instr *last(struct program *p)
{
    return &p->instrs[p->n_instrs - 1];
}

static void comm(struct program *p, enum op_kind op, enum lane lane, int64_t n, int64_t share)
{
    program_add_instr(p, op, lane);
    struct instr *x = last(p);
    program_call(p, x)->attrs.comm.n = n;
    program_call(p, x)->attrs.comm.share = share;
    program_call(p, x)->attrs.comm.element = 4;
    if (p->n_instrs > 1 && x[-1].lane != lane)
        build_wait(p, x[-1].lane, 0); /* the ticket is filled in later */
}

static void exchange(struct program *p, int src, int dst, int distance, int send_if, int recv_if)
{
    comm(p, OP_EXCHANGE, LANE_RING, FLOATS, FLOATS);
    program_call(p, last(p))->attrs.comm.distance = distance;
    program_call(p, last(p))->attrs.comm.send_if = send_if;
    program_call(p, last(p))->attrs.comm.recv_if = recv_if;
    in(p, 0, src, 0);
    out(p, 1, dst);
}

static void compute(struct program *p, enum op_kind op, int predicate)
{
    program_add_instr(p, op, LANE_COMPUTE);
    last(p)->predicate = (int16_t)predicate;
    if (p->n_instrs > 1 && last(p)[-1].lane != LANE_COMPUTE)
        build_wait(p, last(p)[-1].lane, 0);
}

static void attend(struct program *p, int predicate, int o, int lse, int k)
{
    compute(p, OP_ATTN_FWD, predicate);
    program_call(p, last(p))->attrs.attn.scale = 0.125f;
    out(p, 0, o);
    out(p, 1, lse);
    in(p, 2, HEADS, 0);
    in(p, 3, k, 0);
    in(p, 4, k, 0);
    in(p, 5, LO, 0);
    in(p, 6, LO, 0);
}

static void attend_backward(struct program *p, int predicate)
{
    compute(p, OP_ATTN_BWD, predicate);
    program_call(p, last(p))->attrs.attn.scale = 0.125f;
    out(p, 0, DQ_PART);
    out(p, 1, DK_PART);
    out(p, 2, DV_PART);
    in(p, 3, HEADS, 0);
    in(p, 4, FAR_K, 0);
    in(p, 5, FAR_K, 0);
    in(p, 6, DELTA, 0);
    in(p, 7, LSE, 1);
    in(p, 8, D_O, 0);
    in(p, 9, LO, 0);
    in(p, 10, LO, 0);
}

static void accumulate(struct program *p, int predicate, int sum, int part)
{
    compute(p, OP_ACCUM, predicate);
    upd(p, 0, sum, 0);
    in(p, 1, part, 0);
}

enum { GATHER, TO_HEADS, SEND_K, NEAR, FAR, MERGE, BACKWARD, ADD_DQ, SEND_DK, ADD_DK, SCATTER, REDUCE };

/* Makes one step of a ring with its messages, attention and merging. Each lane's instructions wait for the other lane's as far as
 * needed. */
static struct program *ring_step(void)
{
    struct program *p = build_begin("ring step", (N_TENSORS + 1) * PAGE, 0, 0);
    p->group_size[LANE_WORLD] = WORLD;
    p->group_size[LANE_ULYSSES] = ULYSSES;
    p->group_size[LANE_RING] = RING;
    for (int t = 0; t < N_TENSORS; t++) {
        program_add_tensor(p, names[t], CLASS_ACT, 4, ROW);
        build_buffer(p, TIER_DEVICE, t * PAGE, PAGE, 1);
    }
    int work = build_buffer(p, TIER_DEVICE, N_TENSORS * PAGE, PAGE, 0);
    static const int inputs[] = {SHARD, Q, K, LO, DELTA, D_O, DQ, DK, SUM};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        build_bind(p, 0, inputs[i], 0, inputs[i], 0, 0, 4);
    build_bind(p, 0, PARAM, 0, PARAM, 0, 0, 4);

    comm(p, OP_ALL_GATHER, LANE_WORLD, FLOATS, FLOATS / 4); /* shares that leave nothing for two of the six members */
    build_operand(p, 0, ACCESS_READ, SHARD, 0, SHARD, 0, 0, 1);
    build_operand(p, 1, ACCESS_WRITE, PARAM, 0, PARAM, 1, 0, 4);
    comm(p, OP_ALL_TO_ALL, LANE_ULYSSES, FLOATS, FLOATS / 2);
    in(p, 0, Q, 0);
    out(p, 1, HEADS);
    exchange(p, K, FAR_K, 1, 2, 1);
    attend(p, 0, O, LSE, K);
    attend(p, 1, O_PART, LSE_PART, FAR_K);
    compute(p, OP_ATTN_MERGE, 1);
    upd(p, 0, O, 0);
    upd(p, 1, LSE, 0);
    in(p, 2, O_PART, 0);
    in(p, 3, LSE_PART, 0);
    attend_backward(p, 1);
    accumulate(p, 1, DQ, DQ_PART);
    exchange(p, DK_PART, BACK_K, -1, 1, 2);
    accumulate(p, 2, DK, BACK_K);
    comm(p, OP_REDUCE_SCATTER, LANE_WORLD, FLOATS, FLOATS / 4);
    program_call(p, last(p))->attrs.comm.type = BF16;
    in(p, 0, DK, 1);
    build_operand(p, 1, ACCESS_WRITE, SHARD, 0, SHARD, 1, 0, 1);
    build_operand(p, 2, ACCESS_WRITE, work, 0, -1, 0, 0, PAGE);
    comm(p, OP_ALL_REDUCE, LANE_WORLD, FLOATS, (FLOATS + WORLD - 1) / WORLD);
    upd(p, 0, SUM, 0);
    build_operand(p, 1, ACCESS_WRITE, work, 0, -1, 0, 0, PAGE);

    build_bind(p, 1, PARAM, 0, PARAM, 1, 0, 4);
    build_bind(p, 1, O, 0, O, 1, 0, 4);
    build_bind(p, 1, DQ, 0, DQ, 1, 0, 4);
    build_bind(p, 1, SHARD, 0, SHARD, 1, 0, 1);
    build_bind(p, 1, SUM, 0, SUM, 1, 0, 4);
    program_number(p);
    for (int i = 1; i < p->n_instrs; i++) {
        if (p->instrs[i].n_waits)
            program_waits(p, &p->instrs[i])[0].ticket = p->instrs[i - 1].ticket;
    }
    p->instrs[TO_HEADS].n_waits = 0;
    program_waits(p, &p->instrs[SEND_DK])[0].ticket = p->instrs[BACKWARD].ticket;
    return p;
}

static struct op_attrs *attrs(struct program *p, int i)
{
    return &program_call(p, &p->instrs[i])->attrs;
}
static struct operand *arg(struct program *p, int i, int k)
{
    return &p->operands[p->instrs[i].first_operand + k];
}

/* Plants a fault of form; so do the functions that follow. */
static void on_compute(struct program *p)
{
    p->instrs[GATHER].lane = LANE_COMPUTE, program_number(p);
}
static void kernel_on_comm(struct program *p)
{
    p->instrs[SEND_K].op = OP_GELU, program_call(p, &p->instrs[SEND_K])->attrs = (struct op_attrs){0};
}
static void copy_on_comm(struct program *p)
{
    p->instrs[SEND_K].op = OP_COPY;
}
static void alone(struct program *p)
{
    p->group_size[LANE_WORLD] = 1;
}
static void on_host(struct program *p)
{
    p->buffers[Q].tier = TIER_HOST, p->arena[TIER_HOST] = p->arena[TIER_DEVICE];
}
static void gather_short(struct program *p)
{
    attrs(p, GATHER)->comm.share = FLOATS / WORLD;
}
static void gather_source(struct program *p)
{
    attrs(p, GATHER)->comm.share++;
}
static void gather_target(struct program *p)
{
    attrs(p, GATHER)->comm.n--;
}
static void gather_element(struct program *p)
{
    attrs(p, GATHER)->comm.element = 2;
}
static void no_elements(struct program *p)
{
    attrs(p, GATHER)->comm.n = 0;
}
static void large_share(struct program *p)
{
    attrs(p, GATHER)->comm.share = FLOATS + 1;
}
static void uneven(struct program *p)
{
    attrs(p, TO_HEADS)->comm.share++;
}
static void scatter_source(struct program *p)
{
    attrs(p, SCATTER)->comm.n -= 4;
}
static void scatter_target(struct program *p)
{
    attrs(p, SCATTER)->comm.share++;
}
static void scatter_element(struct program *p)
{
    attrs(p, SCATTER)->comm.element = 2;
}
static void scatter_wire(struct program *p)
{
    attrs(p, SCATTER)->comm.type = I32;
}
static void reduce_size(struct program *p)
{
    attrs(p, REDUCE)->comm.n++;
}
static void exchange_size(struct program *p)
{
    attrs(p, SEND_K)->comm.n--;
}
static void to_itself(struct program *p)
{
    attrs(p, SEND_K)->comm.distance = 0;
}
static void around(struct program *p)
{
    attrs(p, SEND_K)->comm.distance = RING;
}
static void gather_distance(struct program *p)
{
    attrs(p, GATHER)->comm.distance = 1;
}
static void gather_predicate(struct program *p)
{
    p->instrs[GATHER].predicate = 1;
}
static void flipped_distance(struct program *p)
{
    attrs(p, SEND_K)->comm.distance = -1;
}
static void halves_differ(struct program *p)
{
    attrs(p, SEND_K)->comm.send_if = 4;
}
static void half_always(struct program *p)
{
    attrs(p, SEND_K)->comm.recv_if = 0;
}
static void back_flipped(struct program *p)
{
    attrs(p, SEND_DK)->comm.send_if = 2, attrs(p, SEND_DK)->comm.recv_if = 1;
}
static void back_differ(struct program *p)
{
    attrs(p, SEND_DK)->comm.send_if = 3;
}
static void on_world(struct program *p)
{
    p->instrs[SEND_K].lane = LANE_WORLD, program_number(p),
    program_waits(p, &p->instrs[SEND_K + 1])[0] = (struct wait){LANE_WORLD, 2};
}
/* Plants a fault of predicates; so do the functions that follow. */
static void no_such(struct program *p)
{
    p->instrs[FAR].predicate = 5;
}
static void negative(struct program *p)
{
    p->instrs[FAR].predicate = -1;
}
static void may_not(struct program *p)
{
    p->instrs[NEAR].op = OP_GELU, p->instrs[NEAR].predicate = 1, p->instrs[NEAR].n_operands = 0;
}
static void multiplies(struct program *p)
{
    p->instrs[ADD_DQ].op = OP_MULTIPLY;
}
static void reads_always(struct program *p)
{
    p->instrs[FAR].predicate = 0;
}
static void reads_other(struct program *p)
{
    p->instrs[FAR].predicate = 3;
}
static void merges_always(struct program *p)
{
    p->instrs[MERGE].predicate = 0;
}
static void adds_other(struct program *p)
{
    p->instrs[ADD_DK].predicate = 1;
}
static void sends_other(struct program *p)
{
    p->instrs[BACKWARD].predicate = 3;
    p->instrs[FAR].predicate = 1;
    attrs(p, SEND_K)->comm.send_if = attrs(p, SEND_K)->comm.recv_if = 0;
    p->instrs[ADD_DQ].predicate = 3;
}
static void near_left_out(struct program *p)
{
    p->instrs[NEAR].predicate = 1;
}
static void part_is_there(struct program *p)
{
    p->instrs[FAR].predicate = 0;
    attrs(p, SEND_K)->comm.send_if = attrs(p, SEND_K)->comm.recv_if = 0;
}
static void half_a_part(struct program *p)
{
    arg(p, MERGE, 3)->tensor = arg(p, MERGE, 3)->buffer = DELTA;
}
static void addend_is_there(struct program *p)
{
    attrs(p, SEND_DK)->comm.send_if = attrs(p, SEND_DK)->comm.recv_if = 0;
    p->instrs[BACKWARD].predicate = 0;
    p->instrs[ADD_DQ].predicate = 0;
    attrs(p, SEND_K)->comm.send_if = attrs(p, SEND_K)->comm.recv_if = 0;
}
/* Makes the backward pass add to dk and to `sum` (instead of dv), which always exist. This is right as long as only the keys and
 * values depend on its predicate. */
static void backward_adds(struct program *p)
{
    attrs(p, BACKWARD)->attn.accumulate = 1;
    for (int k = 1; k <= 2; k++) {
        arg(p, BACKWARD, k)->access = ACCESS_UPDATE;
        arg(p, BACKWARD, k)->tensor = arg(p, BACKWARD, k)->buffer = k == 1 ? DK : SUM;
    }
    arg(p, SEND_DK, 0)->tensor = arg(p, SEND_DK, 0)->buffer = DQ_PART;
    arg(p, ADD_DK, 0)->version = arg(p, REDUCE, 0)->version = 1;
    arg(p, SCATTER, 0)->version = p->live_out[4].version = 2;
}
static void keys_are_there(struct program *p)
{
    backward_adds(p);
    arg(p, BACKWARD, 4)->tensor = arg(p, BACKWARD, 4)->buffer = K;
}
static void values_are_there(struct program *p)
{
    backward_adds(p);
    arg(p, BACKWARD, 5)->tensor = arg(p, BACKWARD, 5)->buffer = K;
}
static void bound(struct program *p)
{
    struct binding *b = &p->live_out[1];
    b->tensor = b->buffer = O_PART, b->version = 0;
}

static const struct {
    const char *name;
    void (*plant)(struct program *p);
    const char *sentence;
} faults[] = {
    {"on compute", on_compute, "collectives need a comm lane"},
    {"kernel on comm", kernel_on_comm, "comm lanes execute collectives only"},
    {"copy on comm", copy_on_comm, "instruction 2 (copy on ring): comm lanes execute collectives only"},
    {"alone", alone, "its lane's group has a single member"},
    {"on host", on_host, "comm lanes touch the device only, not from host memory"},
    {"gather: shares too small", gather_short, "6 members' shares of 170 elements do not make 1024"},
    {"gather: source", gather_source, "argument 0 has 1024 bytes, but 257 elements of 4"},
    {"gather: target", gather_target, "argument 1 has 4096 bytes, but 1023 elements of 4"},
    {"gather: element", gather_element, "argument 0 has 1024 bytes, but 256 elements of 2"},
    {"no elements", no_elements, "0 elements of 4 bytes"},
    {"large share", large_share, "6 members' shares of 1025 elements do not make 1024"},
    {"uneven", uneven, "2 members' shares of 513 elements do not make 1024"},
    {"scatter: source", scatter_source, "argument 0 has 4096 bytes, but 1020 elements of 4"},
    {"scatter: target", scatter_target, "argument 1 has 1024 bytes, but 257 elements of 4"},
    {"scatter: element", scatter_element, "sums are of fp32 elements, sent as fp32 or bf16"},
    {"scatter: wire", scatter_wire, "sums are of fp32 elements, sent as fp32 or bf16"},
    {"reduce: size", reduce_size, "argument 0 has 4096 bytes, but 1025 elements of 4"},
    {"exchange: size", exchange_size, "argument 0 has 4096 bytes, but 1023 elements of 4"},
    {"to itself", to_itself, "there is no other member at a distance of 0 in a group of 3"},
    {"around", around, "there is no other member at a distance of 3 in a group of 3"},
    {"gather: distance", gather_distance, "only exchanges have a distance"},
    {"gather: predicate", gather_predicate, "a collective is executed by all or none"},
    {"flipped distance", flipped_distance,
     "it sends under predicate 2 over a distance of -1 and receives under 1: the other end has another one"},
    {"halves differ", halves_differ,
     "it sends under predicate 4 over a distance of 1 and receives under 1: the other end has another one"},
    {"half always", half_always,
     "it sends under predicate 2 over a distance of 1 and receives under 0: the other end has another one"},
    {"back flipped", back_flipped,
     "it sends under predicate 2 over a distance of -1 and receives under 1: the other end has another one"},
    {"back: halves differ", back_differ,
     "it sends under predicate 3 over a distance of -1 and receives under 2: the other end has another one"},
    {"predicates on world", on_world, "the other end has another one"},
    {"no such predicate", no_such, "predicate 5 does not exist: the ring has 3 members, and so 4 predicates"},
    {"negative", negative, "predicate -1 does not exist"},
    {"may not", may_not, "argument 0 is missing"},
    {"multiplies under a predicate", multiplies, "it has a predicate, but is not an op that may be left out"},
    {"reads always", reads_always,
     "instruction 4 (attn_fwd on compute, ticket 2), operand 3: reads far_k, which is only there if predicate 1 holds, in any "
     "case"},
    {"reads under another", reads_other, "reads far_k, which is only there if predicate 1 holds, under predicate 3"},
    {"merges always", merges_always, "reads o_part, which is only there if predicate 1 holds, in any case"},
    {"adds under another", adds_other, "reads back_k, which is only there if predicate 2 holds, under predicate 1"},
    {"sends under another", sends_other, "reads dk_part, which is only there if predicate 3 holds, under predicate 1"},
    {"near left out", near_left_out, "live-out binding 1 promises o, which is only there if predicate 1 holds"},
    {"part is there", part_is_there, "updates o under predicate 1 only, but o_part, which it adds, is there in any case"},
    {"half a part", half_a_part, "updates o under predicate 1 only, but delta, which it adds, is there in any case"},
    {"addend is there", addend_is_there, "updates dk under predicate 2 only, but back_k, which it adds, is there in any case"},
    {"keys are there", keys_are_there, "updates dk under predicate 1 only, but k, which it adds, is there in any case"},
    {"values are there", values_are_there, "updates dk under predicate 1 only, but k, which it adds, is there in any case"},
    {"bound", bound, "live-out binding 1 promises o_part, which is only there if predicate 1 holds"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct program *p = ring_step();
        faults[i].plant(p);
        if (program_verify(p) != ERR_CORRUPT)
            fail_msg("%s: accepted", faults[i].name);
        if (!strstr(status_message(), faults[i].sentence))
            fail_msg("%s: rejected with \"%s\", expected \"%s\"", faults[i].name, status_message(), faults[i].sentence);
        program_destroy(p);
    }
}

static void expect_accepted(struct program *p)
{
    if (program_verify(p) != OK)
        fail_msg("rejected: %s", status_message());
    program_destroy(p);
}

static void test_accepted(void **state)
{
    (void)state;
    struct program *p = ring_step();
    int tried;
    assert_int_equal(mutate_weaken_waits(p, 0, &tried), 0);
    assert_int_equal(tried, 5);
    assert_int_equal(mutate_delete_waits(p, 0, &tried), 0);
    expect_accepted(p);

    p = ring_step(); /* no op is left out */
    for (int i = 0; i < p->n_instrs; i++) {
        p->instrs[i].predicate = 0;
        if (p->instrs[i].op == OP_EXCHANGE)
            attrs(p, i)->comm.send_if = attrs(p, i)->comm.recv_if = 0;
    }
    expect_accepted(p);

    p = ring_step(); /* the distance in the other direction of the ring */
    attrs(p, SEND_K)->comm.distance = 1 - RING;
    attrs(p, SEND_DK)->comm.distance = RING - 1;
    expect_accepted(p);

    /* dk_part += delta under the predicate: a value that always exists may be added to a value that exists only under the
     * predicate */
    p = ring_step();
    arg(p, ADD_DQ, 0)->buffer = arg(p, ADD_DQ, 0)->tensor = DK_PART;
    arg(p, ADD_DQ, 1)->buffer = arg(p, ADD_DQ, 1)->tensor = DELTA;
    arg(p, SEND_DK, 0)->version = 1;
    program_waits(p, &p->instrs[SEND_DK])[0].ticket = p->instrs[ADD_DQ].ticket;
    p->live_out[2].version = 0; /* dq */
    expect_accepted(p);

    p = ring_step();
    backward_adds(p);
    expect_accepted(p);
}

/* The value digest differs if an attribute, a group or a predicate does. */
static void test_values(void **state)
{
    (void)state;
    struct program *p = ring_step();
    uint64_t right, other;
    int tried;
    assert_int_equal(program_value_digest(p, &right), OK);
    p->group_size[LANE_WORLD]++;
    assert_int_equal(program_value_digest(p, &other), OK);
    assert_true(other != right);
    p->group_size[LANE_WORLD]--;
    p->instrs[FAR].predicate = 2;
    assert_int_equal(program_value_digest(p, &other), OK);
    assert_true(other != right);
    p->instrs[FAR].predicate = 1;
    attrs(p, SCATTER)->comm.type = F32;
    assert_int_equal(program_value_digest(p, &other), OK);
    assert_true(other != right);
    attrs(p, SCATTER)->comm.type = BF16;
    assert_int_equal(program_value_digest(p, &other), OK);
    assert_true(other == right);
    p->group_size[LANE_ULYSSES] = p->group_size[LANE_WORLD]; /* so that only the lane differs */
    attrs(p, TO_HEADS)->comm.n = attrs(p, TO_HEADS)->comm.share = FLOATS;
    p->instrs[TO_HEADS].op = OP_ALL_GATHER;
    assert_int_equal(program_value_digest(p, &right), OK);
    p->instrs[TO_HEADS].lane = LANE_WORLD;
    program_number(p);
    for (int i = 1; i < p->n_instrs; i++) {
        if (p->instrs[i].n_waits)
            program_waits(p, &p->instrs[i])[0] = (struct wait){(int32_t)p->instrs[i - 1].lane, p->instrs[i - 1].ticket};
    }
    assert_int_equal(program_value_digest(p, &other), OK);
    assert_true(other != right);
    program_destroy(p);
    p = ring_step();
    assert_int_equal(mutate_semantics(p, 0, &tried), 0);
    assert_true(tried > 30);
    program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
