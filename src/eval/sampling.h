/* A model opened to continue texts, for `ltrain sample` and for evaluation by generated text.
 *
 *     sampling_open(s, comm, capacity, &x);
 *     decoder_read(x->decoder, tokens, n, NULL, logits);      replaces the text read before; logits of the next token
 *     decoder_feed(x->decoder, &next, 1, NULL, logits);       continues it
 *     sampling_greedy(x, tokens, n, most, &how, out, &n_out); or all of these at once
 */
#ifndef LTRAIN_EVAL_SAMPLING_H
#define LTRAIN_EVAL_SAMPLING_H

#include "comm/comm.h"
#include "engine/decoder.h"
#include "sample/sampler.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

struct sampling {
    struct comm *alone; /* communicator of this rank alone, since each rank has a model of its own */
    struct model *model;
    struct session *session;
    struct decoder *decoder;
    float *logits; /* [vocab], for the caller */
};

/* Plans for texts of up to `tokens` tokens, by the settings' device, budgets and --offload (acts: the cache), and loads the
 * parameters. s->model is resolved (train_resolve_model). All ranks of c call it and agree on failures; each then has the whole
 * model and computes without the others. ERR_NOFIT says which length fits. */
enum status sampling_open(struct settings *s, struct comm *c, int64_t tokens, struct sampling **out);
void sampling_close(struct sampling *x); /* NULL is fine */

/* Options of a greedy text. */
struct greedy {
    const uint8_t *ends;    /* [vocab]: 1 for tokens that end the text, or NULL */
    int64_t ids;            /* tokens from this id on are never taken: rows of a padded vocabulary */
    const atomic_int *stop; /* flag that ends the text early, as in decoder_feed, or NULL */
};
/* Continues the text greedily by at most `most` tokens and stops before a token that ends the text; out: [most] ids.
 * ERR_CANCELLED. */
enum status sampling_greedy(struct sampling *x, const int32_t *token, int64_t n, int64_t most, const struct greedy *how,
                            int32_t *out, int64_t *n_out);

#endif
