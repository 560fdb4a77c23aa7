/* Gradients of one unit (a chunk of a head) on CUDA: by what its values and states give. Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_CUDA_GRAD_CUH
#define LTRAIN_RECURRENCE_CUDA_GRAD_CUH

#include "recurrence/cuda_scan.cuh"

namespace
{

constexpr int TEAM = THREADS / SIDE; /* neighbouring threads that add up a row */

/* Working memory of a thread block for one unit (a chunk of a head): tiles, and gradients by row. sum: of the sums of g; leave: of the
 * decay from a row to the chunk's end, which goes to the last row's sum; part: sums of a slice by half of its columns. */
struct gradient_space {
    tile<SIDE> x, y, z, w;
    chunk_gates gates;
    double sum[SIDE];
    float beta[SIDE], skip[SIDE], leave[SIDE], part[3][2][SIDE];
    double keep[THREADS / LT_WARP];
};

/* Adds v over a row's team. */
template <typename V> __device__ __forceinline__ V team_sum(V v)
{
#pragma unroll
    for (int half = TEAM / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(LT_FULL_MASK, v, half);
    return v;
}

/* Adds up a row for each team, f(i, j) over j below n; rows beyond n are 0. */
template <typename F> __device__ __forceinline__ float row_sum(int i, int n, F f)
{
    float sum = 0;
    for (int j = threadIdx.x % TEAM; j < n && i < n; j += TEAM)
        sum += f(i, j);
    return team_sum(sum);
}

/* Solves for D, the gradient of beta (V - f K S), of a slice of values: replaces dZ in global memory by D, and copies D to s.x. T of
 * recurrence.h is in s.w. */
template <bool TENSOR> __device__ __forceinline__ void solve_slice(const scan_args &a, area in, float *dz, gradient_space &s)
{
    __syncthreads();
    fill(s.x, in, [&](int i, int j) { return dz[i * a.value_wide + j]; });
    __syncthreads();
    if (!a.is_delta)
        return;
    sums<4> c;
    clear(c);
    multiply<TENSOR, ACROSS, PLAIN>(in, c, s.w, s.x, warp_row(), in.rows);
    __syncthreads();
    store(s.x, in, c);
    each(in, c, [&](int i, int j, float &value) { dz[i * a.value_wide + j] = value; });
    __syncthreads();
}

/* Writes the gradient of a slice of values, from D in s.x and dO in s.y, and adds to the gradients of beta and skip. */
template <typename T> __device__ __forceinline__ void write_values(const scan_args &a, const unit &u, int from, gradient_space &s)
{
    const int i = threadIdx.x / TEAM;
    const float beta = s.gates.beta[i], skip = a.skip ? get((const T *)a.skip, u.head) : 0.0f;
    float of_beta = 0, of_skip = 0;
    for (int j = threadIdx.x % TEAM; j < SIDE && i < u.n && from + j < a.value; j += TEAM) {
        const float v = value_at<T>(a, u, i, from + j), d = s.x.x[i][j], d_out = s.y.x[i][j];
        of_beta += d * v;
        of_skip += d_out * v;
        put((T *)a.qkv, (u.first + i) * a.ld + a.v_first + (int64_t)u.head * a.value + from + j, scaled(beta, d) + skip * d_out);
    }
    of_beta = team_sum(of_beta);
    of_skip = team_sum(of_skip);
    if (threadIdx.x % TEAM == 0) {
        s.beta[i] += of_beta;
        s.skip[i] += of_skip;
    }
}

/* Computes dr = dO Z' and da = D Z', slice after slice of values, and writes the gradients of values on the way. D: the gradient of
 * beta (V - f K S). */
template <typename T, bool TENSOR>
__device__ __forceinline__ void find_weights(const scan_args &a, const unit &u, gradient_space &s, sums<4> &dr, sums<4> &da)
{
    const float *const z = a.z + u.at * SIDE * a.value_wide;
    float *const dz = a.dz + u.at * SIDE * a.value_wide;
    clear(dr);
    clear(da);
    if (a.is_delta)
        fill(s.w, {u.tall, u.tall}, [&](int i, int j) { return a.inverse[u.at * SIDE * SIDE + i * SIDE + j]; });
    for (int v = 0; v < a.value; v += SIDE) {
        const area in = {u.tall, slice_columns(a.value, v)};
        solve_slice<TENSOR>(a, in, dz + v, s);
        fill(s.y, in, [&](int i, int j) { return d_out_at<T>(a, u, i, v + j); });
        fill(s.z, in, [&](int i, int j) { return z[i * a.value_wide + v + j]; });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, dr, s.y, s.z, 0, in.cols);
        if (a.is_delta)
            multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, da, s.x, s.z, 0, in.cols);
        write_values<T>(a, u, v, s);
    }
    __syncthreads();
}

/* Adds up the threads' parts of sums of rows, two rows a thread, into part[half of the columns][row]. */
__device__ __forceinline__ void put_rows(float (*part)[SIDE], const float (&row)[2])
{
    const int lane = threadIdx.x % LT_WARP, half = threadIdx.x / LT_WARP / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = row[r] + __shfl_xor_sync(LT_FULL_MASK, row[r], 1);
        sum += __shfl_xor_sync(LT_FULL_MASK, sum, 2);
        if (lane % 4 == 0)
            part[half][warp_row() + lane / 4 + r * 8] = sum;
    }
}

/* Computes dO S', D S' and Z dS' for a slice of keys from column k on. Returns this thread's part of the sum of S dS. */
template <typename T, bool TENSOR>
__device__ __forceinline__ double find_by_states(const scan_args &a, const unit &u, int k, gradient_space &s, sums<4> &dq,
                                                 sums<4> &dk, sums<4> &error)
{
    const int64_t state = (u.at * a.key_wide + k) * a.value_wide, values = u.at * SIDE * a.value_wide;
    double sum = 0;
    clear(dq);
    clear(dk);
    clear(error);
    for (int v = 0; v < a.value; v += SIDE) {
        const int cols = slice_columns(a.value, v), rows = slice_columns(a.key, k);
        __syncthreads();
        fill(s.x, {rows, cols}, [&](int i, int j) { return a.states[state + i * a.value_wide + v + j]; });
        fill(s.y, {u.tall, cols}, [&](int i, int j) { return d_out_at<T>(a, u, i, v + j); });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, rows}, dq, s.y, s.x, 0, cols);
        __syncthreads();
        if (a.is_delta) {
            fill(s.y, {u.tall, cols}, [&](int i, int j) { return a.dz[values + i * a.value_wide + v + j]; });
            __syncthreads();
            multiply<TENSOR, PLAIN, ACROSS>({u.tall, rows}, error, s.y, s.x, 0, cols);
            __syncthreads();
        }
        fill(s.x, {rows, cols}, [&](int i, int j) {
            const float d = a.dstates[state + i * a.value_wide + v + j];
            sum += (double)d * (double)s.x.x[i][j];
            return d;
        });
        fill(s.y, {u.tall, cols}, [&](int i, int j) { return a.z[values + i * a.value_wide + v + j]; });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, rows}, dk, s.y, s.x, 0, cols);
    }
    return sum;
}

/* Returns the element of a.dstates at which a unit's gradients of keys stand, row i, column j: they take the place of the gradients of
 * states that made them. */
__device__ __forceinline__ int64_t dkey_at(const scan_args &a, int64_t at, int i, int j)
{
    return (at * a.key_wide + j / SIDE * SIDE + i) * a.value_wide + j % SIDE;
}

/* Loads the unit's gates, and clears the sums of gradients. */
__device__ __forceinline__ void gradients_clear(const scan_args &a, const unit &u, gradient_space &s)
{
    gates_load(s.gates, a.gates[u.at]);
    for (int i = threadIdx.x; i < SIDE; i += THREADS) {
        s.sum[i] = 0;
        s.beta[i] = s.skip[i] = s.leave[i] = 0;
    }
}

/* Writes the gradients of beta, and the unit's part of that of skip. */
__device__ __forceinline__ void write_strengths(const scan_args &a, const unit &u, gradient_space &s)
{
    for (int i = threadIdx.x; i < u.n; i += THREADS)
        a.beta[(u.first + i) * a.heads + u.head] = has_token(a, u, i) ? s.beta[i] : 0.0f;
    if (threadIdx.x != 0)
        return;
    double skip = 0;
    for (int i = 0; i < SIDE; i++)
        skip += (double)s.skip[i];
    a.dskips[u.at] = skip;
}

LT_SHARED_FITS(gradient_space, LT_SHARED_SM86);

} // namespace

#endif
