/* What an evaluation has found. Private to src/train. */
#ifndef LTRAIN_TRAIN_EVALUATION_H
#define LTRAIN_TRAIN_EVALUATION_H

#include <stdint.h>

/* Bucket k: predictions that see 2^k to 2^(k+1) - 1 tokens of their document. */
enum { EVALUATION_BUCKETS = 31 };

struct evaluation {
    int64_t sequences;      /* that were computed; fewer than there are where a signal came */
    double loss;            /* nats per target, their mean */
    int64_t targets;
    int64_t bytes;          /* of the targets' text; 0: unknown */
    double bits_per_byte;   /* NaN where bytes are unknown */
    struct {
        double loss; /* mean */
        int64_t targets;
    } seen[EVALUATION_BUCKETS];
};

#endif
