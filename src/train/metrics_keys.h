/* Keys of metrics.jsonl: what they mean, and how a report sums them up. */
#ifndef LTRAIN_TRAIN_METRICS_KEYS_H
#define LTRAIN_TRAIN_METRICS_KEYS_H

#include <stddef.h>

/* Value that stands for the steps of a point. */
enum key_fold {
    KEY_OTHER, /* none: text, or treated by itself */
    KEY_MEAN,
    KEY_RANGE, /* mean, least and most */
    KEY_SUM,
    KEY_MOST,
};

struct metrics_key {
    const char *name;
    enum key_fold fold;
    const char *unit, *meaning; /* rows of docs/metrics.md */
};

enum { METRICS_KEYS = 45 };
extern const struct metrics_key metrics_keys[METRICS_KEYS];

/* Finds a key, beginning at `from`, since lines repeat the table's order. Returns its index; -1: unknown. */
int metrics_key_find(const char *name, size_t length, int from);

#endif
