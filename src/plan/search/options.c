/* The choices that settings leave open. */
#include "plan/search/options.h"

#include <string.h>

static int residencies(enum offload given, enum residency out[3])
{
    static const enum residency all[3] = {RES_DEVICE, RES_HOST, RES_NVME};
    if (given == OFFLOAD_AUTO) {
        memcpy(out, all, sizeof all);
        return 3;
    }
    out[0] = given == OFFLOAD_CPU ? RES_HOST : given == OFFLOAD_NVME ? RES_NVME : RES_DEVICE;
    return 1;
}

/* What layers pass on lies no farther away than what they save. */
static int activations(const struct plan_request *s, struct options *o)
{
    enum residency acts[3], passing[3];
    int n = 0, n_acts = residencies(s->acts, acts), n_passing = residencies(s->passing, passing);
    for (int i = 0; i < n_acts; i++)
        for (int k = 0; k < n_passing; k++) {
            if (k > 0 && passing[k] > acts[i])
                continue;
            o->acts[n] = acts[i];
            o->passing[n++] = passing[k] < acts[i] ? passing[k] : acts[i];
        }
    return n;
}

void options_of(const struct plan_request *s, const struct strategy *fixed, int layers, struct options *o)
{
    int chunks = (int)ceil_div(fixed->rows, fixed->row_chunk);
    o->n_params = residencies(s->params, o->params);
    o->n_grads = residencies(s->grads, o->grads);
    o->n_optim = residencies(s->optim, o->optim);
    o->n_acts = activations(s, o);
    o->update[0] = s->update == UPDATE_HOST;
    o->update[1] = 1;
    o->n_update = s->update == UPDATE_AUTO ? 2 : 1;
    o->n_device_layers = 0;
    for (int n = 0; n < 8 && n < layers && (n == 0 || s->acts == OFFLOAD_AUTO); n = n ? 2 * n : 1)
        o->device_layers[o->n_device_layers++] = n;
    o->split = s->acts == OFFLOAD_AUTO && chunks > 1;
    o->n_kept = 0;
    for (int quarter = 4; quarter >= 0; quarter--) {
        double alpha = s->alpha >= 0 ? s->alpha : quarter / 4.0;
        int kept = (int)(alpha * chunks + 0.5);
        if (o->n_kept == 0 || o->kept[o->n_kept - 1] != kept)
            o->kept[o->n_kept++] = kept;
    }
}

int options_count(const struct options *o)
{
    return o->n_params * o->n_grads * o->n_optim * o->n_acts * o->n_update * o->n_device_layers * o->n_kept;
}

void options_place(const struct options *o, int i, struct strategy *out)
{
    out->kept_chunks = o->kept[i % o->n_kept];
    out->device_chunks = out->nearer = 0;
    out->device_layers = o->device_layers[(i /= o->n_kept) % o->n_device_layers];
    out->update_on_host = o->update[(i /= o->n_device_layers) % o->n_update];
    out->acts = o->acts[(i /= o->n_update) % o->n_acts];
    out->passing = o->passing[i % o->n_acts];
    out->optim = o->optim[(i /= o->n_acts) % o->n_optim];
    out->grads = o->grads[(i /= o->n_optim) % o->n_grads];
    out->params = o->params[i / o->n_grads];
}

static int is_open(const enum residency *tiers, int n, enum residency r)
{
    for (int i = 0; i < n; i++)
        if (tiers[i] == r)
            return 1;
    return 0;
}

/* Activations on the device are device_layers' business; optimizer state there is updated there. */
int options_may_be_nearer(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at)
{
    if (at >= strategy_tier(s, class))
        return 0;
    switch (class) {
    case CLASS_PARAM:
        return is_open(o->params, o->n_params, at);
    case CLASS_GRAD:
        return is_open(o->grads, o->n_grads, at);
    case CLASS_OPTIM:
        return is_open(o->optim, o->n_optim, at) && !(at == RES_DEVICE && s->update_on_host && o->n_update == 1);
    default:
        for (int i = 0; i < o->n_acts; i++)
            if (at == RES_HOST && o->acts[i] == at && o->passing[i] == s->passing)
                return 1;
        return 0;
    }
}

void options_open_nearer(struct options *o, enum tensor_class class, enum residency at)
{
    switch (class) {
    case CLASS_PARAM:
        o->params[o->n_params++] = at;
        return;
    case CLASS_GRAD:
        o->grads[o->n_grads++] = at;
        return;
    case CLASS_OPTIM:
        o->optim[o->n_optim++] = at;
        if (at == RES_DEVICE && o->update[0]) {
            o->update[0] = 0;
            o->update[1] = 1;
            o->n_update = 2;
        }
        return;
    default:
        o->acts[o->n_acts] = at;
        o->passing[o->n_acts] = o->passing[o->n_acts - 1];
        o->n_acts++;
    }
}
