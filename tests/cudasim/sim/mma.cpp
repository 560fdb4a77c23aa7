/* Simulates ldmatrix, stmatrix and mma.sync; register layouts are as in src/device/cuda/ptx.cuh. */
#include "sim.h"

#include <string.h>

uint32_t sim_shared_address(const void *p)
{
    size_t offset = (size_t)((const unsigned char *)p - sim_shared);
    if (offset > SIM_SHARED_MAX)
        sim_fail(sim_pc_of(SIM_CALLER), "smem_addr of %p, which is not in shared memory", p);
    return (uint32_t)offset + SIM_SHARED_BASE;
}

void *sim_shared_memory(size_t bytes, size_t align)
{
    if (bytes > sim_now->shared_bytes)
        sim_fail(sim_pc_of(SIM_CALLER), "LT_SHARED of %zu bytes in a launch with %u bytes of shared memory", bytes,
                 sim_now->shared_bytes);
    if (align > 1024)
        sim_fail(sim_pc_of(SIM_CALLER), "LT_SHARED aligned to %zu: at most 1024", align);
    return sim_shared;
}

struct matrix_move {
    uint32_t *r;
    uint32_t row;
    int count, trans;
    bool store;
};

static void apply_move(void **slot, sim_thread *first)
{
    const matrix_move *m0 = static_cast<matrix_move *>(slot[0]);
    sim_pc pc = sim_self->waits_at;
    const char *what = m0->store ? "stmatrix" : "ldmatrix";
    uint16_t tile[4][8][8];
    for (int m = 0; m < m0->count; m++)
        for (int r = 0; r < 8; r++) {
            int lane = 8 * m + r;
            uint32_t offset = shared_offset(static_cast<matrix_move *>(slot[lane])->row, 16, 16, pc, what);
            accessor who = {&first[lane], -1, first[lane].clock, false, pc, what};
            shared_access(offset, 16, m0->store ? WRITE : READ, who);
            if (!m0->store)
                memcpy(tile[m][r], sim_shared + offset, 16);
        }
    for (int lane = 0; lane < 32; lane++) {
        const matrix_move *v = static_cast<matrix_move *>(slot[lane]);
        int g = lane / 4, t = lane % 4;
        for (int m = 0; m < m0->count; m++)
            for (int i = 0; i < 2; i++) {
                uint16_t *e = m0->trans ? &tile[m][2 * t + i][g] : &tile[m][g][2 * t + i];
                if (m0->store)
                    *e = (uint16_t)(v->r[m] >> (16 * i));
                else
                    v->r[m] = (i ? v->r[m] & 0xffff : 0) | (uint32_t)*e << (16 * i);
            }
    }
    for (int m = 0; m0->store && m < m0->count; m++)
        for (int r = 0; r < 8; r++)
            memcpy(sim_shared + static_cast<matrix_move *>(slot[8 * m + r])->row - SIM_SHARED_BASE, tile[m][r], 16);
}

void sim_ldmatrix(uint32_t *r, uint32_t row, int count, int trans)
{
    matrix_move m = {r, row, count, trans, false};
    warp_collective("ldmatrix", 0xffffffffu, &m, apply_move, SIM_CALLER);
}

void sim_stmatrix(uint32_t row, const uint32_t *r, int count, int trans)
{
    matrix_move m = {const_cast<uint32_t *>(r), row, count, trans, true};
    warp_collective("stmatrix", 0xffffffffu, &m, apply_move, SIM_CALLER);
}

struct product {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

static float bf16(uint32_t word, int half)
{
    uint32_t u = half ? word & 0xffff0000u : word << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void apply_mma(void **slot, sim_thread *)
{
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const product *p = static_cast<product *>(slot[lane]);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++)
            a[g + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4)] = bf16(p->a[i / 2], i % 2);
        for (int i = 0; i < 4; i++) {
            b[2 * t + i % 2 + 8 * (i / 2)][g] = bf16(p->b[i / 2], i % 2);
            c[g + 8 * (i / 2)][2 * t + i % 2] = p->c[i];
        }
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                c[m][n] += a[m][k] * b[k][n];
    for (int lane = 0; lane < 32; lane++) {
        const product *p = static_cast<product *>(slot[lane]);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++)
            p->c[i] = c[g + 8 * (i / 2)][2 * t + i % 2];
    }
    sim_count.products++;
}

void sim_mma_m16n8k16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    product p = {c, a, {b0, b1}};
    warp_collective("mma.sync", 0xffffffffu, &p, apply_mma, SIM_CALLER);
}
