/* Results of planning that are asked for again: needs of short programs and trials, by everything they depend on. */
#ifndef LTRAIN_PLAN_SEARCH_MEMO_H
#define LTRAIN_PLAN_SEARCH_MEMO_H

#include "base/status.h"
#include "model/model.h"

/* Keeps results from now on until the last caller lets go. Plans, probes and advice on one request share them: which one asks
 * first changes nothing, since a result follows from its key. Several threads may use the memo. */
void memo_hold(void);
void memo_release(void);
int memo_is_held(void);

/* Copies the result of a key of `bytes` bytes, padding included; returns 0 if it is not known. */
int memo_find(const void *key, size_t bytes, void *result, size_t result_bytes);
/* Keeps a result, if the memo is held and there is memory. */
void memo_keep(const void *key, size_t bytes, const void *result, size_t result_bytes);

/* Hashes everything in a model that its programs depend on. */
uint64_t memo_model(const struct model *m);

#endif
