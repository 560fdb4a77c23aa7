/* Collective operations of threads: warp and warpgroup collectives, __syncthreads and named barriers. */
#include "sim.h"

#include <stdio.h>

static std::string lanes(unsigned mask)
{
    char s[16];
    snprintf(s, sizeof s, "0x%08x", mask);
    return s;
}

/* Threads [first, first + n) gather; the last one to come calls `apply` and wakes the others. A lane that waits in another
 * collective may still come; if it cannot, the deadlock report says where it is. */
static void gather(std::vector<gathering> &waiting, enum wait_kind wait, int first, int n, unsigned mask, const char *kind,
                   void *slot, collective_apply *apply, const void *pc)
{
    sim_thread *me = sim_self;
    size_t i = 0;
    while (i < waiting.size() && (waiting[i].kind != kind || waiting[i].mask != mask))
        i++;
    if (i == waiting.size()) {
        waiting.push_back({});
        waiting[i].kind = kind;
        waiting[i].mask = mask;
        waiting[i].missing = n == 32 ? __builtin_popcount(mask) : n;
    }
    waiting[i].slot[me->id - first] = slot;
    if (--waiting[i].missing > 0) {
        me->mask = mask;
        sim_wait(wait, kind, pc);
        return;
    }
    gathering all = waiting[i];
    waiting.erase(waiting.begin() + (long)i);
    me->waits_at = sim_pc_of(pc);
    if (apply)
        apply(all.slot, &sim_now->thread[(size_t)first]);
    for (int t = 0; t < n; t++)
        if (all.slot[t] && first + t != me->id)
            sim_wake(&sim_now->thread[(size_t)(first + t)]);
}

/* Fails unless all threads that the collective needs exist and have not returned. */
static void check_alive(int first_warp, int warps, unsigned mask, const char *kind, const void *pc)
{
    for (int w = first_warp; w < first_warp + warps; w++) {
        unsigned gone = w < sim_now->warps ? sim_now->exited[w] & mask : mask;
        if (gone)
            sim_fail(sim_pc_of(pc), "divergence: %s needs lane %d of warp %d, which %s", kind, __builtin_ctz(gone), w,
                     w < sim_now->warps ? "has returned" : "does not exist");
    }
}

void warp_collective(const char *kind, unsigned mask, void *slot, collective_apply *apply, const void *pc)
{
    int first = sim_self->warp * 32;
    if (sim_now->threads - first < 32)
        mask &= (1u << (sim_now->threads - first)) - 1;
    if (!(mask >> sim_self->lane & 1))
        sim_fail(sim_pc_of(pc), "%s: the mask %s lacks the calling lane %d", kind, lanes(mask).c_str(), sim_self->lane);
    check_alive(sim_self->warp, 1, mask, kind, pc);
    gather(sim_now->warp_gathers[sim_self->warp], WAIT_WARP, first, 32, mask, kind, slot, apply, pc);
}

void group_collective(const char *kind, void *slot, collective_apply *apply, const void *pc)
{
    check_alive(sim_self->warp / 4 * 4, 4, 0xffffffffu, kind, pc);
    gather(sim_now->group_gathers[sim_self->id / 128], WAIT_GROUP, sim_self->id / 128 * 128, 128, 0xffffffffu, kind, slot, apply,
           pc);
}

/* --- warp-wide exchange -------------------------------------------------------------------------------------------------------
 */

static void join_all(void **slot, sim_thread *first)
{
    knowledge all;
    for (int i = 0; i < 32; i++) {
        if (!slot[i])
            continue;
        sim_thread &t = first[i];
        all.join(t.know);
        all.see(t.id, t.clock);
        all.see_proxy(t.id, t.fenced);
    }
    for (int i = 0; i < 32; i++) {
        if (!slot[i])
            continue;
        first[i].know = all;
        first[i].clock++;
    }
}

void sim_syncwarp(unsigned mask)
{
    int here;
    warp_collective("__syncwarp", mask, &here, join_all, SIM_CALLER);
}

struct shuffle {
    uint64_t value, result;
    int lane, width;
    enum sim_shuffle how;
};

static void apply_shuffle(void **slot, sim_thread *)
{
    for (int i = 0; i < 32; i++) {
        shuffle *s = static_cast<shuffle *>(slot[i]);
        if (!s)
            continue;
        int base = i & ~(s->width - 1), in = i - base, from = in;
        switch (s->how) {
        case SIM_SHFL_IDX:
            from = s->lane & (s->width - 1);
            break;
        case SIM_SHFL_XOR:
            from = (in ^ s->lane) < s->width ? in ^ s->lane : in;
            break;
        case SIM_SHFL_DOWN:
            from = in + s->lane < s->width ? in + s->lane : in;
            break;
        case SIM_SHFL_UP:
            from = in - s->lane >= 0 ? in - s->lane : in;
            break;
        }
        const shuffle *source = static_cast<const shuffle *>(slot[base + from]);
        s->result = source ? source->value : 0xffffffffffffffffull; /* a GPU's result is undefined */
    }
}

uint64_t sim_shuffle(unsigned mask, uint64_t value, int lane, int width, enum sim_shuffle how)
{
    shuffle s = {value, 0, lane, width, how};
    if (width <= 0 || width > 32 || (width & (width - 1)))
        sim_fail(sim_pc_of(SIM_CALLER), "__shfl_sync: width %d is no power of two up to 32", width);
    warp_collective("__shfl_sync", mask, &s, apply_shuffle, SIM_CALLER);
    return s.result;
}

struct vote {
    uint64_t value, result;
    int how;
};

static void apply_ballot(void **slot, sim_thread *)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        if (slot[i] && static_cast<vote *>(slot[i])->value)
            r |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (slot[i])
            static_cast<vote *>(slot[i])->result = r;
}

unsigned sim_ballot(unsigned mask, int predicate)
{
    vote v = {(uint64_t)(predicate != 0), 0, 0};
    warp_collective("__ballot_sync", mask, &v, apply_ballot, SIM_CALLER);
    return (unsigned)v.result;
}

static void apply_reduce(void **slot, sim_thread *)
{
    bool first = true;
    uint64_t r = 0;
    for (int i = 0; i < 32; i++) {
        if (!slot[i])
            continue;
        const vote *v = static_cast<vote *>(slot[i]);
        uint64_t x = v->value;
        r = first         ? x
            : v->how == 0 ? r + x
            : v->how == 1 ? (x < r ? x : r)
            : v->how == 2 ? (x > r ? x : r)
            : v->how == 3 ? r & x
                          : r | x;
        first = false;
    }
    for (int i = 0; i < 32; i++)
        if (slot[i])
            static_cast<vote *>(slot[i])->result = r;
}

uint64_t sim_reduce_sync(unsigned mask, unsigned value, int how)
{
    vote v = {value, 0, how};
    warp_collective("__reduce_sync", mask, &v, apply_reduce, SIM_CALLER);
    return (unsigned)v.result;
}

static void apply_elect(void **slot, sim_thread *first)
{
    int leader =
        (int)(sim_launched.serial * 7 + (unsigned)first->warp * 5) % 32; /* may be any lane, but the same one at every call of a launch */
    for (int i = 0; i < 32; i++)
        if (slot[i])
            *static_cast<int *>(slot[i]) = i == leader;
}

int sim_elect(void)
{
    int elected = 0;
    warp_collective("elect.sync", 0xffffffffu, &elected, apply_elect, SIM_CALLER);
    return elected;
}

static void apply_setmaxnreg(void **slot, sim_thread *first)
{
    for (int i = 0; i < 32; i++)
        if (slot[i])
            sim_now->registers[first->id / 128] = *static_cast<int *>(slot[i]);
}

void sim_setmaxnreg(int n, int increase)
{
    if (n < 24 || n > 256 || n % 8 != 0)
        sim_fail(sim_pc_of(SIM_CALLER), "setmaxnreg %d: must be a multiple of 8, 24 to 256", n);
    int now = sim_now->registers[sim_self->id / 128];
    if (now && now != n && (n > now) != (increase != 0))
        sim_fail(sim_pc_of(SIM_CALLER), "setmaxnreg.%s to %d, but the warpgroup has %d", increase ? "inc" : "dec", n, now);
    warp_collective(increase ? "setmaxnreg.inc" : "setmaxnreg.dec", 0xffffffffu, &n, apply_setmaxnreg, SIM_CALLER);
}

/* --- barriers -----------------------------------------------------------------------------------------------------------------
 */

static void complete(sim_named_barrier &b)
{
    for (sim_thread *t : b.waiting) {
        t->know = b.arriving;
        foreign_join(t->foreign, b.foreign);
        sim_wake(t);
    }
    b.waiting.clear();
    b.arriving = knowledge();
    b.foreign.clear();
    b.arrived = b.expected = 0;
    b.generation++;
}

/* The calling thread arrives at the barrier; returns when all have arrived, or at once unless `wait`. */
static void arrive(int id, unsigned expected, bool wait, const char *name, const void *pc)
{
    sim_named_barrier &b = sim_now->barrier[id];
    sim_thread *me = sim_self;
    if (b.arrived > 0 && b.expected != expected && id != 0)
        sim_fail(sim_pc_of(pc), "%s: barrier %d for %u threads, but others came to it for %u", name, id, expected, b.expected);
    b.expected = expected;
    b.arriving.join(me->know);
    b.arriving.see(me->id, me->clock);
    b.arriving.see_proxy(me->id, me->fenced);
    foreign_join(b.foreign, me->foreign);
    me->clock++;
    b.arrived++;
    me->object = (uint32_t)id;
    if (wait)
        b.waiting.push_back(me);
    if (b.arrived == b.expected) {
        complete(b);
        if (wait) { /* complete() woke this thread with the others */
            me->waits_in = name;
            sim_now->ready.pop_back();
            me->wait = RUNNING;
        }
        return;
    }
    if (wait)
        sim_wait(WAIT_BARRIER, name, pc);
}

void sim_syncthreads(void)
{
    arrive(0, (unsigned)sim_now->alive, true, "__syncthreads", SIM_CALLER);
}

void sim_bar(int id, int threads, int wait)
{
    const char *name = wait ? "bar.sync" : "bar.arrive";
    if (id < 1 || id > 15)
        sim_fail(sim_pc_of(SIM_CALLER), "%s: barrier %d is not one of 1 to 15 (0 belongs to __syncthreads)", name, id);
    if (threads <= 0 || threads % 32 != 0 || threads > (sim_now->threads + 31) / 32 * 32)
        sim_fail(sim_pc_of(SIM_CALLER), "%s: %d threads at barrier %d: must be a multiple of 32, at most the block's %d", name,
                 threads, id, sim_now->threads);
    arrive(id, (unsigned)threads, wait != 0, name, SIM_CALLER);
}

/* A thread returns: __syncthreads now waits only for threads that have not. */
void barrier_thread_exits(sim_thread *t)
{
    sim_now->exited[t->warp] |= 1u << t->lane;
    sim_named_barrier &b = sim_now->barrier[0];
    if (b.arrived == 0)
        return;
    b.expected = (unsigned)sim_now->alive;
    if (b.arrived == b.expected)
        complete(b);
}

void barrier_block_end(void)
{
    for (int i = 1; i < 16; i++)
        if (sim_now->barrier[i].arrived)
            sim_fail(0, "the block has ended, but %u of %u threads have arrived at barrier %d", sim_now->barrier[i].arrived,
                     sim_now->barrier[i].expected, i);
}

int sim_syncthreads_reduce(int predicate, int how)
{
    unsigned generation = sim_now->barrier[0].generation;
    block_vote *v = &sim_now->votes[generation % 2];
    if (v->generation != generation)
        *v = {generation, 0, 0};
    v->yes += predicate != 0;
    v->all++;
    arrive(0, (unsigned)sim_now->alive, true, "__syncthreads", SIM_CALLER);
    return how == 0 ? v->yes == v->all : how == 1 ? v->yes > 0 : (int)v->yes;
}
