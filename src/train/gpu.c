/* The choice of a GPU before planning. */
#include "train/gpu.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "data/fingerprint.h"
#include "engine/cuda_target.h"
#include "offload/places.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE ((int64_t)256 << 20) /* kept free beside 2% of the free memory */
/* Memory of NCCL's connections to a peer. NCCL 2.28 has up to 32 channels of 12 MiB (10 to receive and 2 to send) between two
 * GPUs behind NVSwitch. Its ring takes as much again (transport/p2p.cc). Read from its source, not measured. */
#define CONNECTION ((int64_t)384 << 20)

/* Describes the GPU that this rank would have; *visible: the number of GPUs. */
static enum status describe_own(const struct settings *s, const struct comm *comm, int *visible, struct device_facts *facts)
{
    const struct device_plugin *plugin;
    TRY(device_plugin_load(&plugin));
    enum status st = plugin->count(visible);
    if (st == OK && s->gpu >= *visible)
        return status_fail(ERR_INVALID, "--device cuda:%d: GPUs that are here: %d, numbered from 0", s->gpu, *visible);
    if (st == OK)
        st = plugin->describe(s->gpu >= 0 ? s->gpu : comm_local_rank(comm) % *visible, facts);
    return st == OK ? OK : status_fail(st, "%s", plugin->sentence());
}

static int runs(const struct settings *s, const struct device_facts *facts)
{
    return facts->capability == 0 || s->plan.dtype == BF16 || s->dtype_is_open;
}

static enum status check_size(const struct model *m, const char *what, int64_t n)
{
    if (n % 8 != 0)
        return status_fail(ERR_INVALID, "--model %s has %s of %lld: kernels of GPUs take multiples of 8; --device cpu takes any",
                           m->config.name, what, (long long)n);
    return OK;
}

static enum status check_head_dim(const struct model *m, int64_t head_dim, int capability)
{
    const int most = cuda_target_shared_bytes(capability) >= cuda_target_shared_bytes(80) ? 512 : 256;
    TRY(check_size(m, "a head dimension", head_dim));
    if (head_dim > most)
        return status_fail(ERR_INVALID, "--model %s has a head dimension of %d: attention on this GPU takes up to %d",
                           m->config.name, (int)head_dim, most);
    return OK;
}

/* Checks latents, and the heads' own parts of keys, which are columns of products. */
static enum status check_latents(const struct model *m, const struct attention_shape *s)
{
    TRY(check_size(m, "a latent of keys and values", s->kv_latent));
    TRY(check_size(m, "a latent of queries", s->q_latent));
    return check_size(m, "a rotated part of a head", s->rotated);
}

enum status gpu_settle_type(struct settings *s, const struct model *m, int capability)
{
    if (s->dtype_is_open)
        s->plan.dtype = capability > 0 ? BF16 : F32;
    s->dtype_is_open = 0;
    if (capability == 0)
        return OK;
    if (s->plan.dtype != BF16)
        return status_fail(ERR_INVALID,
                           "--dtype fp32: attention on GPUs computes in bf16: leave --dtype out (master weights, moments "
                           "and sums stay fp32), or give --device cpu");
    TRY(check_size(m, "a hidden size", m->config.dim));
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_block *b = model_find_block(&m->layers[m->kinds[k].first], BLOCK_MLP);
        if (b)
            TRY(check_size(m, "an intermediate size", b->mlp.up.out));
    }
    for (int i = 0; i < m->n_shapes; i++) {
        TRY(check_head_dim(m, m->shapes[i].head_dim, capability));
        TRY(check_head_dim(m, m->shapes[i].value_dim, capability));
        TRY(check_latents(m, &m->shapes[i]));
    }
    return OK;
}

enum status gpu_find(struct settings *s, struct comm *comm)
{
    struct device_facts facts;
    int visible, found = 0;
    if (device_plugin_expected()) {
        found = describe_own(s, comm, &visible, &facts) == OK;
        if (!found)
            snprintf(s->unused_gpu, sizeof s->unused_gpu, "%s", status_message());
        else if (!runs(s, &facts))
            snprintf(s->unused_gpu, sizeof s->unused_gpu, "%s computes in bf16: give --dtype bf16", facts.name);
        found = found && !s->unused_gpu[0];
    }
    int *all = sys_calloc((size_t)comm_size(comm), sizeof *all);
    if (!all)
        return status_no_memory("while planning");
    enum status st = comm_gather(comm, &found, sizeof found, all);
    for (int k = 0; k < comm_size(comm); k++)
        found &= all[k];
    free(all);
    s->plan.device = found ? DEVICE_CUDA : DEVICE_CPU;
    return st;
}

/* Returns a rank's part of the free memory. */
static int64_t part_of_free(const struct settings *s, const struct comm *comm, const struct device_facts *facts)
{
    const int carried = comm_size(comm) > 1 && !s->staged;
    const int64_t messages = carried ? min_i64(comm_local_size(comm) * CONNECTION, facts->free / 16) : 0;
    return (facts->free - facts->free / 50 - min_i64(RESERVE, facts->free / 16) - messages) / s->gpu_sharing;
}

enum status gpu_room(const struct settings *s, const struct comm *comm, int64_t *bytes)
{
    struct device_facts facts;
    int visible;
    TRY(describe_own(s, comm, &visible, &facts));
    *bytes = part_of_free(s, comm, &facts);
    return OK;
}

/* A rank's GPU, identified independently of its number: launchers may show each rank only its own GPU, as number 0. */
struct card {
    char pci[sizeof((struct device_facts *)NULL)->pci], uuid[sizeof((struct device_facts *)NULL)->uuid];
};

static int is_same_card(const struct comm *c, const struct card *all, int rank, int other)
{
    return strcmp(comm_host(c, rank), comm_host(c, other)) == 0 && strcmp(all[rank].pci, all[other].pci) == 0;
}

/* Counts the ranks that share this GPU. Instances of one GPU (MIG) have memory of their own, but NCCL does not work between them:
 * messages of all ranks are staged if any two share a card. */
static void count_sharing(struct settings *s, const struct comm *c, const struct card *all)
{
    const int me = comm_rank(c), n = comm_size(c);
    s->gpu_sharing = 0;
    s->staged = n > 1 && s->carrier == CARRIER_STAGED;
    for (int k = 0; k < n; k++) {
        s->gpu_sharing += is_same_card(c, all, k, me) && strcmp(all[k].uuid, all[me].uuid) == 0;
        for (int q = 0; q < k; q++)
            s->staged |= is_same_card(c, all, k, q);
    }
}

static enum status find_sharing(struct settings *s, struct comm *comm, const struct device_facts *facts)
{
    struct card own, *all = sys_calloc((size_t)comm_size(comm), sizeof *all);
    if (!all)
        return status_no_memory("while planning");
    memcpy(own.pci, facts->pci, sizeof own.pci);
    memcpy(own.uuid, facts->uuid, sizeof own.uuid);
    enum status st = comm_gather(comm, &own, sizeof own, all);
    if (st == OK)
        count_sharing(s, comm, all);
    free(all);
    return st;
}

static enum status limit_own(const struct settings *s, const struct comm *comm, const struct device_facts *facts, int64_t *bytes)
{
    char asked[32], there[32];
    *bytes = s->plan.device_mem >= 0 ? s->plan.device_mem : part_of_free(s, comm, facts);
    if (*bytes <= facts->free)
        return OK;
    units_format_apart(*bytes, facts->free, asked, there);
    return status_fail(ERR_NOFIT,
                       "--device-mem: %s are more than the %s that are free on the GPU (%s): leave it out, or give less", asked,
                       there, facts->name);
}

/* Takes the fingerprint of the plugin's file, which holds the kernels; ranks have compared the executable already. */
static enum status identify_plugin(struct fingerprint *out, Dl_info *file)
{
    const struct device_plugin *plugin;
    TRY(device_plugin_load(&plugin));
    if (!dladdr(plugin, file) || !file->dli_fname)
        return status_fail(ERR_INVALID, "--device cuda: it is not known which file the CUDA plugin is");
    return fingerprint_take(file->dli_fname, NULL, NULL, out);
}

static enum status compare_plugins(struct comm *comm)
{
    struct fingerprint own;
    Dl_info file;
    TRY(comm_agree(comm, identify_plugin(&own, &file)));
    uint64_t first = own.xxh3;
    TRY(comm_broadcast(comm, 0, &first, sizeof first));
    return comm_agree(comm, first == own.xxh3
                                ? OK
                                : status_fail(ERR_INVALID,
                                              "--device cuda: %s (%016llx) is another build than rank 0's plugin "
                                              "(%016llx): all hosts need the same program",
                                              file.dli_fname, (unsigned long long)own.xxh3, (unsigned long long)first));
}

/* Makes sure that all ranks have one kind of GPU, which programs are made for. */
static enum status compare_kinds(struct comm *comm, const struct device_facts *own)
{
    struct device_facts first = *own;
    TRY(comm_broadcast(comm, 0, &first, sizeof first));
    const int same =
        first.capability == own->capability && first.processors == own->processors && first.shared_bytes == own->shared_bytes;
    return comm_agree(comm, same
                                ? OK
                                : status_fail(ERR_INVALID,
                                              "--device cuda: the GPU here is %s (compute capability %d.%d, %d multiprocessors), "
                                              "rank 0 has %s (%d.%d, %d): all ranks need GPUs of one kind",
                                              own->name, own->capability / 10, own->capability % 10, own->processors, first.name,
                                              first.capability / 10, first.capability % 10, first.processors));
}

enum status gpu_limit(struct settings *s, struct comm *comm, struct device_facts *facts, int64_t *bytes)
{
    int visible;
    TRY(comm_agree(comm, describe_own(s, comm, &visible, facts)));
    TRY(find_sharing(s, comm, facts));
    TRY(comm_agree(comm, limit_own(s, comm, facts, bytes)));
    snprintf(s->gpu_name, sizeof s->gpu_name, "%.127s", facts->name);
    places_choose_node(facts->numa); /* before the host arena is made and threads that copy to and from it are started */
    if (comm_size(comm) == 1)
        return OK;
    TRY(compare_plugins(comm));
    return compare_kinds(comm, facts);
}
