#include "doctor/needs.h"

#include "base/disk.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/units.h"
#include "comm/comm.h"
#include "plan/report/refuse.h"
#include "train/space.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

static enum status refuse_settings(const struct settings *s)
{
    if (s->plan.machine)
        return status_fail(ERR_INVALID, "doctor: --machine names a machine that is not here: `ltrain plan` plans for it");
    if (s->max_seq || s->explain || s->svg)
        return status_fail(ERR_INVALID, "doctor: --%s is for `ltrain plan`: leave it out",
                           s->max_seq   ? "max-seq"
                           : s->explain ? "explain"
                                        : "svg");
    return OK;
}

/* Plans for the ranks of mpiexec, or by one process for as many as the settings name. */
static enum status find_plans(struct settings *s, struct comm *ranks, struct needs *out)
{
    struct comm *self = NULL;
    if (ranks)
        return train_plan(s, ranks, comm_size(ranks), out->model, &out->plans, out->limit);
    TRY(comm_create_self(&self));
    enum status st = train_plan(s, self, train_planned_ranks(s), out->model, &out->plans, out->limit);
    comm_destroy(self);
    return st;
}

enum status doctor_needs_find(struct settings *s, struct comm *comm, struct needs *out)
{
    *out = (struct needs){.s = s, .ranks = comm ? comm_local_size(comm) : (int)max_i64(1, train_planned_ranks(s))};
    TRY(refuse_settings(s));
    TRY(train_resolve_model(s, "give the model's directory by --model, and the adapter by --adapter", NULL));
    TRY(train_open_model(s, &out->model));
    TRY(find_plans(s, comm, out));
    out->plan = out->plans.plan[0];
    return report_make(out->plan, out->model, &out->report);
}

void doctor_needs_free(struct needs *n)
{
    train_plans_destroy(&n->plans);
    model_destroy(n->model);
}

/* Returns the bytes of this host's memory that all its ranks take for their arenas. */
static int64_t memory_of(const struct needs *n)
{
    const struct plan *p = n->plan;
    const int on_gpu = n->s->plan.device == DEVICE_CUDA;
    return n->ranks * ((on_gpu ? 0 : p->arena[TIER_DEVICE]) + p->arena[TIER_HOST]);
}

static void check_fit(struct findings *f, const struct needs *n)
{
    const struct plan *p = n->plan;
    const struct advice none = {0};
    if (p->fits)
        findings_add(f, VERDICT_OK, "plan", "", "%s, %lld tokens: fits, about %.3g s a step", n->s->model,
                     (long long)plan_length(p), p->seconds);
    else {
        (void)refuse_advised(p, &n->s->plan, &none);
        findings_add(f, VERDICT_FAILURE, "plan", "`ltrain plan` with the same options says what would fit", "%s",
                     status_message());
    }
}

static void check_memory(struct findings *f, const struct needs *n, const char *root)
{
    struct memory_limits all;
    const struct memory_limit *least = NULL;
    const int64_t need = memory_of(n);
    char needs[32], left[32];
    memory_limits_read(root, &all);
    for (int i = 0; i < all.n; i++)
        least = !least || all.at[i].left < least->left ? &all.at[i] : least;
    if (!least)
        return; /* doctor_memory reports it */
    units_format_apart(need, least->left, needs, left);
    if (need > least->left)
        findings_add(f, VERDICT_FAILURE, "memory",
                     least->name[0] ? "raise that limit, or give less by --device-mem and --host-mem"
                                    : "end other programs, or give less by --device-mem and --host-mem",
                     "the plan takes %s, and %s are left%s%s", needs, left, least->name[0] ? " of " : "", least->name);
    else
        findings_add(f, VERDICT_OK, "memory", "", "the plan takes %s of the %s that are left", needs, left);
}

/* Checks that a rank may lock all its arenas in host memory (RLIMIT_MEMLOCK). */
static void check_locked(struct findings *f, const struct needs *n)
{
    struct rlimit lock;
    char needs[32], most[32];
    const int64_t need = memory_of(n) / n->ranks;
    if (getrlimit(RLIMIT_MEMLOCK, &lock) != 0 || n->s->plan.device == DEVICE_CUDA)
        return; /* a GPU's driver pins memory without that limit */
    if (lock.rlim_cur != RLIM_INFINITY && (int64_t)min_i64((int64_t)lock.rlim_cur, INT64_MAX) < need) {
        units_format_apart(need, (int64_t)lock.rlim_cur, needs, most);
        findings_add(f, VERDICT_WARNING, "memlock", "`ulimit -l unlimited`, or memlock in /etc/security/limits.conf",
                     "a rank of the plan locks %s, and %s may be locked: the rest may be swapped out", needs, most);
    } else
        findings_add(f, VERDICT_OK, "memlock", "", "a rank of the plan locks %s, which it may", units_format_bytes(need, needs));
}

void doctor_needs_check(struct findings *f, const struct needs *n, const char *root)
{
    check_fit(f, n);
    check_memory(f, n, root);
    check_locked(f, n);
    if (run_space_check(n->s, n->model) != OK)
        findings_add(f, VERDICT_FAILURE, "room", "", "%s", status_message());
    else
        findings_add(f, VERDICT_OK, "room", "", "checkpoints and model have room in %s", n->s->out);
}

void doctor_needs_path(struct findings *f, const struct needs *n, const char *path, int n_paths)
{
    struct disk d;
    char needs[32], room[64];
    const int64_t need = (n->ranks * n->plan->arena[TIER_NVME] + n_paths - 1) / n_paths;
    if (disk_look(path, &d) != 0)
        return; /* doctor_path reports it */
    units_format_bytes(need, needs);
    disk_say_room(&d, room);
    if (need > disk_room(&d))
        findings_add(f, VERDICT_FAILURE, "path", "make room, give further directories by --nvme-path, or --nvme-max",
                     "%s: the plan stores %s there, and %s", path, needs, room);
    else if (need > 0)
        findings_add(f, VERDICT_OK, "path", "", "%s: the plan stores %s there, and %s", path, needs, room);
}

/* Compares the measured rate of drives in one direction with the rate that moves a step's bytes in its planned time. */
static void check_rate(struct findings *f, const struct needs *n, enum lane lane, double measured, const char *done)
{
    const double bytes = (double)n->ranks * (double)n->report.lane[lane].bytes, rate = bytes / fmax(n->plan->seconds, 1e-9);
    if (bytes <= 0)
        return;
    if (measured <= 0)
        findings_add(f, VERDICT_UNMEASURED, "bandwidth", "--measure writes and reads 1 GiB on each path",
                     "the plan counts on %.3g GB/s that are %s", rate * 1e-9, done);
    else if (measured < rate)
        findings_add(f, VERDICT_WARNING, "bandwidth",
                     "faster or further drives, more --host-mem, or `ltrain plan --profile`, which counts with measured rates",
                     "the plan counts on %.3g GB/s that are %s, and measured are %.3g GB/s: steps will take longer", rate * 1e-9,
                     done, measured * 1e-9);
    else
        findings_add(f, VERDICT_OK, "bandwidth", "", "the plan counts on %.3g GB/s that are %s, and measured are %.3g GB/s",
                     rate * 1e-9, done, measured * 1e-9);
}

void doctor_needs_rates(struct findings *f, const struct needs *n, const struct drive_rates *measured)
{
    check_rate(f, n, LANE_WRITE, measured->written, "written");
    check_rate(f, n, LANE_READ, measured->read, "read");
}
