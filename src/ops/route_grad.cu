/* The gradient of experts' weights and of the balancing loss, with the CPU's bits. A warp computes a token. */
#include "ops/cuda_route.cuh"

namespace
{

constexpr int WARPS = THREADS / LT_WARP;
constexpr int ROWS = 64; /* tokens of a thread block, which computes the balancing loss's gradient once */

struct grad_args {
    route_shape s;
    float *logits;
    const int32_t *ids, *place, *plain, *index;
    const float *p, *dp, *factors;
    float *dfactor;
};

template <int PER> struct grad_space {
    float balance[PER * LT_WARP]; /* gradient of the balancing loss by each expert's softmax in one token */
    float g[WARPS][PER * LT_WARP];
    float p[WARPS][ROUTE_K], dp[WARPS][ROUTE_K], v[WARPS][ROUTE_K]; /* a token's experts; v: their scores, then dv */
    int tokens[WARPS];
};

/* Returns the tokens that chose an expert by the softmax alone, of all parts. */
__device__ __forceinline__ int64_t plain_of(const grad_args &a, int e)
{
    int64_t n = a.plain[e];
    for (int part = 1; part < a.s.parts; part++)
        n += a.plain[(int64_t)part * a.s.experts + e];
    return n;
}

/* Computes the gradient by the softmax. Returns 0 if no token counts. Called by all threads of the block. */
template <int PER> __device__ __forceinline__ bool find_balance(const grad_args &a, grad_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    unsigned mine = 0;
    for (int e = threadIdx.x; e < a.s.experts; e += THREADS)
        mine += (unsigned)plain_of(a, e);
    mine = __reduce_add_sync(LT_FULL_MASK, mine);
    if (lane == 0)
        space.tokens[warp] = (int)mine;
    __syncthreads();
    int64_t pairs = 0;
    for (int w = 0; w < WARPS; w++)
        pairs += space.tokens[w];
    const double tokens = (double)pairs / a.s.k;
    for (int e = threadIdx.x; e < a.s.experts; e += THREADS)
        space.balance[e] = (float)((double)a.s.aux * a.s.experts * (double)plain_of(a, e) / (tokens * tokens));
    __syncthreads();
    return pairs > 0;
}

/* Adds y (g - sum of y g) to d, the gradient through y = softmax. */
template <int PER>
__device__ __forceinline__ void add_softmax_gradient(float (&d)[PER], const float (&y)[PER], const float *g, int n)
{
    const int lane = threadIdx.x % LT_WARP;
    float product[PER];
#pragma unroll
    for (int i = 0; i < PER; i++)
        product[i] = i * LT_WARP + lane < n ? __fmul_rn(y[i], g[i * LT_WARP + lane]) : 0.0f;
    const float mean = sum_of_experts(product);
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (i * LT_WARP + lane < n)
            d[i] = __fadd_rn(d[i], __fmul_rn(y[i], __fsub_rn(g[i * LT_WARP + lane], mean)));
}

/* Loads weights and gradients of a token's pairs. Returns 0 if an index does not exist. */
template <int PER> __device__ __forceinline__ bool gather(const grad_args &a, int64_t row, int warp, grad_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
    bool sound = true;
    for (int i = lane; i < a.s.k; i += LT_WARP) {
        const int64_t pair = row * a.s.k + i, place = a.place[pair];
        const int32_t id = a.ids[pair];
        const bool there = place >= 0 && place < a.s.rows * a.s.k && id >= 0 && id < a.s.experts;
        space.p[warp][i] = a.p[pair];
        space.dp[warp][i] = there ? a.dp[place] : 0.0f;
        sound &= there;
    }
    return __all_sync(LT_FULL_MASK, sound);
}

/* Loads the chosen experts' scores, of the softmax y or sigmoids, and sets g to 0. */
template <int PER>
__device__ __forceinline__ void load_scores(const grad_args &a, const float (&y)[PER], int64_t row, int warp,
                                            grad_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
#pragma unroll
    for (int i = 0; i < PER; i++)
        space.g[warp][i * LT_WARP + lane] = y[i];
    __syncwarp();
    for (int i = lane; i < a.s.k; i += LT_WARP) {
        const int32_t id = a.ids[row * a.s.k + i];
        space.v[warp][i] = a.s.kind == ROUTE_SOFTMAX ? space.g[warp][id]
                                                     : vsigmoid(__fmul_rn(a.s.logit_factor, a.logits[row * a.s.experts + id]));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PER; i++)
        space.g[warp][i * LT_WARP + lane] = 0.0f;
    __syncwarp();
}

/* Returns the gradient of the i-th weight of a token without its expert's factor, whose own gradient goes to dfactor. */
template <int PER>
__device__ __forceinline__ float through_factor(const grad_args &a, int64_t row, int i, float divisor, int warp,
                                                const grad_space<PER> &space)
{
    const int64_t pair = row * a.s.k + i;
    const float dp = space.dp[warp][i];
    if (!a.factors)
        return dp;
    if (a.dfactor)
        a.dfactor[a.place[pair]] = __fmul_rn(dp, __fmul_rn(__fdiv_rn(space.v[warp][i], divisor), a.s.scale));
    return __fmul_rn(dp, a.factors[a.ids[pair]]);
}

/* Puts the gradient of each chosen expert's score (softmax) or logit into g. */
template <int PER>
__device__ __forceinline__ void score_gradients(const grad_args &a, int64_t row, int warp, grad_space<PER> &space)
{
    const route_shape &s = a.s;
    const int lane = threadIdx.x % LT_WARP;
    float sum = 0, product = 0;
    for (int i = 0; i < s.k; i++) {
        sum = __fadd_rn(sum, space.v[warp][i]);
        product = __fadd_rn(product, __fmul_rn(space.dp[warp][i], space.p[warp][i]));
    }
    const float divisor = divisor_of(s, sum);
    const bool moves = s.normalise && __fadd_rn(sum, s.eps) >= s.least; /* false: the divisor is a constant */
    for (int i = lane; i < s.k; i += LT_WARP) {
        const float v = space.v[warp][i], p = space.p[warp][i], dp = through_factor(a, row, i, divisor, warp, space);
        const float dv = __fdiv_rn(__fsub_rn(__fmul_rn(s.scale, dp), moves ? product : 0.0f), divisor);
        space.g[warp][a.ids[row * s.k + i]] = s.kind == ROUTE_SOFTMAX ? dv
                                              : s.kind == ROUTE_SIGMOID
                                                  ? __fmul_rn(__fmul_rn(dv, v), __fsub_rn(1.0f, v))
                                                  : __fmul_rn(p, __fsub_rn(dp, __fdiv_rn(product, s.scale)));
    }
    __syncwarp();
}

template <int PER>
__device__ __forceinline__ void token_gradient(const grad_args &a, int64_t row, int warp, bool balances, grad_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP, n = a.s.experts;
    float *const logits = a.logits + row * n;
    const bool sound = gather(a, row, warp, space);
    float logit[PER], y[PER], d[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        d[i] = y[i] = 0;
        logit[i] = i * LT_WARP + lane < n ? __fmul_rn(a.s.logit_factor, logits[i * LT_WARP + lane]) : 0.0f;
    }
    if (sound) {
        if (a.s.kind == ROUTE_SOFTMAX || balances)
            softmax(y, logit, n);
        load_scores(a, y, row, warp, space);
        score_gradients(a, row, warp, space);
        if (a.s.kind == ROUTE_SOFTMAX) {
            add_softmax_gradient(d, y, space.g[warp], n);
        } else {
#pragma unroll
            for (int i = 0; i < PER; i++)
                d[i] = i * LT_WARP + lane < n ? space.g[warp][i * LT_WARP + lane] : 0.0f;
        }
        if (balances)
            add_softmax_gradient(d, y, space.balance, n);
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (i * LT_WARP + lane < n)
            logits[i * LT_WARP + lane] = sound ? __fmul_rn(a.s.logit_factor, d[i]) : NAN;
    __syncwarp();
}

template <int PER> __global__ void __launch_bounds__(THREADS) token_gradients(grad_args a)
{
    LT_SHARED(grad_space<PER>, space);
    const int warp = threadIdx.x / LT_WARP;
    const bool balances = a.plain && find_balance(a, space);
    for (int r = warp; r < ROWS; r += WARPS) {
        const int64_t row = (int64_t)blockIdx.x * ROWS + r;
        if (row < a.s.rows)
            token_gradient(a, row, warp, balances && !(a.index && a.index[row] < 0), space);
    }
}

template <int PER> enum status run_gradient(const grad_args &a, void *stream)
{
    return launch(dim3((unsigned)blocks_of(a.s.rows, ROWS)), dim3(THREADS), sizeof(grad_space<PER>), stream, token_gradients<PER>,
                  a);
}

} // namespace

enum status ops_cuda_route_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    grad_args a = {};
    a.s = shape_of(attrs);
    TRY(check_route("route_grad", a.s));
    a.logits = (float *)arg[0];
    a.ids = (const int32_t *)arg[1];
    a.p = (const float *)arg[2];
    a.dp = (const float *)arg[3];
    a.place = (const int32_t *)arg[4];
    a.plain = (const int32_t *)arg[5];
    a.index = (const int32_t *)arg[6];
    a.factors = (const float *)arg[7];
    a.dfactor = (float *)arg[8];
    if (a.s.experts <= 128)
        return run_gradient<4>(a, stream);
    return a.s.experts <= 256 ? run_gradient<8>(a, stream) : run_gradient<32>(a, stream);
}
