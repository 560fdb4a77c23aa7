/* The scan's backward pass: the states before all chunks again; R' dO of all chunks; the states' gradients, chunk after chunk from the
 * last; then all other gradients, those of keys and queries for each head, added up at the end. */
#include "recurrence/cuda_grad.cuh"

namespace
{

constexpr int COLUMNS = 32; /* columns of a state's gradient that a thread block has */
constexpr int TILES = CUDA_SCAN_DIM / SIDE;

/* --- Gradients of outputs, passed to values --- */

/* Computes R' dO of a unit. */
template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_pulls(scan_args a)
{
    LT_SHARED(pair_space, s);
    const unit u = unit_here(a);
    float *const to = a.dz + u.at * SIDE * a.value_wide;
    sums<4> c;
    weigh_pairs<T, TENSOR>(a, u, s);
    for (int v = 0; v < a.value; v += SIDE) {
        const area in = {u.tall, slice_columns(a.value, v)};
        __syncthreads();
        fill(s.x, in, [&](int i, int j) { return d_out_at<T>(a, u, i, v + j); });
        __syncthreads();
        clear(c);
        multiply<TENSOR, ACROSS, PLAIN>(in, c, s.r, s.x, warp_row(), u.tall);
        each(in, c, [&](int i, int j, float &value) { to[i * a.value_wide + v + j] = value; });
    }
}

/* --- Gradients of states --- */

struct dstates_space {
    tile<SIDE> x;
    tile<COLUMNS> z, d, state[TILES];
};

/* Completes dZ of a unit, and leaves -dZ in s.z and f dO in s.d: COLUMNS columns from `column` on. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void find_dvalues(const scan_args &a, const unit &u, int column, dstates_space &s)
{
    const chunk_gates &g = a.gates[u.at];
    float *const dz = a.dz + u.at * SIDE * a.value_wide + column;
    sums<2> c;
    clear(c);
    for (int k = 0; k < a.key; k += SIDE) {
        const int cols = slice_columns(a.key, k);
        __syncthreads();
        fill(s.x, {u.tall, cols}, [&](int i, int j) { return key_at<T>(a, u, i, k + j) * leaving(a, u, i, k + j); });
        __syncthreads();
        multiply<TENSOR, PLAIN, PLAIN>({u.tall, COLUMNS}, c, s.x, s.state[k / SIDE], 0, cols);
    }
    each({u.tall, COLUMNS}, c, [&](int i, int j, float &value) {
        float &to = dz[i * a.value_wide + j];
        value = to + scaled(g.leave[i], value);
        to = value;
        s.z.x[i][j] = -value;
    });
    fill(s.d, {u.tall, COLUMNS}, [&](int i, int j) { return scaled(g.enter[i], d_out_at<T>(a, u, i, column + j)); });
}

/* Computes the gradients of a head's states after each chunk those before it, COLUMNS columns of them, and writes them down first. */
template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_dstates(scan_args a)
{
    LT_SHARED(dstates_space, s);
    const int head = blockIdx.x, column = blockIdx.y * COLUMNS;
    float *const dstate = a.dstate + (int64_t)head * a.key * a.value;
    for (int k = 0; k < a.key; k += SIDE)
        fill(s.state[k / SIDE], {slice_columns(a.key, k), COLUMNS}, [&](int i, int j) {
            return k + i < a.key && column + j < a.value ? dstate[(int64_t)(k + i) * a.value + column + j] : 0.0f;
        });
    __syncthreads();
    for (int64_t chunk = a.chunks - 1; chunk >= 0; chunk--) {
        const unit u = unit_of(a, chunk, head);
        const float keep = a.gates[u.at].enter[SIDE - 1];
        const float *const y = a.y + u.at * SIDE * a.key_wide;
        float *const to = a.dstates + u.at * a.key_wide * a.value_wide + column;
        for (int e = threadIdx.x; e < a.key_used * COLUMNS && a.dstates; e += THREADS)
            to[e / COLUMNS * a.value_wide + e % COLUMNS] = s.state[e / COLUMNS / SIDE].x[e / COLUMNS % SIDE][e % COLUMNS];
        find_dvalues<T, TENSOR>(a, u, column, s);
        for (int k = 0; k < a.key; k += SIDE) {
            const area in = {slice_columns(a.key, k), COLUMNS};
            sums<2> c;
            __syncthreads();
            fill(s.x, {u.tall, in.rows}, [&](int i, int j) { return query_at<T>(a, u, i, k + j) * entering(a, u, i, k + j); });
            __syncthreads();
            each(in, c, [&](int i, int j, float &value) {
                value = scaled(keep, s.state[k / SIDE].x[i][j] * entering(a, u, SIDE - 1, k + i));
            });
            multiply<TENSOR, ACROSS, PLAIN>(in, c, s.x, s.d, 0, u.tall);
            if (a.is_delta) {
                __syncthreads();
                fill(s.x, {u.tall, in.rows}, [&](int i, int j) { return y[i * a.key_wide + k + j]; });
                __syncthreads();
                multiply<TENSOR, ACROSS, PLAIN>(in, c, s.x, s.z, 0, u.tall);
            }
            store(s.state[k / SIDE], in, c);
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < a.key * COLUMNS; e += THREADS)
        if (column + e % COLUMNS < a.value)
            dstate[(int64_t)(e / COLUMNS) * a.value + column + e % COLUMNS] =
                s.state[e / COLUMNS / SIDE].x[e / COLUMNS % SIDE][e % COLUMNS];
}

/* --- All other gradients --- */

/* Turns dr and da, gradients of the weights of pairs of rows, into those of QK', in s.z, and of KK', both ways, in s.w; adds to those of
 * beta and of the sums of g. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void find_pairs(const scan_args &a, const unit &u, gradient_space &s, sums<4> &dr, sums<4> &da)
{
    sums<4> qk, kk;
    clear(qk);
    clear(kk);
    for (int k = 0; k < a.key; k += SIDE) {
        const int cols = slice_columns(a.key, k);
        __syncthreads();
        fill(s.x, {u.tall, cols}, [&](int i, int j) { return query_at<T>(a, u, i, k + j); });
        fill(s.y, {u.tall, cols}, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, qk, s.x, s.y, 0, cols);
        if (a.is_delta)
            multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, kk, s.y, s.y, 0, cols);
    }
    __syncthreads();
    /* x: the pairs' parts of the sums of g; y: of beta */
    each_at<4>({u.tall, u.tall}, [&](int i, int j, int n, int e) {
        const float decay = decay_between(s.gates, i, j), r = dr[n][e] * decay,
                    w = a.is_delta && j < i ? -da[n][e] * decay : 0.0f;
        s.z.x[i][j] = r;
        s.y.x[i][j] = kk[n][e] * w;
        s.x.x[i][j] = qk[n][e] * r + s.gates.beta[i] * (kk[n][e] * w);
        if (j <= i)
            s.w.x[i][j] = s.w.x[j][i] = s.gates.beta[i] * w;
    });
    __syncthreads();
    const int i = threadIdx.x / TEAM;
    const float across = row_sum(i, u.tall, [&](int r, int j) { return s.x.x[r][j]; });
    const float down = row_sum(i, u.tall, [&](int r, int j) { return s.x.x[j][r]; });
    const float of_beta = row_sum(i, u.tall, [&](int r, int j) { return s.y.x[r][j]; });
    if (threadIdx.x % TEAM == 0) {
        s.sum[i] += (double)(across - down);
        s.beta[i] += of_beta;
    }
    __syncthreads();
}

/* Turns the products that find_by_states computed into gradients of keys (dk) and queries (dq), and adds what they give to the gates'
 * gradients. */
__device__ __forceinline__ void weigh_slice(area in, gradient_space &s, sums<4> &dq, sums<4> &dk, sums<4> &error)
{
    float row[3][2] = {};
    each_at<4>(in, [&](int i, int j, int n, int e) {
        const float q = s.x.x[i][j], k = s.y.x[i][j], leaving = scaled(s.gates.leave[i], dk[n][e]);
        const float entering = scaled(s.gates.enter[i], error[n][e]);
        dq[n][e] = scaled(s.gates.enter[i], dq[n][e]);
        dk[n][e] = leaving - s.gates.beta[i] * entering;
        row[0][e / 2] += dq[n][e] * q;
        row[1][e / 2] += leaving * k;
        row[2][e / 2] += entering * k;
    });
    for (int p = 0; p < 3; p++)
        put_rows(s.part[p], row[p]);
    __syncthreads();
    const int i = threadIdx.x;
    if (i >= SIDE)
        return;
    const float entering = s.part[2][0][i] + s.part[2][1][i], leaving = s.part[1][0][i] + s.part[1][1][i];
    s.sum[i] += (double)(s.part[0][0][i] + s.part[0][1][i]) - (double)leaving - (double)(s.gates.beta[i] * entering);
    s.beta[i] -= entering;
    s.leave[i] += leaving;
}

/* Computes the gradients of a unit's keys and queries after their norm: those of queries take Y's place. Returns this thread's part of
 * the sum of S dS. */
template <typename T, bool TENSOR>
__device__ __forceinline__ double find_keys(const scan_args &a, const unit &u, gradient_space &s)
{
    float *const to = a.y + u.at * SIDE * a.key_wide;
    double sum = 0;
    for (int k = 0; k < a.key; k += SIDE) {
        const area in = {u.tall, slice_columns(a.key, k)};
        sums<4> dq, dk, error;
        sum += find_by_states<T, TENSOR>(a, u, k, s, dq, dk, error);
        __syncthreads();
        fill(s.x, in, [&](int i, int j) { return query_at<T>(a, u, i, k + j); });
        fill(s.y, in, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
        __syncthreads();
        weigh_slice(in, s, dq, dk, error);
        multiply<TENSOR, PLAIN, PLAIN>(in, dq, s.z, s.y, 0, warp_row() + 16);
        multiply<TENSOR, ACROSS, PLAIN>(in, dk, s.z, s.x, warp_row(), u.tall);
        if (a.is_delta)
            multiply<TENSOR, PLAIN, PLAIN>(in, dk, s.w, s.y, 0, u.tall);
        each_at<4>(in, [&](int i, int j, int n, int e) {
            to[i * a.key_wide + k + j] = dq[n][e];
            a.dstates[dkey_at(a, u.at, i, k + j)] = dk[n][e];
        });
    }
    return sum;
}

/* Writes the gradients of g. */
__device__ __forceinline__ void write_decays(const scan_args &a, const unit &u, gradient_space &s)
{
    const float keep = s.gates.enter[SIDE - 1];
    if (threadIdx.x == 0) {
        double states = 0, last = 0, sum = 0;
        for (int w = 0; w < THREADS / LT_WARP; w++)
            states += s.keep[w];
        for (int i = 0; i < SIDE; i++)
            last += (double)s.leave[i];
        s.sum[SIDE - 1] += last + (keep == 0.0f ? 0.0 : (double)keep * states);
        for (int i = SIDE - 1; i >= 0; i--) {
            const int32_t link = i < u.n ? a.links[u.first + i] : ROW_NONE;
            sum += s.sum[i];
            s.sum[i] = link == ROW_FOLLOWS ? sum : 0.0;
            sum = link == ROW_BEGINS ? 0.0 : sum;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < u.n; i += THREADS)
        a.g[(u.first + i) * a.heads + u.head] = (float)s.sum[i];
}

template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_gradients(scan_args a)
{
    LT_SHARED(gradient_space, s);
    const unit u = unit_here(a);
    sums<4> dr, da;
    gradients_clear(a, u, s);
    find_weights<T, TENSOR>(a, u, s, dr, da);
    find_pairs<T, TENSOR>(a, u, s, dr, da);
    const double states = warp_sum(find_keys<T, TENSOR>(a, u, s));
    if (threadIdx.x % LT_WARP == 0)
        s.keep[threadIdx.x / LT_WARP] = states;
    __syncthreads();
    write_decays(a, u, s);
    write_strengths(a, u, s);
}

/* Adds up the gradients of a row's key and query over the heads that read them, and writes those of their columns, by a warp. */
template <typename T> __global__ void __launch_bounds__(THREADS) write_keys(scan_args a)
{
    constexpr int EACH = CUDA_SCAN_DIM / LT_WARP; /* columns of a lane */
    const int lane = threadIdx.x % LT_WARP;
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LT_WARP, row = at / a.groups, group = at % a.groups;
    if (row >= a.rows)
        return;
    const int i = (int)(row % SIDE), per = a.heads / a.groups;
    const bool is_there = a.links[row] != ROW_NONE;
    for (int of_query = 0; of_query < 2; of_query++) {
        T *const x = (T *)a.qkv + row * a.ld + (of_query ? a.q_first : a.k_first) + group * a.key;
        const float norm = a.norms[at * 2 + of_query], scale = of_query ? a.scale : 1.0f;
        float to[EACH] = {}, own[EACH] = {}, dot = 0;
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const int j = c * LT_WARP + lane;
            for (int h = 0; h < per && j < a.key && is_there; h++) {
                const int64_t u = row / SIDE * a.heads + group * per + h;
                to[c] += of_query ? a.y[(u * SIDE + i) * a.key_wide + j] : a.dstates[dkey_at(a, u, i, j)];
            }
            own[c] = j < a.key && is_there ? get(x, j) * norm : 0.0f;
            dot += own[c] * to[c];
        }
        dot = warp_sum(dot) / (scale * scale);
#pragma unroll
        for (int c = 0; c < EACH; c++)
            if (c * LT_WARP + lane < a.key)
                put(x, c * LT_WARP + lane, is_there ? norm * (a.eps > 0 ? to[c] - dot * own[c] : to[c]) : 0.0f);
    }
}

/* Adds up a head's gradient of skip over the chunks. */
__global__ void __launch_bounds__(LT_WARP) write_skips(scan_args a)
{
    const int head = blockIdx.x * LT_WARP + threadIdx.x;
    if (head >= a.heads)
        return;
    double sum = 0;
    for (int64_t chunk = 0; chunk < a.chunks; chunk++)
        sum += a.dskips[chunk * a.heads + head];
    a.dskip[head] = (a.adds ? a.dskip[head] : 0.0f) + (float)sum;
}

template <typename T, bool TENSOR> enum status launch_dstates(const scan_args &a, void *stream)
{
    TRY(launch(dim3((unsigned)a.units), dim3(THREADS), sizeof(pair_space), stream, find_pulls<T, TENSOR>, a));
    return launch(dim3((unsigned)a.heads, (unsigned)ceil_div(a.value, COLUMNS)), dim3(THREADS), sizeof(dstates_space), stream,
                  find_dstates<T, TENSOR>, a);
}

template <typename T, bool TENSOR> enum status launch_gradients(const scan_args &a, void *stream)
{
    const dim3 units((unsigned)a.units), block(THREADS);
    if (a.sums)
        TRY(channels_cuda_gradients(a, TENSOR, stream));
    else
        TRY(launch(units, block, sizeof(gradient_space), stream, find_gradients<T, TENSOR>, a));
    TRY(launch(dim3((unsigned)ceil_div(a.rows * a.groups * LT_WARP, THREADS)), block, 0, stream, write_keys<T>, a));
    return a.dskip ? launch(dim3((unsigned)ceil_div(a.heads, LT_WARP)), dim3(LT_WARP), 0, stream, write_skips, a) : OK;
}

LT_SHARED_FITS(pair_space, LT_SHARED_SM86);
LT_SHARED_FITS(dstates_space, LT_SHARED_SM86);

} // namespace

enum status scan_cuda_dstates(const struct op_attrs *attrs, const struct scan_args *a, void *stream)
{
    return attrs->scan.dtype == F32 ? launch_dstates<float, false>(*a, stream) : launch_dstates<bf16, true>(*a, stream);
}

enum status ops_cuda_scan_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    scan_args a;
    TRY(scan_cuda_args("scan_grad", OP_SCAN_GRAD, attrs, arg[9], &a));
    a.qkv = arg[0];
    a.g = (float *)arg[1];
    a.beta = (float *)arg[2];
    a.dstate = (float *)arg[3];
    a.dskip = (float *)arg[4];
    a.d_out = arg[5];
    a.links = (const int32_t *)arg[6];
    a.before = (const float *)arg[7];
    a.skip = arg[8];
    TRY(scan_cuda_states(attrs, &a, stream));
    TRY(scan_cuda_dstates(attrs, &a, stream));
    return attrs->scan.dtype == F32 ? launch_gradients<float, false>(a, stream) : launch_gradients<bf16, true>(a, stream);
}
