/* Shapes of models without states, and how even a layout's last assignment is. */
#ifndef LTRAIN_TESTS_SEQPAR_LAYOUTS_H
#define LTRAIN_TESTS_SEQPAR_LAYOUTS_H

#include "seqpar/layout.h"

/* Creates a shape with the smallest padding that the kind allows (seq_shape_create_pieces). */
static inline enum status seq_shape_create(int64_t seq_len, int ulysses, int ring, enum seq_kind kind, struct seq_shape *out)
{
    return seq_shape_create_pieces(seq_len, ulysses, ring, kind, 0, 1, out);
}

/* Returns the ratio of the members' largest to their mean load, >= 1. */
static inline double seq_imbalance_of(const struct seq_layout *l, const int64_t *load)
{
    double sum = 0;
    for (int i = 0; i < l->shape.ring; i++)
        sum += (double)load[i];
    return sum > 0 ? (double)layout_largest(load, l->shape.ring) * l->shape.ring / sum : 1.0;
}

static inline double seq_imbalance(const struct seq_layout *l)
{
    return seq_imbalance_of(l, l->load);
}

/* Returns the imbalance that the same chunks would have in zigzag order. */
static inline double seq_imbalance_zigzag(const struct seq_layout *l)
{
    return seq_imbalance_of(l, l->zigzag);
}

#endif
