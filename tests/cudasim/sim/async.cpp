/* Asynchronous copies: cp.async, TMA, bulk stores and reductions. A copy's destination is poisoned when the copy is issued; the
 * bytes land when a thread waits for them or whenever the scheduler likes. Races are found at once: each copy counts as an agent
 * (sim.h), whose accesses a thread knows of only after the wait. */
#include "sim.h"

#include <string.h>

static int agent_of(int &agent)
{
    if (agent < 0)
        agent = sim_new_id();
    return agent;
}

static accessor agent_access(int agent, uint32_t clock, bool async, sim_pc pc, const char *what)
{
    return {sim_self, agent, clock, async, pc, what};
}

static void check_global_alignment(const void *p, size_t align, sim_pc pc, const char *what)
{
    if ((uintptr_t)p % align != 0)
        sim_fail(pc, "%s: global address %p must be a multiple of %zu bytes", what, p, align);
}

/* --- cp.async -----------------------------------------------------------------------------------------------------------------
 */

static void copy_land(const copy_group::item &i)
{
    memcpy(sim_shared + i.dst, i.src, (size_t)i.bytes);
    memset(sim_shared + i.dst + i.bytes, 0, (size_t)(i.size - i.bytes));
}

void sim_cp_async(uint32_t dst, const void *src, int size, int bytes)
{
    sim_thread *t = sim_self;
    sim_pc pc = sim_pc_of(SIM_CALLER);
    uint32_t offset = shared_offset(dst, (size_t)size, (size_t)size, pc, "cp.async");
    if (bytes < 0 || bytes > size)
        sim_fail(pc, "cp.async: source size %d is not in 0 to %d", bytes, size);
    check_global_alignment(src, (size_t)size, pc, "cp.async");
    accessor who = agent_access(agent_of(t->copy_agent), t->copy_groups + 1, false, pc, "cp.async");
    t->last_copy = pc;
    if (bytes)
        global_access(src, (size_t)bytes, READ, who);
    shared_access(offset, (size_t)size, WRITE, who);
    sim_count.copies++;
    if (t->copies.empty() || t->copies.back().number != t->copy_groups + 1)
        t->copies.push_back({t->copy_groups + 1, {}});
    copy_group::item item = {offset, src, size, bytes};
    if (!sim_lazy && sim_random() % 2)
        copy_land(item);
    else {
        memset(sim_shared + offset, 0xff, (size_t)size);
        t->copies.back().items.push_back(item);
    }
}

void sim_cp_async_commit(void)
{
    sim_self->copy_groups++;
}

void sim_cp_async_wait(int n)
{
    sim_thread *t = sim_self;
    if (t->copy_groups < (uint32_t)n || t->copy_agent < 0)
        return;
    uint32_t done = t->copy_groups - (uint32_t)n;
    while (!t->copies.empty() && t->copies.front().number <= done) {
        for (const copy_group::item &i : t->copies.front().items)
            copy_land(i);
        t->copies.erase(t->copies.begin());
    }
    t->know.see(t->copy_agent, done);
}

/* --- TMA and bulk loads -------------------------------------------------------------------------------------------------------
 */

static void start_load(tma_load *l, sim_pc pc, const char *what)
{
    unsigned slot = sim_now->next_load_agent++ % SIM_LOAD_AGENTS;
    if (!sim_now->load_agent[slot])
        sim_now->load_agent[slot] = sim_new_id();
    l->agent = sim_now->load_agent[slot];
    l->clock = ++sim_now->load_clock[slot];
    shared_access(l->dst, l->bytes, WRITE, agent_access(l->agent, l->clock, true, pc, what));
    memset(sim_shared + l->dst, 0xff, l->bytes);
    sim_now->loads.push_back(l);
    sim_count.copies++;
}

static void check_barrier_ready(uint32_t bar, sim_pc pc, const char *what)
{
    if (!mbarrier_at(bar, pc, what)->fenced)
        sim_fail(pc, "%s: its mbarrier was initialised without fence_mbarrier_init: the async proxy may not see it", what);
}

void sim_tma_load(uint32_t dst, const CUtensorMap *map, uint32_t bar, int rank, const int *at)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    tensor_box box = tensor_map_box(map, rank, pc);
    uint32_t offset = shared_offset(dst, box.bytes, box.swizzle ? box.swizzle * 8 : 128, pc, "TMA load");
    check_barrier_ready(bar, pc, "TMA load");
    accessor who = sim_as_thread(SIM_CALLER, "TMA load");
    tensor_walk(box, at, [&](char *p, uint32_t, uint32_t bytes) {
        if (p)
            global_access(p, bytes, READ, who);
    });
    tma_load *l = new tma_load;
    l->dst = offset;
    l->bar = bar;
    l->bytes = box.bytes;
    l->map = *map;
    l->tensor = true;
    l->rank = rank;
    memcpy(l->at, at, (size_t)rank * sizeof *at);
    start_load(l, pc, "TMA load");
}

void sim_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    uint32_t offset = shared_offset(dst, bytes, 16, pc, "bulk load");
    check_global_alignment(src, 16, pc, "bulk load");
    if (bytes % 16 != 0 || bytes == 0)
        sim_fail(pc, "bulk load of %u bytes: must be a positive multiple of 16", bytes);
    check_barrier_ready(bar, pc, "bulk load");
    global_access(src, bytes, READ, sim_as_thread(SIM_CALLER, "bulk load"));
    tma_load *l = new tma_load;
    l->dst = offset;
    l->bar = bar;
    l->bytes = bytes;
    l->src = src;
    l->tensor = false;
    start_load(l, pc, "bulk load");
}

bool async_pending(void)
{
    return !sim_now->loads.empty();
}

void async_deliver_one(void)
{
    std::vector<tma_load *> &loads = sim_now->loads;
    size_t i = sim_random() % loads.size();
    tma_load *l = loads[i];
    loads[i] = loads.back();
    loads.pop_back();
    if (l->tensor) {
        tensor_box box = tensor_map_box(&l->map, l->rank, 0);
        tensor_walk(box, l->at, [&](char *p, uint32_t offset, uint32_t bytes) {
            for (uint32_t b = 0; b < bytes;
                 b += (uint32_t)box.element) { /* the swizzle works on whole addresses, of which the base is aligned */
                uint32_t to = sim_swizzle(l->dst + offset + b, box.swizzle);
                if (p)
                    memcpy(sim_shared + to, p + b, (size_t)box.element);
                else
                    memset(sim_shared + to, 0, (size_t)box.element);
            }
        });
    } else {
        memcpy(sim_shared + l->dst, l->src, l->bytes);
    }
    mbarrier_land(*l);
    delete l;
}

/* --- bulk stores --------------------------------------------------------------------------------------------------------------
 */

static void write_global(char *to, const unsigned char *from, size_t bytes, bool add)
{
    if (!add) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += 4) {
        float x, y;
        memcpy(&x, to + i, 4);
        memcpy(&y, from + i, 4);
        x += y;
        memcpy(to + i, &x, 4);
    }
}

static void store_land(const bulk_op &o)
{
    const unsigned char *from = o.read.empty() ? sim_shared + o.shared : o.read.data();
    if (!o.tensor) {
        write_global(static_cast<char *>(o.global), from, o.bytes, o.add);
        return;
    }
    tensor_box box = tensor_map_box(&o.map, o.rank, 0);
    tensor_walk(box, o.at, [&](char *p, uint32_t offset, uint32_t bytes) {
        for (uint32_t b = 0; p && b < bytes; b += (uint32_t)box.element)
            write_global(p + b, from + (sim_swizzle(o.shared + offset + b, box.swizzle) - o.shared), (size_t)box.element, o.add);
    });
}

static void start_store(const bulk_op &o, sim_pc pc, const char *what)
{
    sim_thread *t = sim_self;
    t->last_copy = pc;
    accessor writer = agent_access(agent_of(t->bulk_write_agent), o.group, true, pc, what);
    shared_access(o.shared, o.bytes, READ, agent_access(agent_of(t->bulk_agent), o.group, true, pc, what));
    enum access kind = o.add ? SUM : WRITE;
    if (o.tensor)
        tensor_walk(tensor_map_box(&o.map, o.rank, pc), o.at, [&](char *p, uint32_t, uint32_t bytes) {
            if (p)
                global_access(p, bytes, kind, writer);
        });
    else
        global_access(o.global, o.bytes, kind, writer);
    sim_count.copies++;
    t->bulk.push_back(o);
}

void sim_tma_store(const CUtensorMap *map, uint32_t src, int rank, const int *at, int add)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    tensor_box box = tensor_map_box(map, rank, pc);
    bulk_op o = {};
    o.shared = shared_offset(src, box.bytes, box.swizzle ? box.swizzle * 8 : 128, pc, "TMA store");
    if (add && box.element != 4)
        sim_fail(pc, "TMA reduction: only fp32 is simulated");
    o.group = sim_self->bulk_groups + 1;
    o.bytes = box.bytes;
    o.tensor = true;
    o.add = add != 0;
    o.map = *map;
    o.rank = rank;
    memcpy(o.at, at, (size_t)rank * sizeof *at);
    start_store(o, pc, add ? "TMA reduction" : "TMA store");
}

void sim_bulk_store(void *dst, uint32_t src, uint32_t bytes, int add)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    bulk_op o = {};
    o.shared = shared_offset(src, bytes, 16, pc, "bulk store");
    check_global_alignment(dst, 16, pc, "bulk store");
    if (bytes % 16 != 0 || bytes == 0)
        sim_fail(pc, "bulk store of %u bytes: must be a positive multiple of 16", bytes);
    o.group = sim_self->bulk_groups + 1;
    o.bytes = bytes;
    o.global = dst;
    o.add = add != 0;
    start_store(o, pc, add ? "bulk reduction" : "bulk store");
}

void sim_bulk_commit(void)
{
    sim_self->bulk_groups++;
}

/* Waits until at most n groups of bulk stores are unfinished. If read_only, shared memory has been read then, but global memory
 * need not be written yet: the bytes read are kept and land at another wait or when the thread ends. */
void sim_bulk_wait(int n, int read_only)
{
    sim_thread *t = sim_self;
    if (t->bulk_groups < (uint32_t)n || t->bulk_agent < 0)
        return;
    uint32_t done = t->bulk_groups - (uint32_t)n;
    if (read_only && (sim_lazy || sim_random() % 2)) {
        for (bulk_op &o : t->bulk)
            if (o.group <= done && o.read.empty())
                o.read.assign(sim_shared + o.shared, sim_shared + o.shared + o.bytes);
    } else {
        while (!t->bulk.empty() && t->bulk.front().group <= done) {
            store_land(t->bulk.front());
            t->bulk.erase(t->bulk.begin());
        }
    }
    t->know.see(t->bulk_agent, done);
    if (!read_only)
        t->know.see(t->bulk_write_agent, done);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------------
 */

void async_exit(sim_thread *t)
{
    for (const copy_group &g : t->copies)
        if (!g.items.empty())
            sim_fail(t->last_copy, "a thread returns while its cp.async copies are in flight: cp_async_wait<0> is missing");
    for (const bulk_op &o : t->bulk) {
        if (o.read.empty())
            sim_fail(t->last_copy,
                     "a thread returns while its bulk store still reads shared memory: bulk_wait_read<0> is missing");
        store_land(o);
    }
    t->bulk.clear();
}

void async_block_end(void)
{
    if (!sim_now->loads.empty())
        sim_fail(0, "the block has ended with %zu TMA or bulk loads in flight into its shared memory", sim_now->loads.size());
}
