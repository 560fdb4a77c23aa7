/* A map of address ranges (segments) whose ends are known beforehand: cutting, joining and looking up segments. */
#include "verify/byte_map.h"

#include "base/sort.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static int test_bit(const uint64_t *bits, int i)
{
    return (int)(bits[i >> 6] >> (i & 63) & 1);
}

static void set_start(struct byte_map *m, int i)
{
    for (int k = 0; k < m->levels; k++, i >>= 6)
        m->bits[k][i >> 6] |= (uint64_t)1 << (i & 63);
}

static void clear_start(struct byte_map *m, int i)
{
    for (int k = 0; k < m->levels; k++, i >>= 6) {
        m->bits[k][i >> 6] &= ~((uint64_t)1 << (i & 63));
        if (m->bits[k][i >> 6])
            break;
    }
}

/* Finds the segment that contains end point i: the largest start <= i. One exists, since 0 is always a start. */
static int find_start(const struct byte_map *m, int i)
{
    for (int k = 0; k < m->levels; k++) {
        uint64_t below = m->bits[k][i >> 6] & (~(uint64_t)0 >> (63 - (i & 63)));
        if (below) {
            i = (i & ~63) + 63 - __builtin_clzll(below);
            while (k-- > 0)
                i = i * 64 + 63 - __builtin_clzll(m->bits[k][i]);
            return i;
        }
        i = (i >> 6) - 1; /* the words before this one, on the next level */
        if (i < 0)
            break;
    }
    return 0;
}

/* Makes a directory of about as many equal stretches of addresses as there are end points: a look-up then takes a cache miss or
 * two instead of log2(n). */
static enum status index_points(struct byte_map *m)
{
    uint64_t range = (uint64_t)(m->at[m->n - 1] - m->at[0]);
    while (range >> m->shift > (uint64_t)m->n)
        m->shift++;
    int stretches = (int)(range >> m->shift) + 1;
    m->directory = sys_malloc(sizeof *m->directory * ((size_t)stretches + 1));
    if (!m->directory)
        return status_fail(ERR_NOMEM, "out of memory while verifying");
    for (int k = 0, i = 0; k < stretches; k++) {
        while (i < m->n && (uint64_t)(m->at[i] - m->at[0]) >> m->shift < (uint64_t)k)
            i++;
        m->directory[k] = i;
    }
    m->directory[stretches] = m->n;
    return OK;
}

/* Creates a map over `points`, which it takes over. */
static enum status map_create(struct byte_map *m, int64_t *points, int n_points, size_t cell_bytes, const void *initial)
{
    m->at = points;
    m->cell_bytes = cell_bytes;
    if (n_points == 0)
        return OK;
    if (!sort_int64(points, n_points))
        return status_fail(ERR_NOMEM, "out of memory while verifying");
    m->n = 1;
    for (int i = 1; i < n_points; i++) {
        if (points[i] != points[m->n - 1])
            points[m->n++] = points[i];
    }
    points = realloc(points, (size_t)m->n * sizeof *points); /* frees the room of points that occurred twice */
    m->at = points ? points : m->at;
    TRY(index_points(m));
    m->next = sys_malloc((size_t)m->n * sizeof *m->next);
    m->cells = sys_malloc((size_t)m->n * cell_bytes);
    if (!m->next || !m->cells)
        return status_fail(ERR_NOMEM, "out of memory while verifying");
    for (int words = m->n, more = 1; more; m->levels++) {
        words = (words + 63) / 64;
        more = words > 1;
        m->bits[m->levels] = sys_calloc((size_t)words, sizeof **m->bits);
        if (!m->bits[m->levels])
            return status_fail(ERR_NOMEM, "out of memory while verifying");
    }
    set_start(m, 0);
    set_start(m, m->n - 1); /* a start at the last end point, where no segment is: cut_at then needs no special case */
    m->next[0] = m->n - 1;
    memcpy(m->cells, initial, cell_bytes);
    return OK;
}

static void map_destroy(struct byte_map *m)
{
    free(m->at);
    free(m->directory);
    free(m->next);
    for (int k = 0; k < m->levels; k++)
        free(m->bits[k]);
    free(m->cells);
}

/* Returns the index of an end point, given its address. */
static int32_t point_index(const struct byte_map *m, int64_t address)
{
    int64_t stretch = (address - m->at[0]) >> m->shift;
    int low = m->directory[stretch], high = m->directory[stretch + 1] - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (m->at[middle] < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct span span_of(const struct footprint *f, enum tier t, int64_t begin, int64_t bytes)
{
    return (struct span){point_index(&f->tier[t], begin), point_index(&f->tier[t], begin + bytes)};
}

/* End points of all ranges that a program uses, by tier. Both ends of each buffer are listed once. */
struct points {
    int64_t *at[TIERS];
    int n[TIERS];
    unsigned char *ends; /* bits of each buffer: 1: its beginning is listed already; 2: its end is */
};

static void add_point(struct points *q, enum tier t, int64_t at)
{
    if (q->at[t])
        q->at[t][q->n[t]] = at;
    q->n[t]++;
}

static void add_range(const struct program *p, struct points *q, int buffer, int64_t offset, int64_t bytes)
{
    const struct buffer *b = &p->buffers[buffer];
    int ends = (offset == 0) + 2 * (offset + bytes == b->bytes), news = ~(ends & q->ends[buffer]);
    if (news & 1)
        add_point(q, b->tier, b->address + offset);
    if (news & 2)
        add_point(q, b->tier, b->address + offset + bytes);
    q->ends[buffer] |= (unsigned char)ends;
}

static void collect_points(const struct program *p, struct points *q)
{
    memset(q->n, 0, sizeof q->n);
    memset(q->ends, 0, (size_t)p->n_buffers);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct operand *o = p->operands + p->instrs[i].first_operand;
        for (int k = 0; k < p->instrs[i].n_operands; k++)
            add_range(p, q, o[k].buffer, o[k].offset, o[k].bytes);
    }
    for (int i = 0; i < p->n_live_in; i++)
        add_range(p, q, p->live_in[i].buffer, p->live_in[i].offset, binding_bytes(p, &p->live_in[i]));
    for (int i = 0; i < p->n_live_out; i++)
        add_range(p, q, p->live_out[i].buffer, p->live_out[i].offset, binding_bytes(p, &p->live_out[i]));
}

static struct span binding_span(const struct program *p, const struct footprint *f, const struct binding *b)
{
    return span_of(f, p->buffers[b->buffer].tier, binding_begin(p, b), binding_bytes(p, b));
}

enum status footprint_create(const struct program *p, size_t cell_bytes, const void *initial, struct footprint *out)
{
    struct footprint f;
    struct points q;
    enum status st = OK;
    memset(&f, 0, sizeof f);
    memset(&q, 0, sizeof q);
    q.ends = sys_malloc((size_t)p->n_buffers + 1);
    if (!q.ends)
        goto nomem;
    collect_points(p, &q); /* first only counts */
    for (int t = 0; t < TIERS; t++) {
        f.tier[t].at = q.at[t] = sys_malloc(sizeof(int64_t) * (size_t)(q.n[t] + 1));
        if (!q.at[t])
            goto nomem;
    }
    collect_points(p, &q);
    for (int t = 0; t < TIERS; t++)
        TRY_GOTO(map_create(&f.tier[t], q.at[t], q.n[t], cell_bytes, initial), fail);

    f.operand = sys_malloc(sizeof *f.operand * (size_t)(p->n_operands + 1));
    f.live_in = sys_malloc(sizeof *f.live_in * (size_t)(p->n_live_in + 1));
    f.live_out = sys_malloc(sizeof *f.live_out * (size_t)(p->n_live_out + 1));
    if (!f.operand || !f.live_in || !f.live_out)
        goto nomem;
    for (int i = 0; i < p->n_instrs; i++) {
        int first = p->instrs[i].first_operand;
        for (int k = first; k < first + p->instrs[i].n_operands; k++)
            f.operand[k] =
                span_of(&f, p->buffers[p->operands[k].buffer].tier, operand_begin(p, &p->operands[k]), p->operands[k].bytes);
    }
    for (int i = 0; i < p->n_live_in; i++)
        f.live_in[i] = binding_span(p, &f, &p->live_in[i]);
    for (int i = 0; i < p->n_live_out; i++)
        f.live_out[i] = binding_span(p, &f, &p->live_out[i]);
    free(q.ends);
    *out = f;
    return OK;

nomem:
    st = status_fail(ERR_NOMEM, "out of memory while verifying");
fail:
    free(q.ends);
    footprint_destroy(&f);
    return st;
}

void footprint_destroy(struct footprint *f)
{
    for (int t = 0; t < TIERS; t++)
        map_destroy(&f->tier[t]);
    free(f->operand);
    free(f->live_in);
    free(f->live_out);
}

static void cut_at(struct byte_map *m, int i)
{
    if (test_bit(m->bits[0], i))
        return;
    int start = find_start(m, i);
    memcpy(byte_map_cell(m, i), byte_map_cell(m, start), m->cell_bytes);
    m->next[i] = m->next[start];
    m->next[start] = i;
    set_start(m, i);
}

void byte_map_cut(struct byte_map *m, struct span s)
{
    cut_at(m, s.first);
    cut_at(m, s.last);
}

void byte_map_join(struct byte_map *m, struct span s)
{
    for (int i = m->next[s.first]; i != s.last; i = m->next[i])
        clear_start(m, i);
    m->next[s.first] = s.last;
}

int byte_map_find(const struct byte_map *m, int64_t address)
{
    int low = 0, high = m->n - 2; /* bisection for the last end point at or before the address */
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (m->at[middle] <= address)
            low = middle;
        else
            high = middle - 1;
    }
    return find_start(m, low);
}
