/* A model family: what tells it from the others. A file each describes one or several alike. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_H
#define LTRAIN_MODEL_FAMILY_H

#include "model/builder.h"
#include "model/config.h"

struct family {
    const char *name, *class; /* config.json's model_type, which messages say, too, and its architectures */
    const char *class_before;  /* architectures in older files; NULL: the same */
    const char *head_name;    /* its tensor without .weight; NULL: lm_head */
    int head_bias;            /* it has one, tied or not */
    int learned_positions;    /* else they are rotary */
    int first_position;       /* the row of the table of learned ones that a document's first token has */
    int fixed_rope;           /* no key says anything of rotary positions but how many elements are rotated */
    double theta;             /* rotary base where config.json says none */
    const char *base_key,
        *share_key; /* config.json's keys of it and of the part of a head that is rotated; NULL: the usual ones */
    int partial;    /* a part of each head may be rotated alone */
    double share;   /* that part where config.json says none; 0: all */
    /* Counts that the text_config of a multimodal model may leave out, with their values; field NO_FIELD ends the list. NULL:
     * none. */
    const struct config_implied *implied;
    /* Globs, NULL-terminated: tensors that old releases of transformers saved beside the parameters, and that follow from
     * config.json. */
    const char *const *buffers;
    /* config.json's keys in the order in which they are written; use_cache and torch_dtype come between the two lists. The second
     * may be NULL. */
    const struct config_key *keys[2];
    /* What absent keys stand for (their counts are 0 unless they have a fallback), and what no key says. */
    enum status (*derive)(struct config_reader *r, struct model_config *c);
    /* What its shapes must satisfy beyond what all families' must. */
    enum status (*check)(const struct model_config *c);
    /* Parameters, as Hugging Face names and shapes them, and what uses them: m->embed and m->pos_embed (-1 before), the blocks
     * of layer l, m->head and m->final_norm. */
    void (*embedding)(struct builder *b);
    void (*layer)(struct builder *b, int l);
    void (*head)(struct builder *b);
};

#define X(upper, lower) extern const struct family family_##lower;
MODEL_FAMILIES(X)
#undef X

extern const struct family *const families[N_FAMILIES];
const struct family *family_of(const struct model_config *c);
const char *family_head_name(const struct model_config *c);

#endif
