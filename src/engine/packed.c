#include "engine/packed.h"

#include "base/parallel.h"
#include "base/sys.h"
#include "engine/bitsandbytes.h"
#include "engine/weights.h"
#include "model/part.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 18 }; /* numbers that a thread reads and quantises at a time, in whole blocks or rows */
_Static_assert(PIECE % NF4_BLOCK == 0, "pieces begin at borders of blocks");

/* ---- quantising ---- */

static enum status no_memory(const struct model_param *p)
{
    return status_fail(ERR_NOMEM, "out of memory for quantising %s", p->name);
}

/* A matrix that several threads make. */
struct making {
    struct source *s;
    int param;
    struct quantised q;
    int64_t first;        /* element of the parameter that the matrix begins with */
    int64_t each, pieces; /* each: numbers in a piece */
    float *scale;         /* [blocks] or [rows] */
    uint8_t *code;
    _Atomic int64_t next;
    _Atomic int failed;
};

struct maker {
    struct making *m;
    float *x; /* [each] */
};

/* Reads elements of a parameter in their order in files. */
static enum status read_in_order(struct source *s, int param, int64_t first, int64_t n, float *x)
{
    const struct model_param *p = &s->model->params[param];
    int64_t here = first;
    for (int64_t done = 0, some = n; done < n; done += some, here = first + done) {
        if (p->parts > 0)
            some = model_param_from_file(p, first + done, n - done, &here);
        TRY(source_read(s, param, here, some, F32, x + done));
    }
    return OK;
}

static enum status make_piece(struct making *m, int64_t piece, float *x)
{
    const int64_t at = piece * m->each, n = min_i64(m->each, m->q.rows * m->q.columns - at), columns = m->q.columns;
    TRY(read_in_order(m->s, m->param, m->first + at, n, x));
    if (m->q.form != QUANTISED_INT8) {
        nf4_quantise(x, n, m->scale + at / NF4_BLOCK, m->code + at / 2);
        return OK;
    }
    for (int64_t i = 0; i < n; i += columns) {
        const float scale = m->scale[(at + i) / columns] = rows8_quantise(x + i, columns, (int8_t *)m->code + at + i);
        if (!isfinite(scale))
            return status_fail(
                ERR_INVALID,
                "%s has a number beyond %g in row %lld, fp16's largest, which bitsandbytes makes of weights before it "
                "quantises them to int8: --base nf4 or --base none keeps it",
                m->s->model->params[m->param].name, (double)ROWS8_LARGEST, (long long)((m->first + at + i) / columns));
    }
    return OK;
}

static enum status make_pieces(void *job)
{
    struct maker *maker = job;
    struct making *m = maker->m;
    enum status st = OK;
    for (int64_t piece; st == OK && !m->failed && (piece = m->next++) < m->pieces;)
        st = make_piece(m, piece, maker->x);
    if (st != OK)
        m->failed = 1;
    return st;
}

static enum status make_all(struct making *m)
{
    struct maker makers[PARALLEL_MOST];
    const int n = (int)min_i64(min_i64(omp_get_max_threads(), PARALLEL_MOST), m->pieces);
    float *x = sys_malloc((size_t)(n * m->each) * sizeof *x);
    if (!x)
        return no_memory(&m->s->model->params[m->param]);
    for (int i = 0; i < n; i++)
        makers[i] = (struct maker){m, x + i * m->each};
    const enum status st = parallel_run(make_pieces, makers, sizeof *makers, n);
    free(x);
    return st;
}

/* Refuses nested scales above NF4's largest; NaN, from an overflowing sum of scales, is refused too. */
static enum status check_nested(const struct model_param *p, void *packed, int64_t elements)
{
    const struct nf4_parts x = nf4_parts(packed, elements, NF4_NESTED);
    int fits = *x.mean <= NF4_LARGEST;
    for (int64_t i = 0; i < ceil_div(nf4_blocks(elements), NF4_NESTED_BLOCK); i++)
        fits = fits && x.most[i] <= NF4_LARGEST;
    if (fits)
        return OK;
    return status_fail(ERR_INVALID, "%s has numbers so large that their scales in NF4 are beyond %g: --base none keeps it",
                       p->name, NF4_LARGEST);
}

static enum status quantise_source(struct source *s, int param, int64_t matrix, void *packed)
{
    const struct model_param *p = &s->model->params[param];
    struct making m = {.s = s, .param = param, .q = model_quantised(&s->model->config, p)};
    const int64_t elements = m.q.rows * m.q.columns;
    m.first = matrix * elements;
    const int int8 = m.q.form == QUANTISED_INT8;
    m.each = min_i64(elements, int8 ? max_i64(1, PIECE / m.q.columns) * m.q.columns : PIECE);
    m.pieces = ceil_div(elements, m.each);
    m.code = (uint8_t *)packed + quantised_scale_bytes(&m.q);
    m.scale = int8 ? packed : sys_malloc((size_t)nf4_blocks(elements) * sizeof *m.scale);
    enum status st = m.scale ? make_all(&m) : no_memory(p);
    if (st == OK && !int8)
        nf4_pack_scales(m.scale, elements, quantised_scales(m.q.form), packed);
    if (st == OK && m.q.form == QUANTISED_NF4)
        st = check_nested(p, packed, elements);
    if (!int8)
        free(m.scale);
    return st;
}

/* ---- either way ---- */

/* Reads the matrix of an expert, which files have in MXFP4 already. */
static enum status read_mxfp4(struct source *s, int param, int64_t matrix, void *packed)
{
    const struct model_param *p = &s->model->params[param];
    const char *name[MXFP4_TENSORS];
    if (!s->file)
        return status_fail(ERR_INVALID, "--base mxfp4: numbers are not turned into MXFP4, which files have: leave out --base");
    TRY(weights_find_mxfp4(s->file, p, name));
    return mxfp4_read_packed(s->file, name, p, matrix, packed);
}

static enum status make_matrix(struct source *s, int param, int64_t matrix, void *packed)
{
    if (s->model->config.base == BASE_MXFP4)
        return read_mxfp4(s, param, matrix, packed);
    if (s->model->config.quantised && s->file)
        return bitsandbytes_read(s, param, packed);
    return quantise_source(s, param, matrix, packed);
}

/* ---- slices ---- */

/* A matrix of the whole model, and a slice of it, both packed. */
struct cut {
    const void *whole;
    void *slice;
    struct quantised of_whole, of_slice;
};

static uint8_t *codes(const void *packed, const struct quantised *q)
{
    return (uint8_t *)packed + quantised_scale_bytes(q);
}

/* Copies n numbers of NF4 from `there` to `here`, with whole blocks. */
static void copy_blocks(const struct cut *x, int64_t here, int64_t there, int64_t n)
{
    const int64_t all = x->of_whole.rows * x->of_whole.columns;
    float *scale = (float *)x->slice + NF4_VALUES + here / NF4_BLOCK;
    for (int64_t i = 0; i < nf4_blocks(n); i++)
        scale[i] = nf4_scale(x->whole, all, quantised_scales(x->of_whole.form), there / NF4_BLOCK + i);
    memcpy(codes(x->slice, &x->of_slice) + here / 2, codes(x->whole, &x->of_whole) + there / 2, (size_t)ceil_div(n, 2));
}

/* Copies n numbers of int8 from `there` to `here`, with the scales of the rows that they are from. */
static void copy_rows(const struct cut *x, int64_t here, int64_t there, int64_t n)
{
    const int64_t columns = x->of_slice.columns;
    for (int64_t i = 0; i < n; i += columns - (here + i) % columns)
        ((float *)x->slice)[(here + i) / columns] = ((const float *)x->whole)[(there + i) / x->of_whole.columns];
    memcpy(codes(x->slice, &x->of_slice) + here, codes(x->whole, &x->of_whole) + there, (size_t)n);
}

static void cut_matrix(const struct cut *x, const struct model_param *p, const struct model_param *of_whole)
{
    const int64_t n = x->of_slice.rows * x->of_slice.columns;
    const int int8 = x->of_slice.form == QUANTISED_INT8;
    if (!int8)
        memcpy(x->slice, x->whole, NF4_VALUES * sizeof(float));
    for (int64_t at = 0, some, there; at < n; at += some) {
        some = model_part_span(p, of_whole, at, n - at, &there);
        (int8 ? copy_rows : copy_blocks)(x, at, there, some);
    }
}

/* Makes the whole matrix of a slice's parameter, and cuts the slice out of it. A matrix that slices have whole, in the same form, is
 * made in its place. */
static enum status make_slice(struct source *s, int param, int64_t matrix, void *packed)
{
    const struct model_param *p = &s->slice->params[param];
    int i = 0;
    while (s->model->params[i].whole != p->whole)
        i++;
    const struct model_param *of_whole = &s->model->params[i];
    const struct quantised from = model_quantised(&s->model->config, of_whole), to = model_quantised(&s->slice->config, p);
    if (p->n_ranges == 0 && from.form == to.form)
        return make_matrix(s, i, matrix, packed);
    void *whole = sys_calloc(1, (size_t)quantised_bytes(&from));
    enum status st = whole ? make_matrix(s, i, matrix, whole) : no_memory(p);
    if (st == OK)
        cut_matrix(&(struct cut){whole, packed, from, to}, p, of_whole);
    free(whole);
    return st;
}

/* Returns the model whose quantised matrices the source has. */
static const struct model *model_of(const struct source *s)
{
    return s->slice ? s->slice : s->model;
}

/* Makes a matrix, unless it is the one made last. */
static enum status make_current(struct source *s, int param, int64_t matrix)
{
    const struct model_param *p = &model_of(s)->params[param];
    if (s->packed.bytes && s->packed.param == param && s->packed.matrix == matrix)
        return OK;
    free(s->packed.bytes);
    s->packed.bytes = sys_calloc(1, (size_t)(p->packed_bytes / model_param_matrices(p)));
    s->packed.param = param;
    s->packed.matrix = matrix;
    enum status st = !s->packed.bytes ? no_memory(p)
                     : s->slice       ? make_slice(s, param, matrix, s->packed.bytes)
                                      : make_matrix(s, param, matrix, s->packed.bytes);
    if (st != OK) {
        free(s->packed.bytes);
        s->packed.bytes = NULL;
    }
    return st;
}

enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data)
{
    const struct model_param *p = &model_of(s)->params[param];
    const int64_t each = p->packed_bytes / model_param_matrices(p);
    for (int64_t done = 0, part; done < n; done += part) {
        const int64_t from = (first + done) % each;
        part = min_i64(n - done, each - from);
        TRY(make_current(s, param, (first + done) / each));
        memcpy(data + done, (const uint8_t *)s->packed.bytes + from, (size_t)part);
    }
    return OK;
}

/* Turns elements [first, first + n) of a matrix that is packed the other way round into numbers. */
static void turn(const void *packed, const struct quantised *q, int64_t first, int64_t n, float *data)
{
    for (int64_t i = 0; i < n; i++)
        quantised_numbers(packed, q, (first + i) % q->rows * q->columns + (first + i) / q->rows, 1, data + i);
}

enum status packed_read_f32(struct source *s, int param, int64_t first, int64_t n, float *data)
{
    const struct quantised q = model_quantised(&s->model->config, &s->model->params[param]);
    const int64_t each = q.rows * q.columns;
    for (int64_t done = 0, part; done < n; done += part) {
        int64_t from = (first + done) % each, tensor;
        part = min_i64(n - done, each - from);
        TRY(make_current(s, param, (first + done) / each));
        if (s->model->params[param].parts > 0)
            part = model_param_piece(&s->model->params[param], from, part, &tensor, &from);
        (q.form == QUANTISED_MXFP4 ? turn : quantised_numbers)(s->packed.bytes, &q, from, part, data + done);
    }
    return OK;
}
