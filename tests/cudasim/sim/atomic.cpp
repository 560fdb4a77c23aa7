/* Atomic operations and memory fences. */
#include "sim.h"

#include <string.h>

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
    memory_access(p, 4 * (size_t)n, ATOMIC, sim_as_thread(SIM_CALLER, "red.add"));
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
