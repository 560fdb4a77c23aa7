/* Places of tokens, and the rows of one member that another one attends. */
#include "seqpar/layout.h"

#include "base/num.h"

#include <string.h>

/* ---- places of tokens ---- */

int64_t seq_token_of(const struct seq_layout *l, int member, int64_t row)
{
    int64_t chunk = l->shape.chunk;
    return l->held[member * l->per + row / chunk] * chunk + row % chunk;
}

void seq_gather(const struct seq_layout *l, int i, int j, const int32_t *full, int32_t *local)
{
    int64_t rows = seq_rank_rows(&l->shape), row = j * rows, chunk = l->shape.chunk;
    for (int64_t done = 0, run; done < rows; done += run, row += run) { /* each run ends at the end of the chunk or of the rows */
        run = min_i64(chunk - row % chunk, rows - done);
        memcpy(local + done, full + seq_token_of(l, i, row), sizeof *local * (size_t)run);
    }
}

void seq_piece_order(const struct seq_layout *l, int i, int j, int32_t *order)
{
    const struct seq_shape *shape = &l->shape;
    const int64_t piece = seq_piece(shape), rows = seq_rank_rows(shape), n = rows / piece, all = shape->padded / piece;
    const int64_t members = (int64_t)shape->ring * shape->ulysses;
    for (int64_t p = 0; p < members; p++)
        for (int64_t s = 0; s < n; s++) {
            const int64_t row = p % shape->ulysses * rows + s * piece;
            order[seq_token_of(l, (int)(p / shape->ulysses), row) / piece] = (int32_t)(s * members + p);
        }
    for (int64_t s = 0; s < n; s++) {
        const int64_t at = seq_token_of(l, i, j * rows + s * piece) / piece;
        for (int k = 0; k < 2; k++) {
            const int32_t other = order[(at + (k ? 1 : all - 1)) % all];
            order[all + k * n + s] = (int32_t)(other % members * n + other / members);
        }
    }
}

/* ---- masks ---- */

/* Counter of a member's rows with tokens below a given one; tokens must be asked for in ascending order. */
struct below {
    const int32_t *held;
    int per, passed; /* passed: number of the member's chunks that end before the last token asked for */
    int64_t chunk;
};

static int64_t rows_below(struct below *b, int64_t token)
{
    while (b->passed < b->per && (b->held[b->passed] + 1) * b->chunk <= token)
        b->passed++;
    int64_t inside = b->passed < b->per ? token - b->held[b->passed] * b->chunk : 0;
    return b->passed * b->chunk + max_i64(inside, 0);
}

int64_t seq_block_mask(const struct seq_layout *l, const int32_t *lo, int dst, int src, int32_t *from, int32_t *to)
{
    const int32_t *queries = l->held + dst * l->per;
    int64_t chunk = l->shape.chunk, pairs = 0, row = 0;
    struct below first = {l->held + src * l->per, l->per, 0, chunk}, end = first;
    for (int k = 0; k < l->per; k++)
        for (int64_t q = queries[k] * chunk, stop = q + chunk; q < stop; q++, row++) {
            int64_t a = rows_below(&first, lo[q]), z = rows_below(&end, q + 1);
            pairs += z - a;
            if (from)
                from[row] = (int32_t)a;
            if (to)
                to[row] = (int32_t)(z - 1);
        }
    return pairs;
}

int64_t seq_member_masks(const struct seq_layout *l, const int32_t *lo, int i, int32_t *from, int32_t *to)
{
    int ring = l->shape.ring;
    int64_t pairs = 0, rows = seq_member_rows(&l->shape);
    for (int s = 0; s < ring; s++)
        pairs += seq_block_mask(l, lo, i, (i - s + ring) % ring, from + s * rows, to + s * rows);
    return pairs;
}

/* ---- blocks with pairs ---- */

/* Marks the owners of the chunks that dst's queries attend.
 *
 * The queries of chunk c attend all keys from the first query's lo to the chunk's end, as every query attends itself and lo
 * ascends: a run of whole chunks. For a member's chunks in turn both ends of this run ascend, so one pass visits each chunk once. */
void layout_mark_needs(const struct seq_layout *l, const int32_t *lo, int dst, uint8_t *needs)
{
    int32_t next = 0;
    for (int k = 0; k < l->per; k++) {
        int32_t c = l->held[dst * l->per + k];
        int64_t first = lo[c * l->shape.chunk] / l->shape.chunk;
        for (next = (int32_t)max_i64(next, first); next <= c; next++)
            needs[l->owner[next]] = 1;
    }
}

void seq_needs(const struct seq_layout *l, const int32_t *lo, uint8_t *needs)
{
    int ring = l->shape.ring;
    memset(needs, 0, (size_t)ring * (size_t)ring);
    for (int dst = 0; dst < ring; dst++)
        layout_mark_needs(l, lo, dst, needs + dst * ring);
}

void seq_predicates(int ring, const uint8_t *needs, int i, uint8_t *bits)
{
    bits[0] = 1;
    for (int s = 1; s < ring; s++) {
        bits[2 * s - 1] = needs[i * ring + (i - s + ring) % ring];
        bits[2 * s] = needs[(i + s) % ring * ring + i];
    }
}
