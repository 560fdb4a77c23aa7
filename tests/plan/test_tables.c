/* Tests plans at the limits of tables: a program that exceeds its tables does not fit, and coarser tiles are tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/report/text.h"

#include <stdlib.h>
#include <string.h>

static const int64_t AMPLE[TIERS] = {INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4};

/* Creates a model with seven heads, which make seven tiles or one. */
static struct model *seven_heads(int layers)
{
    const struct model_config c = {.family = FAMILY_LLAMA,
                                   .name = "seven",
                                   .vocab = 96,
                                   .dim = 112,
                                   .ffn = 64,
                                   .layers = layers,
                                   .heads = 7,
                                   .kv_heads = 7,
                                   .head_dim = 16,
                                   .max_positions = 1 << 20,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.1f,
                                   .rope_theta = 10000};
    struct model *m;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

/* Coarser tiles are tried: in a long ring a tensor is written some twelve times for each layer, member and head tile, and it may
 * have 2^18 versions at most. */
static void coarser_tiles_are_tried(void **state)
{
    (void)state;
    struct model *m = seven_heads(21);
    struct plan_request s;
    struct plan *plan;
    cell_settings(&s, 131072, BF16);
    s.effort = EFFORT_QUICK;
    s.row_chunk = s.head_tile = s.loss_tile = s.group = AUTO;
    s.mesh.degree[MESH_RING] = 1024;
    assert_int_equal(plan_mesh(m, &s, 1024, 8), OK);
    if (!EXTENT_SANITIZED) { /* half a minute there, and the refusal fills the same tables */
        if (plan_create(m, &s, AMPLE, &plan) != OK)
            fail_msg("%s", status_message());
        assert_true(plan->fits && plan->strategy.key.head_tile == 7);
        for (int k = 0; k < PLAN_PROGRAMS; k++)
            assert_true(!plan->programs[k] || !plan->programs[k]->excess);
        plan_destroy(plan);
    }
    s.head_tile = 1; /* a given tile size leaves nothing else to try */
    assert_int_equal(plan_create(m, &s, AMPLE, &plan), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "more parts than are planned for"));
    assert_null(strstr(status_message(), "program"));
    model_destroy(m);
}

/* Models with many heads get longer chunks: 80 layers of 64 heads in 64 row chunks would be more pieces of attention than the
 * planner allows. */
static void many_heads_take_longer_chunks(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m;
    struct plan_request s;
    struct strategy t;
    assert_int_equal(model_preset("8b", &c), OK);
    c.layers = 80;
    c.heads = c.kv_heads = 64;
    c.head_dim = 128;
    c.dim = 8192;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    for (int64_t tokens = 1 << 17; tokens <= 1 << 30; tokens *= 8) {
        cell_settings(&s, tokens, BF16);
        s.row_chunk = s.head_tile = s.loss_tile = s.group = AUTO;
        if (plan_fixed(m, &s, &t) != OK)
            fail_msg("%s", status_message());
        assert_true(t.key.row_chunk == tokens / 16 && t.key.head_tile == 1 && t.key.row_chunk % t.key.loss_tile == 0);
        s.row_chunk = tokens / 64;
        assert_int_equal(plan_fixed(m, &s, &t), OK);
        assert_true(t.key.row_chunk == tokens / 64 && t.key.head_tile == 4);
        s.head_tile = 1;
        assert_int_equal(plan_fixed(m, &s, &t), ERR_INVALID);
        assert_non_null(strstr(status_message(), "pieces"));
    }
    model_destroy(m);
}

/* The residual stream of 2^30 tokens has 2^44 bytes, and no buffer may be that large. */
static void no_buffer_is_that_large(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m;
    struct plan_request s;
    struct plan *plan;
    assert_int_equal(model_preset("8b", &c), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    cell_settings(&s, SETTINGS_MOST_TOKENS, F32);
    s.effort = EFFORT_QUICK;
    s.row_chunk = s.head_tile = s.loss_tile = s.group = AUTO;
    assert_int_equal(plan_mesh(m, &s, 1, 1), OK);
    assert_int_equal(plan_create(m, &s, AMPLE, &plan), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "one buffer of a step would have more than the 512 GiB"));
    model_destroy(m);
}

/* The search for the longest sequence ends at the tables, not at memory, and says so. */
static void longest_ends_at_the_tables(void **state)
{
    const struct model_config c = {.family = FAMILY_LLAMA,
                                   .name = "wide",
                                   .vocab = 96,
                                   .dim = 16384,
                                   .ffn = 64,
                                   .layers = 1,
                                   .heads = 1,
                                   .kv_heads = 1,
                                   .head_dim = 16,
                                   .max_positions = 1 << 20,
                                   .norm_eps = 1e-5f,
                                   .init_std = 0.1f,
                                   .rope_theta = 10000};
    char *text;
    size_t n;
    struct model *m;
    struct plan_request s;
    struct plan *plan;
    (void)state;
    if (model_create(&c, NULL, 0, &m) != OK)
        fail_msg("%s", status_message());
    cell_settings(&s, 1024, F32);
    s.row_chunk = s.head_tile = s.loss_tile = s.group = AUTO;
    if (plan_longest(m, &s, 1, 1, AMPLE, &plan) != OK)
        fail_msg("%s", status_message());
    assert_true(plan->fits && plan->longest.beyond && plan->longest.longer > plan->tokens);
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    assert_int_equal(plan_print(plan, m, &s, f), OK);
    fclose(f);
    for (char *at = text; (at = strpbrk(at, "\n"));)
        *at = ' ';
    assert_non_null(strstr(text, "would have"));
    assert_non_null(strstr(text, "512 GiB"));
    assert_null(strstr(text, "would need"));
    assert_null(strstr(text, "would not fit"));
    free(text);
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(coarser_tiles_are_tried), cmocka_unit_test(many_heads_take_longer_chunks),
                                       cmocka_unit_test(no_buffer_is_that_large), cmocka_unit_test(longest_ends_at_the_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
