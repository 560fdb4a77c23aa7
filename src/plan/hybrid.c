/* Choosing slices and stages of layers by brief plans. */
#include "plan/hybrid.h"

#include "base/hurry.h"
#include "machine/islands.h"
#include "plan/lower/mesh.h"
#include "plan/lower/mesh_parts.h"
#include "plan/roles.h"
#include "plan/search/island_layers.h"
#include "plan/search/parts.h"
#include "plan/search/tuning.h"

/* Makes the request for a mesh with parts. */
static struct plan_request request_with(const struct plan_request *s, const struct mesh_weighed *w)
{
    struct plan_request r = *s;
    plan_take_mesh(&r, &w->mesh, w->packed);
    r.open_degrees = r.open_parts = 0;
    r.packing_is_open = 0;
    if (mesh_degree(&w->mesh, MESH_PP) == 1 || w->seconds > 0)
        r.zero = w->zero;
    else if (s->zero_is_unsaid)
        r.zero = AUTO;
    return r;
}

static enum status plan_stage(const struct model *m, const struct plan_request *s, int place, const int64_t limit[TIERS],
                              struct plan **out)
{
    const int stage = place / (int)(mesh_ranks(&s->mesh) / mesh_degree(&s->mesh, MESH_PP));
    TRY(plan_stages_create(m, s, stage, limit, out));
    if (s->machine) /* one plan stands for all ranks */
        plan_show_misfit(out);
    return OK;
}

/* Plans briefly, and notes the seconds of a plan that fits. */
static enum status try_briefly(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                               struct mesh_weighed *w)
{
    struct plan_request brief = *s;
    struct plan *p;
    brief.effort = EFFORT_QUICK;
    TRY(plan_stage(m, &brief, 0, limit, &p));
    w->seconds = plan_step_seconds(p);
    w->fits = p->fits;
    w->zero = p->strategy.key.zero;
    w->mesh = p->strategy.key.mesh;
    w->packed = p->strategy.key.packed;
    plan_destroy(p);
    return OK;
}

/* Returns the fastest plan that fits among the meshes with parts that were tried; NULL: the plain mesh is as fast. */
static struct mesh_weighed *fastest_of(struct parts_weighed *x)
{
    struct mesh_weighed *best = NULL;
    for (int i = 0; i < x->n; i++) {
        struct mesh_weighed *w = &x->of[i];
        const struct mesh_weighed *before = best ? best : &x->plain;
        if (w->fits && (!before->fits || w->seconds < (1 - MESH_EQUAL) * before->seconds))
            best = w;
    }
    return best;
}

/* Tries twice and half as many slices of sequences as the fastest pipeline has, as long as that gains. */
static enum status try_slices(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                              struct parts_weighed *x)
{
    struct mesh_weighed *best = fastest_of(x);
    for (int up = 1; up >= 0 && best; up--)
        while (mesh_degree(&best->mesh, MESH_PP) > 1 && !hurry_asked()) {
            struct mesh_weighed next = *best;
            int *slices = &next.mesh.degree[MESH_SLICES], known = 0;
            next.seconds = 0;
            *slices = up ? *slices * 2 : *slices / 2;
            for (int i = 0; i < x->n; i++)
                known |= x->of[i].seconds > 0 && mesh_equal(&x->of[i].mesh, &next.mesh);
            if (known || *slices < 1 || (up && !mesh_may_slice(m, s, &next.mesh)))
                break;
            struct plan_request r = request_with(s, &next);
            r.packing_is_open = s->packing_is_open; /* more slices may want longer micro-batches */
            TRY(try_briefly(m, &r, limit, &next));
            if (!next.fits || next.seconds >= (1 - MESH_EQUAL) * best->seconds)
                break;
            *best = next;
        }
    return OK;
}

/* Tells whether a mesh that differs in slices of sequences at most is among the first n. */
static int is_known(const struct parts_weighed *x, int n)
{
    struct mesh like = x->of[n].mesh;
    for (int i = 0; i < n; i++) {
        like.degree[MESH_SLICES] = x->of[i].mesh.degree[MESH_SLICES];
        if (mesh_equal(&like, &x->of[i].mesh))
            return 1;
    }
    return 0;
}

/* Tries the plain mesh and the most promising ones with parts. */
static enum status try_parts(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                             struct parts_weighed *x)
{
    struct plan_request plain = *s;
    plain.open_parts = 0;
    TRY(try_briefly(m, &plain, limit, &x->plain));
    for (int i = 0, tried = 0; i < x->n && tried < PARTS_TRIES && !hurry_asked(); i++) {
        struct mesh_weighed *w = &x->of[i];
        const struct plan_request r = request_with(s, w);
        if (w->guess > PARTS_WITHIN * x->of[0].guess)
            break;
        if (is_known(x, i))
            continue;
        TRY(try_briefly(m, &r, limit, w));
        tried++;
    }
    return try_slices(m, s, limit, x);
}

/* Notes the meshes that were weighed in a plan: the plain one and those with parts. */
static void note_meshes(const struct parts_weighed *x, struct plan *p)
{
    struct meshes *all = &p->meshes;
    *all = (struct meshes){.of = {x->plain}, .n = 1, .legal = x->legal};
    for (int i = 0; i < x->n && all->n < MESHES_CLOSE; i++)
        if (x->of[i].seconds > 0)
            all->of[all->n++] = x->of[i];
}

/* Decides on the slices of given stages: those of the rule, or twice or half as many while brief plans are faster for it. */
static enum status settle_slices(const struct model *m, struct plan_request *s, const int64_t limit[TIERS])
{
    struct parts_weighed x = {.n = 1};
    struct plan_request brief = *s;
    struct mesh_weighed *w = &x.of[0];
    brief.open_parts = 0;
    TRY(try_briefly(m, &brief, limit, w));
    const int by_rule = mesh_degree(&w->mesh, MESH_SLICES);
    TRY(try_slices(m, s, limit, &x));
    if (mesh_degree(&w->mesh, MESH_SLICES) != by_rule)
        *s = request_with(s, w);
    return OK;
}

/* Makes the request for a number of stages on islands, with the layers of each. */
static enum status request_on_islands(const struct model *m, const struct plan_request *s, int stages, const int64_t limit[TIERS],
                                      struct plan_request *out)
{
    *out = *s;
    if (s->open_parts) {
        out->mesh = mesh_uniform(AUTO);
        out->mesh.degree[MESH_PP] = stages;
        out->zero = s->zero_is_unsaid ? AUTO : s->zero;
        out->micro_batch = s->packing_is_open ? AUTO : s->micro_batch;
        TRY(plan_mesh(m, out, islands_all_devices(mesh_islands(s)), s->per_host));
    }
    out->open_parts = 0;
    return out->stage_layers.n > 0 ? OK : island_layers(m, out, limit, &out->stage_layers);
}

/* Decides on stages of a machine with islands: their layers and, if that is open, their number by brief plans. */
static enum status settle_islands(const struct model *m, struct plan_request *s, const int64_t limit[TIERS])
{
    const struct islands *x = mesh_islands(s);
    const struct plan_request given = *s;
    const int first = mesh_degree(&s->mesh, MESH_PP), most = (int)min_i64(m->config.layers, MESH_MOST_STAGES);
    struct mesh_weighed best = {.seconds = 0};
    TRY(request_on_islands(m, &given, first, limit, s));
    for (int n = first, i = 0; given.open_parts && n > 0 && n <= most && i < ISLANDS_TRIES && !hurry_asked();
         n = islands_stages(x, n + 1), i++) {
        struct plan_request r;
        struct mesh_weighed w;
        const enum status st = request_on_islands(m, &given, n, limit, &r);
        if (st != OK && st != ERR_NOMEM)
            continue; /* settings or the model do not allow that number of stages */
        TRY(st);
        TRY(try_briefly(m, &r, limit, &w));
        if (i == 0 || (w.fits && (!best.fits || w.seconds < (1 - MESH_EQUAL) * best.seconds))) {
            best = w;
            *s = r;
        }
    }
    return OK;
}

enum status plan_ranks_create(const struct model *m, const struct plan_request *s, int place, const int64_t limit[TIERS],
                              struct plan **out)
{
    struct plan_request r = *s;
    struct parts_weighed x = {.n = 0};
    struct mesh_weighed *best = NULL;
    if (mesh_islands(s))
        TRY(settle_islands(m, &r, limit));
    else if (s->open_parts == 1u << MESH_SLICES)
        TRY(settle_slices(m, &r, limit));
    else if (s->open_parts)
        TRY(parts_weigh(m, s, limit, &x));
    if (x.n > 0 && (x.of[0].guess < PARTS_BELOW * x.plain.guess || x.plain.excess > 1)) {
        TRY(try_parts(m, s, limit, &x));
        best = fastest_of(&x);
    }
    r.open_parts = 0;
    if (best)
        r = request_with(s, best);
    TRY(plan_stage(m, &r, place, limit, out));
    if (best)
        note_meshes(&x, *out);
    return OK;
}
