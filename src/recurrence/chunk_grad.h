/* Gradients of one head's chunk of rows. Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_CHUNK_GRAD_H
#define LTRAIN_RECURRENCE_CHUNK_GRAD_H

#include "recurrence/heads.h"

/* Memory of a thread for one head's backward pass. */
struct grad_room {
    struct forward_room f;
    float *error, *dz, *d_out, *scaled; /* [TALL][value] */
    float *y;                           /* [TALL][key] */
    float *da, *dr;                     /* [TALL][CHUNK] */
    float *dsum;                        /* [TALL][key]: gradients of the channels' sums of g; SCAN_CHANNELS, as the next three */
    float *k_rows, *q_rows, *k_columns; /* [TALL][key]: struct pair_gradients */
};

/* Gradients of a head: of its state, and of the chunk's keys and queries as it reads them, [TALL][key]. */
struct grad_head {
    float *dstate, *dk, *dq;
    double dskip;
};

/* Gradients of a chunk's gates: of beta, and of the sums of g. */
struct gate_gradients {
    float beta[CHUNK], sum[CHUNK];
};

/* The functions below are called in this order for a chunk. Before the first, x->f holds the results of chunk_values or chunk_pairs,
 * and x->d_out the outputs' gradient; h->dstate is the gradient of the state after the chunk. */

/* Computes x->dz, the gradient of Z, from x->d_out and dstate; of delta rules that of beta (V - f K S). */
void chunk_values_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *dstate,
                           const struct grad_room *x);
/* Computes the parts of dk and dq that come from states: dk = r Z dS' - beta f dZ S', dq = f dO S'; state: S, before the chunk. */
void chunk_states_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *state,
                           const struct grad_head *h, const struct grad_room *x, struct gate_gradients *d);
/* Adds to dk and dq what comes from pairs of the chunk's rows. */
void chunk_products_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                             const struct grad_room *x, struct gate_gradients *d);
/* Adds what the state's own decay gives to the sums of g at the chunk's end. */
void chunk_keep_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                         const float *state, const struct grad_room *x, struct gate_gradients *d);
/* Turns h->dstate into the gradient of the state before the chunk. */
void chunk_state_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                          const struct grad_room *x);

#endif
