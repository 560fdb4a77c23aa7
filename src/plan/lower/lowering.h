/* State of one program's lowering: the model, the strategy, the program so far, and the values. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_LOWERING_H
#define LTRAIN_PLAN_LOWER_LOWERING_H

#include "model/model.h"
#include "plan/lower/heads.h"
#include "plan/lower/program.h"
#include "plan/lower/state.h"
#include "plan/lower/strategy.h"
#include "plan/lower/value.h"

#include <stdio.h>

struct adapter_work;
struct block;
struct expert_load;
struct kept_layer;
struct last_read;
struct layer_cache;
struct memory;

/* A layer's blocks (blocks/block.h), in the order in which they add to the residual stream. */
struct layer {
    int n_blocks;
    int n_own, own[EXPERT_UNITS]; /* units of the layer's experts */
    struct block *blocks;
};

/* Values that pass between stages (stage.h): a stage's inputs and outputs, and the gradients of its outputs and of its inputs. Further
 * ones only if the messages of the model's ends travel beside layers: the stage's share of the embedding's rows, of the head's input and
 * its gradient, and of the embedding's gradient. */
enum stage_value {
    STAGE_IN,
    STAGE_OUT,
    STAGE_DOUT,
    STAGE_DIN,
    STAGE_SHARES,
    STAGE_EMBEDDED = STAGE_SHARES,
    STAGE_HEAD_IN,
    STAGE_HEAD_GRAD,
    STAGE_EMBED_GRAD,
    STAGE_VALUES
};

struct lowering {
    const struct model *m;
    struct strategy s;
    int duties;
    struct program *p;
    struct memory *memory;         /* memory of all values */
    struct last_read *param_reads; /* [n_params]; NULL: no parameter was read yet */
    int n_chunks;
    struct head_tiles heads[MODEL_SHAPES]; /* tiles of the layers of each shape */
    int ulysses, ring, ep, tp, pp;         /* degrees of the mesh */
    int passed;                            /* messages between stages that the half has emitted (stage.h) */
    int cut;                               /* index of the first instruction behind the forward pass */
    int64_t stream_rows,
        stream_chunk; /* rows of the residual stream on one rank, and of one of its chunks: a tp-th of all rows */
    int64_t end_rows; /* rows of the stream for which this rank computes the model's ends */
    int64_t
        io_rows; /* rows of inputs: those of a rank, although programs of the model's ends (stage.h) compute a share of them */
    int pieces;  /* pieces of the rank's rows, of as many row chunks each (strategy.h: piece) */
    int64_t attn_rows; /* tokens whose attention one rank computes, for its share of the heads */
    int64_t n_sums, n_loss;
    int64_t n_parted_sums; /* sums of gradients of which other ranks have other parts; they come first */
    struct unit_values *units;
    struct value tokens, targets, positions, own_positions, numbers, end_numbers, lo[MODEL_MASKS], hi[MODEL_MASKS], inv_freq,
        record, norm, loss, sums;
    struct value links; /* each row's link to the row before it; unused without recurrences */
    struct value order; /* pieces of a shared sequence by tokens (seq_piece_order); unused unless states pass between ranks */
    /* rows of tokens that are trained by themselves: each token's row among those of the embedding, and tokens of the head's rows,
     * inputs; logits of these, and their gradient in bf16; unused without such rows */
    struct value slots, columns, row_logits, row_dlogits;
    struct value each;                /* every token's loss */
    struct value weights;             /* every token's weight in the loss; unused without weights */
    struct value all_loss, all_sums;  /* gathered from all ranks; unused with a single rank */
    struct value stage[STAGE_VALUES]; /* values that pass between stages, if there are some */
    struct kept_layer *kept;          /* [layers]: keys and values of a sequence's slices (blocks/kept.h); NULL: none */
    struct layer *layers;
    struct value *x;      /* [layers + 1]: the residual stream at the layers' inputs, and after the last one */
    struct value *normed; /* norm of the stream, for the first, second, ... block of a layer */
    struct value acc;     /* fp32: a block's branch, or the gradient of the norm's output */
    struct value dx;      /* gradient of the stream */
    /* only between slices: this rank's rows of a norm, and of acc summed over the slices; all rows of the branch's gradient */
    struct value own_normed, own_acc, all_dx;
    struct value rows_normed; /* norm of the stream for a block that slices have whole */
    /* a block's branch before and after its own norm; df: the branch's gradient, unless the stream's gradient is also the
     * branch's */
    struct value f, f_normed, df;
    struct value moved;       /* fp32: gradient of a norm to which a branch is added; unused without such blocks */
    struct joint_work *joint; /* NULL: no joined blocks have inner norms (blocks/rows.h) */
    struct value final_n, logits, dlogits, dn; /* dlogits: the logits' gradient in bf16, if products take no fp32 */
    struct adapter_work *adapters;             /* NULL: the model has none (adapter.c) */
    void *shared[BLOCK_KINDS];                 /* values that all blocks of one kind share, by kind */
    struct layer_cache *caches;                /* caches of each layer, if keys and values are cached (blocks/cache.h) */
    struct value index, last_row;              /* inputs: row of each token among kept keys; row whose logits are wanted */
    struct value last, last_n;                 /* row last_row of the stream, and its norm */
    struct expert_load *load;                  /* counts of experts' tokens (load.h); NULL: nothing is counted */
    int64_t mask_rows;                         /* rows from the mask of one block of keys to that of the next */
    int predicate;                             /* predicate of the instructions that are emitted; 0: they are executed always */
    enum phase phase;
    int unit;       /* unit of the instructions that are emitted; -1: none */
    enum status st; /* sticky: the first error stays */
};

/* Writes the name of one end of the intervals of keys under a mask: "lo", "lo'", "lo''". */
enum { MASK_NAME = 16 };
static inline const char *mask_name(char name[MASK_NAME], const char *what, int mask)
{
    snprintf(name, MASK_NAME, "%s%.*s", what, mask, "''");
    return name;
}

#endif
