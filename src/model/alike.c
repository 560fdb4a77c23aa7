/* Comparing parts of a model: parts are equal if they have equal programs. */
#include "model/block_rows.h"
#include "model/part.h"

#include <string.h>

static int is_alike(const struct model_param *a, const struct model_param *b)
{
    return memcmp(a->shape, b->shape, sizeof a->shape) == 0 && a->elements == b->elements && a->unit == b->unit &&
           a->offset == b->offset && a->trained == b->trained && a->packed_bytes == b->packed_bytes &&
           a->as_vector == b->as_vector;
}

static int norms_alike(const struct model_norm *a, const struct model_norm *b)
{
    return a->kind == b->kind && a->weight == b->weight && a->bias == b->bias && a->eps == b->eps;
}

static int maps_alike(const struct model_linear *a, const struct model_linear *b)
{
    const int same = a->weight == b->weight && a->bias == b->bias && a->transposed == b->transposed && a->in == b->in &&
                     a->out == b->out && a->first_out == b->first_out && a->ld == b->ld && a->rank == b->rank;
    if (!same || a->weight < 0 || a->rank == 0)
        return same;
    return a->down == b->down && a->up == b->up && a->adapter_scale == b->adapter_scale && a->dropout_module == b->dropout_module;
}

/* Compares a block's numbers other than those of its maps and norms. */
static int numbers_alike(const struct model_block *x, const struct model_block *y)
{
    const struct attention_block *a = &x->attention, *b = &y->attention;
    switch ((int)x->kind) {
    case BLOCK_ATTENTION:
        return a->whole == b->whole && a->norm_last == b->norm_last && a->shape == b->shape && a->mask == b->mask &&
               a->rope == b->rope && a->sinks == b->sinks && a->scale == b->scale && a->cap == b->cap;
    case BLOCK_MLP:
        return x->mlp.kind == y->mlp.kind;
    default:
        return 0;
    }
}

static int blocks_alike(struct model_block x, struct model_block y)
{
    struct fields a, b;
    if (x.kind != y.kind || x.parallel != y.parallel || x.on_norm != y.on_norm || !norms_alike(&x.norm, &y.norm) ||
        !norms_alike(&x.inner, &y.inner) || !norms_alike(&x.after, &y.after))
        return 0;
    block_fields(&x, &a);
    block_fields(&y, &b);
    int same = numbers_alike(&x, &y) && (!a.out_of || maps_alike(a.out_of, b.out_of));
    for (int i = 0; i < MOST_MAPS && a.into[i]; i++)
        same = same && maps_alike(a.into[i], b.into[i]);
    for (int i = 0; i < MOST_NORMS && a.norm[i]; i++)
        same = same && norms_alike(a.norm[i], b.norm[i]);
    return same;
}

static int layers_alike(const struct model_layer *a, const struct model_layer *b)
{
    if (a->scalar != b->scalar || a->n_blocks != b->n_blocks)
        return 0;
    for (int i = 0; i < a->n_blocks; i++)
        if (!blocks_alike(a->blocks[i], b->blocks[i]))
            return 0;
    return 1;
}

int model_part_alike(const struct model *a, const struct model *b)
{
    if (a->n_units != b->n_units || a->n_params != b->n_params || a->n_masks != b->n_masks || a->n_shapes != b->n_shapes ||
        a->n_ropes != b->n_ropes || memcmp(a->mask_window, b->mask_window, (size_t)a->n_masks * sizeof *a->mask_window) != 0 ||
        memcmp(a->shapes, b->shapes, (size_t)a->n_shapes * sizeof *a->shapes) != 0)
        return 0;
    for (int i = 0; i < a->n_ropes; i++)
        if (a->ropes[i].local != b->ropes[i].local || a->ropes[i].head_dim != b->ropes[i].head_dim)
            return 0;
    for (int i = 0; i < a->n_params; i++)
        if (!is_alike(&a->params[i], &b->params[i]))
            return 0;
    for (int64_t l = 0; l < a->config.layers; l++)
        if (!layers_alike(&a->layers[l], &b->layers[l]))
            return 0;
    return 1;
}
