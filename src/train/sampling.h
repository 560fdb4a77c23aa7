/* A model that is opened to read texts on: what `ltrain sample` and evaluation by generated text are made of.
 *
 *     sampling_open(s, comm, capacity, &x);
 *     decoder_read(x->decoder, tokens, n, NULL, logits);      the text, whatever was read before; logits of the next token
 *     decoder_feed(x->decoder, &next, 1, NULL, logits);       and so on
 *     sampling_greedy(x, tokens, n, most, &how, out, &n_out); or all of that at once
 */
#ifndef LTRAIN_TRAIN_SAMPLING_H
#define LTRAIN_TRAIN_SAMPLING_H

#include "comm/comm.h"
#include "engine/decoder.h"
#include "sample/sampler.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

struct sampling {
    struct comm *alone; /* of this rank: each has a model of its own */
    struct model *model;
    struct session *session;
    struct decoder *decoder;
    float *logits; /* [vocab], for the caller */
};

/* s->model is resolved (train_resolve_model). Plans for texts of up to `tokens` tokens, by the settings' device, budgets and
 * --offload (acts: the cache), and loads the parameters. By all ranks of c, each of which has all of the model afterwards and computes
 * without the others; their failures are agreed. ERR_NOFIT says which length fits. */
enum status sampling_open(struct settings *s, struct comm *c, int64_t tokens, struct sampling **out);
void sampling_close(struct sampling *x); /* NULL is fine */

/* What a greedy text obeys. */
struct greedy {
    const uint8_t *ends;      /* [vocab] of tokens that end it, or NULL */
    int64_t ids;              /* tokens from there on are not taken: rows of a vocabulary that was padded */
    const atomic_int *stop; /* what ends it early, as of decoder_feed, or NULL */
};
/* Greedily from the text on: at most `most` tokens, [most] ids in out, up to and without one that ends it. ERR_CANCELLED. */
enum status sampling_greedy(struct sampling *x, const int32_t *token, int64_t n, int64_t most, const struct greedy *how,
                            int32_t *out, int64_t *n_out);

#endif
