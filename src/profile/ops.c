/* Rates of the ops that memory bounds, as they run in the programs of small models. */
#include "profile/profile.h"

#include "base/sys.h"
#include "engine/backend_cpu.h"
#include "engine/batch.h"
#include "engine/session_state.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4096, MOST_TOKENS = 2048, LONG_TOKENS = 65536 /* GPUs: their caches hold shorter sequences */ };

/* Tells whether the device is a real GPU, on which programs are bf16. */
static int is_gpu(const struct settings *s)
{
    return s->plan.device == DEVICE_CUDA && s->plan.target->capability > 0;
}

/* Bytes and seconds of one instruction. */
struct sample {
    enum op_kind op;
    enum dtype type;
    double bytes, seconds;
};

struct samples {
    struct sample *at;
    double *gap; /* seconds between compute instructions that wait for nothing */
    int n, n_gaps;
};

static enum status small_model(enum model_family family, struct model **out)
{
    struct model_config c = {.family = family,
                             .vocab = 2048,
                             .dim = 512,
                             .ffn = family == FAMILY_LLAMA ? 1408 : 2048,
                             .layers = 1,
                             .heads = 8,
                             .kv_heads = family == FAMILY_LLAMA ? 2 : 8,
                             .head_dim = 64,
                             .max_positions = LONG_TOKENS,
                             .tied = family == FAMILY_GPT2,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    if (family == FAMILY_OLMOE) {
        c.experts = 16;
        c.experts_used = 4;
        c.expert_ffn = c.ffn = 512;
    }
    strcpy(c.name, "profile");
    return model_create(&c, NULL, 0, out);
}

/* Fills a unit with small numbers: drawing normal ones would take as long as the steps. */
static enum status fill_small(void *user, int unit, int64_t first, int64_t n, float *data)
{
    (void)user;
    (void)unit;
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((first + i) * 7919 % 1999 - 999) * 3e-5f;
    return OK;
}

static enum status fill_state(struct session *s)
{
    for (int u = 0; u < s->model->n_units; u++) {
        TRY(session_visit(s, u, STATE_PARAM, STATE_WRITE, fill_small, NULL));
        TRY(session_visit(s, u, STATE_MASTER, STATE_WRITE, fill_small, NULL));
    }
    return session_zero_moments(s);
}

static enum status fill_inputs(struct session *s, int tokens)
{
    struct batch *b;
    TRY(batch_create(s, tokens, &b));
    struct sequence x = batch_arrays(b, 0);
    for (int i = 0; i < tokens; i++) {
        x.tokens[i] = i * 7 % 2048;
        x.targets[i] = (i + 1) * 7 % 2048;
        x.positions[i] = i;
        x.lo[i] = 0;
        x.hi[i] = i;
    }
    batch_add(b, 0, tokens);
    enum status st = batch_publish(b, 1);
    batch_destroy(b);
    model_inv_freq(s->model, tokens, session_io(s, s->plan->io.inv_freq));
    *(struct step_record *)session_io(s, s->plan->io.record) = (struct step_record){.inv_targets = 1.0f / (float)tokens,
                                                                                    .clip = 1,
                                                                                    .lr = 1e-4f,
                                                                                    .beta1 = 0.9f,
                                                                                    .beta2 = 0.95f,
                                                                                    .eps = 1e-8f,
                                                                                    .bias1 = 1,
                                                                                    .bias2 = 1};
    return st;
}

static void collect(const struct program *p, const struct trace_event *trace, struct samples *x)
{
    int before = -1; /* the compute lane's former instruction */
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const struct op_call *call = program_call(p, in);
        if (in->lane != LANE_COMPUTE)
            continue;
        if (op_class(in->op) == OPS_ELEMENTWISE && call->bytes > 0 && x->n < SAMPLES)
            x->at[x->n++] = (struct sample){in->op, op_storage_type(in->op, &call->attrs), (double)call->bytes,
                                            (double)max_i64(1, trace[i].end_ns - trace[i].start_ns) * 1e-9};
        if (before >= 0 && in->n_waits == 0 && x->n_gaps < SAMPLES)
            x->gap[x->n_gaps++] = (double)(trace[i].start_ns - trace[before].end_ns) * 1e-9;
        before = i;
    }
}

/* Runs a step to warm up, and times some with an update. */
static enum status run_model(const struct settings *given, enum model_family family, enum dtype type, int tokens,
                             struct samples *x)
{
    static const int64_t limit[TIERS] = {1ll << 32, 1ll << 32, 0};
    struct target target = given->plan.device == DEVICE_CUDA ? *given->plan.target : backend_cpu_target(given->plan.threads);
    struct settings s;
    TRY(settings_defaults(&s, tokens));
    s.plan.micro_batch = 1;
    s.plan.params = s.plan.grads = s.plan.optim = s.plan.acts = OFFLOAD_NONE;
    s.plan.alpha = 1;
    s.plan.update = UPDATE_DEVICE;
    s.plan.device = given->plan.device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    s.gpu = given->gpu;
    s.plan.row_chunk = tokens;
    s.plan.dtype = type;
    s.plan.threads = given->plan.threads;
    s.plan.target = &target;
    struct model *m;
    struct plan *plan;
    struct session *session = NULL;
    struct trace_event *trace = NULL;
    TRY(small_model(family, &m));
    enum status st = plan_create(m, &s.plan, limit, &plan);
    if (st == OK)
        st = session_create(m, &plan, 1, &s, NULL, NULL, 0, &session);
    if (st != OK)
        goto out;
    const struct program *step = plan->programs[PLAN_UPDATE_STEP];
    trace = sys_calloc((size_t)step->n_instrs, sizeof *trace);
    if (!trace) {
        st = status_fail(ERR_NOMEM, "out of memory for measuring ops");
        goto out;
    }
    TRY_GOTO(fill_state(session), out);
    TRY_GOTO(fill_inputs(session, tokens), out);
    TRY_GOTO(session_run(session, PLAN_STEP, NULL), out);
    for (int i = 0; i < (tokens < MOST_TOKENS ? 2 : 1); i++) {
        TRY_GOTO(session_run(session, PLAN_UPDATE_STEP, trace), out);
        collect(step, trace, x);
    }
out:
    free(trace);
    session_destroy(session);
    model_destroy(m);
    return st;
}

static int compare_samples(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sets the points of one op's curve: samples within a factor of 2 in size become one point, with their median rate. */
static void set_curve(const struct sample *x, int n, double *scratch, struct curve *c)
{
    *c = (struct curve){0};
    for (int i = 0, j; i < n && c->n < CURVE_POINTS; i = j) {
        for (j = i; j < n && x[j].bytes <= 2 * x[i].bytes; j++)
            scratch[j - i] = x[j].bytes / x[j].seconds;
        qsort(scratch, (size_t)(j - i), sizeof *scratch, compare_double);
        c->x[c->n] = x[(i + j) / 2].bytes;
        c->y[c->n++] = scratch[(j - i) / 2];
    }
}

static void set_curves(struct samples *x, double *scratch, struct hardware *h)
{
    qsort(x->at, (size_t)x->n, sizeof *x->at, compare_samples);
    for (int i = 0, j; i < x->n; i = j) {
        for (j = i; j < x->n && x->at[j].op == x->at[i].op && x->at[j].type == x->at[i].type; j++)
            ;
        set_curve(x->at + i, j - i, scratch, &h->device.ops.op[x->at[i].op][x->at[i].type]);
    }
    h->device.ops.memory = h->device.ops.op[OP_ADD][F32].n ? h->device.ops.op[OP_ADD][F32] : h->device.ops.op[OP_ADD][BF16];
    qsort(x->gap, (size_t)x->n_gaps, sizeof *x->gap, compare_double);
    h->overhead = x->n_gaps ? x->gap[x->n_gaps / 2] : 1e-6;
}

/* Models whose steps are timed: between them they have all ops of layers with attention, MLPs and experts. */
enum { FAMILIES = 3 };
static const enum model_family families[FAMILIES] = {FAMILY_LLAMA, FAMILY_GPT2, FAMILY_OLMOE};

enum status profile_ops(const struct settings *s, struct hardware *h)
{
    const int tokens[] = {is_gpu(s) ? LONG_TOKENS / 8 : MOST_TOKENS / 8, is_gpu(s) ? LONG_TOKENS : MOST_TOKENS};
    struct samples x = {.at = sys_malloc(SAMPLES * sizeof *x.at), .gap = sys_malloc(SAMPLES * sizeof *x.gap)};
    double *scratch = sys_malloc(SAMPLES * sizeof *scratch);
    enum status st = x.at && x.gap && scratch ? OK : status_fail(ERR_NOMEM, "out of memory for measuring ops");
    for (int t = is_gpu(s) ? BF16 : F32; t < COST_TYPES && st == OK; t++)
        for (int r = 0; r < 2 * FAMILIES && st == OK; r++)
            st = run_model(s, families[r % FAMILIES], (enum dtype)t, tokens[r / FAMILIES], &x);
    if (st == OK)
        set_curves(&x, scratch, h);
    free(x.at);
    free(x.gap);
    free(scratch);
    return st;
}
