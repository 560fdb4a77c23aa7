/* Attention backward of BF16 for AMX: as panels_backward.c, with P and dS rounded to bf16 for the products that take them.
 *
 * A batch of query heads at a time (one, at long S): Q and dO are packed into `work` in the two forms that products take, and
 * dQ^T accumulates there. A task is one key block of one head, against all query blocks it touches, from the last to the first:
 *
 *   for each 32 keys, for each 32 queries:   S^T = K Q^T, dP^T = V dO^T,  P = 2^(S - lse),  dS = P (dP - delta)
 *                                    then:   dV += P^T dO,  dK += dS^T Q
 *   then, when every earlier key block has added its part:     dQ^T += K^T dS^T
 *
 * Sums over millions of keys or queries run row by row in fp32, as in amx_forward.c, over at most GROUP blocks. dQ of a group is
 * added to the output; dK and dV of a group to those of the task's earlier ones.
 *
 * Tasks and turns: turns.h. */
#include "attention/amx.h"
#include "attention/turns.h"

#include <math.h>
#include <omp.h>

enum { BLOCK = 256, SPANS = BLOCK / SPAN };
enum { GROUP = 64 }; /* most blocks of keys (for dQ) or of queries (for dK, dV) in a group; as in amx_forward.c */

struct backward {
    const struct op_attrs *attrs;
    struct turns t;
    struct amx_rows q, k, v, go; /* head is set per use */
    float *dq, *dk, *dv;
    const float *lse_in, *delta_in; /* [hq][lse_stride], [sq][hq] */
    int64_t lse_stride;             /* rows of the whole call */
    int accumulate;
    int64_t dp, wp;               /* packed widths of q and k, and of v and go */
    char *q_columns, *go_columns; /* [batch][q_blocks] right columns */
    char *q_rows, *go_rows;       /* [batch][q_blocks] right rows of BLOCK */
    float *dqt;                   /* [batch][q_blocks][dp/16][BLOCK/16] tiles of 16 columns x 16 queries */
    float *lse, *delta;           /* [batch][q_blocks * BLOCK]; lse in units of log2; 0 if there is no key or row */
    float scale;
};

/* One thread's scratch for a key block; left and right rows and columns are the forms of packed matrices in amx.h. */
struct keys {
    char *k, *v, *k_columns; /* left rows, left rows, left columns: forms of amx.h */
    float *dk, *dv;          /* [BLOCK][dp], [BLOCK][wp] */
    float *sum;              /* sums of the groups before, in the layout of dk and dv */
    char *ds;                /* right rows: [BLOCK/16 of queries][SPANS of keys] */
    char *pt, *dst;          /* left rows of 32 keys: [2 of keys][SPANS of queries] */
    float *s, *dp;           /* [SPAN keys][SPAN queries] */
};

static int64_t scratch_bytes(int64_t dp, int64_t wp)
{
    return BLOCK * (dp * (2 * 2 + 2 * 4) + wp * (2 + 2 * 4)) + BLOCK * BLOCK * 2 + 2 * SPAN * BLOCK * 2 + 2 * SPAN * SPAN * 4;
}

static struct keys keys_of(char *base, int64_t dp, int64_t wp)
{
    struct keys x = {.k = base + omp_get_thread_num() * scratch_bytes(dp, wp)};
    x.v = x.k + BLOCK * dp * 2;
    x.k_columns = x.v + BLOCK * wp * 2;
    x.dk = (void *)(x.k_columns + BLOCK * dp * 2);
    x.dv = x.dk + BLOCK * dp;
    x.sum = x.dv + BLOCK * wp;
    x.ds = (char *)(x.sum + BLOCK * (dp + wp));
    x.pt = x.ds + BLOCK * BLOCK * 2;
    x.dst = x.pt + SPAN * BLOCK * 2;
    x.s = (void *)(x.dst + SPAN * BLOCK * 2);
    x.dp = x.s + SPAN * SPAN;
    return x;
}

/* Lays out the shared areas from `work` on; *end: start of the threads' scratch. */
static struct backward layout(const struct op_attrs *attrs, void *work, char **end)
{
    struct backward b = {.attrs = attrs,
                         .dp = round_up(attrs->attn.head_dim, SPAN),
                         .wp = round_up(op_value_dim(attrs), SPAN),
                         .t = turns_of(attrs, BLOCK, SPAN)};
    const int64_t rows = b.t.batch * b.t.q_blocks * BLOCK;
    b.q_columns = work;
    b.go_columns = b.q_columns + rows * b.dp * 2;
    b.q_rows = b.go_columns + rows * b.wp * 2;
    b.go_rows = b.q_rows + rows * b.dp * 2;
    b.dqt = (void *)(b.go_rows + rows * b.wp * 2);
    b.lse = b.dqt + rows * b.dp;
    b.delta = b.lse + rows;
    *end = attn_align(turns_layout(&b.t, b.delta + rows));
    return b;
}

int64_t amx_backward_workspace(const struct op_attrs *attrs, int threads)
{
    char *end;
    const struct backward b = layout(attrs, (void *)(uintptr_t)ATTN_ALIGN, &end);
    return (int64_t)(uintptr_t)end + threads * scratch_bytes(b.dp, b.wp);
}

/* Returns the number of the packed row for `row` of the head in a slot of the batch. */
static int64_t packed_row(const struct backward *b, int64_t slot, int64_t row)
{
    return slot * b->t.q_blocks * BLOCK + row;
}

/* Packs query block i of a head, with its lse and delta, which come in other layouts; zeroes its dq. */
static void prepare_queries(const void *call, int64_t slot, int64_t head, int64_t i)
{
    const struct backward *b = call;
    const int64_t row = i * BLOCK, n = min_i64(BLOCK, b->t.mask.sq - row), at = packed_row(b, slot, row), d = b->q.d;
    if (cpu_stops(b->t.stream))
        return;
    struct amx_rows q = b->q, go = b->go;
    q.head = go.head = head;
    amx_pack_rows(b->q_columns + at * b->dp * 2, &q, row, n, SPAN, 1);
    amx_pack_rows(b->go_columns + at * b->wp * 2, &go, row, n, SPAN, 1);
    amx_pack_pairs(b->q_rows + at * b->dp * 2, &q, row, n, SPAN, BLOCK, 0);
    amx_pack_pairs(b->go_rows + at * b->wp * 2, &go, row, n, SPAN, BLOCK, 0);
    memset(b->dqt + at * b->dp, 0, (size_t)(BLOCK * b->dp) * 4);
    for (int64_t r = 0; r < BLOCK; r++) {
        float lse = r < n ? b->lse_in[head * b->lse_stride + row + r] : 0;
        b->lse[at + r] = lse == -INFINITY ? 0 : (float)(lse * 1.4426950408889634);
        b->delta[at + r] = r < n ? b->delta_in[(row + r) * b->q.heads + head] : 0;
    }
    atomic_store_explicit(b->t.q_ticket + slot * b->t.q_blocks + i, b->t.first_block[i], memory_order_relaxed);
    for (int64_t r = 0; r < n && b->t.first_block[i] == b->t.end_block[i]; r++)
        memset(b->dq + ((row + r) * b->q.heads + head) * d, 0, (size_t)d * 4);
}

/* Computes P and dS of 32 keys x 32 queries from S^T and dP^T. Stores P^T and dS^T as tiles of keys, dS as tiles of pairs of
 * keys. */
static inline AMX void span_gradient(const float *s, const float *dp, float factor, const float *lse, const float *delta,
                                     const int32_t *from, const int32_t *to, int64_t key, int masked, float cap, char *pt,
                                     char *dst, char *ds)
{
    const vf scale = vf_set(factor), inverse = vf_set(cap != 0 ? 1 / cap : 0.0f), c = vf_set(factor * cap);
    for (int64_t i = 0; i < SPAN; i += 2) {
        vf p[2][2], g[2][2];
        for (int64_t j = 0; j < 2; j++)
            for (int64_t h = 0; h < 2; h++) {
                const int64_t lane = h * WIDTH, at = (i + j) * SPAN + lane;
                vf turned = vf_set(0);
                if (cap != 0) {
                    turned = vf_tanh(vf_load(s + at) * inverse);
                    p[j][h] = vf_exp2(_mm512_fmsub_ps(turned, c, vf_load(lse + lane)));
                } else {
                    p[j][h] = vf_exp2(_mm512_fmsub_ps(vf_load(s + at), scale, vf_load(lse + lane)));
                }
                if (masked)
                    p[j][h] = vf_keep(vi_contains(vi_load(from + lane), vi_load(to + lane), key + i + j), p[j][h]);
                g[j][h] = p[j][h] * (vf_load(dp + at) - vf_load(delta + lane));
                if (cap != 0)
                    g[j][h] = g[j][h] * (vf_set(1.0f) - turned * turned);
            }
        /* the rows of a tile are 16 keys; the tile of the next 16 keys lies SPANS tiles further on */
        for (int64_t j = 0; j < 2; j++) {
            const int64_t at = (i + j) / SIDE * SPANS * TILE + (i + j) % SIDE * 64;
            _mm512_store_si512(pt + at, (vi)_mm512_cvtne2ps_pbh(p[j][1], p[j][0]));
            _mm512_store_si512(dst + at, (vi)_mm512_cvtne2ps_pbh(g[j][1], g[j][0]));
        }
        for (int64_t h = 0; h < 2; h++)
            _mm512_store_si512(ds + h * SPANS * TILE + i / 2 * 64, amx_zip(g[0][h], g[1][h]));
    }
}

static AMX void span_gradient_masked(const float *s, const float *dp, float factor, const float *lse, const float *delta,
                                     const int32_t *from, const int32_t *to, int64_t key, char *pt, char *dst, char *ds)
{
    span_gradient(s, dp, factor, lse, delta, from, to, key, 1, 0, pt, dst, ds);
}

static AMX void span_gradient_whole(const float *s, const float *dp, float factor, const float *lse, const float *delta,
                                    const int32_t *from, const int32_t *to, int64_t key, char *pt, char *dst, char *ds)
{
    span_gradient(s, dp, factor, lse, delta, from, to, key, 0, 0, pt, dst, ds);
}

static AMX void span_gradient_capped(const float *s, const float *dp, float factor, const float *lse, const float *delta,
                                     const int32_t *from, const int32_t *to, int64_t key, float cap, char *pt, char *dst,
                                     char *ds)
{
    span_gradient(s, dp, factor, lse, delta, from, to, key, 1, cap, pt, dst, ds);
}

/* Computes S^T and dP^T of 32 keys and the 32 queries that are packed from row `at` on. */
static inline AMX void span_scores(const struct backward *b, const struct keys *x, int64_t kp, int64_t at)
{
    const int64_t k_tiles = b->dp / SPAN * TILE, v_tiles = b->wp / SPAN * TILE, row = SPAN * 4;
    amx_product(b->dp / SPAN, x->k + kp * 2 * k_tiles, k_tiles, b->q_columns + at * b->dp * 2, k_tiles, (char *)x->s, row,
                SIDE * row, SIDE * 4, 0);
    amx_product(b->wp / SPAN, x->v + kp * 2 * v_tiles, v_tiles, b->go_columns + at * b->wp * 2, v_tiles, (char *)x->dp, row,
                SIDE * row, SIDE * 4, 0);
}

/* Adds query block i's part to dv and dk of 32 keys (the kp-th span of key block j); leaves dS in x->ds. */
static AMX void key_span(const struct backward *b, const struct keys *x, int64_t slot, int64_t i, int64_t j, int64_t kp)
{
    const int64_t dp = b->dp, wp = b->wp, key = j * BLOCK + kp * SPAN, row = i * BLOCK, block = packed_row(b, slot, row);
    int64_t first, end;
    turns_queries(&b->t, i, key, &first, &end);
    for (int64_t q = first; q < end; q++) {
        const int64_t r = row + q * SPAN, at = block + q * SPAN;
        const int whole = r + SPAN <= b->t.mask.sq && mask_covers(&b->t.mask, r, r + SPAN, key, key + SPAN);
        span_scores(b, x, kp, at);
        if (b->attrs->attn.cap != 0) {
            span_gradient_capped(x->s, x->dp, b->scale, b->lse + at, b->delta + at, b->t.from + r, b->t.to + r, key,
                                 b->attrs->attn.cap / b->attrs->attn.scale, x->pt + q * TILE, x->dst + q * TILE,
                                 x->ds + (q * 2 * SPANS + kp) * TILE);
            continue;
        }
        (whole ? span_gradient_whole : span_gradient_masked)(x->s, x->dp, b->scale, b->lse + at, b->delta + at, b->t.from + r,
                                                             b->t.to + r, key, x->pt + q * TILE, x->dst + q * TILE,
                                                             x->ds + (q * 2 * SPANS + kp) * TILE);
    }
    if (first == end)
        return;
    for (int64_t c = 0; c < wp; c += SPAN)
        amx_product(end - first, x->pt + first * TILE, SPANS * TILE,
                    b->go_rows + block * wp * 2 + (c / SIDE * SPANS + first) * TILE, SPANS * TILE,
                    (char *)(x->dv + kp * SPAN * wp + c), wp * 4, SIDE * wp * 4, SIDE * 4, 1);
    for (int64_t c = 0; c < dp; c += SPAN)
        amx_product(end - first, x->dst + first * TILE, SPANS * TILE,
                    b->q_rows + block * dp * 2 + (c / SIDE * SPANS + first) * TILE, SPANS * TILE,
                    (char *)(x->dk + kp * SPAN * dp + c), dp * 4, SIDE * dp * 4, SIDE * 4, 1);
}

/* Adds key block j's part to dq of 32 queries (the qp-th span of query block i). */
static AMX void query_span(const struct backward *b, const struct keys *x, int64_t slot, int64_t i, int64_t j, int64_t qp)
{
    const int64_t row = i * BLOCK + qp * SPAN;
    int64_t first, end;
    turns_keys(&b->t, row, j, &first, &end);
    if (first == end)
        return;
    char *dqt = (char *)(b->dqt + packed_row(b, slot, i * BLOCK) * b->dp) + qp * 2 * TILE;
    for (int64_t c = 0; c < b->dp / SIDE; c += 2)
        amx_product(end - first, x->k_columns + (c * SPANS + first) * TILE, SPANS * TILE, x->ds + (qp * 2 * SPANS + first) * TILE,
                    SPANS * TILE, dqt + c * (BLOCK / SIDE) * TILE, 64, BLOCK / SIDE * TILE, TILE, 1);
}

/* Adds query block i's part to dq at the end of a group of key blocks, of which j is the last. */
static AMX void store_queries(const struct backward *b, int64_t slot, int64_t head, int64_t i, int64_t j)
{
    const int64_t row = i * BLOCK, n = min_i64(BLOCK, b->t.mask.sq - row), d = b->q.d;
    float *dqt = b->dqt + packed_row(b, slot, row) * b->dp;
    const int add = j / GROUP > b->t.first_block[i] / GROUP;
    for (int64_t q = 0; q < n; q += SIDE)
        for (int64_t c = 0; c < d; c += SIDE) {
            const float *tile = dqt + (c / SIDE * (BLOCK / SIDE) + q / SIDE) * (SIDE * SIDE);
            const __mmask16 mask = (__mmask16)(0xffffu >> (SIDE - min_i64(SIDE, d - c)));
            vf r[SIDE];
            for (int64_t k = 0; k < SIDE; k++)
                r[k] = vf_load(tile + k * SIDE);
            vf_transpose(r);
            for (int64_t k = 0; k < min_i64(SIDE, n - q); k++) {
                float *to = b->dq + ((row + q + k) * b->q.heads + head) * d + c;
                vf part = r[k] * vf_set(b->attrs->attn.scale);
                if (add)
                    part = part + _mm512_maskz_loadu_ps(mask, to);
                _mm512_mask_storeu_ps(to, mask, part);
            }
        }
    memset(dqt, 0, (size_t)(BLOCK * b->dp) * 4);
}

/* Stores rows [row, row + n) of dk or dv, of the shape of `of`, times factor; adds to them if `add`. x has rows of the packed
 * width. */
static AMX void store_keys(const struct amx_rows *of, float *out, const float *x, float factor, int64_t kv, int64_t row,
                           int64_t n, int add)
{
    const int64_t width = of->d, padded = round_up(width, SPAN);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < width; c += SIDE) {
            float *to = out + ((row + i) * of->heads + kv) * width + c;
            const __mmask16 mask = (__mmask16)(0xffffu >> (SIDE - min_i64(SIDE, width - c)));
            vf v = vf_load(x + i * padded + c) * vf_set(factor);
            if (add)
                v = v + _mm512_maskz_loadu_ps(mask, to);
            _mm512_mask_storeu_ps(to, mask, v);
        }
}

/* Adds the sums of a group of query blocks to those of earlier groups. dk and dv are adjacent in memory, as are their sums. */
static AMX void group_keys(const struct backward *b, const struct keys *x)
{
    for (int64_t i = 0; i < BLOCK * (b->dp + b->wp); i += SIDE) {
        vf_store(x->sum + i, vf_load(x->sum + i) + vf_load(x->dk + i));
        vf_store(x->dk + i, vf_set(0));
    }
}

static void block_pair(const struct backward *b, const struct keys *x, int64_t slot, int64_t head, int64_t i, int64_t j)
{
    for (int64_t kp = 0; kp < SPANS; kp++)
        key_span(b, x, slot, i, j, kp);
    ticket *turn = b->t.q_ticket + slot * b->t.q_blocks + i;
    if (!take_turn(&b->t, turn, (int32_t)j))
        return;
    for (int64_t qp = 0; qp < SPANS; qp++)
        query_span(b, x, slot, i, j, qp);
    if (j + 1 == b->t.end_block[i] || (j + 1) % GROUP == 0)
        store_queries(b, slot, head, i, j);
    pass_turn(turn, (int32_t)(j + 1));
}

static void load_keys(const struct backward *b, const struct keys *x, int64_t kv, int64_t key, int64_t n)
{
    struct amx_rows k = b->k, v = b->v;
    k.head = v.head = kv;
    amx_pack_rows(x->k, &k, key, n, SPAN, 0);
    amx_pack_rows(x->v, &v, key, n, SPAN, 0);
    amx_pack_pairs(x->k_columns, &k, key, n, SPAN, BLOCK, 1);
}

static void backward_task(const void *call, const void *scratch, int64_t first_head, int64_t slot, int64_t j)
{
    const struct backward *b = call;
    const struct keys *x = scratch;
    const int64_t head = first_head + slot, kv = head / b->t.group, key = j * BLOCK, n = min_i64(BLOCK, b->t.mask.sk - key);
    int64_t touched = 0; /* number of query blocks that the task has processed */
    for (int64_t i = b->t.q_blocks - 1; i >= 0; i--) {
        if (j < b->t.first_block[i] || j >= b->t.end_block[i])
            continue;
        if (cpu_stops(b->t.stream))
            return;
        if (!touched) {
            load_keys(b, x, kv, key, n);
            memset(x->dk, 0, (size_t)(2 * BLOCK * (b->dp + b->wp)) * 4); /* clears dk, dv and their sums, which are adjacent */
        }
        block_pair(b, x, slot, head, i, j);
        if (++touched % GROUP == 0)
            group_keys(b, x);
    }
    const int add = b->accumulate || head % b->t.group > 0;
    ticket *turn = b->t.k_ticket + (kv - first_head / b->t.group) * b->t.k_blocks + j;
    if (!take_turn(&b->t, turn, (int32_t)head))
        return;
    if (touched)
        group_keys(b, x);
    else if (!add)
        memset(x->sum, 0, (size_t)(BLOCK * (b->dp + b->wp)) * 4);
    if (touched || !add) {
        store_keys(&b->k, b->dk, x->sum, b->attrs->attn.scale, kv, key, n, add);
        store_keys(&b->v, b->dv, x->sum + BLOCK * b->dp, 1, kv, key, n, add);
    }
    pass_turn(turn, (int32_t)(head + 1));
}

/* Computes the gradients from query rows [row, row + SEGMENT). dk and dv of later segments add to those of earlier ones, in
 * order. */
static void backward_segment(const struct op_attrs *attrs, void *const *arg, int64_t row, const struct cpu_stream *stream)
{
    const int64_t hq = attrs->attn.hq, hk = attrs->attn.hk, d = attrs->attn.head_dim, w = op_value_dim(attrs);
    char *scratch;
    struct backward b = layout(attrs, attn_align(arg[11]), &scratch);
    turns_take(&b.t, attrs, arg, row, stream);
    b.delta_in = (const float *)arg[6] + row * hq;
    b.lse_in = (const float *)arg[7] + row;
    b.lse_stride = attrs->attn.sq;
    b.accumulate = attrs->attn.accumulate || row > 0;
    b.scale = (float)((double)attrs->attn.scale * 1.4426950408889634);
    b.q = (struct amx_rows){(const bf16 *)arg[3] + row * hq * d, hq, 0, d};
    b.k = (struct amx_rows){arg[4], hk, 0, d}, b.v = (struct amx_rows){arg[5], hk, 0, w};
    b.go = (struct amx_rows){(const bf16 *)arg[8] + row * hq * w, hq, 0, w};
    b.dq = (float *)arg[0] + row * hq * d, b.dk = arg[1], b.dv = arg[2];
#pragma omp parallel num_threads(stream->threads)
    {
        struct keys x = keys_of(scratch, b.dp, b.wp);
        amx_begin();
        turns_run(&b.t, hq, prepare_queries, backward_task, &b, &x);
        amx_end();
    }
}

void amx_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    for (int64_t row = 0; row < attrs->attn.sq && !cpu_stops(stream); row += SEGMENT)
        backward_segment(attrs, arg, row, stream);
}
