/* Attention forward for AVX2 and AVX-512: S^T = K Q^T and O^T = V^T P^T. So maximum, sum and lse run down the lanes, and the tile
 * of scores is already the B operand of the second product.
 *
 * K (quads) and V (columns) of a batch of KV heads are packed once into `work`; a task is a block of queries of one head, against
 * all its key blocks. Scores are in units of log2 (scale * log2(e) is folded into q). The running reference m of a query is an
 * integer, at least its maximum - SLACK. It moves only when scores outgrow it; then sums shrink by an exact power of two.
 *
 * Sums over millions of keys: a block's sum is fp32. Blocks' sums of p are added in fp64; those of p v in fp32, and groups of
 * GROUP blocks in fp64. In fp32 alone, 2^24 equal terms of v come out up to 9% off, and with blocks alone 0.1%. */
#include "attention/mask.h"
#include "attention/panels_pack.h"

#include <math.h>
#include <omp.h>

/* largest excess of a score over m, so that p is at most 2^24, far from overflow; a typical call never moves m after the first
 * block */
#define SLACK 24.0f
/* largest sum of p in a block up to which m is kept without searching the block's maximum (saves 2% at head dim 64) */
#define FAR_BEHIND 0x1p40f
#define BATCH_ROWS 8192  /* most rows of K for which several KV heads are packed at a time, which takes fewer barriers */
#define NOTHING (-1e30f) /* m before the first key */

enum { BLOCK = FORWARD_BLOCK, PANELS = BLOCK / LANES };
enum { GROUP = 64 }; /* key blocks: 12k keys; adding their sums takes 0.1% of the time */

struct forward {
    const struct op_attrs *attrs;
    struct mask mask;
    struct rows q, k, v, o; /* head is set per use */
    float *lse;
    float *packed_k, *packed_v;
    int64_t sk, k_stride, v_stride; /* sk: rows of K padded to BLOCK; strides: floats per packed head */
    int64_t batch;                  /* KV heads packed at a time */
    const struct cpu_stream *stream;
};

/* Kinds of a block's scores. MASKED: some pairs are masked; WHOLE: none is, and m allows for the block's maximum; UNSEEN: none
 * is, but m has not been compared with the block's scores yet (sums of p tell whether m must rise). */
enum scores { MASKED, WHOLE, UNSEEN };

/* One thread's scratch: a block of queries and their state. */
struct panels {
    float *q, *o; /* [PANELS][d][LANES]; for o, d is v's */
    double *sum;  /* sums of the groups before, in o's layout; only if `grouped` */
    float *s;     /* [BLOCK][LANES] */
    double l[PANELS][LANES];
    float m[PANELS][LANES];
    int32_t from[PANELS][LANES], to[PANELS][LANES];
    float factor[PANELS * LANES];
    int grouped;
};

static int64_t scratch_bytes(const struct op_attrs *attrs)
{
    const int64_t floats = PANELS * (attrs->attn.head_dim + 3 * op_value_dim(attrs)) + BLOCK;
    return round_up((int64_t)sizeof(struct panels), ATTN_ALIGN) + floats * LANES * 4;
}

static int64_t batch_of(const struct op_attrs *attrs)
{
    return max_i64(1, min_i64(attrs->attn.hk, BATCH_ROWS / max_i64(attrs->attn.sk, 1)));
}

int64_t KERNEL(workspace)(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    if (kind == OP_ATTN_BWD)
        return KERNEL(backward_workspace)(attrs, threads);
    int64_t head = round_up(attrs->attn.sk, BLOCK) * (attrs->attn.head_dim + op_value_dim(attrs)) * 4;
    return ATTN_ALIGN + batch_of(attrs) * head + threads * scratch_bytes(attrs);
}

/* Finds each lane's maximum over n rows of s; masked scores become -inf first. */
static SIMD void panel_maximum(float *s, int64_t n, int64_t key, const struct panels *x, int64_t p, int masked, vf max[VECTORS])
{
    for (int i = 0; i < VECTORS; i++)
        max[i] = vf_set(-INFINITY);
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < VECTORS; i++) {
            vf v = vf_load(s + j * LANES + WIDTH * i);
            if (masked) {
                vi from = vi_load(&x->from[p][WIDTH * i]);
                vi to = vi_load(&x->to[p][WIDTH * i]);
                v = vf_select(vi_contains(from, to, key + j), v, vf_set(-INFINITY));
                vf_store(s + j * LANES + WIDTH * i, v);
            }
            max[i] = vf_max(v, max[i]);
        }
}

/* Raises m in lanes whose maximum outgrew it, and shrinks their sums accordingly. */
static SIMD void panel_reference(struct panels *x, int64_t p, const vf max[VECTORS], int64_t d)
{
    int any = 0;
    for (int i = 0; i < VECTORS; i++) {
        vf m = vf_load(&x->m[p][WIDTH * i]);
        vm outgrown = vf_greater(max[i], m + vf_set(SLACK));
        vf moved = vf_select(outgrown, vf_ceil(max[i]), m);
        any |= vm_any(outgrown);
        vf_store(&x->m[p][WIDTH * i], moved);
        vf_store(&x->factor[WIDTH * i], vf_exp2_whole(m - moved));
    }
    if (!any)
        return;
    float *o = x->o + p * d * LANES;
    for (int64_t i = 0; i < LANES; i++)
        x->l[p][i] *= (double)x->factor[i];
    for (int64_t c = 0; c < d * LANES; c += LANES)
        for (int i = 0; i < VECTORS; i++)
            vf_store(o + c + WIDTH * i, vf_load(o + c + WIDTH * i) * vf_load(&x->factor[WIDTH * i]));
    double *sum = x->sum + p * d * LANES;
    for (int64_t c = 0; c < d * LANES && x->grouped; c += LANES)
        for (int64_t i = 0; i < LANES; i++)
            sum[c + i] *= (double)x->factor[i];
}

/* Turns s into p = 2^(s - m), and adds it to l. With UNSEEN scores, returns 1 if a sum shows that m is too small; s is then
 * destroyed. */
static inline SIMD int panel_exp(float *s, int64_t n, struct panels *x, int64_t p, enum scores scores)
{
    vf m[VECTORS], sum[VECTORS];
    for (int i = 0; i < VECTORS; i++)
        m[i] = vf_load(&x->m[p][WIDTH * i]), sum[i] = vf_set(0);
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < VECTORS; i++) {
            vf v = vf_load(s + j * LANES + WIDTH * i), e = vf_exp2(v - m[i]);
            if (scores == MASKED)
                e = vf_keep(vf_unequal(v, vf_set(-INFINITY)), e);
            sum[i] = sum[i] + e;
            vf_store(s + j * LANES + WIDTH * i, e);
        }
    for (int i = 0; i < VECTORS && scores == UNSEEN; i++)
        if (vm_any(vf_not_less(sum[i], vf_set(FAR_BEHIND))))
            return 1;
    float sums[LANES];
    for (int i = 0; i < VECTORS; i++)
        vf_store(sums + WIDTH * i, sum[i]);
    for (int64_t i = 0; i < LANES; i++)
        x->l[p][i] += (double)sums[i];
    return 0;
}

/* Tells whether every lane has an m, that is, has seen a key. */
static SIMD int panel_started(const struct panels *x, int64_t p)
{
    int all = 1;
    for (int i = 0; i < VECTORS; i++)
        all &= !vm_any(vf_greater(vf_set(0.5f * NOTHING), vf_load(&x->m[p][WIDTH * i])));
    return all;
}

/* Caps n rows of scores, in units of log2. */
static SIMD void panel_cap(float *s, int64_t n, float cap)
{
    const vf c = vf_set((float)((double)cap * LOG2_E)), inverse = vf_set((float)(1 / ((double)cap * LOG2_E)));
    for (int64_t i = 0; i < n * LANES; i += WIDTH)
        vf_store(s + i, c * vf_tanh(vf_load(s + i) * inverse));
}

/* Computes P of panel p and the keys [key, key_end) of one block, at least one of which the panel attends. */
static SIMD void panel_scores(const struct forward *f, int64_t kv, struct panels *x, int64_t p, int64_t key, int64_t key_end,
                              enum scores scores)
{
    const int64_t d = f->attrs->attn.head_dim, n = key_end - key;
    const float *k = f->packed_k + kv * f->k_stride + key * d, *q = x->q + p * d * LANES;
    vf max[VECTORS];
    for (int64_t j = 0; j < n; j += ROWS)
        tile(d, k + j * d, q, x->s + j * LANES, 0);
    if (f->attrs->attn.cap != 0)
        panel_cap(x->s, n, f->attrs->attn.cap);
    if (scores == UNSEEN) {
        if (panel_exp(x->s, n, x, p, UNSEEN))
            panel_scores(f, kv, x, p, key, key_end, WHOLE);
        return;
    }
    if (scores == MASKED)
        panel_maximum(x->s, n, key, x, p, 1, max);
    else
        panel_maximum(x->s, n, key, x, p, 0, max);
    panel_reference(x, p, max, op_value_dim(f->attrs));
    if (scores == MASKED)
        panel_exp(x->s, n, x, p, MASKED);
    else
        panel_exp(x->s, n, x, p, WHOLE);
}

static SIMD void panel_block(const struct forward *f, int64_t kv, struct panels *x, int64_t p, int64_t key, int64_t key_end,
                             int masked)
{
    const int64_t d = op_value_dim(f->attrs), block = key / BLOCK * BLOCK;
    const float *v = f->packed_v + kv * f->v_stride + block * d + (key - block) * ROWS;
    panel_scores(f, kv, x, p, key, key_end, masked ? MASKED : EXP2_SATURATES && panel_started(x, p) ? UNSEEN : WHOLE);
    for (int64_t c = 0; c < d; c += ROWS)
        tile(key_end - key, v + c * BLOCK, x->s, x->o + (p * d + c) * LANES, 1);
}

/* Adds o to the sums over earlier groups of key blocks, for all panels, and clears o. */
static SIMD void panels_group(struct panels *x, int64_t d)
{
    for (int64_t i = 0; i < PANELS * d * LANES; i++) {
        x->sum[i] = (x->grouped ? x->sum[i] : 0) + (double)x->o[i];
        x->o[i] = 0;
    }
    x->grouped = 1;
}

static void panels_load(const struct forward *f, struct panels *x, const struct rows *q, int64_t row, int64_t n)
{
    const int64_t d = q->d;
    memset(x->o, 0, (size_t)(PANELS * f->o.d * LANES) * 4);
    x->grouped = 0;
    for (int64_t i = 0; i < PANELS * LANES; i++) {
        int64_t p = i / LANES, lane = i % LANES;
        x->m[p][lane] = NOTHING;
        x->l[p][lane] = 0;
        x->from[p][lane] = i < n ? (int32_t)mask_from(&f->mask, row + i) : 0;
        x->to[p][lane] = i < n ? (int32_t)mask_to(&f->mask, row + i) : 0;
    }
    for (int64_t p = 0; p * LANES < n; p++)
        pack_lanes(x->q + p * d * LANES, q, row + p * LANES, min_i64(LANES, n - p * LANES),
                   (float)((double)f->attrs->attn.scale * 1.4426950408889634));
}

static void panels_store(const struct forward *f, struct panels *x, const struct rows *o, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float m = (&x->m[0][0])[i];
        const double l = (&x->l[0][0])[i];
        f->lse[o->head * f->mask.sq + row + i] = l == 0 ? -INFINITY : (float)((double)m * 0.6931471805599453 + log(l));
        x->factor[i] = l == 0 ? 0 : (float)(1 / l); /* NaN stays NaN */
    }
    for (int64_t i = 0; i < PANELS * o->d * LANES && x->grouped; i++)
        x->o[i] = (float)(x->sum[i] + (double)x->o[i]);
    for (int64_t p = 0; p * LANES < n; p++)
        unpack_lanes(o, x->o + p * o->d * LANES, x->factor + p * LANES, row + p * LANES, min_i64(LANES, n - p * LANES), 0);
}

/* Computes query rows [row, row + n) of one head, against KV head kv of the batch. */
static void forward_task(const struct forward *f, int64_t head, int64_t kv, int64_t row, int64_t n, struct panels *x)
{
    const struct mask *m = &f->mask;
    struct rows q = f->q, o = f->o;
    q.head = o.head = head;
    panels_load(f, x, &q, row, n);
    const int64_t first_block = mask_from(m, row) / BLOCK * BLOCK, end = mask_to(m, row + n - 1);
    for (int64_t block = first_block; block < end; block += BLOCK) {
        if (cpu_stops(f->stream))
            return;
        if (block > first_block && (block - first_block) % (GROUP * BLOCK) == 0)
            panels_group(x, o.d);
        for (int64_t p = 0; p * LANES < n; p++) {
            int64_t first = row + p * LANES, last = min_i64(first + LANES, row + n);
            int64_t key = max_i64(mask_from(m, first), block) / ROWS * ROWS;
            int64_t key_end = round_up(min_i64(mask_to(m, last - 1), block + BLOCK), ROWS);
            if (key < key_end)
                panel_block(f, kv, x, p, key, key_end, last - first < LANES || !mask_covers(m, first, last, key, key_end));
        }
    }
    panels_store(f, x, &o, row, n);
}

static void pack_block(const struct forward *f, int64_t kv, int64_t head, int64_t block)
{
    if (cpu_stops(f->stream))
        return;
    struct rows k = f->k, v = f->v;
    int64_t n = min_i64(BLOCK, f->mask.sk - block);
    k.head = v.head = head;
    pack_quads(f->packed_k + kv * f->k_stride + block * k.d, &k, block, n);
    pack_columns(f->packed_v + kv * f->v_stride + block * v.d, BLOCK, &v, block, n);
}

static struct panels *scratch_of(char *base, const struct op_attrs *attrs)
{
    const int64_t w = op_value_dim(attrs);
    struct panels *x = (void *)(base + omp_get_thread_num() * scratch_bytes(attrs));
    x->q = (float *)(void *)((char *)x + round_up((int64_t)sizeof *x, ATTN_ALIGN));
    x->o = x->q + PANELS * attrs->attn.head_dim * LANES;
    x->sum = (double *)(void *)(x->o + PANELS * w * LANES);
    x->s = (float *)(void *)(x->sum + PANELS * w * LANES);
    return x;
}

/* most heads of a call with a single query. Heads that share a KV head then become a block's rows, as if they were tokens, since
 * one row would leave the other lanes idle; each head gets a copy of the mask. */
enum { HEADS_MOST = 1024 };

static int is_single(const struct op_attrs *attrs)
{
    return attrs->attn.sq == 1 && attrs->attn.hq <= HEADS_MOST && attrs->attn.hq / attrs->attn.hk <= BLOCK;
}

static void repeat_mask(struct mask *m, int64_t heads, int32_t *lo, int32_t *hi)
{
    for (int64_t i = 0; i < heads; i++) {
        lo[i] = m->lo[0];
        hi[i] = m->hi[0];
    }
    *m = (struct mask){lo, hi, heads, m->sk, m->k0};
}

void KERNEL(forward)(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    const int64_t hq = attrs->attn.hq, hk = attrs->attn.hk, d = attrs->attn.head_dim, w = op_value_dim(attrs),
                  sq = attrs->attn.sq, group = hq / hk;
    const int32_t t = attrs->attn.dtype;
    const int single = is_single(attrs);
    int32_t lo[HEADS_MOST], hi[HEADS_MOST];
    struct forward f = {.attrs = attrs,
                        .mask = mask_of(attrs, arg[5], arg[6]),
                        .q = {arg[2], single ? 1 : hq, 0, d, t},
                        .k = {arg[3], hk, 0, d, t},
                        .v = {arg[4], hk, 0, w, t},
                        .o = {arg[0], single ? 1 : hq, 0, w, attn_o_type(attrs)},
                        .lse = arg[1],
                        .sk = round_up(attrs->attn.sk, BLOCK),
                        .stream = stream};
    if (single)
        repeat_mask(&f.mask, hq, lo, hi);
    f.k_stride = f.sk * d;
    f.v_stride = f.sk * w;
    f.batch = batch_of(attrs);
    f.packed_k = attn_align(arg[7]);
    f.packed_v = f.packed_k + f.batch * f.k_stride;
    char *scratch = (char *)(f.packed_v + f.batch * f.v_stride);
    const int64_t blocks = f.sk / BLOCK, q_blocks = ceil_div(sq, BLOCK);
#pragma omp parallel num_threads(stream->threads)
    {
        struct panels *x = scratch_of(scratch, attrs);
        for (int64_t first = 0; first < hk; first += f.batch) {
            int64_t n = min_i64(f.batch, hk - first), heads = n * group;
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < n * blocks; i++)
                pack_block(&f, i / blocks, first + i / blocks, i % blocks * BLOCK);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < (single ? n : q_blocks * heads); i++) {
                if (single) {
                    forward_task(&f, 0, i, (first + i) * group, group, x);
                    continue;
                }
                /* in reverse, since under a causal mask the last blocks take longest */
                int64_t row = (q_blocks - 1 - i / heads) * BLOCK, h = i % heads;
                forward_task(&f, first * group + h, h / group, row, min_i64(BLOCK, sq - row), x);
            }
        }
    }
}
