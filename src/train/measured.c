/* Measured figures of the steps here, for lines of progress and the summary. */
#include "train/run.h"

#include "machine/hardware.h"
#include "profile/profile.h"
#include "profile/sgemm.h"
#include "train/metrics.h"

#include <stdio.h>
#include <string.h>

enum status run_find_peak(struct run *r)
{
    const struct plan_request *p = &r->s->plan;
    const char *sheet = hardware_preset_of_gpu(r->s->gpu_name);
    struct hardware h;
    if (sheet) {
        TRY(hardware_preset(sheet, &h));
        r->measured.peak_flops = h.peak_flops[p->dtype];
        snprintf(r->measured.peak_reference, sizeof r->measured.peak_reference, "dense %s peak of %s (data sheet)",
                 dtype_name(p->dtype), sheet);
    } else if (r->s->gpu_name[0] && p->hardware && !p->hardware->cpu) {
        r->measured.peak_flops = p->hardware->peak_flops[p->dtype];
        snprintf(r->measured.peak_reference, sizeof r->measured.peak_reference, "largest product measured by --profile");
    } else if (r->s->gpu_name[0] && p->target->capability > 0) {
        TRY(profile_gpu_peak(r->s, &r->measured.peak_flops));
        snprintf(r->measured.peak_reference, sizeof r->measured.peak_reference, "product of 8192 cubed measured at start");
    } else {
        TRY(profile_sgemm(&r->measured.peak_flops));
        snprintf(r->measured.peak_reference, sizeof r->measured.peak_reference, "sgemm rate measured at start");
    }
    r->measured.peak_flops *= comm_size(r->comm);
    return OK;
}

/* Adds up the bytes that all ranks have moved since the last step: on drives, and in messages of the comm lanes. */
static enum status sum_moved(struct run *r, const struct lane_stats lanes[LANES], struct step_metrics *m)
{
    double sum[2 + 2 * LANES] = {(double)lanes[LANE_READ].bytes, (double)lanes[LANE_WRITE].bytes};
    for (int l = LANE_WORLD; l < LANES; l++) {
        struct comm_traffic own = comm_bytes_sent(r->comm, (enum lane)l);
        sum[2 + 2 * l] = (double)own.same_host;
        sum[3 + 2 * l] = (double)own.other_hosts;
    }
    TRY(comm_sum(r->comm, sum, 2 + 2 * LANES));
    m->read_bytes = (int64_t)sum[0];
    m->written_bytes = (int64_t)sum[1];
    for (int l = LANE_WORLD; l < LANES; l++) {
        struct comm_traffic all = {.same_host = (int64_t)sum[2 + 2 * l], .other_hosts = (int64_t)sum[3 + 2 * l]};
        m->sent.same_host += all.same_host - r->measured.sent[l].same_host;
        m->sent.other_hosts += all.other_hosts - r->measured.sent[l].other_hosts;
        r->measured.sent[l] = all;
    }
    return OK;
}

static void add_alike_step(struct run *r, const struct lane_stats lanes[LANES], const struct step_metrics *m)
{
    if (m->updated && !r->measured.alike.updated)
        memset(&r->measured.alike, 0, sizeof r->measured.alike);
    if (!m->updated && r->measured.alike.updated)
        return;
    r->measured.alike.updated = m->updated;
    for (int l = 0; l < LANES; l++) {
        r->measured.alike.lanes[l].bytes += lanes[l].bytes;
        r->measured.alike.lanes[l].busy_ns += lanes[l].busy_ns;
        r->measured.alike.lanes[l].waited_ns += lanes[l].waited_ns;
        for (int c = 0; c < CLASSES; c++)
            r->measured.alike.lanes[l].stalled[c] += lanes[l].stalled[c];
    }
    observed_merge(&r->measured.alike.seen, &r->measured.step);
    r->measured.alike.seconds += m->seconds;
    r->measured.alike.steps++;
}

static void add_alike(struct run *r, const struct lane_stats lanes[LANES], const struct step_metrics *m)
{
    if (!m->verified) /* a plan has a single computation */
        add_alike_step(r, lanes, m);
    memset(&r->measured.step, 0, sizeof r->measured.step);
}

enum status run_finish_metrics(struct run *r, struct step_metrics *m)
{
    struct lane_stats lanes[LANES];
    executor_take_stats(r->session->executor, lanes);
    add_alike(r, lanes, m);
    const struct plan *p = r->session->plan;
    TRY(sum_moved(r, lanes, m));
    m->peak_flops = r->measured.peak_flops;
    m->peak_reference = r->measured.peak_reference;
    m->submission = executor_take_submission(r->session->executor);
    m->device_bytes = p->arena[TIER_DEVICE];
    m->device_limit = r->plans.limit[TIER_DEVICE];
    m->host_bytes = p->arena[TIER_HOST];
    m->nvme_bytes = p->arena[TIER_NVME];
    m->hidden = metrics_hidden(lanes, m->seconds);
    m->stall_seconds = (double)lanes[LANE_COMPUTE].waited_ns * 1e-9;
    for (int l = 0; l < LANES; l++) {
        memcpy(m->stalled[l], lanes[l].stalled, sizeof m->stalled[l]);
        m->busy[l] = (double)lanes[l].busy_ns * 1e-9;
    }
    m->planned_seconds = p->seconds;
    m->loss_above = spikes_add(&r->measured.spikes.loss, m->loss);
    m->norm_above = spikes_add(&r->measured.spikes.norm, m->grad_norm);
    r->measured.seconds += m->seconds;
    r->measured.steps++;
    r->measured.planned_seconds += p->seconds;
    m->eta_seconds = r->measured.seconds / r->measured.planned_seconds * run_planned_seconds(r);
    return OK;
}
