/* Kernels that test the simulator, with planted bugs. */
#include "sim_kernels.h"

#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"
#include "device/cuda/tma.h"

/* --- plain code ---------------------------------------------------------------------------------------------------------------
 */

__device__ int last_block;

struct sum_shared {
    float x[256], y[256];
};

LT_KERNEL(256) sum_kernel(float *out, const float *x, int bug)
{
    LT_SHARED(sum_shared, s);
    int t = threadIdx.x;
    s.x[t] = x[blockIdx.x * 256 + t + (bug == SUM_GLOBAL_BOUNDS)];
    if (bug == SUM_SHARED_BOUNDS)
        s.y[t + 1] = 0;
    if (bug == SUM_MISALIGNED && t == 0)
        *reinterpret_cast<float4 *>(&s.y[1]) = make_float4(1, 2, 3, 4);
    if (bug != SUM_BARRIER_MISSED || t < 192)
        __syncthreads();
    else
        bar_sync(1, 256);
    for (int n = 128; n > 0; n /= 2) {
        if (t < n)
            s.x[t] += bug == SUM_UNINITIALISED ? s.y[t + n] : s.x[t + n];
        if (bug != SUM_NO_BARRIER)
            __syncthreads();
    }
    if (bug == SUM_LANES_DIVERGE && t < 32) {
        if (t < 16)
            __syncwarp();
        else
            s.x[t] = __shfl_xor_sync(LT_FULL_MASK, s.x[t], 1);
    }
    if (bug == SUM_ODD_BARRIER && t < 64)
        bar_sync(1, 96);
    if (bug == SUM_VARIABLE_RACE && t == 0)
        last_block = blockIdx.x;
    if (t == 0)
        out[bug == SUM_BLOCKS_RACE ? 0 : blockIdx.x] = s.x[0];
}

enum status start_sum(float *out, const float *x, int blocks, int bug)
{
    return launch(dim3(blocks), dim3(256), sizeof(sum_shared), nullptr, sum_kernel, out, x, bug);
}

/* --- cp.async, ldmatrix, mma --------------------------------------------------------------------------------------------------
 */

struct mma_stage {
    alignas(16) __nv_bfloat16 a[64][40], b[64][40]; /* 32 columns, padded */
};
struct mma_shared {
    mma_stage stage[2];
};

__device__ static void mma_load(mma_stage &s, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int at)
{
    for (int i = threadIdx.x; i < 64 * 4; i += 128) {
        cp_async_16(smem_addr(&s.a[i / 4][i % 4 * 8]), a + (int64_t)(i / 4) * k + at + i % 4 * 8);
        cp_async_16(smem_addr(&s.b[i / 4][i % 4 * 8]), b + (int64_t)(i / 4) * k + at + i % 4 * 8);
    }
    cp_async_commit();
}

LT_KERNEL(128) mma_kernel(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int bug)
{
    LT_SHARED(mma_shared, s);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = k / 32;
    float acc[8][4] = {};
    mma_load(s.stage[0], a, b, k, 0);
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) {
            mma_load(s.stage[(i + 1) % 2], a, b, k, (i + 1) * 32);
            if (bug != MMA_NO_WAIT && bug != MMA_WAIT_TOO_FEW)
                cp_async_wait<1>();
            else if (bug == MMA_WAIT_TOO_FEW)
                cp_async_wait<2>();
        } else if (bug != MMA_NO_WAIT && bug != MMA_IN_FLIGHT_AT_EXIT) {
            cp_async_wait<0>();
        }
        if (bug == MMA_IN_FLIGHT_AT_EXIT && i + 1 == tiles)
            break;
        if (bug != MMA_NO_BARRIER_AFTER_WAIT)
            __syncthreads();
        mma_stage &st = s.stage[i % 2];
        for (int kk = 0; kk < 32; kk += 16) {
            uint32_t ra[4], rb[4];
            ldmatrix_x4(ra, smem_addr(&st.a[warp * 16 + lane % 16][kk + lane / 16 * 8]) + (bug == MMA_MISALIGNED_ROW ? 8 : 0));
            for (int n = 0; n < 8; n += 2) {
                ldmatrix_x4(rb, smem_addr(&st.b[n * 8 + lane / 16 * 8 + lane % 8][kk + lane / 8 % 2 * 8]));
                mma_m16n8k16(acc[n], ra, rb[0], rb[1]);
                mma_m16n8k16(acc[n + 1], ra, rb[2], rb[3]);
            }
        }
        if (bug != MMA_NO_BARRIER_BEFORE_OVERWRITE)
            __syncthreads();
    }
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++)
            c[(warp * 16 + lane / 4 + 8 * (i / 2)) * 64 + n * 8 + lane % 4 * 2 + i % 2] = acc[n][i];
}

enum status start_mma(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int bug)
{
    return launch(dim3(1), dim3(128), sizeof(mma_shared), nullptr, mma_kernel, c, a, b, k, bug);
}

/* --- TMA, mbarriers, wgmma ----------------------------------------------------------------------------------------------------
 */

struct wgmma_shared {
    alignas(1024) __nv_bfloat16 a[2][64 * 64];
    alignas(1024) __nv_bfloat16 b[2][128 * 64];
    alignas(1024) float c[4][64 * 32]; /* the result as four boxes of 32 columns */
    uint64_t full[2], empty[2];
};

__device__ static void wgmma_produce(wgmma_shared &s, const CUtensorMap *a, const CUtensorMap *b, int tiles, int bug)
{
    for (int i = 0; i < tiles; i++) {
        int st = i % 2;
        uint32_t full = smem_addr(&s.full[st]), bytes = sizeof s.a[0] + sizeof s.b[0];
        if (bug != WG_NO_EMPTY_WAIT)
            mbar_wait(smem_addr(&s.empty[st]), (i / 2 & 1) ^ 1);
        mbar_arrive_expect_tx(full, bug == WG_EXPECT_TOO_MANY ? bytes + 16 : bug == WG_EXPECT_TOO_FEW ? bytes - 16 : bytes);
        tma_load_2d(smem_addr(s.a[st]), a, full, i * 64, 0);
        tma_load_2d(smem_addr(s.b[st]), b, full, i * 64, 0);
    }
}

__device__ static void wgmma_consume(wgmma_shared &s, float (&d)[64], int tiles, int bug)
{
    for (int i = 0; i < tiles; i++) {
        int st = i % 2;
        if (bug != WG_NO_FULL_WAIT)
            mbar_wait(smem_addr(&s.full[st]), (i / 2 & 1) ^ (bug == WG_WRONG_PARITY));
        if (bug == WG_EARLY_RELEASE && threadIdx.x % 32 == 0)
            mbar_arrive(smem_addr(&s.empty[st]));
        if (bug != WG_NO_WGMMA_FENCE)
            wgmma_fence();
        uint64_t a = wgmma_descriptor(smem_addr(s.a[st]), 16, 1024, SWIZZLE_128);
        uint64_t b = wgmma_descriptor(smem_addr(s.b[st]), 16, 1024, SWIZZLE_128);
        for (int k = 0; k < 4; k++)
            wgmma_ss<128, K_MAJOR, K_MAJOR>(d, wgmma_advance(a, 32 * k), wgmma_advance(b, 32 * k), i || k);
        wgmma_commit();
        if (bug == WG_READ_IN_FLIGHT && i == tiles - 1)
            s.c[0][threadIdx.x] = d[0];
        if (bug == WG_WRITE_IN_FLIGHT)
            d[3] *= 2;
        wgmma_wait<0>();
        if (bug != WG_EARLY_RELEASE && bug != WG_NO_RELEASE && threadIdx.x % 32 == 0)
            mbar_arrive(smem_addr(&s.empty[st]));
        if (bug == WG_ONE_ARRIVAL_TOO_MANY && threadIdx.x == 0)
            mbar_arrive(smem_addr(&s.empty[st]));
    }
}

LT_KERNEL(160)
wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
             float *check, int tiles, int bug)
{
#if LT_SM90A
    LT_SHARED(wgmma_shared, s);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(smem_addr(&s.full[i]), 1);
            mbar_init(smem_addr(&s.empty[i]), 4);
        }
        if (bug != WG_NO_INIT_FENCE)
            fence_mbarrier_init();
    }
    if (bug != WG_NO_INIT_BARRIER)
        __syncthreads();
    else
        __syncwarp();
    if (threadIdx.x >= 128) {
        if (elect_one())
            wgmma_produce(s, &a, &b, tiles, bug);
        return;
    }
    float d[64];
    wgmma_consume(s, d, tiles, bug);
    int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (bug == WG_READ_IN_FLIGHT)
        check[threadIdx.x] = s.c[0][threadIdx.x];
    for (int i = 0; i < 64; i++) {
        int row = 16 * w + g + 8 * (i / 2 % 2), col = 8 * (i / 4) + 2 * t + i % 2;
        s.c[col / 32][row * 32 + (col % 32 ^ row % 8 * 4)] = d[i]; /* the 128-byte swizzle, applied to an index of floats */
    }
    if (bug != WG_NO_PROXY_FENCE)
        fence_proxy_async();
    if (bug != WG_NO_STORE_BARRIER)
        bar_sync(1, 128);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; i++)
            tma_store_2d(&c, smem_addr(s.c[i]), 32 * i, 0);
        bulk_commit();
        if (bug != WG_NO_STORE_WAIT)
            bulk_wait_read<0>();
    }
#endif
}

static enum status map_2d(CUtensorMap *map, void *p, enum tma_type type, int rows, int cols, int box_rows, int box_cols, int span)
{
    size_t element = type == TMA_BF16 ? 2 : 4;
    struct tma_tensor t = {};
    t.base = p;
    t.type = type;
    t.rank = 2;
    t.size[0] = cols;
    t.size[1] = rows;
    t.stride_bytes[1] = cols * element;
    t.box[0] = box_cols;
    t.box[1] = box_rows;
    t.swizzle = (enum tma_swizzle)span;
    return tma_map_create(map, &t);
}

enum status start_wgmma(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int bug)
{
    CUtensorMap ma, mb, mc;
    TRY(map_2d(&ma, const_cast<__nv_bfloat16 *>(a), TMA_BF16, 64, k, 64, 64, 128));
    TRY(map_2d(&mb, const_cast<__nv_bfloat16 *>(b), TMA_BF16, 128, k, 128, 64, 128));
    TRY(map_2d(&mc, c, TMA_F32, 64, 128, 64, 32, 128));
    return launch(dim3(1), dim3(160), sizeof(wgmma_shared), nullptr, wgmma_kernel, ma, mb, mc, c, k / 64, bug);
}

struct form_shared {
    alignas(1024) uint8_t a[16 * 1024], b[32 * 1024];
};

/* Writes matrix x[rows,16] in the layout of one wgmma operand. */
__device__ static void lay_out(uint8_t *to, const __nv_bfloat16 *x, int rows, int major, int span)
{
    for (int i = threadIdx.x; i < rows * 16; i += 128) {
        int r = i / 16, k = i % 16, at;
        if (major == K_MAJOR)
            at = span ? r * span + 2 * k : r / 8 * 256 + k / 8 * 128 + r % 8 * 16 + k % 8 * 2;
        /* order in memory: an atom of span bytes along r by 8 values of k; the atom for the other 8 values of k; the next atoms
         * along r */
        else if (span)
            at = r / (span / 2) * (16 * span) + k * span + r % (span / 2) * 2;
        else
            at = r / 8 * 256 + k / 8 * 128 + k % 8 * 16 + r % 8 * 2;
        if (span)
            at ^= (at >> 7 & (span / 16 - 1)) << 4;
        *reinterpret_cast<__nv_bfloat16 *>(to + at) = x[i];
    }
}

__device__ static uint64_t form_descriptor(const uint8_t *p, int major, int span)
{
    enum smem_swizzle s = span == 128 ? SWIZZLE_128 : span == 64 ? SWIZZLE_64 : span == 32 ? SWIZZLE_32 : SWIZZLE_NONE;
    if (major == K_MAJOR)
        return span ? wgmma_descriptor(smem_addr(p), 16, 8 * span, s) : wgmma_descriptor(smem_addr(p), 128, 256, s);
    return span ? wgmma_descriptor(smem_addr(p), 16 * span, 8 * span, s) : wgmma_descriptor(smem_addr(p), 128, 256, s);
}

template <int N, enum wgmma_major TA, enum wgmma_major TB>
LT_KERNEL(128)
form_kernel(float *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int span, int registers)
{
#if LT_SM90A
    LT_SHARED(form_shared, s);
    lay_out(s.a, a, 64, TA, span);
    lay_out(s.b, b, N, TB, span);
    fence_proxy_async();
    __syncthreads();
    int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float d[N / 2];
    uint32_t ra[4];
    for (int i = 0; i < 4; i++)
        ra[i] = *reinterpret_cast<const uint32_t *>(&a[(16 * w + g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2)]);
    uint64_t db = form_descriptor(s.b, TB, span);
    wgmma_fence();
    if (registers)
        wgmma_rs<N, TB>(d, ra, db, WGMMA_REPLACE);
    else
        wgmma_ss<N, TA, TB>(d, form_descriptor(s.a, TA, span), db, WGMMA_REPLACE);
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < N / 2; i++)
        out[(16 * w + g + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * t + i % 2] = d[i];
#endif
}

template <int N>
static enum status start_form(float *d, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int ta, int tb, int span, int rs)
{
    auto kernel = ta ? (tb ? form_kernel<N, MN_MAJOR, MN_MAJOR> : form_kernel<N, MN_MAJOR, K_MAJOR>)
                     : (tb ? form_kernel<N, K_MAJOR, MN_MAJOR> : form_kernel<N, K_MAJOR, K_MAJOR>);
    return launch(dim3(1), dim3(128), sizeof(form_shared), nullptr, kernel, d, a, b, span, rs);
}

enum status start_wgmma_form(float *d, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int n, int ta, int tb, int span,
                             int registers)
{
    switch (n) {
    case 32:
        return start_form<32>(d, a, b, ta, tb, span, registers);
    case 64:
        return start_form<64>(d, a, b, ta, tb, span, registers);
    case 96:
        return start_form<96>(d, a, b, ta, tb, span, registers);
    case 192:
        return start_form<192>(d, a, b, ta, tb, span, registers);
    case 256:
        return start_form<256>(d, a, b, ta, tb, span, registers);
    default:
        return start_form<128>(d, a, b, ta, tb, span, registers);
    }
}

/* --- TMA boxes ----------------------------------------------------------------------------------------------------------------
 */

struct copy_shared {
    alignas(1024) float x[8 * 32];
    uint64_t bar;
};

LT_KERNEL(32)
copy_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap sum,
            int c0, int c1, int bytes)
{
#if LT_SM90A
    LT_SHARED(copy_shared, s);
    uint32_t bar = smem_addr(&s.bar);
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        fence_mbarrier_init();
        mbar_arrive_expect_tx(bar, bytes);
        tma_load_3d(smem_addr(s.x), &x, bar, c0, c1, 0);
        mbar_wait(bar, 0);
        tma_store_3d(&y, smem_addr(s.x), c0, c1, 0);
        tma_reduce_add_3d(&sum, smem_addr(s.x), c0, c1, 0);
        bulk_commit();
        bulk_wait<0>();
    }
#endif
}

enum status start_tma_copy(float *y, float *sum, const float *x, int rows, int cols, int c0, int c1, int span)
{
    CUtensorMap map[3];
    float *p[3] = {const_cast<float *>(x), y, sum};
    struct tma_tensor t = {};
    int box = (span ? span : 64) / 4;
    for (int i = 0; i < 3; i++) {
        t.base = p[i];
        t.type = TMA_F32;
        t.rank = 3;
        t.size[0] = cols;
        t.size[1] = rows;
        t.size[2] = 1;
        t.stride_bytes[1] = cols * 4;
        t.stride_bytes[2] = rows * cols * 4;
        t.box[0] = box;
        t.box[1] = 8;
        t.box[2] = 1;
        t.swizzle = (enum tma_swizzle)span;
        TRY(tma_map_create(&map[i], &t));
    }
    return launch(dim3(1), dim3(32), sizeof(copy_shared), nullptr, copy_kernel, map[0], map[1], map[2], c0, c1, box * 8 * 4);
}

/* --- collectives --------------------------------------------------------------------------------------------------------------
 */

struct collective_shared {
    int votes[2];
};

LT_KERNEL(64) collective_kernel(int *out)
{
    LT_SHARED(collective_shared, s);
    int t = threadIdx.x, lane = t % 32;
    if (t < 2)
        s.votes[t] = 0;
    int any = __syncthreads_or(t == 40), all = __syncthreads_and(t != 40), count = __syncthreads_count(t % 3 == 0);
    atomicAdd(&s.votes[t / 32], lane);
    __syncthreads();
    int down = __shfl_down_sync(LT_FULL_MASK, lane, 3), up = __shfl_up_sync(LT_FULL_MASK, lane, 3, 16);
    int half = lane < 16 ? __shfl_xor_sync(0xffffu, lane, 8) : -1;
    unsigned odd = __ballot_sync(LT_FULL_MASK, lane & 1);
    out[t * 8 + 0] = any * 100 + all * 10000 + count;
    out[t * 8 + 1] = s.votes[t / 32];
    out[t * 8 + 2] = down;
    out[t * 8 + 3] = up;
    out[t * 8 + 4] = half;
    out[t * 8 + 5] = (int)odd;
    out[t * 8 + 6] = (int)__reduce_max_sync(LT_FULL_MASK, (unsigned)t);
    out[t * 8 + 7] = __shfl_sync(LT_FULL_MASK, t, 7);
}

enum status start_collectives(int *out)
{
    return launch(dim3(1), dim3(64), sizeof(collective_shared), nullptr, collective_kernel, out);
}

/* --- what the runtime refuses --------------------------------------------------------------------------------------------------
 */

template <int THREADS> LT_KERNEL(THREADS) numbers_kernel(int *out)
{
    if (threadIdx.x == 0)
        out[blockIdx.x] = blockIdx.x;
}

enum status start_numbers(int *out, int blocks, int threads, int64_t shared_bytes, cudaStream_t stream)
{
    TRY(CUDA_STATUS(cudaMemsetAsync(out, 0, (size_t)blocks * sizeof *out, stream)));
    return launch(dim3(blocks), dim3(threads), (size_t)shared_bytes, stream, numbers_kernel<64>, out);
}
