/* Results of an evaluation. Private to src/train. */
#ifndef LTRAIN_TRAIN_EVALUATION_H
#define LTRAIN_TRAIN_EVALUATION_H

#include <stdint.h>

/* Bucket k holds predictions that see 2^k to 2^(k+1) - 1 tokens of their document. */
enum { EVALUATION_BUCKETS = 31 };

struct evaluation {
    int64_t sequences; /* number computed; less than all after a signal */
    double loss;       /* mean, in nats per target */
    int64_t targets;
    int64_t bytes;        /* bytes of the targets' text; 0: unknown */
    double bits_per_byte; /* NaN if bytes are unknown */
    struct {
        double loss; /* mean */
        int64_t targets;
    } seen[EVALUATION_BUCKETS];
};

#endif
