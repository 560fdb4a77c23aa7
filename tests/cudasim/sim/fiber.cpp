/* Runs threads as fibers: the context switch, the random scheduler, and how a block starts, ends or hangs. */
#include "sim.h"

#include <algorithm>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

__thread sim_thread *sim_self;
sim_block *sim_now;
sim_launch_info sim_launched;
struct sim_counts sim_count;
bool sim_checking = true, sim_lazy;
unsigned char *sim_shared;

#define MOST_BEGUN 8u /* blocks that run at the same time, where they wait for each other */

static std::vector<sim_place *> places; /* free ones */
static std::vector<sim_block *> begun;
static void *scheduler_stack_pointer;
static bool aborted, block_gives_way;
static uint64_t random_state;
static unsigned block_serial, launch_serial; /* never reused, so that shadow cells of earlier ones are known to be stale */
static thread_local int capability = 90, multiprocessors = 132;
alignas(64) static char parameter_space[4096];

struct launch_aborted {
};

/* Saves the callee-saved registers on this stack and its pointer in *from, then continues on the stack `to`. */
extern "C" void sim_switch(void **from, void *to);
asm(".text\n"
    ".globl sim_switch\n"
    ".type sim_switch, @function\n"
    "sim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size sim_switch, .-sim_switch\n");

uint32_t sim_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

void fiber_reset(unsigned seed)
{
    random_state = 0x9e3779b97f4a7c15ull * (seed + 1) + 1;
    for (int i = 0; i < 8; i++)
        sim_random();
    sim_lazy = seed % 2 == 1;
    aborted = false;
}

bool fiber_failed(void)
{
    return aborted;
}

bool sim_is_parameter(const void *p)
{
    return (const char *)p >= parameter_space && (const char *)p < parameter_space + sizeof parameter_space;
}

void *sim_parameter_space(void)
{
    return parameter_space;
}

int sim_new_id(void)
{
    return sim_now->ids < SIM_MAX_IDS ? sim_now->ids++ : SIM_MAX_IDS - 1;
}

static void to_scheduler(void)
{
    sim_thread *me = sim_self;
    sim_self = nullptr;
    sim_switch(&me->stack_pointer, scheduler_stack_pointer);
    sim_self = me;
}

static sim_thread *pick(void)
{
    std::vector<int> &ready = sim_now->ready;
    size_t i = sim_random() % ready.size();
    sim_thread *t = &sim_now->thread[(size_t)ready[i]];
    ready[i] = ready.back();
    ready.pop_back();
    sim_count.switches++;
    return t;
}

/* Switches from the running fiber to another ready one, or to the scheduler if none is ready, the block gives way, or a copy is
 * chosen to land. */
static void leave(void)
{
    if (block_gives_way || sim_now->ready.empty() || (!sim_lazy && async_pending() && sim_random() % 8 == 0)) {
        to_scheduler();
        return;
    }
    sim_thread *me = sim_self, *next = pick();
    if (next == me)
        return;
    sim_self = next;
    sim_switch(&me->stack_pointer, next->stack_pointer);
    sim_self = me;
}

void sim_wait(enum wait_kind kind, const char *waits_in, const void *pc)
{
    sim_self->wait = kind;
    sim_self->waits_in = waits_in;
    sim_self->waits_at = sim_pc_of(pc);
    leave();
}

void sim_wake(sim_thread *t)
{
    t->wait = RUNNING;
    sim_now->ready.push_back(t->id);
}

void sim_yield(void)
{
    sim_now->ready.push_back(sim_self->id);
    leave();
}

void sim_yield_block(void)
{
    block_gives_way = true;
    sim_yield();
}

const std::vector<sim_block *> &sim_begun(void)
{
    return begun;
}

void sim_abort_launch(void)
{
    aborted = true;
    if (!sim_self)
        throw launch_aborted();
    to_scheduler();
    abort();
}

static void run_fiber(void)
{
    sim_launched.call(sim_launched.parameters);
    sim_thread *t = sim_self;
    async_exit(t);
    t->wait = EXITED;
    sim_now->alive--;
    barrier_thread_exits(t);
    leave();
    abort();
}

static void start_fiber(sim_thread *t)
{
    /* as if sim_switch had saved six registers and a return address; run_fiber must see rsp = 8 modulo 16. Stacks begin at
     * different distances from multiples of SIM_STACK_BYTES, or all would share the same few lines of caches. */
    const size_t unlike = (size_t)t->id * 17 * 64 % (SIM_STACK_BYTES / 4);
    void **top = reinterpret_cast<void **>(sim_now->place->stacks + (size_t)(t->id + 1) * SIM_STACK_BYTES - 64 - unlike);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(run_fiber);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    t->stack_pointer = top;
    sim_now->ready.push_back(t->id);
}

static std::string ranges(const std::vector<int> &ids)
{
    std::string s;
    for (size_t i = 0, j; i < ids.size(); i = j) {
        for (j = i + 1; j < ids.size() && ids[j] == ids[j - 1] + 1; j++)
            ;
        s += (s.empty() ? "" : ", ") + std::to_string(ids[i]) + (j - i > 1 ? "-" + std::to_string(ids[j - 1]) : "");
    }
    return s;
}

static void report_deadlock(void)
{
    std::map<std::string, std::vector<int>> groups;
    for (const sim_thread &t : sim_now->thread) {
        if (t.wait == EXITED)
            continue;
        std::string where = t.waits_in;
        char mask[32];
        if (t.wait == WAIT_WARP) {
            snprintf(mask, sizeof mask, " (mask 0x%08x)", t.mask);
            where += mask;
        }
        if (t.wait == WAIT_BARRIER) {
            const sim_named_barrier &b = sim_now->barrier[t.object];
            where += " " + std::to_string(t.object) + ", " + std::to_string(b.arrived) + " of " + std::to_string(b.expected) +
                     " there";
        }
        if (t.wait == WAIT_MBARRIER) {
            where += " at shared offset " + std::to_string(t.object - SIM_SHARED_BASE) + ", parity " + std::to_string(t.parity);
            for (const sim_mbarrier *m : sim_now->mbarrier)
                if (m->address == t.object)
                    where += ", which lacks " + std::to_string(m->pending) + " of " + std::to_string(m->count) +
                             " arrivals and " + std::to_string(m->bytes) + " bytes in phase " + std::to_string(m->phase);
        }
        groups[where + " at " + sim_line(t.waits_at)].push_back(t.id);
    }
    bool divergent = false;
    for (const sim_thread &t : sim_now->thread)
        divergent = divergent || t.wait == WAIT_WARP || t.wait == WAIT_GROUP;
    std::string text = divergent ? "deadlock (divergence: a warp's lanes do not meet): nothing can run any more."
                                 : "deadlock: nothing can run any more.";
    for (auto &g : groups)
        text += "\n    threads " + ranges(g.second) + " wait in " + g.first;
    std::vector<int> gone;
    for (const sim_thread &t : sim_now->thread)
        if (t.wait == EXITED)
            gone.push_back(t.id);
    if (!gone.empty())
        text += "\n    threads " + ranges(gone) + " have returned";
    sim_fail(0, "%s", text.c_str());
}

static sim_place *take_place(void)
{
    if (!places.empty()) {
        sim_place *p = places.back();
        places.pop_back();
        return p;
    }
    sim_place *p = new sim_place();
    p->stacks = static_cast<char *>(mmap(nullptr, (size_t)SIM_MAX_THREADS * SIM_STACK_BYTES, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    p->shared = static_cast<unsigned char *>(aligned_alloc(4096, SIM_SHARED_MAX));
    p->chunks = memory_shared_chunks();
    if (p->stacks == MAP_FAILED || !p->shared || !p->chunks)
        abort();
    return p;
}

static void enter_block(sim_block *b)
{
    sim_now = b;
    sim_shared = b->place->shared;
}

static void begin_block(unsigned linear)
{
    sim_block *block = new sim_block();
    const dim3 &g = sim_launched.config.gridDim, &b = sim_launched.config.blockDim;
    block->place = take_place();
    block->serial = ++block_serial;
    block->linear = linear;
    block->index = {linear % g.x, linear / g.x % g.y, linear / g.x / g.y};
    block->threads = block->ids = block->alive = (int)(b.x * b.y * b.z);
    block->warps = (block->threads + 31) / 32;
    block->shared_bytes = (uint32_t)sim_launched.config.dynamicSmemBytes;
    block->thread.resize((size_t)block->threads);
    begun.push_back(block);
    enter_block(block);
    sim_count.blocks++;
    memory_block_begin();
    for (int i = 0; i < block->threads; i++) {
        sim_thread &t = block->thread[(size_t)i];
        t.id = i;
        t.warp = i / 32;
        t.lane = i % 32;
        t.index = {(unsigned)i % b.x, (unsigned)i / b.x % b.y, (unsigned)i / b.x / b.y};
        t.clock = 1;
        t.copy_agent = t.bulk_agent = t.bulk_write_agent = -1;
        start_fiber(&t);
    }
}

static bool awaits_flag(const sim_block *block)
{
    for (const sim_thread &t : block->thread)
        if (t.wait == WAIT_FLAG)
            return true;
    return false;
}

/* Runs a block until it ends, gives way, or waits for a flag. */
static void run_block(sim_block *block)
{
    enter_block(block);
    block_gives_way = false;
    while (block->alive > 0 && !aborted && !block_gives_way) {
        if (async_pending() && (block->ready.empty() || (!sim_lazy && sim_random() % 2 == 0))) {
            async_deliver_one();
        } else if (block->ready.empty() && awaits_flag(block)) {
            block->waits = true;
            return;
        } else if (block->ready.empty()) {
            report_deadlock();
        } else {
            sim_thread *next = pick();
            sim_self = next;
            sim_switch(&scheduler_stack_pointer, next->stack_pointer);
            sim_self = nullptr;
        }
    }
    if (block->alive == 0 && !aborted) {
        async_block_end();
        wgmma_block_end();
        barrier_block_end();
    }
}

static void end_block(sim_block *block)
{
    enter_block(block);
    for (sim_mbarrier *m : block->mbarrier)
        delete m;
    for (tma_load *l : block->loads)
        delete l;
    places.push_back(block->place);
    block->thread.clear();
    for (size_t i = 0; i < begun.size(); i++)
        if (begun[i] == block)
            begun.erase(begun.begin() + (long)i);
    sim_now = nullptr;
    delete block;
}

static std::map<const void *, int> opted_in;

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attr, int value)
{
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        int limit;
        cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        if (value < 0 || value > limit)
            return cudaErrorInvalidValue;
        opted_in[function] = value;
    }
    return cudaSuccess;
}

void sim_device(int sm, int count)
{
    capability = sm;
    multiprocessors = count;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int)
{
    switch (attr) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 * 1024;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = capability / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = capability % 10;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (capability == 80 ? 163 : capability == 86 || capability == 89 ? 99 : 227) * 1024;
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static void report_flags(void)
{
    std::string text = "deadlock: every block that has begun waits for another one's flag, and no processor is left for more.";
    for (const sim_block *b : begun)
        for (const sim_thread &t : b->thread)
            if (t.wait == WAIT_FLAG)
                text += "\n    block " + std::to_string(b->linear) + ", thread " + std::to_string(t.id) + ": for " +
                        std::to_string(t.flag_value) + ", it is " + std::to_string(*t.flag) + ", at " + sim_line(t.waits_at);
    sim_fail(0, "%s", text.c_str());
}

/* Returns a random block among those that can go on and the next one in `order`, of which the first `at` were begun; NULL: no
 * block can go on. */
static sim_block *pick_block(const std::vector<unsigned> &order, size_t &at)
{
    std::vector<sim_block *> able;
    for (sim_block *b : begun)
        if (!b->waits)
            able.push_back(b);
    const bool more = at < order.size() && begun.size() < std::min(MOST_BEGUN, (unsigned)multiprocessors);
    const size_t n = able.size() + more, i = n > 1 ? sim_random() % n : 0;
    if (i < able.size())
        return able[i];
    if (!more)
        return nullptr;
    begin_block(order[at++]);
    return begun.back();
}

static void run_blocks(const std::vector<unsigned> &order)
{
    for (size_t at = 0; (at < order.size() || !begun.empty()) && !aborted;) {
        sim_block *block = pick_block(order, at);
        if (!block)
            report_flags();
        run_block(block);
        if (block->alive == 0)
            end_block(block);
    }
}

static cudaError_t run_grid(void)
{
    const dim3 g = sim_launched.config.gridDim;
    std::vector<unsigned> order((size_t)g.x * g.y * g.z);
    for (size_t i = 0; i < order.size(); i++) {
        size_t j = sim_random() % (i + 1);
        order[i] = order[j];
        order[j] = (unsigned)i;
    }
    flags_launch();
    try {
        run_blocks(order);
    } catch (launch_aborted &) {
    }
    while (!begun.empty())
        end_block(begun.back());
    sim_now = nullptr;
    sim_self = nullptr;
    return aborted ? cudaErrorLaunchFailure : cudaSuccess;
}

/* Returns the largest number of threads that the kernel's __launch_bounds__ allow; 1024 for kernels without bounds.
 * __launch_bounds__ places a no-op for each warp before the kernel's first instruction, and the first no-op's address in a table
 * made by the linker. */
extern "C" const uintptr_t __start___patchable_function_entries[] __attribute__((weak));
extern "C" const uintptr_t __stop___patchable_function_entries[] __attribute__((weak));

static unsigned launch_bound(const void *kernel)
{
    const uintptr_t entry = (uintptr_t)kernel;
    for (const uintptr_t *at = __start___patchable_function_entries; at < __stop___patchable_function_entries; at++)
        if (*at < entry && entry - *at <= SIM_MAX_THREADS / 32) {
            unsigned warps = (unsigned)(entry - *at);
            for (uintptr_t i = *at; i < entry; i++)
                warps = *(const unsigned char *)i == 0x90 ? warps : 0;
            if (warps > 0)
                return warps * 32;
        }
    return SIM_MAX_THREADS;
}

/* Checks a launch against limits that every device has; shared: bytes of dynamic shared memory that the kernel was allowed. */
cudaError_t sim_launch_error(const cudaLaunchConfig_t *config, const void *kernel, size_t shared)
{
    const dim3 g = config->gridDim, b = config->blockDim;
    if ((uint64_t)b.x * b.y * b.z == 0 || (uint64_t)b.x * b.y * b.z > SIM_MAX_THREADS || b.z > 64 || g.x > 0x7fffffffu ||
        g.y > 65535 || g.z > 65535 || g.x == 0 || g.y == 0 || g.z == 0)
        return cudaErrorInvalidConfiguration;
    if ((uint64_t)b.x * b.y * b.z > launch_bound(kernel))
        return cudaErrorLaunchOutOfResources;
    return config->dynamicSmemBytes > (shared > 48 * 1024 ? shared : 48 * 1024) ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t sim_run(const cudaLaunchConfig_t *config, const void *kernel, void (*call)(void *), void *parameters)
{
    auto allowed = opted_in.find(kernel);
    if (aborted)
        return cudaErrorLaunchFailure;
    const cudaError_t error = sim_launch_error(config, kernel, allowed == opted_in.end() ? 0 : (size_t)allowed->second);
    if (error != cudaSuccess)
        return error;
    sim_launched = {*config, kernel, ++launch_serial, call, parameters};
    sim_count.launches++;
    stream_enqueue(config->stream);
    return run_grid();
}

uint3 sim_thread_index(void)
{
    return sim_self->index;
}

uint3 sim_block_index(void)
{
    return sim_now->index;
}

dim3 sim_block_size(void)
{
    return sim_launched.config.blockDim;
}

dim3 sim_grid_size(void)
{
    return sim_launched.config.gridDim;
}
