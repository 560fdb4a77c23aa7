#include "plan/roles.h"

#include "base/sys.h"
#include "machine/islands.h"
#include "model/part.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/lower/mesh_parts.h"
#include "plan/program_set.h"
#include "plan/ticks.h"
#include "verify/mesh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- planning ---- */

/* Returns the request for a further role: the settings, with the numerics key that the first role's plan decided on. */
static struct plan_request request_like(const struct plan_request *s, const struct strategy *first)
{
    struct plan_request r = *s;
    plan_take_mesh(&r, &first->key.mesh, first->key.packed);
    r.open_degrees = 0;
    r.packing_is_open = 0;
    r.stage_ahead = first->ahead;
    r.zero = first->ranks > 1 ? first->key.zero : r.zero;
    r.row_chunk = first->key.row_chunk;
    r.head_tile = first->key.head_tile;
    r.loss_tile = first->key.loss_tile;
    r.group = first->key.group;
    return r;
}

static int is_all(const struct model *whole, const struct model_part *part)
{
    return part->first_layer == 0 && part->layers == whole->config.layers && part->slices == 1;
}

/* Tells whether parts on two islands may share a role: nothing of the islands differs. */
static int same_island(const struct islands *x, int a, int b)
{
    return !x || a == b || memcmp(&x->of[a], &x->of[b], sizeof *x->of) == 0;
}

/* Finds or adds the role of a part. */
static enum status find_role(struct plan_roles *x, const struct model *whole, const struct model_part *part,
                             const struct islands *islands, int island, int *role)
{
    struct model *m = NULL;
    if (!is_all(whole, part))
        TRY(model_part_create(whole, part, &m));
    for (*role = 0; *role < x->n_roles; ++*role)
        if (same_island(islands, x->of[*role].island, island) &&
            (m ? x->of[*role].made && model_part_alike(x->of[*role].made, m) : !x->of[*role].made)) {
            model_destroy(m);
            return OK;
        }
    x->of[x->n_roles].island = island;
    x->of[x->n_roles++].made = m;
    return OK;
}

/* Plans a role, on its island. first: the first role's plan, NULL for the first role itself; stages share its placement, so that all ranks exchange
 * messages in one order. */
static enum status plan_role(const struct model *whole, const struct plan_role *role, const struct plan_request *s,
                             const struct plan *first, const int64_t limit[TIERS], struct plan **out)
{
    const struct model *m = role->made ? role->made : whole;
    struct problem problem;
    struct candidate like;
    double excess;
    struct plan_request request = first ? request_like(s, &first->strategy) : *s;
    if (mesh_islands(s))
        request.hardware = (struct hardware *)&mesh_islands(s)->of[role->island];
    if (!first)
        return plan_create(m, &request, limit, out);
    if (strategy_stages(&first->strategy) == 1)
        return plan_create(m, &request, limit, out);
    struct model *slice;
    TRY(plan_slice_create(m, &request, &slice));
    problem_set(&problem, slice ? slice : m, &request, limit);
    like = (struct candidate){.strategy = first->strategy, .level = first->level, .tried = 1};
    const enum status st = plan_candidate(&problem, &like, 0, &excess, out);
    if (st == OK)
        (*out)->slice = slice;
    else
        model_destroy(slice);
    return st;
}

/* Returns the role with the most layers, whose placement all stages share: it needs the most memory. */
static int largest_role(const struct plan_roles *x)
{
    int most = 0;
    for (int i = 1; i < x->n_roles; i++)
        if (x->of[i].made && x->of[most].made && x->of[i].made->config.layers > x->of[most].made->config.layers)
            most = i;
    return most;
}

/* Finds the seconds of a step of stages that run different programs, and notes them in all of their plans. */
static enum status time_stages(struct plan_roles *x)
{
    const struct plan **of = sys_calloc((size_t)x->n_parts, sizeof(struct plan *));
    int fits = of != NULL;
    for (int i = 0; i < x->n_parts && fits; i++) {
        of[i] = x->of[x->role[i]].plan;
        fits = of[i]->fits;
    }
    const double seconds = fits ? ticks_seconds_of(of) : 0;
    for (int i = 0; i < x->n_roles && fits; i++)
        x->of[i].plan->seconds = seconds;
    free(of);
    return of ? OK : status_fail(ERR_NOMEM, "out of memory: the plans of %d stages", x->n_parts);
}

static void destroy_roles(struct plan_roles *x)
{
    for (int i = 0; i < x->n_roles; i++) {
        plan_destroy(x->of[i].plan);
        model_destroy(x->of[i].made);
    }
    free(x);
}

enum status plan_roles_create(const struct model *whole, const struct model_part *part, int n_parts, int own,
                              const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct plan_roles *x = sys_calloc(1, sizeof *x + (size_t)n_parts * sizeof *x->of + (size_t)n_parts * sizeof *x->role);
    const struct islands *islands = mesh_islands(s);
    enum status st = OK;
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory: the roles of %d parts", n_parts);
    x->n_parts = n_parts;
    x->role = (int *)(x->of + n_parts);
    for (int i = 0; i < n_parts; i++)
        TRY_GOTO(find_role(x, whole, &part[i], islands, islands ? islands_of_stage(islands, i, n_parts) : 0, &x->role[i]), fail);
    const int lead = largest_role(x);
    TRY_GOTO(plan_role(whole, &x->of[lead], s, NULL, limit, &x->of[lead].plan), fail);
    for (int i = 0; i < x->n_roles; i++)
        if (i != lead)
            TRY_GOTO(plan_role(whole, &x->of[i], s, x->of[lead].plan, limit, &x->of[i].plan), fail);
    if (n_parts == strategy_stages(&x->of[lead].plan->strategy) && x->n_roles > 1)
        TRY_GOTO(time_stages(x), fail);
    *out = x->of[x->role[own]].plan;
    (*out)->roles = x;
    return OK;
fail:
    destroy_roles(x);
    return st;
}

/* Tells whether the plans of all roles fit. */
static int all_fit(const struct plan *p)
{
    int fits = p->fits;
    for (int i = 0; i < plan_n_roles(p); i++)
        fits &= plan_of_role(p, i)->fits;
    return fits;
}

/* Tells whether all state and activations stay on the device, so that less of them would save no time. */
static int is_resident(const struct plan *p)
{
    return p->fits && p->peak[TIER_HOST][CLASS_GRAD] + p->peak[TIER_HOST][CLASS_OPTIM] + p->peak[TIER_HOST][CLASS_PARAM] +
                              p->peak[TIER_HOST][CLASS_ACT] + p->arena[TIER_NVME] ==
                          0;
}

/* Plans another request for stages; if that plan is faster, takes it, and sets *s to the request. */
static enum status try_other(const struct model *m, const struct model_part *part, int own, const struct plan_request *another,
                             const int64_t limit[TIERS], struct plan_request *s, struct plan **out)
{
    struct plan *other;
    TRY(plan_roles_create(m, part, mesh_degree(&s->mesh, MESH_PP), own, another, limit, &other));
    const int better = all_fit(other) && (!all_fit(*out) || plan_step_seconds(other) < plan_step_seconds(*out));
    plan_destroy(better ? *out : other);
    if (better) {
        *out = other;
        *s = *another;
    }
    return OK;
}

/* Tries gradients on the device where the search has put them elsewhere, with activations wherever and in host memory: the search weighs
 * one piece beside an update, but all pieces add to the gradients. */
static enum status try_gradients(const struct model *m, const struct model_part *part, int own, const int64_t limit[TIERS],
                                 struct plan_request *s, struct plan **out)
{
    struct plan_request other = *s;
    if (s->grads != OFFLOAD_AUTO || plan_pieces_of(s) == 1 || s->evaluation || (*out)->strategy.placement.grads == RES_DEVICE)
        return OK;
    other.grads = OFFLOAD_NONE;
    TRY(try_other(m, part, own, &other, limit, s, out));
    if (other.acts != OFFLOAD_AUTO)
        return OK;
    other.acts = OFFLOAD_CPU;
    return try_other(m, part, own, &other, limit, s, out);
}

/* Chooses the ZeRO stage. Stage 1 sends the least, since 2 and 3 send gradients or parameters of every piece: these are tried only where
 * stage 1 leaves something off the device. seconds: by stage, as plan.h says. */
static enum status choose_zero(const struct model *m, const struct model_part *part, const int64_t limit[TIERS],
                               struct plan_request *s, double seconds[4])
{
    struct plan_request brief = *s;
    int resident = 0;
    if (s->zero != AUTO)
        return OK;
    brief.stage_ahead = s->stage_ahead == AUTO ? mesh_degree(&s->mesh, MESH_SLICES) > 1 : s->stage_ahead;
    s->zero = 3;
    seconds[3] = INFINITY;
    for (brief.zero = 1; brief.zero <= 3 && !resident; brief.zero++) {
        struct plan *p;
        TRY(plan_roles_create(m, part, mesh_degree(&s->mesh, MESH_PP), 0, &brief, limit, &p));
        struct plan_request own = brief;
        const enum status st = try_gradients(m, part, 0, limit, &own, &p);
        if (st != OK) {
            plan_destroy(p);
            return st;
        }
        resident = is_resident(p);
        seconds[brief.zero] = all_fit(p) ? plan_step_seconds(p) : INFINITY;
        s->zero = seconds[brief.zero] < seconds[s->zero] ? brief.zero : s->zero;
        plan_destroy(p);
    }
    return OK;
}

/* Tries messages that travel a tick later, if slices leave most ticks with one pass only. */
static enum status try_ahead(const struct model *m, const struct model_part *part, int own, const int64_t limit[TIERS],
                             struct plan_request *s, struct plan **out)
{
    struct plan_request ahead = *s;
    if (s->stage_ahead != AUTO || strategy_slices(&(*out)->strategy) == 1)
        return OK;
    ahead.stage_ahead = 1;
    return try_other(m, part, own, &ahead, limit, s, out);
}

/* Plans stages briefly, and sets what brief plans decide in *s: ZeRO stage, gradients' tier, and when messages travel. */
static enum status plan_briefly(const struct model *m, const struct model_part *part, int own, const int64_t limit[TIERS],
                                struct plan_request *s, double seconds[4], struct plan **out)
{
    struct plan_request brief = *s;
    brief.effort = EFFORT_QUICK;
    TRY(choose_zero(m, part, limit, &brief, seconds));
    TRY(plan_roles_create(m, part, mesh_degree(&s->mesh, MESH_PP), own, &brief, limit, out));
    enum status st = try_gradients(m, part, own, limit, &brief, out);
    if (st == OK)
        st = try_ahead(m, part, own, limit, &brief, out);
    brief.effort = s->effort;
    *s = brief;
    if (st != OK) {
        plan_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* Takes the brief plan if it is the faster one: a longer search weighs one program of a rank, and not its ticks. */
static void take_faster(struct plan **brief, struct plan **out)
{
    if (!all_fit(*brief) || (all_fit(*out) && plan_step_seconds(*out) <= plan_step_seconds(*brief)))
        return;
    struct plan *slower = *out;
    (*brief)->effort = slower->effort;
    *out = *brief;
    *brief = slower;
}

enum status plan_stages_create(const struct model *m, const struct plan_request *s, int own, const int64_t limit[TIERS],
                               struct plan **out)
{
    const int stages = mesh_degree(&s->mesh, MESH_PP);
    struct plan_request at = *s;
    struct plan *brief = NULL;
    struct model_part *part;
    double tried[4] = {0};
    enum status st = OK;
    if (stages == 1)
        return plan_roles_create(m, &m->part, 1, 0, s, limit, out);
    part = sys_calloc((size_t)stages, sizeof *part);
    if (!part)
        return status_fail(ERR_NOMEM, "out of memory: the parts of %d stages", stages);
    for (int i = 0; i < stages && st == OK; i++)
        st = model_stage_of(m, &s->stage_layers, i, stages, 0, 1, &part[i]);
    if (st == OK)
        st = plan_briefly(m, part, own, limit, &at, tried, &brief);
    if (st == OK && s->effort == EFFORT_QUICK)
        *out = brief;
    else if (st == OK)
        st = plan_roles_create(m, part, stages, own, &at, limit, out);
    if (st == OK && *out != brief)
        take_faster(&brief, out);
    if (st == OK)
        memcpy((*out)->zero_tried, tried, sizeof tried);
    if (st != OK || *out != brief)
        plan_destroy(brief);
    free(part);
    return st;
}

/* ---- all roles together ---- */

void plan_show_misfit(struct plan **p)
{
    struct plan_roles *x = (*p)->roles;
    for (int i = 0; x && i < x->n_roles && (*p)->fits; i++)
        if (!x->of[i].plan->fits) {
            (*p)->roles = NULL;
            *p = x->of[i].plan;
            (*p)->roles = x;
        }
}

int plan_n_roles(const struct plan *p)
{
    return p->roles ? p->roles->n_roles : 1;
}

const struct plan *plan_of_role(const struct plan *p, int role)
{
    return p->roles ? p->roles->of[role].plan : p;
}

double plan_step_seconds(const struct plan *p)
{
    double most = 0;
    for (int i = 0; i < plan_n_roles(p); i++)
        most = plan_of_role(p, i)->seconds > most ? plan_of_role(p, i)->seconds : most;
    return most;
}

double plan_peak_flops(const struct plan *p)
{
    const struct plan_roles *x = p->roles;
    double sum = 0;
    for (int i = 0; x && i < x->n_parts; i++)
        sum += x->of[x->role[i]].plan->cost.peak_flops / x->n_parts;
    return x ? sum : p->cost.peak_flops;
}

/* ---- verifying ---- */

enum { TABLES = 1 + 2 * COMM_LANES };

/* Returns the number of ranks that share one part. The stages of a pipeline divide the mesh; other parts have a mesh each. */
static int ranks_of_part(const struct plan *p)
{
    return p->strategy.ranks / strategy_stages(&p->strategy);
}

/* Returns the role of a part. */
static int role_of(const struct plan *p, int part)
{
    return p->roles ? p->roles->role[part] : 0;
}

/* Fills in each rank's group and index on every comm lane. table: TABLES arrays of n, of which the first is for roles. */
static struct mesh_roles ranks_of(const struct plan *p, int n, int32_t *table)
{
    struct mesh_roles mesh = {.n_ranks = n, .chained = p->strategy.discrete, .role = table};
    const int each = p->strategy.ranks;
    for (int l = LANE_WORLD; l < LANES; l++) {
        int32_t *group = table + n * (1 + 2 * lane_comm((enum lane)l)), *member = group + n;
        for (int k = 0; k < n; k++) {
            const struct mesh_group g = mesh_group_of(&p->strategy.key.mesh, (enum lane)l, k % each);
            group[k] = k / each * each + g.first;
            member[k] = g.member;
        }
        mesh.group[l] = group;
        mesh.member[l] = member;
    }
    return mesh;
}

/* Verifies the programs that the parts run at the same time, one of each part. */
static enum status verify_together(const struct plan *p, int n_parts, const struct program *const *of_part,
                                   struct mesh_roles *mesh, int32_t *role, const struct program **distinct)
{
    const int each = ranks_of_part(p);
    int n = 0;
    for (int part = 0; part < n_parts; part++) {
        int k = 0;
        while (k < n && distinct[k] != of_part[part])
            k++;
        if (k == n)
            distinct[n++] = of_part[part];
        for (int r = part * each; r < (part + 1) * each; r++)
            role[r] = k;
    }
    return program_verify_mesh(distinct, n, mesh);
}

/* Verifies a pipeline tick by tick; a tick whose stages run what they ran in the one before is verified already. */
static enum status verify_ticks(const struct plan *p, const struct ticks *t, int n_parts, const struct program **programs,
                                struct mesh_roles *mesh, int32_t *role)
{
    const struct program **before = programs + n_parts * TICK_MOST, **distinct = before + n_parts * TICK_MOST;
    for (int64_t k = 0; k < ticks_count(t); k++) {
        int n = 0;
        for (int s = 0; s < n_parts; s++) {
            struct tick_work work[TICK_MOST];
            n = ticks_list(t, s, k, work);
            for (int i = 0; i < n; i++)
                programs[i * n_parts + s] = plan_of_role(p, role_of(p, s))->programs[work[i].program];
        }
        for (int i = 0; i < n; i++)
            if (memcmp(&before[i * n_parts], &programs[i * n_parts], (size_t)n_parts * sizeof *programs) != 0)
                TRY(verify_together(p, n_parts, &programs[i * n_parts], mesh, role, distinct));
        memcpy(before, programs, (size_t)(n_parts * TICK_MOST) * sizeof *programs);
    }
    return OK;
}

/* Verifies the programs of all parts together: programs of one name, or for a pipeline those of each tick. */
static enum status verify_parts(const struct plan *p, int n_parts, const struct program **programs, struct mesh_roles *mesh,
                                int32_t *role)
{
    const int stages = strategy_stages(&p->strategy);
    for (int which = 0; which < PLAN_PROGRAMS; which++) {
        for (int part = 0; part < n_parts; part++)
            programs[part] = plan_of_role(p, role_of(p, part))->programs[which];
        if (programs[0] && (stages == 1 || which == PLAN_FLUSH))
            TRY(verify_together(p, n_parts, programs, mesh, role, programs + n_parts));
    }
    if (stages == 1)
        return OK;
    const struct ticks training = plan_ticks(p), evaluation = plan_evaluation_ticks(p, 1);
    TRY(verify_ticks(p, &training, n_parts, programs, mesh, role));
    return p->programs[PLAN_EVAL] ? verify_ticks(p, &evaluation, n_parts, programs, mesh, role) : OK;
}

enum status plan_verify_ranks(const struct plan *p)
{
    const int n_parts = p->roles ? p->roles->n_parts : 1, n = ranks_of_part(p) * n_parts, n_roles = plan_n_roles(p);
    for (int i = 0; i < n_roles; i++)
        TRY(plan_verify(plan_of_role(p, i)));
    if (n == 1)
        return OK;
    int32_t *table = sys_calloc((size_t)TABLES * (size_t)n, sizeof *table);
    const struct program **programs = sys_calloc((size_t)(n_parts * (2 * TICK_MOST + 1)), sizeof *programs);
    enum status st = table && programs ? OK : status_fail(ERR_NOMEM, "out of memory while verifying");
    if (st == OK) {
        struct mesh_roles mesh = ranks_of(p, n, table);
        st = verify_parts(p, n_parts, programs, &mesh, table);
    }
    free(programs);
    free(table);
    return st;
}
