/* State of the simulator, used only by the files of sim.
 *
 * One block runs at a time. Its threads are fibers that give way only where a GPU's thread can wait; `sim_self` is the running
 * thread. Blocks run one after another, but if they wait for each other's flags, several are begun and take turns.
 *
 * Races are found by happens-before: every thread and every asynchronous agent (a copy or product in flight) has an id, and an
 * access is the pair (id, clock of this id at that time). A thread may touch what another wrote if its vector clock has reached
 * that pair. A second vector, `proxy`, holds what the async proxy (TMA stores, wgmma) may read: a proxy fence copies the first
 * vector into it. */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include "cudasim.h"

#include <cuda.h>
#include <cuda_bf16.h>
#include "cudasim_ptx.h"
#include <map>
#include <string>
#include <vector>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#define SIM_CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define SIM_SHARED_BASE 1024u /* shared-memory address of a block's first byte, as on sm_90 */
#define SIM_SHARED_MAX (228u * 1024)
#define SIM_MAX_THREADS 1024
#define SIM_STACK_BYTES (256u * 1024)
#define SIM_LOAD_AGENTS 64
#define SIM_MAX_IDS (2 * SIM_MAX_THREADS + SIM_MAX_THREADS / 32 + SIM_LOAD_AGENTS + 64)

typedef uint32_t sim_pc; /* offset from the start of the program; 0: unknown */
static inline sim_pc sim_pc_of(const void *p)
{
    extern char __executable_start[];
    return (sim_pc)((const char *)p - __executable_start);
}

/* --- vector clocks: immutable once shared, so that a barrier hands one to everybody -------------------------------------------
 */

struct clock_vector {
    int references;
    clock_vector *next_free;
    size_t ids;             /* number of ids in the vectors; nothing is known of later ids */
    uint32_t *seen, *proxy; /* arrays of `ids` elements, with room for SIM_MAX_IDS */
};

class knowledge
{
    clock_vector *v;

  public:
    knowledge() : v(nullptr)
    {
    }
    knowledge(const knowledge &o);
    knowledge &operator=(const knowledge &o);
    ~knowledge();
    void join(const knowledge &o);
    void see(int id, uint32_t clock);
    void see_proxy(int id, uint32_t clock);
    void fence(); /* proxy = seen */
    uint32_t seen(int id) const
    {
        return v && (size_t)id < v->ids ? v->seen[id] : 0;
    }
    uint32_t proxy(int id) const
    {
        return v && (size_t)id < v->ids ? v->proxy[id] : 0;
    }

  private:
    void own(size_t ids);
};

/* --- threads ------------------------------------------------------------------------------------------------------------------
 */

enum wait_kind {
    RUNNING,
    WAIT_WARP,    /* in a warp collective */
    WAIT_GROUP,   /* in a warpgroup collective */
    WAIT_BARRIER, /* at __syncthreads (0) or a named barrier */
    WAIT_MBARRIER,
    WAIT_FLAG, /* for another block's flag in global memory */
    EXITED,
};

struct copy_group { /* the copies of one thread's cp.async group */
    struct item {
        uint32_t dst;
        const void *src;
        int size, bytes;
    };
    uint32_t number;
    std::vector<item> items;
};

struct bulk_op { /* one thread's bulk or TMA store */
    uint32_t group, shared, bytes;
    /* copy of the bytes in shared memory, made once a wait ensures that this store has read them; empty before */
    std::vector<unsigned char> read;
    void *global; /* contiguous destination, unless `tensor` */
    bool tensor, add;
    CUtensorMap map;
    int rank, at[5];
};

/* A thread's knowledge of other blocks, indexed by their linear number plus 1: from flags and counters that it read, or from
 * threads that it met at a barrier of its own block. */
typedef std::map<unsigned, knowledge> foreign_knowledge;
void foreign_join(foreign_knowledge &to, const foreign_knowledge &from);

struct sim_thread {
    void *stack_pointer;
    int id, warp, lane;
    uint3 index;

    enum wait_kind wait;
    const char *waits_in;
    sim_pc waits_at;
    uint32_t object, parity; /* barrier number or mbarrier address */
    unsigned mask;           /* lanes of the warp collective in which the thread waits */

    knowledge know;
    uint32_t clock, fenced; /* the thread's own clock, and its value at the last proxy fence */
    foreign_knowledge foreign, foreign_proxy;
    const uint32_t *flag; /* flag for which the thread waits until it reaches flag_value */
    uint32_t flag_value;

    std::vector<copy_group> copies; /* unfinished groups, oldest first; the last one is not yet committed */
    uint32_t copy_groups;
    int copy_agent;
    sim_pc last_copy; /* place of its newest cp.async or bulk store, for the report if it is unfinished at the end */

    std::vector<bulk_op> bulk;
    uint32_t bulk_groups;
    int bulk_agent, bulk_write_agent; /* agents of its bulk stores' reads of shared memory and writes of global memory */
};

struct sim_mbarrier {
    uint32_t address, count, pending;
    int64_t bytes; /* expected bytes that have not landed yet */
    uint32_t phase;
    int init_thread;
    uint32_t init_clock;
    bool fenced;
    knowledge arriving, ended[2];
};

struct sim_named_barrier {
    unsigned expected, arrived, generation;
    knowledge arriving;
    foreign_knowledge foreign;
    std::vector<sim_thread *> waiting;
};

struct tma_load { /* a load in flight; agent id and clock identify its writes */
    uint32_t dst, bar, bytes;
    const void *src;
    CUtensorMap map;
    bool tensor;
    int rank, at[5], agent;
    uint32_t clock;
};

/* A collective that waits for more of its threads. Several collectives of a warp may wait at the same time, with disjoint masks. */
struct gathering {
    const char *kind;
    unsigned mask; /* all bits for a warpgroup */
    int missing;
    void *slot[128];
};

/* Votes of the current and the previous use of barrier 0: no thread can be two barriers behind. */
struct block_vote {
    unsigned generation, yes, all;
};

/* Memory of a running block; the next block that begins there finds what the previous one left. */
struct sim_place {
    char *stacks;
    unsigned char *shared; /* SIM_SHARED_MAX bytes */
    struct shared_chunk *chunks;
};

struct sim_block {
    sim_place *place;
    bool waits; /* nothing in this block can run before another block raises a flag */
    block_vote votes[2];
    unsigned serial; /* counts the blocks of all launches, to recognise stale shadow cells */
    unsigned linear;
    uint3 index;
    int threads, warps, ids;
    std::vector<sim_thread> thread;
    std::vector<int> ready;
    int alive;
    std::vector<sim_mbarrier *> mbarrier;
    sim_named_barrier barrier[16];
    std::vector<tma_load *> loads;
    int load_agent[SIM_LOAD_AGENTS];
    uint32_t load_clock[SIM_LOAD_AGENTS];
    unsigned next_load_agent;
    uint32_t shared_bytes;
    std::vector<gathering> warp_gathers[SIM_MAX_THREADS / 32], group_gathers[SIM_MAX_THREADS / 128];
    unsigned exited[SIM_MAX_THREADS / 32]; /* lanes */
    struct warpgroup *group[SIM_MAX_THREADS / 128];
    int registers[SIM_MAX_THREADS / 128]; /* set by setmaxnreg; 0: not set */
};

struct sim_launch_info {
    cudaLaunchConfig_t config;
    const void *kernel;
    unsigned serial;
    void (*call)(void *);
    void *parameters;
};

/* NULL on the host and on host threads that run no kernel. __thread: it begins without a constructor, so no access looks for one. */
extern __thread sim_thread *sim_self;
extern sim_block *sim_now; /* NULL between blocks */
extern sim_launch_info sim_launched;
extern struct sim_counts sim_count;
extern bool sim_checking, sim_lazy;
extern unsigned char *sim_shared; /* the running block's */
extern bool sim_sums_in_order;

void stream_enqueue(cudaStream_t stream); /* in runtime.cpp: counts a launch, fill or copy */

/* --- fiber.cpp ----------------------------------------------------------------------------------------------------------------
 */

uint32_t sim_random(void);
/* Gives way until sim_wake. `waits_in` names the operation in reports. */
void sim_wait(enum wait_kind kind, const char *waits_in, const void *pc);
void sim_wake(sim_thread *t);
/* Lets other threads run; called only where a GPU could switch threads. */
void sim_yield(void);
/* Lets another block run, if there is one. */
void sim_yield_block(void);
const std::vector<sim_block *> &sim_begun(void); /* blocks that have begun and not ended, including the running one */
int sim_new_id(void);
static inline bool sim_on_stack(const void *p)
{
    return (size_t)((const char *)p - sim_now->place->stacks) < (size_t)SIM_MAX_THREADS * SIM_STACK_BYTES;
}
bool sim_is_parameter(const void *p);

/* --- report.cpp ---------------------------------------------------------------------------------------------------------------
 */

/* Ends the launch: records the formatted message with the running thread and its source line, and does not return into the
 * kernel. */
[[noreturn]] void sim_fail(sim_pc pc, const char *format, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void sim_abort_launch(void); /* fiber.cpp */
std::string sim_line(sim_pc pc);          /* "file.cu:123 in kernel" */
std::string sim_thread_name(const sim_thread *t);
std::string sim_id_name(int id);
void sim_record(const std::string &text);

/* --- memory.cpp: shadow of shared and global memory ---------------------------------------------------------------------------
 */

enum access { READ, WRITE, ATOMIC, SUM /* atomic addition of fp32 */ };

/* Who accesses memory: a thread (agent < 0), or an agent that acts with what `thread` knew. async: through the async proxy. */
struct accessor {
    const sim_thread *thread;
    int agent;
    uint32_t clock;
    bool async;
    sim_pc pc;
    const char *what; /* "read", "cp.async", "wgmma" */
};

void memory_reset(void);
void *memory_allocate(size_t bytes);
bool memory_free(void *p);
/* Tells whether all of the range is allocated device memory (if `device`) or none of it is. */
bool memory_holds(const void *p, size_t bytes, bool device);
struct shared_chunk *memory_shared_chunks(void); /* makes the chunks of a new sim_place */
void memory_block_begin(void);
void memory_access(const void *p, size_t bytes, enum access kind, const accessor &who);
/* Offsets are relative to the block's shared memory. */
void shared_access(uint32_t offset, size_t bytes, enum access kind, const accessor &who);
void shared_mark_barrier(uint32_t offset, bool on);
void global_access(const void *p, size_t bytes, enum access kind, const accessor &who);
/* Checks range and alignment of a shared-memory address given to a PTX instruction; returns its offset. */
uint32_t shared_offset(uint32_t address, size_t bytes, size_t align, sim_pc pc, const char *what);
static inline accessor sim_as_thread(const void *pc, const char *what)
{
    return {sim_self, -1, sim_self->clock, false, sim_pc_of(pc), what};
}

/* --- the asynchronous parts ----------------------------------------------------------------------------------------------------
 */

void mbarrier_land(const tma_load &load);
sim_mbarrier *mbarrier_at(uint32_t bar, sim_pc pc, const char *what);
bool async_pending(void);
void async_deliver_one(void); /* makes a random TMA load land */
void async_exit(sim_thread *t);
void flags_launch(void); /* forgets what raised flags tell */
void async_block_end(void);
void wgmma_block_end(void);
void barrier_thread_exits(sim_thread *t);
void barrier_block_end(void);
struct tensor_box {
    int rank, element;
    char *base;
    uint64_t size[5], stride[5];
    uint32_t box[5];
    uint32_t swizzle, bytes; /* swizzle: span of 0, 32, 64 or 128 bytes; bytes: size of the whole box */
};
tensor_box tensor_map_box(const CUtensorMap *map, int rank, sim_pc pc);
/* Calls visit(global address or NULL outside, offset in the unswizzled tile, bytes) for every contiguous piece of the box at
 * `at`. */
template <class F> void tensor_walk(const tensor_box &b, const int *at, F visit)
{
    uint32_t rows = 1, inner = b.box[0] * (uint32_t)b.element;
    for (int i = 1; i < b.rank; i++)
        rows *= b.box[i];
    for (uint32_t r = 0; r < rows; r++) {
        bool inside = true;
        char *p = b.base;
        for (uint32_t i = 1, rest = r; i < (uint32_t)b.rank; rest /= b.box[i], i++) {
            int64_t x = (int64_t)at[i] + rest % b.box[i];
            inside = inside && x >= 0 && x < (int64_t)b.size[i];
            p += x * (int64_t)b.stride[i];
        }
        int64_t from = at[0] < 0 ? -(int64_t)at[0] : 0, to = (int64_t)b.size[0] - at[0];
        from = from < (int64_t)b.box[0] ? from : b.box[0];
        to = to < (int64_t)b.box[0] ? to : b.box[0];
        if (!inside || to <= from) {
            visit((char *)nullptr, r * inner, inner);
            continue;
        }
        uint32_t e = (uint32_t)b.element;
        if (from > 0)
            visit((char *)nullptr, r * inner, (uint32_t)from * e);
        visit(p + (at[0] + from) * (int64_t)e, r * inner + (uint32_t)from * e, (uint32_t)(to - from) * e);
        if (to < (int64_t)b.box[0])
            visit((char *)nullptr, r * inner + (uint32_t)to * e, (uint32_t)(b.box[0] - to) * e);
    }
}
/* Returns the swizzled shared-memory address: XORs address bits 4 to 6 with bits 7 to 9. span: 0, 32, 64 or 128 bytes. */
static inline uint32_t sim_swizzle(uint32_t address, uint32_t span)
{
    return span ? address ^ ((address >> 7 & (span / 16 - 1)) << 4) : address;
}
CUresult tensor_map_encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                           const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Runs `apply` once all lanes of `mask` in this warp (or all threads of the warpgroup) have called this with the same `kind`. In
 * `apply`, slot[lane] is the slot that the lane passed. */
typedef void collective_apply(void **slot, sim_thread *first);
void warp_collective(const char *kind, unsigned mask, void *slot, collective_apply *apply, const void *pc);
void group_collective(const char *kind, void *slot, collective_apply *apply, const void *pc);

#endif
