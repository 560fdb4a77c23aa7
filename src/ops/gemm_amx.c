/* Multiplying BF16 matrices in blocks. A right block is packed once and meets all rows; rows stored lane by lane are not packed. */

#if defined(__x86_64__) && defined(__GNUC__)
#include "ops/gemm_amx.h"

#include "base/amx.h"
#include "device/cpu_stream.h"
#include "ops/rows.h"

enum {
    DEPTH = 8192,        /* most of k between two visits to C */
    DEPTH_ACROSS = 2048, /* most of k between two visits to C if A is stored [k,m], so that it is always packed */
    LEFT = 1 << 20,      /* most elements of a packed left block, which fits the L2 cache beside sums and a task's right panels */
    RIGHT = 1 << 22,     /* elements of a right block */
    SIDE_BF16 = 1024, /* most rows and columns of a BF16 C that are held in fp32 until complete (only if k exceeds the depth) */
    SERIAL = 1 << 23, /* most multiplications that a single thread does, as waking threads would take longer */
    PACK = 4 * AMX_LANES, /* lanes that one task packs */
    ALIGN = 64,
};

struct blocks {
    const struct cpu_stream *stream;
    int64_t m, n, k; /* sizes of a block; blocks at the ends of the matrix are smaller */
    char *a, *b;     /* panels; a NULL: A is used as stored */
    float *c;        /* [m][n], or NULL */
    int64_t bytes;
};

static int64_t at_most(int64_t n, int64_t most)
{
    return round_up(ceil_div(n, max_i64(1, ceil_div(n, most))), AMX_LANES);
}

static struct blocks plan_blocks(const struct gemm_shape *s, void *work)
{
    const int64_t depth = s->ta ? DEPTH_ACROSS : DEPTH;
    const int held = s->c_type == BF16 && s->k > depth, packed = s->ta || s->a_order || s->m % AMX_LANES || s->k % AMX_UNIT;
    struct blocks p = {.stream = s->stream, .k = at_most(s->k, depth)};
    p.n = at_most(s->n, max_i64(min_i64(RIGHT / max_i64(1, p.k), held ? SIDE_BF16 : s->n), AMX_LANES));
    p.m = at_most(s->m, packed ? LEFT / max_i64(1, p.k) : held ? SIDE_BF16 : s->m);
    const int64_t size[3] = {packed ? 2 * p.m * p.k : 0, 2 * p.n * p.k, held ? 4 * p.m * p.n : 0};
    char *base = (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN), *at[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++) {
        if (size[i] && work)
            at[i] = base + p.bytes;
        p.bytes += size[i];
    }
    p.bytes += ALIGN;
    p.a = at[0];
    p.b = at[1];
    p.c = (float *)(void *)at[2];
    return p;
}

/* Packs lanes of an operand. Called by all threads of a team; ends in a barrier. */
static void pack(const struct blocks *p, char *out, enum gemm_amx_side side, const struct gemm_operand *x, int64_t lane,
                 int64_t n, int64_t l, int64_t k)
{
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < n; i += PACK)
        if (!cpu_stops(p->stream))
            gemm_amx_pack(out + 2 * i * round_up(k, AMX_UNIT), side, x, lane + i, min_i64(PACK, n - i), l, k);
}

/* Multiplies m rows by n columns of C, which begins at out. Called by all threads of a team; ends in a barrier. */
static void multiply(const struct blocks *p, const struct gemm_amx_left *a, int64_t depth, const struct gemm_amx_out *out,
                     int64_t m, int64_t n)
{
#pragma omp for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < m; i += AMX_TASK_M)
        for (int64_t j = 0; j < n; j += AMX_TASK_N) {
            if (cpu_stops(p->stream))
                continue;
            struct gemm_amx_left left = *a;
            struct gemm_amx_out to = *out;
            left.x += i / AMX_LANES * a->panel;
            to.c = (char *)out->c + (i * out->ld + j) * dtype_size((enum dtype)out->type);
            gemm_amx_task(&left, p->b + 2 * j * depth, depth, &to, min_i64(AMX_TASK_M, m - i), min_i64(AMX_TASK_N, n - j));
        }
}

/* Returns the left operand's rows from i and elements from l on, packed if needed. Called by all threads of a team. */
static struct gemm_amx_left left_of(const struct blocks *p, const struct gemm_operand *a, int64_t i, int64_t m, int64_t l,
                                    int64_t k)
{
    if (p->a) {
        pack(p, p->a, AMX_LEFT, a, i, m, l, k);
        return (struct gemm_amx_left){p->a, 2 * AMX_LANES * round_up(k, AMX_UNIT), AMX_STEP, AMX_STEP / 2, 2 * AMX_UNIT};
    }
    return (struct gemm_amx_left){(const char *)a->x + 2 * (i * a->ld + l), 2 * AMX_LANES * a->ld, 2 * AMX_UNIT,
                                  AMX_LANES * a->ld, 2 * a->ld};
}

/* Computes rows [i0, i1), columns [j, j + n) of C. Called by all threads of a team. */
static void compute(const struct gemm_shape *s, const struct blocks *p, void *c, const struct gemm_operand *a,
                    const struct gemm_operand *b, int64_t i0, int64_t i1, int64_t j, int64_t n)
{
    for (int64_t l = 0; l < s->k; l += p->k) {
        const int64_t k = min_i64(p->k, s->k - l);
        pack(p, p->b, AMX_RIGHT, b, j, n, l, k);
        for (int64_t i = i0; i < i1; i += p->m) {
            const int64_t m = min_i64(p->m, i1 - i);
            const struct gemm_amx_left left = left_of(p, a, i, m, l, k);
            struct gemm_amx_out out = {p->c, n, F32, l > 0};
            if (!p->c)
                out = (struct gemm_amx_out){(char *)c + (i * s->ldc + j) * dtype_size((enum dtype)s->c_type), s->ldc, s->c_type,
                                            l > 0 || s->accumulate};
            multiply(p, &left, round_up(k, AMX_UNIT), &out, m, n);
        }
    }
#pragma omp for schedule(static)
    for (int64_t i = i0; i < (p->c ? i1 : i0); i++)
        rows_to_bf16((bf16 *)c + i * s->ldc + j, p->c + (i - i0) * n, n);
}

int64_t gemm_amx_workspace(const struct gemm_shape *s)
{
    return plan_blocks(s, NULL).bytes;
}

int64_t gemm_amx_workspace_most(const struct gemm_shape *s)
{
    const int64_t k = round_up(min_i64(s->k, s->ta ? DEPTH_ACROSS : DEPTH), AMX_LANES), side = AMX_LANES * k;
    const int64_t m = round_up(s->m, AMX_LANES), n = round_up(s->n, AMX_LANES);
    const int64_t held = s->c_type == BF16 ? min_i64(m, SIDE_BF16) * min_i64(n, SIDE_BF16) : 0;
    return 2 * min_i64(m * k, LEFT + side) + 2 * min_i64(n * k, RIGHT + side) + 4 * held + ALIGN;
}

void gemm_amx_run(const struct gemm_shape *s, void *c, const void *a, const void *b, void *work)
{
    const struct blocks p = plan_blocks(s, work);
    const struct gemm_operand left = {a, BF16, s->ta, s->lda, s->a_order, s->per},
                              right = {b, BF16, !s->tb, s->ldb, s->b_order, s->per};
    const int64_t rows = p.c ? p.m : s->m; /* rows that meet one right block before the next block is packed */
#pragma omp parallel if (s->m * s->n * s->k > SERIAL)
    {
        amx_begin();
        for (int64_t j = 0; j < s->n; j += p.n)
            for (int64_t i = 0; i < s->m; i += rows)
                compute(s, &p, c, &left, &right, i, min_i64(s->m, i + rows), j, min_i64(p.n, s->n - j));
        amx_end();
    }
}

#else
typedef int gemm_amx_is_empty;
#endif
