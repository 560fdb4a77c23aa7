/* This machine: its budgets, device and threads, the same on all ranks. */
#include "train/machine.h"

#include "base/cgroup.h"
#include "base/process.h"
#include "base/sys.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "offload/drives.h"
#include "profile/profile.h"
#include "train/gpu.h"
#include "train/memory.h"
#include "train/scarce.h"
#include "train/space.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Finds the budgets of this rank: the given ones, or its part of the free memory. memory: bytes for its arenas. */
static void own_limits(struct settings *s, const struct comm *c, int64_t memory, int sharing, struct scarce *own)
{
    int tightest, n = s->nvme_path.n;
    int64_t *limit = own->limit,
            room = drives_room((const char *const *)s->nvme_path.item, n, sharing, s->out, &s->plan.kept_free, &tightest);
    limit[TIER_DEVICE] = s->plan.device_mem >= 0 ? s->plan.device_mem : memory / 2;
    limit[TIER_HOST] = s->plan.host_mem >= 0 ? s->plan.host_mem : memory / 10 * 4;
    limit[TIER_NVME] = room;
    if (s->plan.nvme_max >= 0)
        limit[TIER_NVME] = min_i64(limit[TIER_NVME], s->plan.nvme_max);
    else if (room < INT64_MAX)
        limit[TIER_NVME] = hardware_drives_share(limit[TIER_NVME]);
    if (s->plan.nvme_max < 0 && drives_in_memory((const char *const *)s->nvme_path.item, s->nvme_path.n, s->out))
        /* 1/20 of the memory: half of the 1/10 that device (1/2) and host (4/10) leave */
        limit[TIER_NVME] = min_i64(limit[TIER_NVME], memory / 20);
    snprintf(own->place[TIER_NVME], sizeof own->place[TIER_NVME], "%s", tightest < 0 ? s->out : s->nvme_path.item[tightest]);
    own->own = n < comm_local_size(c) || tightest % comm_local_size(c) == comm_local_rank(c);
}

/* Replaces each of the n numbers with the least of all ranks, as they run one program. */
static enum status least_of_ranks(struct comm *c, int64_t *x, int n)
{
    int64_t *all = sys_calloc((size_t)comm_size(c) * (size_t)n, sizeof *all);
    if (!all)
        return status_no_memory("while planning");
    enum status st = comm_gather(c, x, n * (int64_t)sizeof *all, all);
    for (int k = 0; k < comm_size(c) * n && st == OK; k++)
        x[k % n] = min_i64(x[k % n], all[k]);
    free(all);
    return st;
}

/* Takes the data sheet's figures of a GPU that was not measured. *found: 0: there is no sheet. */
static enum status use_sheet(const struct settings *s, struct hardware *h, int *found)
{
    const char *sheet = s->plan.device == DEVICE_CUDA ? hardware_preset_of_gpu(s->gpu_name) : NULL;
    *found = sheet != NULL;
    if (!sheet)
        return OK;
    TRY(hardware_preset(sheet, h));
    snprintf(h->source, sizeof h->source, "data sheet of %s x stated efficiencies, not profiled", sheet);
    h->host_assumed = h->drives_assumed = 0;
    return OK;
}

/* Loads the rates that an earlier run has observed, if --observed asks for them. *found: 1 if they were loaded. */
static enum status use_observed(const struct settings *s, struct hardware *h, int *found)
{
    const char *from = s->observed ? s->observed : "no";
    if (strcmp(from, "no") == 0)
        return OK;
    if (s->profile)
        return status_fail(ERR_INVALID, "--observed %s and --profile: give one of them, as each says how fast this machine is",
                           from);
    if (strcmp(from, "auto") == 0)
        return profile_load_observed(s, h, found);
    FILE *f = sys_read_text(from);
    if (!f)
        return status_fail(ERR_INVALID, "--observed: cannot read %s: %s (auto, no, or a run's observed.yaml)", from,
                           sys_strerror(errno));
    enum status st = hardware_read(from, f, h);
    fclose(f);
    if (st == OK && h->cpu == (s->plan.device == DEVICE_CUDA))
        st = status_fail(ERR_INVALID, "--observed: %s is of a run on %s, and this one is for %s", from,
                         h->cpu ? "processors" : "a GPU", h->cpu ? "a GPU" : "processors");
    *found = st == OK;
    return st;
}

/* Sends the figures of rank 0's machine, if there are any, to every rank, so that all plan the same. */
static enum status use_profile(struct settings *s, struct comm *comm)
{
    struct hardware *h = sys_malloc(sizeof *h);
    int found = 0;
    enum status st = h ? OK : status_no_memory("while planning");
    if (st == OK && comm_rank(comm) == 0) {
        st = use_observed(s, h, &found);
        if (st == OK && !s->profile && !found)
            st = profile_load(s, h, &found);
        if (st == OK && (s->profile || found < 0)) {
            st = profile_measure(s, h);
            found = 1;
        }
        if (st == OK && !found)
            st = use_sheet(s, h, &found);
    }
    st = comm_agree(comm, st);
    if (st == OK)
        st = comm_broadcast(comm, 0, &found, sizeof found);
    if (st == OK && found)
        st = comm_broadcast(comm, 0, h, sizeof *h);
    if (st == OK && found)
        s->plan.hardware = h;
    else
        free(h);
    return st;
}

/* Cores that a rank's threads may run on. */
struct cores {
    char host[64];
    cpu_set_t set;
    double time; /* processors that the cgroup with the hash `cgroup` may use at once; 0: no limit */
    uint64_t cgroup;
};

/* Chooses the threads of a rank: the least of all ranks, as they run one program. Launchers may give each rank its threads
 * (OMP_NUM_THREADS) or its cores (affinity). Only cores, and a cgroup's time, that several ranks share are divided. Beside a GPU
 * one core submits to it and one copies; few cores do everything. */
static enum status choose_threads(struct comm *c, enum device_kind device, int *out)
{
    const char *given = getenv("OMP_NUM_THREADS");
    struct cores own = {.host = ""}, *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    int64_t sharing = 0, in_cgroup = 0, threads;
    if (!all)
        return status_no_memory("while planning");
    snprintf(own.host, sizeof own.host, "%s", comm_host(c, comm_rank(c)));
    sched_getaffinity(0, sizeof own.set, &own.set);
    own.time = cgroup_processors(process_system_root(), &own.cgroup);
    enum status st = comm_gather(c, &own, sizeof own, all);
    for (int k = 0; k < comm_size(c) && st == OK; k++) {
        const int same_host = strcmp(all[k].host, own.host) == 0;
        sharing += same_host && CPU_EQUAL(&all[k].set, &own.set);
        in_cgroup += same_host && all[k].cgroup == own.cgroup;
    }
    free(all);
    TRY(st);
    threads = max_i64(1, min_i64(omp_get_max_threads(), CPU_COUNT(&own.set)) / sharing);
    if (own.time > 0) /* more threads would all be stopped for the rest of each period */
        threads = max_i64(1, min_i64(threads, (int64_t)ceil(own.time / (double)in_cgroup)));
    if (given && atoi(given) > 0)
        threads = omp_get_max_threads();
    if (device == DEVICE_CUDA && !given)
        threads -= min_i64(2, threads / 4);
    st = least_of_ranks(c, &threads, 1);
    *out = (int)threads;
    return st;
}

/* Records which rank has the least memory, for each budget that is a part of the host's memory. */
static void name_memory(struct settings *s, const struct memory_part *m)
{
    if (s->plan.device_mem < 0 && s->plan.device != DEVICE_CUDA)
        snprintf(s->plan.scarce[TIER_DEVICE], sizeof s->plan.scarce[TIER_DEVICE], "%s", m->whose);
    if (s->plan.host_mem < 0)
        snprintf(s->plan.scarce[TIER_HOST], sizeof s->plan.scarce[TIER_HOST], "%s", m->whose);
}

enum status machine_here(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct machine_ranks *out)
{
    int64_t gpu_bytes = 0;
    struct device_facts gpu = {.name = ""};
    if (s->plan.device == DEVICE_AUTO)
        TRY(gpu_find(s, comm));
    if (s->plan.device == DEVICE_CUDA)
        TRY(gpu_limit(s, comm, &gpu, &gpu_bytes));
    TRY(comm_agree(comm, gpu_settle_type(s, m, gpu.capability)));
    s->plan.kept_free = run_space_bytes(s, m);
    if (s->plan.nvme_drives > 0)
        return status_fail(ERR_INVALID, "--nvme describes the drives of a machine that is not here (--machine); here it is "
                                        "--nvme-path and --nvme-max");
    if (s->plan.threads <= 0)
        TRY(choose_threads(comm, s->plan.device, &s->plan.threads));
    omp_set_num_threads(s->plan.threads);
    struct target target = backend_cpu_target(s->plan.threads);
    if (s->plan.device == DEVICE_CUDA) {
        target = cuda_target(gpu.capability, gpu.processors, s->plan.threads);
        target.shared_bytes = gpu.shared_bytes;
        target.fast = gpu.capability > 0 && !s->plan.deterministic;
    }
    TRY(machine_set_target(s, &target));
    if (s->plan.nvme_max == AUTO) /* the drives' free space is the budget then */
        TRY(comm_agree(comm, drives_check((const char *const *)s->nvme_path.item, s->nvme_path.n, s->out)));
    TRY(use_profile(s, comm));
    struct memory_part memory;
    const int alone = comm_size(comm) == 1 ? ranks : 1;
    TRY(memory_part_find(comm, alone, s->plan.threads, &memory));
    memory_describe(&memory, s->plan.memory_limit, sizeof s->plan.memory_limit);
    struct scarce own = {.own = 0};
    own_limits(s, comm, memory.left, comm_local_size(comm) * alone, &own);
    if (s->plan.device == DEVICE_CUDA) {
        own.limit[TIER_DEVICE] = gpu_bytes;
        snprintf(own.place[TIER_DEVICE], sizeof own.place[TIER_DEVICE], "%s", gpu.name);
    }
    out->ranks = ranks;
    out->per_host = comm_size(comm) > 1 ? comm_per_host(comm) : ranks;
    TRY(scarce_share(comm, &own, s, out->limit));
    name_memory(s, &memory);
    return OK;
}
