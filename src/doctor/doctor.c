#include "doctor/doctor.h"

#include "base/process.h"
#include "base/sys.h"
#include "doctor/bundle.h"
#include "doctor/checks.h"
#include "doctor/needs.h"

#include <stdlib.h>

/* Makes all checks. needs: needs of the plan; NULL: there is no plan. */
static void look(struct findings *f, const struct doctor *d, const struct needs *needs)
{
    const char *root = process_system_root();
    struct drive_rates rates = {0};
    doctor_cores(f);
    doctor_memory(f, root);
    doctor_limits(f);
    if (needs)
        doctor_needs_check(f, needs, root);
    doctor_io(f, root, d->path[0]);
    for (int i = 0; i < d->n_paths; i++) {
        doctor_path(f, d->path[i], d->measure, &rates);
        if (needs)
            doctor_needs_path(f, needs, d->path[i], d->n_paths);
    }
    if (needs)
        doctor_needs_rates(f, needs, &rates);
    doctor_gpus(f, root);
    doctor_launchers(f);
}

enum status doctor_run(const struct doctor *d, int *code)
{
    struct findings *f = sys_calloc(1, sizeof *f);
    struct needs needs = {0};
    enum status st = f ? OK : status_fail(ERR_NOMEM, "doctor: out of memory");
    if (st == OK && d->plan)
        st = doctor_needs_find(d->plan, &needs);
    const int planned = st == OK && d->plan;
    if (st == ERR_NOFIT) { /* no plan comes near */
        findings_add(f, VERDICT_FAILURE, "plan", "", "%s", status_message());
        st = OK;
    }
    if (st == OK) {
        look(f, d, planned ? &needs : NULL);
        if (d->json)
            st = findings_print_json(f, stdout);
        else
            findings_print(f, stdout);
        *code = f->of[VERDICT_FAILURE] > 0 || (d->strict && f->of[VERDICT_WARNING] > 0);
    }
    if (st == OK && d->bundle)
        st = bundle_write(d->bundle, d->version, f, planned ? &needs : NULL);
    doctor_needs_free(&needs);
    free(f);
    return st;
}
