/* Dependencies on buffers, found in lowered order and kept in any other order of the instructions. */
#include "plan/schedule/hazards.h"

#include "base/sys.h"
#include "plan/schedule/hazards_scan.h"

#include <stdlib.h>

enum status hazards_find(const struct program *p, struct deps *out)
{
    struct scan s;
    enum status st = scan_prepare(&s, p, HAZARD_BUFFERS);
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_instrs + 1));
    if (st == OK && !first)
        st = status_no_memory("while planning");
    for (int i = 0; st == OK && i < p->n_instrs; i++) {
        first[i] = s.n_dep;
        if (!scan_instr(&s, i))
            st = status_no_memory("while planning");
    }
    if (st == OK) {
        first[p->n_instrs] = s.n_dep;
        *out = (struct deps){first, s.dep};
    } else {
        free(first);
        free(s.dep);
    }
    scan_free(&s);
    return st;
}

void hazards_free(struct deps *d)
{
    free(d->first);
    free(d->dep);
    d->first = d->dep = NULL;
}

enum status hazards_reorder(const struct deps *d, const int *order, int n, struct deps *out)
{
    int *first = sys_malloc(sizeof *first * (size_t)(n + 1)), *dep = sys_malloc(sizeof *dep * (size_t)(d->first[n] + 1));
    int *at = sys_malloc(sizeof *at * (size_t)(n + 1)), k = 0;
    if (!first || !dep || !at) {
        free(first);
        free(dep);
        free(at);
        return status_no_memory("while planning");
    }
    for (int i = 0; i < n; i++)
        at[order[i]] = i;
    for (int i = 0; i < n; i++) {
        first[i] = k;
        for (int e = d->first[order[i]]; e < d->first[order[i] + 1]; e++)
            dep[k++] = at[d->dep[e]];
    }
    first[n] = k;
    free(at);
    *out = (struct deps){first, dep};
    return OK;
}
