/* Legal parts of a model: how many stages, and how many slices. */
#include "model/part_pieces.h"

#include "model/block_rows.h"
#include "model/part.h"

#include <stdio.h>
#include <string.h>

/* Appends "4", then " or 8" or ", 8", to a list. */
static void add_number(char *text, size_t room, int64_t n, int last)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%lld", used == 0 ? "" : last ? " or " : ", ", (long long)n);
}

enum { LEGAL_TEXT = 128 };

/* Lists up to eight numbers that divide a count, as "2, 4 or 8". Returns how many there are in the list. */
static int list_divisors(int64_t count, char legal[LEGAL_TEXT])
{
    enum { LISTED = 8 };
    int64_t divisor[LISTED];
    int n = 0;
    legal[0] = 0;
    for (int64_t d = 2; d <= count && n < LISTED; d++)
        if (count % d == 0)
            divisor[n++] = d;
    for (int i = 0; i < n; i++)
        add_number(legal, LEGAL_TEXT, divisor[i], i == n - 1);
    return n;
}

/* Refuses slices that do not divide a count; the sentence lists numbers that divide it. */
static enum status indivisible(int slices, int64_t count, const char *what)
{
    char legal[LEGAL_TEXT];
    const int n = list_divisors(count, legal);
    return status_fail(ERR_INVALID, "--mesh: tp=%d does not divide the model's %lld %s: %s%s", slices, (long long)count, what,
                       n > 0 ? "take " : "leave tp out", legal);
}

/* Refuses norms that span the heads of several slices. */
static enum status check_norms(const struct model_block *b)
{
    if (b->kind != BLOCK_ATTENTION || !b->attention.whole ||
        (b->attention.q_norm.kind == NORM_NONE && b->attention.k_norm.kind == NORM_NONE))
        return OK;
    return status_fail(ERR_INVALID,
                       "--mesh: tp divides heads, and the model's norms of queries and keys are over all heads: leave tp out");
}

/* Refuses slices of a quantised map whose borders lie within blocks of NF4, each of which has a scale. n: adjacent numbers of the
 * matrix that slices divide; count: the number that they must divide besides. */
static enum status check_blocks(const struct model *m, const struct model_linear *w, int64_t n, int64_t count, int slices)
{
    const struct model_param *p = &m->params[w->weight];
    char legal[LEGAL_TEXT];
    if (p->packed_bytes == 0)
        return OK;
    if (p->parts > 0)
        return status_fail(
            ERR_INVALID,
            "--base %s: %s lies in files in another order than in slices: give --base none, or leave tp out of --mesh",
            model_base_word(m->config.base), p->name);
    if (m->config.base == BASE_INT8 || n % (NF4_BLOCK * (int64_t)slices) == 0)
        return OK;
    const int some = n % NF4_BLOCK == 0 && list_divisors(gcd_i64(n / NF4_BLOCK, count), legal) > 0;
    return status_fail(ERR_INVALID, "--base nf4: tp=%d would cut %s within blocks of %d numbers: take %s%s, or --base int8",
                       slices, p->name, NF4_BLOCK, some ? "tp=" : "--base none", some ? legal : "");
}

/* Refuses slices that cut a block's quantised maps within blocks of NF4. count: the number that slices must divide. */
static enum status check_quantised(const struct model *m, const struct model_block *b, int64_t count, int slices)
{
    struct model_block copy = *b;
    struct fields f;
    block_fields(&copy, &f);
    for (int i = 0; i < MOST_MAPS && f.into[i]; i++)
        if (f.into[i]->weight >= 0)
            TRY(check_blocks(m, f.into[i], f.into[i]->out * f.into[i]->in, count, slices));
    return f.out_of ? check_blocks(m, f.out_of, f.out_of->in, count, slices) : OK;
}

static enum status check_slices(const struct model *m, int64_t layer, int slices)
{
    for (int i = 0; i < m->layers[layer].n_blocks; i++) {
        const struct model_block *b = &m->layers[layer].blocks[i];
        TRY(check_norms(b));
        const char *what;
        const int64_t count = block_cut_count(m, b, &what);
        if (count % slices)
            return indivisible(slices, count, what);
        TRY(check_quantised(m, b, count, slices));
    }
    return OK;
}

/* Refuses kinds of blocks that cannot be cut into slices. */
static enum status check_kinds(const struct model_layer *layer, int slices)
{
    for (int i = 0; i < layer->n_blocks && slices > 1; i++)
        if (block_slicing(layer->blocks[i].kind) == BLOCK_UNCUT)
            return status_fail(ERR_INVALID,
                               "--mesh: tp=%d: the model has blocks of %s, which are not cut into slices: leave tp out", slices,
                               block_name(layer->blocks[i].kind));
    return OK;
}

enum status part_check(const struct model *m, const struct model_part *part)
{
    for (int64_t l = part->first_layer; l < part->first_layer + part->layers; l++) {
        TRY(check_kinds(&m->layers[l], part->slices));
        if (part->slices > 1)
            TRY(check_slices(m, l, part->slices));
    }
    return OK;
}

enum status model_stage(const struct model *whole, int stage, int stages, int slice, int slices, struct model_part *out)
{
    const int64_t layers = whole->config.layers, each = layers / stages, more = layers % stages;
    if (stages > layers)
        return status_fail(ERR_INVALID, "--mesh: pp=%d is more than the model's %lld layers: take pp=%lld or fewer", stages,
                           (long long)layers, (long long)layers);
    const struct model_part part = {stage * each + min_i64(stage, more), each + (stage < more), slice, slices};
    TRY(part_check(whole, &part));
    *out = part;
    return OK;
}

enum status model_stage_of(const struct model *whole, const struct mesh_stages *layers, int stage, int stages, int slice,
                           int slices, struct model_part *out)
{
    struct model_part part = {.slice = slice, .slices = slices};
    char text[MESH_STAGES_TEXT];
    int64_t all = 0;
    if (layers->n == 0)
        return model_stage(whole, stage, stages, slice, slices, out);
    for (int i = 0; i < layers->n; i++) {
        part.first_layer += i < stage ? layers->layers[i] : 0;
        all += layers->layers[i];
    }
    if (all != whole->config.layers)
        return status_fail(ERR_INVALID, "--stage-layers: %s are %lld layers, and the model has %lld",
                           mesh_stages_format(layers, text), (long long)all, (long long)whole->config.layers);
    part.layers = layers->layers[stage];
    TRY(part_check(whole, &part));
    *out = part;
    return OK;
}

int64_t model_most_layers(const struct model *whole, const struct mesh_stages *layers, int stages)
{
    int64_t most = 0;
    for (int i = 0; i < layers->n; i++)
        most = max_i64(most, layers->layers[i]);
    return layers->n > 0 ? most : ceil_div(whole->config.layers, stages);
}

enum status model_slices_check(const struct model *whole, int slices)
{
    struct model_part part;
    return slices > 1 ? model_stage(whole, 0, 1, 0, slices, &part) : OK;
}
