/* Parts of the layers along a mesh: checks and choices. */
#include "plan/lower/mesh_parts.h"

#include "base/num.h"
#include "machine/hardware.h"
#include "machine/islands.h"
#include "model/part.h"
#include "program/target.h"

#include <stdio.h>
#include <string.h>

enum status mesh_check_slices(const struct model *m, const struct plan_request *s)
{
    const int tp = mesh_degree(&s->mesh, MESH_TP);
    if (tp == 1)
        return OK;
    if (mesh_degree(&s->mesh, MESH_EP) > 1)
        return status_fail(ERR_INVALID,
                           "--mesh: tp=%d and ep=%d: experts are shared out between whole layers only: leave one out", tp,
                           mesh_degree(&s->mesh, MESH_EP));
    if (s->row_chunk > 0 && s->row_chunk % tp)
        return status_fail(ERR_INVALID, "--tiles: rows=%lld is not divided by tp=%d: take rows=%lld", (long long)s->row_chunk, tp,
                           (long long)round_up(s->row_chunk, tp));
    if (s->optim_dtype != F32)
        return status_fail(ERR_INVALID,
                           "--optim-dtype %s with --mesh tp=%d: rounding of moments would depend on the slices: take fp32, or "
                           "leave tp out",
                           dtype_name(s->optim_dtype), tp);
    return model_slices_check(m->whole, tp);
}

const struct islands *mesh_islands(const struct plan_request *s)
{
    return s->machine && s->hardware ? s->hardware->islands : NULL;
}

/* Refuses stages that would straddle islands; the sentence lists the least legal numbers. */
static enum status check_islands(const struct islands *x, int pp)
{
    enum { LISTED = 4 };
    char legal[64] = "";
    if (islands_fit(x, pp))
        return OK;
    for (int n = islands_stages(x, 1), i = 0; n > 0 && i < LISTED; n = islands_stages(x, n + 1), i++)
        snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s%d", i ? ", " : "", n);
    return status_fail(ERR_INVALID, "--mesh: pp=%d stages of %d ranks would straddle islands: take pp=%s", pp,
                       islands_all_devices(x) / pp, legal);
}

enum status mesh_check_stages(const struct model *m, const struct plan_request *s)
{
    const int pp = mesh_degree(&s->mesh, MESH_PP);
    struct model_part part;
    if (mesh_islands(s))
        TRY(check_islands(mesh_islands(s), pp));
    if (pp == 1)
        return OK;
    if (s->zero == 0)
        return status_fail(ERR_INVALID, "--mesh: pp=%d: all stages share the embedding and the head: take --zero 1, 2 or 3", pp);
    return model_stage_of(m, &s->stage_layers, 0, pp, 0, 1, &part);
}

/* Least tokens of a slice on one rank, and the most that pieces may wait for each other as a part of them, where slices are chosen. */
enum { SLICE_ROWS = 512, SLICE_WAITS = 8 };

/* Tells whether some block hands rows, or a state, on from token to token, which slices would have to pass on. */
static int has_states(const struct model *m)
{
    return model_has_block(m, BLOCK_RECURRENT) || model_has_block(m, BLOCK_CONV);
}

/* Returns the number of slices that keeps stages busy: the least power of two with which they stand still for an eighth of the pieces
 * at most, as long as slices are not too short. */
static int choose_slices(const struct model *m, const struct plan_request *s)
{
    const int64_t fill = (int64_t)SLICE_WAITS * (mesh_degree(&s->mesh, MESH_PP) - 1),
                  rows = s->micro_batch * s->seq_len / s->mesh.degree[MESH_ULYSSES];
    int slices = 1;
    while (slices * s->grad_accum < fill && rows / (2 * slices) >= SLICE_ROWS)
        slices *= 2;
    return s->mesh.degree[MESH_RING] > 1 || (has_states(m) && s->mesh.degree[MESH_ULYSSES] > 1) ? 1 : slices;
}

enum status mesh_settle_slices(const struct model *m, struct plan_request *s)
{
    const int pp = mesh_degree(&s->mesh, MESH_PP), ulysses = s->mesh.degree[MESH_ULYSSES], ring = s->mesh.degree[MESH_RING];
    int *slices = &s->mesh.degree[MESH_SLICES];
    if (*slices <= 0)
        *slices = pp > 1 ? choose_slices(m, s) : 1;
    if (*slices == 1)
        return OK;
    if (pp == 1)
        return status_fail(ERR_INVALID, "--mesh: slices=%d: only stages take a sequence in slices: give pp, too, or leave it out",
                           *slices);
    if (has_states(m) && ulysses > 1)
        return status_fail(ERR_INVALID,
                           "--mesh: slices=%d and ulysses=%d: the model has blocks whose states pass from slice to slice on one "
                           "rank only: take ulysses=1, or leave slices out",
                           *slices, ulysses);
    if (ring > 1)
        return status_fail(ERR_INVALID, "--mesh: slices=%d and ring=%d: the ranks of a stage share a slice by heads: take ring=1",
                           *slices, ring);
    if (*slices > s->seq_len / ulysses)
        return status_fail(ERR_INVALID, "--mesh: slices=%d are more than the %lld tokens that a rank has of a sequence", *slices,
                           (long long)(s->seq_len / ulysses));
    return OK;
}

int mesh_may_slice(const struct model *m, const struct plan_request *s, const struct mesh *mesh)
{
    const int64_t rows = s->micro_batch * s->seq_len / mesh_degree(mesh, MESH_ULYSSES), slices = mesh_degree(mesh, MESH_SLICES);
    return slices == 1 || ((!has_states(m) || mesh_degree(mesh, MESH_ULYSSES) == 1) && mesh_degree(mesh, MESH_PP) > 1 &&
                           mesh_degree(mesh, MESH_RING) == 1 && rows / slices >= SLICE_ROWS);
}

/* Tells whether stages are given, on a machine that --machine describes, and the number of slices is not. */
static int slices_are_open(const struct plan_request *s)
{
    return s->machine && s->hardware && !s->hardware->islands && !s->evaluation && mesh_degree(&s->mesh, MESH_PP) > 1 &&
           s->mesh.degree[MESH_SLICES] <= 0;
}

unsigned mesh_open_parts(const struct plan_request *s, int ranks, int per_host)
{
    const struct hardware *h = s->hardware;
    unsigned open = 0;
    for (int d = 0; d < MESH_DIMS; d++)
        if (s->mesh.degree[d] > 0)
            return slices_are_open(s) ? 1u << MESH_SLICES : 0;
    if (h && s->machine && h->islands && !s->evaluation)
        return 1u << MESH_PP;
    if (!s->machine || !h || s->evaluation || per_host < 1 || ranks % per_host)
        return 0;
    if (!h->cpu && per_host > 1)
        open |= 1u << MESH_TP;
    if (ranks > per_host)
        open |= 1u << MESH_PP;
    return open;
}

/* Adds a mesh of slices and stages whose ranks share sequences as the search may still change, unless it is refused. */
static void add_parts(const struct model *m, const struct plan_request *s, int tp, int pp, struct mesh *out, int most, int *n)
{
    struct plan_request r = *s;
    r.mesh = mesh_uniform(1);
    r.mesh.degree[MESH_TP] = tp;
    r.mesh.degree[MESH_PP] = pp;
    r.zero = pp > 1 && r.zero_is_unsaid ? AUTO : r.zero;
    if (mesh_check_slices(m, &r) != OK || mesh_check_stages(m, &r) != OK)
        return;
    r.mesh.degree[MESH_RING] = (int)(mesh_ranks(&s->mesh) / (tp * pp));
    if (*n < most)
        out[*n] = r.mesh;
    ++*n;
}

/* Tells whether stages are whole nodes, or equal parts of a node, on a mesh whose layers have `tp` slices. */
static int stages_fit(const struct plan_request *s, int tp, int pp)
{
    const int64_t nodes = mesh_ranks(&s->mesh) / s->per_host;
    return nodes % pp == 0 || (pp % nodes == 0 && s->per_host / tp % (pp / nodes) == 0);
}

int mesh_list_parts(const struct model *m, const struct plan_request *s, struct mesh *out, int most)
{
    const int most_tp = s->open_parts >> MESH_TP & 1 ? s->per_host : 1,
              most_pp = s->open_parts >> MESH_PP & 1 ? (int)min_i64(mesh_ranks(&s->mesh), m->config.layers) : 1;
    int n = 0;
    for (int tp = 1; tp <= most_tp; tp++)
        for (int pp = tp == 1 ? 2 : 1; s->per_host % tp == 0 && pp <= most_pp; pp++)
            if (stages_fit(s, tp, pp))
                add_parts(m, s, tp, pp, out, most, &n);
    return n;
}
