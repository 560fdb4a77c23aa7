/* Printing of advice. */
#include "plan/report/advise_text.h"

#include "base/units.h"
#include "plan/report/duration.h"

#include <stdio.h>

#define AS_FAST 0.005 /* share by which steps may differ and still count as equally fast */

void advise_print(const struct plan *p, const struct advice *advice, FILE *f)
{
    double now = (double)p->tokens / p->seconds;
    if (advice->n > 0)
        fprintf(f, "\nWhat would %s:\n", p->fits ? "be faster" : "fit");
    for (int i = 0; i < advice->n && i < ADVICE_PRINTED; i++) {
        const struct change *x = &advice->by_cost[i];
        char a[32], b[32], d[32], e[32], g[32], beside[64] = "";
        if (p->fits && x->shortens)
            snprintf(beside, sizeof beside, ", %.2g times the tokens/s", x->per_second / now);
        else if (p->fits) /* a plan that does not fit has no time to compare with */
            snprintf(beside, sizeof beside, ", %s", report_compared(x->per_second / now, AS_FAST, g));
        fprintf(f, "  %s\n", x->say);
        fprintf(f, "    %s%s a step%s; device %s, host %s, nvme %s\n", x->exact ? "" : "about ", report_duration(x->seconds, e),
                beside, units_format_bytes(x->arena[TIER_DEVICE], a), units_format_bytes(x->arena[TIER_HOST], b),
                units_format_bytes(x->arena[TIER_NVME], d));
    }
    if (advice->n > 0 || !p->fits || advice->tried == 0)
        return;
    if (advice->tried == 1)
        fprintf(f, "\nThe one change tried does not help.\n");
    else
        fprintf(f, "\nNone of the %d changes tried is %.0f%% faster.\n", advice->tried, 100 * ADVICE_HELPS);
}
