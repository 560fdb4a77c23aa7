/* Lines that a run prints before its first step and after its last. */
#include "train/run.h"

#include "base/cgroup.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "base/watch.h"
#include "engine/scrub.h"
#include "machine/hardware.h"
#include "offload/drives.h"
#include "offload/places.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"
#include "plan/report/text.h"
#include "train/metrics.h"
#include "train/signals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void run_describe_left(const struct run *r, char *text, size_t bytes)
{
    char path[RUN_PATH];
    int trained =
        /* the run has trained and has no checkpoint of its own yet */
        r->place.saved < 0 && r->progress.at.step > 0 && !r->place.taken_over;
    if (trained &&
        checkpoint_newest(r->s->out, path, sizeof path) == OK) /* left by a save that failed after its checkpoint was in place */
        snprintf(text, bytes, "the last good checkpoint is %.200s: continue with --resume %.200s", path, r->s->out);
    else if (r->place.saved < 0)
        snprintf(text, bytes, "there is no checkpoint yet");
    else
        snprintf(text, bytes, "the last good checkpoint is %s/checkpoints/step-%06lld: continue with --resume %s", r->s->out,
                 (long long)r->place.saved, r->s->out);
}

void run_note_saved(struct run *r, int64_t step)
{
    char left[512];
    r->place.saved = step;
    run_describe_left(r, left, sizeof left);
    comm_remark(r->comm, left);
    watch_remark(left);
}

/* Prints the resolved settings in one line, for logs. config.yaml is the form that can be read back. */
static void print_config(const struct run *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    r->hooks->write_config(r->s, f);
    if (fclose(f) == 0) {
        while (size > 0 && text[size - 1] == '\n')
            text[--size] = 0;
        tell("config: {");
        for (const char *c = text; *c; c++)
            *c == '\n' ? tell(", ") : tell("%c", *c);
        tell("}\n");
    }
    free(text);
}

static void print_plan(const struct plan *p)
{
    char a[32], b[32], c[32], step[32], line[PLAN_TEXT];
    plan_describe(p, line, sizeof line);
    tell("plan: fits: device %s, host %s, nvme %s; step %s (%s)\n      %s\n", units_format_bytes(p->arena[TIER_DEVICE], a),
         units_format_bytes(p->arena[TIER_HOST], b), units_format_bytes(p->arena[TIER_NVME], c),
         report_duration(p->seconds, step), p->cost.source, line);
}

static void print_checkpoints(const struct run *r)
{
    const struct settings *s = r->s;
    if (s->save_every > 0)
        tell("checkpoints: every %lld steps, the newest %lld are kept%s\n", (long long)s->save_every,
             (long long)max_i64(1, s->keep), r->plans.all.n > 1 ? "; and before each other length" : "");
    else if (r->plans.all.n > 1)
        tell("checkpoints: before each other length, the newest %lld are kept (--save-every 0: no others); ^C and SIGTERM save\n",
             (long long)max_i64(1, s->keep));
    else
        tell("checkpoints: none (--save-every 0): a run that is killed leaves nothing to resume; ^C and SIGTERM save\n");
}

#define TAKES_LONG (1LL << 30) /* bytes; more memory takes seconds to get, and hundreds of GiB take minutes */

void run_print_taking(const struct run *r)
{
    int64_t all[TIERS] = {0}, sum = 0;
    char a[32], b[32], c[32];
    for (int t = 0; t < TIERS; t++) {
        for (int i = 0; i < r->plans.all.n; i++)
            all[t] = max_i64(all[t], r->plans.all.plan[i]->arena[t]);
        sum += all[t];
    }
    if (sum >= TAKES_LONG)
        tell("memory: taking %s on the device, %s on the host and %s on drives\n", units_format_bytes(all[TIER_DEVICE], a),
             units_format_bytes(all[TIER_HOST], b), units_format_bytes(all[TIER_NVME], c));
    fflush(tell_stream());
}

/* Warns of more threads than cores (OMP_NUM_THREADS of another machine, or a run resumed on fewer cores). */
static void print_crowded(int threads)
{
    const int cores = cgroup_cores();
    if (threads > cores)
        tell("remark: %d threads take turns on %d core%s, which is slower than one for each: --threads %d\n", threads, cores,
             cores == 1 ? "" : "s", cores);
}

/* Warns that the default learning rate is for random parameters. */
static void print_rate(const struct settings *s)
{
    if (s->plan.lora.rank == 0 && !s->resume && !model_is_preset(s->model) && s->lr >= 2e-4)
        tell(
            "remark: --lr %.1e suits training from scratch; whole models that have been trained take 1e-5 to 5e-5, and forget at more\n",
            s->lr);
}

/* Warns of stored state on a tmpfs, which /tmp may be. */
static void print_in_memory(const struct run *r)
{
    const char *path = drives_in_memory((const char *const *)r->s->nvme_path.item, r->s->nvme_path.n, r->s->out);
    if (r->session->store && path)
        tell("remark: what is stored in %s takes the machine's memory (tmpfs), as the host tier does: --nvme-path names a "
             "directory on a drive\n",
             path);
}

void run_print_before(struct run *r)
{
    char a[32], b[32], c[32], line[PLAN_TEXT], text[512];
    const struct settings *s = r->s;
    const struct plan *p = r->session->plan;
    print_config(r);
    train_print_notes(s, r->model, tell_stream());
    if (s->gpu_name[0])
        tell("device: %s%s%s; MFU refers to %.3g TFLOP/s, %s; %d threads for the host's part (%s kernels)\n",
             r->session->backend->name, r->session->carrier.library[0] ? ", " : "", r->session->carrier.library,
             r->measured.peak_flops * 1e-12, r->measured.peak_reference, s->plan.threads, isa_name(isa_of_processor()));
    else
        tell("device: %s, %d threads, sgemm %.0f GFLOP/s measured (%s kernels)\n", r->session->backend->name, s->plan.threads,
             r->measured.peak_flops * 1e-9, isa_name(isa_of_processor()));
    print_crowded(s->plan.threads);
    print_rate(s);
    if (s->unused_gpu[0])
        tell("remark: no GPU is used: %s\n", s->unused_gpu);
    if (places_remark(comm_local_size(r->comm))[0])
        tell("remark: %s\n", places_remark(comm_local_size(r->comm)));
    if (s->verbose) {
        places_describe(line, sizeof line);
        tell("places: %s\n", line);
    }
    tell("budgets: device %s, host %s, nvme %s", units_format_bytes(r->plans.limit[TIER_DEVICE], a),
         units_format_bytes(r->plans.limit[TIER_HOST], b), units_format_bytes(r->plans.limit[TIER_NVME], c));
    if (budget_is_free_space(p, &s->plan))
        tell(" (all that is free, --nvme-max gives %s)", units_format_bytes(s->plan.nvme_max, a));
    else if (s->plan.nvme_max < 0 && drives_in_memory((const char *const *)s->nvme_path.item, s->nvme_path.n, s->out))
        tell(" (in memory)");
    else if (s->plan.nvme_max < 0)
        tell(" (%d%% left free)", HARDWARE_LEFT_FREE);
    for (int t = 0; t < TIERS; t++)
        if (s->plan.scarce[t][0] && (t == 0 || strcmp(s->plan.scarce[t], s->plan.scarce[t - 1]) != 0))
            tell("; of %s %s", tier_name((enum tier)t), s->plan.scarce[t]);
    tell(s->plan.memory_limit[0] ? "; memory: %s\n" : "\n", s->plan.memory_limit);
    tell("host memory: %s%s", arena_describe(r->session->host), r->session->backend->pin ? ", pinned by the GPU's driver" : "");
    if (r->session->bounce)
        tell("; %s beside it for what ranks send", units_format_bytes(session_message_bytes(p), a));
    tell("\n");
    tell("%s\n", r->session->store ? store_describe(r->session->store) : "nvme: not used");
    print_in_memory(r);
    comm_describe(r->comm, text, sizeof text);
    tell("mesh: %s; zero %d%s%s\n", text, s->plan.zero, r->session->carrier.text[0] ? "; " : "", r->session->carrier.text);
    comm_describe_span(r->comm, text, sizeof text);
    if (text[0])
        tell("%s\n", text);
    if (drives_describe(s->nvme_path.n ? s->nvme_path.n : 1, comm_local_size(r->comm), line, sizeof line)[0] && r->session->store)
        tell("%s\n", line);
    plan_print_sharing(p, tell_stream());
    run_print_data(r);
    print_checkpoints(r);
    if (s->warmup > s->plan.steps)
        tell("remark: --warmup %lld is longer than the run of %lld steps: the learning rate ends at %g, below --lr %g\n",
             (long long)s->warmup, (long long)s->plan.steps, s->lr * (double)s->plan.steps / (double)s->warmup, s->lr);
    if (s->verify_every > s->plan.steps)
        tell("remark: --verify-every %lld is longer than the run of %lld steps: none is computed twice\n",
             (long long)s->verify_every, (long long)s->plan.steps);
    for (int i = r->plans.all.n - 1; i >= 0; i--) {
        if (r->plans.all.n > 1)
            tell("sequences of %s tokens: ", units_format_count(plan_length(r->plans.all.plan[i]), a));
        print_plan(r->plans.all.plan[i]);
        train_print_verified(s, r->plans.all.plan[i], tell_stream());
        train_print_scrubbed(s, r->plans.all.plan[i], tell_stream());
    }
    plan_print_stretches(r->plans.all.plan[0], tell_stream());
    fflush(tell_stream());
}

/* Resident bytes of a rank: beside the arenas, and at its peak. */
struct rank_memory {
    int64_t outside, peak;
};

/* Prints a line about all ranks' memory, and with --verbose a line a rank. */
static void print_ranks_memory(const struct run *r, int64_t planned, const struct rank_memory *all)
{
    char a[32], b[32];
    int n = comm_size(r->comm), most = 0, least = 0;
    for (int k = 0; k < n; k++) {
        if (r->s->verbose)
            tell("memory of rank %d: planned %lld + %lld outside the plan; peak resident %lld\n", k, (long long)planned,
                 (long long)all[k].outside, (long long)all[k].peak);
        most = all[k].peak > all[most].peak ? k : most;
        least = all[k].peak < all[least].peak ? k : least;
    }
    if (n > 1)
        tell("memory of ranks: peak resident %s (rank %d) to %s (rank %d)\n", units_format_bytes(all[least].peak, a), least,
             units_format_bytes(all[most].peak, b), most);
}

/* Prints the GPU memory taken at the end, the planned part, and the part of kernels and libraries before the first step. */
static enum status print_gpu_memory(const struct run *r)
{
    const struct session *x = r->session;
    char a[32], b[32], c[32], d[32];
    int64_t now, planned = x->arena[TIER_DEVICE], loaded = x->free_opened - x->free_prepared - planned;
    if (x->free_opened == 0)
        return OK;
    TRY(backend_status(x->backend, x->backend->free_bytes(x->backend, &now)));
    tell("GPU memory: planned %s + %s by kernels and libraries before the first step, of %s that were free beside the context; "
         "taken at the end %s (%.1f%% of that)\n",
         units_format_bytes(planned, a), units_format_bytes(max_i64(0, loaded), b), units_format_bytes(x->free_opened, c),
         units_format_bytes(x->free_opened - now, d),
         100.0 * (double)(x->free_opened - now) / (double)(x->free_opened - x->free_prepared));
    if (session_check_device_memory(x, x->free_prepared) != OK)
        tell("remark: %s\n", status_message());
    return OK;
}

static enum status print_memory(const struct run *r)
{
    char a[32], b[32], c[32], d[32], e[32];
    int64_t device = r->session->backend->host_bytes, host = r->session->arena[TIER_HOST], planned = device + host;
    struct rank_memory own = {r->session->overhead_bytes, memory_proc_bytes("/proc/self/status", "VmHWM")},
                       *all = sys_calloc((size_t)comm_size(r->comm), sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    enum status st = comm_gather(r->comm, &own, sizeof own, all);
    if (st == OK)
        tell("memory: planned %s (device %s, host %s) + %s outside the plan; peak resident %s (%.1f%% of that)\n",
             units_format_bytes(planned, a), units_format_bytes(device, b), units_format_bytes(host, c),
             units_format_bytes(own.outside, d), units_format_bytes(own.peak, e),
             100.0 * (double)own.peak / (double)(planned + own.outside));
    if (st == OK)
        print_ranks_memory(r, planned, all);
    free(all);
    return st == OK ? print_gpu_memory(r) : st;
}

/* Prints the bytes a step of messages on the comm lanes. */
static void print_sent(const struct run *r)
{
    char a[32], b[32];
    tell("sent a step by all ranks:");
    for (int l = LANE_WORLD; l < LANES; l++)
        if (r->measured.sent[l].same_host + r->measured.sent[l].other_hosts > 0)
            tell("  %s %s inside hosts, %s to others", lane_name((enum lane)l),
                 units_format_bytes(r->measured.sent[l].same_host / r->measured.steps, a),
                 units_format_bytes(r->measured.sent[l].other_hosts / r->measured.steps, b));
    tell("\n");
}

static void print_pair(const char *what, const char *planned, const char *measured, const char *note)
{
    tell("  %-20s %22s %22s%s\n", what, planned, measured, note);
}

static void print_seconds(const char *what, double planned, double measured, const char *note)
{
    char a[32], b[32];
    print_pair(what, report_duration(planned, a), report_duration(measured, b), note);
}

/* Formats "167 MiB in 0.21 s". */
static const char *moved(int64_t bytes, double seconds, char buf[80])
{
    char a[32], b[32];
    snprintf(buf, 80, "%s in %s", units_format_bytes(bytes, a), report_duration(seconds, b));
    return buf;
}

#define LITTLE 1e-3 /* share of a step; lanes that are busy for less are left out */

static int is_busy(double busy, double step)
{
    return busy >= LITTLE * step;
}

static int moves(const struct report *r, double step)
{
    int any = 0;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        any |= is_busy(r->lane[l].busy, step);
    return any;
}

/* Prints the lanes and classes that compute waits for, if not next to nothing. */
static void print_stalls(const struct report *planned, const struct lane_stats *total, double steps, double step)
{
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        for (int c = 0; c < CLASSES; c++) {
            char what[64];
            double measured = total[l].stalled[c] / steps;
            if (!is_busy(fmax(planned->waited[l][c], measured), step))
                continue;
            snprintf(what, sizeof what, "  for %s, %s", lane_name((enum lane)l), class_name((enum tensor_class)c));
            print_seconds(what, planned->waited[l][c], measured, "");
        }
}

/* Prints the planned step and the mean of similar steps side by side. */
static enum status print_steps(const struct run *r)
{
    const struct plan *p = r->session->plan;
    const struct lane_stats *total = r->measured.alike.lanes;
    struct report planned;
    char a[80], b[80], note[128];
    double steps = (double)r->measured.alike.steps, seconds = r->measured.alike.seconds / steps;
    TRY(report_make(p, r->model, &planned));
    if (r->plans.all.n > 1)
        tell("with sequences of %s tokens:\n", units_format_count(run_length(r), a));
    snprintf(note, sizeof note, "   (mean of %lld%s)", (long long)r->measured.alike.steps,
             r->measured.alike.updated ? " that began with an update" : ", without the update that comes with the next");
    print_pair("a step", "planned", "measured", note);
    snprintf(note, sizeof note, "   %+.0f%%%s", 100 * (seconds / p->seconds - 1),
             r->s->plan.hardware
                 ? ""
                 : " (planned with assumed figures: --observed auto plans with what this run has measured, --profile measures)");
    print_seconds("step time", p->seconds, seconds, note);
    print_seconds("compute stands still", p->seconds - planned.lane[LANE_COMPUTE].busy,
                  (double)total[LANE_COMPUTE].waited_ns * 1e-9 / steps, "");
    print_stalls(&planned, total, steps, p->seconds);
    double hidden = metrics_hidden(total, r->measured.alike.seconds);
    if (isfinite(hidden) && isfinite(planned.hidden) && moves(&planned, p->seconds)) {
        snprintf(a, sizeof a, "%.0f%%", 100 * planned.hidden);
        snprintf(b, sizeof b, "%.0f%%", 100 * hidden);
        print_pair("transfers hidden", a, b, "");
    }
    for (int l = LANE_COMPUTE + 1; l < LANES; l++) {
        const struct report_lane *lane = &planned.lane[l];
        double busy = (double)total[l].busy_ns * 1e-9 / steps;
        if (!is_busy(fmax(lane->busy, busy), p->seconds))
            continue;
        snprintf(note, sizeof note, "lane %s", lane_name((enum lane)l));
        print_pair(note, moved(lane->bytes, lane->busy, a), moved(total[l].bytes / r->measured.alike.steps, busy, b), "");
    }
    return OK;
}

static void print_skipped(const struct run *r)
{
    if (r->measured.skipped > 0)
        tell("skipped: %lld of %lld steps, whose gradient norm was not finite\n", (long long)r->measured.skipped,
             (long long)r->measured.steps);
    if (r->measured.empty > 0)
        tell("skipped: %lld of %lld steps, whose documents have one token each or nothing that is trained\n",
             (long long)r->measured.empty, (long long)r->measured.steps);
}

static void print_spikes(const struct run *r)
{
    const struct spikes *s = &r->measured.spikes;
    if (s->loss.spikes + s->norm.spikes > 0)
        tell(
            "spikes: the loss of %lld, the gradient norm of %lld of %lld steps lay %g or more standard deviations above the mean of "
            "the up to %d steps before\n",
            (long long)s->loss.spikes, (long long)s->norm.spikes, (long long)s->loss.judged, SPIKES_DEVIATIONS, SPIKES_WINDOW);
}

void run_print_thrown(const struct run *r, double seconds, int terminal)
{
    static const char *const passes[PHASES] = {
        [PHASE_FORWARD] = "forward pass", [PHASE_LOSS] = "loss", [PHASE_BACKWARD] = "backward pass"};
    const char *pass = passes[r->progress.thrown.phase];
    char took[32];
    if (r->progress.thrown.micro_batch == 0)
        return;
    tell("%sstep %lld is thrown away, %s into it (in %s%s", terminal ? "\n" : "", (long long)r->progress.at.step + 1,
         report_duration(seconds, took), pass ? "the " : "", pass ? pass : "");
    if (r->s->plan.grad_accum > 1)
        tell("%smicro-batch %lld of %lld", pass ? " of " : "", (long long)r->progress.thrown.micro_batch,
             (long long)r->s->plan.grad_accum);
    tell("); the state is that after step %lld\n", (long long)r->progress.at.step);
    fflush(tell_stream());
}

enum status run_print_saving(const struct run *r)
{
    int n = comm_size(r->comm), must, others;
    double seconds = signals_seconds_ago(), *all = sys_calloc((size_t)n, sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    executor_finished(r->session->executor, &must, &others);
    double finished[2] = {must, others};
    enum status st = comm_gather(r->comm, &seconds, sizeof seconds, all);
    if (st == OK)
        st = comm_sum(r->comm, finished, 2);
    for (int k = 0; k < n; k++)
        seconds = fmax(seconds, all[k]);
    free(all);
    if (st == OK)
        tell("saving step %lld, %.3g s after %s; finished before: %.0f instructions of its update, %.0f others under way\n",
             (long long)r->progress.at.step, seconds, signals_name(r->progress.signal), finished[0], finished[1]);
    fflush(tell_stream());
    return st;
}

/* Prints the summary. model_path: directory of the trained model; NULL: a signal ended the run before it was done. */
enum status run_print_after(struct run *r, const char *model_path)
{
    char a[32], b[32], scrubbed[32];
    const char *cause = r->progress.signal == WALLTIME_SIGNAL ? signals_name(r->progress.signal) : "a signal";
    TRY(print_memory(r));
    if (r->measured.alike.steps > 0)
        TRY(print_steps(r));
    print_skipped(r);
    print_spikes(r);
    if (scrub_checked_bytes(r->session->scrub) > 0)
        tell("scrub: %s of state in host memory were as they had been left\n",
             units_format_bytes(scrub_checked_bytes(r->session->scrub), scrubbed));
    if (r->measured.verified > 0)
        tell("verified: %lld step%s computed twice, with the same bits\n", (long long)r->measured.verified,
             r->measured.verified == 1 ? " was" : "s were");
    if (comm_size(r->comm) > 1 && r->measured.steps > 0)
        print_sent(r);
    if (r->session->store) {
        struct store_counters n;
        store_get_counters(r->session->store, &n);
        tell("%s; read %s at %.2f GB/s, wrote %s at %.2f GB/s\n", store_describe(r->session->store),
             units_format_bytes(n.read_bytes, a), n.read_ns ? (double)n.read_bytes / (double)n.read_ns : 0.0,
             units_format_bytes(n.written_bytes, b), n.write_ns ? (double)n.written_bytes / (double)n.write_ns : 0.0);
    }
    if (model_path)
        tell("model: %s\n", model_path);
    else if (r->place.saved == r->progress.at.step)
        tell("stopped by %s at step %lld of %lld, saved: continue with ltrain --resume %s\n", cause,
             (long long)r->progress.at.step, (long long)r->s->plan.steps, r->s->out);
    else
        tell("stopped by %s at step %lld of %lld, which was skipped and is not saved: continue from step %lld with ltrain "
             "--resume %s\n",
             cause, (long long)r->progress.at.step, (long long)r->s->plan.steps, (long long)r->place.saved, r->s->out);
    return OK;
}
