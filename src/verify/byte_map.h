/* Every byte of every tier, as segments with a cell of data each, in which the verifier and the value numbers keep what they know
 * of the bytes.
 *
 * Bytes are named by tier and address, never by buffer, as addresses are reused. All end points that a program ever uses are
 * known beforehand, so a segment's ends are indices in a sorted table. Which segments exist is a bit set over this table (64 bits
 * a word, with summary levels above). Cells must not depend on the start of their segment (a position is kept as position minus
 * address), as splitting a segment just copies the cell. */
#ifndef LTRAIN_VERIFY_BYTE_MAP_H
#define LTRAIN_VERIFY_BYTE_MAP_H

#include "program/program.h"

#include <stddef.h>
#include <stdint.h>

#define BYTE_MAP_LEVELS 6 /* levels of the bit set, enough for 64^6 end points */

struct byte_map {
    int64_t *at; /* the end points, ascending */
    int n;
    int32_t *directory; /* index of the first end point from at[0] + (k << shift) on, for each k */
    int shift;
    int32_t *next;                   /* index of the end of the segment that starts at each end point */
    uint64_t *bits[BYTE_MAP_LEVELS]; /* level 0: a segment starts here; level k: word of level k - 1 is not zero */
    int levels;
    char *cells;
    size_t cell_bytes;
};

/* A range as indices of its two end points. */
struct span {
    int32_t first, last;
};

/* The maps of all tiers, and the places of a program's operands and bindings in them. */
struct footprint {
    struct byte_map tier[TIERS];
    struct span *operand, *live_in, *live_out; /* ranges by index of operand or binding */
};

/* Creates maps in which all bytes are one segment with the cell `initial`. The program must have passed verify_form. */
enum status footprint_create(const struct program *p, size_t cell_bytes, const void *initial, struct footprint *out);
void footprint_destroy(struct footprint *f);

/* Makes segments start at both ends of the span, so that the segments within it cover it exactly. */
void byte_map_cut(struct byte_map *m, struct span s);
/* Joins the segments of a span, which must have been cut, into one with the cell of the first. */
void byte_map_join(struct byte_map *m, struct span s);

/* Returns the segment that contains a byte; for a byte outside all end points, the first or last segment. The map must not be
 * empty. */
int byte_map_find(const struct byte_map *m, int64_t address);

/* Returns the cell of segment i, which is bytes [at[i], at[next[i]]). The segments of a cut span: for (int i = s.first; i <
 * s.last; i = m->next[i]). */
static inline void *byte_map_cell(const struct byte_map *m, int i)
{
    return m->cells + (size_t)i * m->cell_bytes;
}

/* Returns the address of an operand or binding, or the bytes of a binding. */
static inline int64_t operand_begin(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].address + o->offset;
}

static inline int64_t binding_begin(const struct program *p, const struct binding *b)
{
    return p->buffers[b->buffer].address + b->offset;
}

static inline int64_t binding_bytes(const struct program *p, const struct binding *b)
{
    return (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
}

#endif
