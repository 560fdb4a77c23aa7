/* Prints what the search's closed form says of every mesh, for bench/planner/galvatron.py: `closed_form MODEL TOKENS BATCH MACHINE`.
 *
 * MACHINE is a data sheet's name (16xa100-80) or a machine file. A line for each mesh, number of slices, sequences in a micro-batch and
 * ZeRO stage: dp ulysses ring tp pp slices packed zero micro-batches, the share of all memory that is needed, and seconds of a step with
 * each of BUDGETS times the device's memory. The first line: layers, hidden numbers, bytes a second inside a node, ranks, budgets. */
#include "base/units.h"
#include "engine/backend_cpu.h"
#include "machine/hardware.h"
#include "model/config/config.h"
#include "model/part.h"
#include "plan/lower/mesh.h"
#include "plan/lower/mesh_parts.h"
#include "plan/search/mesh_seconds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BUDGETS[] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4};
enum { N_BUDGETS = sizeof BUDGETS / sizeof *BUDGETS, MOST_PARTS = 256, MOST_MESHES = 512 };

struct asked {
    struct hardware hardware;
    struct target target;
    struct plan_request s;
    int64_t limit[TIERS];
    struct model *whole;
};

static enum status find_machine(const char *name, struct hardware *out)
{
    FILE *f = fopen(name, "r");
    const enum status st = f ? hardware_read(name, f, out) : hardware_preset(name, out);
    if (f)
        fclose(f);
    return st;
}

static enum status open_request(char **argv, struct asked *x)
{
    struct model_config config;
    TRY(model_preset(argv[1], &config));
    const int64_t tokens = atoll(argv[2]), batch = atoll(argv[3]);
    config.max_positions = tokens > config.max_positions ? tokens : config.max_positions;
    TRY(model_create(&config, NULL, 0, &x->whole));
    TRY(find_machine(argv[4], &x->hardware));
    const int ranks = x->hardware.nodes * x->hardware.devices;
    hardware_limits(&x->hardware, ranks, x->limit);
    x->target = backend_cpu_target(2);
    x->s = (struct plan_request){.seq_len = tokens,
                                 .micro_batch = batch > 1 ? AUTO : 1,
                                 .grad_accum = 1,
                                 .batch = batch,
                                 .zero = 3,
                                 .zero_is_unsaid = 1,
                                 .alpha = AUTO,
                                 .prefetch = AUTO,
                                 .stage_ahead = AUTO,
                                 .device = DEVICE_CUDA,
                                 .row_chunk = AUTO,
                                 .head_tile = AUTO,
                                 .loss_tile = AUTO,
                                 .group = AUTO,
                                 .dtype = BF16,
                                 .grad_dtype = F32,
                                 .threads = AUTO,
                                 .machine = argv[4],
                                 .hardware = &x->hardware,
                                 .target = &x->target,
                                 .mesh = mesh_uniform(AUTO)};
    printf("%lld %lld %g %d", (long long)config.layers, (long long)config.dim, x->hardware.inside, ranks);
    for (int i = 0; i < N_BUDGETS; i++)
        printf(" %g", BUDGETS[i]);
    printf("\n");
    return plan_mesh(x->whole, &x->s, ranks, x->hardware.devices);
}

static void print_one(const struct asked *x, const struct model *m, const struct mesh_products *products, const struct mesh *mesh,
                      int64_t packed, int zero)
{
    struct plan_request r = x->s;
    struct mesh_figures f[N_BUDGETS];
    plan_take_mesh(&r, mesh, packed);
    r.zero = zero;
    for (int i = 0; i < N_BUDGETS; i++) {
        int64_t limit[TIERS];
        memcpy(limit, x->limit, sizeof limit);
        limit[TIER_DEVICE] = (int64_t)(BUDGETS[i] * (double)limit[TIER_DEVICE]);
        if (mesh_seconds(m, products, &r, limit, &f[i]) != OK)
            return; /* settings or the model do not allow it */
    }
    static const enum mesh_dim dims[] = {MESH_DP, MESH_ULYSSES, MESH_RING, MESH_TP, MESH_PP, MESH_SLICES};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        printf("%d ", mesh_degree(mesh, dims[d]));
    printf("%lld %d %lld %.6g", (long long)packed, zero, (long long)r.grad_accum, f[N_BUDGETS / 3].excess);
    for (int i = 0; i < N_BUDGETS; i++)
        printf(" %.8g", f[i].seconds);
    printf("\n");
}

/* Prints all meshes with these parts of layers. */
static void print_parts(const struct asked *x, const struct model *m, const struct mesh *parts)
{
    static struct mesh list[MOST_MESHES];
    struct mesh_products products;
    struct plan_request r = x->s;
    int64_t packed;
    r.mesh = *parts;
    r.open_degrees = (r.batch > 0 ? 1u << MESH_DP : 0) | 1u << MESH_ULYSSES | 1u << MESH_RING;
    mesh_products_of(m, &products);
    const int n = plan_meshes(m, &r, list, MOST_MESHES);
    for (int i = 0; i < n && i < MOST_MESHES; i++)
        for (int k = 0; (packed = plan_packing(&x->s, &list[i], k)) > 0; k++)
            for (int c = 1; list[i].degree[MESH_SLICES] = c, mesh_may_slice(m, &x->s, &list[i]); c *= 2) {
                for (int zero = 1; zero <= 3; zero++)
                    print_one(x, m, &products, &list[i], packed, zero);
                if (mesh_degree(parts, MESH_PP) == 1)
                    break;
            }
}

static enum status print_all(const struct asked *x)
{
    struct mesh parts[MOST_PARTS + 1];
    int n = mesh_list_parts(x->whole, &x->s, parts, MOST_PARTS);
    n = n < MOST_PARTS ? n : MOST_PARTS;
    parts[n] = mesh_uniform(1);
    parts[n].degree[MESH_RING] = x->hardware.nodes * x->hardware.devices;
    for (int i = 0; i <= n; i++) {
        const struct model_part part = {0, x->whole->config.layers, 0, mesh_degree(&parts[i], MESH_TP)};
        struct model *slice = NULL;
        if (part.slices > 1)
            TRY(model_part_create(x->whole, &part, &slice));
        print_parts(x, slice ? slice : x->whole, &parts[i]);
        model_destroy(slice);
    }
    return OK;
}

int main(int argc, char **argv)
{
    struct asked x = {.whole = NULL};
    if (argc != 5) {
        fprintf(stderr, "closed_form MODEL TOKENS BATCH MACHINE\n");
        return 2;
    }
    enum status st = open_request(argv, &x);
    if (st == OK)
        st = print_all(&x);
    if (st != OK)
        fprintf(stderr, "closed_form: %s\n", status_message());
    model_destroy(x.whole);
    return st != OK;
}
