/* Dividing the memory that limits leave among the ranks that share them. */
#include "train/memory.h"

#include "base/num.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/units.h"
#include "train/scarce.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Memory of a rank beside its arenas from planning on, about 15 MiB in runs of two threads, and page cache while checkpoints are
 * written. */
#define OUTSIDE_BYTES ((16LL << 20) + MEMORY_ASIDE_STAGING)
#define OUTSIDE_THREAD_BYTES (1LL << 20)
#define STACK_BYTES (8LL << 20) /* stack of a thread, if no limit is set */
/* threads beside OpenMP's: the first thread, six of lanes and messages (executor.c), those of drives and of the run's lock */
#define OTHER_THREADS 9

struct seen {
    int64_t n, left[MEMORY_LIMITS], own[MEMORY_LIMITS];
    uint64_t sharers[MEMORY_LIMITS];
};

static int64_t stack_bytes(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (1 << 30)
               ? (int64_t)limit.rlim_cur
               : STACK_BYTES;
}

static int64_t outside(const struct memory_limit *l, int threads)
{
    int64_t now = memory_proc_bytes("/proc/self/status", "Threads") / 1024,
            to_come = max_i64(0, OTHER_THREADS + 2 * (threads - 1) - now); /* two teams: compute and host lane */
    return OUTSIDE_BYTES + threads * OUTSIDE_THREAD_BYTES + (l->addresses ? to_come * stack_bytes() : 0);
}

/* Finds the bytes that this rank may take, under its tightest limit. Of ranks that share a limit the lowest reading of the bytes
 * left counts: a later one sees what the others have taken. */
static void own_part(const struct seen *all, int ranks, int alone, int threads, struct memory_part *m)
{
    m->left = m->of.n > 0 ? INT64_MAX : 0;
    m->aside = 0;
    m->sharing = 1;
    for (int i = 0; i < m->of.n; i++) {
        const struct memory_limit *l = &m->of.at[i];
        int64_t left = l->left, own = 0;
        int sharing = 0;
        for (int k = 0; k < ranks; k++)
            for (int j = 0; j < all[k].n; j++)
                if (l->sharers && all[k].sharers[j] == l->sharers) {
                    left = min_i64(left, all[k].left[j]);
                    own += all[k].own[j];
                    sharing++;
                    break;
                }
        if (own > 0) /* the sum of the bytes that each sharer takes is known */
            left = max_i64(0, l->bytes - own);
        sharing = l->sharers ? sharing * alone : 1;
        const int64_t aside = outside(l, threads);
        const int64_t part = max_i64(0, left / sharing - aside);
        if (part < m->left) {
            m->left = part;
            m->aside = aside;
            m->sharing = sharing;
            m->by = *l;
            m->by.left = left;
        }
    }
}

/* Describes the rank with the least memory if another host's ranks have more; ranks of one host share its limits, but for small
 * differences. */
static void name_least(const struct comm *c, const int64_t *left, int least, struct memory_part *out)
{
    out->whose[0] = 0;
    for (int k = 0; k < comm_size(c); k++)
        if (scarce_has_more(left[k], left[least]) && strcmp(comm_host(c, k), comm_host(c, least)) != 0)
            snprintf(out->whose, sizeof out->whose, "rank %d on %s has the least", least, comm_host(c, least));
}

enum status memory_part_find(struct comm *c, int alone, int threads, struct memory_part *out)
{
    int n = comm_size(c), least = 0;
    struct seen own = {0}, *all = sys_calloc((size_t)n, sizeof *all);
    int64_t *left = sys_calloc((size_t)n, sizeof *left);
    struct memory_part shared = {0};
    enum status st = all && left ? OK : status_no_memory("while planning");
    malloc_trim(0); /* frees memory that planning has given back to the heap */
    memory_limits_read(process_system_root(), &out->of);
    own.n = out->of.n;
    for (int i = 0; i < out->of.n; i++) {
        own.left[i] = out->of.at[i].left;
        own.own[i] = out->of.at[i].own;
        own.sharers[i] = out->of.at[i].sharers;
    }
    if (st == OK)
        st = comm_gather(c, &own, sizeof own, all);
    if (st == OK) {
        own_part(all, n, n > 1 ? 1 : alone, threads, out);
        st = comm_gather(c, &out->left, sizeof *left, left);
    }
    for (int k = 1; k < n && st == OK; k++)
        least = left[k] < left[least] ? k : least;
    if (st == OK && comm_rank(c) == least)
        shared = *out;
    if (st == OK)
        st = comm_broadcast(c, least, &shared, sizeof shared);
    if (st == OK) {
        out->left = shared.left;
        out->aside = shared.aside;
        out->sharing = shared.sharing;
        out->by = shared.by;
        name_least(c, left, least, out);
    }
    free(left);
    free(all);
    return st;
}

int64_t memory_left_beside(const struct memory_part *m, int ranks, int64_t each)
{
    int64_t left = m->of.n > 0 ? INT64_MAX : 0;
    for (int i = 0; i < m->of.n; i++) {
        const struct memory_limit *l = &m->of.at[i];
        left = min_i64(left, l->left - (l->sharers ? ranks * each + (ranks - 1) * l->own : each));
    }
    return max_i64(0, left);
}

void memory_describe(const struct memory_part *m, char *text, size_t size)
{
    char left[32], bytes[32], aside[32], sharing[48] = "";
    text[0] = 0;
    if (!m->by.name[0])
        return;
    if (m->sharing > 1)
        snprintf(sharing, sizeof sharing, ", shared by %d ranks", m->sharing);
    units_format_apart(m->by.left, m->by.bytes, left, bytes);
    snprintf(text, size, "%s are left of %s, %s%s, and %s%s are set aside for stacks and the program", left, bytes, m->by.name,
             sharing, units_format_bytes(m->aside, aside), m->sharing > 1 ? " of each" : "");
}

/* Formats the plan's need of this machine's memory as "device 1.0 GiB, host 2.0 GiB". */
static void describe_need(const struct plan *p, int64_t beside, int on_gpu, char *text, size_t size)
{
    char device[32], host[32], other[32];
    units_format_bytes(p->arena[TIER_DEVICE], device);
    units_format_bytes(p->arena[TIER_HOST], host);
    int n = on_gpu ? snprintf(text, size, "host %s", host) : snprintf(text, size, "device %s, host %s", device, host);
    if (beside > 0)
        snprintf(text + n, size - (size_t)n, ", beside them %s for two groups of state and what ranks send",
                 units_format_bytes(beside, other));
}

enum status memory_check(const struct memory_part *m, const struct plan *p, int64_t beside, const struct plan_request *s)
{
    const int on_gpu = s->device == DEVICE_CUDA;
    int64_t need = (on_gpu ? 0 : p->arena[TIER_DEVICE]) + p->arena[TIER_HOST] + beside;
    char needs[32], has[32], parts[128], limit[512];
    if (need <= m->left)
        return OK;
    units_format_apart(need, m->left, needs, has);
    memory_describe(m, limit, sizeof limit);
    describe_need(p, beside, on_gpu, parts, sizeof parts);
    return status_fail(ERR_NOFIT,
                       "the plan takes %s of memory (%s) and a rank can have %s%s%s%s%s%s: %s; `ltrain doctor` shows all limits",
                       needs, parts, has, limit[0] || m->whose[0] ? " (" : "", m->whose, limit[0] && m->whose[0] ? ": " : "",
                       limit, limit[0] || m->whose[0] ? ")" : "",
                       s->device_mem >= 0 || s->host_mem >= 0 ? "give less with --device-mem and --host-mem, or leave them out"
                       : limit[0]                             ? "raise that limit"
                                                              : "free memory");
}
