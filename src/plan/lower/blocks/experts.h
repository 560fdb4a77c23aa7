/* Values of experts, and the parts of their lowering that several files need. Private to src/plan/lower/blocks.
 *
 * A chunk of r rows has n = r k pairs of a token and an expert, sorted by expert: rows of a pair's values stand in the chunk's rows,
 * k a token. The choice and its weights are kept from the forward pass. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_EXPERTS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_EXPERTS_H

#include "plan/lower/blocks/expert_adapters.h"

/* Values of one layer. ids, p: each token's experts and their weights; gate_up: outputs of the first maps, by pair, if a rank has all
 * experts; sum: of what a token's experts give, if that is narrower than the stream. */
struct experts_layer {
    struct value ids, p, gate_up, sum;
};

/* Rows of experts narrower than the stream: what they read, gradients of their sum and of what they read, and that sum in fp32. */
struct narrow_work {
    struct value input, gradient, sum;
};

/* Values of rows that travel between the ranks that share experts out. A rank has room for as many pairs of each token as it has experts
 * that one token can choose. */
struct sent_work {
    struct value all;                   /* all ranks' offsets of their pairs */
    struct value sent, sent_p;          /* rows of the pairs here, on their way out */
    struct value x, dy, p;              /* rows that arrived: the maps' inputs, the outputs' gradients, the pairs' weights */
    struct value order, place, offsets; /* arrived rows sorted by expert (ops/dispatch.h) */
    struct value ids;                   /* experts of arrived rows; only if second maps have biases */
    struct value gate_up, act, dact, y; /* sorted rows between the maps and behind them */
    struct value dp;                    /* gradient of p, of sorted rows */
    struct value back, back_dp;         /* results in the order in which rows arrived */
};

/* Values that all layers share. */
struct experts_work {
    struct value input;                 /* fp32: the router's input, in bf16 runs or if it has a norm of its own */
    struct value logits;                /* fp32, then their gradient */
    struct value order, place, offsets; /* pairs sorted by expert (ops/permute.h) */
    struct value slots;                 /* each pair's slot (slots.h); only if there are slots */
    struct value act, dact;             /* columns between an expert's maps, by pair, if a rank has all experts */
    struct value y;                     /* outputs of experts, or gradients of their inputs, by pair */
    struct value dp;                    /* gradient of p */
    struct value dfactor;               /* gradients of the weights' factors, by pair; only if there are factors */
    struct stack_work adapter;
    struct narrow_work narrow; /* unused if experts are as wide as the stream */
    struct sent_work sent;     /* unused if a rank has all experts */
};

static inline const struct experts_block *experts_weights(const struct block *b)
{
    return &b->weights->experts;
}

static inline struct experts_work *experts_work_of(const struct lowering *L)
{
    return L->shared[BLOCK_EXPERTS];
}

/* Rows of a chunk. */
struct expert_rows {
    int64_t first, end, n;
};
struct expert_rows experts_rows_of(const struct block *b, int c);
void experts_read(struct lowering *L, int arg, struct value *v, const struct expert_rows *r);
/* Makes room for a chunk of a value, and appends it as the result of an op. */
void experts_write(struct lowering *L, int arg, struct value *v, const struct expert_rows *r, int c);
/* Creates a value of a chunk that all layers use in turn. */
void experts_value(struct lowering *L, struct value *v, const char *name, int64_t columns, enum dtype type);

/* Emits OP_GATED or OP_GATED_GRAD for `rows` tokens. */
struct op_attrs *experts_gated(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows);
/* Adds up the pairs' rows of y by token, in b->acc, or in the sum of narrower experts, which is not added to. bias: 1: adds the second maps' biases, too. */
void experts_combine(struct lowering *L, const struct block *b, int c, int accumulate, int bias);

/* A product with a stack of the experts that this rank has. gathered: 1: x has a row for each token (of rows that arrived: as they
 * arrived), else one for each sorted pair. */
struct experts_product {
    const struct model_linear *w;
    struct value *y, *x;
    int gathered;
};
void experts_multiply(struct lowering *L, const struct block *b, const struct experts_product *p, int c);
/* Computes the map's outputs; its bias, if there is one, is added elsewhere. */
void experts_multiply_without_bias(struct lowering *L, const struct block *b, const struct experts_product *p, int c);
/* Computes the gradient of the map's inputs from that of its outputs. */
void experts_multiply_back(struct lowering *L, const struct block *b, const struct experts_product *p, int c);
/* Computes the gradients of a stack of matrices and of its biases. gathers: side that is gathered; of biases behind the pairs' weights
 * (GATHERS_DY) these are factors. */
void experts_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy,
                      struct value *input, enum experts_gather gathers, int c);
/* Returns the stack's adapter at a chunk. */
struct stack_adapter experts_adapter(const struct lowering *L, const struct block *b, const struct model_linear *w, int c);
/* Returns the values by which these pairs are sorted by expert. */
struct value *experts_order(const struct lowering *L);
struct value *experts_offsets(const struct lowering *L);

/* Functions of a chunk as those of struct row_block, for experts that ranks share out (experts_sent.c): pairs travel to the ranks
 * that have their experts, and results back. No travelled row is kept from the forward pass. */
/* Creates the values. b: a block of experts, which are alike in all layers. */
void sent_values(struct lowering *L, const struct block *b);
void sent_fetch(struct lowering *L, const struct block *b, int c);
void sent_branch(struct lowering *L, const struct block *b, int c, int accumulate);
/* Computes the gradients of the experts' parameters and of p, and b->acc (+)= the gradient of the experts' inputs. */
void sent_gradient(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate);
void sent_drop(struct lowering *L, int c);

#endif
