#include "engine/dead_bytes.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static enum status cuts_make(const struct program *p, enum tier t, struct cuts *c)
{
    int n = 0, unique = 0;
    c->at = sys_malloc(sizeof *c->at * (size_t)(2 * p->n_operands + 1));
    if (!c->at)
        return status_no_memory("for the chaos executor");
    for (int k = 0; k < p->n_operands; k++)
        if (operand_tier(p, &p->operands[k]) == t) {
            c->at[n++] = operand_address(p, &p->operands[k]);
            c->at[n++] = operand_address(p, &p->operands[k]) + p->operands[k].bytes;
        }
    qsort(c->at, (size_t)n, sizeof *c->at, by_value);
    for (int i = 0; i < n; i++)
        if (unique == 0 || c->at[unique - 1] != c->at[i])
            c->at[unique++] = c->at[i];
    c->n = unique > 0 ? unique - 1 : 0;
    for (int b = 0; b < p->n_persistent; b++)
        if (p->buffers[b].tier == t && p->buffers[b].address + p->buffers[b].bytes > c->persistent_end)
            c->persistent_end = p->buffers[b].address + p->buffers[b].bytes;
    return OK;
}

static int cuts_find(const struct cuts *c, int64_t address)
{
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (c->at[mid] < address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void ages_free(struct ages *a)
{
    for (int t = 0; t < TIERS; t++)
        free(a->cuts[t].at);
    free(a->epochs);
    free(a->first);
    free(a->list);
}

/* Lists in `out` (may be NULL) the intervals that instruction i accesses, each once, and returns their number. touched[interval]:
 * the instruction's stamp 2 * (i + 1), plus 1 if it reads there. */
static int64_t touch(const struct program *p, struct ages *a, int i, int64_t *touched, int *out)
{
    int64_t n = 0, stamp = 2 * ((int64_t)i + 1);
    const struct instr *in = &p->instrs[i];
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        enum tier t = operand_tier(p, o);
        const struct cuts *c = &a->cuts[t];
        int64_t end = operand_address(p, o) + o->bytes;
        if (t == TIER_NVME)
            continue;
        for (int j = cuts_find(c, operand_address(p, o)); j < c->n && c->at[j] < end; j++) {
            int64_t *mark = &touched[a->first_interval[t] + j];
            if (*mark < stamp) {
                *mark = stamp;
                if (out)
                    out[n] = a->first_interval[t] + j;
                n++;
            }
            if (o->access & ACCESS_READ)
                *mark = stamp + 1;
        }
    }
    return n;
}

enum status ages_make(const struct program *p, struct ages *a)
{
    enum status st = OK;
    int64_t total = 0, *touched = NULL;
    int intervals = 0, *current = NULL;
    memset(a, 0, sizeof *a);
    for (int t = 0; t < TIER_NVME; t++) {
        TRY_GOTO(cuts_make(p, (enum tier)t, &a->cuts[t]), out);
        a->first_interval[t] = intervals;
        intervals += a->cuts[t].n;
    }
    touched = sys_calloc((size_t)intervals + 1, sizeof *touched);
    current = sys_malloc(sizeof *current * ((size_t)intervals + 1));
    a->first = sys_malloc(sizeof *a->first * ((size_t)p->n_instrs + 1));
    if (!touched || !current || !a->first) {
        st = status_no_memory("for the chaos executor");
        goto out;
    }
    for (int i = 0; i < p->n_instrs; i++) {
        a->first[i] = total;
        total += touch(p, a, i, touched, NULL);
    }
    a->first[p->n_instrs] = total;
    a->list = sys_malloc(sizeof *a->list * ((size_t)total + 1));
    a->epochs = sys_malloc(sizeof *a->epochs * ((size_t)total + (size_t)intervals + 1));
    if (!a->list || !a->epochs) {
        st = status_no_memory("for the chaos executor");
        goto out;
    }
    memset(touched, 0, sizeof *touched * (size_t)intervals);
    for (int j = 0; j < intervals; j++) {
        current[j] = a->n_epochs;
        a->epochs[a->n_epochs++] = (struct epoch){.interval = j};
    }
    for (int i = 0; i < p->n_instrs; i++) {
        int *list = a->list + a->first[i];
        int64_t n = touch(p, a, i, touched, list);
        for (int64_t k = 0; k < n; k++) {
            int j = list[k];
            if (!(touched[j] & 1)) {
                current[j] = a->n_epochs;
                a->epochs[a->n_epochs++] = (struct epoch){.interval = j};
            }
            a->epochs[current[j]].left++;
            list[k] = current[j];
        }
    }
    for (int t = 0; t < TIER_NVME; t++)
        for (int j = 0; j < a->cuts[t].n; j++)
            a->epochs[current[a->first_interval[t] + j]].lasting = a->cuts[t].at[j] < a->cuts[t].persistent_end;
out:
    free(touched);
    free(current);
    return st;
}

enum status ages_done(struct ages *a, const struct exec_context *x, int i)
{
    for (int64_t k = a->first[i]; k < a->first[i + 1]; k++) {
        struct epoch *e = &a->epochs[a->list[k]];
        enum tier t = e->interval >= a->first_interval[TIER_HOST] ? TIER_HOST : TIER_DEVICE;
        int64_t *at = &a->cuts[t].at[e->interval - a->first_interval[t]];
        if (--e->left == 0 && !e->lasting)
            TRY(exec_fill(x, t, at[0], POISON, at[1] - at[0]));
    }
    return OK;
}
