/* Flash attention backward for Hopper (sm_90a), FlashAttention-2's algorithm 2 in two kernels: dK and dV by key tiles, dQ by
 * query tiles. */
#include "attention/sm90_backward_keys.cuh"
#include "attention/sm90_backward_queries.cuh"
#include "attention/sm90_host.cuh"

namespace
{

struct backward_work {
    struct attn_rows rows;
    attn_row_span *keys; /* [sk] */
    int *counters;       /* one of each kernel */
    uint32_t *turns;     /* [hq, tiles of ATTN_TURN_ROWS queries] */
    int64_t turns_bytes;
};

backward_work work_of(const struct op_attrs *a, const struct attn_cuda *cuda, void *base)
{
    const struct attn_sm90_work at = attn_sm90_work_of(a, cuda);
    backward_work w;
    w.rows = attn_rows_of(a, base);
    w.counters = (int *)((char *)base + at.counters);
    w.keys = (attn_row_span *)((char *)base + at.keys);
    w.turns = (uint32_t *)((char *)base + at.turns);
    w.turns_bytes = at.turns_bytes;
    return w;
}

/* The mask the other way round: the queries [from, to) that attend each key, one warp per key. Both ends are non-decreasing too,
 * because key k is attended by the queries q with from(q) <= k < to(q). */
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

backward_params params_of(const struct op_attrs *a, void *const *arg, const backward_work &w)
{
    backward_params p = {};
    p.mask = sm90_mask(a, arg[9], arg[10]);
    p.stat = w.rows.stat;
    p.keys = w.keys;
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
    return p;
}

/* Makes p that of the segment from `first` on, of the n rows that its kernel sums over. */
enum status segment_start(backward_params *p, int64_t first, int64_t n, cudaStream_t stream)
{
    p->first = (int)first;
    p->end = (int)min_i64(n, first + ATTN_SEGMENT);
    p->accumulate |= first > 0;
    return CUDA_STATUS(cudaMemsetAsync(p->counter, 0, sizeof *p->counter, stream));
}

/* dK and dV, and dQ if K::DQ. */
template <class K>
enum status run_keys(const struct op_attrs *a, void *const *arg, const backward_work &w, const struct attn_cuda *cuda,
                     cudaStream_t stream)
{
    backward_maps m;
    TRY(maps_create(&m, a, arg, K::NQ, K::M));
    backward_params p = params_of(a, arg, w);
    p.counter = w.counters;
    p.tiles = (int)(ceil_div(a->attn.sk, K::M) * a->attn.hk);
    for (int64_t first = 0; first < a->attn.sq; first += ATTN_SEGMENT) {
        TRY(segment_start(&p, first, a->attn.sq, stream));
        TRY(launch(dim3((unsigned)min_i64(p.tiles, cuda->processors)), dim3(K::threads), sizeof(typename K::shared), stream,
                   keys_kernel<K>, m.q, m.k, m.v, m.go, m.dq, p));
    }
    return OK;
}

template <class Q>
enum status run_queries(const struct op_attrs *a, void *const *arg, const backward_work &w, const struct attn_cuda *cuda,
                        cudaStream_t stream)
{
    backward_maps m;
    TRY(maps_create(&m, a, arg, Q::M, Q::N));
    backward_params p = params_of(a, arg, w);
    p.counter = w.counters + 1;
    p.accumulate = 0;
    p.tiles = (int)(ceil_div(a->attn.sq, Q::M) * a->attn.hq);
    for (int64_t first = 0; first < a->attn.sk; first += ATTN_SEGMENT) {
        TRY(segment_start(&p, first, a->attn.sk, stream));
        TRY(launch(dim3((unsigned)min_i64(p.tiles, cuda->processors)), dim3(Q::threads), sizeof(typename Q::shared), stream,
                   queries_kernel<Q>, m.q, m.k, m.v, m.go, p));
    }
    return OK;
}

/* What comes before either mode's kernels. */
enum status prepare(const struct op_attrs *a, void *const *arg, const backward_work &w, int zero_dq, cudaStream_t stream)
{
    TRY(attn_cuda_prepare(a, arg, &w.rows, zero_dq, stream));
    return launch(dim3((unsigned)ceil_div(a->attn.sk * 32, SPANS_THREADS)), dim3(SPANS_THREADS), 0, stream, key_spans_kernel,
                  sm90_mask(a, arg[9], arg[10]), w.keys);
}

/* dK and dV by one kernel, dQ by another. */
template <class K, class Q>
enum status run_apart(const struct op_attrs *a, void *const *arg, const struct attn_cuda *cuda, cudaStream_t stream)
{
    static_assert(ATTN_SM90_SHARED == LT_SHARED_SM90, "plans ask whether the kernels fit");
    LT_SHARED_FITS(typename K::shared, LT_SHARED_SM90);
    LT_SHARED_FITS(typename Q::shared, LT_SHARED_SM90);
    const backward_work w = work_of(a, cuda, arg[11]);
    TRY(prepare(a, arg, w, 0, stream));
    TRY(run_keys<K>(a, arg, w, cuda, stream));
    return run_queries<Q>(a, arg, w, cuda, stream);
}

/* All three by one kernel, dQ in whichever order or, if T::ORDERED, a fixed one. */
template <class T>
enum status run_together(const struct op_attrs *a, void *const *arg, const struct attn_cuda *cuda, cudaStream_t stream)
{
    static_assert(T::NQ == ATTN_TURN_ROWS, "a turn is of one tile of queries");
    LT_SHARED_FITS(typename T::shared, LT_SHARED_SM90);
    const backward_work w = work_of(a, cuda, arg[11]);
    TRY(prepare(a, arg, w, 1, stream));
    if (T::ORDERED)
        TRY(CUDA_STATUS(cudaMemsetAsync(w.turns, 0, (size_t)w.turns_bytes, stream)));
    return run_keys<T>(a, arg, w, cuda, stream);
}

/* The kernels of one head dimension: dK and dV alone, dQ alone, all three in whichever order, in a fixed one, the same with dQ
 * late. */
template <class K, class Q, class ANY, class ORDERED, class LATE>
enum status run(const struct op_attrs *a, void *const *arg, const struct attn_cuda *cuda, cudaStream_t stream)
{
    switch (attn_sm90_way(a, cuda)) {
    case ATTN_FAST:
        return run_together<ANY>(a, arg, cuda, stream);
    case ATTN_IN_ORDER:
        return run_together<ORDERED>(a, arg, cuda, stream);
    case ATTN_IN_ORDER_LATE:
        return run_together<LATE>(a, arg, cuda, stream);
    default:
        return run_apart<K, Q>(a, arg, cuda, stream);
    }
}

} // namespace

extern "C" enum status attn_sm90_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                          struct CUstream_st *stream)
{
    const int64_t d = op_wider_dim(attrs);
    if (attrs->attn.cap > 0.0f)
        return run_apart<keys_shape<128, 64, 2, 3, DQ_APART, true>, queries_shape<128, 64, 2, 3, true>>(attrs, arg, cuda, stream);
    if (d <= 64)
        return run<keys_shape<64, 64, 2, 3, DQ_APART>, queries_shape<64, 128, 2, 3>, keys_shape<64, 64, 2, 3, DQ_ANY_ORDER>,
                   keys_shape<64, 64, 2, 3, DQ_IN_ORDER>, keys_shape<64, 64, 2, 3, DQ_IN_ORDER_LATE>>(attrs, arg, cuda, stream);
    if (d <= 96)
        return run<keys_shape<96, 64, 2, 3, DQ_APART>, queries_shape<96, 64, 2, 3>, keys_shape<96, 64, 2, 3, DQ_ANY_ORDER>,
                   keys_shape<96, 64, 2, 2, DQ_IN_ORDER>, keys_shape<96, 64, 2, 2, DQ_IN_ORDER_LATE>>(attrs, arg, cuda, stream);
    return run<keys_shape<128, 64, 2, 3, DQ_APART>, queries_shape<128, 64, 2, 3>, keys_shape<128, 64, 2, 2, DQ_ANY_ORDER>,
               keys_shape<128, 64, 2, 2, DQ_IN_ORDER>, keys_shape<128, 64, 2, 2, DQ_IN_ORDER_LATE>>(attrs, arg, cuda, stream);
}
