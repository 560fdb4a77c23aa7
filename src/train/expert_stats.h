/* Evenness of a step's tokens over experts. Private to src/train. */
#ifndef LTRAIN_TRAIN_EXPERT_STATS_H
#define LTRAIN_TRAIN_EXPERT_STATS_H

/* A statistic of all layers: the mean, and the value of the layer whose experts are used least evenly. */
struct layers_stat {
    double mean, worst;
};

struct expert_stats {
    int experts;             /* experts of a layer; 0: the model has none */
    struct layers_stat load; /* tokens of the busiest expert by the mean of all experts */
    struct layers_stat
        entropy; /* entropy of the tokens' experts over its largest value: 1: all have equally many, 0: one has all */
    struct layers_stat unhit; /* number of experts without a token */
    double aux, coefficient;  /* auxiliary loss, without its coefficient; coefficient 0: it is not trained */
};

/* Computes the statistics of counts[layers][experts], the tokens of each expert in each layer. */
void expert_stats_of(const double *counts, int layers, int experts, struct expert_stats *out);
/* Writes "load 1.8x, 2 unhit  " of the worst layers, or "" for a model without experts; returns text. */
enum { EXPERT_STATS_TEXT = 64 };
const char *expert_stats_text(const struct expert_stats *x, char text[EXPERT_STATS_TEXT]);

#endif
