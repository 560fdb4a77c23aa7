/* Steps before the first training step: plan, files of the run's directory, state. */
#include "train/run.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/progress.h"
#include "base/steps.h"
#include "base/sys.h"
#include "base/units.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"
#include "engine/session.h"
#include "machine/hardware.h"
#include "model/config/adapter_config.h"
#include "offload/drives.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/report/budget.h"
#include "plan/report/describe.h"
#include "plan/report/json.h"
#include "plan/report/refuse.h"
#include "plan/report/text.h"
#include "plan/sampling.h"
#include "profile/profile.h"
#include "profile/sgemm.h"
#include "program/digest.h"
#include "settings/curriculum.h"
#include "settings/keys.h"
#include "settings/read.h"
#include "train/facts.h"
#include "train/gpu.h"
#include "train/memory.h"
#include "train/metrics.h"
#include "train/scarce.h"
#include "train/space.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Refuses a model that is neither a preset nor a directory. */
static enum status refuse_model(const char *name)
{
    struct model_config config;
    const char *slash = strchr(name, '/');
    if (!slash) /* the message lists the presets and the nearest one */
        return model_preset(name, &config);
    if (slash == name || name[0] == '.' || name[0] == '~' || strchr(slash + 1, '/') || !slash[1])
        return status_fail(ERR_INVALID, "--model: no such directory: %s", name);
    return status_fail(ERR_INVALID,
                       "--model: no such directory: %s; models of the hub are not downloaded: give the directory where one is",
                       name);
}

/* Reads config.json. A resumed run needs no original weights: if they are gone, its checkpoint has the configuration. */
static enum status read_config(const struct settings *s, struct model_config *out)
{
    char path[4096];
    struct stat sb;
    snprintf(path, sizeof path, "%s/config.json", s->model);
    if (sys_stat(path, &sb) != 0 && sys_is_absent(errno) && s->resume && checkpoint_newest(s->resume, path, sizeof path) == OK) {
        TRY(model_config_read(path, out));
        const char *slash = strrchr(s->model, '/');
        snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : s->model);
        return OK;
    }
    if (sys_stat(s->model, &sb) != 0 && sys_is_absent(errno))
        return refuse_model(s->model);
    return model_config_read(s->model, out);
}

/* Checks the settings against the format of quantised files. */
static enum status check_quantised(const struct settings *s, const struct model_config *c, int trains_all)
{
    const char *name = model_base_name(c->base);
    const enum frozen_base has = c->base == BASE_INT8 ? FROZEN_INT8 : FROZEN_NF4;
    if (trains_all)
        return status_fail(
            ERR_INVALID,
            "--model %s is quantised (%s), which is not trained: give --lora r=16 to train adapters beside it, or another "
            "copy of the model",
            s->model, name);
    if (s->plan.base == FROZEN_AUTO || s->plan.base == has)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--base %s: the files of %s hold %s and nothing else: leave out --base, or give a copy of the model that is not "
        "quantised",
        s->plan.base == FROZEN_STORED ? "none"
        : s->plan.base == FROZEN_INT8 ? "int8"
                                      : "nf4",
        s->model, name);
}

/* Settles the format of frozen matrices. */
static enum status settle_base(const struct settings *s, struct model_config *c)
{
    const int trains_all = !s->plan.evaluation && s->plan.lora.rank == 0;
    if (c->quantised)
        return check_quantised(s, c, trains_all);
    if (s->plan.base != FROZEN_NF4 && s->plan.base != FROZEN_INT8)
        return OK;
    c->base = s->plan.base == FROZEN_NF4 ? BASE_NF4 : BASE_INT8;
    if (!trains_all)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--base %s is what adapters are trained beside: give --lora r=16, or leave out --base to train the model whole",
        model_base_word(c->base));
}

/* Refuses to train quantised matrices, whose files have no numbers to train. */
static enum status refuse_quantised(const struct settings *s, const struct model *m)
{
    for (int i = 0; i < m->n_params && m->config.quantised; i++)
        if (m->params[i].linear && m->params[i].trained && !m->params[i].adapter)
            return status_fail(ERR_INVALID, "--lora: modules-to-save=%s: %s is quantised (%s) in %s and cannot be trained whole",
                               s->plan.lora.saved, m->params[i].name, model_base_name(m->config.base), s->model);
    return OK;
}

enum status train_blame_adapter(const struct settings *s, enum status st)
{
    static const char said[] = "--lora: ";
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    if (st != ERR_INVALID || !s->adapter || strncmp(why, said, strlen(said)) != 0)
        return st;
    return status_fail(ERR_INVALID, "%s%s: %s", s->adapter, adapter_config_is_there(s->adapter) ? "/adapter_config.json" : "",
                       why + strlen(said));
}

enum status train_open_model(const struct settings *s, struct model **out)
{
    struct model_config config;
    char idle[256];
    if (model_is_preset(s->model)) {
        TRY(model_preset(s->model, &config));
    } else {
        TRY(read_config(s, &config));
    }
    if (s->strict_config && config.unknown[0])
        return status_fail(
            ERR_INVALID, "%s/config.json: ltrain does not know %s; without --strict-config it computes as if that were not there",
            s->model, config.unknown);
    TRY(model_config_set_rope(&config, s->rope, s->rope_base));
    if (!s->max_seq && s->plan.seq_len > config.max_positions && model_learns_positions(&config))
        return status_fail(ERR_INVALID, "model %s has learned positions for %lld tokens; --seq-len %lld is longer", config.name,
                           (long long)config.max_positions, (long long)s->plan.seq_len);
    if (s->plan.keep_inputs > config.layers)
        return status_fail(ERR_INVALID, "--keep-inputs %lld: model %s has %d layers", (long long)s->plan.keep_inputs, config.name,
                           (int)config.layers);
    config.positions = s->plan.seq_len;
    if (!s->plan.evaluation && s->plan.freeze.n == 1 && strcmp(s->plan.freeze.item[0], MODEL_FREEZE_ALL) == 0)
        return status_fail(ERR_INVALID, "--freeze: every parameter is frozen; leave some to train");
    config.lora = s->plan.lora;
    TRY(settle_base(s, &config));
    if (!s->plan.evaluation && config.lora.rank > 0 && s->plan.freeze.n > 0)
        return status_fail(ERR_INVALID,
                           "--freeze: with --lora all that is no adapter is frozen, but for modules-to-save: leave out --freeze");
    TRY(train_blame_adapter(s, model_create(&config, (const char *const *)s->plan.freeze.item, s->plan.freeze.n, out)));
    TRY(train_blame_adapter(s, model_check_adapters(*out)));
    if (!s->plan.evaluation && !s->adapter && !s->resume)
        TRY(refuse_quantised(s, *out));
    return s->adapter ? OK : model_check_patterns(*out, idle, sizeof idle); /* PEFT's files may have idle patterns */
}

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
        limit[TIER_NVME] = min_i64(limit[TIER_NVME], memory / 20); /* half of the rest beside the other two tiers */
    snprintf(own->place[TIER_NVME], sizeof own->place[TIER_NVME], "%s", tightest < 0 ? s->out : s->nvme_path.item[tightest]);
    own->own = n < comm_local_size(c) || tightest % comm_local_size(c) == comm_local_rank(c);
}

/* Replaces each of the n numbers with the least of all ranks, as they run one program. */
static enum status least_of_ranks(struct comm *c, int64_t *x, int n)
{
    int64_t *all = sys_calloc((size_t)comm_size(c) * (size_t)n, sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    enum status st = comm_gather(c, x, n * (int64_t)sizeof *all, all);
    for (int k = 0; k < comm_size(c) * n && st == OK; k++)
        x[k % n] = min_i64(x[k % n], all[k]);
    free(all);
    return st;
}

int train_planned_ranks(const struct settings *s)
{
    if (s->plan.ranks > 0)
        return s->plan.ranks;
    int product = (int)mesh_ranks(&s->plan.mesh);
    return product;
}

/* Opens the machine that the settings name, from a data sheet or a file. */
static enum status open_machine(struct settings *s)
{
    enum status st;
    s->plan.hardware = sys_malloc(sizeof *s->plan.hardware);
    if (!s->plan.hardware)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    int preset = hardware_is_preset(s->plan.machine);
    FILE *f = preset ? NULL : sys_read_text(s->plan.machine);
    if (f) {
        st = hardware_read(s->plan.machine, f, s->plan.hardware);
        fclose(f);
    } else if (preset || errno == ENOENT) {
        st = hardware_preset(s->plan.machine, s->plan.hardware);
    } else {
        st = status_fail(ERR_INVALID, "--machine: cannot read %s: %s", s->plan.machine, sys_strerror(errno));
    }
    TRY(st);
    if (!s->plan.hardware->cpu && s->plan.device_mem > s->plan.hardware->device_mem) {
        char asked[32], there[32];
        units_format_apart(s->plan.device_mem, s->plan.hardware->device_mem, asked, there);
        return status_fail(ERR_INVALID,
                           "--device-mem: %s are more than the %s that a program can have of %s: leave it out, or give less",
                           asked, there, s->plan.hardware->name);
    }
    if (s->plan.device != DEVICE_AUTO && s->plan.hardware->cpu == (s->plan.device == DEVICE_CUDA))
        return status_fail(ERR_INVALID, "--device is %s, and what --machine %s names has %s: leave out --device",
                           s->plan.device == DEVICE_CUDA ? "cuda" : "cpu", s->plan.machine,
                           s->plan.hardware->cpu ? "no GPU" : "GPUs");
    hardware_override(s->plan.hardware, &s->plan);
    return OK;
}

struct prepared {
    int64_t limit[TIERS];
    int ranks, per_host;
};

/* Finds the number of ranks on a machine that is not here: the one asked for, or a device each. Open mesh degrees are derived
 * from it. */
static enum status ranks_elsewhere(const struct settings *s, int *out)
{
    const struct hardware *h = s->plan.hardware;
    int devices = h->nodes * h->devices, asked = train_planned_ranks(s), preset = hardware_is_preset(s->plan.machine);
    int said = s->plan.ranks > 0 || mesh_is_decided(&s->plan.mesh) || (h->cpu && asked > 1);
    *out = said ? asked : devices;
    if (!h->cpu && asked > devices) {
        char take[80] = "give it more in its file";
        if (preset)
            snprintf(take, sizeof take, "take --machine %dx%s", asked, h->name);
        return status_fail(ERR_INVALID, "--machine: %d ranks are asked for, and %s has %d device%s: %s", asked, s->plan.machine,
                           devices, devices == 1 ? "" : "s", take);
    }
    if (!said && devices % asked) {
        char take[80] = "";
        if (preset)
            snprintf(take, sizeof take, "take --machine %dx%s, or ", asked, h->name);
        return status_fail(ERR_INVALID,
                           "--mesh: %d ranks do not divide the %d devices of %s: %sadd --ranks %d to leave some idle", asked,
                           devices, s->plan.machine, take, asked);
    }
    return OK;
}

/* Stores the target of programs: kernels of this CPU, also for a CPU that is not here, or of a GPU. */
static enum status make_target(struct settings *s, const struct target *t)
{
    s->plan.target = sys_malloc(sizeof *s->plan.target);
    if (!s->plan.target)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    *s->plan.target = *t;
    return OK;
}

/* Prepares budgets, device and ranks of a machine that is not here. */
static enum status prepare_elsewhere(struct settings *s, const struct model *m, struct prepared *out)
{
    int ranks;
    TRY(open_machine(s));
    TRY(ranks_elsewhere(s, &ranks));
    const struct hardware *h = s->plan.hardware;
    if (s->plan.device == DEVICE_AUTO)
        s->plan.device = h->cpu ? DEVICE_CPU : DEVICE_CUDA;
    TRY(gpu_settle_type(s, m, h->cpu ? 0 : h->capability));
    hardware_limits(h, ranks, out->limit);
    out->ranks = ranks;
    out->per_host = (int)max_i64(h->devices, ceil_div(ranks, h->nodes));
    const int threads = s->plan.threads > 0 ? s->plan.threads : omp_get_max_threads();
    struct target t = h->cpu ? backend_cpu_target(threads) : cuda_target(h->capability, h->processors, threads);
    t.fast = t.capability > 0 && !s->plan.deterministic;
    return make_target(s, &t);
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

/* Sends the figures of rank 0's machine, if there are any, to every rank, so that all plan the same. */
static enum status use_profile(struct settings *s, struct comm *comm)
{
    struct hardware *h = sys_malloc(sizeof *h);
    int found = 0;
    enum status st = h ? OK : status_fail(ERR_NOMEM, "out of memory while planning");
    if (st == OK && comm_rank(comm) == 0) {
        if (!s->profile)
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
    double time; /* processor time of the cgroup with that number, in processors; 0: unlimited */
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
        return status_fail(ERR_NOMEM, "out of memory while planning");
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

/* Describes the rank with the least memory for the budgets that are parts of the host's memory. */
static void name_memory(struct settings *s, const struct memory_part *m)
{
    if (s->plan.device_mem < 0 && s->plan.device != DEVICE_CUDA)
        snprintf(s->plan.scarce[TIER_DEVICE], sizeof s->plan.scarce[TIER_DEVICE], "%s", m->whose);
    if (s->plan.host_mem < 0)
        snprintf(s->plan.scarce[TIER_HOST], sizeof s->plan.scarce[TIER_HOST], "%s", m->whose);
}

static enum status prepare_here(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct prepared *out)
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
    TRY(make_target(s, &target));
    if (s->plan.nvme_max == AUTO) /* the free space there decides */
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

enum status train_check_space(const struct settings *s, const struct model *m)
{
    return run_space_check(s, m);
}

void train_show_progress(const struct settings *s, const struct comm *comm)
{
    if (comm_size(comm) == 1 && !(s->json && isatty(STDOUT_FILENO)))
        progress_begin(STDERR_FILENO, PROGRESS_AFTER_NS);
}

/* Returns the time after which planning shows progress where output is kept. Tests that expect nothing on stderr, even on slow
 * machines, set the environment variable LTRAIN_PROGRESS_AFTER, in seconds. */
static int64_t planning_silence_ns(void)
{
    const char *seconds = getenv("LTRAIN_PROGRESS_AFTER");
    return seconds ? (int64_t)(strtod(seconds, NULL) * 1e9) : PROGRESS_AFTER_NS;
}

/* Shows on stderr that planning goes on, even where output is kept (rank 0 only). */
static void show_planning(const struct settings *s, const struct comm *comm)
{
    if (comm_rank(comm) != 0 || (comm_size(comm) == 1 && s->json && isatty(STDOUT_FILENO)))
        return;
    progress_begin_kept(STDERR_FILENO, planning_silence_ns(), PROGRESS_LINE_NS);
}

/* Resets the tiles of a resumed run if the mesh is another one: they were made for a rank's heads and tokens. The grain of
 * updates stays. */
static void adapt_tiles(struct settings *s)
{
    char mesh[MESH_TEXT];
    if (!mesh_is_decided(&s->tiles_mesh) || (s->plan.open_degrees == 0 && mesh_equal(&s->tiles_mesh, &s->plan.mesh)))
        return;
    printf("resume: the tiles were those of %s: they are chosen anew\n", mesh_format(&s->tiles_mesh, mesh));
    s->plan.row_chunk = s->plan.head_tile = s->plan.loss_tile = AUTO;
    settings_list_clear(settings_key_find("length-tiles"), s);
}

/* Plans again with the host budget that messages leave, if ranks send through host memory: messages are a part of that budget. */
static enum status leave_room_for_messages(const struct settings *s, const struct plan_request *request, const struct prepared *p,
                                           const struct model *m, struct plan **plan)
{
    char host[32], messages[32], given[32];
    int64_t limit[TIERS], bytes = session_message_bytes(*plan);
    if (!s->staged || !(*plan)->fits || (*plan)->arena[TIER_HOST] + bytes <= p->limit[TIER_HOST])
        return OK;
    memcpy(limit, p->limit, sizeof limit);
    limit[TIER_HOST] = max_i64(0, limit[TIER_HOST] - bytes);
    plan_destroy(*plan);
    *plan = NULL;
    TRY(plan_create(m, request, limit, plan));
    bytes = session_message_bytes(*plan);
    if (!(*plan)->fits || (*plan)->arena[TIER_HOST] + bytes <= p->limit[TIER_HOST])
        return OK;
    units_format_bytes((*plan)->arena[TIER_HOST], host);
    plan_destroy(*plan);
    *plan = NULL;
    return status_fail(
        ERR_NOFIT, "the plan takes %s of host memory and %s more for what ranks send, and %s are given (--host-mem): give more",
        host, units_format_bytes(bytes, messages), units_format_bytes(p->limit[TIER_HOST], given));
}

/* Makes the request for a length's plan. Values that all lengths share are those of the longest length's plan; tiles are those
 * that the run had before. */
static struct plan_request request_of(const struct settings *s, int64_t seq_len, const struct plan *longest)
{
    struct plan_request r = s->plan;
    int64_t rows, heads, loss;
    r.seq_len = seq_len;
    if (longest) {
        plan_take_mesh(&r, &longest->strategy.mesh);
        r.open_degrees = 0;
        r.group = longest->strategy.group;
        r.zero = longest->strategy.ranks > 1 ? longest->strategy.zero : r.zero;
    }
    if (s->curriculum.n > 0 && curriculum_recall_tiles(s, seq_len, &rows, &heads, &loss)) {
        r.row_chunk = r.row_chunk == AUTO ? rows : r.row_chunk;
        r.head_tile = r.head_tile == AUTO ? heads : r.head_tile;
        r.loss_tile = r.loss_tile == AUTO ? loss : r.loss_tile;
    }
    return r;
}

static const struct plan *plan_of_length(const struct train_plans *p, int64_t seq_len)
{
    for (int i = 0; i < p->n; i++)
        if (plan_length(p->plan[i]) == seq_len)
            return p->plan[i];
    return NULL;
}

static enum status plan_length_of(struct settings *s, int64_t seq_len, const struct prepared *p, const struct model *m,
                                  struct train_plans *out)
{
    const struct plan_request request = request_of(s, seq_len, out->n > 0 ? out->plan[0] : NULL);
    if (plan_of_length(out, seq_len))
        return OK;
    TRY(train_say_length(s, seq_len, refuse_early(m, &request, p->limit)));
    TRY(train_say_length(s, seq_len, plan_create(m, &request, p->limit, &out->plan[out->n])));
    TRY(train_say_length(s, seq_len, leave_room_for_messages(s, &request, p, m, &out->plan[out->n])));
    out->owned = ++out->n;
    return OK;
}

static enum status plan_lengths(struct settings *s, const struct prepared *p, const struct model *m, struct train_plans *out)
{
    const int n = curriculum_stretches(s);
    TRY(plan_length_of(s, s->plan.seq_len, p, m, out));
    for (int i = 0; i < n; i++) {
        const int64_t seq_len = curriculum_length(s, i);
        TRY(plan_length_of(s, seq_len, p, m, out));
        out->stretches[i] =
            (struct plan_stretch){seq_len, curriculum_first(s, i), curriculum_end(s, i), plan_of_length(out, seq_len)};
    }
    if (n > 1) {
        out->plan[0]->stretches = out->stretches;
        out->plan[0]->n_stretches = n;
    }
    return OK;
}

static enum status plan_prepared(struct settings *s, const struct prepared *p, const struct model *m, struct train_plans *out)
{
    *out = (struct train_plans){.n = 0};
    if (s->max_seq) {
        TRY(plan_longest(m, &s->plan, p->ranks, p->per_host, p->limit, &out->plan[0]));
        out->n = out->owned = 1;
        return OK;
    }
    TRY(plan_mesh(m, &s->plan, p->ranks, p->per_host));
    adapt_tiles(s);
    enum status st = plan_lengths(s, p, m, out);
    if (st != OK)
        train_plans_destroy(out);
    return st;
}

void train_plans_destroy(struct train_plans *p)
{
    for (int i = 0; i < p->owned; i++)
        plan_destroy(p->plan[i]);
    p->n = p->owned = 0;
}

enum status train_plan(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct train_plans *out,
                       int64_t limit[TIERS])
{
    struct prepared p;
    TRY(s->plan.machine ? prepare_elsewhere(s, m, &p) : prepare_here(s, comm, ranks, m, &p));
    memcpy(limit, p.limit, sizeof p.limit);
    show_planning(s, comm);
    enum status st = plan_prepared(s, &p, m, out);
    progress_end();
    TRY(st);
    const struct strategy *strategy = &out->plan[0]->strategy;
    plan_take_mesh(&s->plan, &strategy->mesh);
    if (s->plan.zero == AUTO) /* a rank alone has no stage; a resumed run may have more ranks */
        s->plan.zero = strategy->ranks > 1 ? strategy->zero : 3;
    return OK;
}

static enum status refuse_length(const struct model *m, const struct settings *s, const struct plan *plan)
{
    char need[32], has[32], there[400] = "", tokens[32], longest[32], fits[96];
    int64_t length;
    for (int t = 0; t < TIERS; t++) {
        size_t n = strlen(there);
        if (plan->arena[t] <= plan->limit[t])
            continue;
        units_format_apart(plan->arena[t], plan->limit[t], need, has);
        snprintf(there + n, sizeof there - n, "%s%s on the %s, of which there are %s (%s)", n ? ", " : "", need,
                 tier_name((enum tier)t), has, budget_flag_given(&s->plan, (enum tier)t));
    }
    TRY(plan_sampling_longest(m, &s->plan, plan->limit, &length));
    snprintf(fits, sizeof fits, length > 0 ? "%s tokens fit" : "no length fits, so the parameters need more%.0s",
             units_format_count(length, longest));
    return status_fail(ERR_NOFIT, "a text of %s tokens and its model need %s: %s%s", units_format_count(s->plan.seq_len, tokens),
                       there, fits, s->nvme_path.n == 0 ? "; --nvme-path DIR would give drives, too" : "");
}

static enum status check_sampling(const struct settings *s, const struct comm *comm)
{
    if (s->plan.ranks > 1 && comm_size(comm) == 1)
        return status_fail(ERR_INVALID, "ltrain sample runs on one rank: leave out --ranks");
    if (s->plan.machine)
        return status_fail(ERR_INVALID, "ltrain sample runs on this machine: leave out --machine");
    if (s->nvme_path.n == 0 && (s->plan.params == OFFLOAD_NVME || s->plan.acts == OFFLOAD_NVME))
        return status_fail(ERR_INVALID, "--offload nvme needs a directory on a fast drive: give --nvme-path DIR");
    return OK;
}

enum status train_plan_sampling(struct settings *s, struct comm *comm, const struct model *m, struct plan **plan)
{
    struct prepared p;
    TRY(check_sampling(s, comm));
    if (s->nvme_path.n == 0)
        s->plan.nvme_max = 0;
    TRY(prepare_here(s, comm, 1, m, &p));
    train_show_progress(s, comm);
    enum status st = plan_sampling(m, &s->plan, p.limit, plan);
    if (st == OK && !(*plan)->fits) {
        st = refuse_length(m, s, *plan);
        plan_destroy(*plan);
    }
    progress_end();
    return st;
}

enum status run_compare_plans(struct comm *c, const struct plan *plan)
{
    struct {
        int64_t arena[TIERS];
        uint64_t programs[PLAN_PROGRAMS]; /* digests; 0: none */
        char text[PLAN_TEXT];
    } own, *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    memset(&own, 0, sizeof own);
    memcpy(own.arena, plan->arena, sizeof own.arena);
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        own.programs[k] = plan->programs[k] ? program_digest(plan->programs[k]) : 0;
    plan_describe(plan, own.text, sizeof own.text);
    enum status st = comm_gather(c, &own, sizeof own, all);
    for (int k = 1; k < comm_size(c) && st == OK; k++)
        if (memcmp(&all[k], &all[0], sizeof own) != 0)
            st = comm_agree(
                c, status_fail(ERR_INVALID,
                               "rank %d planned another program than rank 0 (%s; %s): are all hosts of one kind, with the "
                               "same ltrain?",
                               k, all[k].text, all[0].text));
    free(all);
    return st;
}

enum status run_find_peak(struct run *r)
{
    const struct plan_request *p = &r->s->plan;
    const char *sheet = hardware_preset_of_gpu(r->s->gpu_name);
    struct hardware h;
    if (sheet) {
        TRY(hardware_preset(sheet, &h));
        r->peak_flops = h.peak_flops[p->dtype];
        snprintf(r->peak_reference, sizeof r->peak_reference, "dense %s peak of %s (data sheet)", dtype_name(p->dtype), sheet);
    } else if (r->s->gpu_name[0] && p->hardware && !p->hardware->cpu) {
        r->peak_flops = p->hardware->peak_flops[p->dtype];
        snprintf(r->peak_reference, sizeof r->peak_reference, "largest product measured by --profile");
    } else if (r->s->gpu_name[0] && p->target->capability > 0) {
        TRY(profile_gpu_peak(r->s, &r->peak_flops));
        snprintf(r->peak_reference, sizeof r->peak_reference, "product of 8192 cubed measured at start");
    } else {
        TRY(profile_sgemm(&r->peak_flops));
        snprintf(r->peak_reference, sizeof r->peak_reference, "sgemm rate measured at start");
    }
    r->peak_flops *= comm_size(r->comm);
    return OK;
}

static enum status write_plan_json(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f)
{
    return plan_write_json(p, m, s, NULL, NULL, f);
}

static enum status write_plan(struct run *r, const char *name,
                              enum status (*write)(const struct plan *, const struct model *, const struct plan_request *,
                                                   FILE *))
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", r->s->out, name);
    FILE *f = sys_write_text(path);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(errno));
    enum status st = write(r->plans.plan[0], r->model, &r->s->plan, f);
    if (fclose(f) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

/* Writes config.yaml into r->texts.settings, for the run and its checkpoints. Its absolute `out` shows later that a run was
 * moved. */
static enum status describe_settings(struct run *r)
{
    size_t size;
    struct settings s = *r->s;
    s.out = strdup(s.out);
    FILE *f = open_memstream(&r->texts.settings, &size);
    enum status st = f && s.out ? settings_absolute_path(&s.out) : status_fail(ERR_NOMEM, "out of memory: config.yaml");
    if (st == OK)
        st = r->hooks->write_config(&s, f);
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory: config.yaml");
    free(s.out);
    return st;
}

/* Writes config.yaml, synced and renamed into place: a run killed meanwhile can still be resumed with the former file. */
enum status run_write_config(struct run *r, const char *dir)
{
    char path[4096], partial[4096];
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    snprintf(partial, sizeof partial, "%s/config.yaml.partial", dir);
    FILE *f = sys_write_text(partial);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, sys_strerror(errno));
    int failed = fputs(r->texts.settings, f) < 0 || fflush(f) != 0 || sys_fsync(fileno(f)) != 0;
    if (fclose(f) != 0 || failed)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (sys_rename(partial, path) != 0)
        return status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    return OK;
}

/* Tells whether the run has a checkpoint of that step, whole or not. */
static int was_saved(const char *run, int64_t step)
{
    char path[4096];
    struct steps l;
    int saved = 0;
    if (snprintf(path, sizeof path, "%s/checkpoints", run) >= (int)sizeof path || steps_list(path, &l) != OK)
        return 0;
    for (int i = 0; i < l.n; i++)
        saved |= l.dirs[i].step == step && l.dirs[i].form != STEP_PARTIAL;
    steps_free(&l);
    return saved;
}

/* Cuts the log of a resumed run, which may have gone further than its last checkpoint. */
static enum status cut_log(const struct run *r, const char *path)
{
    int64_t last;
    TRY(metrics_cut(path, r->at.step, &last));
    if (last > r->at.step)
        printf("resume: the run had come to step %lld, %s: what follows step %lld is trained again\n", (long long)last,
               was_saved(r->s->resume, last) ? "whose checkpoint is passed over" : "which was not saved", (long long)r->at.step);
    return OK;
}

/* Opens config.yaml, data.txt, card.json, plan.txt, plan.json and metrics.jsonl. */
enum status run_open_files(struct run *r)
{
    char path[4096];
    TRY(run_keep_original(r));
    TRY(describe_settings(r));
    TRY(run_write_config(r, r->s->out));
    TRY(run_write_data_list(r));
    TRY(facts_begin(r));
    TRY(write_plan(r, "plan.txt", plan_print));
    TRY(write_plan(r, "plan.json", write_plan_json));
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->s->out);
    TRY(r->s->resume ? cut_log(r, path) : run_keep_log(r->s->out));
    return run_log_open(path, r->s->resume != NULL, &r->metrics);
}
