/* From logits to the next token: what transformers' processors leave, in their order and in fp32, and a draw from it. */
#ifndef LTRAIN_SAMPLE_SAMPLER_H
#define LTRAIN_SAMPLE_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

struct sampler_settings {
    double temperature;        /* 0: the best token, whatever the ones below say */
    int64_t top_k;             /* only the k best; 0: all */
    double top_p;              /* only the best that have this probability together; 1: all */
    double min_p;              /* only those at least so probable, as a share of the best one's; 0: all */
    double repetition_penalty; /* logits of tokens of the text are divided by it, or multiplied where they are below 0; 1: none */
    uint64_t seed;
};

struct sampler;

enum status sampler_create(const struct sampler_settings *settings, int64_t vocab, struct sampler **out);
void sampler_destroy(struct sampler *s); /* NULL is fine */

/* What may be drawn: ids in descending order of logits, each with its probability, until the next call. text: the tokens so far,
 * prompt included. Changes logits. ERR_DIVERGED: no logit is finite, or one is not a number. */
struct sampler_choice {
    int32_t id;
    float logit, p;
};
enum status sampler_choices(struct sampler *s, float *logits, const int32_t *text, int64_t n_text,
                            const struct sampler_choice **out, int64_t *n);
/* The index-th token drawn: the same for the same seed and index. */
enum status sampler_next(struct sampler *s, float *logits, const int32_t *text, int64_t n_text, int64_t index, int32_t *id);

#endif
