#include "engine/decode.h"

#include "model/config/adapter_config.h"
#include "scratch_place.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void decode_defaults(struct decode_rig *r)
{
    memset(r, 0, sizeof *r);
    struct settings *s = &r->settings;
    settings_defaults(s, 96);
    s->plan.micro_batch = 1;
    s->plan.params = s->plan.acts = OFFLOAD_NONE;
    s->plan.device = DEVICE_CPU;
    s->plan.row_chunk = 8;
    s->plan.group = 1000;
    for (int t = 0; t < TIERS; t++)
        r->limit[t] = (int64_t)1 << 40;
}

static void path_of(const char *name, char path[600])
{
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    snprintf(path, 600, "%s/tests/golden/%s", root ? root : ".", name);
}

enum status decode_model(const struct decode_rig *r, const char *name, struct model **out)
{
    struct model_config config;
    char path[600], adapter[700], base[256];
    path_of(name, path);
    if (r->config)
        config = *r->config;
    else
        TRY(model_config_read(path, &config));
    config.positions = r->settings.plan.seq_len;
    snprintf(adapter, sizeof adapter, "%s/adapter", path);
    if (adapter_config_is_there(adapter)) {
        TRY(adapter_config_read(adapter, &config.lora, base, sizeof base));
        TRY(adapter_config_fit(&config, &config.lora));
    }
    if (r->base != BASE_STORED)
        config.base = r->base;
    return model_create(&config, NULL, 0, out);
}

static enum status start(struct decode_rig *r, const char *name)
{
    struct plan *plan;
    char path[600], adapter[700];
    const char *scratch = r->scratch;
    path_of(name, path);
    snprintf(adapter, sizeof adapter, "%s/adapter", path);
    TRY(decode_model(r, name, &r->model));
    if (r->target.threads == 0)
        r->target = backend_cpu_target(omp_get_max_threads());
    r->settings.plan.target = &r->target;
    TRY(plan_sampling(r->model, &r->settings.plan, r->limit, &plan));
    snprintf(r->scratch, sizeof r->scratch, "%s/ltrain-test-XXXXXX", scratch_place());
    if (!mkdtemp(r->scratch))
        return status_fail(ERR_IO, "cannot make a scratch directory");
    TRY(session_create(r->model, &plan, 1, &r->settings, NULL, &scratch, 1, &r->session));
    if (r->config)
        TRY(session_initialise(r->session, 1));
    else
        TRY(session_load_adapted(r->session, path, r->model->config.lora.rank > 0 ? adapter : NULL, 0));
    return decoder_create(r->session, r->settings.plan.seq_len, &r->decoder);
}

enum status decode_start(struct decode_rig *r, const char *name)
{
    enum status st = start(r, name);
    if (st != OK)
        fprintf(stderr, "decode: %s: %s\n", name, status_message());
    return st;
}

void decode_stop(struct decode_rig *r)
{
    decoder_destroy(r->decoder);
    session_destroy(r->session);
    model_destroy(r->model);
    if (r->scratch[0])
        rmdir(r->scratch);
}
