/* The choices that settings leave open. */
#include "plan/search_estimate.h"

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

/* Given, gradients are where activations are; else on the device or the host, too, where all activations would not fit. */
static int activations(enum offload given, struct options *o)
{
    static const enum residency acts[OPTIONS_ACTS] = {RES_DEVICE, RES_HOST, RES_HOST, RES_NVME, RES_NVME},
                                passing[OPTIONS_ACTS] = {RES_DEVICE, RES_DEVICE, RES_HOST, RES_HOST, RES_NVME};
    if (given != OFFLOAD_AUTO) {
        residencies(given, o->acts);
        o->passing[0] = o->acts[0];
        return 1;
    }
    memcpy(o->acts, acts, sizeof acts);
    memcpy(o->passing, passing, sizeof passing);
    return OPTIONS_ACTS;
}

void options_of(const struct settings *s, const struct strategy *fixed, int layers, struct options *o)
{
    int chunks = (int)ceil_div(fixed->rows, fixed->row_chunk);
    o->n_params = residencies(s->params, o->params);
    o->n_grads = residencies(s->grads, o->grads);
    o->n_optim = residencies(s->optim, o->optim);
    o->n_acts = activations(s->acts, o);
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
