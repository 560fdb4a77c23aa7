/* Simulates wgmma: products are issued, and computed when a thread waits for them; until then their accumulators hold NaN, and
 * writes to their operands are races. */
#include "sim.h"

#include <string.h>

#define IN_FLIGHT 0x7fa0deadu /* value of a register while its product is in flight: a signalling NaN, which shows in any arithmetic */

struct accumulator { /* one result array, spread over 128 threads; several products in flight may add to it */
    float *d[128];
    int n, products;
    std::vector<float> value; /* [64][n] */
};

struct wgmma_op {
    uint32_t group;
    accumulator *acc;
    int n, ta, tb, add;
    bool registers;
    const uint32_t *ra[128];
    uint32_t ra_value[128][4];
    uint64_t a, b, hash;
    sim_pc pc;
};

struct warpgroup {
    int agent[4]; /* one agent for each warp, which learns only at its own wait that the products have read their operands */
    uint32_t groups;
    bool fenced;
    std::vector<wgmma_op *> ops;
    std::vector<accumulator *> accumulators;
};

struct issue {
    float *d;
    const uint32_t *ra;
    uint64_t a, b;
    int n, ta, tb, add, wait;
};

static warpgroup *group_of(const sim_thread *first)
{
    warpgroup *&g = sim_now->group[first->id / 128];
    if (!g) {
        g = new warpgroup();
        for (int &agent : g->agent)
            agent = sim_new_id();
    }
    return g;
}

/* Layout of a wgmma operand in shared memory. chunk() returns the address of the 8 contiguous elements [x][8 c ...) (K-major) or
 * [8 c ...)[k] (MN-major). */
struct operand {
    uint32_t start, leading, stride, span;
    bool mn_major;
    uint32_t chunk(uint32_t x, uint32_t c) const
    {
        uint32_t at = start;
        if (!mn_major) { /* x: row; c: which half of the 16 values of k */
            if (span)
                at += x / 8 * stride + x % 8 * span + c * 16;
            else
                at += x / 8 * stride + x % 8 * 16 + c * leading;
        } else { /* x: value of k; c: which 8 columns */
            if (span)
                at += c * 8 / (span / 2) * leading + x / 8 * stride + x % 8 * span + c * 16 % span;
            else
                at += c * stride + x / 8 * leading + x % 8 * 16;
        }
        return sim_swizzle(at, span);
    }
};

static operand operand_of(uint64_t descriptor, int mn_major, sim_pc pc)
{
    static const uint32_t span[4] = {0, 128, 64, 32};
    operand o;
    o.start = (uint32_t)(descriptor & 0x3fff) << 4;
    o.leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    o.stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    o.span = span[descriptor >> 62];
    o.mn_major = mn_major != 0;
    if (descriptor >> 49 & 7)
        sim_fail(pc, "wgmma: a base offset in the descriptor is not simulated: align the tile");
    return o;
}

/* Reads rows [from, end) (of m or n), 16 values of k each, into to[end][16] unless NULL, and checks the reads for each of `who`.
 * Returns a hash of the bytes. */
static uint64_t read_operand(const operand &o, uint32_t from, uint32_t end, float *to, const std::vector<accessor> &who,
                             sim_pc pc)
{
    uint64_t hash = 1469598103934665603ull;
    uint32_t outer = o.mn_major ? 16 : end, outer_from = o.mn_major ? 0 : from;
    uint32_t c_from = o.mn_major ? from / 8 : 0, c_end = o.mn_major ? end / 8 : 2;
    for (uint32_t x = outer_from; x < outer; x++)
        for (uint32_t c = c_from; c < c_end; c++) {
            uint32_t offset = shared_offset(o.chunk(x, c), 16, 16, pc, "wgmma operand");
            for (const accessor &w : who)
                shared_access(offset, 16, READ, w);
            uint16_t e[8];
            memcpy(e, sim_shared + offset, 16);
            for (uint32_t i = 0; i < 8; i++) {
                hash = (hash ^ e[i]) * 1099511628211ull;
                uint32_t u = (uint32_t)e[i] << 16;
                if (to)
                    memcpy(o.mn_major ? &to[(8 * c + i) * 16 + x] : &to[x * 16 + 8 * c + i], &u, 4);
            }
        }
    return hash;
}

static float *element(accumulator *a, int thread, int i)
{
    int w = thread / 32, g = thread % 32 / 4, t = thread % 4;
    return &a->value[(size_t)(16 * w + g + 8 * (i / 2 % 2)) * (size_t)a->n + (size_t)(8 * (i / 4) + 2 * t + i % 2)];
}

static accumulator *hold(warpgroup *g, void **slot, int n, sim_pc pc)
{
    for (accumulator *a : g->accumulators) {
        float *mine = static_cast<issue *>(slot[0])->d;
        if (a->d[0] == mine && a->n == n)
            return a;
        if (mine < a->d[0] + a->n / 2 && a->d[0] < mine + n / 2)
            sim_fail(pc, "wgmma: its accumulators overlap those of another product in flight with n = %d", a->n);
    }
    accumulator *a = new accumulator();
    a->n = n;
    a->value.resize(64 * (size_t)n);
    for (int t = 0; t < 128; t++) {
        a->d[t] = static_cast<issue *>(slot[t])->d;
        for (int i = 0; i < n / 2; i++) {
            *element(a, t, i) = a->d[t][i];
            const uint32_t nan = IN_FLIGHT;
            memcpy(&a->d[t][i], &nan, 4);
        }
    }
    g->accumulators.push_back(a);
    return a;
}

static void apply_issue(void **slot, sim_thread *first)
{
    sim_pc pc = sim_self->waits_at;
    warpgroup *g = group_of(first);
    const issue *v = static_cast<issue *>(slot[0]);
    if (!g->fenced)
        sim_fail(pc, "wgmma without wgmma_fence since the start or the last wgmma_commit or wgmma_wait");
    for (int t = 1; t < 128; t++) {
        const issue *o = static_cast<issue *>(slot[t]);
        if (o->n != v->n || o->b != v->b || o->a != v->a || o->add != v->add || o->ta != v->ta || o->tb != v->tb)
            sim_fail(pc, "wgmma: threads %d and %d of a warpgroup give different descriptors, shapes or scales", first->id,
                     first->id + t);
    }
    wgmma_op *op = new wgmma_op();
    op->group = g->groups + 1;
    op->n = v->n;
    op->ta = v->ta;
    op->tb = v->tb;
    op->add = v->add;
    op->a = v->a;
    op->b = v->b;
    op->pc = pc;
    op->registers = v->ra != nullptr;
    for (int t = 0; op->registers && t < 128; t++) {
        op->ra[t] = static_cast<issue *>(slot[t])->ra;
        memcpy(op->ra_value[t], op->ra[t], 16);
    }
    std::vector<accessor> who;
    for (uint32_t w = 0; w < 4; w++) {
        who.push_back({&first[32 * w], g->agent[w], op->group, true, pc, "wgmma"});
        if (!op->registers)
            read_operand(operand_of(op->a, op->ta, pc), 16 * w, 16 * w + 16, nullptr, {who[w]}, pc);
    }
    op->hash = read_operand(operand_of(op->b, op->tb, pc), 0, (uint32_t)op->n, nullptr, who, pc);
    if (!op->registers)
        op->hash += read_operand(operand_of(op->a, op->ta, pc), 0, 64, nullptr, {}, pc);
    op->acc = hold(g, slot, op->n, pc);
    op->acc->products++;
    g->ops.push_back(op);
}

void sim_wgmma(float *d, int n, const uint32_t *a_registers, uint64_t a, int ta, uint64_t b, int tb, int add)
{
    issue v = {d, a_registers, a, b, n, ta, tb, add != 0, 0};
    group_collective("wgmma.mma_async", &v, apply_issue, SIM_CALLER);
}

static void apply_fence(void **, sim_thread *first)
{
    group_of(first)->fenced = true;
}

void sim_wgmma_fence(void)
{
    int here;
    group_collective("wgmma.fence", &here, apply_fence, SIM_CALLER);
}

static void apply_commit(void **, sim_thread *first)
{
    warpgroup *g = group_of(first);
    g->groups++;
    g->fenced = false; /* stricter than PTX, which needs another fence only if registers were touched since the last one */
}

void sim_wgmma_commit(void)
{
    int here;
    group_collective("wgmma.commit_group", &here, apply_commit, SIM_CALLER);
}

static void multiply(wgmma_op *op)
{
    static float a[64 * 16], b[256 * 16], bt[16 * 256];
    const uint32_t n = (uint32_t)op->n;
    uint64_t hash = read_operand(operand_of(op->b, op->tb, op->pc), 0, n, b, {}, op->pc);
    if (op->registers) {
        for (int t = 0; t < 128; t++) {
            int w = t / 32, g = t % 32 / 4, q = t % 4;
            if (memcmp(op->ra[t], op->ra_value[t], 16) != 0)
                sim_fail(op->pc, "wgmma: A's registers of a product in flight were written before wgmma_wait");
            for (int i = 0; i < 8; i++) {
                uint32_t word = op->ra_value[t][i / 2], u = i % 2 ? word & 0xffff0000u : word << 16;
                memcpy(&a[(16 * w + g + 8 * (i / 2 % 2)) * 16 + 2 * q + i % 2 + 8 * (i / 4)], &u, 4);
            }
        }
    } else {
        hash += read_operand(operand_of(op->a, op->ta, op->pc), 0, 64, a, {}, op->pc);
    }
    if (hash != op->hash)
        sim_fail(op->pc, "wgmma: a shared-memory operand changed while the product was in flight");
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t k = 0; k < 16; k++)
            bt[k * n + j] = b[j * 16 + k];
    for (uint32_t i = 0; i < 64; i++) {
        float *c = &op->acc->value[i * n];
        if (!op->add)
            memset(c, 0, n * sizeof *c);
        for (uint32_t k = 0; k < 16; k++) {
            const float x = a[i * 16 + k], *row = bt + k * n;
            for (uint32_t j = 0; j < n; j++)
                c[j] += x * row[j];
        }
    }
    sim_count.products++;
}

static void release(warpgroup *g, accumulator *a, sim_pc pc)
{
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < a->n / 2; i++) {
            uint32_t u;
            memcpy(&u, &a->d[t][i], 4);
            if (u != IN_FLIGHT)
                sim_fail(pc, "wgmma: accumulator %d of thread %d of the warpgroup was written while a product was in flight", i,
                         t);
            a->d[t][i] = *element(a, t, i);
        }
    for (size_t i = 0; i < g->accumulators.size(); i++)
        if (g->accumulators[i] == a)
            g->accumulators.erase(g->accumulators.begin() + (long)i);
    delete a;
}

static void apply_wait(void **slot, sim_thread *first)
{
    warpgroup *g = group_of(first);
    uint32_t n = (uint32_t) static_cast<issue *>(slot[0])->wait;
    g->fenced = false;
    if (g->groups < n)
        return;
    uint32_t done = g->groups - n;
    while (!g->ops.empty() && g->ops.front()->group <= done) {
        wgmma_op *op = g->ops.front();
        multiply(op);
        if (--op->acc->products == 0)
            release(g, op->acc, op->pc);
        delete op;
        g->ops.erase(g->ops.begin());
    }
    for (int t = 0; t < 128; t++)
        first[t].know.see(g->agent[t / 32], done);
}

void sim_wgmma_wait(int n)
{
    issue v = {};
    v.wait = n;
    group_collective("wgmma.wait_group", &v, apply_wait, SIM_CALLER);
}

void wgmma_block_end(void)
{
    for (warpgroup *&g : sim_now->group) {
        if (!g)
            continue;
        if (!g->ops.empty())
            sim_fail(g->ops.front()->pc, "the block has ended while a wgmma is in flight: wgmma_wait<0> is missing");
        delete g;
        g = nullptr;
    }
}
