/* The training loop: batches in, programs run, metrics and checkpoints out. */
#include "engine/train.h"

#include "attention/attention.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/units.h"
#include "data/corpus.h"
#include "engine/checkpoint.h"
#include "engine/metrics.h"
#include "engine/session.h"
#include "offload/places.h"

#include <cblas.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    struct settings *s;
    struct model *model;
    struct corpus *corpus;
    struct session *session;
    struct checkpoint_info at; /* where training stands */
    int pending;               /* an update waits for the next forward */
    double lr_pending;
    int64_t limit[TIERS];
    FILE *metrics;
    double peak_flops, last_loss;
    struct lane_stats total[LANES];
    double run_seconds;
    int64_t steps_here;
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

static enum status open_model(struct settings *s, struct model **out)
{
    struct model_config config;
    if (model_is_preset(s->model)) {
        TRY(model_preset(s->model, &config));
    } else {
        struct stat sb;
        if (stat(s->model, &sb) != 0) {
            /* the sentence with the presets and the nearest one */
            TRY(model_preset(s->model, &config));
        }
        TRY(model_config_read(s->model, &config));
    }
    if (s->seq_len > config.max_positions && config.family == FAMILY_GPT2)
        return status_fail(ERR_INVALID, "model %s has learned positions for %lld tokens; --seq-len %lld is longer", config.name,
                           (long long)config.max_positions, (long long)s->seq_len);
    return model_create(&config, (const char *const *)s->freeze.item, s->freeze.n, out);
}

/* Free bytes of the file system that a path will lie on: its nearest ancestor that exists. */
static int free_bytes_near(const char *path, int64_t *free_bytes)
{
    char at[4096];
    snprintf(at, sizeof at, "%s", path);
    while (sys_statvfs_free(at, free_bytes) != 0) {
        char *slash = strrchr(at, '/');
        if (strcmp(at, ".") == 0 || strcmp(at, "/") == 0)
            return -1;
        if (!slash)
            strcpy(at, ".");
        else
            slash[slash == at ? 1 : 0] = 0;
    }
    return 0;
}

enum status train_plan(struct settings *s, struct model **model, struct plan **plan, int64_t limit[TIERS])
{
    if (s->device == DEVICE_CUDA)
        return status_fail(ERR_INVALID, "device: this build has no CUDA backend; use cpu or cpu:discrete");
    if (s->device == DEVICE_AUTO)
        s->device = DEVICE_CPU;
    if (s->threads > 0)
        omp_set_num_threads(s->threads);
    s->threads = omp_get_max_threads();
    int64_t available = session_proc_bytes("/proc/meminfo", "MemAvailable");
    limit[TIER_DEVICE] = s->device_mem >= 0 ? s->device_mem : available / 2;
    limit[TIER_HOST] = s->host_mem >= 0 ? s->host_mem : available / 10 * 4;
    int64_t least = INT64_MAX, free_bytes;
    for (int i = 0; i < s->nvme_path.n; i++)
        if (sys_statvfs_free(s->nvme_path.item[i], &free_bytes) == 0)
            least = min_i64(least, free_bytes + store_dead_bytes(s->nvme_path.item[i]));
    if (s->nvme_path.n == 0 && free_bytes_near(s->out, &free_bytes) == 0)
        least = free_bytes + store_dead_bytes(s->out); /* a killed run's file must not keep it from being resumed */
    /* striped evenly: the fullest path decides */
    limit[TIER_NVME] = least == INT64_MAX ? INT64_MAX : least * max_i64(1, s->nvme_path.n);
    if (s->nvme_max >= 0)
        limit[TIER_NVME] = min_i64(limit[TIER_NVME], s->nvme_max);
    TRY(open_model(s, model));
    enum status st = plan_create(*model, s, limit, plan);
    if (st != OK) {
        model_destroy(*model);
        *model = NULL;
        return st;
    }
    s->row_chunk = (*plan)->strategy.row_chunk;
    s->head_tile = (*plan)->strategy.head_tile;
    s->loss_tile = (*plan)->strategy.loss_tile;
    s->group = (*plan)->strategy.group;
    return OK;
}

/* The rate that MFU refers to on a CPU: the best of three sgemm of 1024 cubed. */
static double measure_sgemm(int threads)
{
    enum { N = 1024 };
    float *a = sys_calloc(3 * N * N, sizeof *a);
    double best = 1e30;
    if (!a)
        return 1e9;
    openblas_set_num_threads(threads); /* the kernels thread matrix products themselves: back to one below */
    for (int i = 0; i < 4; i++) {
        double t = clock_seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, a + N * N, N, 0, a + 2 * N * N, N);
        t = clock_seconds() - t;
        if (i > 0 && t < best)
            best = t;
    }
    openblas_set_num_threads(1);
    free(a);
    return 2.0 * N * N * N / best;
}

static enum status make_directories(const char *path)
{
    char partial[4096];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *p = partial + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = 0;
        if (sys_mkdir(partial, 0777) != 0 && errno != EEXIST)
            return status_fail(ERR_IO, "cannot make the directory %s: %s", partial, strerror(errno));
        *p = kept;
        if (!kept)
            return OK;
    }
}

/* A run is never overwritten by another. */
static enum status refuse_old_run(const struct settings *s)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->out);
    if (s->resume || access(path, F_OK) != 0)
        return OK;
    snprintf(path, sizeof path, "%s/checkpoints/latest", s->out);
    if (access(path, F_OK) != 0)
        return status_fail(ERR_INVALID,
                           "%s already holds a run, without a checkpoint to continue from: give another --out, or remove it",
                           s->out);
    return status_fail(ERR_INVALID, "%s already holds a run: continue it with --resume %s, or give another --out", s->out,
                       s->out);
}

static double learning_rate(const struct settings *s, int64_t step)
{
    double warm = s->warmup > 0 && step < s->warmup ? (double)(step + 1) / (double)s->warmup : 1;
    double total = (double)max_i64(1, s->steps - s->warmup), t = (double)max_i64(0, step - s->warmup) / total;
    switch (s->schedule) {
    case SCHEDULE_LINEAR:
        return s->lr * warm * (1 - t);
    case SCHEDULE_COSINE:
        return s->lr * warm * 0.5 * (1 + cos(3.14159265358979 * (t < 1 ? t : 1)));
    case SCHEDULE_WSD: /* warm-up, stable, the last fifth decays */
        return s->lr * warm * (t < 0.8 ? 1 : (1 - t) / 0.2);
    default:
        return s->lr * warm;
    }
}

static struct step_record *fill_record(struct run *r, int64_t targets)
{
    const struct settings *s = r->s;
    struct step_record *record = session_io(r->session, r->session->plan->io.record);
    double t = (double)r->at.updates;
    *record = (struct step_record){.inv_targets = targets > 0 ? 1.0f / (float)targets : 0,
                                   .clip = (float)s->clip,
                                   .lr = (float)r->lr_pending,
                                   .weight_decay = (float)s->weight_decay,
                                   .beta1 = (float)s->beta1,
                                   .beta2 = (float)s->beta2,
                                   .eps = (float)s->eps,
                                   .bias1 = (float)(1 - pow((double)(float)s->beta1, t)), /* of the beta that is used */
                                   .bias2 = (float)(1 - pow((double)(float)s->beta2, t))};
    return record;
}

static struct sequence input_arrays(struct run *r)
{
    const struct io_buffers *io = &r->session->plan->io;
    return (struct sequence){.tokens = session_io(r->session, io->tokens),
                             .targets = session_io(r->session, io->targets),
                             .positions = session_io(r->session, io->positions),
                             .lo = session_io(r->session, io->lo),
                             .hi = session_io(r->session, io->hi)};
}

/* Sum of the loss over one program's loss tiles, in order. */
static double loss_sum(struct run *r)
{
    const double *part = session_io(r->session, r->session->plan->io.loss);
    double sum = 0;
    for (int64_t i = 0; i < ceil_div(r->s->seq_len, r->session->plan->strategy.loss_tile); i++)
        sum += part[i];
    return sum;
}

static enum status flush(struct run *r)
{
    if (!r->pending)
        return OK;
    fill_record(r, 0);
    TRY(session_run(r->session, PLAN_FLUSH, NULL));
    r->pending = 0;
    return OK;
}

static enum status evaluate(struct run *r, double *loss)
{
    int64_t targets = 0, n = corpus_get_report(r->corpus)->eval_sequences;
    double sum = 0;
    TRY(flush(r));
    for (int64_t i = 0; i < n; i++) {
        struct sequence q = input_arrays(r);
        TRY(corpus_eval_sequence(r->corpus, i, &q));
        fill_record(r, q.n_targets);
        TRY(session_run(r->session, PLAN_EVAL, NULL));
        sum += loss_sum(r);
        targets += q.n_targets;
    }
    *loss = sum / (double)targets;
    return OK;
}

static enum status save(struct run *r)
{
    TRY(flush(r));
    return checkpoint_save(r->session, r->s->out, &r->at, (int)max_i64(1, r->s->keep));
}

static enum status run_traced(struct run *r, enum plan_program which, int64_t step)
{
    const struct program *p = r->session->plan->programs[which];
    char path[4096];
    struct trace_event *events = sys_calloc((size_t)p->n_instrs, sizeof *events);
    if (!events)
        return status_fail(ERR_NOMEM, "out of memory for the trace");
    enum status st = session_run(r->session, which, events);
    snprintf(path, sizeof path, "%s/trace-%06lld.json", r->s->out, (long long)step);
    if (st == OK)
        st = metrics_write_trace(path, p, events);
    free(events);
    return st;
}

/* One optimizer step: all micro-batches; its update stays pending. */
static enum status step(struct run *r, struct step_metrics *m)
{
    const struct settings *s = r->s;
    int64_t accum = s->grad_accum, targets = 0;
    double sum = 0, began = clock_seconds();
    struct sequence q = input_arrays(r);
    if (accum > 1) /* the loss is a mean over the whole batch: count first */
        for (int64_t i = 0; i < accum; i++) {
            TRY(corpus_train_sequence(r->corpus, r->at.cursor + (uint64_t)i, &q));
            targets += q.n_targets;
        }
    for (int64_t i = 0; i < accum; i++) {
        TRY(corpus_train_sequence(r->corpus, r->at.cursor + (uint64_t)i, &q));
        if (accum == 1)
            targets = q.n_targets;
        fill_record(r, targets);
        enum plan_program which = i == 0 ? (r->pending ? PLAN_UPDATE_STEP : PLAN_STEP) : i == accum - 1 ? PLAN_LAST : PLAN_MORE;
        if (i == 0 && s->trace == r->at.step + 1)
            TRY(run_traced(r, which, s->trace));
        else
            TRY(session_run(r->session, which, NULL));
        sum += loss_sum(r);
        m->model_flops += model_flops(r->model, s->seq_len, q.pairs);
    }
    const struct norm_result *norm = session_io(r->session, r->session->plan->io.norm);
    r->lr_pending = learning_rate(s, r->at.step);
    r->at.cursor += (uint64_t)accum;
    r->at.step++;
    r->at.updates += !norm->skip;
    r->pending = 1;
    m->step = r->at.step;
    m->steps = s->steps;
    m->tokens = accum * s->seq_len;
    m->target_tokens = targets;
    m->loss = r->last_loss = sum / (double)targets;
    m->grad_norm = norm->norm;
    m->skipped = norm->skip;
    m->lr = r->lr_pending;
    m->seconds = clock_seconds() - began;
    return OK;
}

static void finish_metrics(struct run *r, struct step_metrics *m)
{
    struct lane_stats lanes[LANES];
    executor_take_stats(r->session->executor, lanes);
    for (int l = 0; l < LANES; l++) {
        r->total[l].bytes += lanes[l].bytes;
        r->total[l].busy_ns += lanes[l].busy_ns;
        r->total[l].waited_ns += lanes[l].waited_ns;
    }
    const struct plan *p = r->session->plan;
    m->peak_flops = r->peak_flops;
    m->device_bytes = p->arena[TIER_DEVICE];
    m->device_limit = r->limit[TIER_DEVICE];
    m->host_bytes = p->arena[TIER_HOST];
    m->nvme_bytes = p->arena[TIER_NVME];
    m->read_bytes = lanes[LANE_READ].bytes;
    m->written_bytes = lanes[LANE_WRITE].bytes;
    m->hidden = metrics_hidden(lanes);
    r->run_seconds += m->seconds;
    r->steps_here++;
    m->eta_seconds = r->run_seconds / (double)r->steps_here * (double)(r->s->steps - r->at.step);
}

static enum status loop(struct run *r)
{
    const struct settings *s = r->s;
    int terminal = isatty(STDOUT_FILENO);
    while (r->at.step < s->steps && !stop_signal) {
        struct step_metrics m = {0};
        TRY(step(r, &m));
        m.evaluated = s->eval_every > 0 && r->at.step % s->eval_every == 0;
        if (m.evaluated)
            TRY(evaluate(r, &m.eval_loss));
        finish_metrics(r, &m);
        metrics_print(&m, stdout, terminal);
        TRY(metrics_append(&m, r->metrics));
        if (s->save_every > 0 && r->at.step % s->save_every == 0 && r->at.step < s->steps)
            TRY(save(r));
    }
    if (terminal)
        printf("\n");
    return OK;
}

static void print_before(struct run *r)
{
    char a[32], b[32], c[32], line[256];
    const struct settings *s = r->s;
    const struct plan *p = r->session->plan;
    const struct corpus_report *d = corpus_get_report(r->corpus);
    printf("device: %s, %d threads, sgemm %.0f GFLOP/s measured\n", s->device == DEVICE_CPU_DISCRETE ? "cpu:discrete" : "cpu",
           s->threads, r->peak_flops * 1e-9);
    if (s->verbose) {
        places_describe(line, sizeof line);
        printf("places: %s\n", line);
    }
    printf("budgets: device %s, host %s, nvme %s\n", units_format_bytes(r->limit[TIER_DEVICE], a),
           units_format_bytes(r->limit[TIER_HOST], b), units_format_bytes(r->limit[TIER_NVME], c));
    printf("host memory: %s\n", arena_describe(r->session->host));
    printf("%s\n", r->session->store ? store_describe(r->session->store) : "nvme: not used");
    printf("mesh: %d rank (%s), zero %d\n", r->session->comm.size, r->session->comm.source, s->zero);
    printf("data: %lld documents, %s tokens kept, %s dropped, 0 truncated, %lld documents split; %lld training and %lld held-out "
           "sequences; "
           "unigram entropy %.4f nats/token\n",
           (long long)d->documents, units_format_count(d->tokens_kept, a), units_format_count(d->tokens_dropped, b),
           (long long)d->documents_split, (long long)d->train_sequences, (long long)d->eval_sequences, d->unigram_entropy);
    plan_describe(p, line, sizeof line);
    printf("plan: fits: device %s, host %s, nvme %s; step %.3g s (%s)\n      %s\n", units_format_bytes(p->arena[TIER_DEVICE], a),
           units_format_bytes(p->arena[TIER_HOST], b), units_format_bytes(p->arena[TIER_NVME], c), p->seconds, p->cost.source,
           line);
    fflush(stdout);
}

/* model_path: where the trained model is, or NULL if a signal ended the run before it was done. */
static void print_after(struct run *r, const char *model_path)
{
    const struct plan *p = r->session->plan;
    char a[32], b[32], c[32], d[32], e[32];
    int64_t planned = p->arena[TIER_DEVICE] + p->arena[TIER_HOST], peak = session_proc_bytes("/proc/self/status", "VmHWM");
    printf("memory: planned %s (device %s, host %s) + %s outside the plan; peak resident %s (%.1f%% of that)\n",
           units_format_bytes(planned, a), units_format_bytes(p->arena[TIER_DEVICE], b),
           units_format_bytes(p->arena[TIER_HOST], c), units_format_bytes(r->session->overhead_bytes, d),
           units_format_bytes(peak, e), 100.0 * (double)peak / (double)(planned + r->session->overhead_bytes));
    if (r->steps_here > 0)
        printf("step time: planned %.3g s, measured %.3g s (mean of %lld)\n", p->seconds, r->run_seconds / (double)r->steps_here,
               (long long)r->steps_here);
    printf("lanes:");
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        if (r->total[l].busy_ns > 0)
            printf("  %s %s at %.2f GB/s", lane_name((enum lane)l), units_format_bytes(r->total[l].bytes, a),
                   (double)r->total[l].bytes / (double)r->total[l].busy_ns);
    double hidden = metrics_hidden(r->total);
    if (isfinite(hidden))
        printf("  hidden %.0f%%", 100 * hidden);
    printf("\n");
    if (model_path)
        printf("model: %s\n", model_path);
    else
        printf("stopped by a signal at step %lld of %lld, saved: continue with ltrain --resume %s\n", (long long)r->at.step,
               (long long)r->s->steps, r->s->out);
}

static json_t *bytes_by_tier(const int64_t bytes[TIERS])
{
    return json_pack("{s:I,s:I,s:I}", "device", (json_int_t)bytes[TIER_DEVICE], "host", (json_int_t)bytes[TIER_HOST], "nvme",
                     (json_int_t)bytes[TIER_NVME]);
}

static enum status write_plan_json(const struct plan *p, const char *path)
{
    char line[256];
    json_t *classes = json_object(), *programs = json_array();
    plan_describe(p, line, sizeof line);
    for (int c = 0; c < CLASSES; c++) {
        int64_t peak[TIERS];
        for (int t = 0; t < TIERS; t++)
            peak[t] = p->peak[t][c];
        json_object_set_new(classes, class_name((enum tensor_class)c), bytes_by_tier(peak));
    }
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (p->programs[k])
            json_array_append_new(programs, json_pack("{s:s,s:i,s:i,s:f,s:o,s:o}", "name", p->programs[k]->name, "instructions",
                                                      p->programs[k]->n_instrs, "buffers", p->programs[k]->n_buffers, "seconds",
                                                      p->programs[k]->seconds, "arena", bytes_by_tier(p->programs[k]->arena),
                                                      "lower_bound", bytes_by_tier(p->programs[k]->lower_bound)));
    json_t *plan =
        json_pack("{s:s,s:f,s:s,s:o,s:o,s:o,s:o}", "settings", line, "seconds", p->seconds, "cost_model", p->cost.source, "arena",
                  bytes_by_tier(p->arena), "limit", bytes_by_tier(p->limit), "peak_by_class", classes, "programs", programs);
    int failed = !plan || json_dump_file(plan, path, JSON_INDENT(1)) != 0;
    json_decref(plan);
    return failed ? status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno)) : OK;
}

/* Renamed into place: a run killed meanwhile can still be resumed with the former one. */
static enum status write_config(struct run *r, const struct train_hooks *hooks)
{
    char path[4096], partial[4096];
    snprintf(path, sizeof path, "%s/config.yaml", r->s->out);
    snprintf(partial, sizeof partial, "%s/config.yaml.partial", r->s->out);
    FILE *f = fopen(partial, "we");
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    enum status st = hooks->write_config(r->s, f);
    if (fclose(f) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (st == OK && sys_rename(partial, path) != 0)
        st = status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    return st;
}

/* config.yaml, plan.txt, plan.json, metrics.jsonl */
static enum status open_files(struct run *r, const struct train_hooks *hooks)
{
    char path[4096];
    TRY(write_config(r, hooks));
    snprintf(path, sizeof path, "%s/plan.txt", r->s->out);
    FILE *f = fopen(path, "we");
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    plan_print(r->session->plan, r->model, f);
    if (fclose(f) != 0)
        return status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/plan.json", r->s->out);
    TRY(write_plan_json(r->session->plan, path));
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->s->out);
    if (r->s->resume)
        TRY(metrics_cut(path, r->at.step));
    r->metrics = fopen(path, r->s->resume ? "ae" : "we");
    return r->metrics ? OK : status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static enum status load_state(struct run *r)
{
    struct settings *s = r->s;
    char key[256];
    snprintf(key, sizeof key, "rows=%lld,heads=%lld,loss=%lld,group=%lld dtype=%s threads=%d avx2=%d", (long long)s->row_chunk,
             (long long)s->head_tile, (long long)s->loss_tile, (long long)s->group, dtype_name(s->dtype), s->threads,
             __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    model_inv_freq(&r->model->config, session_io(r->session, r->session->plan->io.inv_freq));
    if (s->resume) {
        char path[4096], note[512];
        TRY(checkpoint_find(s->resume, path, sizeof path, &r->at, note, sizeof note));
        if (note[0])
            printf("resume: %s\n", note);
        TRY(checkpoint_load(r->session, path));
        printf("resume: step %lld from %s\n", (long long)r->at.step, path);
        if (strcmp(key, r->at.numerics) != 0)
            printf("resume: the numerics key differs (%s; was %s): equal up to rounding, not bit for bit\n", key, r->at.numerics);
        if (r->at.seed != s->seed)
            printf("resume: the seed differs (%llu; was %llu): the order of the data changes\n", (unsigned long long)s->seed,
                   (unsigned long long)r->at.seed);
    } else if (model_is_preset(s->model)) {
        TRY(session_initialise(r->session, s->seed));
    } else {
        TRY(session_load(r->session, s->model));
    }
    r->at.seed = s->seed;
    snprintf(r->at.numerics, sizeof r->at.numerics, "%s", key);
    return OK;
}

enum status train_run(struct settings *s, const struct train_hooks *hooks, int *signal_number)
{
    struct run r = {.s = s};
    struct plan *plan = NULL;
    enum status st;
    char model_path[4096];
    *signal_number = 0;
    stop_signal = 0;
    TRY(train_plan(s, &r.model, &plan, r.limit));
    if (!plan->fits) {
        st = plan_refuse(plan, r.model, s, r.limit);
        plan_destroy(plan);
        goto out;
    }
    struct corpus_config data = {.paths = (const char *const *)s->data.item,
                                 .n_paths = s->data.n,
                                 .eval_paths = (const char *const *)s->eval_data.item,
                                 .n_eval_paths = s->eval_data.n,
                                 .eval_fraction = s->eval_fraction,
                                 .seq_len = s->seq_len,
                                 .vocab = r.model->config.vocab,
                                 .seed = s->seed};
    st = corpus_open(&data, &r.corpus);
    if (st == OK)
        st = refuse_old_run(s);
    if (st == OK)
        st = make_directories(s->out);
    if (st != OK) {
        plan_destroy(plan);
        goto out;
    }
    r.peak_flops = measure_sgemm(s->threads);
    const char *run_directory[] = {s->out};
    int own = s->nvme_path.n == 0;
    TRY_GOTO(session_create(r.model, plan, s, own ? run_directory : (const char *const *)s->nvme_path.item,
                            own ? 1 : s->nvme_path.n, &r.session),
             out);
    print_before(&r);
    TRY_GOTO(load_state(&r), out);
    TRY_GOTO(open_files(&r, hooks), out);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    TRY_GOTO(loop(&r), out);
    TRY_GOTO(flush(&r), out);
    *signal_number = stop_signal;
    if (*signal_number || s->save_every > 0)
        TRY_GOTO(save(&r), out);
    TRY_GOTO(session_check_memory(r.session), out);
    snprintf(model_path, sizeof model_path, "%s/hf", s->out);
    if (!*signal_number) /* one that comes later than this ends nothing any more */
        TRY_GOTO(checkpoint_export(r.session, model_path), out);
    print_after(&r, *signal_number ? NULL : model_path);
out:
    if (r.metrics)
        fclose(r.metrics);
    session_destroy(r.session);
    corpus_close(r.corpus);
    model_destroy(r.model);
    return st;
}
