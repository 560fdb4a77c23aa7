/* Attention backward for AVX2 and AVX-512: FlashAttention-2's five products on panels, with dq ordered by tickets.
 *
 * A batch of query heads at a time (one, at long S): Q and dO are packed as lanes into `work`, where dQ accumulates likewise. A
 * task is one key block of one head, against all query blocks it touches, from the last to the first:
 *
 *   for each panel of keys, for each panel of queries:   S^T = K Q^T, dP^T = V dO^T,  P = 2^(S - lse),  dS = P (dP - delta)
 *                              then, P and dS still in L1:     dV^T += dO^T P,  dK^T += Q^T dS
 *   then, when every earlier key block has added its part:     dQ^T += K^T dS^T
 *
 * Sums over millions of keys: a block's part of dQ is fp32, up to GROUP blocks' are added before they are added to the output. dK
 * and dV: a block of queries, a segment of them, then the output.
 *
 * Tasks and turns: turns.h. */
#include "attention/panels_pack.h"
#include "attention/turns.h"

#include <math.h>
#include <omp.h>

/* Rows of padding behind each panel: without them the panels of one tile of A would share L1 sets at head dim 64 and 128. */
#define PAD 4

enum { BLOCK = BACKWARD_BLOCK, PANELS = BLOCK / LANES };
enum { GROUP = 256 }; /* key blocks of a group: at 2^24 keys there are as many groups as blocks in a group */

struct backward {
    const struct op_attrs *attrs;
    struct turns t;
    struct rows q, k, v, go, dq, dk, dv; /* head is set per use */
    const float *lse_in, *delta_in;      /* [hq][lse_stride], [sq][hq] */
    int64_t lse_stride;                  /* rows of the whole call */
    int accumulate;
    int64_t d, w;                      /* widths of q and k, and of v and do */
    int64_t panel_stride, head_stride; /* floats of a panel, and of a head, of q and k */
    int64_t go_panel, go_head;         /* floats of a panel, and of a head, of do */
    float *qt, *got, *dqt;             /* [batch][q_blocks * PANELS][d + PAD][LANES]: q * scale * log2(e), do, dq / scale */
    float *lse, *delta;                /* [batch][q_blocks * BLOCK]; lse in units of log2; 0 if there is no key or row */
};

/* One thread's scratch for a key block. */
struct keys {
    float *k, *v, *k_columns; /* quads, quads, columns of BLOCK keys */
    float *dkt, *dvt;         /* [PANELS][d][LANES] */
    float *dst;               /* [PANELS query panels][BLOCK keys][LANES queries]: dS^T of a query block */
    float *p, *ds;            /* [BLOCK queries][LANES keys]: P and dS of one panel of keys */
    float *s, *dp;            /* [LANES keys][LANES queries] */
};

static int64_t scratch_floats(int64_t d, int64_t w)
{
    return BLOCK * (3 * d + 2 * w) + PANELS * BLOCK * LANES + 2 * BLOCK * LANES + 2 * LANES * LANES;
}

static struct keys keys_of(float *base, int64_t d, int64_t w)
{
    struct keys x = {.k = base + omp_get_thread_num() * scratch_floats(d, w)};
    x.v = x.k + BLOCK * d;
    x.k_columns = x.v + BLOCK * w;
    x.dkt = x.k_columns + BLOCK * d;
    x.dvt = x.dkt + BLOCK * d;
    x.dst = x.dvt + BLOCK * w;
    x.p = x.dst + PANELS * BLOCK * LANES;
    x.ds = x.p + BLOCK * LANES;
    x.s = x.ds + BLOCK * LANES;
    x.dp = x.s + LANES * LANES;
    return x;
}

/* Lays out the shared areas from `work` on; *end: start of the threads' scratch. */
static struct backward layout(const struct op_attrs *attrs, void *work, float **end)
{
    const int64_t d = attrs->attn.head_dim;
    struct backward b = {.attrs = attrs, .d = d, .w = op_value_dim(attrs), .t = turns_of(attrs, BLOCK, LANES)};
    b.panel_stride = (d + PAD) * LANES;
    b.head_stride = b.t.q_blocks * PANELS * b.panel_stride;
    b.go_panel = (b.w + PAD) * LANES;
    b.go_head = b.t.q_blocks * PANELS * b.go_panel;
    const int64_t rows = b.t.q_blocks * BLOCK;
    b.qt = work;
    b.got = b.qt + b.t.batch * b.head_stride;
    b.dqt = b.got + b.t.batch * b.go_head;
    b.lse = b.dqt + b.t.batch * b.head_stride;
    b.delta = b.lse + b.t.batch * rows;
    *end = (float *)attn_align(turns_layout(&b.t, b.delta + b.t.batch * rows));
    return b;
}

int64_t KERNEL(backward_workspace)(const struct op_attrs *attrs, int threads)
{
    float *end;
    struct backward b = layout(attrs, (void *)(uintptr_t)ATTN_ALIGN, &end);
    return (int64_t)(uintptr_t)end + threads * scratch_floats(b.d, b.w) * 4;
}

/* Packs query block i of a head, with its lse and delta, which come in other layouts; zeroes its dq. */
static void prepare_queries(const void *call, int64_t slot, int64_t head, int64_t i)
{
    const struct backward *b = call;
    const int64_t row = i * BLOCK, n = min_i64(BLOCK, b->t.mask.sq - row), at = slot * b->t.q_blocks * BLOCK + row;
    if (cpu_stops(b->t.stream))
        return;
    struct rows q = b->q, go = b->go;
    q.head = go.head = head;
    for (int64_t p = 0; p * LANES < n; p++) {
        int64_t to = slot * b->head_stride + (i * PANELS + p) * b->panel_stride, m = min_i64(LANES, n - p * LANES);
        pack_lanes(b->qt + to, &q, row + p * LANES, m, (float)((double)b->attrs->attn.scale * 1.4426950408889634));
        pack_lanes(b->got + slot * b->go_head + (i * PANELS + p) * b->go_panel, &go, row + p * LANES, m, 1);
        memset(b->dqt + to, 0, (size_t)(b->d * LANES) * 4);
    }
    for (int64_t r = 0; r < BLOCK; r++) {
        float lse = r < n ? b->lse_in[head * b->lse_stride + row + r] : 0;
        b->lse[at + r] = lse == -INFINITY ? 0 : (float)(lse * 1.4426950408889634);
        b->delta[at + r] = r < n ? b->delta_in[(row + r) * b->q.heads + head] : 0;
    }
    atomic_store_explicit(b->t.q_ticket + slot * b->t.q_blocks + i, b->t.first_block[i], memory_order_relaxed);
    for (int64_t r = 0; r < n && b->t.first_block[i] == b->t.end_block[i]; r++)
        memset((float *)(uintptr_t)b->dq.x + ((row + r) * b->dq.heads + head) * b->d, 0, (size_t)b->d * 4);
}

/* Transposes a [WIDTH][WIDTH] square; both squares' rows lie LANES floats apart. */
static inline SIMD void transpose_square(const float *from, float *to)
{
    vf r[WIDTH];
    for (int64_t i = 0; i < WIDTH; i++)
        r[i] = vf_load(from + i * LANES);
    vf_transpose(r);
    for (int64_t i = 0; i < WIDTH; i++)
        vf_store(to + i * LANES, r[i]);
}

/* Computes P and dS of a panel of queries x a panel of keys from S^T and dP^T. s becomes P^T and dst dS^T (key-major), p and ds
 * are query-major. */
static inline SIMD void panel_gradient(float *s, const float *dp, const float *lse, const float *delta, const int32_t *from,
                                       const int32_t *to, int64_t key, int masked, float cap, float *dst, float *p, float *ds)
{
    const vf c = vf_set((float)((double)cap * LOG2_E)), inverse = vf_set(cap != 0 ? (float)(1 / ((double)cap * LOG2_E)) : 0.0f);
    for (int64_t lane = 0; lane < LANES; lane += WIDTH) {
        const vf l = vf_load(lse + lane), e = vf_load(delta + lane);
        const vi f = vi_load(from + lane);
        const vi t = vi_load(to + lane);
        for (int64_t j = 0; j < LANES; j += WIDTH) {
            for (int64_t i = j; i < j + WIDTH; i++) {
                const int64_t at = i * LANES + lane;
                vf score = vf_load(s + at), slope = vf_set(1.0f);
                if (cap != 0) {
                    const vf turned = vf_tanh(score * inverse);
                    score = c * turned;
                    slope = slope - turned * turned;
                }
                vf pr = vf_exp2(score - l);
                if (masked)
                    pr = vf_keep(vi_contains(f, t, key + i), pr);
                vf_store(s + at, pr);
                vf gradient = pr * (vf_load(dp + at) - e);
                if (cap != 0)
                    gradient = slope * gradient;
                vf_store(dst + at, gradient);
            }
            transpose_square(s + j * LANES + lane, p + lane * LANES + j);
            transpose_square(dst + j * LANES + lane, ds + lane * LANES + j);
        }
    }
}

static SIMD void panel_gradient_masked(float *s, const float *dp, const float *lse, const float *delta, const int32_t *from,
                                       const int32_t *to, int64_t key, float *dst, float *p, float *ds)
{
    panel_gradient(s, dp, lse, delta, from, to, key, 1, 0, dst, p, ds);
}

static SIMD void panel_gradient_whole(float *s, const float *dp, const float *lse, const float *delta, const int32_t *from,
                                      const int32_t *to, int64_t key, float *dst, float *p, float *ds)
{
    panel_gradient(s, dp, lse, delta, from, to, key, 0, 0, dst, p, ds);
}

static SIMD void panel_gradient_capped(float *s, const float *dp, const float *lse, const float *delta, const int32_t *from,
                                       const int32_t *to, int64_t key, float cap, float *dst, float *p, float *ds)
{
    panel_gradient(s, dp, lse, delta, from, to, key, 1, cap, dst, p, ds);
}

/* Adds query block i's part to dv and dk of panel kp of key block j; leaves dS^T in x->dst. */
static void key_panel(const struct backward *b, const struct keys *x, int64_t slot, int64_t i, int64_t j, int64_t kp)
{
    const int64_t d = b->d, w = b->w, key = j * BLOCK + kp * LANES, row = i * BLOCK;
    int64_t first, end;
    turns_queries(&b->t, i, key, &first, &end);
    for (int64_t q = first; q < end; q++) {
        const int64_t r = row + q * LANES, panel = slot * b->head_stride + (i * PANELS + q) * b->panel_stride;
        const int64_t at = slot * b->t.q_blocks * BLOCK + r;
        const float *go = b->got + slot * b->go_head + (i * PANELS + q) * b->go_panel;
        for (int64_t t = 0; t < LANES; t += ROWS)
            tile(d, x->k + (kp * LANES + t) * d, b->qt + panel, x->s + t * LANES, 0);
        for (int64_t t = 0; t < LANES; t += ROWS)
            tile(w, x->v + (kp * LANES + t) * w, go, x->dp + t * LANES, 0);
        float *dst = x->dst + (q * BLOCK + kp * LANES) * LANES, *p = x->p + q * LANES * LANES, *ds = x->ds + q * LANES * LANES;
        const int whole = r + LANES <= b->t.mask.sq && mask_covers(&b->t.mask, r, r + LANES, key, key + LANES);
        if (b->attrs->attn.cap != 0) {
            panel_gradient_capped(x->s, x->dp, b->lse + at, b->delta + at, b->t.from + r, b->t.to + r, key, b->attrs->attn.cap,
                                  dst, p, ds);
            continue;
        }
        (whole ? panel_gradient_whole : panel_gradient_masked)(x->s, x->dp, b->lse + at, b->delta + at, b->t.from + r,
                                                               b->t.to + r, key, dst, p, ds);
    }
    if (first == end)
        return;
    const int64_t panel = slot * b->head_stride + (i * PANELS + first) * b->panel_stride, at = first * LANES * LANES;
    const float *go = b->got + slot * b->go_head + (i * PANELS + first) * b->go_panel;
    for (int64_t c = 0; c < w; c += ROWS)
        tile_lanes(end - first, go + c * LANES, b->go_panel, x->p + at, x->dvt + (kp * w + c) * LANES, 1);
    for (int64_t c = 0; c < d; c += ROWS)
        tile_lanes(end - first, b->qt + panel + c * LANES, b->panel_stride, x->ds + at, x->dkt + (kp * d + c) * LANES, 1);
}

/* Adds key block j's part to dq of panel qp of query block i. */
static void query_panel(const struct backward *b, const struct keys *x, int64_t slot, int64_t i, int64_t j, int64_t qp)
{
    const int64_t d = b->d, row = i * BLOCK + qp * LANES;
    int64_t first, end;
    turns_keys(&b->t, row, j, &first, &end);
    if (first == end)
        return;
    float *dqt = b->dqt + slot * b->head_stride + (i * PANELS + qp) * b->panel_stride;
    for (int64_t c = 0; c < d; c += ROWS)
        tile((end - first) * LANES, x->k_columns + c * BLOCK + first * LANES * ROWS,
             x->dst + (qp * BLOCK + first * LANES) * LANES, dqt + c * LANES, 1);
}

static void store_panels(const struct rows *out, const float *panels, int64_t stride, float factor, int64_t row, int64_t n,
                         int add)
{
    float f[LANES];
    for (int i = 0; i < LANES; i++)
        f[i] = factor;
    for (int64_t p = 0; p * LANES < n; p++)
        unpack_lanes(out, panels + p * stride, f, row + p * LANES, min_i64(LANES, n - p * LANES), add);
}

/* Adds query block i's part to dq at the end of a group of key blocks, of which j is the last. */
static void store_queries(const struct backward *b, int64_t slot, int64_t head, int64_t i, int64_t j)
{
    float *dqt = b->dqt + slot * b->head_stride + i * PANELS * b->panel_stride;
    struct rows dq = b->dq;
    dq.head = head;
    store_panels(&dq, dqt, b->panel_stride, b->attrs->attn.scale, i * BLOCK, min_i64(BLOCK, b->t.mask.sq - i * BLOCK),
                 j / GROUP > b->t.first_block[i] / GROUP);
    memset(dqt, 0, (size_t)(PANELS * b->panel_stride) * 4);
}

static void block_pair(const struct backward *b, const struct keys *x, int64_t slot, int64_t head, int64_t i, int64_t j)
{
    for (int64_t kp = 0; kp < PANELS; kp++)
        key_panel(b, x, slot, i, j, kp);
    ticket *turn = b->t.q_ticket + slot * b->t.q_blocks + i;
    if (!take_turn(&b->t, turn, (int32_t)j))
        return;
    for (int64_t qp = 0; qp < PANELS; qp++)
        query_panel(b, x, slot, i, j, qp);
    if (j + 1 == b->t.end_block[i] || (j + 1) % GROUP == 0)
        store_queries(b, slot, head, i, j);
    pass_turn(turn, (int32_t)(j + 1));
}

static void load_keys(const struct backward *b, const struct keys *x, int64_t kv, int64_t key, int64_t n)
{
    struct rows k = b->k, v = b->v;
    k.head = v.head = kv;
    pack_quads(x->k, &k, key, n);
    pack_quads(x->v, &v, key, n);
    pack_columns(x->k_columns, BLOCK, &k, key, n);
}

static void backward_task(const void *call, const void *scratch, int64_t first_head, int64_t slot, int64_t j)
{
    const struct backward *b = call;
    const struct keys *x = scratch;
    const int64_t head = first_head + slot, kv = head / b->t.group, key = j * BLOCK, n = min_i64(BLOCK, b->t.mask.sk - key);
    int touched = 0;
    for (int64_t i = b->t.q_blocks - 1; i >= 0; i--) {
        if (j < b->t.first_block[i] || j >= b->t.end_block[i])
            continue;
        if (cpu_stops(b->t.stream))
            return;
        if (!touched) {
            load_keys(b, x, kv, key, n);
            memset(x->dkt, 0, (size_t)(BLOCK * (b->d + b->w)) * 4); /* and dvt */
        }
        touched = 1;
        block_pair(b, x, slot, head, i, j);
    }
    struct rows dk = b->dk, dv = b->dv;
    dk.head = dv.head = kv;
    const int add = b->accumulate || head % b->t.group > 0;
    ticket *turn = b->t.k_ticket + (kv - first_head / b->t.group) * b->t.k_blocks + j;
    if (!take_turn(&b->t, turn, (int32_t)head))
        return;
    if (!touched && !add)
        memset(x->dkt, 0, (size_t)(BLOCK * (b->d + b->w)) * 4);
    if (touched || !add) {
        store_panels(&dk, x->dkt, b->d * LANES, 0.69314718f, key, n, add); /* log2(e) was folded into q */
        store_panels(&dv, x->dvt, b->w * LANES, 1, key, n, add);
    }
    pass_turn(turn, (int32_t)(head + 1));
}

/* Returns the rows from `row` on, in the storage type of x. */
static struct rows rows_from(const void *x, int64_t row, int64_t heads, int64_t d, int32_t type)
{
    return (struct rows){(const char *)x + row * heads * d * dtype_size((enum dtype)type), heads, 0, d, type};
}

/* Computes the gradients from query rows [row, row + SEGMENT). dk and dv of later segments add to those of earlier ones, in
 * order. */
static void backward_segment(const struct op_attrs *attrs, void *const *arg, int64_t row, const struct cpu_stream *stream)
{
    const int64_t hq = attrs->attn.hq, hk = attrs->attn.hk, d = attrs->attn.head_dim, w = op_value_dim(attrs);
    const int32_t t = attrs->attn.dtype;
    float *scratch;
    struct backward b = layout(attrs, attn_align(arg[11]), &scratch);
    turns_take(&b.t, attrs, arg, row, stream);
    b.delta_in = (const float *)arg[6] + row * hq;
    b.lse_in = (const float *)arg[7] + row;
    b.lse_stride = attrs->attn.sq;
    b.accumulate = attrs->attn.accumulate || row > 0;
    b.q = rows_from(arg[3], row, hq, d, t), b.k = rows_from(arg[4], 0, hk, d, t), b.v = rows_from(arg[5], 0, hk, w, t);
    b.go = rows_from(arg[8], row, hq, w, t);
    b.dq = rows_from(arg[0], row, hq, d, F32), b.dk = rows_from(arg[1], 0, hk, d, F32), b.dv = rows_from(arg[2], 0, hk, w, F32);
#pragma omp parallel num_threads(stream->threads)
    {
        struct keys x = keys_of(scratch, d, w);
        turns_run(&b.t, hq, prepare_queries, backward_task, &b, &x);
    }
}

void KERNEL(backward)(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    for (int64_t row = 0; row < attrs->attn.sq && !cpu_stops(stream); row += SEGMENT)
        backward_segment(attrs, arg, row, stream);
}
