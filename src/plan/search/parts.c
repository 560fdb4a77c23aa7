/* Weighing slices and stages of layers. */
#include "plan/search/parts.h"

#include "base/sys.h"
#include "model/part.h"
#include "plan/lower/mesh.h"
#include "plan/lower/mesh_parts.h"
#include "plan/search/mesh_seconds.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>

/* State of weighing. */
struct weighing {
    const struct plan_request *s;
    const int64_t *limit;
    const struct model *m; /* the model, or a slice of its layers */
    struct mesh_products products;
    struct parts_weighed *out;
};

/* Returns the seconds by which a mesh is ordered. */
static double order_seconds(const struct mesh_weighed *w)
{
    return w->guess * (1 + PARTS_SHARING * log2(mesh_degree(&w->mesh, MESH_ULYSSES) * mesh_degree(&w->mesh, MESH_RING)));
}

static int is_before(const struct mesh_weighed *a, const struct mesh_weighed *b)
{
    const int fa = a->excess <= 1, fb = b->excess <= 1;
    return fa != fb ? fa : fa ? order_seconds(a) < order_seconds(b) : a->excess < b->excess;
}

/* Inserts a mesh into the list of the most promising ones. */
static void keep(struct parts_weighed *x, const struct mesh_weighed *w)
{
    int at = x->n < MESHES_CLOSE ? x->n++ : MESHES_CLOSE;
    x->legal++;
    for (; at > 0 && is_before(w, &x->of[at - 1]); at--)
        if (at < MESHES_CLOSE)
            x->of[at] = x->of[at - 1];
    if (at < MESHES_CLOSE)
        x->of[at] = *w;
}

static enum status weigh_one(struct weighing *x, const struct mesh *mesh, int64_t packed, int zero)
{
    struct plan_request r = *x->s;
    struct mesh_figures f;
    plan_take_mesh(&r, mesh, packed);
    r.zero = zero;
    const enum status st = mesh_seconds(x->m, &x->products, &r, x->limit, &f);
    if (st == OK)
        keep(x->out,
             &(struct mesh_weighed){.mesh = *mesh, .packed = packed, .zero = zero, .guess = f.seconds, .excess = f.excess});
    return st == ERR_NOMEM ? st : OK; /* a mesh on which the given tiles are illegal is left out */
}

/* Weighs a mesh in all numbers of slices of sequences and packed sequences. Stages keep their state in full, as far as that is open, since
 * ZeRO 2 and 3 would send gradients or parameters of every piece; slices have it so, or divided. */
static enum status weigh_mesh(struct weighing *x, const struct mesh *mesh)
{
    const int open = x->s->zero == AUTO || x->s->zero_is_unsaid, stages = mesh_degree(mesh, MESH_PP) > 1;
    struct mesh sliced = *mesh;
    int64_t packed;
    for (int k = 0; (packed = plan_packing(x->s, mesh, k)) > 0; k++)
        for (int c = 1;; c *= 2) {
            sliced.degree[MESH_SLICES] = c;
            if (!mesh_may_slice(x->m, x->s, &sliced))
                break;
            TRY(weigh_one(x, &sliced, packed, open ? 1 : x->s->zero));
            if (open && !stages)
                TRY(weigh_one(x, &sliced, packed, 3));
        }
    return OK;
}

/* Weighs all meshes with a number of slices and stages. */
static enum status weigh_parts(struct weighing *x, const struct mesh *parts)
{
    struct plan_request r = *x->s;
    r.mesh = *parts;
    r.open_degrees = (r.batch > 0 ? 1u << MESH_DP : 0) | 1u << MESH_ULYSSES | 1u << MESH_RING;
    const int n = plan_meshes(x->m, &r, NULL, 0);
    struct mesh *list = sys_calloc((size_t)n + 1, sizeof *list);
    enum status st = list ? OK : status_no_memory("while planning");
    if (st == OK)
        plan_meshes(x->m, &r, list, n);
    for (int i = 0; i < n && st == OK; i++)
        st = weigh_mesh(x, &list[i]);
    free(list);
    return st;
}

/* Weighs the parts of a mesh, on a slice of the model if it has slices of layers. */
static enum status weigh_sliced(struct weighing *x, const struct model *whole, const struct mesh *parts)
{
    const struct model_part part = {0, whole->config.layers, 0, mesh_degree(parts, MESH_TP)};
    struct model *slice = NULL;
    if (part.slices > 1)
        TRY(model_part_create(whole, &part, &slice));
    x->m = slice ? slice : whole;
    mesh_products_of(x->m, &x->products);
    const enum status st = weigh_parts(x, parts);
    model_destroy(slice);
    return st;
}

/* Finds the most promising mesh of whole layers. *waits: seconds in which no rank computes there. */
static enum status weigh_plain(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                               struct mesh_weighed *out, double *waits)
{
    struct plan_request r = *s;
    struct mesh_products products;
    struct mesh_figures f;
    TRY(meshes_take_first(m, limit, &r));
    mesh_products_of(m, &products);
    TRY(mesh_seconds(m, &products, &r, limit, &f));
    *out = (struct mesh_weighed){.mesh = r.mesh, .packed = r.micro_batch, .guess = f.seconds, .excess = f.excess};
    *waits = f.seconds - f.compute;
    return OK;
}

enum status parts_weigh(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                        struct parts_weighed *out)
{
    struct weighing x = {.s = s, .limit = limit, .out = out};
    double waits;
    *out = (struct parts_weighed){.n = 0};
    TRY(weigh_plain(m, s, limit, &out->plain, &waits));
    if (out->plain.excess <= 1 && waits < PARTS_WAITS * out->plain.guess)
        return OK;
    const int n = mesh_list_parts(m, s, NULL, 0);
    struct mesh *list = sys_calloc((size_t)n + 1, sizeof *list);
    enum status st = list ? OK : status_no_memory("while planning");
    if (st == OK)
        mesh_list_parts(m, s, list, n);
    for (int i = 0; i < n && st == OK; i++)
        st = weigh_sliced(&x, m, &list[i]);
    free(list);
    return st;
}
