/* Meshes in the order in which they are looked at. */
#include "plan/search/meshes.h"

#include "base/hurry.h"
#include "base/sys.h"
#include "machine/hardware.h"
#include "plan/lower/mesh.h"
#include "plan/search/mesh_seconds.h"
#include "plan/search/start.h"
#include "plan/search/trial.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PACKINGS = 20 }; /* numbers of sequences in a micro-batch that are weighed for a mesh, at most */

struct guess {
    struct mesh mesh;
    int64_t packed;
    double seconds, excess;
    double order; /* the seconds by which guesses are ordered: somewhat more with several sequences in a micro-batch */
    int place;
};

/* Returns the share by which more sequences in a micro-batch have to be faster than fewer: at effort quick, whose plan is about what its
 * trial says, hardly any. */
static double packed_gain(const struct plan_request *s)
{
    return s->effort == EFFORT_QUICK ? MESH_EQUAL : MESH_PACKED;
}

static int by_guess(const void *a, const void *b)
{
    const struct guess *x = a, *y = b;
    const int fx = x->excess <= 1, fy = y->excess <= 1;
    const double kx = fx ? x->order : x->excess, ky = fy ? y->order : y->excess;
    if (fx != fy)
        return fy - fx;
    return kx != ky ? (kx < ky ? -1 : 1) : x->place - y->place;
}

static enum status guess_all(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct guess *of,
                             int *n)
{
    struct mesh_products products;
    mesh_products_of(m, &products);
    const int listed = *n;
    *n = 0;
    for (int i = 0; i < listed; i++) {
        struct plan_request r = *s;
        struct guess g = {.mesh = of[i].mesh, .packed = of[i].packed, .place = i};
        plan_take_mesh(&r, &g.mesh, g.packed);
        struct mesh_figures f;
        const enum status st = mesh_seconds(m, &products, &r, limit, &f);
        if (st == ERR_NOMEM)
            return st;
        g.seconds = f.seconds;
        g.excess = f.excess;
        g.order = g.seconds * (g.packed > 1 ? 1 + packed_gain(s) : 1);
        if (st == OK) /* a mesh on which the given tiles are illegal is left out */
            of[(*n)++] = g;
    }
    qsort(of, (size_t)*n, sizeof *of, by_guess);
    return OK;
}

/* Puts the first mesh with a sequence alone second. The closed form may promise far less of it than a trial shows, since it knows
 * messages that a long micro-batch hides as waits. */
static void put_alone_second(struct guess *of, int n)
{
    for (int i = 2; i < n; i++) {
        const struct guess alone = of[i];
        if (alone.packed > 1 || !mesh_equal(&alone.mesh, &of[0].mesh))
            continue;
        memmove(&of[2], &of[1], (size_t)(i - 1) * sizeof *of);
        of[1] = alone;
        return;
    }
}

/* Lists the open meshes by seconds in closed form; those that need more memory than there is come last. If the mesh is given,
 * out->n is 0. */
static enum status list_meshes(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                               struct meshes *out)
{
    *out = (struct meshes){0};
    if (s->open_degrees == 0 && !s->packing_is_open)
        return OK;
    const int legal = s->open_degrees ? plan_meshes(m, s, NULL, 0) : 1;
    int n = 0;
    struct mesh *list = sys_calloc((size_t)legal + 1, sizeof *list);
    struct guess *of = sys_calloc((size_t)(legal + 1) * PACKINGS, sizeof *of);
    enum status st = list && of ? OK : status_no_memory("while planning");
    if (st == OK) {
        list[0] = s->mesh;
        if (s->open_degrees)
            plan_meshes(m, s, list, legal);
        for (int i = 0; i < legal; i++)
            for (int k = 0; k < PACKINGS && plan_packing(s, &list[i], k) > 0; k++)
                of[n++] = (struct guess){.mesh = list[i], .packed = plan_packing(s, &list[i], k)};
        out->legal = legal;
        st = guess_all(m, s, limit, of, &n);
    }
    if (st == OK)
        put_alone_second(of, n);
    for (int i = 0; st == OK && i < n && i < MESHES_CLOSE; i++)
        out->of[out->n++] =
            (struct mesh_weighed){.mesh = of[i].mesh, .packed = of[i].packed, .guess = of[i].seconds, .excess = of[i].excess};
    free(of);
    free(list);
    return st;
}

/* Tells whether plans choose larger groups for messages between ranks (plan_for_messages). */
static int groups_are_open(const struct plan_request *s)
{
    return s->group <= 0 && !s->evaluation && s->hardware && !s->hardware->cpu;
}

/* Tries the whole step of the best placement, of all micro-batches and with larger groups where messages take most of the time.
 * The search's own trials are of the first micro-batch and of the default groups. */
static enum status try_step(const struct searched *v, struct candidate *c)
{
    const struct trials t = {.problem = &v->problem, .search = &v->search, .slack = TRIAL_SLACK};
    const int waits = groups_are_open(&v->problem.request) && c->strategy.ranks > 1 && c->seconds > MESH_STEP_WAITS * c->compute;
    struct candidate other = *c;
    struct step_trial step;
    if (!c->tried || c->excess > 1 || v->problem.request.evaluation || (v->problem.request.grad_accum == 1 && !waits))
        return OK;
    TRY(trial_step(&t, c, &step));
    double seconds = step.seconds;
    int faster = waits && step.messages > GROUP_MESSAGES_BUSY;
    for (int64_t group = 4 * c->strategy.key.group; faster && group <= GROUP_MESSAGES_MOST; group *= 2) {
        other.strategy.key.group = group;
        TRY(trial_step(&t, &other, &step));
        faster = step.fits && step.seconds < (1 - GROUP_GAIN) * seconds;
        seconds = faster ? step.seconds : seconds;
    }
    seconds = fmax(seconds, c->estimate);
    c->slow = fmax(seconds, c->slow + seconds - c->seconds);
    c->seconds = seconds;
    return OK;
}

/* Returns the seconds that depend on the mesh: those of drives, for example, do not. */
static double own_seconds(const struct candidate *c)
{
    return c->compute + c->messages;
}

/* Tells whether c, which was about as fast as `best` at about the same price, computes and sends less. Only where other things took most
 * of both steps: they hide what the meshes differ in, and a plan may shorten them. */
static int hides_less(const struct candidate *c, const struct candidate *best)
{
    return candidate_price(best) >= (1 - MESH_EQUAL) * candidate_price(c) && best->seconds > MESH_HIDDEN * own_seconds(best) &&
           own_seconds(c) < (1 - MESH_EQUAL) * own_seconds(best);
}

/* Tells whether c was faster, or about as fast with fewer messages, or fits where `best` does not. More sequences in a micro-batch must
 * be faster by a share `surely`; fewer are taken up to as much behind `fastest`, the least seconds tried. */
static int is_better(const struct candidate *c, const struct candidate *best, double fastest, double surely)
{
    if (c->excess > 1 || best->excess > 1)
        return best->excess > 1 && c->excess < best->excess;
    const int64_t more = c->strategy.key.packed - best->strategy.key.packed;
    if (more != 0)
        return more > 0 ? c->seconds < (1 - surely) * best->seconds : c->seconds * (1 - surely) <= fastest;
    if (c->seconds < (1 - MESH_EQUAL) * best->seconds)
        return 1;
    return c->seconds <= (1 + MESH_EQUAL) * best->seconds &&
           (candidate_price(c) < (1 - MESH_EQUAL) * candidate_price(best) || hides_less(c, best));
}

/* Tells whether a mesh promises about as much as the first one, or is that with a sequence alone. */
static int is_close(const struct mesh_weighed *w, const struct mesh_weighed *first, double within)
{
    return w->excess <= 1 && (w->guess <= within * first->guess || (w->packed == 1 && mesh_equal(&w->mesh, &first->mesh)));
}

/* Counts the first meshes that promise about as much as the very first one. */
static int close_ones(const struct meshes *all, enum effort effort)
{
    const int alone = all->n > 1 && all->of[0].packed > 1 && all->of[1].packed == 1,
              most = (effort == EFFORT_QUICK ? MESH_TRIES_QUICK : MESH_TRIES) + alone;
    const double within = all->n > 0 && all->of[0].guess < MESH_SHORT_STEP ? MESH_WITHIN_SHORT : MESH_WITHIN;
    int n = all->n > 0;
    while (n < all->n && n < most && is_close(&all->of[n], &all->of[0], within))
        n++;
    return n;
}

enum status meshes_choose(const struct start *from, struct plan_request *s, struct meshes *all, struct searched **out,
                          int *trials)
{
    const struct search_lead brief = {.brief = 1};
    struct candidate best = {.excess = INFINITY}, c;
    struct plan_request at = *s;
    const double surely = packed_gain(s);
    double fastest = INFINITY;
    enum status st = OK;
    *out = NULL;
    TRY(list_meshes(from->m, s, from->limit, all));
    const int close = close_ones(all, s->effort);
    if (all->n > 0)
        plan_take_mesh(s, &all->of[0].mesh, all->of[0].packed);
    for (int i = 0; st == OK && close > 1 && i < all->n && (best.excess > 1 || (i < close && !hurry_asked())); i++) {
        struct searched *next, *worse;
        struct mesh_weighed *w = &all->of[i];
        plan_take_mesh(&at, &w->mesh, w->packed);
        TRY_GOTO(start_create(from, &at, NULL, &brief, &next), out);
        worse = next;
        *trials += next->search.n_tried;
        st = start_best(next, &c);
        if (st == OK)
            st = try_step(next, &c);
        w->seconds = c.seconds;
        w->fits = c.excess <= 1;
        if (st == OK && w->fits)
            fastest = fmin(fastest, c.seconds);
        if (st == OK && is_better(&c, &best, fastest, surely)) {
            worse = *out;
            *out = next;
            best = c;
            plan_take_mesh(s, &w->mesh, w->packed);
        }
        start_destroy(worse);
    }
out:
    if (st == OK)
        return OK;
    start_destroy(*out);
    *out = NULL;
    return st;
}

enum status meshes_take_first(const struct model *m, const int64_t limit[TIERS], struct plan_request *s)
{
    struct meshes all;
    TRY(list_meshes(m, s, limit, &all));
    if (all.n > 0)
        plan_take_mesh(s, &all.of[0].mesh, all.of[0].packed);
    return OK;
}
