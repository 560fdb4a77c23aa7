/* Rows of embedding and head that PEFT trains by themselves (trainable_token_indices), and where an adapter's file has them. */
#ifndef LTRAIN_MODEL_CONFIG_TOKEN_ROWS_H
#define LTRAIN_MODEL_CONFIG_TOKEN_ROWS_H

#include "model/model.h"

#include <jansson.h>

/* A tensor of an adapter's file, [tokens, row], whose rows take the place of a matrix's. */
struct token_rows {
    struct model_param tensor; /* name, without the file's prefix, and shape */
    int param;                 /* the whole model's matrix: the embedding's, which may be the head's, too, or the head's */
    int32_t *token;            /* [tensor.shape[0]]; for each row of the tensor the row of the matrix */
};
enum { TOKEN_ROWS_MATRICES = 2 };
struct token_rows_list {
    struct token_rows of[TOKEN_ROWS_MATRICES];
    int n;
};

/* Sets out->tokens to the rows that DIR/adapter_config.json names; "": none. Lists that are too long for it leave it empty and set
 * out->tokens_put. ERR_INVALID: they are no lists of tokens. */
enum status token_rows_text(const char *dir, struct lora *out);
/* Makes PEFT's form of a text of `tokens`: a list, or an object of lists by module, to be released; NULL: no memory. */
json_t *token_rows_json(const char *text);
/* Lists the rows that the model's adapters have, in the order of the text, the embedding's first. Errors as below. */
enum status token_rows_of(const struct model *m, struct token_rows_list *out);
/* Lists the rows that DIR/adapter_config.json names, or without that file the model's own. m: a model or a part of one.
 * ERR_INVALID: a module that is neither embedding nor head, a token beyond the vocabulary or listed twice, a matrix that has an
 * adapter or is trained whole, or other rows of a tied head than of the embedding. */
enum status token_rows_read(const char *dir, const struct model *m, struct token_rows_list *out);
/* Returns the number, in a model or a part of one, of the matrix that the rows belong to. */
int token_rows_matrix(const struct model *m, const struct token_rows *x);
void token_rows_free(struct token_rows_list *x);

#endif
