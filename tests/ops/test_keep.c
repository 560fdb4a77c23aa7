/* Experts in slots, against a list in the order of use. */
#include "ops_test.h"

#include "base/rng.h"
#include "ops/experts_keep.h"

#include <string.h>

enum { EXPERTS = 13, MOST = 13, ROWS = 4, FIRST = 3, SECOND = 2 }; /* bytes of an expert's two matrices */

static unsigned char home[EXPERTS * (FIRST + SECOND)], kept[MOST * (FIRST + SECOND)];
static int32_t table[KEEP_SLOTS + 2 * MOST];

static struct op_attrs attrs_of(int32_t slots, int64_t rows)
{
    return (struct op_attrs){.keep = {.rows = rows, .bytes = {FIRST, SECOND}, .experts = EXPERTS, .slots = slots}};
}

static void begin(void)
{
    memset(table, 0, sizeof table);
    memset(kept, 0xff, sizeof kept);
    for (int i = 0; i < (int)sizeof home; i++)
        home[i] = (unsigned char)(i * 7 + 1);
}

static void check_matrices(int32_t slots, int32_t slot, int32_t expert)
{
    assert_in_range(slot, 0, slots - 1);
    assert_memory_equal(kept + slot * FIRST, home + expert * FIRST, FIRST);
    assert_memory_equal(kept + slots * FIRST + slot * SECOND, home + EXPERTS * FIRST + expert * SECOND, SECOND);
}

/* Experts in the order of their last use, and the choices of experts that were among the first `slots` of them. */
struct order {
    int32_t expert[EXPERTS];
    int n;
    int32_t hits, misses;
};

static void use(struct order *o, int32_t expert, int slots)
{
    int at = 0;
    while (at < o->n && o->expert[at] != expert)
        at++;
    if (at < o->n && at < slots)
        o->hits++;
    else
        o->misses++;
    o->n = at == o->n ? o->n + 1 : o->n;
    memmove(o->expert + 1, o->expert, (size_t)at * sizeof *o->expert);
    o->expert[0] = expert;
}

/* Counts the different ids of a call: each is one hit or one miss. */
static int32_t count_different(const int32_t *ids, int64_t n)
{
    int32_t different = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        while (before < i && ids[before] != ids[i])
            before++;
        different += before == i;
    }
    return different;
}

static void check_calls(int32_t slots, int64_t rows)
{
    struct order order = {.n = 0};
    int32_t uses = 0;
    uint64_t draws = 0;
    begin();
    for (int call = 0; call < 300; call++) {
        const struct op_attrs a = attrs_of(slots, rows);
        int32_t ids[ROWS], to[ROWS];
        for (int64_t i = 0; i < rows; i++, draws++) /* small numbers more often */
            ids[i] = (int32_t)rng_below(1, (uint64_t)slots, draws, 1 + rng_below(2, 3, draws, EXPERTS));
        assert_int_equal(ops_cpu_experts_keep(&a, (void *[]){kept, table, to, home, ids}, NULL), OK);
        use(&order, ids[0], slots);
        for (int64_t i = 0; i < rows; i++)
            check_matrices(slots, to[i], ids[i]);
        uses += count_different(ids, rows);
        assert_int_equal(table[KEEP_HITS] + table[KEEP_MISSES], uses);
        if (rows > 1) /* any of those that one call used may make room first */
            continue;
        assert_int_equal(table[KEEP_HITS], order.hits);
        assert_int_equal(table[KEEP_MISSES], order.misses);
    }
    assert_true(table[KEEP_MISSES] >= EXPERTS && (slots == 1 || table[KEEP_HITS] > 0));
}

static void test_least_recently_used(void **state)
{
    (void)state;
    for (int32_t slots = 1; slots <= MOST; slots++)
        for (int64_t rows = 1; rows <= ROWS && rows <= slots; rows++)
            check_calls(slots, rows);
}

static void test_refusals(void **state)
{
    const struct op_attrs a = attrs_of(3, 2);
    int32_t to[2];
    (void)state;
    begin();
    assert_int_equal(ops_cpu_experts_keep(&a, (void *[]){kept, table, to, home, (int32_t[]){2, EXPERTS}}, NULL), ERR_CORRUPT);
    assert_int_equal(ops_cpu_experts_keep(&a, (void *[]){kept, table, to, home, (int32_t[]){-1, 2}}, NULL), ERR_CORRUPT);
}

static enum status fail_second(void *user, int64_t to, int64_t from, int64_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return ++*(int *)user == 2 ? status_fail(ERR_IO, "a drive failed") : OK;
}

/* An expert of which one matrix could not be read is in no slot. */
static void test_failed_move(void **state)
{
    const struct op_attrs a = attrs_of(2, 1);
    int32_t to[1], calls = 0;
    (void)state;
    begin();
    assert_int_equal(ops_experts_keep(&a, table, to, (int32_t[]){5}, &(struct experts_mover){fail_second, &calls}), ERR_IO);
    assert_int_equal(ops_cpu_experts_keep(&a, (void *[]){kept, table, to, home, (int32_t[]){5}}, NULL), OK);
    check_matrices(2, to[0], 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_least_recently_used), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_failed_move)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
