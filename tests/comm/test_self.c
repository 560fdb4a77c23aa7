/* Runs every collective over a group of one rank, without MPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/state.h"
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

static void run(struct comm *c, enum lane lane, enum op_kind op, struct op_attrs a, void *const *arg)
{
    int done = 0;
    assert_int_equal(comm_start(c, lane, op, &a, arg, 1, 1), OK);
    while (!done) {
        assert_int_equal(comm_poll(c, lane, &done), OK);
        if (!done)
            comm_nap(c);
    }
}

static void every_collective_is_a_copy(void **state)
{
    (void)state;
    enum { N = 70001 };
    static float x[N], y[N + 5], z[N];
    struct comm *c;
    assert_int_equal(comm_create_self(&c), OK);
    assert_int_equal(comm_rank(c), 0);
    assert_int_equal(comm_size(c), 1);
    assert_string_equal(comm_source(c), "single process");
    for (int i = 0; i < N; i++)
        x[i] = input(1, 0, i);
    for (enum lane lane = LANE_WORLD; lane < LANES; lane++) {
        assert_int_equal(c->group[lane - LANE_WORLD].members, 1);
        struct op_attrs a = {.comm = {.n = N, .share = N, .element = 4, .type = F32}};
        run(c, lane, OP_ALL_GATHER, a, (void *[]){x, y});
        assert_memory_equal(x, y, sizeof x);
        memset(y, 1, sizeof y);
        run(c, lane, OP_ALL_TO_ALL, a, (void *[]){x, y});
        assert_memory_equal(x, y, sizeof x);
        memset(y, 1, sizeof y);
        run(c, lane, OP_EXCHANGE, a, (void *[]){x, y});
        assert_memory_equal(x, y, sizeof x);
        for (int type = F32; type <= BF16; type++) {
            a.comm.type = type;
            a.comm.share = N + 5;
            assert_int_equal(comm_workspace_bytes(OP_REDUCE_SCATTER, &a, 1), 0);
            memset(y, 1, sizeof y);
            run(c, lane, OP_REDUCE_SCATTER, a, (void *[]){x, y, NULL});
            memcpy(z, x, sizeof z);
            a.comm.share = N;
            run(c, lane, OP_ALL_REDUCE, a, (void *[]){z, NULL});
            for (int i = 0; i < N + 5; i++)
                assert_true(y[i] == (i < N ? summed(1, 0, 1, 1, i, type == BF16) : 0));
            assert_memory_equal(y, z, sizeof z);
        }
        struct comm_traffic sent = comm_bytes_sent(c, lane);
        assert_true(sent.same_host == 0 && sent.other_hosts == 0);
    }
    comm_destroy(c);
}

static void an_exchange_half_that_is_off_changes_nothing(void **state)
{
    (void)state;
    float x = 1, y = 2;
    int done;
    struct comm *c;
    assert_int_equal(comm_create_self(&c), OK);
    struct op_attrs a = {.comm = {.n = 1, .element = 4, .distance = -3}};
    assert_int_equal(comm_start(c, LANE_RING, OP_EXCHANGE, &a, (void *[]){&x, &y}, 0, 0), OK);
    assert_int_equal(comm_poll(c, LANE_RING, &done), OK);
    assert_int_equal(done, 1);
    assert_true(y == 2);
    assert_int_equal(comm_start(c, LANE_RING, OP_GEMM, &a, (void *[]){&x, &y, &x, &y}, 0, 0), ERR_INVALID);
    comm_destroy(c);
}

/* A collective that advances is looked at soon again, however long its message takes in all. */
static void naps_begin_anew_with_what_moves(void **state)
{
    (void)state;
    enum { POLLS = 3, N = POLLS * (4 << 20) }; /* a poll copies 4 MiB */
    char *x = calloc(2, N);
    struct comm *c;
    assert_non_null(x);
    assert_int_equal(comm_create_self(&c), OK);
    struct op_attrs a = {.comm = {.n = N, .share = N, .element = 1}};
    assert_int_equal(comm_start(c, LANE_WORLD, OP_ALL_GATHER, &a, (void *[]){x, x + N}, 1, 1), OK);
    for (int i = 0, done = 0; i < POLLS; i++) {
        comm_nap(c);
        comm_nap(c);
        assert_int_equal(comm_poll(c, LANE_WORLD, &done), OK);
        assert_int_equal(c->naps, 0);
        assert_int_equal(done, i == POLLS - 1);
    }
    comm_nap(c);
    assert_int_equal(c->naps, 1);
    comm_destroy(c);
    free(x);
}

static void between_programs(void **state)
{
    (void)state;
    struct comm *c;
    double x[2] = {0.1, 3};
    int own = 7, all = 0;
    char text[256];
    assert_int_equal(comm_create_self(&c), OK);
    assert_int_equal(comm_barrier(c), OK);
    assert_int_equal(comm_broadcast(c, 0, &own, sizeof own), OK);
    assert_int_equal(comm_gather(c, &own, sizeof own, &all), OK);
    assert_int_equal(all, 7);
    assert_int_equal(comm_sum(c, x, 2), OK);
    assert_true(x[0] == 0.1 && x[1] == 3);
    assert_int_equal(comm_agree(c, OK), OK);
    assert_int_equal(comm_agree(c, status_fail(ERR_IO, "the disk is full")), ERR_IO);
    assert_string_equal(status_message(), "the disk is full");
    assert_int_equal(comm_broken(c), 0);
    comm_describe(c, text, sizeof text);
    assert_string_equal(text, "1 rank (single process) on 1 host: dp 1, ring 1, ulysses 1");
    assert_int_equal(comm_set_mesh(c, &(struct mesh){{2, 1, 1}}), ERR_INVALID);
    assert_non_null(strstr(status_message(), "has 2 ranks, but 1 were started"));
    comm_fail(c, ERR_IO, "no more");
    assert_int_equal(comm_broken(c), 1);
    comm_destroy(c);
    comm_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_a_copy),
        cmocka_unit_test(an_exchange_half_that_is_off_changes_nothing),
        cmocka_unit_test(naps_begin_anew_with_what_moves),
        cmocka_unit_test(between_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
