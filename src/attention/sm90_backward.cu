/* Flash attention backward for Hopper (sm_90a), FlashAttention-2's algorithm 2 by key tiles; dQ is added up in a fixed order. */
#include "attention/sm90_backward_keys.cuh"
#include "attention/sm90_host.cuh"

namespace
{

struct backward_work {
    struct attn_rows rows;
    attn_row_span *keys; /* [sk] */
    int *counter;
    uint32_t *turns; /* [hq, tiles of ATTN_TURN_ROWS queries] */
    int64_t turns_bytes;
};

backward_work work_of(const struct op_attrs *a, void *base)
{
    const struct attn_sm90_work at = attn_sm90_work_of(a);
    backward_work w;
    w.rows = attn_rows_of(a, base);
    w.counter = (int *)((char *)base + at.counter);
    w.keys = (attn_row_span *)((char *)base + at.keys);
    w.turns = (uint32_t *)((char *)base + at.turns);
    w.turns_bytes = at.turns_bytes;
    return w;
}

/* Finds the queries [from, to) that attend each key, one warp per key. As key k is attended by the queries q with from(q) <= k <
 * to(q), both ends of its queries are non-decreasing, too. */
#define SPANS_THREADS 128
__global__ void __launch_bounds__(SPANS_THREADS) key_spans_kernel(const attn_mask mask, attn_row_span *keys)
{
    const int k = (int)(((int64_t)blockIdx.x * SPANS_THREADS + threadIdx.x) / 32);
    if (k >= mask.sk)
        return;
    const int from = attn_search<true>(mask, k), to = attn_search<false>(mask, k);
    if (threadIdx.x % 32 == 0)
        keys[k] = attn_row_span{from, to};
}

struct backward_maps {
    CUtensorMap q, k, v, go, dq;
};

enum status maps_create(backward_maps *m, const struct op_attrs *a, void *const *arg, int query_rows, int key_rows)
{
    TRY(sm90_map(&m->q, arg[3], a->attn.sq, a->attn.hq, a->attn.head_dim, query_rows));
    TRY(sm90_map(&m->k, arg[4], a->attn.sk, a->attn.hk, a->attn.head_dim, key_rows));
    TRY(sm90_map(&m->v, arg[5], a->attn.sk, a->attn.hk, (int)op_value_dim(a), key_rows));
    TRY(sm90_map(&m->go, arg[8], a->attn.sq, a->attn.hq, (int)op_value_dim(a), query_rows));
    return sm90_map_of(&m->dq, TMA_F32, arg[0], a->attn.sq, a->attn.hq, a->attn.head_dim, 64);
}

/* Returns the number of KV heads among which tiles alternate. On an H200, heads of 64 at 16k tokens: 347 TFLOP/s with 1 head, 446
 * with 16, whose q and do take 64 MB. At 128k tokens, where one head takes 128 MB: 445 with 1, 410 with 8. */
int heads_at_once(const struct op_attrs *a)
{
    const int64_t bytes = a->attn.sq * (a->attn.hq / a->attn.hk) * (a->attn.head_dim + op_value_dim(a)) * 2;
    return (int)max_i64(1, min_i64(a->attn.hk, ATTN_TOGETHER / bytes));
}

backward_params params_of(const struct op_attrs *a, void *const *arg, const backward_work &w)
{
    backward_params p = {};
    p.mask = sm90_mask(a, arg[9], arg[10]);
    p.stat = w.rows.stat;
    p.keys = w.keys;
    p.counter = w.counter;
    p.turns = w.turns;
    p.dq = (float *)arg[0];
    p.dk = (float *)arg[1];
    p.dv = (float *)arg[2];
    p.rows_padded = w.rows.padded;
    p.hq = a->attn.hq;
    p.hk = a->attn.hk;
    p.head_dim = a->attn.head_dim;
    p.value_dim = (int)op_value_dim(a);
    p.accumulate = a->attn.accumulate;
    p.scale = a->attn.scale;
    p.scores = attn_scores_of(a);
    p.heads_at_once = heads_at_once(a);
    return p;
}

template <class T> enum status run(const struct op_attrs *a, void *const *arg, const struct attn_cuda *cuda, cudaStream_t stream)
{
    static_assert(T::NQ % ATTN_TURN_ROWS == 0, "there is a turn for each tile of queries");
    static_assert(ATTN_SM90_SHARED == LT_SHARED_SM90, "plans ask whether the kernels fit");
    LT_SHARED_FITS(typename T::shared, LT_SHARED_SM90);
    const backward_work w = work_of(a, arg[11]);
    backward_maps m;
    backward_params p = params_of(a, arg, w);
    TRY(attn_cuda_prepare(a, arg, &w.rows, 1, stream));
    TRY(launch(dim3((unsigned)ceil_div(a->attn.sk * 32, SPANS_THREADS)), dim3(SPANS_THREADS), 0, stream, key_spans_kernel, p.mask,
               w.keys));
    TRY(CUDA_STATUS(cudaMemsetAsync(w.turns, 0, (size_t)w.turns_bytes, stream)));
    TRY(maps_create(&m, a, arg, T::NQ, T::M));
    p.tiles = (int)(ceil_div(a->attn.sk, T::M) * a->attn.hk);
    for (int64_t first = 0; first < a->attn.sq;
         first += ATTN_SEGMENT) { /* the queries that dK and dV are summed over, in segments */
        p.first = (int)first;
        p.end = (int)min_i64(a->attn.sq, first + ATTN_SEGMENT);
        p.accumulate |= first > 0;
        TRY(CUDA_STATUS(cudaMemsetAsync(p.counter, 0, sizeof *p.counter, stream)));
        TRY(launch(dim3((unsigned)min_i64(p.tiles, cuda->processors)), dim3(T::threads), sizeof(typename T::shared), stream,
                   keys_kernel<T>, m.q, m.k, m.v, m.go, m.dq, p));
    }
    return OK;
}

} // namespace

extern "C" enum status attn_sm90_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                          struct CUstream_st *stream)
{
    const int64_t d = op_wider_dim(attrs);
    if (attrs->attn.cap > 0.0f)
        return run<keys_shape<128, 2, true>>(attrs, arg, cuda, stream);
    if (d <= 64)
        return run<keys_shape<64, 3>>(attrs, arg, cuda, stream);
    if (d <= 96)
        return run<keys_shape<96, 2>>(attrs, arg, cuda, stream);
    return run<keys_shape<128, 2>>(attrs, arg, cuda, stream);
}
