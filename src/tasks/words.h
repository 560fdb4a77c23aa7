/* Random words and numbers for tasks. Private to this folder. */
#ifndef LTRAIN_TASKS_WORDS_H
#define LTRAIN_TASKS_WORDS_H

#include "base/rng.h"

#include <stddef.h>
#include <stdint.h>

/* A stream of random numbers from which one is drawn after the other. */
struct dice {
    uint64_t seed, stream, next;
};

static inline uint64_t dice_roll(struct dice *d, uint64_t n)
{
    return rng_below(d->seed, d->stream, d->next++, n);
}

/* Keys such as "brisk-falcon", all different: all keys of equally many words in random order, enough words for `least` keys. */
struct keys {
    int words;
    uint64_t n, factor, shift;
};
enum { KEY_BYTES = 96 };
void keys_draw(struct dice *d, int64_t least, struct keys *out);
void keys_write(const struct keys *k, int64_t i, char out[KEY_BYTES]);

enum { NUMBER_BYTES = 8, NAME_BYTES = 6, CODED_BYTES = 7 };
void number_draw(struct dice *d, char out[NUMBER_BYTES]); /* seven digits */
void name_draw(struct dice *d, char out[NAME_BYTES]);     /* "QXVZE" */
void coded_draw(struct dice *d, char out[CODED_BYTES]);   /* "tbwkqo" */

#endif
