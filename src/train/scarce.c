/* Finding the rank with the least budget. */
#include "train/scarce.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    struct scarce is;
    int64_t kept_free;
};

/* Finds the first rank that has the least of a tier. Of ranks with equal nvme budgets, one that stores on the limiting drive
 * itself is preferred. */
static int find_least(const struct seen *all, int n, int tier)
{
    int least = 0;
    for (int k = 1; k < n; k++) {
        const int64_t has = all[k].is.limit[tier], most = all[least].is.limit[tier];
        if (has < most || (has == most && tier == TIER_NVME && all[k].is.own && !all[least].is.own))
            least = k;
    }
    return least;
}

int scarce_has_more(int64_t bytes, int64_t least)
{
    return bytes / 64 * 63 > least;
}

static int has_more_elsewhere(const struct comm *c, const struct seen *all, int rank, int least, int tier)
{
    return scarce_has_more(all[rank].is.limit[tier], all[least].is.limit[tier]) &&
           (strcmp(comm_host(c, rank), comm_host(c, least)) != 0 ||
            strcmp(all[rank].is.place[tier], all[least].is.place[tier]) != 0);
}

static void name_least(const struct comm *c, const struct seen *all, int tier, struct settings *s, int64_t *limit)
{
    const int n = comm_size(c), least = find_least(all, n, tier);
    const char *place = all[least].is.place[tier];
    *limit = all[least].is.limit[tier];
    if (tier == TIER_NVME)
        s->plan.kept_free = all[least].kept_free;
    for (int r = 0; r < n; r++)
        if (has_more_elsewhere(c, all, r, least, tier)) {
            snprintf(s->plan.scarce[tier], sizeof s->plan.scarce[tier], "rank %d on %s has the least%s%s", least,
                     comm_host(c, least), place[0] ? ": " : "", place);
            return;
        }
}

enum status scarce_share(struct comm *c, const struct scarce *own, struct settings *s, int64_t limit[TIERS])
{
    const struct seen mine = {.is = *own, .kept_free = s->plan.kept_free};
    struct seen *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    if (!all)
        return status_no_memory("while planning");
    enum status st = comm_gather(c, &mine, sizeof mine, all);
    for (int t = 0; t < TIERS && st == OK; t++)
        name_least(c, all, t, s, &limit[t]);
    free(all);
    return st;
}
