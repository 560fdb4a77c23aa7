/* Choosing the next token from logits: transformers' processors in their order and in fp32, then a draw. */
#ifndef LTRAIN_SAMPLE_SAMPLER_H
#define LTRAIN_SAMPLE_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

struct sampler_settings {
    double temperature; /* temperature of the softmax; 0: the best token is always taken, and the members below do not matter */
    int64_t top_k;      /* number of best tokens that may be drawn; 0: all */
    double top_p;       /* probability that the best tokens which may be drawn have together; 1: all tokens */
    double min_p;       /* least probability of tokens that may be drawn, relative to the best one's; 0: all tokens */
    /* divisor of positive and factor of negative logits of tokens that the text has already; 1: no penalty */
    double repetition_penalty;
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
/* Lists the tokens that may be drawn, by descending logit, with their probabilities; the list is valid until the next call. text:
 * the tokens so far, prompt included. Overwrites logits. ERR_DIVERGED: no logit is finite, or some is NaN. */
enum status sampler_choices(struct sampler *s, float *logits, const int32_t *text, int64_t n_text,
                            const struct sampler_choice **out, int64_t *n);
/* Draws token number `index` of the answer; equal seeds and indices give equal draws. */
enum status sampler_next(struct sampler *s, float *logits, const int32_t *text, int64_t n_text, int64_t index, int32_t *id);

#endif
