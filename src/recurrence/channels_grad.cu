/* SCAN_CHANNELS: gradients of a chunk's keys, queries and decays. */
#include "recurrence/cuda_channels.cuh"
#include "recurrence/cuda_grad.cuh"

namespace
{

/* Working memory of a thread block. last: sums over BLOCK rows of what reaches the chunk's end, by channel of a slice; kept: the part
 * of the last row's sum that the state before the chunk gives. */
struct channel_gradients {
    gradient_space s;
    float last[SIDE / BLOCK][SIDE], kept[SIDE];
};

/* Gradients of a slice, of this thread's elements: of queries, of keys as rows that read and as rows that are read. Decays' gradients
 * take the latter with opposite signs. */
struct slice_sums {
    sums<4> query, reads, is_read;
};

/* Turns dr and da, gradients of the weights of pairs of rows, into those of QK' L, in s.z, and of KK' L, in s.w; adds to those of beta. */
__device__ __forceinline__ void weigh_channel_pairs(const scan_args &a, const unit &u, gradient_space &s, sums<4> &dr,
                                                    sums<4> &da)
{
    const float *const kk = a.pairs + u.at * 2 * SIDE * SIDE;
    __syncthreads();
    each_at<4>({u.tall, u.tall}, [&](int i, int j, int n, int e) {
        const bool own = decay_between(s.gates, i, j) != 0.0f;
        const float w = own && j < i ? -da[n][e] : 0.0f;
        s.z.x[i][j] = own ? dr[n][e] : 0.0f;
        s.y.x[i][j] = w == 0.0f ? 0.0f : w * kk[i * SIDE + j];
        s.w.x[i][j] = s.gates.beta[i] * w;
    });
    __syncthreads();
    const int i = threadIdx.x / TEAM;
    const float of_beta = row_sum(i, u.tall, [&](int r, int j) { return s.y.x[r][j]; });
    if (threadIdx.x % TEAM == 0)
        s.beta[i] += of_beta;
    __syncthreads();
}

/* Finds the part of the decay over the whole chunk, for each channel of a slice from k on. */
__device__ __forceinline__ void find_kept(const scan_args &a, const unit &u, int k, channel_gradients &x)
{
    const float *const state = a.states + (u.at * a.key_wide + k) * a.value_wide;
    const float *const d = a.dstates + (u.at * a.key_wide + k) * a.value_wide;
    const int i = threadIdx.x / TEAM, n = i < slice_columns(a.key, k) ? a.value : 0;
    float sum = 0;
    for (int j = threadIdx.x % TEAM; j < n; j += TEAM)
        sum += state[i * a.value_wide + j] * d[i * a.value_wide + j];
    sum = team_sum(sum);
    if (threadIdx.x % TEAM == 0)
        x.kept[i] = scaled(x.s.gates.enter[SIDE - 1] * entering(a, u, SIDE - 1, k + i), sum);
}

/* Adds up v over BLOCK rows of each of this warp's columns. */
__device__ __forceinline__ void put_last(area in, channel_gradients &x, sums<4> &v)
{
    if (!has_share<4>(in))
        return;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = v[n][e] + v[n][e + 2];
#pragma unroll
            for (int far = 4; far < LT_WARP; far *= 2)
                sum += __shfl_xor_sync(LT_FULL_MASK, sum, far);
            if (threadIdx.x % LT_WARP < 4)
                x.last[warp_row() / BLOCK][warp_column<4>() + n * 8 + threadIdx.x % LT_WARP * 2 + e] = sum;
        }
}

/* Weighs what states give, found by find_by_states, by decays; adds to the gradients of beta. Queries are in s.x, keys in s.y. */
__device__ __forceinline__ void weigh_states(const scan_args &a, const unit &u, area in, int k, channel_gradients &x,
                                             slice_sums &c)
{
    gradient_space &s = x.s;
    float row[2] = {};
    sums<4> reaching;
    clear(reaching);
    each_at<4>(in, [&](int i, int j, int n, int e) {
        const float decay = s.gates.enter[i] * entering(a, u, i, k + j), from = scaled(decay, c.reads[n][e]);
        c.query[n][e] = scaled(decay, c.query[n][e]);
        c.is_read[n][e] = scaled(s.gates.leave[i] * leaving(a, u, i, k + j), c.is_read[n][e]);
        c.reads[n][e] = -s.gates.beta[i] * from;
        row[e / 2] += from * s.y.x[i][j];
        reaching[n][e] = c.is_read[n][e] * s.y.x[i][j];
    });
    put_last(in, x, reaching);
    put_rows(s.part[0], row);
    __syncthreads();
    if (threadIdx.x < SIDE)
        s.beta[threadIdx.x] -= s.part[0][0][threadIdx.x] + s.part[0][1][threadIdx.x];
}

/* Adds what pairs within a block give. */
__device__ __forceinline__ void add_near_gradients(const scan_args &a, const unit &u, area in, int k, gradient_space &s,
                                                   slice_sums &c)
{
    each_at<4>(in, [&](int i, int j, int n, int e) {
        for (int r = block_of(i); r < block_of(i) + BLOCK; r++) {
            const float decay = r <= i ? channel_decay(a, u, i, r, k + j) : channel_decay(a, u, r, i, k + j);
            if (r <= i) {
                c.query[n][e] += s.z.x[i][r] * decay * s.y.x[r][j];
                c.reads[n][e] += s.w.x[i][r] * decay * s.y.x[r][j];
            }
            if (r >= i)
                c.is_read[n][e] += decay * (s.w.x[r][i] * s.y.x[r][j] + s.z.x[r][i] * s.x.x[r][j]);
        }
    });
}

/* Adds what pairs of different blocks give. Queries in s.x and keys in s.y are replaced. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void add_far_gradients(const scan_args &a, const unit &u, area in, int k, gradient_space &s,
                                                  slice_sums &c)
{
    __syncthreads();
    decay_rows(a, u, s.x, in, k);
    decay_rows(a, u, s.y, in, k);
    __syncthreads();
    for (int at = BLOCK; at < u.tall; at += BLOCK) {
        sums<4> part;
        if (warp_row() >= at)
            continue;
        clear(part);
        multiply<TENSOR, ACROSS, PLAIN>(in, part, s.w, s.y, at, at + BLOCK);
        multiply<TENSOR, ACROSS, PLAIN>(in, part, s.z, s.x, at, at + BLOCK);
        each_at<4>(in, [&](int i, int j, int n, int e) { c.is_read[n][e] += part[n][e] * channel_decay(a, u, at, i, k + j); });
    }
    for (int at = BLOCK; at < u.tall; at += BLOCK) {
        sums<4> query, reads;
        __syncthreads();
        keys_before<T>(a, u, s.y, in, k, at);
        __syncthreads();
        if (warp_row() != at)
            continue;
        clear(query);
        clear(reads);
        multiply<TENSOR, PLAIN, PLAIN>(in, query, s.z, s.y, 0, at);
        multiply<TENSOR, PLAIN, PLAIN>(in, reads, s.w, s.y, 0, at);
        each_at<4>(in, [&](int i, int j, int n, int e) {
            const float decay = channel_decay(a, u, i, at, k + j);
            c.query[n][e] += decay * query[n][e];
            c.reads[n][e] += decay * reads[n][e];
        });
    }
}

/* Writes a slice's gradients of g: sums over the rows from each on, within its document. Those of the rows' own sums are in s.x. */
__device__ __forceinline__ void write_channel_decays(const scan_args &a, const unit &u, int k, channel_gradients &x)
{
    const int j = threadIdx.x;
    if (j >= SIDE || k + j >= a.key)
        return;
    double sum = (double)x.kept[j];
    for (int b = 0; b < u.tall / BLOCK; b++)
        sum += (double)x.last[b][j];
    for (int i = u.tall - 1; i >= 0; i--) {
        const int32_t link = i < u.n ? a.links[u.first + i] : ROW_NONE;
        sum += (double)x.s.x.x[i][j];
        if (i < u.n)
            a.g[((u.first + i) * a.heads + u.head) * a.key + k + j] = link == ROW_FOLLOWS ? (float)sum : 0.0f;
        sum = link == ROW_BEGINS ? 0.0 : sum;
    }
}

/* Computes the gradients of a slice of a unit's keys and queries after their norm, and of its decays. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void find_slice(const scan_args &a, const unit &u, int k, channel_gradients &x)
{
    const area in = {u.tall, slice_columns(a.key, k)};
    float *const to = a.y + u.at * SIDE * a.key_wide;
    gradient_space &s = x.s;
    slice_sums c;
    find_by_states<T, TENSOR>(a, u, k, s, c.query, c.is_read, c.reads);
    find_kept(a, u, k, x);
    __syncthreads();
    fill(s.x, in, [&](int i, int j) { return query_at<T>(a, u, i, k + j); });
    fill(s.y, in, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
    __syncthreads();
    weigh_states(a, u, in, k, x, c);
    add_near_gradients(a, u, in, k, s, c);
    add_far_gradients<T, TENSOR>(a, u, in, k, s, c);
    __syncthreads();
    each_at<4>(in, [&](int i, int j, int n, int e) {
        s.x.x[i][j] = query_at<T>(a, u, i, k + j) * c.query[n][e] + key_at<T>(a, u, i, k + j) * (c.reads[n][e] - c.is_read[n][e]);
        to[i * a.key_wide + k + j] = c.query[n][e];
        a.dstates[dkey_at(a, u.at, i, k + j)] = c.reads[n][e] + c.is_read[n][e];
    });
    __syncthreads();
    write_channel_decays(a, u, k, x);
}

template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_channel_gradients(scan_args a)
{
    LT_SHARED(channel_gradients, x);
    const unit u = unit_here(a);
    sums<4> dr, da;
    gradients_clear(a, u, x.s);
    find_weights<T, TENSOR>(a, u, x.s, dr, da);
    weigh_channel_pairs(a, u, x.s, dr, da);
    for (int k = 0; k < a.key; k += SIDE)
        find_slice<T, TENSOR>(a, u, k, x);
    __syncthreads();
    write_strengths(a, u, x.s);
}

LT_SHARED_FITS(channel_gradients, LT_SHARED_SM86);

} // namespace

enum status channels_cuda_gradients(const struct scan_args &a, bool is_half, void *stream)
{
    return launch(dim3((unsigned)a.units), dim3(THREADS), sizeof(channel_gradients), stream,
                  is_half ? find_channel_gradients<bf16, true> : find_channel_gradients<float, false>, a);
}
