#include "eval/sampling.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "engine/weights.h"
#include "plan/report/describe.h"
#include "plan/sampling.h"
#include "train/machine.h"
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

/* Checks that the file of weights has the tensors of the model. */
static enum status check_weights(const struct settings *s, const struct model *m)
{
    struct st_file *f;
    TRY(st_open(s->model, &f));
    enum status st = weights_check(f, m, (const char *const *)s->ignore_tensors.item, s->ignore_tensors.n);
    st_close(f);
    return st;
}

/* Opens the model with all parameters frozen, so that it may be quantised. */
static enum status open_model(const struct settings *given, struct model **out)
{
    char everything[] = MODEL_FREEZE_ALL;
    struct settings s = *given;
    s.plan.freeze = (struct string_list){.item = {everything}, .n = 1};
    s.plan.evaluation = 1;
    return train_open_model(&s, out);
}

/* Makes sure that the adapter belongs to this base. */
static enum status check_base(const struct settings *s, struct comm *c)
{
    uint64_t xxh3;
    train_show_progress(s, c);
    enum status st = checkpoint_hash_base(c, s->model, &xxh3);
    progress_end();
    TRY(st);
    return comm_agree(c, checkpoint_check_base(s->adapter, s->model, xxh3));
}

static enum status start(const struct settings *s, const struct comm *c, struct plan *plan, struct sampling *x)
{
    enum status st = comm_create_alone(c, &x->alone);
    if (st != OK) {
        plan_destroy(plan);
        return st;
    }
    return session_create(x->model, &plan, 1, s, x->alone, (const char *const *)s->nvme_path.item, s->nvme_path.n, &x->session);
}

static enum status load_state(const struct settings *s, struct sampling *x)
{
    const int preset = model_is_preset(s->model);
    if (s->plan.lora.rank > 0)
        TRY(session_load_adapted(x->session, preset ? NULL : s->model, s->adapter, s->seed));
    else
        TRY(preset ? session_initialise(x->session, s->seed) : session_load(x->session, s->model));
    return decoder_create(x->session, s->plan.seq_len, &x->decoder);
}

static enum status refuse_length(const struct model *m, const struct settings *s, const struct plan *plan)
{
    char need[32], has[32], there[400] = "", tokens[32], longest[32], fits[96];
    int64_t length;
    for (int t = 0; t < TIERS; t++) {
        size_t n = strlen(there);
        if (plan->arena[t] <= plan->limit[t])
            continue;
        units_format_apart(plan->arena[t], plan->limit[t], need, has);
        snprintf(there + n, sizeof there - n, "%s%s on the %s, of which there are %s (%s)", n ? ", " : "", need,
                 tier_name((enum tier)t), has, budget_flag_given(&s->plan, (enum tier)t));
    }
    TRY(plan_sampling_longest(m, &s->plan, plan->limit, &length));
    snprintf(fits, sizeof fits, length > 0 ? "%s tokens fit" : "no length fits, so the parameters need more%.0s",
             units_format_count(length, longest));
    return status_fail(ERR_NOFIT, "a text of %s tokens and its model need %s: %s%s", units_format_count(s->plan.seq_len, tokens),
                       there, fits, s->nvme_path.n == 0 ? "; --nvme-path DIR would give drives, too" : "");
}

static enum status check_sampling(const struct settings *s, const struct comm *comm)
{
    if (s->plan.ranks > 1 && comm_size(comm) == 1)
        return status_fail(ERR_INVALID, "ltrain sample runs on one rank: leave out --ranks");
    if (s->plan.machine)
        return status_fail(ERR_INVALID, "ltrain sample runs on this machine: leave out --machine");
    if (s->nvme_path.n == 0 && (s->plan.params == OFFLOAD_NVME || s->plan.acts == OFFLOAD_NVME))
        return status_fail(ERR_INVALID, "--offload nvme needs a directory on a fast drive: give --nvme-path DIR");
    return OK;
}

/* Plans for continuing texts of up to s->plan.seq_len tokens (plan/sampling.h), by each rank for itself, on this machine.
 * ERR_NOFIT says which length fits. */
static enum status plan_texts(struct settings *s, struct comm *comm, const struct model *m, struct plan **plan)
{
    struct machine_ranks p;
    TRY(check_sampling(s, comm));
    if (s->nvme_path.n == 0)
        s->plan.nvme_max = 0;
    TRY(machine_here(s, comm, 1, m, &p));
    train_show_planning(s, comm);
    enum status st = plan_sampling(m, &s->plan, p.limit, plan);
    if (st == OK && !(*plan)->fits) {
        st = refuse_length(m, s, *plan);
        plan_destroy(*plan);
    }
    progress_end();
    return st;
}

static enum status load(struct settings *s, struct comm *c, struct sampling *x)
{
    struct plan *plan;
    const int preset = model_is_preset(s->model);
    TRY(comm_agree(c, open_model(s, &x->model)));
    if (!preset)
        TRY(comm_agree(c, check_weights(s, x->model)));
    TRY(comm_agree(c, plan_texts(s, c, x->model, &plan)));
    TRY(comm_agree(c, start(s, c, plan, x)));
    if (s->adapter && !preset)
        TRY(check_base(s, c));
    return comm_agree(c, load_state(s, x));
}

enum status sampling_open(struct settings *s, struct comm *c, int64_t tokens, struct sampling **out)
{
    struct sampling *x = sys_calloc(1, sizeof *x);
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory for sampling");
    s->plan.seq_len = tokens;
    enum status st = load(s, c, x);
    if (st == OK) {
        x->logits = sys_malloc((size_t)x->model->config.vocab * sizeof *x->logits);
        st = x->logits ? OK : status_fail(ERR_NOMEM, "out of memory for sampling");
    }
    if (st == OK)
        *out = x;
    else
        sampling_close(x);
    return st;
}

void sampling_close(struct sampling *x)
{
    if (!x)
        return;
    decoder_destroy(x->decoder);
    session_destroy(x->session);
    comm_destroy(x->alone);
    model_destroy(x->model);
    free(x->logits);
    free(x);
}

/* --- Greedy texts --- */

enum status sampling_greedy(struct sampling *x, const int32_t *token, int64_t n, int64_t most, const struct greedy *how,
                            int32_t *out, int64_t *n_out)
{
    const int64_t ids = min_i64(how->ids, x->model->config.vocab);
    struct sampler *sampler;
    *n_out = 0;
    TRY(sampler_create(&(struct sampler_settings){.repetition_penalty = 1}, ids, &sampler));
    enum status st = decoder_read(x->decoder, token, n, how->stop, x->logits);
    while (st == OK && *n_out < most) {
        int32_t id;
        st = sampler_next(sampler, x->logits, NULL, 0, *n_out, &id);
        if (st != OK || (how->ends && how->ends[id]))
            break;
        out[(*n_out)++] = id;
        if (*n_out == most || decoder_length(x->decoder) == decoder_capacity(x->decoder))
            break;
        st = decoder_feed(x->decoder, &id, 1, how->stop, x->logits);
    }
    sampler_destroy(sampler);
    return st;
}
