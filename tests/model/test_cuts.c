/* Tests which way slices of layers cut each map of every family: a map that reads the stream by its outputs, one that closes a block by its
 * inputs, each along its inner side; embedding, head and norms not at all (the rules that Redco derives partitions from). */
#include "model/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define X(upper, lower) #lower,
static const char *const WORDS[] = {MODEL_FAMILIES(X)};
#undef X

enum { BY_OUTPUTS = 1, BY_INPUTS = 4 }; /* a matrix cut by rows; twice as much: by columns */
enum { LAYERS = 2, HEADS = 8, HEAD_DIM = 16, DIM = 128, FFN = 192, TP = 4 };

/* Tells by its name in files whether a map closes a block: what it writes is added to the stream. */
static int closes_block(const char *name)
{
    static const char *const words[] = {
        "o_proj", "out_proj", "self_attention.dense", "attention.dense.", "attn.c_proj",   "mlp.c_proj",  "down_proj",
        "fc2",    "fc_out",   "dense_4h_to_h",        "self_attn.dense",  "output_linear", "experts.down"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return 1;
    return 0;
}

static struct model_config config(enum model_family family)
{
    struct model_config c = {.family = family,
                             .name = "cuts",
                             .vocab = 40,
                             .dim = DIM,
                             .ffn = FFN,
                             .layers = LAYERS,
                             .heads = HEADS,
                             .kv_heads = HEADS,
                             .head_dim = HEAD_DIM,
                             .max_positions = 32,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    return c;
}

/* Checks a parameter of a slice. Returns which way it is cut, and along which side; 0: a vector, or whole. */
static int check(const struct model *whole, const struct model *slice, int i)
{
    const struct model_param *p = &slice->params[i], *all = &whole->params[p->whole];
    const int in_layer = model_unit_in_layer(whole, all->unit), matrix = all->shape[1] > 1;
    const int64_t was = all->shape[0] * (matrix ? all->shape[1] : 1), is = p->shape[0] * (matrix ? p->shape[1] : 1);
    if (!in_layer || strstr(p->name, "norm") || strstr(p->name, "ln_") || was == 1) {
        if (is != was)
            fail_msg("family %s: %s is cut", WORDS[whole->config.family], p->name);
        return 0;
    }
    if (!matrix) { /* the bias of a map that closes a block is added once, to the sum */
        if (is != (closes_block(p->name) ? was : was / TP))
            fail_msg("family %s: %s: %lld of %lld elements", WORDS[whole->config.family], p->name, (long long)is, (long long)was);
        return 0;
    }
    if (is != was / TP)
        fail_msg("family %s: %s: %lld of %lld elements", WORDS[whole->config.family], p->name, (long long)is, (long long)was);
    const int side = p->shape[1] != all->shape[1];
    if (all->shape[!side] != DIM) /* the other side is the stream's */
        fail_msg("family %s: %s is cut along the stream", WORDS[whole->config.family], p->name);
    return (closes_block(p->name) ? BY_INPUTS : BY_OUTPUTS) << side;
}

/* Every family with heads and an MLP alone is cut so, or has a reason not to be: norms over all heads. The families behind have
 * recurrences or latents, which are refused by name (test_part). Experts are left out: their stacks are shared out by ep, not cut. */
static void families_cut(void **state)
{
    (void)state;
    static const enum model_family whole_norms[] = {FAMILY_OLMO2, FAMILY_OLMO3, FAMILY_OLMOE, FAMILY_FLEX_OLMO,
                                                    FAMILY_MINIMAX_M2};
    enum { REFUSED = sizeof whole_norms / sizeof *whole_norms };
    int refused = 0;
    for (int f = 0; f < (int)FAMILY_GRANITEMOEHYBRID; f++) {
        const struct model_config c = config((enum model_family)f);
        const struct model_part part = {0, LAYERS, 1, TP};
        struct model *whole, *slice;
        if (model_create(&c, NULL, 0, &whole) != OK)
            fail_msg("family %s: %s", WORDS[f], status_message());
        if (model_part_create(whole, &part, &slice) != OK) {
            assert_true(refused < REFUSED && whole_norms[refused++] == (enum model_family)f);
            assert_non_null(strstr(status_message(), "norms of queries and keys are over all heads"));
            model_destroy(whole);
            continue;
        }
        int ways = 0;
        for (int i = 0; i < slice->n_params; i++)
            ways |= check(whole, slice, i);
        assert_true(ways == (BY_OUTPUTS | BY_INPUTS << 1) ||
                    ways == (BY_OUTPUTS << 1 | BY_INPUTS)); /* the second: stored the other way round */
        model_destroy(slice);
        model_destroy(whole);
    }
    assert_int_equal(refused, REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_cut)};
    return cmocka_run_group_tests_name("cuts", tests, NULL, NULL);
}
