/* Tests value numbers: they are equal for every placement of one computation, and different for every wrong computation. */
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

static uint64_t digest_of(const struct program *p)
{
    uint64_t digest = 0;
    if (program_verify(p) != OK || program_value_digest(p, &digest) != OK)
        fail_msg("%s", status_message());
    return digest;
}

/* --- One computation, placed in different ways --- */

/* Computes h = norm(x) in chunks of 4 of 8 rows; y = h w; y += x2 after rope; sum = sum of y's squares. w is updated in place
 * from y. */
enum { CHUNK = 4, ROWS = 8 };

struct tensors {
    int x, w, h, y, positions, freq, sum, zero;
};

static struct tensors add_tensors(struct program *p, int shuffled)
{
    struct tensors t;
    if (shuffled)
        program_add_tensor(p, "unused", CLASS_ACT, 1, 1); /* shifts the indices of tensors, which must not matter */
    t.sum = program_add_tensor(p, "sum", CLASS_WORK, 1, 8);
    t.x = program_add_tensor(p, "x", CLASS_ACT, ROWS, ROW);
    t.w = program_add_tensor(p, "w", CLASS_PARAM, 8, ROW);
    t.h = program_add_tensor(p, "h", CLASS_ACT, ROWS, ROW);
    t.y = program_add_tensor(p, "y", CLASS_ACT, ROWS, ROW);
    t.positions = program_add_tensor(p, "positions", CLASS_IO, ROWS, 4);
    t.freq = program_add_tensor(p, "freq", CLASS_IO, 128, 4);
    t.zero = program_add_tensor(p, "zero", CLASS_GRAD, ROWS, ROW);
    return t;
}

struct buffers {
    int x, w, small, h, y, zero, host, nvme;
};

static struct buffers add_buffers(struct program *p, int shuffled)
{
    struct buffers b;
    int64_t shift = shuffled ? 5 * PAGE : 0;
    b.x = build_buffer(p, TIER_DEVICE, shift, 2 * PAGE, 1);
    b.w = build_buffer(p, TIER_DEVICE, shift + 2 * PAGE, 2 * PAGE, 1);
    b.small = build_buffer(p, TIER_DEVICE, shift + 4 * PAGE, PAGE, 1);
    b.h = build_buffer(p, TIER_DEVICE, shift + 5 * PAGE, 2 * PAGE, 0);
    b.y = build_buffer(p, TIER_DEVICE, shift + 7 * PAGE, 2 * PAGE, 1);
    b.zero = build_buffer(p, TIER_DEVICE, shift + 9 * PAGE, 2 * PAGE, 1);
    b.host = build_buffer(p, TIER_HOST, 0, 8 * PAGE, 1);
    b.nvme = build_buffer(p, TIER_NVME, 0, 8 * PAGE, 1);
    return b;
}

static void bind_inputs(struct program *p, const struct tensors *t, const struct buffers *b)
{
    build_bind(p, 0, b->x, 0, t->x, 0, 0, ROWS);
    build_bind(p, 0, b->w, 0, t->w, 0, 0, 8);
    build_bind(p, 0, b->small, 0, t->positions, 0, 0, ROWS);
    build_bind(p, 0, b->small, 1024, t->freq, 0, 0, 128);
}

static void add_norm(struct program *p, const struct tensors *t, const struct buffers *b, int64_t row0)
{
    program_add_instr(p, OP_NORM, LANE_COMPUTE);
    program_call(p, &p->instrs[p->n_instrs - 1])->attrs.norm.rows = CHUNK;
    program_call(p, &p->instrs[p->n_instrs - 1])->attrs.norm.eps = 1e-5f;
    build_operand(p, 0, ACCESS_WRITE, b->h, row0 * ROW, t->h, 0, row0, row0 + CHUNK);
    build_operand(p, 1, ACCESS_READ, b->x, row0 * ROW, t->x, 0, row0, row0 + CHUNK);
    build_operand(p, 2, ACCESS_READ, b->w, 0, t->w, 0, 0, 1);
}

/* Adds the rest of the computation, with h in the given buffer at `offset`. */
static void add_rest(struct program *p, const struct tensors *t, const struct buffers *b, int h, int64_t offset, int version)
{
    program_add_instr(p, OP_GEMM, LANE_COMPUTE);
    program_call(p, &p->instrs[p->n_instrs - 1])->attrs.gemm.m = ROWS;
    build_operand(p, 0, ACCESS_WRITE, b->y, 0, t->y, version, 0, ROWS);
    build_operand(p, 1, ACCESS_READ, h, offset, t->h, 0, 0, ROWS);
    build_operand(p, 2, ACCESS_READ, b->w, 0, t->w, 0, 0, 8);
    program_add_instr(p, OP_ROPE, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_UPDATE, b->y, CHUNK * ROW, t->y, version, CHUNK, ROWS);
    build_operand(p, 1, ACCESS_READ, b->small, CHUNK * 4, t->positions, 0, CHUNK, ROWS);
    build_operand(p, 2, ACCESS_READ, b->small, 1024, t->freq, 0, 0, 128);
    program_add_instr(p, OP_SUMSQ, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, b->small, 2048, t->sum, 0, 0, 1);
    build_operand(p, 1, ACCESS_READ, b->y, 0, t->y, version, 0, CHUNK);
    build_operand(p, 1, ACCESS_READ, b->y, CHUNK * ROW, t->y, version + 1, CHUNK, ROWS);
}

static void bind_sum(struct program *p, const struct tensors *t, const struct buffers *b)
{
    build_bind(p, 1, b->small, 2048, t->sum, 0, 0, 1);
}

/* Makes the program in which everything stays on the device. */
static struct program *resident(void)
{
    struct program *p = build_begin("resident", 16 * PAGE, 8 * PAGE, 8 * PAGE);
    struct tensors t = add_tensors(p, 0);
    struct buffers b = add_buffers(p, 0);
    bind_inputs(p, &t, &b);
    add_norm(p, &t, &b, 0);
    add_norm(p, &t, &b, CHUNK);
    add_rest(p, &t, &b, b.h, 0, 0);
    program_add_instr(p, OP_FILL, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, b.zero, 0, t.zero, 0, 0, ROWS);
    bind_sum(p, &t, &b);
    build_bind(p, 1, b.y, 0, t.y, 0, 0, CHUNK);
    build_bind(p, 1, b.y, CHUNK * ROW, t.y, 1, CHUNK, ROWS);
    build_bind(p, 1, b.zero, 0, t.zero, 0, 0, ROWS);
    program_number(p);
    return p;
}

/* Makes the program in which both chunks of h go together through the host to nvme, and come back in three copies. The second
 * half of y is moved to the host; tensor numbers, versions, addresses and order differ from resident(); zeros are made in two
 * pieces. Tickets: compute 1 norm, 2 norm, 3 fill, 4 fill, 5 gemm, 6 rope, 7 sumsq. */
static struct program *offloaded(void)
{
    struct program *p = build_begin("offloaded", 16 * PAGE, 8 * PAGE, 8 * PAGE);
    struct tensors t = add_tensors(p, 1);
    struct buffers b = add_buffers(p, 1);
    bind_inputs(p, &t, &b);
    add_norm(p, &t, &b, CHUNK);
    add_norm(p, &t, &b, 0);
    build_copy(p, LANE_D2H, b.h, 0, b.host, 0, t.h, 0, 0, ROWS);
    build_wait(p, LANE_COMPUTE, 2);
    build_copy(p, LANE_WRITE, b.host, 0, b.nvme, 0, t.h, 0, 0, ROWS);
    build_wait(p, LANE_D2H, 1);
    build_copy(p, LANE_READ, b.nvme, 0, b.host, 2 * PAGE, t.h, 0, 0, ROWS);
    build_wait(p, LANE_WRITE, 1);
    for (int k = 0; k < 2; k++) {
        program_add_instr(p, OP_FILL, LANE_COMPUTE);
        build_operand(p, 0, ACCESS_WRITE, b.zero, k ? 3 * ROW : 0, t.zero, 0, k ? 3 : 0, k ? ROWS : 3);
    }
    /* back to the place of the first h, in pieces whose borders are not those of the chunks */
    build_copy(p, LANE_H2D, b.host, 2 * PAGE, b.h, 0, t.h, 0, 0, 3);
    build_wait(p, LANE_READ, 1);
    build_copy(p, LANE_H2D, b.host, 2 * PAGE + 3 * ROW, b.h, 3 * ROW, t.h, 0, 3, 5);
    build_copy(p, LANE_H2D, b.host, 2 * PAGE + 5 * ROW, b.h, 5 * ROW, t.h, 0, 5, ROWS);
    add_rest(p, &t, &b, b.h, 0, 7);
    p->instrs[p->n_instrs - 3].n_waits = 0;
    program_add_wait(p, p->n_instrs - 3, (struct wait){LANE_H2D, 3});
    build_copy(p, LANE_D2H, b.y, CHUNK * ROW, b.host, 4 * PAGE, t.y, 8, CHUNK, ROWS);
    build_wait(p, LANE_COMPUTE, 6);
    build_bind(p, 1, b.zero, 2 * ROW, t.zero, 0, 2, ROWS);
    build_bind(p, 1, b.host, 4 * PAGE, t.y, 8, CHUNK, ROWS);
    build_bind(p, 1, b.y, 6 * ROW, t.y, 8, 6, ROWS); /* some rows of y are bound in two places */
    build_bind(p, 1, b.y, 0, t.y, 7, 0, 3);
    build_bind(p, 1, b.y, 3 * ROW, t.y, 7, 3, CHUNK);
    build_bind(p, 1, b.zero, 0, t.zero, 0, 0, 2);
    bind_sum(p, &t, &b);
    program_number(p);
    return p;
}

static void test_placements_agree(void **state)
{
    (void)state;
    struct program *p = resident(), *q = offloaded();
    assert_true(digest_of(p) == digest_of(q));
    int tried;
    assert_int_equal(mutate_delete_waits(q, 0, &tried), 0);
    assert_int_equal(tried, 6);
    program_destroy(p);
    program_destroy(q);
}

static void test_wrong_meanings_differ(void **state)
{
    (void)state;
    struct program *list[] = {resident(), offloaded()};
    for (int i = 0; i < 2; i++) {
        int tried;
        assert_int_equal(mutate_semantics(list[i], 0, &tried), 0);
        assert_true(tried >= 15);
        program_destroy(list[i]);
    }
}

/* The digest differs if a program, consistent and therefore accepted by the verifier, computes something else. */
static void test_faults_beyond_the_verifier(void **state)
{
    (void)state;
    struct program *p = resident();
    uint64_t right = digest_of(p);
    struct operand *positions = &p->operands[p->instrs[3].first_operand + 1];
    positions->offset = 0; /* rope starts at the wrong row */
    positions->row0 = 0;
    assert_true(digest_of(p) != right);
    program_destroy(p);

    p = resident();
    program_call(p, &p->instrs[3])->attrs.rope.inverse = 1;
    assert_true(digest_of(p) != right);
    program_call(p, &p->instrs[3])->attrs.rope.inverse = 0;
    assert_true(digest_of(p) == right);
    program_call(p, &p->instrs[0])->attrs.norm.eps = 1e-6f;
    assert_true(digest_of(p) != right);
    program_call(p, &p->instrs[0])->attrs.norm.eps = 1e-5f;
    p->instrs[2].op = OP_ADD; /* another op with arguments of the same form */
    assert_true(digest_of(p) != right);
    p->instrs[2].op = OP_GEMM;
    snprintf(p->tensors[1].name, sizeof p->tensors[1].name, "x'"); /* another input */
    assert_true(digest_of(p) != right);
    program_destroy(p);

    p = resident();
    p->n_live_out--; /* fewer results */
    assert_true(digest_of(p) != right);
    program_destroy(p);
}

/* Two bindings of the same row with different values are refused. */
static void test_conflicting_results(void **state)
{
    (void)state;
    struct program *p = build_begin("conflict", 4 * PAGE, 0, 0);
    int x = program_add_tensor(p, "x", CLASS_ACT, 4, ROW), y = program_add_tensor(p, "y", CLASS_ACT, 4, ROW);
    int bx = build_buffer(p, TIER_DEVICE, 0, PAGE, 1);
    build_bind(p, 0, bx, 0, x, 0, 0, 4);
    for (int k = 0; k < 2; k++) {
        int b = build_buffer(p, TIER_DEVICE, (1 + k) * PAGE, PAGE, 1);
        program_add_instr(p, OP_GELU, LANE_COMPUTE);
        program_call(p, &p->instrs[k])->attrs.act.kind = k;
        build_operand(p, 0, ACCESS_WRITE, b, 0, y, 0, 0, 4);
        build_operand(p, 1, ACCESS_READ, bx, 0, x, 0, 0, 4);
        build_bind(p, 1, b, 0, y, 0, 0, 4);
    }
    program_number(p);
    uint64_t digest;
    assert_int_equal(program_verify(p), OK); /* accepted, since the two rows have equal versions */
    assert_int_equal(program_value_digest(p, &digest), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "two live-out bindings of the same rows of y hold different values"));
    program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements_agree),
        cmocka_unit_test(test_wrong_meanings_differ),
        cmocka_unit_test(test_faults_beyond_the_verifier),
        cmocka_unit_test(test_conflicting_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
