/* Device built-ins on the CPU: indices, warp collectives, barriers, atomics, intrinsics. Included by cuda_runtime.h. */
#ifndef CUDASIM_DEVICE_H
#define CUDASIM_DEVICE_H

/* Inlined into the kernel, so that the return address of the call inside tells the kernel's source line. */
#define SIM_INLINE static inline __attribute__((always_inline))

/* const: the value stays the same within one thread, so the compiler may keep it in a register */
__attribute__((const)) uint3 sim_thread_index(void);
__attribute__((const)) uint3 sim_block_index(void);
__attribute__((const)) dim3 sim_block_size(void);
__attribute__((const)) dim3 sim_grid_size(void);
#define threadIdx (sim_thread_index())
#define blockIdx (sim_block_index())
#define blockDim (sim_block_size())
#define gridDim (sim_grid_size())
#define warpSize 32

void *sim_shared_memory(size_t bytes, size_t align);

void sim_syncthreads(void);
int sim_syncthreads_reduce(int predicate, int how); /* the argument `how`: 0 and, 1 or, 2 count */
void sim_syncwarp(unsigned mask);
enum sim_shuffle { SIM_SHFL_IDX, SIM_SHFL_XOR, SIM_SHFL_DOWN, SIM_SHFL_UP };
uint64_t sim_shuffle(unsigned mask, uint64_t value, int lane, int width, enum sim_shuffle how);
unsigned sim_ballot(unsigned mask, int predicate);
uint64_t sim_reduce_sync(unsigned mask, unsigned value, int how); /* the argument `how`: 0 add, 1 min, 2 max, 3 and, 4 or */

SIM_INLINE void __syncthreads()
{
    sim_syncthreads();
}
SIM_INLINE int __syncthreads_and(int p)
{
    return sim_syncthreads_reduce(p, 0);
}
SIM_INLINE int __syncthreads_or(int p)
{
    return sim_syncthreads_reduce(p, 1);
}
SIM_INLINE int __syncthreads_count(int p)
{
    return sim_syncthreads_reduce(p, 2);
}
SIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu)
{
    sim_syncwarp(mask);
}

template <class T> SIM_INLINE T sim_shuffle_as(unsigned mask, T v, int lane, int width, enum sim_shuffle how)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    uint64_t u = 0;
    __builtin_memcpy(&u, &v, sizeof v);
    u = sim_shuffle(mask, u, lane, width, how);
    __builtin_memcpy(&v, &u, sizeof v);
    return v;
}
template <class T> SIM_INLINE T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    return sim_shuffle_as(mask, v, lane, width, SIM_SHFL_IDX);
}
template <class T> SIM_INLINE T __shfl_xor_sync(unsigned mask, T v, int lane, int width = 32)
{
    return sim_shuffle_as(mask, v, lane, width, SIM_SHFL_XOR);
}
template <class T> SIM_INLINE T __shfl_down_sync(unsigned mask, T v, int lane, int width = 32)
{
    return sim_shuffle_as(mask, v, lane, width, SIM_SHFL_DOWN);
}
template <class T> SIM_INLINE T __shfl_up_sync(unsigned mask, T v, int lane, int width = 32)
{
    return sim_shuffle_as(mask, v, lane, width, SIM_SHFL_UP);
}
SIM_INLINE unsigned __ballot_sync(unsigned mask, int p)
{
    return sim_ballot(mask, p);
}
SIM_INLINE int __any_sync(unsigned mask, int p)
{
    return sim_ballot(mask, p) != 0;
}
SIM_INLINE int __all_sync(unsigned mask, int p)
{
    return sim_ballot(mask, !p) == 0;
}
SIM_INLINE unsigned __reduce_add_sync(unsigned mask, unsigned v)
{
    return (unsigned)sim_reduce_sync(mask, v, 0);
}
SIM_INLINE unsigned __reduce_min_sync(unsigned mask, unsigned v)
{
    return (unsigned)sim_reduce_sync(mask, v, 1);
}
SIM_INLINE unsigned __reduce_max_sync(unsigned mask, unsigned v)
{
    return (unsigned)sim_reduce_sync(mask, v, 2);
}
SIM_INLINE int __reduce_min_sync(unsigned mask, int v)
{
    return (int)((unsigned)sim_reduce_sync(mask, (unsigned)v ^ 0x80000000u, 1) ^ 0x80000000u);
}
SIM_INLINE int __reduce_max_sync(unsigned mask, int v)
{
    return (int)((unsigned)sim_reduce_sync(mask, (unsigned)v ^ 0x80000000u, 2) ^ 0x80000000u);
}

/* Atomics on global or shared memory race with no other atomic. They order plain accesses only where a __threadfence stands
 * between, as CUDA requires. */
enum sim_atomic_type { SIM_I32, SIM_U32, SIM_U64, SIM_F32, SIM_F64 };
enum sim_atomic_op { SIM_ADD, SIM_MIN, SIM_MAX, SIM_EXCH, SIM_CAS, SIM_AND, SIM_OR, SIM_LOAD };
uint64_t sim_atomic(void *p, enum sim_atomic_type type, enum sim_atomic_op op, uint64_t operand, uint64_t compare);
void sim_threadfence(void);

template <class T> struct sim_atomic_of;
template <> struct sim_atomic_of<int> {
    static const sim_atomic_type type = SIM_I32;
};
template <> struct sim_atomic_of<unsigned> {
    static const sim_atomic_type type = SIM_U32;
};
template <> struct sim_atomic_of<unsigned long long> {
    static const sim_atomic_type type = SIM_U64;
};
template <> struct sim_atomic_of<float> {
    static const sim_atomic_type type = SIM_F32;
};
template <> struct sim_atomic_of<double> {
    static const sim_atomic_type type = SIM_F64;
};

template <class T> SIM_INLINE T sim_atomic_do(T *p, enum sim_atomic_op op, T operand, T compare = T())
{
    uint64_t a = 0, b = 0;
    __builtin_memcpy(&a, &operand, sizeof(T));
    __builtin_memcpy(&b, &compare, sizeof(T));
    a = sim_atomic(p, sim_atomic_of<T>::type, op, a, b);
    T old;
    __builtin_memcpy(&old, &a, sizeof(T));
    return old;
}

#define SIM_ATOMIC(name, op, T)            \
    SIM_INLINE T name(T *p, T v)           \
    {                                      \
        return sim_atomic_do<T>(p, op, v); \
    }
SIM_ATOMIC(atomicAdd, SIM_ADD, int)
SIM_ATOMIC(atomicAdd, SIM_ADD, unsigned)
SIM_ATOMIC(atomicAdd, SIM_ADD, unsigned long long)
SIM_ATOMIC(atomicAdd, SIM_ADD, float)
SIM_ATOMIC(atomicAdd, SIM_ADD, double)
SIM_ATOMIC(atomicMin, SIM_MIN, int)
SIM_ATOMIC(atomicMin, SIM_MIN, unsigned)
SIM_ATOMIC(atomicMax, SIM_MAX, int)
SIM_ATOMIC(atomicMax, SIM_MAX, unsigned)
SIM_ATOMIC(atomicExch, SIM_EXCH, int)
SIM_ATOMIC(atomicExch, SIM_EXCH, unsigned)
SIM_ATOMIC(atomicExch, SIM_EXCH, float)
SIM_ATOMIC(atomicAnd, SIM_AND, unsigned)
SIM_ATOMIC(atomicOr, SIM_OR, unsigned)
#undef SIM_ATOMIC
SIM_INLINE int atomicCAS(int *p, int compare, int v)
{
    return sim_atomic_do<int>(p, SIM_CAS, v, compare);
}
SIM_INLINE unsigned atomicCAS(unsigned *p, unsigned compare, unsigned v)
{
    return sim_atomic_do<unsigned>(p, SIM_CAS, v, compare);
}
SIM_INLINE unsigned long long atomicCAS(unsigned long long *p, unsigned long long compare, unsigned long long v)
{
    return sim_atomic_do<unsigned long long>(p, SIM_CAS, v, compare);
}
SIM_INLINE void __threadfence()
{
    sim_threadfence();
}
SIM_INLINE void __threadfence_block()
{
}
void sim_nanosleep(void);
SIM_INLINE void __nanosleep(unsigned)
{
    sim_nanosleep();
}

/* Loads and stores with cache hints are ordinary ones here. */
template <class T> SIM_INLINE T __ldg(const T *p)
{
    return *p;
}
template <class T> SIM_INLINE T __ldcs(const T *p)
{
    return *p;
}
template <class T> SIM_INLINE T __ldcg(const T *p)
{
    return *p;
}
template <class T> SIM_INLINE void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> SIM_INLINE void __stcg(T *p, T v)
{
    *p = v;
}
template <class T> SIM_INLINE void __stwb(T *p, T v)
{
    *p = v;
}

/* --- arithmetic ---------------------------------------------------------------------------------------------------------------
 */

template <class T> SIM_INLINE T sim_bits_as(const void *p)
{
    T v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
SIM_INLINE float __uint_as_float(unsigned u)
{
    return sim_bits_as<float>(&u);
}
SIM_INLINE float __int_as_float(int u)
{
    return sim_bits_as<float>(&u);
}
SIM_INLINE unsigned __float_as_uint(float f)
{
    return sim_bits_as<unsigned>(&f);
}
SIM_INLINE int __float_as_int(float f)
{
    return sim_bits_as<int>(&f);
}
SIM_INLINE long long __double_as_longlong(double d)
{
    return sim_bits_as<long long>(&d);
}
SIM_INLINE double __longlong_as_double(long long u)
{
    return sim_bits_as<double>(&u);
}
SIM_INLINE float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
SIM_INLINE double __fma_rn(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}
SIM_INLINE float __fadd_rn(float a, float b)
{
    return a + b;
}
SIM_INLINE float __fsub_rn(float a, float b)
{
    return a - b;
}
SIM_INLINE float __fmul_rn(float a, float b)
{
    return a * b;
}
SIM_INLINE float __fdiv_rn(float a, float b)
{
    return a / b;
}
SIM_INLINE float __frcp_rn(float a)
{
    return 1.0f / a;
}
SIM_INLINE float __fsqrt_rn(float a)
{
    return __builtin_sqrtf(a);
}
SIM_INLINE double __dadd_rn(double a, double b)
{
    return a + b;
}
SIM_INLINE double __dsub_rn(double a, double b)
{
    return a - b;
}
SIM_INLINE double __dmul_rn(double a, double b)
{
    return a * b;
}
SIM_INLINE double __ddiv_rn(double a, double b)
{
    return a / b;
}
SIM_INLINE double __dsqrt_rn(double a)
{
    return __builtin_sqrt(a);
}
SIM_INLINE float __fdividef(float a, float b)
{
    return a / b;
}
/* macros, since glibc declares functions of these names */
#define __expf(a) expf(a)
#define __logf(a) logf(a)
SIM_INLINE float __saturatef(float a)
{
    return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f;
}
SIM_INLINE float rsqrtf(float a)
{
    return 1.0f / __builtin_sqrtf(a);
}
SIM_INLINE int __float2int_rn(float a)
{
    return (int)nearbyintf(a);
}
SIM_INLINE int __float2int_rd(float a)
{
    return (int)floorf(a);
}
SIM_INLINE float __int2float_rn(int a)
{
    return (float)a;
}
SIM_INLINE float __double2float_rn(double a)
{
    return (float)a;
}
SIM_INLINE int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
SIM_INLINE int __clz(int u)
{
    return u ? __builtin_clz((unsigned)u) : 32;
}
SIM_INLINE int __ffs(int u)
{
    return __builtin_ffs(u);
}
SIM_INLINE unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
SIM_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long v = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(v >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
    return r;
}

#define SIM_MIN_MAX(T)         \
    SIM_INLINE T min(T a, T b) \
    {                          \
        return b < a ? b : a;  \
    }                          \
    SIM_INLINE T max(T a, T b) \
    {                          \
        return a < b ? b : a;  \
    }
SIM_MIN_MAX(int)
SIM_MIN_MAX(unsigned)
SIM_MIN_MAX(long)
SIM_MIN_MAX(unsigned long)
SIM_MIN_MAX(long long)
SIM_MIN_MAX(unsigned long long)
#undef SIM_MIN_MAX

SIM_INLINE unsigned long long clock64()
{
    return 0;
}
#define __trap() __builtin_trap()

#endif
