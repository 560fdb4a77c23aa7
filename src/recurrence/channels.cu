/* SCAN_CHANNELS: sums of the channels' decays, and the weights of a chunk's pairs of rows. */
#include "recurrence/cuda_channels.cuh"

namespace
{

/* Adds up a channel's g over the rows of a unit, one thread each; 0 in channels beyond the key's. */
__global__ void __launch_bounds__(THREADS) find_sums(scan_args a)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= a.units * a.key_wide)
        return;
    const unit u = unit_of(a, at / a.key_wide / a.heads, (int)(at / a.key_wide % a.heads));
    const int j = (int)(at % a.key_wide);
    double sum = 0;
    for (int i = 0; i < SIDE; i++) {
        if (j < a.key && i < u.n && a.links[u.first + i] == ROW_FOLLOWS)
            sum += (double)a.g[((u.first + i) * a.heads + u.head) * a.key + j];
        a.sums[(u.at * SIDE + i) * a.key_wide + j] = sum;
    }
}

/* Keys and queries of a slice of channels, and the keys before a block. */
struct channels_space {
    tile<SIDE> k, q, before;
    chunk_gates gates;
};

/* Adds the pairs within blocks over a slice of channels from k on. */
__device__ __forceinline__ void add_near(const scan_args &a, const unit &u, int k, int cols, channels_space &s, sums<4> &kk,
                                         sums<4> &qk)
{
    each_at<4>({u.tall, u.tall}, [&](int i, int j, int n, int e) {
        for (int c = 0; c < cols && j <= i && block_of(i) == block_of(j); c++) {
            const float kept = s.k.x[j][c] * channel_decay(a, u, i, j, k + c);
            kk[n][e] += s.k.x[i][c] * kept;
            qk[n][e] += s.q.x[i][c] * kept;
        }
    });
}

/* Adds the pairs of different blocks over a slice of channels. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void add_far(const scan_args &a, const unit &u, int k, int cols, channels_space &s, sums<4> &kk,
                                        sums<4> &qk)
{
    decay_rows(a, u, s.k, {u.tall, cols}, k);
    decay_rows(a, u, s.q, {u.tall, cols}, k);
    for (int at = BLOCK; at < u.tall; at += BLOCK) {
        __syncthreads();
        keys_before<T>(a, u, s.before, {u.tall, cols}, k, at);
        __syncthreads();
        if (warp_row() != at)
            continue;
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, kk, s.k, s.before, 0, cols);
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, qk, s.q, s.before, 0, cols);
    }
}

/* Computes KK' L and QK' L of a unit: 0 above the diagonal and between documents. */
template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_channel_pairs(scan_args a)
{
    LT_SHARED(channels_space, s);
    const unit u = unit_here(a);
    float *const to = a.pairs + u.at * 2 * SIDE * SIDE;
    sums<4> kk, qk;
    gates_load(s.gates, a.gates[u.at]);
    clear(kk);
    clear(qk);
    for (int k = 0; k < a.key; k += SIDE) {
        const int cols = slice_columns(a.key, k);
        __syncthreads();
        fill(s.k, {u.tall, cols}, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
        fill(s.q, {u.tall, cols}, [&](int i, int j) { return query_at<T>(a, u, i, k + j); });
        __syncthreads();
        add_near(a, u, k, cols, s, kk, qk);
        __syncthreads();
        add_far<T, TENSOR>(a, u, k, cols, s, kk, qk);
    }
    each_at<4>({u.tall, u.tall}, [&](int i, int j, int n, int e) {
        const float is_one = decay_between(s.gates, i, j);
        to[i * SIDE + j] = scaled(is_one, kk[n][e]);
        to[(SIDE + i) * SIDE + j] = scaled(is_one, qk[n][e]);
    });
}

LT_SHARED_FITS(channels_space, LT_SHARED_SM86);

} // namespace

enum status channels_cuda_prepare(const struct scan_args &a, bool is_half, void *stream)
{
    TRY(launch(dim3((unsigned)ceil_div(a.units * a.key_wide, THREADS)), dim3(THREADS), 0, stream, find_sums, a));
    return launch(dim3((unsigned)a.units), dim3(THREADS), sizeof(channels_space), stream,
                  is_half ? find_channel_pairs<bf16, true> : find_channel_pairs<float, false>, a);
}
