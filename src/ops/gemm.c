/* Matrix multiplication on a fixed grid of tiles. */
#include "ops/gemm.h"

#include "ops/blas.h"
#include "ops/rows.h"

enum {
    TILE = 512,      /* C is computed in TILE x TILE pieces, each of which packs its own operands; half that where ... */
    TILES = 16,      /* ... they would be fewer than this, for threads to share them */
    BLOCK_MN = 1024, /* rows and columns of C whose operands are converted at a time */
    BLOCK_K = 512,
};

/* Blocks of m, n and k that are converted and multiplied at a time; whole where nothing is converted. */
struct blocks {
    int64_t m, n, k;
    float *a, *b, *c; /* converted blocks in work, contiguous; NULL for F32 operands */
    int64_t bytes;
};

/* A rectangle of a stored fp32 matrix. */
struct view {
    const float *at;
    int64_t ld;
};

static struct blocks plan_blocks(const struct gemm_shape *s, float *work)
{
    struct blocks p = {.m = s->m, .n = s->n, .k = s->k};
    int convert_ab = s->a_type != F32 || s->b_type != F32;
    if (convert_ab || s->c_type != F32) {
        p.m = min_i64(s->m, BLOCK_MN);
        p.n = min_i64(s->n, BLOCK_MN);
    }
    if (convert_ab)
        p.k = min_i64(s->k, BLOCK_K);
    int64_t size[3] = {s->a_type != F32 ? p.m * p.k : 0, s->b_type != F32 ? p.k * p.n : 0, s->c_type != F32 ? p.m * p.n : 0};
    float **at[3] = {&p.a, &p.b, &p.c};
    for (int i = 0; i < 3; i++) {
        if (size[i] && work)
            *at[i] = work + p.bytes / (int64_t)sizeof(float);
        p.bytes += round_up(size[i] * (int64_t)sizeof(float), 64);
    }
    return p;
}

/* Rows [r0, r0 + rows), columns [c0, c0 + cols) of stored matrix x as fp32. Called by all threads of a team; converting ends in a
 * barrier. */
static struct view load(const void *x, int32_t type, int64_t ld, int64_t r0, int64_t c0, int64_t rows, int64_t cols, float *block)
{
    if (type == F32)
        return (struct view){(const float *)x + r0 * ld + c0, ld};
#pragma omp for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        rows_from_bf16(block + i * cols, (const bf16 *)x + (r0 + i) * ld + c0, cols);
    return (struct view){block, cols};
}

/* C block [m, n] (+)= op(A) op(B) by tiles. Called by all threads of a team; ends in a barrier. */
static void multiply(const struct gemm_shape *s, float *c, int64_t ldc, struct view a, struct view b, int64_t m, int64_t n,
                     int64_t k, float beta)
{
    const int64_t tile = ceil_div(m, TILE) * ceil_div(n, TILE) >= TILES ? TILE : TILE / 2;
#pragma omp for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < m; i += tile)
        for (int64_t j = 0; j < n; j += tile)
            blas.sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans,
                       (blasint)min_i64(tile, m - i), (blasint)min_i64(tile, n - j), (blasint)k, 1.0f,
                       a.at + (s->ta ? i : i * a.ld), (blasint)a.ld, b.at + (s->tb ? j * b.ld : j), (blasint)b.ld, beta,
                       c + i * ldc + j, (blasint)ldc);
}

/* C rows [i, i + m), columns [j, j + n), over all of k. Called by all threads of a team. */
static void compute_block(const struct gemm_shape *s, const struct blocks *p, void *c, const void *a, const void *b, int64_t i,
                          int64_t j)
{
    int64_t m = min_i64(p->m, s->m - i), n = min_i64(p->n, s->n - j), ldc = p->c ? n : s->ldc;
    float *out = p->c ? p->c : (float *)c + i * s->ldc + j;
    for (int64_t l = 0; l == 0 || l < s->k; l += p->k) {
        int64_t k = min_i64(p->k, s->k - l);
        struct view va = s->ta ? load(a, s->a_type, s->lda, l, i, k, m, p->a) : load(a, s->a_type, s->lda, i, l, m, k, p->a);
        struct view vb = s->tb ? load(b, s->b_type, s->ldb, j, l, n, k, p->b) : load(b, s->b_type, s->ldb, l, j, k, n, p->b);
        multiply(s, out, ldc, va, vb, m, n, k, l > 0 || (s->accumulate && !p->c) ? 1.0f : 0.0f);
        if (s->k == 0)
            break;
    }
    if (p->c) {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < m; r++)
            rows_to_bf16((bf16 *)c + (i + r) * s->ldc + j, out + r * n, n);
    }
}

enum status ops_gemm_init(void)
{
    TRY(blas_open());
    blas.set_num_threads(1);
    return OK;
}

int64_t ops_gemm_workspace(const struct gemm_shape *s)
{
    return plan_blocks(s, NULL).bytes;
}

void ops_gemm(const struct gemm_shape *s, void *c, const void *a, const void *b, float *work)
{
    if (s->m <= 0 || s->n <= 0)
        return;
    struct blocks p = plan_blocks(s, work);
#pragma omp parallel if (s->m * s->n * max_i64(s->k, 1) > 64 * ROWS_SERIAL)
    for (int64_t i = 0; i < s->m; i += p.m)
        for (int64_t j = 0; j < s->n; j += p.n)
            compute_block(s, &p, c, a, b, i, j);
}
