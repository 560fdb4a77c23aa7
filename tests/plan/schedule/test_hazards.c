/* Compares dependencies on bytes with their definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "plan/schedule/hazards.h"

#include <stdlib.h>
#include <string.h>

enum { INSTRS = 400, BYTES = 96 };

struct program_of_test {
    struct program *p;
    int lo[INSTRS], hi[INSTRS], write[INSTRS];
};

/* Draws instructions with one argument each: bytes of one buffer, in two operands if there are enough bytes. wide: how many of
 * four instructions read most of the buffer. */
static void draw(struct program_of_test *t, uint64_t seed, uint64_t wide)
{
    assert_int_equal(program_create("drawn", &t->p), OK);
    program_add_buffer(t->p, TIER_DEVICE, BYTES, CLASS_PARAM, 0);
    for (int i = 0; i < INSTRS; i++) {
        uint64_t at = 4 * (uint64_t)i;
        int reads_most = rng_below(seed, 1, at, 4) < wide;
        t->lo[i] = (int)rng_below(seed, 1, at + 1, reads_most ? BYTES / 4 : BYTES);
        t->hi[i] = reads_most ? BYTES - (int)rng_below(seed, 1, at + 2, BYTES / 4)
                              : t->lo[i] + 1 + (int)rng_below(seed, 1, at + 2, min_i64(8, BYTES - t->lo[i]));
        t->write[i] = !reads_most && rng_below(seed, 1, at + 3, 2);
        program_add_instr(t->p, OP_FILL, LANE_COMPUTE);
        for (int from = t->lo[i], end; from < t->hi[i]; from = end) {
            end = from == t->lo[i] && t->hi[i] - from > 1 ? (from + t->hi[i]) / 2 : t->hi[i];
            program_add_operand(
                t->p, (struct operand){
                          .offset = from, .bytes = end - from, .tensor = -1, .access = t->write[i] ? ACCESS_WRITE : ACCESS_READ});
        }
    }
}

/* Closes the relation transitively: after[i][k] if i depends on k directly or by way of instructions between them. */
static void close(char after[INSTRS][INSTRS])
{
    for (int i = 0; i < INSTRS; i++)
        for (int k = i - 1; k >= 0; k--)
            for (int j = 0; after[i][k] && j < k; j++)
                after[i][j] |= after[k][j];
}

/* Sets the dependencies by definition: two instructions share bytes, unless both only read them. */
static void defined(const struct program_of_test *t, char after[INSTRS][INSTRS])
{
    memset(after, 0, INSTRS * INSTRS);
    for (int i = 0; i < INSTRS; i++)
        for (int k = 0; k < i; k++)
            after[i][k] = (t->write[i] || t->write[k]) && t->lo[i] < t->hi[k] && t->lo[k] < t->hi[i];
    close(after);
}

static void found(const struct program_of_test *t, char after[INSTRS][INSTRS])
{
    struct deps d;
    assert_int_equal(hazards_find(t->p, &d), OK);
    memset(after, 0, INSTRS * INSTRS);
    for (int i = 0; i < INSTRS; i++)
        for (int e = d.first[i]; e < d.first[i + 1]; e++) {
            assert_true(d.dep[e] < i && !after[i][d.dep[e]]);
            after[i][d.dep[e]] = 1;
        }
    hazards_free(&d);
    close(after);
}

/* No dependency is missing, and every dependency has a reason. */
static void as_defined(void **state)
{
    static char expected[INSTRS][INSTRS], got[INSTRS][INSTRS];
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct program_of_test t;
        draw(&t, seed, seed % 4);
        defined(&t, expected);
        found(&t, got);
        assert_memory_equal(expected, got, sizeof expected);
        program_destroy(t.p);
    }
}

/* Column slices of a weight each span nearly all of its bytes. Each read is noted once, not in every piece between other slices' ends. */
static void overlapping_reads(void **state)
{
    enum { SLICES = 3000 };
    struct program *p;
    struct deps d;
    (void)state;
    assert_int_equal(program_create("slices", &p), OK);
    program_add_buffer(p, TIER_DEVICE, 1 << 20, CLASS_PARAM, 0);
    for (int i = 0; i <= SLICES + 1; i++) {
        int slice = i > 0 && i <= SLICES; /* between two writes of everything */
        program_add_instr(p, OP_FILL, LANE_COMPUTE);
        program_add_operand(p, (struct operand){.offset = slice ? i : 0,
                                                .bytes = slice ? (1 << 20) - SLICES : 1 << 20,
                                                .tensor = -1,
                                                .access = slice ? ACCESS_READ : ACCESS_WRITE});
    }
    assert_int_equal(hazards_find(p, &d), OK);
    for (int i = 1; i <= SLICES; i++)
        assert_true(d.first[i + 1] - d.first[i] == 1 && d.dep[d.first[i]] == 0);
    assert_int_equal(d.first[SLICES + 2] - d.first[SLICES + 1], SLICES + 1);
    hazards_free(&d);
    program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_defined), cmocka_unit_test(overlapping_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
