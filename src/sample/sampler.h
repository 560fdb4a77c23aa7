/* Choosing the next token from logits: transformers' processors in their order and in fp32, then a draw. */
#ifndef LTRAIN_SAMPLE_SAMPLER_H
#define LTRAIN_SAMPLE_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

struct sampler_settings {
    double temperature;        /* 0: always the best token, whatever the values below */
    int64_t top_k;             /* only the k best; 0: all */
    double top_p;              /* only the best that have this probability together; 1: all */
    double min_p;              /* only tokens at least this probable, relative to the best one; 0: all */
    double repetition_penalty; /* logits of the text's tokens are divided by it, negative ones multiplied; 1: none */
    uint64_t seed;
};

struct sampler;

enum status sampler_create(const struct sampler_settings *settings, int64_t vocab, struct sampler **out);
void sampler_destroy(struct sampler *s); /* NULL is fine */

/* A token that may be drawn, with its probability. */
struct sampler_choice {
    int32_t id;
    float logit, p;
};
/* Lists the tokens that may be drawn, by descending logit with their probabilities; valid until the next call. text: the tokens so
 * far, prompt included. Changes logits. ERR_DIVERGED: no logit is finite, or one is not a number. */
enum status sampler_choices(struct sampler *s, float *logits, const int32_t *text, int64_t n_text,
                            const struct sampler_choice **out, int64_t *n);
/* Draws the index-th token: the same for the same seed and index. */
enum status sampler_next(struct sampler *s, float *logits, const int32_t *text, int64_t n_text, int64_t index, int32_t *id);

#endif
