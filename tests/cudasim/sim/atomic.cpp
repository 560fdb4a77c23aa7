/* Atomic operations, memory fences, and flags between blocks. */
#include "sim.h"

#include <string.h>

bool sim_sums_in_order;

template <class T> static T combine(enum sim_atomic_op op, T old, T v, T compare)
{
    switch (op) {
    case SIM_ADD:
        return old + v;
    case SIM_MIN:
        return v < old ? v : old;
    case SIM_MAX:
        return old < v ? v : old;
    case SIM_EXCH:
        return v;
    case SIM_CAS:
        return memcmp(&old, &compare, sizeof old) == 0 ? v : old;
    default:
        return old;
    }
}

template <class T> static uint64_t apply(void *p, enum sim_atomic_op op, uint64_t operand, uint64_t compare)
{
    T old, v, c;
    memcpy(&old, p, sizeof old);
    memcpy(&v, &operand, sizeof v);
    memcpy(&c, &compare, sizeof c);
    T now = combine<T>(op, old, v, c);
    memcpy(p, &now, sizeof now);
    uint64_t r = 0;
    memcpy(&r, &old, sizeof old);
    return r;
}

uint64_t sim_atomic(void *p, enum sim_atomic_type type, enum sim_atomic_op op, uint64_t operand, uint64_t compare)
{
    static const size_t bytes[] = {4, 4, 8, 4, 8};
    sim_pc pc = sim_pc_of(SIM_CALLER);
    if ((uintptr_t)p % bytes[type] != 0)
        sim_fail(pc, "atomic at %p: must be a multiple of %zu bytes", p, bytes[type]);
    memory_access(p, bytes[type], ATOMIC, sim_as_thread(SIM_CALLER, "atomic"));
    if (op == SIM_AND || op == SIM_OR) {
        uint32_t old;
        memcpy(&old, p, 4);
        uint32_t now = op == SIM_AND ? old & (uint32_t)operand : old | (uint32_t)operand;
        memcpy(p, &now, 4);
        return old;
    }
    switch (type) {
    case SIM_I32:
        return apply<int32_t>(p, op, operand, compare);
    case SIM_U32:
        return apply<uint32_t>(p, op, operand, compare);
    case SIM_U64:
        return apply<uint64_t>(p, op, operand, compare);
    case SIM_F32:
        return apply<float>(p, op, operand, compare);
    default:
        return apply<double>(p, op, operand, compare);
    }
}

void sim_red_add(float *p, const float *v, int n)
{
    sim_pc pc = sim_pc_of(SIM_CALLER);
    if ((uintptr_t)p % (4 * (size_t)n) != 0)
        sim_fail(pc, "red.add of %d floats at %p: must be a multiple of %d bytes", n, static_cast<void *>(p), 4 * n);
    memory_access(p, 4 * (size_t)n, SUM, sim_as_thread(SIM_CALLER, "red.add"));
    for (int i = 0; i < n; i++)
        p[i] += v[i];
}

void sim_threadfence(void)
{
}

void sim_nanosleep(void)
{
    sim_yield();
}

/* --- flags --------------------------------------------------------------------------------------------------------------------
 */

/* For each flag, what the threads that raised it knew at that time, of their own blocks and of others. Whoever raises it further
 * has seen the lower value or does not care. */
static std::map<const uint32_t *, foreign_knowledge> told;

void flags_launch(void)
{
    told.clear();
}

void foreign_join(foreign_knowledge &to, const foreign_knowledge &from)
{
    for (const auto &k : from)
        to[k.first].join(k.second);
}

static uint32_t flag_value(const uint32_t *flag)
{
    uint32_t v;
    memcpy(&v, flag, sizeof v);
    return v;
}

/* Adds to the thread's knowledge what it learns from reading the flag. */
static void hear(sim_thread *t, const uint32_t *flag)
{
    foreign_join(t->foreign, told[flag]);
    const auto own = t->foreign.find(sim_now->linear + 1);
    if (own != t->foreign.end())
        t->know.join(own->second);
}

/* Adds to the flag's knowledge what the thread knows as it raises the flag. */
static void tell(sim_thread *t, const uint32_t *flag)
{
    foreign_knowledge &tells = told[flag];
    foreign_join(tells, t->foreign);
    tells[sim_now->linear + 1].join(t->know);
    tells[sim_now->linear + 1].see(t->id, t->clock);
    t->clock++;
}

static void check_flag(const void *flag, const char *what, const void *pc)
{
    if ((uintptr_t)flag % sizeof(uint32_t) != 0)
        sim_fail(sim_pc_of(pc), "%s at %p: must be a multiple of 4 bytes", what, flag);
}

int sim_flag_reached(const uint32_t *flag, uint32_t value)
{
    sim_thread *t = sim_self;
    check_flag(flag, "flag", SIM_CALLER);
    global_access(flag, sizeof *flag, ATOMIC, sim_as_thread(SIM_CALLER, "flag"));
    if (sim_random() % 4 == 0)
        sim_yield_block();
    if (flag_value(flag) < value) {
        t->flag = flag;
        t->flag_value = value;
        sim_wait(WAIT_FLAG, "a flag", SIM_CALLER);
    }
    hear(t, flag);
    return 1;
}

void sim_flag_raise(uint32_t *flag, uint32_t value)
{
    sim_thread *t = sim_self;
    check_flag(flag, "flag", SIM_CALLER);
    global_access(flag, sizeof *flag, ATOMIC, sim_as_thread(SIM_CALLER, "flag"));
    memcpy(flag, &value, sizeof value);
    tell(t, flag);
    for (sim_block *b : sim_begun())
        for (sim_thread &other : b->thread)
            if (other.wait == WAIT_FLAG && other.flag == flag && other.flag_value <= value) {
                other.wait = RUNNING;
                b->ready.push_back(other.id);
                b->waits = false;
            }
    if (sim_random() % 2)
        sim_yield_block();
}

int sim_arrive_last(uint32_t *counter, uint32_t count)
{
    check_flag(counter, "counter", SIM_CALLER);
    memory_access(counter, sizeof *counter, ATOMIC, sim_as_thread(SIM_CALLER, "counter"));
    const uint32_t before = *counter;
    hear(sim_self, counter);
    tell(sim_self, counter);
    *counter = before + 1 < count ? before + 1 : 0;
    return before + 1 == count;
}
