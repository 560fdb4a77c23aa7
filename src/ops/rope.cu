/* Rotary position embedding: the formula of rope.h, angles in fp64. */
#include "ops/cuda_vec.cuh"

namespace
{

constexpr int ANGLES = 1024; /* (row, pair) angles of a block; so at most 2048 elements of a head are rotated */

struct rotations {
    float cosine[ANGLES], sine[ANGLES];
};

/* Evaluates a polynomial of the Cephes library (Moshier 1992) for |r| <= pi/4 + tiny, as in rope.c. */
__device__ __forceinline__ float sin_poly(float r)
{
    float s = r * r, p = fmaf(fmaf(-1.9515295891e-4f, s, 8.3321608736e-3f), s, -1.6666654611e-1f);
    return fmaf(p * s, r, r);
}

__device__ __forceinline__ float cos_poly(float r)
{
    float s = r * r, p = fmaf(fmaf(2.443315711809948e-5f, s, -1.388731625493765e-3f), s, 4.166664568298827e-2f);
    return fmaf(p * s, s, fmaf(-0.5f, s, 1.0f));
}

/* Computes sine and cosine of an angle. pi/2 is split so that quadrant * pio2_high is exact for quadrants below 2^31. */
__device__ __forceinline__ void rotation(double angle, float *cosine, float *sine)
{
    const double two_over_pi = 0x1.45f306dc9c883p-1, pio2_high = 0x1.921f8p0, pio2_low = 0x1.aa22168c234c5p-19;
    double q = rint(angle * two_over_pi);
    float r = (float)((angle - q * pio2_high) - q * pio2_low);
    uint32_t quadrant = (uint32_t)(int64_t)q;
    float s = sin_poly(r), c = cos_poly(r);
    float a = quadrant & 1u ? c : s, b = quadrant & 1u ? s : c;
    *sine = quadrant & 2u ? -a : a;
    *cosine = (quadrant + 1u) & 2u ? -b : b;
}

template <typename T> struct rope_args {
    T *x;
    const int32_t *positions;
    const float *inv_freq;
    int64_t rows;
    int heads, head_dim, half, rows_per_block; /* half: pairs of a head */
    float factor, sign, slope; /* slope and period: for factors that grow with the position; slope 0: the factor is constant */
    int period;
};

template <typename T> __device__ __forceinline__ float factor_at(const rope_args<T> &p, int position)
{
    return p.slope == 0.0f ? p.factor : p.factor * (float)(1.0 + (double)p.slope * log1p((double)(position / p.period)));
}

/* Holds first and second elements of N pairs of a head, from pair j on. */
template <typename T, int N, bool INTERLEAVED> struct pairs {
    T *head;
    int j, half;

    __device__ __forceinline__ void get(float (&a)[N], float (&b)[N]) const
    {
        if constexpr (INTERLEAVED) {
            float both[2 * N];
            load<2 * N>(both, head + 2 * j);
#pragma unroll
            for (int k = 0; k < N; k++) {
                a[k] = both[2 * k];
                b[k] = both[2 * k + 1];
            }
        } else {
            load<N>(a, head + j);
            load<N>(b, head + half + j);
        }
    }

    __device__ __forceinline__ void set(const float (&a)[N], const float (&b)[N]) const
    {
        if constexpr (INTERLEAVED) {
            float both[2 * N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                both[2 * k] = a[k];
                both[2 * k + 1] = b[k];
            }
            store<2 * N>(head + 2 * j, both);
        } else {
            store<N>(head + j, a);
            store<N>(head + half + j, b);
        }
    }
};

template <typename T, int N, bool INTERLEAVED> __global__ void __launch_bounds__(THREADS) rope_rows(rope_args<T> p)
{
    LT_SHARED(rotations, s);
    const int64_t first = (int64_t)blockIdx.x * p.rows_per_block;
    const int rows = (int)(p.rows - first < p.rows_per_block ? p.rows - first : p.rows_per_block);
    for (int i = threadIdx.x; i < rows * p.half; i += THREADS) {
        float cosine, sine;
        rotation((double)p.positions[first + i / p.half] * (double)p.inv_freq[i % p.half], &cosine, &sine);
        const float factor = factor_at(p, p.positions[first + i / p.half]);
        s.cosine[i] = factor * cosine;
        s.sine[i] = factor * (p.sign * sine);
    }
    __syncthreads();
    const int runs = p.half / N, all = rows * p.heads * runs;
    for (int i = threadIdx.x; i < all; i += THREADS) {
        const int j = i % runs * N, head = i / runs % p.heads, row = i / runs / p.heads;
        const pairs<T, N, INTERLEAVED> of = {p.x + ((first + row) * p.heads + head) * p.head_dim, j, p.half};
        float a[N], b[N], c[N], d[N];
        of.get(a, b);
        load<N>(c, s.cosine + row * p.half + j);
        load<N>(d, s.sine + row * p.half + j);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float x = a[k], y = b[k];
            a[k] = fmaf(x, c[k], -(y * d[k]));
            b[k] = fmaf(y, c[k], x * d[k]);
        }
        of.set(a, b);
    }
}

template <typename T, int N, bool INTERLEAVED> enum status launch_rope(const rope_args<T> &p, void *stream)
{
    dim3 grid((unsigned)blocks_of(p.rows, p.rows_per_block)), block(THREADS);
    return launch(grid, block, sizeof(rotations), stream, rope_rows<T, N, INTERLEAVED>, p);
}

/* Returns the number of a head's elements that are rotated. */
int rotated_of(const struct op_attrs *attrs)
{
    return attrs->rope.rotated ? attrs->rope.rotated : attrs->rope.head_dim;
}

template <typename T> enum status run_rope(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    rope_args<T> p = {};
    p.x = (T *)arg[0] + attrs->rope.first;
    p.positions = (const int32_t *)arg[1];
    p.inv_freq = (const float *)arg[2];
    p.rows = attrs->rope.rows;
    p.heads = attrs->rope.heads;
    p.head_dim = attrs->rope.head_dim;
    p.half = rotated_of(attrs) / 2;
    p.rows_per_block = p.half < THREADS ? THREADS / p.half : 1;
    p.sign = attrs->rope.inverse ? -1.0f : 1.0f;
    p.slope = attrs->rope.slope;
    p.period = attrs->rope.period;
    p.factor = attrs->rope.factor != 0.0f ? attrs->rope.factor : 1.0f;
    const bool vectors = p.head_dim % WIDTH<T> == 0 && aligned_to_vectors({p.x});
    if (attrs->rope.interleaved)
        return vectors && p.half % (WIDTH<T> / 2) == 0 ? launch_rope<T, WIDTH<T> / 2, true>(p, stream)
                                                       : launch_rope<T, 1, true>(p, stream);
    return vectors && p.half % WIDTH<T> == 0 ? launch_rope<T, WIDTH<T>, false>(p, stream) : launch_rope<T, 1, false>(p, stream);
}

} // namespace

enum status ops_cuda_rope(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("rope", attrs->rope.x_type));
    const int rotated = rotated_of(attrs);
    if (rotated % 2 || rotated > 2 * ANGLES || rotated > attrs->rope.head_dim - attrs->rope.first)
        return status_fail(ERR_INVALID, "rope on cuda: %d elements of a head of %d are to be rotated: an even number, at most %d",
                           rotated, attrs->rope.head_dim, 2 * ANGLES);
    if (attrs->rope.slope != 0.0f && attrs->rope.period < 1)
        return status_fail(ERR_INVALID, "rope on cuda: factors that grow every %d positions", (int)attrs->rope.period);
    if (attrs->rope.rows <= 0 || attrs->rope.heads <= 0 || rotated <= 0)
        return OK;
    return attrs->rope.x_type == BF16 ? run_rope<bf16>(attrs, arg, stream) : run_rope<float>(attrs, arg, stream);
}
