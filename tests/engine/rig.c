/* Runs small programs for tests. */
#include "engine/rig.h"

#include "base/rng.h"
#include "engine/expert_load.h"
#include "plan/cells.h"
#include "scratch_place.h"

#include <dirent.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

void rig_cell_defaults(struct settings *s, int64_t seq_len, enum dtype dtype)
{
    settings_defaults(s, seq_len);
    s->plan.micro_batch = 1;
    cell_settings(&s->plan, seq_len, dtype);
    s->lr = 1e-2;
    s->eps = 1e-3;
}

/* Sets the target's threads to the settings' number, or to all threads. */
static void aim(struct rig *r)
{
    r->target = backend_cpu_target(r->settings.plan.threads > 0 ? r->settings.plan.threads : omp_get_max_threads());
    if (r->gpu.capability > 0)
        r->target = r->gpu;
    r->settings.plan.target = &r->target;
}

void rig_defaults(struct rig *r, int64_t seq_len)
{
    memset(r, 0, sizeof *r);
    struct settings *s = &r->settings;
    settings_defaults(s, seq_len);
    s->plan.micro_batch = 1;
    aim(r);
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_NONE;
    s->plan.alpha = 1;
    s->plan.device = DEVICE_CPU;
    s->plan.row_chunk = 32;
    s->plan.loss_tile = 16;
    s->plan.group = 1000;
    s->lr = 1e-3;
    s->eps = 1e-3;
    for (int t = 0; t < TIERS; t++)
        r->limit[t] = (int64_t)1 << 40;
}

enum status rig_start(struct rig *r, struct model *model)
{
    struct plan *plan = NULL;
    r->model = model;
    aim(r);
    enum status st = plan_create(model, &r->settings.plan, r->limit, &plan);
    if (st == OK) {
        snprintf(r->scratch, sizeof r->scratch, "%s/ltrain-test-XXXXXX", r->disk ? "/tmp" : scratch_place());
        if (!mkdtemp(r->scratch))
            st = status_fail(ERR_IO, "cannot make a scratch directory");
    }
    if (st == OK) {
        const char *path = r->scratch;
        st = session_create(model, &plan, 1, &r->settings, r->comm, &path, 1, &r->session);
        plan = NULL;
    }
    plan_destroy(plan);
    if (st == OK)
        st = batch_create(r->session, r->settings.plan.seq_len, &r->batch);
    if (st == OK)
        model_inv_freq(model, r->settings.plan.seq_len, session_io(r->session, r->session->plan->io.inv_freq));
    if (st != OK)
        fprintf(stderr, "rig: %s\n", status_message());
    return st;
}

void rig_stop(struct rig *r)
{
    batch_destroy(r->batch);
    session_destroy(r->session);
    model_destroy(r->model);
    r->batch = NULL;
    r->session = NULL;
    r->model = NULL;
    if (r->scratch[0])
        rmdir(r->scratch);
}

static void record_update(struct rig *r, struct step_record *record)
{
    const struct settings *s = &r->settings;
    double t = (double)r->updates;
    const uint64_t key = RIG_SEED ^ rng_stream("dropout");
    uint32_t random[4];
    rng_block(RIG_SEED, rng_stream("moments"), (uint64_t)r->updates, random);
    record->rounding = random[0];
    comm_list_members(r->session->comm, record->member);
    record->dropout[0] = (uint32_t)key;
    record->dropout[1] = (uint32_t)(key >> 32);
    record->lr = (float)s->lr;
    record->weight_decay = (float)s->weight_decay;
    record->beta1 = (float)s->beta1;
    record->beta2 = (float)s->beta2;
    record->eps = (float)s->eps;
    record->bias1 = (float)(1 - __builtin_pow((double)(float)s->beta1, t));
    record->bias2 = (float)(1 - __builtin_pow((double)(float)s->beta2, t));
}

/* Returns the index of the first sequence in this rank's i-th micro-batch, among the step's; an index beyond the last means none. */
static int own_sequence(const struct rig *r, int i)
{
    const struct strategy *s = &r->session->plan->strategy;
    const int micro = i * s->key.mesh.degree[MESH_DP] + comm_place(r->session->comm) / mesh_sharing(&s->key.mesh);
    return micro * (int)s->key.packed;
}

static enum status publish(struct rig *r, const struct sequence *batch, int n, int mine)
{
    const int packed = (int)r->session->plan->strategy.key.packed;
    size_t bytes = (size_t)r->settings.plan.seq_len * 4;
    int k = 0;
    for (; k < packed && mine + k < n; k++) {
        struct sequence to = batch_arrays(r->batch, k);
        memcpy(to.tokens, batch[mine + k].tokens, bytes);
        memcpy(to.targets, batch[mine + k].targets, bytes);
        memcpy(to.positions, batch[mine + k].positions, bytes);
        memcpy(to.lo, batch[mine + k].lo, bytes);
        memcpy(to.hi, batch[mine + k].hi, bytes);
        batch_add(r->batch, k, r->settings.plan.seq_len);
    }
    return batch_publish(r->batch, k);
}

enum status rig_step(struct rig *r, const struct sequence *batch, int n, double *loss, double *norm)
{
    const struct plan *plan = r->session->plan;
    int64_t targets = 0, accum = r->settings.plan.grad_accum;
    double sum = 0, aux = 0;
    for (int i = 0; i < n; i++)
        targets += batch[i].n_targets;
    for (int i = 0; i < accum; i++) {
        struct step_record *record = session_io(r->session, plan->io.record);
        *record = (struct step_record){.inv_targets = 1.0f / (float)targets, .clip = (float)r->settings.clip};
        record_update(r, record);
        record->sequence = (uint32_t)(r->updates * n + own_sequence(r, i));
        TRY(publish(r, batch, n, own_sequence(r, i)));
        enum plan_program which = i > 0 ? (i == accum - 1 ? PLAN_LAST : PLAN_MORE) : r->pending ? PLAN_UPDATE_STEP : PLAN_STEP;
        TRY(session_run(r->session, which, r->trace));
        sum += session_loss(r->session);
        aux += expert_balance(r->session);
    }
    r->updates++;
    r->pending = 1;
    if (model_aux(&r->model->config) > 0)
        TRY(comm_sum(r->session->comm, &aux, 1));
    *loss = sum / (double)targets + model_aux(&r->model->config) * aux / (double)strategy_micro_batches(&plan->strategy);
    *norm = ((struct norm_result *)session_io(r->session, plan->io.norm))->norm;
    return session_check_memory(r->session);
}

enum status rig_flush(struct rig *r)
{
    if (!r->pending)
        return OK;
    record_update(r, session_io(r->session, r->session->plan->io.record));
    r->pending = 0;
    return session_run(r->session, PLAN_FLUSH, NULL);
}

struct collect {
    float *out;
    XXH3_state_t *hash;
};

static enum status collect(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct collect *c = user;
    (void)unit;
    if (c->out)
        memcpy(c->out + first, data, (size_t)n * 4);
    if (c->hash)
        XXH3_64bits_update(c->hash, data, (size_t)n * 4);
    return OK;
}

enum status rig_state(struct rig *r, int unit, enum state_kind kind, float *out)
{
    return session_visit(r->session, unit, kind, STATE_READ, collect, &(struct collect){.out = out});
}

enum status rig_digest(struct rig *r, uint64_t *digest)
{
    struct collect c = {.hash = XXH3_createState()};
    enum status st = OK;
    XXH3_64bits_reset(c.hash);
    for (int u = 0; u < r->model->n_units; u++)
        for (int k = STATE_PARAM; k <= STATE_V && st == OK; k++)
            st = session_visit(r->session, u, (enum state_kind)k, STATE_READ, collect, &c);
    *digest = XXH3_64bits_digest(c.hash);
    XXH3_freeState(c.hash);
    return st;
}

void sequence_alloc(struct sequence *q, int64_t n)
{
    int32_t **all[] = {&q->tokens, &q->targets, &q->positions, &q->lo, &q->hi};
    memset(q, 0, sizeof *q);
    for (int i = 0; i < 5; i++)
        *all[i] = calloc((size_t)n, 4);
}

void sequence_free(struct sequence *q)
{
    free(q->tokens);
    free(q->targets);
    free(q->positions);
    free(q->lo);
    free(q->hi);
}

void sequence_random(struct sequence *q, int64_t n, int64_t vocab, uint64_t seed, const int64_t *documents)
{
    sequence_alloc(q, n);
    int64_t start = 0, d = 0, end = documents && documents[0] ? documents[0] : n;
    for (int64_t i = 0; i < n; i++) {
        if (i == end) {
            start = end;
            d++;
            end = documents[d] ? min_i64(end + documents[d], n) : n;
        }
        q->tokens[i] = (int32_t)rng_below(seed, 7, (uint64_t)i, (uint64_t)vocab);
        q->positions[i] = (int32_t)(i - start);
        q->lo[i] = (int32_t)start;
        q->hi[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < n; i++) {
        int last = i + 1 == n || q->positions[i + 1] == 0;
        q->targets[i] = last ? -1 : q->tokens[i + 1];
        q->n_targets += !last;
    }
}
