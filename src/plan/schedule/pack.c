/* The choice between the ways of packing, and of the packing that is kept. */
#include "plan/schedule/pack.h"

#include "base/sort.h"
#include "base/sys.h"
#include "plan/schedule/pack_greedy.h"
#include "plan/schedule/pack_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of buffers that limit greedy packing, whose time grows with all buffers times the buffers that live at once. */
#define FEW PACKER_FEW /* most buffers for which all ways are tried; for more, only the way that is mostly best */
#define MANY 20000     /* most buffers for which all are packed greedily; of more, only the largest */

/* Excess of a packing over the bytes that live at once, as a share, up to which no other packing is tried. */
#define SWEEP_EXCESS 0.02      /* for sweeps over more than FEW buffers, which come before greedy packing */
#define SWEEP_EXCESS_MANY 0.01 /* for each sweep over more than MANY buffers */

#define LOOSE 0.02 /* slack from which a packing need not be tight where there is ample room */
#define AMPLE 0.8  /* share of the room that such a packing may take */

/* Numbers of large buffers that are placed before the sweep if there are more than MANY, in the order of trials until a packing
 * is good enough. The more layers and chunks, the more large buffers there are: 8,000 of the 229 thousand buffers of six layers
 * of 8b at 256k tokens (test_pack_many) leave gaps of 7%. */
static const int n_placed_first[] = {2000, 750, 8000, 32000};

/* Sets lower_bound and peak of the tier: the most bytes that live at once, and the most of each class, persistent ones included. */
static void find_peaks(const struct packer *k, const int *moment, enum tier tier, int64_t base)
{
    int64_t live[CLASSES] = {0}, all = base, *peak = k->p->peak[tier];
    for (int b = 0; b < k->p->n_persistent; b++)
        if (k->p->buffers[b].tier == tier)
            live[k->p->buffers[b].class] += round_up(k->p->buffers[b].bytes, BUFFER_ALIGN);
    memcpy(peak, live, sizeof live);
    k->p->lower_bound[tier] = base;
    for (int i = 0; i < 2 * k->n; i++) {
        const struct buffer *b = &k->p->buffers[k->order[moment[i] / 2]];
        int64_t bytes = moment[i] % 2 ? pack_padded(b) : -pack_padded(b);
        all += bytes;
        live[b->class] += bytes;
        k->p->lower_bound[tier] = max_i64(k->p->lower_bound[tier], all);
        peak[b->class] = max_i64(peak[b->class], live[b->class]);
    }
}

/* Places the n_large buffers of largest area (size times lifetime) first, by size, then the others around them in order of time.
 * Keeps the result if it ends below `most`. Returns the end of the kept packing; -1: out of memory.
 *
 * Sweeps alone leave gaps too small for large buffers: 5% with the 635,102 buffers of 14B on the device at 1m tokens, but 1% with
 * 750 buffers placed first. */
static int64_t place_large_first(const struct packer *all, const int *moment, int n_large, int64_t base, int64_t bound,
                                 int64_t most)
{
    struct packer k = *all;
    size_t n = (size_t)all->n;
    int *rank = sys_malloc(sizeof *rank * n);
    double *area = sys_malloc(sizeof *area * n);
    int64_t *address = sys_malloc(sizeof *address * (size_t)n_large), end = -1;
    k.order = sys_malloc(sizeof *k.order * (size_t)n_large);
    if (!rank || !area || !address || !k.order)
        goto out;
    for (int i = 0; i < all->n; i++) {
        const struct buffer *b = &all->p->buffers[all->order[i]];
        rank[i] = i;
        area[i] = -(double)b->bytes * (b->t1 - b->t0);
    }
    if (!sort_by_key(area, rank, all->n))
        goto out;
    for (int i = 0; i < n_large; i++)
        area[rank[i]] = -(double)all->p->buffers[all->order[rank[i]]].bytes;
    if (!sort_by_key(area, rank, n_large))
        goto out;
    for (int i = 0; i < n_large; i++)
        k.order[i] = all->order[rank[i]];
    k.n = n_large;
    if (packer_place(&k, base, 1, INT64_MAX) < 0)
        goto out;
    for (int i = 0; i < n_large; i++)
        address[i] = k.placed[i].lo;
    end = pack_sweep_around(k.p->buffers, all->order, moment, all->n, base, bound, most, rank, address, n_large);
out:
    free(rank);
    free(area);
    free(address);
    free(k.order);
    return end;
}

/* Returns the end up to which a packing is good enough, so that no other one is tried. */
static int64_t good_enough(int64_t bound, int64_t room, double slack)
{
    return bound > room ? INT64_MAX : min_i64(bound + (int64_t)(slack * (double)bound), room);
}

/* Packs greedily, in one or all ways until one is `enough`, and keeps the best that ends below `most`. Returns the end of the
 * packing that is kept; -1: out of memory. */
static int64_t place_greedily(struct packer *k, int64_t base, int64_t enough, int64_t most)
{
    static const enum packing_order orders[] = {BY_SIZE, BY_AREA, BY_TIME};
    for (int attempt = 0; attempt < (k->n > FEW ? 1 : 6) && most > enough; attempt++) {
        packer_sort(k, orders[attempt / 2]);
        int64_t end = packer_place(k, base, k->n > FEW || attempt % 2 == 0, most);
        if (end < 0)
            return -1;
        for (int i = 0; i < k->n && end < most; i++)
            k->p->buffers[k->order[i]].address = k->placed[i].lo;
        most = min_i64(most, end);
    }
    return most;
}

/* Packs by sweeps and, if these are not good enough, greedily. Many buffers are not packed greedily, but swept again with the
 * large ones placed first. Returns the end of the kept packing; -1: out of memory. */
static int64_t pack_best(struct packer *k, const int *moment, int64_t base, int64_t bound, int64_t room, double slack)
{
    const int64_t ample = slack >= LOOSE ? (int64_t)(AMPLE * (double)room) : 0;
    int64_t enough = max_i64(good_enough(bound, room, k->n > FEW ? fmax(slack, SWEEP_EXCESS) : slack), ample);
    int64_t end = pack_sweep(k->p->buffers, k->order, moment, k->n, base, bound,
                             max_i64(good_enough(bound, room, k->n > MANY ? fmax(slack, SWEEP_EXCESS_MANY) : slack), ample));
    if (end >= 0 && k->n <= MANY)
        return place_greedily(k, base, enough, end);
    for (size_t i = 0; i < sizeof n_placed_first / sizeof *n_placed_first && end > enough; i++)
        end = place_large_first(k, moment, (int)min_i64(n_placed_first[i], k->n), base, bound, end);
    return end;
}

enum status pack_tier(struct program *p, enum tier tier, int64_t base, int64_t room, double slack)
{
    struct packer k;
    int *moment = NULL;
    enum status st = packer_create(p, tier, &k);
    if (st == OK && !(moment = pack_moments(p->buffers, k.order, k.n)))
        st = status_no_memory("while planning");
    if (st == OK)
        st = packer_prepare_few(&k, moment);
    if (st == OK) {
        find_peaks(&k, moment, tier, base);
        p->arena[tier] = pack_best(&k, moment, base, p->lower_bound[tier], room, slack);
        if (p->arena[tier] < 0)
            st = status_no_memory("while planning");
    }
    free(moment);
    packer_free(&k);
    return st;
}

enum status pack_live_at(const struct program *p, const int *moment, int n, int64_t (*out)[TIERS])
{
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_buffers + 1)),
        *last = sys_malloc(sizeof *last * (size_t)(p->n_buffers + 1));
    int64_t(*change)[TIERS] = sys_calloc((size_t)p->n_instrs + 1, sizeof *change), live[TIERS] = {0};
    enum status st = first && last && change ? OK : status_no_memory("while planning");
    for (int b = 0; st == OK && b < p->n_buffers; b++)
        first[b] = -1;
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            int b = p->operands[p->instrs[i].first_operand + k].buffer;
            first[b] = first[b] < 0 ? i : first[b];
            last[b] = i;
        }
    for (int b = p->n_persistent; st == OK && b < p->n_buffers; b++) {
        int64_t bytes = round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        if (first[b] < 0)
            continue;
        change[first[b]][p->buffers[b].tier] += bytes;
        change[last[b] + 1][p->buffers[b].tier] -= bytes;
    }
    memset(out, 0, sizeof *out * (size_t)n);
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int t = 0; t < TIERS; t++) {
            int64_t *most = &out[moment ? moment[i] : 0][t];
            live[t] += change[i][t];
            *most = max_i64(*most, live[t]);
        }
    free(first);
    free(last);
    free(change);
    return st;
}

enum status pack_live_in_order(const struct program *p, int64_t out[TIERS])
{
    return pack_live_at(p, NULL, 1, (int64_t(*)[TIERS])out);
}
