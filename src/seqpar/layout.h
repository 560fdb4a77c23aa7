/* A layout's tables. Private to this folder. */
#ifndef LTRAIN_SEQPAR_LAYOUT_H
#define LTRAIN_SEQPAR_LAYOUT_H

#include "seqpar/seqpar.h"

/* A layout. Invariants: every member holds `per` chunks; held[m] ascends; owner[held[m][k]] = m and place[held[m][k]] = k. */
struct seq_layout {
    struct seq_shape shape;
    int per;         /* chunks of a member */
    int32_t *owner;  /* [chunks] */
    int32_t *place;  /* [chunks] index of each chunk among its owner's */
    int32_t *held;   /* [ring][per] chunks of each member */
    int64_t *work;   /* [chunks] attended pairs of the chunk's queries */
    int64_t *load;   /* [ring] attended pairs of each member's queries */
    int64_t *zigzag; /* [ring] attended pairs of each member if the same chunks were in zigzag order */
    int32_t *room;   /* [ring] free places of each member, used while assigning */
    int32_t *other;  /* [chunks] a second owner table, used while assigning */
    uint8_t *needs;  /* [ring] flags of layout_mark_needs, used while assigning */
    struct seq_weighted {
        int64_t work;
        int32_t chunk;
    } * order;          /* [chunks] heaviest first, while assigning */
    enum seq_kind kind; /* order that the last assignment chose: zigzag or balanced */
    uint64_t digest;
};

/* Assigns the chunks in zigzag order: fills owner, load and the lists of chunks. */
void layout_zigzag(struct seq_layout *l);
int64_t layout_largest(const int64_t *load, int n);
/* Sets needs[src] = 1 for every member src whose keys dst's queries attend; other entries keep their values. */
void layout_mark_needs(const struct seq_layout *l, const int32_t *lo, int dst, uint8_t *needs);

#endif
