#include "plan/roles.h"

#include "base/sys.h"
#include "model/part.h"
#include "plan/lower/mesh.h"
#include "verify/mesh.h"

#include <stdlib.h>

/* ---- planning ---- */

/* Returns the request of a further role: the settings, with the first role's decisions that may change bits. */
static struct plan_request request_like(const struct plan_request *s, const struct strategy *first)
{
    struct plan_request r = *s;
    plan_take_mesh(&r, &first->key.mesh);
    r.open_degrees = 0;
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

/* Finds or adds the role of a part. */
static enum status find_role(struct plan_roles *x, const struct model *whole, const struct model_part *part, int *role)
{
    struct model *m = NULL;
    if (!is_all(whole, part))
        TRY(model_part_create(whole, part, &m));
    for (*role = 0; *role < x->n_roles; ++*role)
        if (m ? x->of[*role].made && model_part_alike(x->of[*role].made, m) : !x->of[*role].made) {
            model_destroy(m);
            return OK;
        }
    x->of[x->n_roles++].made = m;
    return OK;
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
    enum status st = OK;
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory: the roles of %d parts", n_parts);
    x->n_parts = n_parts;
    x->role = (int *)(x->of + n_parts);
    for (int i = 0; i < n_parts; i++)
        TRY_GOTO(find_role(x, whole, &part[i], &x->role[i]), fail);
    for (int i = 0; i < x->n_roles; i++) {
        const struct plan_request request = i > 0 ? request_like(s, &x->of[0].plan->strategy) : *s;
        TRY_GOTO(plan_create(x->of[i].made ? x->of[i].made : whole, &request, limit, &x->of[i].plan), fail);
    }
    *out = x->of[x->role[own]].plan;
    (*out)->roles = x;
    return OK;
fail:
    destroy_roles(x);
    return st;
}

/* ---- all roles together ---- */

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

/* ---- verifying ---- */

enum { TABLES = 1 + 2 * COMM_LANES };

/* Fills in each rank's role, and its group and index on every comm lane. table: TABLES arrays of n. */
static struct mesh_roles ranks_of(const struct plan *p, int n, int32_t *table)
{
    struct mesh_roles mesh = {.n_ranks = n, .role = table};
    const int each = p->strategy.ranks;
    for (int k = 0; k < n && p->roles; k++)
        table[k] = p->roles->role[k / each];
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

/* Verifies one program of all roles together. */
static enum status verify_program(const struct plan *p, int which, const struct mesh_roles *mesh, const struct program **roles)
{
    for (int i = 0; i < plan_n_roles(p); i++)
        roles[i] = plan_of_role(p, i)->programs[which];
    return roles[0] ? program_verify_mesh(roles, plan_n_roles(p), mesh) : OK;
}

enum status plan_verify_ranks(const struct plan *p)
{
    const int n = p->strategy.ranks * (p->roles ? p->roles->n_parts : 1), n_roles = plan_n_roles(p);
    for (int i = 0; i < n_roles; i++)
        TRY(plan_verify(plan_of_role(p, i)));
    if (n == 1)
        return OK;
    int32_t *table = sys_calloc((size_t)TABLES * (size_t)n, sizeof *table);
    const struct program **roles = sys_calloc((size_t)n_roles, sizeof *roles);
    enum status st = table && roles ? OK : status_fail(ERR_NOMEM, "out of memory while verifying");
    if (st == OK) {
        const struct mesh_roles mesh = ranks_of(p, n, table);
        for (int which = 0; which < PLAN_PROGRAMS && st == OK; which++)
            st = verify_program(p, which, &mesh, roles);
    }
    free(roles);
    free(table);
    return st;
}
