/* Normalising rows, forward and backward, by the formulas of norm.h. */
#include "device/cuda/ptx.cuh"
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int NORM_THREADS = 512;     /* most threads that share a row */
constexpr int ROW_RUNS = 4;           /* runs of a row that a thread keeps in registers from pass to pass */
constexpr int MOST_COLUMNS = 1 << 30; /* forward: columns are counted in 32 bits, which saves registers */
constexpr int ROW_GROUP = 32;         /* rows whose column sums one block takes; norm.h's layout of `work` */
constexpr int PANEL_RUNS = 2;         /* runs of columns whose sums a thread keeps in registers */
constexpr int MOST_TEAMS = 8;         /* most teams that share a block's ROW_GROUP rows */

/* Holds the operands of both directions. */
template <typename T> struct norm_args {
    int64_t rows, dim, segments; /* segments of a row in memory; each segment counts as one of `rows` here, of length dim */
    float eps, one;              /* one: added to weights, or used in their place */
    int centred;                 /* 1: a row's mean is subtracted */
    T *out;                      /* y, or dx */
    const T *x, *weight, *bias;
    const float *dy;
    float *work; /* [groups][2][pitch], or NULL */
    int bias_sums;

    __device__ __forceinline__ int64_t pitch() const
    {
        return dim * segments;
    }
};

/* Holds a thread's runs of a row. each() calls add(run, column) for all of them, the first ROW_RUNS from registers. */
template <typename T, int N> struct row_runs {
    const T *x;
    int dim;
    float held[ROW_RUNS][N];

    __device__ __forceinline__ row_runs(const T *row, int64_t columns) : x(row), dim((int)columns)
    {
#pragma unroll
        for (int c = 0; c < ROW_RUNS; c++)
            if (column(c) < dim)
                load<N>(held[c], x + column(c));
    }

    __device__ __forceinline__ int column(int run) const
    {
        return (run * (int)blockDim.x + (int)threadIdx.x) * N;
    }

    template <typename ADD> __device__ __forceinline__ void each(const ADD &add)
    {
#pragma unroll
        for (int c = 0; c < ROW_RUNS; c++)
            if (column(c) < dim)
                add(held[c], column(c));
        for (int j = column(ROW_RUNS); j < dim; j += (int)blockDim.x * N) {
            float v[N];
            load<N>(v, x + j);
            add(v, j);
        }
    }
};

struct norm_space {
    warp_parts<float, 1> mean, square;
};

template <typename T, int N> __global__ void __launch_bounds__(NORM_THREADS) norm_rows(norm_args<T> p)
{
    LT_SHARED(norm_space, s);
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= p.rows * p.segments)
        return; /* no barrier is missed: rows share a block only if each is a single warp's */
    const int64_t segment = p.segments > 1 ? row % p.segments * p.dim : 0;
    row_runs<T, N> x(p.x + row * p.dim, p.dim);
    T *y = p.out + row * p.dim;
    float mean = 0.0f, sum[1] = {};
    if (p.centred) {
        x.each([&](const float(&v)[N], int) {
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[0] += v[k];
        });
        row_sum(sum, s.mean);
        mean = sum[0] / (float)p.dim;
        sum[0] = 0.0f;
    }
    x.each([&](const float(&v)[N], int) {
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[0] += (v[k] - mean) * (v[k] - mean);
    });
    row_sum(sum, s.square);
    const float r = 1.0f / sqrtf(sum[0] / (float)p.dim + p.eps);
    x.each([&](const float(&v)[N], int j) {
        float w[N] = {}, b[N] = {};
        if (p.weight)
            load<N>(w, p.weight + segment + j);
        if (p.bias)
            load<N>(b, p.bias + segment + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            w[k] = fmaf((v[k] - mean) * r, p.one + w[k], b[k]);
        store<N>(y + j, w);
    });
}

/* Holds a thread's columns of one row in a panel. */
template <int N> struct panel_row {
    float x[PANEL_RUNS][N], dy[PANEL_RUNS][N];
};

/* A thread's columns of the panel: they begin at first, first + stride, ... */
struct panel_columns {
    int64_t first, stride;
};

constexpr int MOST_STAGES =
    3; /* most rows of a panel that shared memory holds: one is being computed, the others are being copied */

/* Gives the bytes of a thread's columns of one row, which this thread alone copies and reads. */
template <typename T, int N> constexpr int STAGE_BYTES = PANEL_RUNS *N *(2 * (int)sizeof(T) + (int)sizeof(float));

/* Starts copies of N elements to shared memory, 16 bytes at a time. */
template <int N, typename V> __device__ __forceinline__ void fetch(const V *to, const V *from)
{
#pragma unroll
    for (int q = 0; q < N * (int)sizeof(V) / 16; q++)
        cp_async_16(smem_addr(reinterpret_cast<const char *>(to) + 16 * q), reinterpret_cast<const char *>(from) + 16 * q);
}

/* Holds a team's rows in shared memory, copied 16 bytes at a time. Unaligned elements are read from global memory when needed. */
template <typename T, int N> struct row_stages {
    const norm_args<T> &p;
    unsigned char *space;
    int stages;

    __device__ __forceinline__ const T *x(int64_t row, int c) const
    {
        return reinterpret_cast<const T *>(space + row % stages * blockDim.x * STAGE_BYTES<T, N>) +
               (c * blockDim.x + threadIdx.x) * N;
    }

    __device__ __forceinline__ const T *dx(int64_t row, int c) const
    {
        return x(row, c + PANEL_RUNS);
    }

    __device__ __forceinline__ const float *dy(int64_t row, int c) const
    {
        const T *behind = x(row, 2 * PANEL_RUNS) - threadIdx.x * N;
        return reinterpret_cast<const float *>(behind) + (c * blockDim.x + threadIdx.x) * N;
    }

    /* Starts the copies of a row, if it is before `end`. */
    __device__ __forceinline__ void start(int64_t row, int64_t end, const panel_columns &at) const
    {
        if constexpr (N > 1) {
#pragma unroll
            for (int c = 0; c < PANEL_RUNS; c++) {
                const int64_t j = at.first + c * at.stride;
                if (row < end && j < p.dim) {
                    fetch<N>(x(row, c), p.x + row * p.pitch() + j);
                    fetch<N>(dy(row, c), p.dy + row * p.pitch() + j);
                    fetch<N>(dx(row, c), (const T *)p.out + row * p.pitch() + j);
                }
            }
            cp_async_commit();
        }
    }

    /* Waits for a row and loads it, with zeros from `end` on. The copies of stages - 1 later rows have been started already. */
    __device__ __forceinline__ void take(panel_row<N> &h, int64_t row, int64_t end, const panel_columns &at) const
    {
        if (stages == 3)
            cp_async_wait<2>();
        else if (stages == 2)
            cp_async_wait<1>();
        else
            cp_async_wait<0>();
#pragma unroll
        for (int c = 0; c < PANEL_RUNS; c++) {
            const int64_t j = at.first + c * at.stride;
            if (row >= end || j >= p.dim)
                continue;
            load<N>(h.x[c], N == 1 ? p.x + row * p.pitch() + j : x(row, c));
            load<N>(h.dy[c], N == 1 ? p.dy + row * p.pitch() + j : dy(row, c));
        }
    }

    /* Loads dx of a row that take() has loaded. */
    __device__ __forceinline__ void take_dx(float (&v)[N], int64_t row, int64_t j, int c) const
    {
        load<N>(v, N == 1 ? p.out + row * p.pitch() + j : dx(row, c));
    }
};

/* Calls add(x, dy, column) for every run of the row that belongs to this thread. Runs of the panel are in registers, others are
 * read. */
template <typename T, int N, typename ADD>
__device__ __forceinline__ void each_run(const panel_row<N> &h, const norm_args<T> &p, int64_t row, const panel_columns &at,
                                         const ADD &add)
{
#pragma unroll
    for (int c = 0; c < PANEL_RUNS; c++)
        if (at.first + c * at.stride < p.dim)
            add(h.x[c], h.dy[c], at.first + c * at.stride);
    const int64_t panel = at.stride * PANEL_RUNS;
    if (p.dim <= panel)
        return;
    for (int64_t j = (int64_t)threadIdx.x * N; j < p.dim; j += at.stride) {
        float x[N], dy[N];
        if (j >= at.first && j < at.first + panel)
            continue;
        load<N>(x, p.x + row * p.pitch() + j);
        load<N>(dy, p.dy + row * p.pitch() + j);
        add(x, dy, j);
    }
}

struct row_stats {
    float mean, r, mean_g, mean_gx;
};

struct gradient_parts {
    warp_parts<float, 1> mean;
    warp_parts<float, 3> products;
};

struct gradient_space {
    gradient_parts row[MOST_TEAMS][2]; /* used in turn, so that a row's barriers also separate the rows before and after it */
};

/* Computes the statistics of a row, and the means of g = dy * weight and g * xhat. */
template <typename T, int N>
__device__ __forceinline__ row_stats gradient_stats(const panel_row<N> &h, const norm_args<T> &p, int64_t row,
                                                    const panel_columns &at, gradient_parts &s)
{
    row_stats st = {};
    if (p.centred) {
        float total[1] = {};
        each_run<T, N>(h, p, row, at, [&](const float(&x)[N], const float(&)[N], int64_t) {
#pragma unroll
            for (int k = 0; k < N; k++)
                total[0] += x[k];
        });
        row_sum(total, s.mean);
        st.mean = total[0] / (float)p.dim;
    }
    float sum[3] = {};
    each_run<T, N>(h, p, row, at, [&](const float(&x)[N], const float(&dy)[N], int64_t j) {
        float w[N] = {};
        if (p.weight)
            load<N>(w, p.weight + j);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float centred = x[k] - st.mean, g = dy[k] * (p.one + w[k]);
            sum[0] += centred * centred;
            sum[1] += g;
            sum[2] += g * centred;
        }
    });
    row_sum(sum, s.products);
    st.r = 1.0f / sqrtf(sum[0] / (float)p.dim + p.eps);
    st.mean_g = p.centred ? sum[1] / (float)p.dim : 0.0f;
    st.mean_gx = sum[2] * st.r / (float)p.dim;
    return st;
}

/* Computes dx of N columns of a row, and adds its terms to the column sums dw and db. */
template <typename T, int N>
__device__ __forceinline__ void gradient_run(const norm_args<T> &p, const row_stats &st, int64_t row, int64_t j,
                                             const float (&x)[N], const float (&dy)[N], float (&dx)[N], float (&dw)[N],
                                             float (&db)[N])
{
    float w[N] = {};
    if (p.weight)
        load<N>(w, p.weight + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float xhat = (x[k] - st.mean) * st.r;
        dx[k] += st.r * (fmaf(-xhat, st.mean_gx, dy[k] * (p.one + w[k])) - st.mean_g);
        dw[k] = fmaf(dy[k], xhat, dw[k]);
        db[k] += dy[k];
    }
    store<N>(p.out + row * p.pitch() + j, dx);
}

/* Holds column sums of the teams' rows, in the shared memory that the rows no longer need: sums[0] of the weights, sums[1] of the
 * bias. */
template <int N> struct team_sums {
    float *sums;

    __device__ __forceinline__ float *at(int team, int which, int c) const
    {
        return sums + (((team * 2 + which) * PANEL_RUNS + c) * (int)blockDim.x + (int)threadIdx.x) * N;
    }

    /* Adds all teams' sums to the first team's, in order. */
    __device__ __forceinline__ void add(float (&sum)[2][PANEL_RUNS][N]) const
    {
        const int team = threadIdx.y;
#pragma unroll
        for (int i = 0; i < 2 * PANEL_RUNS && team > 0; i++)
#pragma unroll
            for (int k = 0; k < N; k++)
                at(team, i / PANEL_RUNS, i % PANEL_RUNS)[k] = sum[i / PANEL_RUNS][i % PANEL_RUNS][k];
        __syncthreads();
        for (int other = 1; other < (int)blockDim.y && team == 0; other++)
#pragma unroll
            for (int i = 0; i < 2 * PANEL_RUNS; i++)
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[i / PANEL_RUNS][i % PANEL_RUNS][k] += at(other, i / PANEL_RUNS, i % PANEL_RUNS)[k];
    }
};

/* Computes dx and column sums of ROW_GROUP rows in one block. Teams of blockDim.x threads share the rows; each takes its own one
 * after the other. A thread owns columns, so their sums stay in its registers. If a row is wider than a panel (all threads'
 * registers), there is one team, and the rows are walked once per panel. */
template <typename T, int N> __global__ void __launch_bounds__(NORM_THREADS, 1) norm_grad_rows(norm_args<T> p, int stages)
{
    LT_SHARED(gradient_space, s);
    unsigned char *const space = reinterpret_cast<unsigned char *>(&s + 1);
    const int team = threadIdx.y;
    const row_stages<T, N> rows = {p, space + team * stages * (int)blockDim.x * STAGE_BYTES<T, N>, stages};
    const int64_t group = blockIdx.x, left = p.rows - group * ROW_GROUP;
    /* most: rows of the first team, which has at least as many as any other */
    const int each = ROW_GROUP / (int)blockDim.y, most = left < each ? (int)left : each;
    const int64_t first = group * ROW_GROUP + team * each, end = first + each < p.rows ? first + each : p.rows;
    const int64_t stride = (int64_t)blockDim.x * N, panel = stride * PANEL_RUNS;
    panel_columns at = {(int64_t)threadIdx.x * N, stride};
    const int64_t segment = blockIdx.y * p.dim;
    p.x += segment;
    if (p.weight)
        p.weight += segment;
    p.dy += segment;
    p.out += segment;
    for (int64_t start = 0; start < p.dim; start += panel, at.first += panel) {
        float sum[2][PANEL_RUNS][N] = {};
        for (int64_t row = first; row < first + stages - 1; row++)
            rows.start(row, end, at);
        for (int64_t row = first; row < first + most; row++) { /* all teams meet at barriers, also beyond `end` */
            panel_row<N> h = {};
            rows.start(row + stages - 1, end, at);
            rows.take(h, row, end, at);
            const row_stats st = gradient_stats<T, N>(h, p, row, at, s.row[team][row % 2]);
#pragma unroll
            for (int c = 0; c < PANEL_RUNS; c++) {
                const int64_t j = at.first + c * stride;
                float dx[N];
                if (row >= end || j >= p.dim)
                    continue;
                rows.take_dx(dx, row, j, c);
                gradient_run<T, N>(p, st, row, j, h.x[c], h.dy[c], dx, sum[0][c], sum[1][c]);
            }
        }
        __syncthreads(); /* the next panel's first row may reuse the last row's parts, and sums overwrite the staged rows */
        if (!p.work)
            continue;
        if (blockDim.y > 1)
            team_sums<N>{reinterpret_cast<float *>(space)}.add(sum);
#pragma unroll
        for (int c = 0; c < PANEL_RUNS; c++) {
            const int64_t j = at.first + c * stride;
            if (team == 0 && j < p.dim)
                store<N>(p.work + 2 * group * p.pitch() + segment + j, sum[0][c]);
            if (team == 0 && j < p.dim && p.bias_sums)
                store<N>(p.work + (2 * group + 1) * p.pitch() + segment + j, sum[1][c]);
        }
    }
}

/* Returns the number of teams of `threads` threads: as many as fit into a block, a power of two. The order of column sums depends
 * on it, so it depends only on the number of columns. */
inline unsigned teams_of(unsigned threads)
{
    unsigned teams = 1;
    while (teams < MOST_TEAMS && 2 * teams * threads <= NORM_THREADS)
        teams *= 2;
    return teams;
}

constexpr int STRIPS = 32; /* strips of groups, each added up by one warp */

struct strip_sums {
    float part[STRIPS][LT_WARP];
};

/* Computes out[j] (+)= sum over groups of sums[g * stride + j]: the groups of each strip are added in order, then the strips. */
__global__ void __launch_bounds__(STRIPS *LT_WARP)
    add_groups(float *out, const float *sums, int64_t stride, int64_t groups, int64_t dim, int accumulate)
{
    LT_SHARED(strip_sums, s);
    const int strip = threadIdx.y, lane = threadIdx.x;
    const int64_t j = (int64_t)blockIdx.x * LT_WARP + lane, each = (groups + STRIPS - 1) / STRIPS;
    int64_t end = (strip + 1) * each < groups ? (strip + 1) * each : groups;
    float total = 0.0f;
    if (j < dim) {
#pragma unroll 8
        for (int64_t g = strip * each; g < end; g++)
            total += sums[g * stride + j];
    }
    s.part[strip][lane] = total;
    __syncthreads();
    if (strip == 0 && j < dim) {
        for (int k = 1; k < STRIPS; k++)
            total += s.part[k][lane];
        out[j] = accumulate ? out[j] + total : total;
    }
}

enum status reduce_groups(float *out, const float *sums, const struct op_attrs *attrs, void *stream)
{
    if (!out)
        return OK;
    int64_t dim = attrs->norm.dim;
    return launch(dim3((unsigned)blocks_of(dim, LT_WARP)), dim3(LT_WARP, STRIPS), sizeof(strip_sums), stream, add_groups, out,
                  sums, 2 * dim, blocks_of(attrs->norm.rows, ROW_GROUP), dim, attrs->norm.accumulate);
}

template <typename T, int N> enum status launch_norm(const norm_args<T> &p, void *stream)
{
    unsigned x = reducing_threads(blocks_of(p.dim, N * ROW_RUNS), NORM_THREADS), y = x == LT_WARP ? 8 : 1;
    return launch(dim3((unsigned)blocks_of(p.rows * p.segments, y)), dim3(x, y), sizeof(norm_space), stream, norm_rows<T, N>, p);
}

template <typename T, int N> enum status launch_norm_grad(const norm_args<T> &p, void *stream)
{
    const unsigned threads = reducing_threads(blocks_of(p.dim, N * PANEL_RUNS), NORM_THREADS), teams = teams_of(threads);
    static_assert(STAGE_BYTES<T, N> >= 2 * PANEL_RUNS * N * (int)sizeof(float), "a team's sums do not fit into a row's place");
    const int64_t each = (int64_t)teams * threads * STAGE_BYTES<T, N>;
    int64_t stages = 1; /* one stage: without alignment nothing is copied ahead */
    if (N > 1) {
        stages = MOST_STAGES;
        TRY(shared_pieces(&stages, sizeof(gradient_space), each));
    }
    return launch(dim3((unsigned)blocks_of(p.rows, ROW_GROUP), (unsigned)p.segments), dim3(threads, teams),
                  sizeof(gradient_space) + (size_t)(stages * each), stream, norm_grad_rows<T, N>, p, (int)stages);
}

template <typename T> norm_args<T> args_of(const struct op_attrs *attrs, void *const *arg)
{
    norm_args<T> p = {};
    p.segments = attrs->norm.segments > 1 ? attrs->norm.segments : 1;
    p.rows = attrs->norm.rows;
    p.dim = attrs->norm.dim / p.segments;
    p.eps = attrs->norm.eps;
    p.one = attrs->norm.kind == NORM_RMS_ONE || attrs->norm.kind == NORM_LAYER_ONE || !arg[2] ? 1.0f : 0.0f;
    p.centred = attrs->norm.kind == NORM_LAYER || attrs->norm.kind == NORM_LAYER_ONE;
    p.out = (T *)arg[0];
    p.x = (const T *)arg[1];
    p.weight = (const T *)arg[2];
    return p;
}

template <typename T> enum status run_norm(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    norm_args<T> p = args_of<T>(attrs, arg);
    p.bias = (const T *)arg[3];
    if (p.dim % WIDTH<T> == 0 && aligned_to_vectors({p.out, p.x, p.weight, p.bias}))
        return launch_norm<T, WIDTH<T>>(p, stream);
    return launch_norm<T, 1>(p, stream);
}

template <typename T> enum status run_norm_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    norm_args<T> p = args_of<T>(attrs, arg);
    float *dweight = (float *)arg[4], *dbias = (float *)arg[5];
    p.dy = (const float *)arg[3];
    p.work = dweight || dbias ? (float *)arg[6] : NULL;
    p.bias_sums = dbias != NULL;
    if (p.dim % WIDTH<T> == 0 && aligned_to_vectors({p.out, p.x, p.weight, p.dy, p.work}))
        TRY((launch_norm_grad<T, WIDTH<T>>(p, stream)));
    else
        TRY((launch_norm_grad<T, 1>(p, stream)));
    TRY(reduce_groups(dweight, p.work, attrs, stream));
    return reduce_groups(dbias, p.work + attrs->norm.dim, attrs, stream);
}

/* Computes y = x. */
enum status run_none(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    struct op_attrs copy = {};
    copy.copy.bytes = attrs->norm.rows * attrs->norm.dim * dtype_size((enum dtype)attrs->norm.dtype);
    void *const source_first[] = {arg[1], arg[0]};
    return ops_cuda_copy(&copy, source_first, stream);
}

/* Computes dx += dy. */
enum status run_none_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    struct op_attrs add = {};
    add.add.rows = attrs->norm.rows;
    add.add.dim = attrs->norm.dim;
    add.add.dtype = attrs->norm.dtype;
    void *const sum[] = {arg[0], arg[0], arg[3], NULL};
    return ops_cuda_add(&add, sum, stream);
}

} // namespace

enum status ops_cuda_norm(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("norm", attrs->norm.dtype));
    if (attrs->norm.dim > MOST_COLUMNS)
        return status_fail(ERR_INVALID, "norm on cuda: %lld columns; at most %d", (long long)attrs->norm.dim, MOST_COLUMNS);
    if (attrs->norm.rows <= 0 || attrs->norm.dim <= 0)
        return OK;
    if (attrs->norm.kind == NORM_NONE)
        return run_none(attrs, arg, stream);
    return attrs->norm.dtype == BF16 ? run_norm<bf16>(attrs, arg, stream) : run_norm<float>(attrs, arg, stream);
}

enum status ops_cuda_norm_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("norm_grad", attrs->norm.dtype));
    if (attrs->norm.dim <= 0)
        return OK;
    if (attrs->norm.kind == NORM_NONE)
        return run_none_grad(attrs, arg, stream);
    return attrs->norm.dtype == BF16 ? run_norm_grad<bf16>(attrs, arg, stream) : run_norm_grad<float>(attrs, arg, stream);
}
