/* Choice and order of the placements that are tried. */
#include "plan/search/select.h"

#include "base/hurry.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/retry.h"
#include "plan/search/stalls.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* Tells whether a takes less of the scarcest tier; if that is about the same, less of all tiers. */
static int is_smaller(const struct candidate *a, const struct candidate *b, const int64_t limit[TIERS])
{
    double of_a = 0, of_b = 0;
    if (fabs(a->excess - b->excess) > SMALLEST_ALIKE * b->excess)
        return a->excess < b->excess;
    for (int t = 0; t < TIERS; t++) {
        of_a += (double)a->bytes[t] / (double)max_i64(limit[t], 1);
        of_b += (double)b->bytes[t] / (double)max_i64(limit[t], 1);
    }
    return of_a < of_b;
}

/* Tries the smallest placements from the n-th on, at the given prefetch level, until one fits or is far from fitting. *out: the
 * index of the first one not tried.
 *
 * Of placements that are estimated to be equally small, the first in the list comes first, since it keeps the most near; then
 * those that need the least elsewhere. */
static enum status try_smallest(const struct trials *t, struct search *x, int n, int level, int *out)
{
    int first = n, end = (int)min_i64(x->n, n + SMALLEST_TRIES), settled = 0;
    double hopeless = level == FIT_SERIAL ? SMALLEST_FINAL_SERIALLY : SMALLEST_FINAL;
    for (; n < end && !settled; n++) {
        int least = n;
        for (int i = n + 1; i < x->n; i++)
            if (n > first ? is_smaller(&x->candidates[i], &x->candidates[least], t->problem->limit)
                          : x->candidates[i].excess < x->candidates[least].excess)
                least = i;
        swap(&x->candidates[n], &x->candidates[least]);
        TRY(trial_run(t, &x->candidates[n], level));
        settled = x->candidates[n].excess <= 1 || x->candidates[n].excess > hopeless;
    }
    *out = n;
    return OK;
}

/* Seconds that a candidate is expected to take, given that the first `tried` of x were tried. */
typedef double expectation(const struct search *x, int tried, const struct candidate *c);

/* Moves the candidate that ought to fit and is expected to be the fastest to index n. Returns its seconds; INFINITY: none ought
 * to fit. */
static double bring_next(struct search *x, int n, expectation *expected)
{
    double least = INFINITY;
    int at = n;
    for (int i = n; i < x->n; i++) {
        const struct candidate *c = &x->candidates[i];
        if (c->excess > 1 || c->estimate >= least)
            continue;
        double seconds = expected(x, n, c);
        if (seconds < least) {
            least = seconds;
            at = i;
        }
    }
    struct candidate next = x->candidates[at];
    memmove(&x->candidates[n + 1], &x->candidates[n], (size_t)(at - n) * sizeof next);
    x->candidates[n] = next;
    return least;
}

static enum status retry_tried(const struct trials *t, struct search *x, double best, double *spent)
{
    for (int i = 0; i < x->n_tried && *spent < SEARCH_INSTRS && !hurry_asked(); i++)
        if (!x->brief || x->candidates[i].seconds <= RETRY_WITHIN_BRIEF * best)
            TRY(retry_all(t, &x->candidates[i], best, spent));
    return OK;
}

/* Totals of the trials so far. */
struct trying {
    double best, spent; /* seconds; instructions */
    int fitted;
};

static enum status try_next(const struct trials *t, struct candidate *c, struct trying *so_far)
{
    so_far->spent += trial_instrs(t, c);
    TRY(retry_yielding(t, c, so_far->best));
    if (c->excess > 1)
        return OK;
    so_far->fitted++;
    so_far->best = fmin(so_far->best, c->seconds);
    return OK;
}

/* Tries the candidates that are expected to be the fastest after the trials so far. *n: the number of trials. */
static enum status try_expected(const struct trials *t, struct search *x, struct trying *so_far, int *n)
{
    int fewest = x->brief ? 1 : isfinite(x->beat) ? SELECT_FEWEST_LED : SELECT_FEWEST;
    for (; *n < x->n && so_far->spent < SEARCH_INSTRS_MOST && !(x->brief && *n >= SELECT_BRIEF); ++*n) {
        double expected = *n < x->given ? 0 : bring_next(x, *n, stalls_expect), hopeless = TRIAL_BELOW * so_far->best;
        if (x->candidates[*n].written > 0 && so_far->fitted < SELECT_WRITING && !isfinite(x->beat) && !x->brief)
            hopeless = SELECT_WRITING_BELOW * so_far->best;
        if (expected == INFINITY || (so_far->fitted > 0 && (so_far->fitted >= SELECT_MOST || so_far->spent >= SEARCH_INSTRS)) ||
            (so_far->fitted >= fewest && expected >= hopeless) || (so_far->fitted > 0 && hurry_asked()))
            return OK;
        TRY(try_next(t, &x->candidates[*n], so_far));
    }
    return OK;
}

/* Tries one placement of every untried family that may be faster: stalls of other families need not hold for it. */
static enum status try_families(const struct trials *t, struct search *x, struct trying *so_far, int *n)
{
    for (; *n < x->n && so_far->spent < SEARCH_INSTRS && !(x->brief && *n >= SELECT_BRIEF); ++*n) {
        if (bring_next(x, *n, stalls_untried_family) >= TRIAL_BELOW * so_far->best || hurry_asked())
            return OK;
        TRY(try_next(t, &x->candidates[*n], so_far));
    }
    return OK;
}

enum status select_fastest(const struct problem *p, struct search *x)
{
    struct trials t = {p, x, x->n > 1 ? TRIAL_SLACK : 0};
    struct trying so_far = {.best = x->beat};
    int n = 0;
    TRY(try_expected(&t, x, &so_far, &n));
    if (x->all_layers && so_far.fitted > 0)
        TRY(try_families(&t, x, &so_far, &n));
    if (so_far.fitted == 0 && !isfinite(x->beat))
        TRY(try_smallest(&t, x, n, 0, &n));
    x->n_tried = n;
    if (x->all_layers || !x->brief)
        TRY(retry_tried(&t, x, so_far.best, &so_far.spent));
    x->spent = so_far.spent;
    qsort(x->candidates, (size_t)n, sizeof *x->candidates, candidate_order);
    return OK;
}

enum status select_first(const struct problem *p, struct search *x)
{
    struct trials t = {p, x};
    x->n_tried = 1;
    return trial_run(&t, &x->candidates[0], 0);
}

enum status select_smallest(const struct problem *p, struct search *x)
{
    struct trials t = {p, x};
    TRY(try_smallest(&t, x, 0, FIT_SERIAL, &x->n_tried));
    qsort(x->candidates, (size_t)x->n_tried, sizeof *x->candidates, candidate_order);
    return OK;
}
