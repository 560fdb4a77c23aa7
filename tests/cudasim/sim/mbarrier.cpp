/* mbarriers and fences. */
#include "sim.h"

sim_mbarrier *mbarrier_at(uint32_t bar, sim_pc pc, const char *what)
{
    uint32_t offset = shared_offset(bar, 8, 8, pc, what);
    for (sim_mbarrier *m : sim_now->mbarrier) {
        if (m->address != bar)
            continue;
        if (sim_self && sim_checking && m->init_thread != sim_self->id && sim_self->know.seen(m->init_thread) < m->init_clock)
            sim_fail(
                pc, "race: %s on the mbarrier at shared offset %u, whose initialisation by thread %d no barrier orders before it",
                what, offset, m->init_thread);
        return m;
    }
    sim_fail(pc, "%s on shared offset %u, where no mbarrier was initialised", what, offset);
}

void sim_mbar_init(uint32_t bar, uint32_t count)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    uint32_t offset = shared_offset(bar, 8, 8, pc, "mbarrier.init");
    if (count == 0 || count >= 1u << 20)
        sim_fail(pc, "mbarrier.init: count %u is not in 1 to 2^20 - 1", count);
    for (const sim_mbarrier *m : sim_now->mbarrier)
        if (m->address == bar)
            sim_fail(pc, "mbarrier.init: the mbarrier at shared offset %u is initialised already", offset);
    shared_access(offset, 8, WRITE, sim_as_thread(SIM_CALLER, "mbarrier.init"));
    if (sim_checking)
        shared_mark_barrier(offset, true);
    sim_mbarrier *m = new sim_mbarrier();
    m->address = bar;
    m->count = m->pending = count;
    m->init_thread = sim_self->id;
    m->init_clock = sim_self->clock;
    sim_now->mbarrier.push_back(m);
}

void sim_fence(enum sim_fence kind)
{
    sim_thread *t = sim_self;
    for (sim_mbarrier *m : sim_now->mbarrier)
        if (m->init_thread == t->id)
            m->fenced = true;
    if (kind == SIM_FENCE_PROXY_ASYNC) {
        t->know.fence();
        t->fenced = t->clock++;
    }
    if (kind == SIM_FENCE_PROXY_GLOBAL)
        t->foreign_proxy = t->foreign;
}

static void end_phase_if_complete(sim_mbarrier *m)
{
    if (m->pending != 0 || m->bytes != 0)
        return;
    uint32_t parity = m->phase & 1;
    m->ended[parity] = m->arriving;
    m->arriving = knowledge();
    m->pending = m->count;
    m->phase++;
    for (sim_thread &t : sim_now->thread)
        if (t.wait == WAIT_MBARRIER && t.object == m->address && t.parity == parity)
            sim_wake(&t);
}

void sim_mbar_arrive(uint32_t bar, uint32_t bytes)
{
    sim_thread *t = sim_self;
    sim_pc pc = sim_pc_of(SIM_CALLER);
    sim_mbarrier *m = mbarrier_at(bar, pc, "mbarrier.arrive");
    if (m->pending == 0)
        sim_fail(pc, "mbarrier.arrive: the mbarrier at shared offset %u has had all %u arrivals of this phase",
                 bar - SIM_SHARED_BASE, m->count);
    m->bytes += bytes;
    m->arriving.join(t->know);
    m->arriving.see(t->id, t->clock);
    m->arriving.see_proxy(t->id, t->fenced);
    t->clock++;
    m->pending--;
    end_phase_if_complete(m);
}

void mbarrier_land(const tma_load &l)
{
    for (sim_mbarrier *m : sim_now->mbarrier) {
        if (m->address != l.bar)
            continue;
        m->bytes -= l.bytes;
        m->arriving.see(l.agent, l.clock);
        if (m->pending == 0 && m->bytes < 0)
            sim_fail(0, "the mbarrier at shared offset %u was told to expect %lld bytes less than its TMA loads brought",
                     m->address - SIM_SHARED_BASE, (long long)-m->bytes);
        end_phase_if_complete(m);
    }
}

int sim_mbar_try_wait(uint32_t bar, uint32_t parity)
{
    sim_thread *t = sim_self;
    sim_pc pc = sim_pc_of(SIM_CALLER);
    sim_mbarrier *m = mbarrier_at(bar, pc, "mbarrier.try_wait");
    if (parity > 1)
        sim_fail(pc, "mbarrier.try_wait: parity %u is not 0 or 1", parity);
    if ((m->phase & 1) == parity) {
        t->object = bar;
        t->parity = parity;
        sim_wait(WAIT_MBARRIER, "mbarrier.try_wait", SIM_CALLER);
    }
    t->know.join(m->ended[parity]);
    return 1;
}
