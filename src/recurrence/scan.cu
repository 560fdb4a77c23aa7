/* The scan's forward pass: what concerns the rows of a chunk only, for all chunks at once; the states, chunk after chunk; the outputs of
 * all chunks. */
#include "recurrence/cuda_scan.cuh"

namespace
{

constexpr int BLOCK = 16;   /* rows of a system that are solved by substitution */
constexpr int COLUMNS = 32; /* columns of a state that a thread block has */
constexpr int TILES = CUDA_SCAN_DIM / SIDE;

/* --- Gates and norms --- */

/* Returns the sum of v over this lane and those before it. */
__device__ __forceinline__ double sum_before(double v, int lane)
{
#pragma unroll
    for (int far = 1; far < LT_WARP; far *= 2) {
        const double other = __shfl_up_sync(LT_FULL_MASK, v, far);
        v += lane >= far ? other : 0.0;
    }
    return v;
}

/* Finds the gates of a unit, by a warp: a lane has rows `lane` and `lane + 32`. */
__global__ void __launch_bounds__(THREADS) find_gates(scan_args a)
{
    const int lane = threadIdx.x % LT_WARP;
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LT_WARP;
    if (at >= a.units)
        return;
    const unit u = unit_of(a, at / a.heads, (int)(at % a.heads));
    double sum[2], before = 0;
    int32_t document[2], documents = 0;
    float beta[2];
    for (int half = 0; half < 2; half++) {
        const int i = lane + half * LT_WARP;
        const int32_t link = i < u.n ? a.links[u.first + i] : ROW_NONE;
        const int64_t gate = (u.first + i) * a.heads + u.head;
        sum[half] = before + sum_before(link == ROW_FOLLOWS && !a.sums ? (double)a.g[gate] : 0.0, lane);
        before = __shfl_sync(LT_FULL_MASK, sum[half], LT_WARP - 1);
        const unsigned begins = __ballot_sync(LT_FULL_MASK, link == ROW_BEGINS);
        document[half] = documents + __popc(begins & (LT_FULL_MASK >> (LT_WARP - 1 - lane)));
        documents += __popc(begins);
        beta[half] = link == ROW_NONE ? 0.0f : a.beta[gate];
    }
    chunk_gates &to = a.gates[at];
    for (int half = 0; half < 2; half++) {
        const int i = lane + half * LT_WARP;
        to.sum[i] = sum[half];
        to.document[i] = document[half];
        to.beta[i] = beta[half];
        to.enter[i] = document[half] == 0 ? expf((float)sum[half]) : 0.0f;
        to.leave[i] = document[half] == documents ? expf((float)(before - sum[half])) : 0.0f;
    }
}

/* Finds the factors of a row's key and query of one key head, by a warp. */
template <typename T> __global__ void __launch_bounds__(THREADS) find_norms(scan_args a)
{
    const int lane = threadIdx.x % LT_WARP;
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LT_WARP, row = at / a.groups, group = at % a.groups;
    if (row >= a.rows)
        return;
    const bool is_there = a.links[row] != ROW_NONE;
    for (int of_query = 0; of_query < 2; of_query++) {
        const int64_t from = row * a.ld + (of_query ? a.q_first : a.k_first) + group * a.key;
        const float scale = of_query ? a.scale : 1.0f;
        float square = 0;
        for (int j = lane; j < a.key && is_there && a.eps > 0; j += LT_WARP) {
            const float x = get((const T *)a.qkv, from + j);
            square += x * x;
        }
        square = warp_sum(square);
        if (lane == 0)
            a.norms[at * 2 + of_query] = a.eps > 0 ? 1.0f / sqrtf(square + a.eps) * scale : scale;
    }
}

/* --- Systems --- */

struct prepare_space {
    tile<SIDE> x, system, inverse;
    chunk_gates gates;
};

/* Inverts 1 + A, A [n,n] strictly lower, in fp32: the blocks on the diagonal by substitution, then those below by products, diagonal after
 * diagonal. A's blocks above the diagonal are overwritten. */
__device__ __forceinline__ void invert(tile<SIDE> &a, tile<SIDE> &out, int n)
{
    for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS)
        if (e / SIDE / BLOCK != e % SIDE / BLOCK)
            out.x[e / SIDE][e % SIDE] = 0.0f;
    if (threadIdx.x < SIDE) {
        const int column = threadIdx.x, first = column / BLOCK * BLOCK;
        float z[BLOCK];
#pragma unroll
        for (int i = 0; i < BLOCK; i++) {
            z[i] = first + i == column ? 1.0f : 0.0f;
#pragma unroll
            for (int j = 0; j < i; j++)
                z[i] -= a.x[first + i][first + j] * z[j];
            out.x[first + i][column] = z[i];
        }
    }
    __syncthreads();
    const int r = threadIdx.x / BLOCK, c = threadIdx.x % BLOCK;
    for (int far = BLOCK; far < n; far += BLOCK) {
        for (int j = 0; j + far < n; j += BLOCK) {
            const int i = j + far;
            float sum = 0;
            for (int k = j; k < i; k++)
                sum += a.x[i + r][k] * out.x[k][j + c];
            a.x[j + r][i + c] = sum;
        }
        __syncthreads();
        for (int j = 0; j + far < n; j += BLOCK) {
            const int i = j + far;
            float sum = 0;
            for (int k = 0; k < BLOCK; k++)
                sum += out.x[i + r][i + k] * a.x[j + k][i + c];
            out.x[i + r][j + c] = -sum;
        }
        __syncthreads();
    }
}

/* Computes strict(beta KK' L) of a unit. */
template <typename T, bool TENSOR>
__device__ __forceinline__ void find_system(const scan_args &a, const unit &u, prepare_space &s)
{
    sums<4> kk;
    clear(kk);
    for (int k = 0; k < (a.pairs ? 0 : a.key); k += SIDE) {
        const int cols = slice_columns(a.key, k);
        fill(s.x, {u.tall, cols}, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, kk, s.x, s.x, 0, cols);
        __syncthreads();
    }
    each({SIDE, SIDE}, kk, [&](int i, int j, float &value) {
        if (a.pairs)
            value = i < u.tall ? a.pairs[(u.at * 2 * SIDE + i) * SIDE + j] : 0.0f;
        s.system.x[i][j] = j < i ? s.gates.beta[i] * value * decay_between(s.gates, i, j) : 0.0f;
    });
    __syncthreads();
}

/* Writes T x, for a slice of columns in s.x, to [SIDE,wide]. */
template <bool TENSOR> __device__ __forceinline__ void put_solved(prepare_space &s, area in, float *to, int64_t wide)
{
    sums<4> c;
    clear(c);
    __syncthreads();
    multiply<TENSOR, PLAIN, PLAIN>(in, c, s.inverse, s.x, 0, warp_row() + BLOCK);
    each(in, c, [&](int i, int j, float &value) { to[i * wide + j] = value; });
    __syncthreads();
}

/* Computes T beta V and Y of a unit; SCAN_SSD: beta V. */
template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) prepare(scan_args a)
{
    LT_SHARED(prepare_space, s);
    const unit u = unit_here(a);
    gates_load(s.gates, a.gates[u.at]);
    __syncthreads();
    float *const z = a.z + u.at * SIDE * a.value_wide, *const y = a.y + u.at * SIDE * a.key_wide;
    if (!a.is_delta) {
        const int cols = (a.value + COLUMNS - 1) / COLUMNS * COLUMNS;
        for (int e = threadIdx.x; e < u.tall * cols && a.z; e += THREADS)
            z[e / cols * a.value_wide + e % cols] = scaled(s.gates.beta[e / cols], value_at<T>(a, u, e / cols, e % cols));
        return;
    }
    find_system<T, TENSOR>(a, u, s);
    invert(s.system, s.inverse, u.tall);
    for (int e = threadIdx.x; e < SIDE * SIDE && a.inverse; e += THREADS)
        a.inverse[u.at * SIDE * SIDE + e] = s.inverse.x[e / SIDE][e % SIDE];
    for (int v = 0; v < a.value && a.z; v += SIDE) {
        const area in = {u.tall, slice_columns(a.value, v)};
        fill(s.x, in, [&](int i, int j) { return scaled(s.gates.beta[i], value_at<T>(a, u, i, v + j)); });
        put_solved<TENSOR>(s, in, z + v, a.value_wide);
    }
    for (int k = 0; k < a.key; k += SIDE) {
        const area in = {u.tall, slice_columns(a.key, k)};
        fill(s.x, in, [&](int i, int j) {
            return scaled(s.gates.beta[i] * s.gates.enter[i], key_at<T>(a, u, i, k + j) * entering(a, u, i, k + j));
        });
        put_solved<TENSOR>(s, in, y + k, a.key_wide);
    }
}

/* --- States --- */

struct states_space {
    tile<SIDE> x;
    tile<COLUMNS> z, state[TILES];
};

/* COLUMNS columns of a head's matrix that pass from chunk to chunk: of its state, or of a summary's `move`, whose values are zero. */
struct state_part {
    const float *before; /* element (i, j) stands at i wide + j; NULL: zeros, of a summary the identity */
    float *after;        /* laid out alike; NULL: not wanted */
    int wide, column;    /* columns of the matrix; the first of these */
    bool moves;
};

__device__ __forceinline__ state_part part_here(const scan_args &a, int head)
{
    const int own = (a.value + COLUMNS - 1) / COLUMNS, block = (int)blockIdx.y;
    const bool moves = block >= own;
    const int wide = moves ? a.key : a.value, column = (moves ? block - own : block) * COLUMNS;
    const int64_t first = (int64_t)head * a.key * wide;
    const float *const before = moves && a.adds ? a.move : moves ? nullptr : a.before;
    float *const after = moves ? a.move : a.after;
    return {before ? before + first : nullptr, after ? after + first : nullptr, wide, column, moves};
}

/* Completes Z of a unit, and leaves r Z in s.z: the columns of p. */
template <bool TENSOR>
__device__ __forceinline__ void find_values(const scan_args &a, const unit &u, const state_part &p, states_space &s)
{
    const chunk_gates &g = a.gates[u.at];
    const float *const y = a.y + u.at * SIDE * a.key_wide;
    float *const z = a.z + u.at * SIDE * a.value_wide + p.column;
    sums<2> c;
    clear(c);
    for (int k = 0; k < (a.is_delta ? a.key : 0); k += SIDE) {
        const int cols = slice_columns(a.key, k);
        __syncthreads();
        fill(s.x, {u.tall, cols}, [&](int i, int j) { return y[i * a.key_wide + k + j]; });
        __syncthreads();
        multiply<TENSOR, PLAIN, PLAIN>({u.tall, COLUMNS}, c, s.x, s.state[k / SIDE], 0, cols);
    }
    each({u.tall, COLUMNS}, c, [&](int i, int j, float &value) {
        value = (p.moves ? 0.0f : z[i * a.value_wide + j]) - value;
        if (!p.moves)
            z[i * a.value_wide + j] = value;
        s.z.x[i][j] = scaled(g.leave[i], value);
    });
}

/* Loads the columns of p, as they are before the first chunk. */
__device__ __forceinline__ void enter_state(const scan_args &a, const state_part &p, states_space &s)
{
    for (int k = 0; k < a.key; k += SIDE)
        fill(s.state[k / SIDE], {slice_columns(a.key, k), COLUMNS}, [&](int i, int j) {
            const int row = k + i, column = p.column + j;
            if (!p.before || row >= a.key || column >= p.wide)
                return p.moves && !p.before && row == column ? 1.0f : 0.0f;
            return p.before[(int64_t)row * p.wide + column];
        });
    __syncthreads();
}

/* Updates a head's states, or its summary's matrices, COLUMNS columns of one, chunk after chunk, and writes states down before each. */
template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_states(scan_args a)
{
    LT_SHARED(states_space, s);
    const int head = blockIdx.x;
    const state_part p = part_here(a, head);
    enter_state(a, p, s);
    for (int64_t chunk = 0; chunk < a.chunks; chunk++) {
        const unit u = unit_of(a, chunk, head);
        const float keep = a.gates[u.at].enter[SIDE - 1];
        float *const to = a.states + u.at * a.key_wide * a.value_wide + p.column;
        for (int e = threadIdx.x; e < a.key_used * COLUMNS && a.states; e += THREADS)
            to[e / COLUMNS * a.value_wide + e % COLUMNS] = s.state[e / COLUMNS / SIDE].x[e / COLUMNS % SIDE][e % COLUMNS];
        find_values<TENSOR>(a, u, p, s);
        for (int k = 0; k < a.key; k += SIDE) {
            const area in = {slice_columns(a.key, k), COLUMNS};
            sums<2> c;
            __syncthreads();
            fill(s.x, {u.tall, in.rows}, [&](int i, int j) { return key_at<T>(a, u, i, k + j) * leaving(a, u, i, k + j); });
            __syncthreads();
            each(in, c, [&](int i, int j, float &value) {
                value = scaled(keep, s.state[k / SIDE].x[i][j] * entering(a, u, SIDE - 1, k + i));
            });
            multiply<TENSOR, ACROSS, PLAIN>(in, c, s.x, s.z, 0, u.tall);
            store(s.state[k / SIDE], in, c);
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < a.key * COLUMNS && p.after; e += THREADS)
        if (p.column + e % COLUMNS < p.wide)
            p.after[(int64_t)(e / COLUMNS) * p.wide + p.column + e % COLUMNS] =
                s.state[e / COLUMNS / SIDE].x[e / COLUMNS % SIDE][e % COLUMNS];
}

/* --- Outputs --- */

template <typename T, bool TENSOR> __global__ void __launch_bounds__(THREADS) find_outputs(scan_args a)
{
    LT_SHARED(pair_space, s);
    const unit u = unit_here(a);
    const float skip = a.skip ? get((const T *)a.skip, u.head) : 0.0f;
    sums<4> c;
    weigh_pairs<T, TENSOR>(a, u, s);
    const float *const state = a.states + u.at * a.key_wide * a.value_wide, *const z = a.z + u.at * SIDE * a.value_wide;
    for (int v = 0; v < a.value; v += SIDE) {
        const area in = {u.tall, slice_columns(a.value, v)};
        clear(c);
        for (int k = 0; k < a.key; k += SIDE) {
            const int cols = slice_columns(a.key, k);
            __syncthreads();
            fill(s.x, {u.tall, cols}, [&](int i, int j) { return query_at<T>(a, u, i, k + j) * entering(a, u, i, k + j); });
            fill(s.y, {cols, in.cols}, [&](int i, int j) { return state[(k + i) * a.value_wide + v + j]; });
            __syncthreads();
            multiply<TENSOR, PLAIN, PLAIN>(in, c, s.x, s.y, 0, cols);
        }
        each(in, c, [&](int i, int, float &value) { value = scaled(s.gates.enter[i], value); });
        __syncthreads();
        fill(s.y, in, [&](int i, int j) { return z[i * a.value_wide + v + j]; });
        __syncthreads();
        multiply<TENSOR, PLAIN, PLAIN>(in, c, s.r, s.y, 0, warp_row() + BLOCK);
        each(in, c, [&](int i, int j, float &value) {
            if (i < u.n && v + j < a.value)
                put((T *)a.o, output_row(a, u, i) + v + j, a.skip ? value + skip * value_at<T>(a, u, i, v + j) : value);
        });
    }
}

template <typename T, bool TENSOR> enum status launch_states(const scan_args &a, void *stream)
{
    const int64_t parts = ceil_div(a.value, COLUMNS) + (a.move ? ceil_div(a.key, COLUMNS) : 0);
    return launch(dim3((unsigned)a.heads, (unsigned)parts), dim3(THREADS), sizeof(states_space), stream, find_states<T, TENSOR>,
                  a);
}

template <typename T, bool TENSOR> enum status launch_prepare(const scan_args &a, void *stream)
{
    TRY(launch(dim3((unsigned)ceil_div(a.units * LT_WARP, THREADS)), dim3(THREADS), 0, stream, find_gates, a));
    TRY(launch(dim3((unsigned)ceil_div(a.rows * a.groups * LT_WARP, THREADS)), dim3(THREADS), 0, stream, find_norms<T>, a));
    if (a.sums)
        TRY(channels_cuda_prepare(a, TENSOR, stream));
    return launch(dim3((unsigned)a.units), dim3(THREADS), sizeof(prepare_space), stream, prepare<T, TENSOR>, a);
}

LT_SHARED_FITS(prepare_space, LT_SHARED_SM86);
LT_SHARED_FITS(states_space, LT_SHARED_SM86);
LT_SHARED_FITS(pair_space, LT_SHARED_SM86);

} // namespace

/* Refuses shapes that no kernel takes. */
static enum status check_shapes(const char *op, const struct op_attrs *attrs, int64_t units)
{
    const auto &s = attrs->scan;
    TRY(check_storage(op, s.dtype));
    if (s.kind < SCAN_DELTA || s.kind > SCAN_CHANNELS)
        return status_fail(ERR_INVALID, "%s on cuda: recurrence %d has no kernel", op, s.kind);
    if (s.key_dim < 1 || s.value_dim < 1 || s.key_dim > CUDA_SCAN_DIM || s.value_dim > CUDA_SCAN_DIM)
        return status_fail(ERR_INVALID, "%s on cuda: keys of %d and values of %d columns; at most %d are possible", op, s.key_dim,
                           s.value_dim, CUDA_SCAN_DIM);
    if (s.rows < 0 || s.heads < 1 || s.groups < 1 || s.heads % s.groups != 0 || units > INT32_MAX ||
        s.rows * s.groups / (THREADS / LT_WARP) > INT32_MAX)
        return status_fail(ERR_INVALID, "%s on cuda: %lld rows of %d heads and %d key heads", op, (long long)s.rows, s.heads,
                           s.groups);
    return OK;
}

enum status scan_cuda_args(const char *op, enum op_kind kind, const struct op_attrs *attrs, void *work, struct scan_args *a)
{
    const auto &s = attrs->scan;
    const struct scan_layout l = scan_layout_of(kind, attrs);
    char *const base = (char *)(((uintptr_t)work + CUDA_SCAN_ALIGN - 1) / CUDA_SCAN_ALIGN * CUDA_SCAN_ALIGN);
    const auto part = [base](int64_t at) { return at < 0 ? nullptr : (float *)(base + at); };
    TRY(check_shapes(op, attrs, l.units));
    *a = {};
    a->rows = s.rows;
    a->ld = s.ld;
    a->chunks = ceil_div(s.rows, SIDE);
    a->units = l.units;
    a->key_wide = l.key;
    a->value_wide = l.value;
    a->heads = s.heads;
    a->groups = s.groups;
    a->key = s.key_dim;
    a->key_used = (int)round_up(s.key_dim, 32);
    a->value = s.value_dim;
    a->q_first = s.q_first;
    a->k_first = s.k_first;
    a->v_first = s.v_first;
    a->is_delta = s.kind != SCAN_SSD;
    a->adds = s.accumulate;
    a->scale = s.scale;
    a->eps = s.eps;
    a->gates = (struct chunk_gates *)(base + l.gates);
    a->norms = part(l.norms);
    a->y = part(l.y);
    a->z = part(l.z);
    a->states = part(l.states);
    a->inverse = part(l.inverse);
    a->dz = part(l.dz);
    a->dstates = part(l.dstates);
    a->dskips = (double *)part(l.dskips);
    a->sums = (double *)part(l.sums);
    a->pairs = part(l.pairs);
    return OK;
}

enum status scan_cuda_prepare(const struct op_attrs *attrs, const struct scan_args *a, void *stream)
{
    return attrs->scan.dtype == F32 ? launch_prepare<float, false>(*a, stream) : launch_prepare<bf16, true>(*a, stream);
}

enum status scan_cuda_states(const struct op_attrs *attrs, const struct scan_args *a, void *stream)
{
    TRY(scan_cuda_prepare(attrs, a, stream));
    return attrs->scan.dtype == F32 ? launch_states<float, false>(*a, stream) : launch_states<bf16, true>(*a, stream);
}

enum status ops_cuda_scan(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    scan_args a;
    TRY(scan_cuda_args("scan", OP_SCAN, attrs, arg[8], &a));
    a.o = arg[0];
    a.after = (float *)arg[1];
    a.qkv = arg[2];
    a.g = (float *)arg[3];
    a.beta = (float *)arg[4];
    a.links = (const int32_t *)arg[5];
    a.before = (const float *)arg[6];
    a.skip = arg[7];
    TRY(scan_cuda_states(attrs, &a, stream));
    return launch(dim3((unsigned)a.units), dim3(THREADS), sizeof(pair_space), stream,
                  attrs->scan.dtype == F32 ? find_outputs<float, false> : find_outputs<bf16, true>, a);
}
