/* Checking that the collectives of all ranks match. */
#include "verify/mesh.h"

#include "base/sys.h"
#include "verify/deadlock.h"
#include "verify/form.h"

#include <stdlib.h>
#include <string.h>

static enum status out_of_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while verifying");
}

/* --- Groups --- */

static enum status check_group_sizes(struct mesh_lanes *x, int lane)
{
    const struct lists *g = &x->groups[lane];
    for (int r = 0; r < x->m->n_ranks; r++) {
        const struct program *p = mesh_program(x, r);
        int size = x->m->group[lane] ? g->first[x->m->group[lane][r] + 1] - g->first[x->m->group[lane][r]] : 1;
        if (size != (p->group_size[lane] > 1 ? p->group_size[lane] : 1))
            return status_fail(ERR_CORRUPT, "mesh: rank %d's group on lane %s has %d members, but its program %s was made for %d",
                               r, lane_name((enum lane)lane), size, p->name, p->group_size[lane] > 1 ? p->group_size[lane] : 1);
    }
    return OK;
}

static enum status collect_groups(struct mesh_lanes *x, int lane)
{
    const int32_t *group = x->m->group[lane], *member = x->m->member[lane];
    int n = x->m->n_ranks;
    struct lists *g = &x->groups[lane];
    if (!lists_create(g, n, n))
        return out_of_memory();
    for (int r = 0; r < n; r++) {
        if (group[r] < 0 || group[r] >= n)
            return status_fail(ERR_CORRUPT, "mesh: rank %d is in group %d of lane %s, of %d ranks", r, group[r],
                               lane_name((enum lane)lane), n);
        g->first[group[r] + 1]++;
    }
    for (int i = 0; i < n; i++)
        g->first[i + 1] += g->first[i];
    memset(g->at, 0xff, sizeof *g->at * (size_t)n); /* -1: no rank has this place yet */
    for (int r = 0; r < n; r++) {
        int size = g->first[group[r] + 1] - g->first[group[r]];
        if (member[r] < 0 || member[r] >= size)
            return status_fail(ERR_CORRUPT, "mesh: rank %d is member %d of a group of %d on lane %s", r, member[r], size,
                               lane_name((enum lane)lane));
        int32_t *place = &g->at[g->first[group[r]] + member[r]];
        if (*place >= 0)
            return status_fail(ERR_CORRUPT, "mesh: ranks %d and %d are both member %d of one group on lane %s", *place, r,
                               member[r], lane_name((enum lane)lane));
        *place = r;
    }
    return OK;
}

static enum status collect_tickets(struct mesh_lanes *x, int role)
{
    const struct program *p = x->roles[role];
    struct lists *t = &x->tickets[role];
    if (!lists_create(t, LANES, p->n_instrs))
        return out_of_memory();
    for (int i = 0; i < p->n_instrs; i++)
        t->first[p->instrs[i].lane + 1]++;
    for (int l = 0; l < LANES; l++)
        t->first[l + 1] += t->first[l];
    for (int i = 0; i < p->n_instrs; i++)
        t->at[t->first[p->instrs[i].lane] + p->instrs[i].ticket - 1] = i;
    return OK;
}

/* --- Do the collectives match? --- */

struct pair {
    int a, b, lane; /* two ranks, and the lane on which their instructions are compared */
    int64_t k;      /* number of the compared instructions on that lane, from 0 */
};

static enum status disagree(const struct mesh_lanes *x, const struct pair *w, const char *what, const char *of_a,
                            const char *of_b)
{
    return status_fail(ERR_CORRUPT,
                       "mesh: at instruction number %lld of lane %s, rank %d (program %s) has %s %s, but rank %d (program %s) %s",
                       (long long)w->k + 1, lane_name((enum lane)w->lane), w->a, mesh_program(x, w->a)->name, what, of_a, w->b,
                       mesh_program(x, w->b)->name, of_b);
}

static enum status compare_attributes(const struct mesh_lanes *x, const struct pair *w, const struct op_attrs *a,
                                      const struct op_attrs *b)
{
    const struct {
        const char *name;
        int64_t a, b;
    } field[] = {{"n =", a->comm.n, b->comm.n},
                 {"share =", a->comm.share, b->comm.share},
                 {"type =", a->comm.type, b->comm.type},
                 {"element =", a->comm.element, b->comm.element},
                 {"distance =", a->comm.distance, b->comm.distance},
                 {"send_if =", a->comm.send_if, b->comm.send_if},
                 {"recv_if =", a->comm.recv_if, b->comm.recv_if},
                 {"root =", a->comm.root, b->comm.root}};
    for (size_t f = 0; f < sizeof field / sizeof *field; f++) {
        char of_a[24], of_b[24];
        snprintf(of_a, sizeof of_a, "%lld", (long long)field[f].a);
        snprintf(of_b, sizeof of_b, "%lld", (long long)field[f].b);
        if (field[f].a != field[f].b)
            return disagree(x, w, field[f].name, of_a, of_b);
    }
    return OK;
}

/* Returns the first segment of an argument, or NULL. */
static const struct operand *find_argument(const struct program *p, const struct instr *in, int arg)
{
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++) {
        if (p->operands[k].arg == arg)
            return &p->operands[k];
    }
    return NULL;
}

/* Compares the names and rows of the tensors of two collectives: with equal sizes, swapped collectives would not be noticed by
 * their attributes. */
static enum status compare_tensors(const struct mesh_lanes *x, const struct pair *w, const struct instr *a, const struct instr *b)
{
    const struct program *p = mesh_program(x, w->a), *q = mesh_program(x, w->b);
    for (int arg = 0; arg < 2; arg++) {
        const struct operand *of_p = find_argument(p, a, arg), *of_q = find_argument(q, b, arg);
        if (!of_p || !of_q || of_p->tensor < 0 || of_q->tensor < 0)
            continue;
        if (strcmp(p->tensors[of_p->tensor].name, q->tensors[of_q->tensor].name) != 0 || of_p->row0 != of_q->row0) {
            char text[2][96];
            snprintf(text[0], sizeof text[0], "%s from row %lld", p->tensors[of_p->tensor].name, (long long)of_p->row0);
            snprintf(text[1], sizeof text[1], "%s from row %lld", q->tensors[of_q->tensor].name, (long long)of_q->row0);
            return disagree(x, w, arg ? "argument 1 =" : "argument 0 =", text[0], text[1]);
        }
    }
    return OK;
}

static enum status compare_ranks(const struct mesh_lanes *x, int a, int b, int lane)
{
    struct pair w = {a, b, lane, 0};
    int64_t of_a = mesh_count(x, a, lane), of_b = mesh_count(x, b, lane);
    for (w.k = 0; w.k < of_a && w.k < of_b; w.k++) {
        const struct instr *i = mesh_instr(x, a, lane, w.k), *j = mesh_instr(x, b, lane, w.k);
        if (i->op != j->op)
            return disagree(x, &w, "op", op_name(i->op), op_name(j->op));
        TRY(compare_attributes(x, &w, &program_call(mesh_program(x, a), i)->attrs, &program_call(mesh_program(x, b), j)->attrs));
        TRY(compare_tensors(x, &w, i, j));
    }
    if (of_a == of_b)
        return OK;
    return status_fail(ERR_CORRUPT,
                       "mesh: lane %s of rank %d (program %s) has %lld instructions, that of rank %d (program %s) %lld: number "
                       "%lld has no partner",
                       lane_name((enum lane)lane), a, mesh_program(x, a)->name, (long long)of_a, b, mesh_program(x, b)->name,
                       (long long)of_b, (long long)w.k + 1);
}

/* Compares every rank's collectives with those of member 0 of its group; each pair of roles is compared once. */
static enum status match_lane(const struct mesh_lanes *x, int lane, unsigned char *compared)
{
    memset(compared, 0, (size_t)x->n_roles * (size_t)x->n_roles);
    for (int r = 0; r < x->m->n_ranks; r++) {
        const struct lists *g = &x->groups[lane];
        int first = g->at[g->first[x->m->group[lane][r]]], of_first = x->m->role[first], own = x->m->role[r];
        unsigned char *done = &compared[of_first * x->n_roles + own];
        if (own != of_first && !*done)
            TRY(compare_ranks(x, first, r, lane));
        *done = 1;
    }
    return OK;
}

static enum status match_collectives(const struct mesh_lanes *x)
{
    unsigned char *compared = sys_malloc((size_t)x->n_roles * (size_t)x->n_roles + 1);
    enum status st = compared ? OK : out_of_memory();
    for (int l = 0; l < LANES && st == OK; l++) {
        if (x->m->group[l])
            st = match_lane(x, l, compared);
    }
    free(compared);
    return st;
}

static enum status check_mesh(struct mesh_lanes *x)
{
    x->tickets = sys_calloc((size_t)x->n_roles, sizeof *x->tickets);
    if (!x->tickets)
        return out_of_memory();
    for (int i = 0; i < x->n_roles; i++) {
        TRY(verify_form(x->roles[i]));
        TRY(collect_tickets(x, i));
    }
    for (int r = 0; r < x->m->n_ranks; r++) {
        if (x->m->role[r] < 0 || x->m->role[r] >= x->n_roles)
            return status_fail(ERR_CORRUPT, "mesh: rank %d has role %d of %d", r, x->m->role[r], x->n_roles);
    }
    for (int l = 0; l < LANES; l++) {
        if (x->m->group[l])
            TRY(collect_groups(x, l));
        TRY(check_group_sizes(x, l));
    }
    TRY(match_collectives(x));
    return mesh_check_deadlock(x);
}

enum status program_verify_mesh(const struct program *const *roles, int n_roles, const struct mesh_roles *mesh)
{
    struct mesh_lanes x;
    memset(&x, 0, sizeof x);
    x.roles = roles;
    x.n_roles = n_roles;
    x.m = mesh;
    if (n_roles < 1 || mesh->n_ranks < 1)
        return status_fail(ERR_CORRUPT, "mesh: %d ranks with %d roles", mesh->n_ranks, n_roles);
    enum status st = check_mesh(&x);
    for (int l = 0; l < LANES; l++)
        lists_destroy(&x.groups[l]);
    for (int i = 0; x.tickets && i < n_roles; i++)
        lists_destroy(&x.tickets[i]);
    free(x.tickets);
    return st;
}
