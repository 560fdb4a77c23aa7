/* Decisions and their alternatives, and their texts. */
#include "plan/report/explain.h"

#include "base/prose.h"
#include "base/units.h"
#include "plan/report/duration.h"
#include "plan/report/explain_grid.h"
#include "plan/report/explain_placement.h"

#include <ctype.h>
#include <string.h>

enum status explain_make(const struct plan *p, const struct model *m, const struct plan_request *s, struct explanation *out)
{
    struct plan_request chosen = *s; /* alternatives are on the plan's grid */
    struct explainer x = {.p = p, .m = m, .s = &chosen, .out = out};
    struct candidate own;
    chosen.row_chunk = p->strategy.row_chunk;
    chosen.head_tile = p->strategy.head_tile;
    chosen.loss_tile = p->strategy.loss_tile;
    chosen.group = p->strategy.group;
    chosen.alpha_by_kind = 0; /* trials count with the mean of both kinds */
    memset(out, 0, sizeof *out);
    out->n_kinds = m->n_kinds;
    layer_kinds_make(p, m, out->kind);
    TRY(report_make(p, m, &x.report));
    const struct problem problem = explainer_problem(p, m, &chosen);
    TRY(search_price(&problem, &p->strategy, &own));
    out->seconds = own.seconds;
    TRY(explain_placement(&x));
    return explain_grid(&x);
}

static void describe_alternative(const struct plan *p, const struct explanation *e, const struct alternative *a, char *buf,
                                 size_t size)
{
    char need[32], has[32];
    for (int t = 0; t < TIERS && !a->fits; t++)
        if (a->bytes[t] > p->limit[t]) {
            units_format_apart(a->bytes[t], p->limit[t], need, has);
            snprintf(buf, size, "%s: needs %s of %s on the %s", a->say, need, has, tier_name((enum tier)t));
            return;
        }
    if (!a->fits) {
        snprintf(buf, size, "%s: does not fit", a->say);
        return;
    }
    snprintf(buf, size, "%s: %s", a->say, report_compared(e->seconds / a->seconds, 0.0005, need));
}

void explain_print(const struct plan *p, const struct explanation *e, FILE *f)
{
    layer_kinds_print(e->kind, e->n_kinds, f);
    fprintf(f, "\nWhat was decided, [the option that sets it], and what each other choice would\n"
               "change alone (--offload says none for the device, cpu for the host):\n");
    for (int i = 0; i < e->n; i++) {
        const struct decision *d = &e->decision[i];
        char others[1024] = "", flag[32] = "";
        for (int k = 0; k < d->n; k++) {
            size_t n = strlen(others);
            n += (size_t)snprintf(others + n, sizeof others - n, "%s", k ? "; " : " Otherwise ");
            describe_alternative(p, e, &d->by_cost[k], others + n, sizeof others - n);
        }
        if (d->flag[0])
            snprintf(flag, sizeof flag, " [%s]", d->flag);
        prose_print(f, 4, "  %c%s%s: %s%s%s%s.%s%s", toupper(d->what[0]), d->what + 1, flag, d->chosen,
                    d->given ? " (given)" : "", d->note[0] ? "; " : "", d->note, others, d->n ? "." : "");
    }
}
