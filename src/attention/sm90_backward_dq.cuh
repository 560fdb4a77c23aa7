/* dQ for Hopper: the order of the walks, dQ of a step, and adding it to the output in an order that repeats its bits. The shapes
 * T are those of sm90_backward_keys.cuh. */
#ifndef LTRAIN_ATTENTION_SM90_BACKWARD_DQ_CUH
#define LTRAIN_ATTENTION_SM90_BACKWARD_DQ_CUH

#include "attention/sm90_backward.cuh"

/* Walks over the queries of a key tile, tile after tile, of every query head. Neighbouring blocks must come to a query tile one
 * after the other. With masks whose ends never fall they do, if every block begins with its last queries and turns to the next
 * head before the next tile. */
template <class T> struct keys_walk {
    int at, left, group, first_head, of_group;
    __device__ __forceinline__ keys_walk(const backward_params &p, const backward_tile &t)
    {
        const int tiles = (t.range.end - t.range.begin + T::NQ - 1) / T::NQ;
        group = p.hq / p.hk;
        first_head = t.head * group;
        of_group = 0;
        at = t.range.begin + (tiles - 1) * T::NQ;
        left = tiles * group;
    }
    __device__ __forceinline__ int head() const
    {
        return first_head + of_group;
    }
    __device__ __forceinline__ void next()
    {
        left--;
        if (++of_group == group) {
            of_group = 0;
            at -= T::NQ;
        }
    }
};

/* Stores a fragment packed by fragment_pack to the rows from `first` on, swizzled as TMA would. */
template <int ROWS, int N> INLINE void tile_store(smem_tile<ROWS, N> &tile, int first, const uint32_t (&a)[N / 16][4])
{
    const int lane = threadIdx.x % 32, row = first + threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < N / 16; k++)
        stmatrix_x4(smem_addr(&tile.chunk[k / 4][row][((2 * k + lane / 16) % 8 ^ (row & 7)) * 8]), a[k]);
}

/* Computes dq [64 x N] = dS (from its transpose) times the N columns of K from `column` on, summed over the block's keys. */
template <int N, int M, int NQ, int D>
INLINE void product_dq(float (&dq)[N / 2], const smem_tile<M, NQ> &ds, const smem_tile<M, D> &k, int column)
{
#pragma unroll
    for (int i = 0; i < M / 16; i++)
        wgmma_ss<N, MN_MAJOR, MN_MAJOR>(dq, operand_by_rows(ds, 0, i),
                                        wgmma_advance(operand_by_rows(k, column / CHUNK, i), column % CHUNK * 2),
                                        i ? WGMMA_ADD : WGMMA_REPLACE);
}

/* Stores a fragment [64 x N], times scale, as boxes of 32 columns, swizzled as TMA reads them. */
template <int N> INLINE void boxes_store(float (&box)[N / 32][64][32], const float (&x)[N / 2], float scale)
{
    const int row = fragment_row(), lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int unit = (j % 4 * 2 + lane / 2) ^ ((row + 8 * r) & 7); /* unit of 16 bytes */
            *reinterpret_cast<float2 *>(&box[j / 4][row + 8 * r][unit * 4 + lane % 2 * 2]) =
                make_float2(x[4 * j + 2 * r] * scale, x[4 * j + 2 * r + 1] * scale);
        }
}

/* Adds a warpgroup's columns of a buffer of dQ to the output, from query `row` on. */
template <class T>
INLINE void reduce_dq(typename T::shared &s, const backward_params &p, const CUtensorMap *dq_map, int buffer, int w, int head,
                      int row)
{
#pragma unroll
    for (int i = 0; i < T::COLUMNS / 32; i++)
        if (w * T::COLUMNS + 32 * i < p.head_dim)
            tma_reduce_add_3d(dq_map, smem_addr(s.dq[buffer][w][i]), w * T::COLUMNS + 32 * i, head, row);
}

/* Order of dQ's sums, so that its bits repeat. Key tiles add to a query tile's dQ (of one head) by rising number. The key tiles
 * that attend a query tile are neighbours, since both ends of a key tile's queries grow with its number. So each waits only for
 * the tile before it, if that tile has these queries, too; p.turns tells whose turn it is.
 *
 * A block takes tiles by rising number, so the block that it waits for has begun: there is no circle of waits, however few blocks
 * run at a time. Separate warps wait for the turn, and then until TMA has added; consumers wait only if both buffers are full. */

/* Puts a warpgroup's columns of dQ into the next buffer, for the warp that adds them. */
template <class T>
INLINE void hand_dq(typename T::shared &s, const backward_params &p, const float (&dq)[T::COLUMNS / 2], int w,
                    ring<T::WRITERS> &to)
{
    pipe_wait_empty(s.dq_bar[to.slot], to.parity);
    boxes_store<T::COLUMNS>(s.dq[to.slot][w], dq, p.scale);
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbar_arrive(smem_addr(&s.dq_bar[to.slot].full));
    to.next();
}

/* Adds dQ of every WRITERS-th step of the consumers, the steps that use this buffer. Run by one thread. */
template <class T> INLINE void order_dq(typename T::shared &s, const backward_params &p, const CUtensorMap *dq_map, int buffer)
{
    const int tiles = (p.mask.sq + T::NQ - 1) / T::NQ;
    ring<1> kv;
    ring<T::WRITERS> turn;
    for (;;) {
        pipe_wait_full(s.kv_bar, kv.parity);
        const backward_tile t = s.tile;
        mbar_arrive(smem_addr(&s.kv_bar.empty));
        kv.next();
        if (t.row < 0)
            return;
        /* shared_until: end of the queries of the tile before */
        const int number = t.row / T::M, shared_until = number > 0 ? p.keys[t.row - 1].to : 0;
        if (t.range.begin >= t.range.end)
            continue;
        for (keys_walk<T> x(p, t); x.left > 0; x.next(), turn.next()) {
            if (turn.slot != buffer)
                continue;
            uint32_t *flag = p.turns + x.head() * tiles + x.at / T::NQ;
            if (x.at < shared_until)
                flag_wait(flag, number);
            mbar_wait(smem_addr(&s.dq_bar[buffer].full), turn.parity);
            fence_proxy_async_global();
            for (int w = 0; w < T::CONSUMERS; w++)
                reduce_dq<T>(s, p, dq_map, buffer, w, x.head(), x.at);
            bulk_commit();
            bulk_wait_read<0>();
            mbar_arrive(smem_addr(&s.dq_bar[buffer].empty));
            bulk_wait<0>(); /* waits until TMA has added the data, not only read it */
            fence_proxy_async_global();
            flag_raise(flag, number + 1);
        }
    }
}

#endif
