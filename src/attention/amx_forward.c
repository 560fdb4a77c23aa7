/* Attention forward of BF16 for AMX: as panels_forward.c, S^T = K Q^T and O^T = V^T P^T in panels of 32 queries. P is rounded to
 * bf16 for the second product. Scores are scaled later, and sums take unrounded values, in fp32.
 *
 * K and V of a batch of KV heads are packed once into `work`, K in the form of left rows and V of left columns (amx.h). A task is
 * a block of queries of one head, against all its key blocks.
 *
 * Sums over millions of keys: blocks' sums of p are added in fp64. O is summed key by key in fp32 for GROUP blocks, since only
 * memory could keep a block's sum apart; groups are added in fp64. The error is some 1e-4, where a bf16 output is off by 2e-3. */
#include "attention/amx.h"
#include "attention/mask.h"

#include <math.h>
#include <omp.h>

#define SLACK 24.0f        /* same as in panels_forward.c */
#define FAR_BEHIND 0x1p40f /* same as in panels_forward.c */
#define BATCH_ROWS 8192    /* same as in panels_forward.c */
#define NOTHING (-1e30f)   /* m before the first key */

enum { KEYS = 256, PANELS = 6 }; /* KEYS: keys of a block; PANELS: panels of queries of a task */
enum { GROUP = 64 };             /* key blocks: 16k keys; adding their sums takes about 1% of the time, more in smaller groups */

struct forward {
    struct mask mask;
    struct amx_rows q, k, v; /* head is set per use */
    void *o;
    enum dtype o_type;
    float *lse;
    char *packed_k, *packed_v;
    int64_t dp, wp, sk;              /* packed widths of keys and of values, and number of keys */
    int64_t k_bytes, v_bytes, batch; /* bytes of a packed head of K and of V; KV heads at a time */
    float scale;                     /* includes log2(e) */
    const struct cpu_stream *stream;
    float cap; /* soft cap divided by the attention scale, for scores not yet scaled; 0: none */
};

/* One thread's scratch: a block of queries and their state. */
struct panels {
    char *q;     /* [PANELS] right columns */
    float *o;    /* [PANELS][wp/16][2] tiles of 16 columns x 16 queries */
    double *sum; /* sums of the groups before, in o's layout; only if `grouped` */
    char *p;     /* right rows: [2][KEYS/32] tiles */
    float *s;    /* [KEYS][SPAN] */
    double l[PANELS][SPAN];
    float m[PANELS][SPAN];
    int32_t from[PANELS][SPAN], to[PANELS][SPAN];
    float factor[PANELS * SPAN];
    int grouped;
};

static int64_t scratch_bytes(int64_t dp, int64_t wp)
{
    return round_up((int64_t)sizeof(struct panels), ATTN_ALIGN) + PANELS * SPAN * (dp * 2 + wp * (4 + 8)) + KEYS * SPAN * (2 + 4);
}

static int64_t batch_of(const struct op_attrs *attrs)
{
    return max_i64(1, min_i64(attrs->attn.hk, BATCH_ROWS / max_i64(attrs->attn.sk, 1)));
}

int64_t amx_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    if (kind == OP_ATTN_BWD)
        return amx_backward_workspace(attrs, threads);
    const int64_t dp = round_up(attrs->attn.head_dim, SPAN), wp = round_up(op_value_dim(attrs), SPAN);
    const int64_t head = round_up(attrs->attn.sk, KEYS) * (dp + wp) * 2;
    return ATTN_ALIGN + batch_of(attrs) * head + threads * scratch_bytes(dp, wp);
}

/* Finds each lane's maximum over n rows of scaled s; masked scores become -inf first. */
static AMX void panel_maximum(const struct forward *f, float *s, int64_t n, int64_t key, const struct panels *x, int64_t p,
                              int masked, vf max[2])
{
    for (int i = 0; i < 2; i++) {
        const vi from = vi_load(&x->from[p][WIDTH * i]), to = vi_load(&x->to[p][WIDTH * i]);
        max[i] = vf_set(-INFINITY);
        for (int64_t j = 0; j < n; j++) {
            vf v = vf_load(s + j * SPAN + WIDTH * i);
            if (masked) {
                v = vf_select(vi_contains(from, to, key + j), v, vf_set(-INFINITY));
                vf_store(s + j * SPAN + WIDTH * i, v);
            }
            max[i] = vf_max(v * vf_set(f->scale), max[i]);
        }
    }
}

/* Raises m in lanes whose maximum outgrew it, and shrinks their sums accordingly. */
static AMX void panel_reference(const struct forward *f, struct panels *x, int64_t p, const vf max[2])
{
    int any = 0;
    for (int i = 0; i < 2; i++) {
        const vf m = vf_load(&x->m[p][WIDTH * i]);
        const vm outgrown = vf_greater(max[i], m + vf_set(SLACK));
        const vf moved = vf_select(outgrown, vf_ceil(max[i]), m);
        any |= vm_any(outgrown);
        vf_store(&x->m[p][WIDTH * i], moved);
        vf_store(&x->factor[WIDTH * i], vf_exp2_whole(m - moved));
    }
    if (!any)
        return;
    float *o = x->o + p * f->wp * SPAN;
    double *sum = x->sum + p * f->wp * SPAN;
    for (int64_t i = 0; i < SPAN; i++)
        x->l[p][i] *= (double)x->factor[i];
    /* one row of a tile: its 16 lanes are the first or the second half of the panel's queries */
    for (int64_t c = 0; c < f->wp * SPAN; c += SIDE) {
        const float *factor = &x->factor[c / (SIDE * SIDE) % 2 * SIDE];
        vf_store(o + c, vf_load(o + c) * vf_load(factor));
        for (int64_t i = 0; i < SIDE && x->grouped; i++)
            sum[c + i] *= (double)factor[i];
    }
}

/* Computes P = 2^(scale s - m) in bf16 of 32 keys, the step-th of a block, and adds it to the lanes' sums. */
static inline AMX void span_exp(const struct forward *f, const struct panels *x, int64_t p, const float *s, int64_t step,
                                int masked, vf sums[2])
{
    const vf scale = vf_set(f->scale);
    for (int i = 0; i < 2; i++, s += WIDTH) {
        const vf m = vf_load(&x->m[p][WIDTH * i]);
        char *to = x->p + (i * (KEYS / SPAN) + step) * TILE;
        vf even = vf_set(0), odd = vf_set(0);
        for (int64_t j = 0; j < SPAN; j += 2, to += 64) {
            const vf v = vf_load(s + j * SPAN), w = vf_load(s + (j + 1) * SPAN);
            vf a = vf_exp2(_mm512_fmsub_ps(v, scale, m)), b = vf_exp2(_mm512_fmsub_ps(w, scale, m));
            if (masked) {
                a = vf_keep(vf_unequal(v, vf_set(-INFINITY)), a);
                b = vf_keep(vf_unequal(w, vf_set(-INFINITY)), b);
            }
            even = even + a;
            odd = odd + b;
            _mm512_store_si512(to, amx_zip(a, b));
        }
        sums[i] = sums[i] + (even + odd);
    }
}

static AMX void panel_sums(struct panels *x, int64_t p, const vf sums[2])
{
    float f[SPAN];
    vf_store(f, sums[0]);
    vf_store(f + WIDTH, sums[1]);
    for (int64_t i = 0; i < SPAN; i++)
        x->l[p][i] += (double)f[i];
}

/* Tells whether every lane has an m, that is, has seen a key. */
static AMX int panel_started(const struct panels *x, int64_t p)
{
    return !vm_any(vf_greater(vf_set(0.5f * NOTHING), vf_load(&x->m[p][0]))) &&
           !vm_any(vf_greater(vf_set(0.5f * NOTHING), vf_load(&x->m[p][WIDTH])));
}

/* Computes S^T of panel p and 32 keys. */
static inline AMX void span_scores(const struct forward *f, int64_t kv, const struct panels *x, int64_t p, int64_t key, float *s)
{
    const int64_t tiles = f->dp / SPAN * TILE;
    amx_product(f->dp / SPAN, f->packed_k + kv * f->k_bytes + key * f->dp * 2, tiles, x->q + p * SPAN * f->dp * 2, tiles,
                (char *)s, SPAN * 4, SIDE * SPAN * 4, SIDE * 4, 0);
    if (f->cap == 0)
        return;
    const vf c = vf_set(f->cap), inverse = vf_set(1 / f->cap); /* caps the scores, which are scaled only later */
    for (int64_t i = 0; i < SPAN * SPAN; i += WIDTH)
        vf_store(s + i, c * vf_tanh(vf_load(s + i) * inverse));
}

/* Computes P of panel p and the keys [key, key_end) of one block, both multiples of 32, with the present m. Returns 1 if a sum
 * shows that m is too small. A span's scores stay in the L1 cache. */
static AMX int panel_unseen(const struct forward *f, int64_t kv, struct panels *x, int64_t p, int64_t key, int64_t key_end)
{
    vf sums[2] = {vf_set(0), vf_set(0)};
    for (int64_t step = 0, at = key; at < key_end; at += SPAN, step++) {
        span_scores(f, kv, x, p, at, x->s);
        span_exp(f, x, p, x->s, step, 0, sums);
    }
    if (vm_any(vf_not_less(sums[0], vf_set(FAR_BEHIND))) || vm_any(vf_not_less(sums[1], vf_set(FAR_BEHIND))))
        return 1;
    panel_sums(x, p, sums);
    return 0;
}

/* Computes P as panel_unseen does, but first raises m as the maxima require. */
static AMX void panel_scores(const struct forward *f, int64_t kv, struct panels *x, int64_t p, int64_t key, int64_t key_end,
                             int masked)
{
    vf max[2], sums[2] = {vf_set(0), vf_set(0)};
    for (int64_t at = key; at < key_end; at += SPAN)
        span_scores(f, kv, x, p, at, x->s + (at - key) * SPAN);
    panel_maximum(f, x->s, key_end - key, key, x, p, masked, max);
    panel_reference(f, x, p, max);
    for (int64_t at = key; at < key_end; at += SPAN)
        span_exp(f, x, p, x->s + (at - key) * SPAN, (at - key) / SPAN, masked, sums);
    panel_sums(x, p, sums);
}

static AMX void panel_block(const struct forward *f, int64_t kv, struct panels *x, int64_t p, int64_t key, int64_t key_end,
                            int masked)
{
    const int64_t block = key / KEYS * KEYS, column = KEYS / SPAN * TILE;
    const char *v = f->packed_v + kv * f->v_bytes + block * f->wp * 2 + (key - block) / SPAN * TILE;
    if (masked || !panel_started(x, p) || panel_unseen(f, kv, x, p, key, key_end))
        panel_scores(f, kv, x, p, key, key_end, masked);
    for (int64_t c = 0; c < f->wp; c += SPAN)
        amx_product((key_end - key) / SPAN, v + c / SIDE * column, column, x->p, column, (char *)(x->o + (p * f->wp + c) * SPAN),
                    SIDE * 4, 2 * TILE, TILE, 1);
}

/* Adds o to the sums over earlier groups of key blocks, for all panels, and clears o. */
static AMX void panels_group(struct panels *x, int64_t wp)
{
    for (int64_t i = 0; i < PANELS * SPAN * wp; i++) {
        x->sum[i] = (x->grouped ? x->sum[i] : 0) + (double)x->o[i];
        x->o[i] = 0;
    }
    x->grouped = 1;
}

static void panels_load(const struct forward *f, struct panels *x, const struct amx_rows *q, int64_t row, int64_t n)
{
    memset(x->o, 0, (size_t)(PANELS * f->wp * SPAN) * 4);
    x->grouped = 0;
    for (int64_t i = 0; i < PANELS * SPAN; i++) {
        int64_t p = i / SPAN, lane = i % SPAN;
        x->m[p][lane] = NOTHING;
        x->l[p][lane] = 0;
        x->from[p][lane] = i < n ? (int32_t)mask_from(&f->mask, row + i) : 0;
        x->to[p][lane] = i < n ? (int32_t)mask_to(&f->mask, row + i) : 0;
    }
    amx_pack_rows(x->q, q, row, n, SPAN, 1);
}

/* Stores o of 16 queries, of which n exist, times factor[query]. */
static AMX void store_rows(const struct forward *f, const float *o, const float *factor, int64_t head, int64_t row, int64_t n)
{
    const int64_t w = f->v.d;
    for (int64_t c = 0; c < w; c += SIDE, o += 2 * SIDE * SIDE) {
        const __mmask16 mask = (__mmask16)(0xffffu >> (SIDE - min_i64(SIDE, w - c)));
        vf r[SIDE];
        for (int64_t i = 0; i < SIDE; i++)
            r[i] = vf_load(o + i * SIDE);
        vf_transpose(r);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = ((row + i) * f->q.heads + head) * w + c;
            const vf y = r[i] * vf_set(factor[i]);
            if (f->o_type == F32)
                _mm512_mask_storeu_ps((float *)f->o + at, mask, y);
            else
                _mm256_mask_storeu_epi16((bf16 *)f->o + at, mask, (__m256i)_mm512_cvtneps_pbh(y));
        }
    }
}

static void panels_store(const struct forward *f, struct panels *x, int64_t head, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float m = (&x->m[0][0])[i];
        const double l = (&x->l[0][0])[i];
        f->lse[head * f->mask.sq + row + i] = l == 0 ? -INFINITY : (float)((double)m * 0.6931471805599453 + log(l));
        x->factor[i] = l == 0 ? 0 : (float)(1 / l); /* NaN stays NaN */
    }
    for (int64_t i = 0; i < PANELS * SPAN * f->wp && x->grouped; i++)
        x->o[i] = (float)(x->sum[i] + (double)x->o[i]);
    for (int64_t i = 0; i < n; i += SIDE)
        store_rows(f, x->o + i / SPAN * f->wp * SPAN + i / SIDE % 2 * SIDE * SIDE, x->factor + i, head, row + i,
                   min_i64(SIDE, n - i));
}

/* Computes query rows [row, row + n) of one head, against KV head kv of the batch. */
static void forward_task(const struct forward *f, int64_t head, int64_t kv, int64_t row, int64_t n, struct panels *x)
{
    const struct mask *m = &f->mask;
    struct amx_rows q = f->q;
    q.head = head;
    panels_load(f, x, &q, row, n);
    const int64_t first_block = mask_from(m, row) / KEYS * KEYS, end = mask_to(m, row + n - 1);
    for (int64_t block = first_block; block < end; block += KEYS) {
        if (cpu_stops(f->stream))
            return;
        if (block > first_block && (block - first_block) % (GROUP * KEYS) == 0)
            panels_group(x, f->wp);
        for (int64_t p = 0; p * SPAN < n; p++) {
            int64_t first = row + p * SPAN, last = min_i64(first + SPAN, row + n);
            int64_t key = max_i64(mask_from(m, first), block) / SPAN * SPAN;
            int64_t key_end = round_up(min_i64(mask_to(m, last - 1), block + KEYS), SPAN);
            if (key < key_end)
                panel_block(f, kv, x, p, key, key_end, last - first < SPAN || !mask_covers(m, first, last, key, key_end));
        }
    }
    panels_store(f, x, head, row, n);
}

static void pack_block(const struct forward *f, int64_t kv, int64_t head, int64_t block)
{
    if (cpu_stops(f->stream))
        return;
    struct amx_rows k = f->k, v = f->v;
    const int64_t n = min_i64(KEYS, f->mask.sk - block);
    k.head = v.head = head;
    amx_pack_rows(f->packed_k + kv * f->k_bytes + block * f->dp * 2, &k, block, n, KEYS, 0);
    amx_pack_pairs(f->packed_v + kv * f->v_bytes + block * f->wp * 2, &v, block, n, KEYS, KEYS, 1);
}

static struct panels *scratch_of(char *base, int64_t dp, int64_t wp)
{
    struct panels *x = (void *)(base + omp_get_thread_num() * scratch_bytes(dp, wp));
    x->q = (char *)x + round_up((int64_t)sizeof *x, ATTN_ALIGN);
    x->o = (void *)(x->q + PANELS * SPAN * dp * 2);
    x->sum = (void *)(x->o + PANELS * SPAN * wp);
    x->p = (char *)(x->sum + PANELS * SPAN * wp);
    x->s = (void *)(x->p + KEYS * SPAN * 2);
    return x;
}

void amx_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    const int64_t hq = attrs->attn.hq, hk = attrs->attn.hk, sq = attrs->attn.sq, group = hq / hk;
    const int64_t d = attrs->attn.head_dim, w = op_value_dim(attrs);
    struct forward f = {.mask = mask_of(attrs, arg[5], arg[6]),
                        .q = {arg[2], hq, 0, d},
                        .k = {arg[3], hk, 0, d},
                        .v = {arg[4], hk, 0, w},
                        .o = arg[0],
                        .o_type = attn_o_type(attrs),
                        .lse = arg[1],
                        .dp = round_up(d, SPAN),
                        .wp = round_up(w, SPAN),
                        .sk = round_up(attrs->attn.sk, KEYS),
                        .batch = batch_of(attrs),
                        .scale = (float)((double)attrs->attn.scale * 1.4426950408889634),
                        .stream = stream,
                        .cap = attrs->attn.cap / attrs->attn.scale};
    f.k_bytes = f.sk * f.dp * 2;
    f.v_bytes = f.sk * f.wp * 2;
    f.packed_k = attn_align(arg[7]);
    f.packed_v = f.packed_k + f.batch * f.k_bytes;
    char *scratch = f.packed_v + f.batch * f.v_bytes;
    const int64_t blocks = f.sk / KEYS, rows = PANELS * SPAN, q_blocks = ceil_div(sq, rows);
#pragma omp parallel num_threads(stream->threads)
    {
        struct panels *x = scratch_of(scratch, f.dp, f.wp);
        amx_begin();
        for (int64_t first = 0; first < hk; first += f.batch) {
            int64_t n = min_i64(f.batch, hk - first), heads = n * group;
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < n * blocks; i++)
                pack_block(&f, i / blocks, first + i / blocks, i % blocks * KEYS);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < q_blocks * heads;
                 i++) { /* in reverse, since under a causal mask the last blocks take longest */
                int64_t row = (q_blocks - 1 - i / heads) * rows, h = i % heads;
                forward_task(&f, first * group + h, h / group, row, min_i64(rows, sq - row), x);
            }
        }
        amx_end();
    }
}
