/* Descriptions of model families. A file describes one family or several alike. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_FAMILY_H
#define LTRAIN_MODEL_FAMILY_FAMILY_H

#include "model/builder.h"
#include "model/config/config.h"

struct experts_form;

struct family {
    const char *name, *class;               /* config.json's model_type (also used in messages) and its architectures */
    const char *class_before;               /* architectures in older files; NULL: same as class */
    const char *head_name;                  /* tensor name of the head without .weight; NULL: lm_head */
    const char *root;                       /* first word of tensors' names in files where modules have "model"; NULL: the same */
    const struct param_renaming *renamings; /* other words of tensors' names in files; NULL: none */
    const char *unadapted;                  /* module that PEFT gives no adapter in this family; NULL: none */
    int head_bias;                          /* 1: the head has a bias, tied or not */
    int learned_positions;                  /* 1: positions are learned; 0: rotary */
    int first_position;                     /* row for a document's first token in the table of learned positions */
    int fixed_rope;                         /* 1: config.json gives no rotary setting but the number of rotated elements */
    double theta;                           /* rotary base if config.json gives none */
    const char *base_key, *share_key; /* config.json's keys of the base and of the rotated part of a head; NULL: the usual ones */
    int partial;                      /* 1: rotating only a part of each head is allowed */
    double share;                     /* rotated part if config.json gives none; 0: all */
    /* for llama_derive: positions and head size if config.json gives none; head_dim 0: hidden size / heads */
    int64_t positions, head_dim;
    const struct experts_form *experts; /* experts' names and keys (experts.h); NULL: no layer has experts */
    int optional_ffn;                   /* 1: config.json may lack intermediate_size, as no layer need have a dense MLP */
    int all_heads;                      /* 1: without num_key_value_heads there are as many KV heads as heads (llama_derive) */
    /* Counts that the text_config of a multimodal model may leave out, with their values; field NO_FIELD ends the list. NULL: no
     * such counts. */
    const struct config_implied *implied;
    /* NULL-terminated globs of tensors that old releases of transformers saved beside the parameters and that follow from
     * config.json. */
    const char *const *buffers;
    /* config.json's keys in the order of writing; use_cache and torch_dtype come between the two lists. The second may be NULL. */
    const struct config_key *keys[2];
    /* Sets the values of absent keys (counts are 0 unless they have a fallback) and values that no key gives. */
    enum status (*derive)(struct config_reader *r, struct model_config *c);
    /* Checks conditions on shapes beyond those of all families. */
    enum status (*check)(const struct model_config *c);
    /* Declares parameters by Hugging Face's names and shapes, and connects them: m->embed and m->pos_embed (-1 until set), the
     * blocks of layer l, m->head and m->final_norm. */
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
