#include "doctor/doctor.h"

#include "base/process.h"
#include "base/sys.h"
#include "doctor/checks.h"

#include <stdlib.h>

enum status doctor_run(const struct doctor *d, int *code)
{
    const char *root = process_system_root();
    struct findings *f = sys_calloc(1, sizeof *f);
    enum status st = OK;
    if (!f)
        return status_fail(ERR_NOMEM, "doctor: out of memory");
    doctor_cores(f);
    doctor_memory(f, root);
    doctor_limits(f);
    doctor_io(f, root, d->path[0]);
    for (int i = 0; i < d->n_paths; i++)
        doctor_path(f, d->path[i], d->measure);
    doctor_gpus(f, root);
    doctor_launchers(f);
    if (d->json)
        st = findings_print_json(f, stdout);
    else
        findings_print(f, stdout);
    *code = f->of[VERDICT_FAILURE] > 0 || (d->strict && f->of[VERDICT_WARNING] > 0);
    free(f);
    return st;
}
