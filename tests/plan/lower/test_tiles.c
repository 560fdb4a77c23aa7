/* Tests tile grids: legal ones, and finer ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/fit.h"
#include "plan/lower/grid.h"
#include "plan/lower/heads.h"
#include "plan/lower/mesh.h"

#include <stdlib.h>

/* Layers of two shapes each get the largest legal number of heads that is not above the tile's. */
static void own_heads(void **state)
{
    (void)state;
    struct strategy st = {.rows = 256,
                          .key.mesh.degree[MESH_DP] = 1,
                          .key.mesh.degree[MESH_ULYSSES] = 1,
                          .key.mesh.degree[MESH_RING] = 1,
                          .ranks = 1};
    struct plan_request s;
    struct model *wide = wide_model(FAMILY_LLAMA, 2), *m; /* 4 heads on 2 KV heads */
    struct model_config c = wide->config;
    c.own[1] = (struct layer_config){.heads = 6, .kv_heads = 1};
    c.own_of[1] = 1;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    wide_settings(&s);
    s.head_tile = 3; /* legal with six heads on one KV head, but not with four heads on two */
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_true(heads_cut(&m->shapes[0], &st.key.mesh, 3).q == 2 && heads_cut(&m->shapes[1], &st.key.mesh, 3).q == 3);
    assert_int_equal(plan_pieces(m, &st), ceil_div(st.rows, st.key.row_chunk) * (2 + 2));
    st.key.mesh.degree[MESH_RING] = 2; /* a ring allows no parts of a KV group */
    assert_true(heads_cut(&m->shapes[0], &st.key.mesh, 3).q == 2 && heads_cut(&m->shapes[1], &st.key.mesh, 3).q == 6);
    st.key.mesh.degree[MESH_RING] = 1;
    s.head_tile = 5;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--tiles: heads=5 does not fit the heads of any layer: take 1, 2, 3, 4 or 6"));
    s.head_tile = AUTO;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_int_equal(st.key.head_tile, 6);
    s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_RING] = 1;
    s.mesh.degree[MESH_ULYSSES] = 4;
    assert_int_equal(plan_mesh(m, &s, 4, 4), ERR_INVALID);
    assert_non_null(
        strstr(status_message(), "cannot share 6 query heads and 1 KV head of the 1 layer with full, 6/1 heads of 32"));
    assert_non_null(strstr(status_message(), "legal: ulysses=1 with ring=4, ulysses=2 with ring=2"));
    model_destroy(m);
    model_destroy(wide);
}

static void tiles(void **state)
{
    (void)state;
    struct strategy st = {.rows = 256,
                          .key.mesh.degree[MESH_DP] = 1,
                          .key.mesh.degree[MESH_ULYSSES] = 1,
                          .key.mesh.degree[MESH_RING] = 1,
                          .ranks = 1};
    struct plan_request s;
    struct model *m = wide_model(FAMILY_LLAMA, 2); /* 4 heads on 2 KV heads */
    static const int64_t legal[] = {1, 2, 4}, illegal[] = {3, 5, 8};
    wide_settings(&s);
    for (int i = 0; i < 3; i++) {
        s.head_tile = legal[i];
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        assert_int_equal(st.key.head_tile, legal[i]);
        s.head_tile = illegal[i];
        assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
        assert_non_null(strstr(status_message(), "take 1, 2 or 4"));
    }
    s.head_tile = 1;
    s.loss_tile = 48;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--tiles: loss=48 does not divide the "));
    assert_non_null(strstr(status_message(), "128"));
    s.loss_tile = s.row_chunk = s.head_tile = AUTO;
    for (int64_t seq = 1; seq < (1 << 22); seq = seq * 3 + 1) {
        s.seq_len = st.rows = seq;
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        assert_true(st.key.row_chunk >= 1 && st.key.row_chunk <= seq && st.key.row_chunk % st.key.loss_tile == 0);
        assert_true(st.key.head_tile >= 1 && m->config.heads % st.key.head_tile == 0);
    }
    /* a chunk longer than the sequence becomes the whole sequence */
    s.seq_len = st.rows = 100;
    s.row_chunk = 128;
    s.loss_tile = 50;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_int_equal(st.key.row_chunk, 100);
    /* grids that take minutes to plan are refused, and the size that the error proposes is accepted: 2 layers, 4 heads */
    s.seq_len = st.rows = 1 << 20;
    s.head_tile = 1;
    s.row_chunk = 63;
    s.loss_tile = AUTO;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    const char *enough = strstr(status_message(), "take rows=");
    assert_non_null(enough);
    s.row_chunk = atoi(enough + strlen("take rows="));
    assert_int_equal(s.row_chunk, 64);
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    /* a ring refuses parts of a KV group, for which the same keys would travel again; a rank's own heads count */
    s.row_chunk = s.loss_tile = AUTO;
    s.head_tile = 1;
    st.key.mesh.degree[MESH_RING] = 2;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    s.head_tile = 4;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    st.key.mesh.degree[MESH_ULYSSES] = 2;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    s.head_tile = AUTO;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_int_equal(st.key.head_tile, 2);
    model_destroy(m);
}

/* Finer grids are legal, come to an end after some steps, and leave given sizes unchanged. */
static void finer_tiles(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2); /* 4 heads on 2 KV heads */
    for (int given = 0; given < 8; given++) {
        struct strategy st = {.rows = 8192,
                              .key.mesh.degree[MESH_DP] = 1,
                              .key.mesh.degree[MESH_ULYSSES] = 1,
                              .key.mesh.degree[MESH_RING] = 1,
                              .ranks = 1},
                        before;
        struct plan_request s;
        int steps = 0;
        wide_settings(&s);
        s.seq_len = 8192;
        s.row_chunk = given & 1 ? 4096 : AUTO;
        s.head_tile = given & 2 ? 4 : AUTO;
        s.loss_tile = given & 4 ? 512 : AUTO;
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        for (before = st; plan_finer_tiles(m, &s, &st); before = st, steps++) {
            struct plan_request legal = s;
            struct strategy same = st;
            legal.row_chunk = st.key.row_chunk;
            legal.head_tile = st.key.head_tile;
            legal.loss_tile = st.key.loss_tile;
            assert_int_equal(plan_tiles(m, &legal, &same), OK);
            assert_true(st.key.row_chunk < before.key.row_chunk || st.key.head_tile < before.key.head_tile);
        }
        assert_true(!(given & 1) || st.key.row_chunk == 4096);
        assert_true(!(given & 2) || st.key.head_tile == 4);
        assert_true(!(given & 4) || st.key.loss_tile == 512);
        assert_int_equal(steps > 0, (given & 3) != 3);
    }
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_heads), cmocka_unit_test(tiles), cmocka_unit_test(finer_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
