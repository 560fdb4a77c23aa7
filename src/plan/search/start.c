/* A mesh's problem, the grid that its search starts from, and that search. */
#include "plan/search/start.h"

#include "base/sys.h"
#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/search/price.h"
#include "plan/search/search.h"
#include "plan/search/smallest.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>

double start_grid_gain(const struct plan_request *s)
{
    return s->hardware && !s->hardware->cpu ? GRID_GAIN_SHEET : GRID_GAIN_MEASURED;
}

/* Enlarges one size of the grid, the sizes taking turns, or all of them. Returns 0 if none can grow. */
static int coarsen(const struct problem *p, int all, int turn, struct strategy *t)
{
    int changed = 0;
    for (int i = 0; i < TILE_SIZES && (all || !changed); i++) {
        enum tile_size which = (enum tile_size)((turn + i) % TILE_SIZES);
        if (t->rows > (which == TILE_ROWS   ? (2 * TILES_FEW_CHUNKS - 2) * t->key.row_chunk
                       : which == TILE_LOSS ? START_LOSS_TILES * t->key.loss_tile
                                            : 0))
            changed |= plan_other_tiles(p->model, &p->request, which, 0, t);
    }
    return changed;
}

/* Tells whether a grid whose best estimate is `least` is as good a start as the default grid, whose best estimate is
 * `on_default`. If large tiles cost memory, the grid must be better by SEARCH_GAIN. */
static int may_start(const struct searched *v, double least, double on_default)
{
    return isfinite(least) &&
           least <= (tiles_are_bulky(&v->problem, &v->default_grid) ? 1 - SEARCH_GAIN : START_SLOWER) * on_default;
}

/* Lists the default grid and larger ones, up to one whose programs are small enough to be tried with all layers. */
static enum status list_larger(struct searched *v, struct strategy out[START_GRIDS], int *n)
{
    double instrs;
    out[0] = v->default_grid;
    TRY(search_instrs(&v->problem, &out[0], &instrs));
    v->large = instrs > TRIAL_WHOLE_INSTRS;
    for (*n = 1; instrs > TRIAL_WHOLE_INSTRS && *n < START_GRIDS; ++*n) {
        out[*n] = out[*n - 1];
        if (!coarsen(&v->problem, instrs > START_COARSEN_ALL * TRIAL_WHOLE_INSTRS, *n - 1, &out[*n]))
            return OK;
        TRY(search_instrs(&v->problem, &out[*n], &instrs));
    }
    return OK;
}

/* Finds the grid to start from: the default grid, if costs are measured or its programs are small enough to be tried with all
 * layers. If not, the largest of the listed grids whose best estimate is as good as the default grid's. */
static enum status find_start(struct searched *v)
{
    struct strategy grids[START_GRIDS];
    int n;
    double least, on_default;
    if (start_grid_gain(&v->problem.request) >= SEARCH_GAIN)
        return OK;
    TRY(list_larger(v, grids, &n));
    if (n > 1)
        TRY(search_estimate(&v->problem, &grids[0], &on_default));
    while (--n > 0) {
        struct candidate emptied; /* spares the estimates of all placements on tiles that the device has no room for */
        TRY(search_emptied(&v->problem, &grids[n], &emptied));
        if ((double)emptied.bytes[TIER_DEVICE] > (1 + BYTES_UNCERTAIN) * (double)v->problem.limit[TIER_DEVICE])
            continue;
        TRY(search_estimate(&v->problem, &grids[n], &least));
        if (may_start(v, least, on_default)) {
            v->fixed = grids[n];
            return OK;
        }
    }
    return OK;
}

/* Tells whether a few trials on a grid are enough: always at effort quick, at effort normal for another ZeRO stage. */
static int tries_few(const struct plan_request *s, const struct search_lead *lead)
{
    return lead->brief || s->effort == EFFORT_QUICK || (s->effort == EFFORT_NORMAL && lead->beat && !lead->first);
}

static int start_fits(const struct searched *v)
{
    return v->search.candidates[0].excess <= 1;
}

/* Searches the given grid, or the grid found to start from; if nothing fits on the latter grid, searches it in full at effort quick,
 * then the default grid. */
static enum status search_grids(struct searched *v, const struct strategy *grid, const struct search_lead *lead)
{
    const int few = tries_few(&v->problem.request, lead);
    if (!grid)
        TRY(find_start(v));
    TRY((few ? search_few : search_to_beat)(&v->problem, &v->fixed, lead, &v->search));
    if (grid || strategy_same_grid(&v->fixed, &v->default_grid) || start_fits(v))
        return OK;
    search_destroy(&v->search);
    if (v->problem.request.effort == EFFORT_QUICK) {
        TRY(search_to_beat(&v->problem, &v->fixed, lead, &v->search));
        if (start_fits(v))
            return OK;
        search_destroy(&v->search);
    }
    v->fixed = v->default_grid;
    return (lead->brief ? search_few : search_to_beat)(&v->problem, &v->fixed, lead, &v->search);
}

enum status start_create(const struct start *from, const struct plan_request *s, const struct strategy *grid,
                         const struct search_lead *lead, struct searched **out)
{
    struct searched *v = sys_calloc(1, sizeof *v);
    if (!v)
        return status_no_memory("while planning");
    problem_set(&v->problem, from->m, s, from->limit);
    enum status st = plan_fixed(from->m, &v->problem.request, &v->default_grid);
    for (int i = 0; st == OK && i < from->finer && plan_finer_tiles(from->m, &v->problem.request, &v->default_grid);)
        i++;
    for (int i = 0; st == OK && i > from->finer && plan_coarser_tiles(from->m, &v->problem.request, &v->default_grid);)
        i--;
    v->fixed = grid ? *grid : v->default_grid;
    if (st == OK)
        st = search_grids(v, grid, lead);
    if (st != OK) {
        free(v);
        return st;
    }
    *out = v;
    return OK;
}

void start_destroy(struct searched *v)
{
    if (v)
        search_destroy(&v->search);
    free(v);
}

enum status start_best(const struct searched *v, struct candidate *out)
{
    *out = v->search.candidates[0];
    return v->search.n > 1 ? OK : search_price(&v->problem, &out->strategy, out);
}
