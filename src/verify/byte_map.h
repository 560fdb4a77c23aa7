/* Every byte of every tier as segments that carry a cell each, in which the verifier and the value numbers keep their knowledge.
 *
 * Bytes are named by tier and address, never by buffer: addresses are reused. All end points that a program ever uses are known
 * beforehand. So a segment's ends are indices into a sorted table. The segments that exist are a bit set over it (64 bits a word,
 * one level above the other). Cells must not depend on the start of their segment (keep a position as position minus address):
 * splitting just copies them. */
#ifndef LTRAIN_VERIFY_BYTE_MAP_H
#define LTRAIN_VERIFY_BYTE_MAP_H

#include "program/program.h"

#include <stddef.h>
#include <stdint.h>

#define BYTE_MAP_LEVELS 6 /* 64^6 end points */

struct byte_map {
    int64_t *at; /* the end points, ascending */
    int n;
    int32_t *directory; /* end points from at[0] + (k << shift) on start at index directory[k] */
    int shift;
    int32_t *next;                   /* end of the segment that starts here */
    uint64_t *bits[BYTE_MAP_LEVELS]; /* level 0: a segment starts here; level k: word of level k - 1 is not zero */
    int levels;
    char *cells;
    size_t cell_bytes;
};

/* End points [first, last) of a range. */
struct span {
    int32_t first, last;
};

/* The maps of all tiers, and the places of a program's operands and bindings in them. */
struct footprint {
    struct byte_map tier[TIERS];
    struct span *operand, *live_in, *live_out; /* by index */
};

/* Creates maps in which all bytes are one segment with the cell `initial`. The program must have passed verify_form. */
enum status footprint_create(const struct program *p, size_t cell_bytes, const void *initial, struct footprint *out);
void footprint_destroy(struct footprint *f);

/* Makes segments start at both ends of the span, so that the segments within it cover it exactly. */
void byte_map_cut(struct byte_map *m, struct span s);
/* Joins the (cut) span into one segment, with the cell of its first. */
void byte_map_join(struct byte_map *m, struct span s);

/* Returns the segment that contains the byte, or the first or last one if the byte lies outside all end points. The map must not
 * be empty. */
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
