#include "doctor/doctor.h"

#include "base/process.h"
#include "base/sys.h"
#include "doctor/bundle.h"
#include "doctor/checks.h"
#include "doctor/needs.h"
#include "doctor/ranks.h"

#include <stdlib.h>

/* Makes all checks. needs: needs of the plan; NULL: there is no plan. */
static void look(struct findings *f, const struct doctor *d, const struct needs *needs)
{
    const char *root = process_system_root();
    struct drive_rates rates = {0};
    doctor_cores(f);
    doctor_load(f, root);
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

/* Sets *needs to those of the plan, if there is one; a plan that does not come near is a finding. *planned: 1: there is a plan. */
static enum status plan_for(struct findings *f, const struct doctor *d, struct needs *needs, int *planned)
{
    enum status st = d->plan ? doctor_needs_find(d->plan, d->comm, needs) : OK;
    if (d->comm)
        st = comm_agree(d->comm, st);
    *planned = st == OK && d->plan;
    if (st == ERR_NOFIT) {
        findings_add(f, VERDICT_FAILURE, "plan", "", "%s", status_message());
        st = OK;
    }
    return st;
}

/* Looks at this host, as its first rank, and at what all ranks share. */
static enum status look_with_others(struct findings *f, const struct doctor *d, const struct needs *needs)
{
    if (d->comm && comm_local_rank(d->comm) != 0)
        *f = (struct findings){0};
    else
        look(f, d, needs);
    if (!d->comm && d->fault[0])
        findings_add(f, VERDICT_FAILURE, "ranks", "", "%s", d->fault);
    if (!d->comm)
        return OK;
    const struct rank_checks r = {d->comm, d->fault, d->plan ? d->plan->out : ".", d->plan != NULL};
    TRY(doctor_hosts(f, d->comm));
    return doctor_ranks(f, &r);
}

/* Prints the findings and writes the bundle. needs: NULL: there is no plan. */
static enum status tell(struct findings *f, const struct doctor *d, const struct needs *needs)
{
    if (d->json)
        TRY(findings_print_json(f, stdout));
    else
        findings_print(f, stdout);
    return d->bundle ? bundle_write(d, f, needs) : OK;
}

enum status doctor_run(const struct doctor *d, int *code)
{
    const int first = !d->comm || comm_rank(d->comm) == 0;
    int planned = 0;
    struct findings *f = sys_calloc(1, sizeof *f);
    struct needs needs = {0};
    enum status st = f ? OK : status_fail(ERR_NOMEM, "doctor: out of memory");
    if (d->comm)
        st = comm_agree(d->comm, st);
    if (st == OK)
        st = plan_for(f, d, &needs, &planned);
    if (st == OK)
        st = look_with_others(f, d, planned ? &needs : NULL);
    if (st == OK && first) {
        *code = f->of[VERDICT_FAILURE] > 0 || (d->strict && f->of[VERDICT_WARNING] > 0);
        st = tell(f, d, planned ? &needs : NULL);
    }
    if (d->comm && !comm_broken(d->comm))
        st = comm_agree(d->comm, st);
    if (st == OK && d->comm)
        st = comm_broadcast(d->comm, 0, code, sizeof *code);
    doctor_needs_free(&needs);
    free(f);
    return st;
}
