/* Cross entropy and its gradient: the formulas of loss.h. */
#include "device/cuda/ptx.cuh"
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int ROW_THREADS = 512;
constexpr int RUN = 4;                           /* logits that a thread takes at a time: 16 bytes */
constexpr int HELD = LT_LIMIT(16, 2);            /* runs that a thread keeps in registers */
constexpr int AHEAD = 4;                         /* runs in flight per thread */
constexpr int64_t BATCH = LT_LIMIT(65536, 1050); /* rows per launch, whose losses are kept until they are summed */
constexpr float LOG2_E = 1.44269504f, LOWEST = -1e38f;
constexpr double LN_2 = 0.69314718055994531;

__device__ double row_losses[BATCH];

/* Logits taken as they are. */
struct plain_logits {
    template <int N> __device__ __forceinline__ void apply(float (&)[N]) const
    {
    }

    /* Returns the derivative of the changed logit with respect to the stored one, a factor of the gradient. */
    __device__ __forceinline__ float slope(float) const
    {
        return 1.0f;
    }
};

/* Logits changed to y = cap * tanh(scale * logit / cap), or scale * logit without a cap. */
struct capped_logits {
    float scale, cap;

    template <int N> __device__ __forceinline__ void apply(float (&v)[N]) const
    {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = cap > 0.0f ? cap * tanhf(scale * v[k] / cap) : scale * v[k];
    }

    __device__ __forceinline__ float slope(float y) const
    {
        const float t = cap > 0.0f ? y / cap : 0.0f;
        return scale * fmaf(-t, t, 1.0f);
    }
};

/* The start of a block's shared memory; runs of logits lie behind it. */
struct loss_space {
    warp_parts<float, 1> max;
    warp_parts<double, 1> sum;
};

/* A row as one thread sees it. Rows may start anywhere, so a few edge elements lie before the first 16-byte boundary and after
 * the last. Between them are runs, which the threads take in turn.
 *
 * Between the passes, a thread keeps its first `kept` runs in shared memory and HELD more in registers. It reads the others
 * again, the last first, as the last are still in the L2 cache. */
struct row_runs {
    const float *x;
    float *shared;
    int64_t n, head, body; /* [0, head) and [body, n) are edges */
    int64_t stride, runs, kept;

    __device__ __forceinline__ row_runs(const float *row, int64_t vocab, int64_t kept_runs, float *space) : x(row), n(vocab)
    {
        head = (int64_t)((16 - (uintptr_t)x % 16) % 16 / 4);
        head = head < n ? head : n;
        body = head + (n - head) / RUN * RUN;
        stride = (int64_t)blockDim.x * RUN;
        runs = (body - head + stride - 1) / stride;
        kept = kept_runs < runs ? kept_runs : runs;
        shared = space + threadIdx.x * RUN;
    }

    __device__ __forceinline__ int64_t at(int64_t run) const
    {
        return head + run * stride + (int64_t)threadIdx.x * RUN;
    }

    __device__ __forceinline__ bool has(int64_t run) const
    {
        return at(run) < body;
    }

    /* Returns this thread's edge element, or n. */
    __device__ __forceinline__ int64_t edge() const
    {
        const int64_t e = threadIdx.x < head ? threadIdx.x : body + (threadIdx.x - head);
        return e < n ? e : n;
    }
};

/* The largest logit so far, `shift` = max * log2 e, and the sum of exp2(x * log2 e - shift). */
struct online {
    float max, shift, sum;
    template <int A, int N> __device__ __forceinline__ void take(const float (&v)[A][N])
    {
        float larger = max;
#pragma unroll
        for (int a = 0; a < A; a++)
#pragma unroll
            for (int k = 0; k < N; k++)
                larger = fmaxf(larger, v[a][k]);
        if (larger > max) {
            const float to = larger * LOG2_E;
            sum *= ex2(shift - to);
            shift = to;
            max = larger;
        }
#pragma unroll
        for (int a = 0; a < A; a++) {
            float more = 0.0f;
#pragma unroll
            for (int k = 0; k < N; k++)
                more += ex2(fmaf(v[a][k], LOG2_E, -shift));
            sum += more;
        }
    }
};

/* Loads RUN logits, scaled and capped; positions beyond the row get -inf, which adds nothing. */
template <typename LOGITS>
__device__ __forceinline__ void load_run(float (&v)[RUN], const row_runs &row, int64_t run, const LOGITS &logits)
{
#pragma unroll
    for (int k = 0; k < RUN; k++)
        v[k] = -INFINITY;
    if (row.has(run)) {
        load<RUN>(v, row.x + row.at(run));
        logits.apply(v);
    }
}

template <typename LOGITS>
__device__ __forceinline__ online first_pass(const row_runs &row, float (&held)[HELD][RUN], const LOGITS &logits)
{
    online part = {LOWEST, LOWEST * LOG2_E, 0.0f}; /* not -inf: in a row of -inf, m - m would be NaN instead of 0 */
    for (int64_t r = 0; r < row.kept; r += HELD) {
#pragma unroll
        for (int a = 0; a < HELD; a++)
            load_run(held[a], row, r + a < row.kept ? r + a : row.runs, logits);
#pragma unroll
        for (int a = 0; a < HELD; a++)
            if (r + a < row.kept)
                *reinterpret_cast<float4 *>(row.shared + (r + a) * row.stride) =
                    make_float4(held[a][0], held[a][1], held[a][2], held[a][3]);
        part.take(held);
    }
#pragma unroll
    for (int a = 0; a < HELD; a++)
        load_run(held[a], row, row.kept + a, logits);
    part.take(held);
    for (int64_t r = row.kept + HELD; r < row.runs; r += AHEAD) {
        float v[AHEAD][RUN];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            load_run(v[a], row, r + a, logits);
        part.take(v);
    }
    if (row.edge() < row.n) {
        float v[1][1] = {{row.x[row.edge()]}};
        logits.apply(v[0]);
        part.take(v);
    }
    return part;
}

template <typename LOGITS> struct gradient_of_row {
    LOGITS logits;
    int64_t target;
    float shift, scale, inv_targets;
    /* Turns N logits from column j on, scaled and capped already, into their gradient. */
    template <int N> __device__ __forceinline__ void take(float (&v)[N], int64_t j) const
    {
        float slope[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            slope[k] = logits.slope(v[k]);
            v[k] = ex2(fmaf(v[k], LOG2_E, -shift)) * scale;
        }
        if (target >= j && target < j + N) {
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] -= j + k == target ? inv_targets : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] *= slope[k];
    }
};

/* Stores a run of a row's gradient. With an odd ld, rows need not begin at a vector's boundary. */
__device__ __forceinline__ void stream_run(bf16 *to, const float (&v)[RUN])
{
    if ((uintptr_t)to % 8 == 0) {
        __stcs(reinterpret_cast<uint2 *>(to), make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3])));
    } else {
#pragma unroll
        for (int k = 0; k < RUN; k++)
            to[k] = (bf16)bf16_pair(v[k], 0.0f);
    }
}

template <typename GRADIENT>
__device__ __forceinline__ void store_gradient(bf16 *to, float (&v)[RUN], const row_runs &row, int64_t run,
                                               const GRADIENT &gradient)
{
    if (!row.has(run))
        return;
    gradient.take(v, row.at(run));
    stream_run(to + row.at(run), v);
}

template <typename GRADIENT>
__device__ __forceinline__ void second_pass(bf16 *to, const row_runs &row, const GRADIENT &gradient, float (&held)[HELD][RUN])
{
    for (int64_t last = row.runs - 1; last >= row.kept + HELD; last -= AHEAD) {
        float v[AHEAD][RUN];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            load_run(v[a], row, last - a >= row.kept + HELD ? last - a : row.runs, gradient.logits);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            store_gradient(to, v[a], row, last - a >= row.kept + HELD ? last - a : row.runs, gradient);
    }
#pragma unroll
    for (int a = 0; a < HELD; a++)
        store_gradient(to, held[a], row, row.kept + a, gradient);
    for (int64_t r = 0; r < row.kept; r++) {
        float v[RUN];
        load<RUN>(v, row.shared + r * row.stride);
        store_gradient(to, v, row, r, gradient);
    }
    if (row.edge() < row.n) {
        float v[1] = {row.x[row.edge()]};
        gradient.logits.apply(v);
        gradient.take(v, row.edge());
        store<1>(to + row.edge(), v);
    }
}

__device__ __forceinline__ void zero_row(bf16 *to, const row_runs &row)
{
    const float zero[RUN] = {}, one[1] = {};
    for (int64_t r = 0; row.has(r); r++)
        stream_run(to + row.at(r), zero);
    if (row.edge() < row.n)
        store<1>(to + row.edge(), one);
}

/* Computes one row's loss, and its gradient if `gradient` ([rows, ld]) is not NULL. */
template <typename LOGITS>
__global__ void __launch_bounds__(ROW_THREADS)
    loss_rows(const float *x, LOGITS logits, bf16 *gradient, const int32_t *targets, const struct step_record *record,
              const float *weights, int64_t vocab, int64_t ld, int64_t kept)
{
    LT_SHARED(loss_space, s);
    const row_runs row(x + (int64_t)blockIdx.x * ld, vocab, kept, reinterpret_cast<float *>(&s + 1));
    bf16 *const to = gradient ? gradient + (int64_t)blockIdx.x * ld : gradient;
    const int64_t target = targets[blockIdx.x];
    if (target < 0 || target >= vocab) {
        if (gradient)
            zero_row(to, row);
        if (threadIdx.x == 0)
            row_losses[blockIdx.x] = target < 0 ? 0.0 : (double)NAN;
        return;
    }
    float at_target[1] = {row.x[target]};
    logits.apply(at_target);
    float held[HELD][RUN];
    const online part = first_pass(row, held, logits);
    const float max = row_max(part.max, s.max), shift = max * LOG2_E;
    double sum[1] = {(double)part.sum * (double)ex2(part.shift - shift)};
    row_sum(sum, s.sum);
    if (threadIdx.x == 0) {
        const double rounding = (double)shift - (double)max * (double)LOG2_E; /* rounding error of the shift */
        row_losses[blockIdx.x] = log(sum[0]) + (double)max + rounding * LN_2 - (double)at_target[0];
    }
    if (!gradient)
        return;
    const float inv_targets = weights ? record->inv_targets * weights[blockIdx.x] : record->inv_targets;
    second_pass(to, row, gradient_of_row<LOGITS>{logits, target, shift, (float)((double)inv_targets / sum[0]), inv_targets},
                held);
}

/* Adds the rows' losses to *loss, which starts at 0 unless `more`. Every thread adds its rows in order, then threads are added as
 * a tree. each: NULL, or room for a copy of the losses; weights: NULL, or a factor of each row in the sum. */
__global__ void __launch_bounds__(ROW_THREADS) add_rows(double *loss, int64_t rows, bool more, float *each, const float *weights)
{
    typedef warp_parts<double, 1> space;
    LT_SHARED(space, s);
    double sum[1] = {0.0};
    for (int64_t i = threadIdx.x; i < rows; i += ROW_THREADS)
        sum[0] += weights ? (double)weights[i] * row_losses[i] : row_losses[i];
    for (int64_t i = threadIdx.x; each && i < rows; i += ROW_THREADS)
        each[i] = (float)row_losses[i];
    row_sum(sum, s);
    if (threadIdx.x == 0)
        *loss = more ? *loss + sum[0] : sum[0];
}

template <typename LOGITS>
enum status run_loss(const struct op_attrs *attrs, void *const *arg, const LOGITS &as_they_count, void *stream)
{
    const float *logits = (const float *)arg[0];
    double *loss = (double *)arg[1];
    const int32_t *targets = (const int32_t *)arg[2];
    const struct step_record *record = (const struct step_record *)arg[3];
    float *of_rows = (float *)arg[4];
    const float *weights = (const float *)arg[6];
    bf16 *gradient = attrs->loss.gradient_bf16 ? (bf16 *)arg[5] : (bf16 *)NULL;
    const int64_t rows = attrs->loss.rows, vocab = attrs->loss.vocab, ld = attrs->loss.ld ? attrs->loss.ld : vocab;
    const unsigned threads = reducing_threads(blocks_of(vocab, RUN), ROW_THREADS);
    int64_t kept = gradient ? LT_LIMIT(blocks_of(vocab, RUN * threads), 3) : 0;
    const int64_t each = (int64_t)threads * RUN * (int64_t)sizeof(float);
    TRY(shared_pieces(&kept, sizeof(loss_space), each));
    const size_t shared = sizeof(loss_space) + (size_t)(kept * each);
    for (int64_t i = 0; i == 0 || i < rows; i += BATCH) {
        int64_t batch = rows - i < BATCH ? rows - i : BATCH;
        TRY(launch(dim3((unsigned)batch), dim3(threads), shared, stream, loss_rows<LOGITS>, logits + i * ld, as_they_count,
                   gradient ? gradient + i * ld : gradient, targets + i, record, weights ? weights + i : weights, vocab, ld,
                   kept));
        TRY(launch(dim3(1), dim3(ROW_THREADS), sizeof(warp_parts<double, 1>), stream, add_rows, loss, batch, i > 0,
                   of_rows ? of_rows + i : of_rows, weights ? weights + i : weights));
    }
    return OK;
}

} // namespace

enum status ops_cuda_loss(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const float scale = attrs->loss.scale != 0.0f ? attrs->loss.scale : 1.0f, cap = attrs->loss.cap;
    if (attrs->loss.gradient)
        return status_fail(ERR_INVALID, "loss on cuda: its gradient is in bf16, not in the logits' place");
    if (attrs->loss.gradient_bf16 && !arg[3])
        return status_fail(ERR_INVALID, "loss on cuda: a gradient needs the step record, which holds 1 / target tokens");
    if (scale == 1.0f && cap == 0.0f)
        return run_loss(attrs, arg, plain_logits(), stream);
    return run_loss(attrs, arg, capped_logits{scale, cap}, stream);
}
