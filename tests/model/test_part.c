/* Tests parts of models: stages and slices together have every element, hold the same bytes as the whole, and compute the same. */
#include "extent.h"
#include "model/part.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 8, HEADS = 16, KV_HEADS = 8, HEAD_DIM = 4, DIM = 64, FFN = 48, RANK = 3, MOST = 8 };

/* Families whose files store layers in different ways: separate and fused maps, either way round or head by head, gates, norms of
 * heads, biases, sinks, windows. */
static const struct {
    enum model_family family;
    int kv_heads, qk_norm, biases, parallel, tied, windows;
} FAMILIES[] = {
    {FAMILY_LLAMA, KV_HEADS, 0, 0, 0, 0, 0},  {FAMILY_QWEN3, KV_HEADS, 0, 0, 0, 1, 0},
    {FAMILY_GPT2, HEADS, 0, 0, 0, 1, 0},      {FAMILY_GPT_BIGCODE, HEADS, 0, 0, 0, 1, 0},
    {FAMILY_PHI3, KV_HEADS, 0, 0, 0, 0, 0},   {FAMILY_GPT_NEOX, HEADS, 0, 1, 1, 0, 0},
    {FAMILY_FALCON, KV_HEADS, 0, 0, 1, 1, 0}, {FAMILY_QWEN3_5, KV_HEADS, 0, 0, 0, 0, 0},
    {FAMILY_COHERE, KV_HEADS, 1, 0, 1, 1, 0}, {FAMILY_GPT_OSS, KV_HEADS, 0, 1, 0, 0, 1},
    {FAMILY_GEMMA3, KV_HEADS, 1, 0, 0, 1, 1}, {FAMILY_GLM4, KV_HEADS, 0, 0, 0, 0, 0},
};
enum { N_FAMILIES_HERE = sizeof FAMILIES / sizeof *FAMILIES };

static struct model_config config(int i)
{
    struct model_config c = {.family = FAMILIES[i].family,
                             .name = "parts",
                             .vocab = 40,
                             .dim = DIM,
                             .ffn = FFN,
                             .layers = LAYERS,
                             .heads = HEADS,
                             .kv_heads = FAMILIES[i].kv_heads,
                             .head_dim = HEAD_DIM,
                             .max_positions = 32,
                             .tied = FAMILIES[i].tied,
                             .qk_norm = FAMILIES[i].qk_norm,
                             .attention_bias = FAMILIES[i].biases,
                             .mlp_bias = FAMILIES[i].biases,
                             .parallel = FAMILIES[i].parallel,
                             .norms = FAMILIES[i].parallel,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    if (c.family == FAMILY_GPT_OSS)
        c.gate = GATE_CLAMPED, c.gate_limit = 7, c.gate_alpha = 1.702;
    for (int l = 0; l < LAYERS && FAMILIES[i].windows; l++) {
        c.window = 8;
        c.windowed[l / 8] |= (uint8_t)((l % 4 != 3) << l % 8);
    }
    return c;
}

static struct model *create(int i, int rank)
{
    struct model_config c = config(i);
    struct model *m = NULL;
    if (rank > 0)
        c.lora = (struct lora){.rank = rank, .alpha = 6, .targets = "all-linear"};
    if (model_create(&c, NULL, 0, &m) != OK)
        fail_msg("family %d: %s", (int)c.family, status_message());
    return m;
}

/* ---- elements in files ---- */

/* A whole model's parameters as in files; for each element, how many parts have it, and how many of them write it. */
struct files {
    float **value;
    int **count, **firsts;
};

static void files_make(struct files *f, const struct model *m)
{
    f->value = calloc((size_t)m->n_params, sizeof *f->value);
    f->count = calloc((size_t)m->n_params, sizeof *f->count);
    f->firsts = calloc((size_t)m->n_params, sizeof *f->firsts);
    for (int i = 0; i < m->n_params; i++) {
        f->value[i] = calloc((size_t)model_param_stored(&m->params[i]), sizeof **f->value);
        f->count[i] = calloc((size_t)model_param_stored(&m->params[i]), sizeof **f->count);
        f->firsts[i] = calloc((size_t)model_param_stored(&m->params[i]), sizeof **f->firsts);
    }
}

static void files_clear(struct files *f, const struct model *m)
{
    for (int i = 0; i < m->n_params; i++) {
        free(f->value[i]);
        free(f->count[i]);
        free(f->firsts[i]);
    }
    free(f->value);
    free(f->count);
    free(f->firsts);
}

/* Saves a part's initial values: the first part that has an element writes it, the others must have the same value. */
static void save(struct files *f, const struct model *part)
{
    for (int i = 0; i < part->n_params; i++) {
        const struct model_param *p = &part->params[i];
        const int64_t n = model_param_stored(p);
        float *own = malloc((size_t)n * sizeof *own);
        model_init_param(part, i, 7, 0, n, own);
        for (int64_t at = 0, tensor, there, some; at < n; at += some) {
            some = model_param_piece(p, at, n - at, &tensor, &there);
            assert_true(some > 0 && there >= 0 && there + some <= p->file_shape[0] * max_i64(p->file_shape[1], 1));
            for (int64_t k = 0; k < some; k++) {
                float *to = &f->value[p->whole][there + k];
                f->firsts[p->whole][there + k] += model_part_is_first(part, i);
                if (f->count[p->whole][there + k]++ == 0)
                    *to = own[at + k];
                if (*to != own[at + k])
                    fail_msg("%s: element %lld differs between parts", p->name, (long long)(there + k));
            }
        }
        free(own);
    }
}

/* Returns how many parts have each element of a parameter: for head and embedding all of them; for parameters that are not cut
 * all slices of a stage. */
static int expected(const struct model *whole, const struct model_param *of_part, int stages, int slices)
{
    const int end = !model_unit_in_layer(whole, whole->params[of_part->whole].unit);
    return end ? stages * slices : of_part->n_ranges > 0 ? 1 : slices;
}

/* Tells whether slices must cut a parameter: the maps of a layer, and everything whose size is not that of the residual stream or
 * of a head. */
static int is_cut(const struct model *whole, int param)
{
    const struct model_param *p = &whole->params[param];
    int other = 0;
    for (int k = 0; k < 2; k++)
        other |= p->shape[k] > 1 && p->shape[k] != DIM && p->shape[k] != HEAD_DIM && p->shape[k] != RANK;
    return model_unit_in_layer(whole, p->unit) && (other || (p->linear && !p->adapter));
}

/* Checks that the parts of all stages and slices have each element as often as they should, and that files saved by parts have
 * the whole model's bytes. */
static void check_cover(const struct model *whole, const struct files *saved, int stages, int slices)
{
    struct files f;
    int *times = calloc((size_t)whole->n_params, sizeof *times);
    files_make(&f, whole);
    for (int k = 0; k < stages * slices; k++) {
        struct model_part part;
        struct model *m;
        assert_int_equal(model_stage(whole, k / slices, stages, k % slices, slices, &part), OK);
        assert_int_equal(model_part_create(whole, &part, &m), OK);
        save(&f, m);
        for (int i = 0; i < m->n_params; i++) {
            if (slices > 1 && m->params[i].n_ranges == 0 && is_cut(whole, m->params[i].whole))
                fail_msg("%s is not cut", m->params[i].name);
            times[m->params[i].whole] = expected(whole, &m->params[i], stages, slices);
        }
        model_destroy(m);
    }
    for (int i = 0; i < whole->n_params; i++)
        for (int64_t e = 0; e < model_param_stored(&whole->params[i]); e++)
            if (f.count[i][e] != times[i] || times[i] == 0 || f.value[i][e] != saved->value[i][e])
                fail_msg("%s, %d stages, %d slices: parts have element %lld %d times for %d", whole->params[i].name, stages,
                         slices, (long long)e, f.count[i][e], times[i]);
    for (int i = 0; i < whole->n_params; i++)
        for (int64_t e = 0; e < model_param_stored(&whole->params[i]); e++)
            if (f.firsts[i][e] != 1)
                fail_msg("%s, %d stages, %d slices: %d parts are the first with element %lld", whole->params[i].name, stages,
                         slices, f.firsts[i][e], (long long)e);
    files_clear(&f, whole);
    free(times);
}

static void cover(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES_HERE; i += extent(3, 1, 1))
        for (int rank = 0; rank <= RANK; rank += RANK) {
            struct model *m = create(i, rank);
            struct files saved;
            files_make(&saved, m);
            save(&saved, m);
            for (int stages = 1; stages <= MOST; stages++)
                for (int slices = 1; slices <= MOST; slices *= 2)
                    if (stages < 3 || slices == 1 || (stages == MOST && slices == MOST))
                        check_cover(m, &saved, stages, slices);
            files_clear(&saved, m);
            model_destroy(m);
        }
}

/* ---- maps ---- */

static int64_t place(const struct model_linear *w, int64_t out, int64_t in)
{
    return w->transposed ? (w->first_out + out) * w->ld + in : in * w->ld + w->first_out + out;
}

/* Checks that a slice's map has those weights of the whole map that belong to its outputs or inputs. */
static void check_map(const struct model *whole, const struct model_linear *w, const struct model *part,
                      const struct model_linear *own)
{
    const int slice = part->part.slice, slices = part->part.slices, by_outputs = own->out != w->out;
    if (w->weight < 0)
        return;
    assert_int_equal(part->params[own->weight].whole, w->weight);
    assert_true(own->out * (by_outputs ? slices : 1) == w->out && own->in * (by_outputs ? 1 : slices) == w->in);
    for (int64_t o = 0; o < own->out; o++) {
        int64_t there;
        for (int64_t i = 0; i < own->in; i++) {
            model_param_span(&part->params[own->weight], place(own, o, i), 1, &there);
            assert_true(there == place(w, o + by_outputs * slice * own->out, i + !by_outputs * slice * own->in));
        }
        if (own->bias < 0)
            continue;
        assert_int_equal(part->params[own->bias].whole, w->bias);
        model_param_span(&part->params[own->bias], own->first_out + o, 1, &there);
        assert_true(there == w->first_out + o + by_outputs * slice * own->out);
    }
    (void)whole;
}

static void maps(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES_HERE; i++) {
        struct model *m = create(i, 0), *part;
        for (int slice = 0; slice < 4; slice++) {
            assert_int_equal(model_part_create(m, &(struct model_part){2, 3, slice, 4}, &part), OK);
            assert_true(part->shapes[0].heads * 4 == HEADS && part->config.layers == 3 && part->n_units == 5);
            for (int l = 0; l < 3; l++)
                for (int b = 0; b < part->layers[l].n_blocks; b++)
                    for (int k = 0; block_map(&part->layers[l].blocks[b], k); k++)
                        check_map(m, block_map(&m->layers[2 + l].blocks[b], k), part, block_map(&part->layers[l].blocks[b], k));
            model_destroy(part);
        }
        model_destroy(m);
    }
}

/* ---- parts and their kinds ---- */

/* Names and numbers in a part follow from its layers: it has only the windows of its layers, their sizes, and numbers for head
 * and embedding after them. */
static void layers(void **state)
{
    (void)state;
    struct model *m = create(10, 0), *windowed, *both; /* every fourth layer of this Gemma attends without a window */
    assert_int_equal(FAMILIES[10].family, FAMILY_GEMMA3);
    assert_int_equal(model_part_create(m, &(struct model_part){0, 3, 0, 1}, &windowed), OK);
    assert_int_equal(model_part_create(m, &(struct model_part){3, 2, 0, 1}, &both), OK);
    assert_true(windowed->n_masks == 1 && windowed->mask_window[0] == 8 && windowed->n_kinds == 1);
    assert_true(both->n_masks == 2 && both->n_kinds == 2);
    for (int i = 0; i < both->n_params; i++)
        assert_string_equal(both->params[i].name, m->params[both->params[i].whole].name);
    assert_string_equal(both->params[both->final_norm.weight].name, m->params[m->final_norm.weight].name);
    assert_string_equal(both->params[both->head.weight].name, m->params[m->head.weight].name);
    assert_ptr_equal(both->whole, m);
    for (int u = 0; u < both->n_units; u++)
        assert_int_equal(both->units[u].layer, u - 1);
    assert_true(both->params[both->final_norm.weight].unit == model_head_unit(both) && both->n_units == 4);
    assert_true(both->total_params < m->total_params && windowed->units[1].elements == m->units[1].elements);
    model_destroy(both);
    model_destroy(windowed);
    model_destroy(m);
}

static void check_name(const struct model *whole, int there, const struct model *part, int here)
{
    assert_true((there < 0) == (here < 0));
    if (here >= 0)
        assert_string_equal(whole->params[there].name, part->params[here].name);
}

/* Norms, factors and sinks of a part's layers are those of the whole model's. */
static void numbers(void **state)
{
    (void)state;
    static const char *const golden[] = {"gemma4", "gpt-oss"};
    for (int k = 0; k < 2; k++) {
        char dir[4096];
        struct model_config c;
        struct model *m, *part;
        snprintf(dir, sizeof dir, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), golden[k]);
        assert_int_equal(model_config_read(dir, &c), OK);
        assert_int_equal(model_create(&c, NULL, 0, &m), OK);
        assert_int_equal(model_part_create(m, &(struct model_part){1, c.layers - 1, 0, 1}, &part), OK);
        assert_true(k > 0 || m->layers[0].scalar >= 0);
        for (int l = 0; l < (int)c.layers - 1; l++) {
            const struct model_layer *there = &m->layers[1 + l], *here = &part->layers[l];
            check_name(m, there->scalar, part, here->scalar);
            for (int b = 0; b < here->n_blocks; b++) {
                const struct attention_block *x = &there->blocks[b].attention, *y = &here->blocks[b].attention;
                check_name(m, there->blocks[b].norm.weight, part, here->blocks[b].norm.weight);
                check_name(m, there->blocks[b].after.weight, part, here->blocks[b].after.weight);
                if (here->blocks[b].kind != BLOCK_ATTENTION)
                    continue;
                check_name(m, x->q_norm.weight, part, y->q_norm.weight);
                check_name(m, x->k_norm.weight, part, y->k_norm.weight);
                check_name(m, x->sinks, part, y->sinks);
            }
        }
        model_destroy(part);
        model_destroy(m);
    }
}

/* Layers with heads of their own have their share of these, too. */
static void own_heads(void **state)
{
    (void)state;
    struct model_config c = config(0);
    struct model *m, *part;
    c.own[1] = (struct layer_config){.heads = 8, .kv_heads = 4, .head_dim = 8};
    c.own_of[1] = c.own_of[3] = 1;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_int_equal(model_part_create(m, &(struct model_part){2, 4, 1, 2}, &part), OK);
    assert_true(m->n_shapes == 2 && part->n_shapes == 2);
    for (int l = 0; l < 4; l++) {
        const struct attention_block *of_part = model_attention(part, l), *of_whole = model_attention(m, 2 + l);
        const struct attention_shape *x = &part->shapes[of_part->shape], *y = &m->shapes[of_whole->shape];
        assert_true(2 * x->heads == y->heads && 2 * x->kv_heads == y->kv_heads && x->head_dim == y->head_dim);
        assert_true(of_part->q.out == x->heads * x->head_dim && of_part->k.out == x->kv_heads * x->head_dim);
    }
    model_destroy(part);
    model_destroy(m);
}

/* Stages divide the layers in order; parts are alike if their layers are and both have the embedding, or neither. */
static void stages(void **state)
{
    (void)state;
    struct model *m = create(0, 0), *part[3];
    int64_t next = 0;
    for (int k = 0; k < 3; k++) {
        struct model_part p;
        assert_int_equal(model_stage(m, k, 3, 0, 1, &p), OK);
        assert_true(p.first_layer == next && p.layers == (k < 2 ? 3 : 2));
        next += p.layers;
        assert_int_equal(model_part_create(m, &p, &part[k]), OK);
    }
    assert_true(next == LAYERS);
    assert_true(!model_part_alike(part[0], part[1]) &&
                !model_part_alike(part[0], part[2])); /* the first one alone has the embedding */
    for (int k = 1; k < 3; k++) {
        struct model_part p;
        model_destroy(part[k]);
        assert_int_equal(model_stage(m, k, 4, 0, 1, &p), OK);
        assert_int_equal(model_part_create(m, &p, &part[k]), OK);
    }
    assert_true(model_part_alike(part[1], part[2]));
    for (int k = 0; k < 3; k++)
        model_destroy(part[k]);
    model_destroy(m);
    m = create(10, 0); /* a window in other layers */
    assert_int_equal(model_part_create(m, &(struct model_part){2, 2, 0, 1}, &part[0]), OK);
    assert_int_equal(model_part_create(m, &(struct model_part){3, 2, 0, 1}, &part[1]), OK);
    assert_int_equal(model_part_create(m, &(struct model_part){6, 2, 0, 1}, &part[2]), OK);
    assert_true(!model_part_alike(part[0], part[1]) && model_part_alike(part[0], part[2]));
    for (int k = 0; k < 3; k++)
        model_destroy(part[k]);
    model_destroy(m);
}

static void refuse(const struct model *m, int stages, int slices, const char *sentence)
{
    struct model_part part;
    assert_int_equal(model_stage(m, 0, stages, 0, slices, &part), ERR_INVALID);
    assert_string_equal(status_message(), sentence);
}

/* Quantised slices have as many bytes as matrices of their shape, in NF4 with scales of their own. */
static void quantised(void **state)
{
    (void)state;
    for (int base = BASE_NF4; base <= BASE_INT8; base++) {
        struct model_config c = config(0);
        struct model *m, *part;
        c.base = (enum model_base)base;
        c.head_dim = 16;
        c.ffn = 128;
        assert_int_equal(lora_parse("parts", "r=4", &c.lora), OK);
        assert_int_equal(model_create(&c, NULL, 0, &m), OK);
        assert_int_equal(model_part_create(m, &(struct model_part){2, 3, 1, 2}, &part), OK);
        assert_int_equal(part->config.base, base == BASE_NF4 ? BASE_NF4_PLAIN : base);
        for (int i = 0, next = 0; i < part->n_params; i++) {
            const struct model_param *p = &part->params[i];
            const struct quantised q = model_quantised(&part->config, p);
            next = i > 0 && p[-1].unit == p->unit ? next : 0;
            assert_true((p->packed_bytes > 0) == (m->params[p->whole].packed_bytes > 0));
            if (p->packed_bytes == 0)
                continue;
            assert_true(p->elements == 0 && p->n_ranges == 1 &&
                        2 * q.rows * q.columns == model_param_stored(&m->params[p->whole]));
            assert_true(p->packed_bytes == quantised_bytes(&q) && p->packed_offset == next);
            next += (int)p->packed_bytes;
        }
        model_destroy(part);
        model_destroy(m);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct model *m = create(0, 0);
    refuse(m, 9, 1, "--mesh: pp=9 is more than the model's 8 layers: take pp=8 or fewer");
    refuse(m, 1, 3, "--mesh: tp=3 does not divide the model's 8 key-value heads: take 2, 4 or 8");
    model_destroy(m);
    struct model_config c = config(0);
    c.ffn = 12;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    refuse(m, 1, 8, "--mesh: tp=8 does not divide the model's 12 columns of the MLP: take 2, 3, 4, 6 or 12");
    model_destroy(m);
    c = config(0);
    c.family = FAMILY_OLMO2;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    refuse(m, 1, 2, "--mesh: tp divides heads, and the model's norms of queries and keys are over all heads: leave tp out");
    model_destroy(m);
    c = config(0);
    c.base = BASE_NF4;
    c.ffn = 512;
    assert_int_equal(lora_parse("parts", "r=4", &c.lora), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    refuse(m, 1, 2,
           "--base nf4: tp=2 would cut model.layers.0.self_attn.o_proj.weight within blocks of 64 numbers: take --base none, or "
           "--base int8");
    model_destroy(m);
    c.head_dim = 16;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    refuse(m, 1, 8,
           "--base nf4: tp=8 would cut model.layers.0.self_attn.o_proj.weight within blocks of 64 numbers: take tp=2 or 4, or "
           "--base int8");
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cover),     cmocka_unit_test(maps),      cmocka_unit_test(layers),
                                       cmocka_unit_test(numbers),   cmocka_unit_test(own_heads), cmocka_unit_test(stages),
                                       cmocka_unit_test(quantised), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
