#include "train/expert_stats.h"

#include <math.h>
#include <stdio.h>

void expert_stats_of(const double *counts, int layers, int experts, struct expert_stats *out)
{
    *out = (struct expert_stats){.experts = experts, .entropy.worst = 1};
    for (int l = 0; l < layers; l++) {
        const double *count = counts + (long)l * experts;
        double sum = 0, most = 0, entropy = 0, unhit = 0;
        for (int e = 0; e < experts; e++) {
            sum += count[e];
            most = fmax(most, count[e]);
            unhit += count[e] == 0;
        }
        for (int e = 0; e < experts; e++)
            entropy -= count[e] > 0 ? count[e] / sum * log(count[e] / sum) : 0;
        const double load = sum > 0 ? most * experts / sum : 0, share = experts > 1 ? entropy / log(experts) : 1;
        out->load.mean += load / layers;
        out->entropy.mean += share / layers;
        out->unhit.mean += unhit / layers;
        out->load.worst = fmax(out->load.worst, load);
        out->entropy.worst = fmin(out->entropy.worst, share);
        out->unhit.worst = fmax(out->unhit.worst, unhit);
    }
}

const char *expert_stats_text(const struct expert_stats *x, char text[EXPERT_STATS_TEXT])
{
    text[0] = 0;
    if (x->experts > 0)
        snprintf(text, EXPERT_STATS_TEXT, "load %.1fx, %.0f unhit  ", x->load.worst, x->unhit.worst);
    return text;
}
