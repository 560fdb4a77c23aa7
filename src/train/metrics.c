/* Progress lines, metrics.jsonl and traces. */
#include "train/metrics.h"

#include "base/sys.h"
#include "base/units.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LITTLE 1e-3 /* share of a step; transfers that take less count as none */

double metrics_hidden(const struct lane_stats lanes[LANES], double seconds)
{
    double busy = 0, waited = (double)lanes[LANE_COMPUTE].waited_ns;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        busy += (double)lanes[l].busy_ns;
    if (busy <= LITTLE * seconds * 1e9)
        return NAN;
    return waited >= busy ? 0 : 1 - waited / busy;
}

/* Formats a rate as a whole number, and a small one with three digits: slow steps make less than a token a second. */
static const char *figure(double x, char buf[32])
{
    snprintf(buf, 32, x < 99.5 ? "%.3g" : "%.0f", x);
    return buf;
}

void metrics_print_evaluation(const struct step_metrics *m, FILE *f)
{
    char text[48] = "";
    if (isfinite(m->eval.bits_per_byte))
        snprintf(text, sizeof text, "  %.4f bits/byte", m->eval.bits_per_byte);
    fprintf(f, "step %lld  eval loss %.4f%s\n", (long long)m->step, m->eval.loss, text);
}

static void print_spike(const struct step_metrics *m, double above, const char *what, FILE *f, int terminal)
{
    if (above >= SPIKES_DEVIATIONS)
        fprintf(f, "%sstep %lld: the %s lies %.3g standard deviations above the mean of the steps before\n", terminal ? "\n" : "",
                (long long)m->step, what, above);
}

void metrics_print(const struct step_metrics *m, FILE *f, int terminal)
{
    char device[32], limit[32], host[32], nvme[32], hidden[16] = "-", speed[32], flops[32], load[EXPERT_STATS_TEXT];
    int64_t eta = (int64_t)m->eta_seconds;
    double rate = m->model_flops / m->seconds;
    if (isfinite(m->hidden))
        snprintf(hidden, sizeof hidden, "%.0f%%", 100 * m->hidden);
    fprintf(f,
            "%sstep %lld/%lld  loss %.4f  gnorm %.3g  lr %.1e  %s tok/s  %s GF %.0f%%  device %s/%s  host %s  nvme %s  "
            "hidden %s  %seta "
            "%lld:%02lld:%02lld%s",
            terminal ? "\r" : "", (long long)m->step, (long long)m->steps, fabs(m->loss), fabs(m->grad_norm) /* no "-nan" */,
            m->lr, figure((double)m->tokens / m->seconds, speed), figure(rate * 1e-9, flops), 100 * rate / m->peak_flops,
            units_format_short(m->device_bytes, device), units_format_short(m->device_limit, limit),
            units_format_short(m->host_bytes, host), units_format_short(m->nvme_bytes, nvme), hidden,
            expert_stats_text(&m->experts, load), (long long)(eta / 3600), (long long)(eta / 60 % 60), (long long)(eta % 60),
            terminal ? "\x1b[K" : "\n");
    metrics_print_events(m, f, terminal);
}

void metrics_print_events(const struct step_metrics *m, FILE *f, int terminal)
{
    if (m->evaluated) {
        fputs(terminal ? "\n" : "", f);
        metrics_print_evaluation(m, f);
    }
    print_spike(m, m->loss_above, "loss", f, terminal);
    print_spike(m, m->norm_above, "gradient norm", f, terminal);
    if (m->skipped)
        fprintf(f, "%sstep %lld skipped: %s; parameters stay as they are\n", terminal ? "\n" : "", (long long)m->step,
                m->skipped);
    fflush(f);
}

static void put(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, isfinite(x) ? json_real(x) : json_null());
}

static void put_int(json_t *o, const char *key, int64_t x)
{
    json_object_set_new(o, key, json_integer(x));
}

/* Makes {"h2d": {"parameters": seconds}} of the times above zero. */
static json_t *stalls_object(const struct step_metrics *m)
{
    json_t *all = json_object();
    for (int l = 0; l < LANES; l++) {
        json_t *lane = json_object();
        for (int c = 0; c < CLASSES; c++)
            if (m->stalled[l][c] + m->before.stalled[l][c] > 0)
                put(lane, class_name((enum tensor_class)c), m->stalled[l][c] + m->before.stalled[l][c]);
        if (json_object_size(lane) > 0)
            json_object_set_new(all, lane_name((enum lane)l), lane);
        else
            json_decref(lane);
    }
    return all;
}

/* Lists losses by the least number of tokens that a prediction sees. */
static json_t *by_position(const struct evaluation *e)
{
    json_t *all = json_object();
    for (int k = 0; k < EVALUATION_BUCKETS; k++) {
        char key[16];
        snprintf(key, sizeof key, "%lld", 1ll << k);
        if (e->seen[k].targets > 0)
            put(all, key, e->seen[k].loss);
    }
    return all;
}

static void put_evaluation(json_t *o, const struct evaluation *e)
{
    put(o, "eval_loss", e->loss); /* NaN becomes null */
    put_int(o, "eval_tokens", e->targets);
    put(o, "eval_bits_per_byte", e->bits_per_byte);
    json_object_set_new(o, "eval_loss_by_position", by_position(e));
}

static void put_experts(json_t *o, const struct expert_stats *x)
{
    if (x->experts == 0)
        return;
    put(o, "expert_load", x->load.mean);
    put(o, "expert_load_worst", x->load.worst);
    put(o, "expert_entropy", x->entropy.mean);
    put(o, "expert_entropy_worst", x->entropy.worst);
    put(o, "experts_unhit", x->unhit.mean);
    put(o, "experts_unhit_worst", x->unhit.worst);
    if (x->coefficient > 0) {
        put(o, "aux_loss", x->aux);
        put(o, "aux_coefficient", x->coefficient);
    }
}

/* Makes the object of settings that decide what updates do, and that a resumed run may have changed. */
static json_t *updates_object(const struct settings *s)
{
    json_t *o = json_object();
    put_int(o, "batch", s->plan.batch);
    put(o, "weight_decay", s->weight_decay);
    put(o, "beta1", s->beta1);
    put(o, "beta2", s->beta2);
    put(o, "eps", s->eps);
    put(o, "clip", s->clip);
    put(o, "router_bias_rate", s->router_bias_rate);
    return o;
}

/* Adds sums to others. */
static void add_sums(struct step_sums *to, const struct step_sums *x)
{
    to->steps += x->steps;
    to->tokens += x->tokens;
    to->target_tokens += x->target_tokens;
    to->read_bytes += x->read_bytes;
    to->written_bytes += x->written_bytes;
    to->model_flops += x->model_flops;
    to->stall_seconds += x->stall_seconds;
    to->planned_seconds += x->planned_seconds;
    to->submit_cpu_seconds += x->submit_cpu_seconds;
    to->sent.same_host += x->sent.same_host;
    to->sent.other_hosts += x->sent.other_hosts;
    for (int l = 0; l < LANES; l++)
        for (int c = 0; c < CLASSES; c++)
            to->stalled[l][c] += x->stalled[l][c];
}

void metrics_sum(struct step_sums *to, const struct step_metrics *m)
{
    struct step_sums own = {.steps = 1,
                            .tokens = m->tokens,
                            .target_tokens = m->target_tokens,
                            .read_bytes = m->read_bytes,
                            .written_bytes = m->written_bytes,
                            .model_flops = m->model_flops,
                            .stall_seconds = m->stall_seconds,
                            .planned_seconds = m->planned_seconds,
                            .submit_cpu_seconds = (double)m->submission.cpu_ns * 1e-9,
                            .sent = m->sent};
    memcpy(own.stalled, m->stalled, sizeof own.stalled);
    add_sums(to, &own);
    add_sums(to, &m->before);
}

static void put_step(json_t *o, const struct step_metrics *m)
{
    const struct step_sums *before = &m->before;
    double rate = m->model_flops / m->seconds;
    if (before->steps > 0)
        put_int(o, "steps", before->steps + 1);
    put(o, "loss", m->loss);
    put(o, "grad_norm", m->grad_norm);
    put(o, "loss_deviations", m->loss_above);
    put(o, "grad_norm_deviations", m->norm_above);
    put(o, "lr", m->lr);
    put_int(o, "seq_len", m->seq_len);
    put_int(o, "tokens", m->tokens + before->tokens);
    put_int(o, "target_tokens", m->target_tokens + before->target_tokens);
    put(o, "seconds", m->seconds);
    put(o, "tokens_per_second", (double)m->tokens / m->seconds);
    put(o, "model_flops", m->model_flops + before->model_flops);
    put(o, "mfu", rate / m->peak_flops);
    json_object_set_new(o, "mfu_reference", json_string(m->peak_reference));
    put_experts(o, &m->experts);
    put_int(o, "device_peak_bytes", m->device_bytes);
    put_int(o, "host_peak_bytes", m->host_bytes);
    put_int(o, "nvme_bytes", m->nvme_bytes);
    put_int(o, "read_bytes", m->read_bytes + before->read_bytes);
    put_int(o, "written_bytes", m->written_bytes + before->written_bytes);
    put_int(o, "sent_inside_hosts_bytes", m->sent.same_host + before->sent.same_host);
    put_int(o, "sent_to_other_hosts_bytes", m->sent.other_hosts + before->sent.other_hosts);
    put(o, "hidden", m->hidden);
    put(o, "stall_seconds", m->stall_seconds + before->stall_seconds);
    json_object_set_new(o, "stalls", stalls_object(m));
    if (m->submission.instrs > 0) {
        put_int(o, "submitted", m->submission.instrs);
        put(o, "submit_cpu_seconds", (double)m->submission.cpu_ns * 1e-9 + before->submit_cpu_seconds);
    }
    put(o, "planned_seconds", m->planned_seconds + before->planned_seconds);
    json_object_set_new(o, "skipped", json_boolean(m->skipped != NULL));
    if (m->verified)
        json_object_set_new(o, "verified", json_true());
    if (m->resumed)
        json_object_set_new(o, "resumed", json_true());
    if (m->numerics) {
        json_object_set_new(o, "numerics", json_string(m->numerics));
        json_object_set_new(o, "updates", updates_object(m->settings));
    }
}

json_t *metrics_object(const struct step_metrics *m)
{
    json_t *o = json_object();
    if (!o)
        return NULL;
    put_int(o, "step", m->step);
    if (m->step > 0)
        put_step(o, m);
    if (m->evaluated)
        put_evaluation(o, &m->eval);
    return o;
}

enum status metrics_append(const struct step_metrics *m, FILE *f)
{
    json_t *o = metrics_object(m);
    if (!o)
        return status_fail(ERR_NOMEM, "out of memory for metrics.jsonl");
    int failed = json_dumpf(o, f, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0 || fputc('\n', f) == EOF || fflush(f) != 0;
    json_decref(o);
    return failed ? status_fail(ERR_IO, "cannot write metrics.jsonl: %s", strerror(errno)) : OK;
}

/* Returns the step of a line's object, or -1. */
static int64_t step_of(const json_t *o)
{
    const json_t *step = json_object_get(o, "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

/* Adds a number of a line's object, which is null where it is not finite and absent before the first step. */
static void add_to_series(struct spikes_series *s, const json_t *number)
{
    if (json_is_number(number))
        (void)spikes_add(s, json_number_value(number));
}

enum status metrics_cut(const char *path, int64_t step, struct spikes *kept, int64_t *last)
{
    struct stat s;
    char *line = NULL;
    size_t room = 0;
    off_t keep = 0;
    int stays = 1;
    *last = step;
    if (sys_stat(path, &s) != 0 ? sys_is_absent(errno) : !S_ISREG(s.st_mode))
        return OK; /* the missing file's error is reported when the log is opened for writing */
    FILE *f = sys_read_text(path);
    if (!f)
        return status_fail(ERR_IO, "cannot read %s: %s", path, sys_strerror(errno));
    for (ssize_t n; (n = getline(&line, &room, f)) > 0;) {
        json_t *o = line[n - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
        const int64_t x = step_of(o);
        stays &= x >= 0 && x <= step;
        keep += stays ? n : 0;
        *last = max_i64(*last, x);
        if (stays) {
            add_to_series(&kept->loss, json_object_get(o, "loss"));
            add_to_series(&kept->norm, json_object_get(o, "grad_norm"));
        }
        json_decref(o);
    }
    int failed = feof(f) ? 0 : errno; /* never cut after a failed read: the unread lines may be good */
    free(line);
    fclose(f);
    if (failed)
        return status_fail(ERR_IO, "cannot read %s: %s", path, strerror(failed));
    return keep == s.st_size || sys_truncate(path, keep) == 0 ? OK
                                                              : status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static void write_event(const struct trace_file *x, const struct timeline *t, int i, const struct trace_event *event,
                        int64_t at_ns)
{
    FILE *f = x->f;
    const double at = (double)at_ns * 1e-3;
    const struct program *p = t->p;
    const struct instr *in = &p->instrs[i];
    const struct operand *first = in->n_operands > 0 ? &p->operands[in->first_operand] : NULL;
    double ready;
    int by = stalls_released_by(t, i, &ready);
    fprintf(f,
            "%s{\"name\":\"%s "
            "%s\",\"cat\":\"%c\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"instruction\":%lld,"
            "\"unit\":%d,\"bytes\":%lld,\"ready\":%.3f,\"released_by\":",
            x->instrs + i > 0 ? ",\n" : "", op_name(in->op), first && first->tensor >= 0 ? p->tensors[first->tensor].name : "",
            in->phase ? phase_letter(in->phase) : '-', in->lane, at + (double)event->start_ns * 1e-3,
            (double)(event->end_ns - event->start_ns) * 1e-3, (long long)x->instrs + i, in->unit,
            (long long)program_call(p, in)->bytes, at + ready * 1e6);
    if (by < 0)
        fprintf(f, "null");
    else
        fprintf(f, "{\"lane\":\"%s\",\"ticket\":%d,\"instruction\":%lld}", lane_name((enum lane)p->instrs[by].lane),
                (int)p->instrs[by].ticket, (long long)x->instrs + by);
    fprintf(f, ",\"planned_start_us\":%.1f,\"planned_us\":%.1f", at + in->start * 1e6, (in->end - in->start) * 1e6);
    if (event->submit_ns > 0)
        fprintf(f, ",\"submit_us\":%.3f", (double)event->submit_ns * 1e-3);
    fprintf(f, "}}");
}

enum status metrics_trace_begin(const char *path, struct trace_file *out)
{
    *out = (struct trace_file){.f = sys_write_text(path)};
    if (!out->f)
        return status_fail(ERR_IO, "cannot write the trace %s: %s", path, strerror(errno));
    fprintf(out->f, "{\"traceEvents\":[\n");
    for (int l = 0; l < LANES; l++)
        fprintf(out->f, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", l,
                lane_name((enum lane)l));
    return OK;
}

enum status metrics_trace_add(struct trace_file *t, const struct program *p, const struct trace_event *events, int64_t at_ns)
{
    struct lane_index index;
    TRY(lane_index_make(p, &index));
    const struct timeline line = executor_timeline(p, &index, events);
    for (int i = 0; i < p->n_instrs; i++)
        write_event(t, &line, i, &events[i], at_ns);
    t->instrs += p->n_instrs;
    lane_index_free(&index);
    return OK;
}

enum status metrics_trace_end(struct trace_file *t, const char *path)
{
    fprintf(t->f, "\n]}\n");
    return fclose(t->f) == 0 ? OK : status_fail(ERR_IO, "cannot write the trace %s: %s", path, strerror(errno));
}
