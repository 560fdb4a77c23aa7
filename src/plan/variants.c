/* The mesh's degrees and the ZeRO stage, by estimate and trial. */
#include "plan/variants.h"

#include "base/sys.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* What a second of messages costs compute, hidden or not: they take memory bandwidth and multiprocessors (as in
 * seqpar/degrees.c). */
#define CONTENTION 0.25

/* Stages by what is partitioned, most first. */
static const int stages[] = {3, 2, 1};
enum { STAGES = sizeof stages / sizeof *stages };

static enum status variant_create(const struct model *m, const struct settings *s, const int64_t limit[TIERS],
                                  const struct candidate *beat, struct variant **out)
{
    struct variant *v = sys_calloc(1, sizeof *v);
    if (!v)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    v->s = *s;
    plan_cost_model(&v->s, &v->cost);
    enum status st = plan_fixed(m, &v->s, &v->fixed);
    if (st == OK)
        st = search_to_beat(m, &v->s, &v->fixed, &v->cost, limit, beat, &v->search);
    if (st != OK) {
        free(v);
        return st;
    }
    *out = v;
    return OK;
}

void variant_destroy(struct variant *v)
{
    if (v)
        search_destroy(&v->search);
    free(v);
}

/* The best placement's trial; of a single one, which the search does not try, here. */
static enum status best_of(const struct model *m, const struct variant *v, const int64_t limit[TIERS], struct candidate *out)
{
    *out = v->search.candidates[0];
    return v->search.n > 1 ? OK : search_price(m, &v->s, &out->strategy, &v->cost, limit, out);
}

static double weighed(const struct candidate *c)
{
    return c->seconds + CONTENTION * c->messages;
}

/* The best variant so far, and its trial. */
struct best {
    const struct model *m;
    const int64_t *limit;
    struct variant *variant;
    struct candidate candidate;
};

/* Leaves the worse one in *next. */
static enum status replace_if_better(struct best *b, struct variant **next)
{
    struct candidate c = {.excess = INFINITY};
    const struct candidate *old = &b->candidate;
    if ((*next)->search.n == 1 || (*next)->search.n_tried > 0)
        TRY(best_of(b->m, *next, b->limit, &c));
    if (old->excess <= 1 ? c.excess > 1 || weighed(&c) >= (1 - SEARCH_GAIN) * weighed(old) : c.excess >= old->excess)
        return OK;
    struct variant *worse = b->variant;
    b->variant = *next;
    b->candidate = c;
    *next = worse;
    return OK;
}

/* Takes the place of the best one if it is better; not looked at where compute alone takes about as long. */
static enum status compare(struct best *b, const struct settings *s)
{
    struct variant *next;
    const struct candidate *c = &b->candidate;
    if (c->excess <= 1 && c->compute >= (1 - SEARCH_GAIN) * weighed(c))
        return OK;
    TRY(variant_create(b->m, s, b->limit, c, &next));
    enum status st = replace_if_better(b, &next);
    variant_destroy(next);
    return st;
}

static enum status compare_degrees(struct best *b, const struct settings *given)
{
    struct settings s = *given;
    for (int i = 0; plan_other_degrees(b->m, given, i, &s.ulysses, &s.ring); i++)
        TRY(compare(b, &s));
    return OK;
}

static enum status compare_stages(struct best *b)
{
    struct settings s = b->variant->s;
    for (int i = 1; i < STAGES; i++) {
        s.zero = stages[i];
        TRY(compare(b, &s));
    }
    return OK;
}

enum status variant_choose(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct variant **out)
{
    struct settings given = *s;
    struct best b = {.m = m, .limit = limit};
    int ulysses, ring, mesh = plan_other_degrees(m, s, 0, &ulysses, &ring);
    given.zero = s->zero == AUTO ? stages[0] : s->zero;
    TRY(variant_create(m, &given, limit, NULL, &b.variant));
    int stage = s->zero == AUTO && b.variant->fixed.ranks > 1;
    enum status st = mesh || stage ? best_of(m, b.variant, limit, &b.candidate) : OK;
    if (st == OK && mesh)
        st = compare_degrees(&b, &given);
    if (st == OK && stage)
        st = compare_stages(&b);
    if (st == OK)
        *out = b.variant;
    else
        variant_destroy(b.variant);
    return st;
}
