/* Checks every access: bounds, uninitialised shared memory, races within a block (by happens-before) and between blocks.
 *
 * Shared memory has one cell for two bytes (bf16), with its last writer and up to READERS readers since; the eight cells of a
 * chunk of 16 bytes are merged into one as long as the whole chunk is accessed at once, as copies and tensor cores do. Global
 * memory has a smaller cell for two bytes: last writer, one reader, and whether several blocks read. The serial numbers of blocks
 * and launches tell which cells are stale. */
#include "sim.h"

#include <algorithm>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unordered_map>

#define READERS 12
#define CHUNK 16u
#define ARENA_BYTES ((size_t)1 << 30)
#define PAGE 256u /* allocation granularity */

struct epoch {
    uint32_t clock;
    sim_pc pc;
    uint16_t id;
};

struct shared_cell {
    epoch write;
    bool written, async, barrier, atomic; /* not written: uninitialised */
    uint8_t readers;
    epoch read[READERS];
};

struct shared_chunk {
    unsigned block; /* serial number of the block; if it is another, the chunk is stale: uninitialised */
    bool split;     /* the cells are in `part`; else all are equal to `whole` */
    shared_cell whole, part[CHUNK / 2];
};

struct global_cell {
    unsigned launch;         /* serial number; if it is another, the cell is stale */
    unsigned wblock, rblock; /* linear number of the block plus 1; 0: none */
    uint32_t wclock, rclock;
    sim_pc wpc, rpc;
    uint16_t wid, rid;
    bool watomic, wsum, many;
};

static char *arena;
static global_cell *global_cells;
static uint16_t *valid; /* for each page: number of its bytes that are allocated */
static size_t arena_used;

static const char *verb(enum access kind)
{
    return kind == READ ? "read" : kind == WRITE ? "write" : kind == ATOMIC ? "atomic" : "addition";
}

/* --- allocation ---------------------------------------------------------------------------------------------------------------
 */

static void *reserve(size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void memory_reset(void)
{
    if (!arena) {
        arena = static_cast<char *>(reserve(ARENA_BYTES));
        global_cells = static_cast<global_cell *>(reserve(ARENA_BYTES / 2 * sizeof(global_cell)));
        valid = static_cast<uint16_t *>(reserve(ARENA_BYTES / PAGE * sizeof(uint16_t)));
        if (!arena || !global_cells || !valid)
            abort();
    }
    memset(valid, 0, arena_used / PAGE * sizeof(uint16_t));
    if (arena_used > 64u << 20) { /* give pages back; a GPU's products alone have 32 MiB of scratch */
        madvise(arena, arena_used, MADV_DONTNEED);
        madvise(global_cells, arena_used / 2 * sizeof(global_cell), MADV_DONTNEED);
    }
    arena_used = 0;
}

void *memory_allocate(size_t bytes)
{
    if (!arena)
        memory_reset();
    size_t pages = (bytes + PAGE - 1) / PAGE;
    if (bytes == 0 || (pages + 2) * PAGE > ARENA_BYTES - arena_used)
        return nullptr;
    size_t at = arena_used / PAGE + 1; /* leaves an unallocated page before and after */
    for (size_t i = 0; i < pages; i++)
        valid[at + i] = (uint16_t)(i + 1 < pages ? PAGE : bytes - i * PAGE);
    arena_used = (at + pages) * PAGE;
    memset(arena + at * PAGE, 0xff, bytes);
    return arena + at * PAGE;
}

bool memory_free(void *p)
{
    if (!p)
        return true;
    size_t at = (size_t)((char *)p - arena) / PAGE;
    if ((char *)p < arena || (char *)p >= arena + arena_used || ((char *)p - arena) % PAGE != 0 || !valid[at] || valid[at - 1])
        return false;
    for (; valid[at]; at++)
        valid[at] = 0;
    return true;
}

static bool in_arena(const void *p)
{
    return (const char *)p >= arena && (const char *)p < arena + ARENA_BYTES;
}

bool memory_holds(const void *p, size_t bytes, bool device)
{
    if (!arena)
        memory_reset();
    const char *from = static_cast<const char *>(p), *to = from + bytes;
    if (!device)
        return to <= arena || from >= arena + ARENA_BYTES;
    if (from < arena || to > arena + arena_used)
        return false;
    for (size_t at = (size_t)(from - arena), end = (size_t)(to - arena); at < end; at = (at / PAGE + 1) * PAGE)
        if (valid[at / PAGE] < (end - at / PAGE * PAGE < PAGE ? end - at / PAGE * PAGE : PAGE))
            return false;
    return true;
}

/* --- shared memory ------------------------------------------------------------------------------------------------------------
 */

shared_chunk *memory_shared_chunks(void)
{
    return static_cast<shared_chunk *>(reserve(SIM_SHARED_MAX / CHUNK * sizeof(shared_chunk)));
}

void memory_block_begin(void)
{
    if (!arena)
        memory_reset();
    memset(sim_shared, 0xff, sim_now->shared_bytes); /* NaN */
}

/* Tells whether the access (id, clock) is ordered before one by `who`. Between an ordinary write and an access through the async
 * proxy there must be a proxy fence, too. */
static bool knows(const accessor &who, const epoch &e, bool by_async)
{
    const sim_thread *t = who.thread;
    if (who.async && !by_async) {
        if (e.id == t->id)
            return t->fenced >= e.clock;
        return t->know.proxy(e.id) >= e.clock;
    }
    return e.id == t->id || t->know.seen(e.id) >= e.clock;
}

static std::string shared_name(uint32_t offset)
{
    return "shared memory at offset " + std::to_string(offset);
}

[[noreturn]] static void shared_race(uint32_t offset, const shared_cell &c, const epoch &e, bool was_write, enum access kind,
                                     const accessor &who)
{
    bool ordered = who.async && was_write && !c.async && (e.id == who.thread->id || who.thread->know.seen(e.id) >= e.clock);
    sim_fail(who.pc, "%s: %s %s and an earlier %s by %s at %s%s", ordered ? "missing proxy fence" : "race", who.what,
             (verb(kind) + std::string(" of ") + shared_name(offset)).c_str(), was_write ? "write" : "read",
             sim_id_name(e.id).c_str(), sim_line(e.pc).c_str(),
             ordered ? " are ordered, but fence_proxy_async must come after ordinary writes that TMA or wgmma read"
                     : " are not ordered by any barrier or wait");
}

static void add_reader(shared_cell &c, const epoch &e, const accessor &who)
{
    int victim = -1;
    for (int i = 0; i < c.readers; i++) {
        if (c.read[i].id == e.id) {
            c.read[i] = e;
            return;
        }
        if (who.thread->know.seen(c.read[i].id) >= c.read[i].clock)
            victim = i;
    }
    if (victim < 0)
        victim = c.readers < READERS ? c.readers++ : (int)(sim_random() % READERS);
    c.read[victim] = e;
}

static shared_chunk &chunk_of(uint32_t offset)
{
    shared_chunk &k = sim_now->place->chunks[offset / CHUNK];
    if (k.block != sim_now->serial) {
        k.block = sim_now->serial;
        k.split = false;
        k.whole = {};
    }
    return k;
}

static shared_cell *parts(shared_chunk &k)
{
    for (uint32_t i = 0; i < CHUNK / 2 && !k.split; i++)
        k.part[i] = k.whole;
    k.split = true;
    return k.part;
}

/* Checks an access to one cell and records it. known: an earlier write that is ordered before the access (caches the last
 * answer). */
static void check_shared_cell(shared_cell &c, uint32_t offset, enum access kind, const accessor &who, const epoch &e,
                              shared_cell &known)
{
    if (!c.written && kind != WRITE)
        sim_fail(who.pc, "%s %s of uninitialised %s", who.what, verb(kind), shared_name(offset).c_str());
    if (c.barrier)
        sim_fail(who.pc, "%s %s of an mbarrier: %s", who.what, verb(kind), shared_name(offset).c_str());
    if (c.written && !(kind == ATOMIC && c.atomic)) {
        bool same = known.written && known.write.id == c.write.id && known.write.clock == c.write.clock && known.async == c.async;
        if (!same && !knows(who, c.write, c.async))
            shared_race(offset, c, c.write, true, kind, who);
        known.write = c.write;
        known.async = c.async;
        known.written = true;
    }
    if (kind == READ) {
        if (!(c.readers > 0 && c.read[c.readers - 1].id == e.id && c.read[c.readers - 1].clock == e.clock))
            add_reader(c, e, who);
        return;
    }
    for (int r = 0; r < c.readers; r++) /* a read needs no proxy fence before a later write */
        if (c.read[r].id != who.thread->id && who.thread->know.seen(c.read[r].id) < c.read[r].clock)
            shared_race(offset, c, c.read[r], false, kind, who);
    c.readers = 0;
    c.write = e;
    c.written = true;
    c.async = who.async;
    c.atomic = kind == ATOMIC;
}

void shared_access(uint32_t offset, size_t bytes, enum access kind, const accessor &who)
{
    sim_count.accesses++;
    if (!sim_checking)
        return;
    epoch e = {who.clock, who.pc, (uint16_t)(who.agent >= 0 ? who.agent : who.thread->id)};
    shared_cell known;
    known.written = false;
    const uint32_t end = offset + (uint32_t)bytes;
    for (uint32_t at = offset / 2 * 2, next; at < end; at = next) {
        shared_chunk &k = chunk_of(at);
        next = std::min(end, (at / CHUNK + 1) * CHUNK);
        const bool all = next - at == CHUNK;
        if (all && !k.split) {
            check_shared_cell(k.whole, at, kind, who, e, known);
            continue;
        }
        for (uint32_t i = at; i < next; i += 2)
            check_shared_cell(parts(k)[i % CHUNK / 2], i, kind, who, e, known);
        if (all && kind != READ) { /* all cells of the chunk are equal now */
            k.whole = k.part[0];
            k.split = false;
        }
    }
}

void shared_mark_barrier(uint32_t offset, bool on)
{
    for (uint32_t i = offset; i < offset + 8; i += 2)
        parts(chunk_of(i))[i % CHUNK / 2].barrier = on;
}

uint32_t shared_offset(uint32_t address, size_t bytes, size_t align, sim_pc pc, const char *what)
{
    uint32_t offset = address - SIM_SHARED_BASE;
    if (address < SIM_SHARED_BASE || offset + bytes > sim_now->shared_bytes)
        sim_fail(pc, "%s of %zu bytes at shared offset %d, out of the block's %u bytes of shared memory", what, bytes,
                 (int)offset, sim_now->shared_bytes);
    if (address % align != 0)
        sim_fail(pc, "%s at shared offset %u: must be a multiple of %zu bytes", what, offset, align);
    return offset;
}

/* --- global memory ------------------------------------------------------------------------------------------------------------
 */

static void check_bounds(const void *p, size_t bytes, enum access kind, const accessor &who)
{
    size_t at = (size_t)((const char *)p - arena), end = at + bytes;
    for (size_t page = at / PAGE; page <= (end - 1) / PAGE; page++) {
        size_t last = end < (page + 1) * PAGE ? end - page * PAGE : PAGE;
        if (valid[page] < last) {
            size_t from = at / PAGE;
            while (from > 0 && !valid[from])
                from--;
            size_t size_end = from * PAGE + valid[from];
            sim_fail(who.pc,
                     "%s %s of %zu bytes of global memory out of bounds: %zd bytes past the end of the nearest allocation before",
                     who.what, verb(kind), bytes, (ssize_t)(end - size_end));
        }
    }
}

[[noreturn]] static void global_race(const void *p, const char *whom, unsigned block, sim_pc pc, enum access kind,
                                     const accessor &who)
{
    sim_fail(who.pc, "race between %s: %s %s of global memory at %p, and an access by block %u at %s", whom, who.what, verb(kind),
             p, block - 1, sim_line(pc).c_str());
}

/* Tells whether the accessor's thread has learnt of the other block's access through a flag; for the async proxy, a proxy fence
 * must have followed. */
static bool knows_of_block(const accessor &who, unsigned block, int id, uint32_t clock)
{
    const foreign_knowledge &of = who.async ? who.thread->foreign_proxy : who.thread->foreign;
    const auto found = of.find(block);
    return found != of.end() && found->second.seen(id) >= clock;
}

/* Fails unless an earlier access by thread or agent `id` of block `other` is ordered before this one. */
static void check_order(const char *p, unsigned other, int id, uint32_t clock, sim_pc pc, enum access kind, const accessor &who)
{
    if (other != sim_now->linear + 1) {
        if (!knows_of_block(who, other, id, clock))
            global_race(p, "blocks of one launch", other, pc, kind, who);
    } else if (id != who.thread->id && who.thread->know.seen(id) < clock) {
        global_race(p, "threads of one block", other, pc, kind, who);
    }
}

static void check_global_cell(global_cell &c, const char *p, enum access kind, const accessor &who)
{
    unsigned block = sim_now->linear + 1;
    int id = who.agent >= 0 ? who.agent : who.thread->id;
    if (c.launch != sim_launched.serial) {
        c = {};
        c.launch = sim_launched.serial;
    }
    const bool sum = kind == SUM, atomic = kind == ATOMIC || sum, any_order = atomic && c.watomic;
    if (c.wblock && (!any_order || (sum && c.wsum && sim_sums_in_order)))
        check_order(p, c.wblock, c.wid, c.wclock, c.wpc, kind, who);
    if (kind == READ) {
        c.many |= c.rblock && c.rblock != block;
        c.rblock = block;
        c.rid = (uint16_t)id;
        c.rclock = who.clock;
        c.rpc = who.pc;
        return;
    }
    if (c.rblock && c.many)
        global_race(p, "blocks of one launch", c.rblock, c.rpc, kind, who);
    if (c.rblock)
        check_order(p, c.rblock, c.rid, c.rclock, c.rpc, kind, who);
    c.wblock = block;
    c.wid = (uint16_t)id;
    c.wclock = who.clock;
    c.wpc = who.pc;
    c.watomic = atomic;
    c.wsum = sum;
}

void global_access(const void *p, size_t bytes, enum access kind, const accessor &who)
{
    sim_count.accesses++;
    if (!in_arena(p))
        sim_fail(who.pc, "%s %s of %zu bytes at %p, which is no device memory", who.what, verb(kind), bytes, p);
    check_bounds(p, bytes, kind, who);
    if (!sim_checking)
        return;
    size_t at = (size_t)((const char *)p - arena);
    for (size_t i = at / 2; i <= (at + bytes - 1) / 2; i++)
        check_global_cell(global_cells[i], arena + 2 * i, kind, who);
}

/* Checks an access to a `__device__` variable. These variables are ordinary data of this program, so cells exist only for those
 * that kernels have touched. */
static void device_variable_access(const void *p, size_t bytes, enum access kind, const accessor &who)
{
    static std::unordered_map<uintptr_t, global_cell> cells;
    sim_count.accesses++;
    for (uintptr_t i = (uintptr_t)p / 2; i <= ((uintptr_t)p + bytes - 1) / 2; i++)
        check_global_cell(cells[i], reinterpret_cast<const char *>(2 * i), kind, who);
}

/* --- plain accesses -----------------------------------------------------------------------------------------------------------
 */

void memory_access(const void *p, size_t bytes, enum access kind, const accessor &who)
{
    extern char __executable_start[], __data_start[], _end[];
    if ((const unsigned char *)p >= sim_shared && (const unsigned char *)p < sim_shared + SIM_SHARED_MAX) {
        uint32_t offset = (uint32_t)((const unsigned char *)p - sim_shared);
        shared_offset(offset + SIM_SHARED_BASE, bytes, 1, who.pc, who.what);
        shared_access(offset, bytes, kind, who);
        return;
    }
    if (in_arena(p)) {
        global_access(p, bytes, kind, who);
        return;
    }
    if (sim_on_stack(p) || sim_is_parameter(p) || ((const char *)p >= __executable_start && (const char *)p < __data_start))
        return; /* local memory, kernel parameters, constants */
    if ((const char *)p >= __data_start && (const char *)p < _end) {
        if (sim_checking)
            device_variable_access(p, bytes, kind, who);
        return;
    }
    global_access(p, bytes, kind, who);
}
