/* Matrix multiplication in packed blocks (Goto and van de Geijn 2008); both operands' panels are shared by all threads. */
#include "ops/gemm.h"

#include "device/cpu_stream.h"
#include "ops/gemm_amx.h"
#include "ops/gemm_tile.h"
#include "ops/ops.h"
#include "ops/rows.h"

#include <string.h>

enum {
    BLOCK_MN = 2048,   /* most rows and columns of C whose operands are packed at a time; equal to a usual row chunk */
    BLOCK_BF16 = 1024, /* BLOCK_MN of a BF16 C, which is held in fp32 until all products are added */
    PACK = 96,         /* rows or columns that one task packs: a multiple of every tile's sides */
    TASK_M = 192,      /* rows and columns of C that one task computes */
    TASK_N = 128,
    ALIGN = 64,
};

struct blocks {
    const struct gemm_tile *tile;
    const struct cpu_stream *stream;
    int64_t m, n, k; /* size of a block; blocks at the ends are smaller */
    float *a, *b;    /* panels */
    float *c;        /* [m][n], for a BF16 C; else NULL */
    float scale;     /* 0: no scale */
    int64_t bytes;
};

/* Returns the size of equal blocks of n: at most `most`, a multiple of `unit`. */
static int64_t block_of(int64_t n, int64_t most, int64_t unit)
{
    return round_up(ceil_div(n, max_i64(1, ceil_div(n, most))), unit);
}

static struct blocks plan_blocks(const struct gemm_tile *tile, const struct gemm_shape *s, void *work)
{
    const int64_t most = s->c_type == F32 ? BLOCK_MN : BLOCK_BF16;
    struct blocks p = {.tile = tile,
                       .stream = s->stream,
                       .scale = s->scale,
                       .m = block_of(s->m, most, tile->rows),
                       .n = block_of(s->n, most, tile->cols),
                       .k = block_of(s->k, tile->depth, 4)};
    const int64_t size[3] = {p.m * p.k, p.k * p.n, s->c_type == F32 ? 0 : p.m * p.n};
    float **at[3] = {&p.a, &p.b, &p.c};
    char *base = (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN);
    for (int i = 0; i < 3; i++) {
        if (size[i] && work)
            *at[i] = (void *)(base + p.bytes);
        p.bytes += round_up(size[i] * (int64_t)sizeof(float), ALIGN);
    }
    p.bytes += ALIGN;
    return p;
}

/* Packs lanes [y, y + n) of A as panels, scaled. */
static void pack_a(const struct blocks *p, const struct gemm_operand *a, int64_t i, int64_t y, int64_t n, int64_t l, int64_t k)
{
    const int64_t depth = round_up(k, 4), packed = round_up(n, p->tile->rows) * depth;
    float *panels = p->a + y * depth;
    p->tile->pack(panels, p->tile->rows, a, i + y, n, l, k);
    for (int64_t x = 0; x < (p->scale != 0.0f ? packed : 0); x++)
        panels[x] *= p->scale;
}

/* Packs the panels of a block. Called by all threads of a team; ends in a barrier. */
static void pack(const struct blocks *p, const struct gemm_operand *a, const struct gemm_operand *b, int64_t i, int64_t m,
                 int64_t j, int64_t n, int64_t l, int64_t k)
{
    const int64_t depth = round_up(k, 4), of_a = ceil_div(m, PACK);
#pragma omp for schedule(dynamic)
    for (int64_t x = 0; x < of_a + ceil_div(n, PACK); x++) {
        const int64_t y = (x < of_a ? x : x - of_a) * PACK;
        if (cpu_stops(p->stream))
            continue;
        if (x < of_a)
            pack_a(p, a, i, y, min_i64(PACK, m - y), l, k);
        else
            p->tile->pack(p->b + y * depth, p->tile->cols, b, j + y, min_i64(PACK, n - y), l, k);
    }
}

/* Computes a tile at the edge of C, of which only m x n elements exist. */
static void edge_tile(const struct gemm_tile *t, int64_t k, const float *a, const float *b, float *c, int64_t ldc, int64_t m,
                      int64_t n, int add)
{
    float sums[GEMM_TILE_MOST];
    t->run(k, a, b, sums, t->cols, 0);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + sums[i * t->cols + j] : sums[i * t->cols + j];
}

/* Multiplies rows [i0, i1) by columns [j0, j1) of a block. A panel of B stays in the L1 cache while the panels of A pass. */
static void multiply_task(const struct blocks *p, float *c, int64_t ldc, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                          int64_t depth, int add)
{
    const struct gemm_tile *t = p->tile;
    if (cpu_stops(p->stream))
        return;
    for (int64_t j = j0; j < j1; j += t->cols)
        for (int64_t i = i0; i < i1; i += t->rows) {
            const float *a = p->a + i * depth, *b = p->b + j * depth;
            if (i + t->rows <= i1 && j + t->cols <= j1)
                t->run(depth, a, b, c + i * ldc + j, ldc, add);
            else
                edge_tile(t, depth, a, b, c + i * ldc + j, ldc, min_i64(t->rows, i1 - i), min_i64(t->cols, j1 - j), add);
        }
}

/* Multiplies the packed panels of a block. Called by all threads of a team; ends in a barrier. */
static void multiply(const struct blocks *p, float *c, int64_t ldc, int64_t m, int64_t n, int64_t k, int add)
{
#pragma omp for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < m; i += TASK_M)
        for (int64_t j = 0; j < n; j += TASK_N)
            multiply_task(p, c, ldc, i, min_i64(m, i + TASK_M), j, min_i64(n, j + TASK_N), round_up(k, 4), add);
}

/* Computes rows [i, i + p->m), columns [j, j + p->n) of C, over all of k. Called by all threads of a team. */
static void compute_block(const struct gemm_shape *s, const struct blocks *p, void *c, const struct gemm_operand *a,
                          const struct gemm_operand *b, int64_t i, int64_t j)
{
    const int64_t m = min_i64(p->m, s->m - i), n = min_i64(p->n, s->n - j), ldc = p->c ? n : s->ldc;
    float *out = p->c ? p->c : (float *)c + i * s->ldc + j;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < (p->c && s->accumulate ? m : 0); r++)
        rows_from_bf16(out + r * ldc, (const bf16 *)c + (i + r) * s->ldc + j, n);
    for (int64_t l = 0; l < s->k; l += p->k) {
        const int64_t k = min_i64(p->k, s->k - l);
        pack(p, a, b, i, m, j, n, l, k);
        multiply(p, out, ldc, m, n, k, l > 0 || s->accumulate);
    }
#pragma omp for schedule(static)
    for (int64_t r = 0; r < (s->k > 0 || s->accumulate ? 0 : m); r++)
        memset(out + r * ldc, 0, (size_t)n * sizeof *out);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < (p->c ? m : 0); r++)
        rows_to_bf16((bf16 *)c + (i + r) * s->ldc + j, out + r * n, n);
}

int64_t gemm_workspace(const struct gemm_tile *tile, const struct gemm_shape *s)
{
    return plan_blocks(tile, s, NULL).bytes;
}

void gemm_run(const struct gemm_tile *tile, const struct gemm_shape *s, void *c, const void *a, const void *b, void *work)
{
    if (s->m <= 0 || s->n <= 0)
        return;
    const struct blocks p = plan_blocks(tile, s, work);
    const struct gemm_operand of_a = {a, s->a_type, s->ta, s->lda, s->a_order, s->per},
                              of_b = {b, s->b_type, !s->tb, s->ldb, s->b_order, s->per};
#pragma omp parallel if (s->m * s->n * max_i64(s->k, 1) > 64 * ROWS_SERIAL)
    for (int64_t i = 0; i < s->m; i += p.m)
        for (int64_t j = 0; j < s->n; j += p.n)
            compute_block(s, &p, c, &of_a, &of_b, i, j);
}

const struct gemm_tile *gemm_tile_for(enum isa isa)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (isa >= ISA_AVX2)
        return isa == ISA_AVX512 ? &gemm_tile_avx512 : &gemm_tile_avx2;
#endif
    (void)isa;
    return &gemm_tile_portable;
}

/* Tells whether AMX computes the product. k = 0 is left to the general product, which clears C. */
static int takes_amx(const struct gemm_shape *s)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return s->a_type == BF16 && s->b_type == BF16 && s->scale == 0.0f && !(s->accumulate && s->c_type == BF16) && s->m > 0 &&
           s->n > 0 && s->k > 0 && isa_has_amx();
#else
    (void)s;
    return 0;
#endif
}

int64_t ops_gemm_workspace(const struct gemm_shape *s)
{
    return takes_amx(s) ? gemm_amx_workspace(s) : gemm_workspace(gemm_tile_for(isa_of_processor()), s);
}

void ops_gemm(const struct gemm_shape *s, void *c, const void *a, const void *b, void *work)
{
    if (s->m == 1)
        gemm_row(s, c, a, b);
    else
        ops_gemm_packed(s, c, a, b, work);
}

void ops_gemm_packed(const struct gemm_shape *s, void *c, const void *a, const void *b, void *work)
{
    if (takes_amx(s))
        gemm_amx_run(s, c, a, b, work);
    else
        gemm_run(gemm_tile_for(isa_of_processor()), s, c, a, b, work);
}

/* Plans for a single block: of several equal ones, none is larger. */
int64_t gemm_workspace_most(const struct gemm_tile *tile, const struct gemm_shape *s)
{
    struct gemm_shape most = *s;
    most.m = min_i64(s->m, s->c_type == F32 ? BLOCK_MN : BLOCK_BF16);
    most.k = min_i64(s->k, tile->depth);
    return plan_blocks(tile, &most, NULL).bytes;
}

int64_t ops_gemm_packed_workspace(const struct gemm_shape *s)
{
    const int64_t tiles = gemm_workspace_most(gemm_tile_for(isa_of_processor()), s); /* k = 0 takes them with AMX, too */
    return takes_amx(s) ? max_i64(tiles, gemm_amx_workspace_most(s)) : tiles;
}

struct gemm_shape gemm_shape_of(const struct op_attrs *a)
{
    return (struct gemm_shape){.m = a->gemm.m,
                               .n = a->gemm.n,
                               .k = a->gemm.k,
                               .lda = a->gemm.lda,
                               .ldb = a->gemm.ldb,
                               .ldc = a->gemm.ldc,
                               .ta = a->gemm.ta,
                               .tb = a->gemm.tb,
                               .a_type = a->gemm.a_type,
                               .b_type = a->gemm.b_type,
                               .c_type = a->gemm.c_type,
                               .accumulate = a->gemm.accumulate == GEMM_ADDS,
                               .scale = a->gemm.scale};
}

enum status ops_cpu_gemm(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct gemm_shape s = gemm_shape_of(a);
    s.stream = stream;
    ops_gemm(&s, (char *)arg[0] + a->gemm.c_first * dtype_size((enum dtype)a->gemm.c_type),
             (const char *)arg[1] + a->gemm.a_first * dtype_size((enum dtype)a->gemm.a_type), arg[2], arg[3]);
    return OK;
}
