/* Reads a case of tests/golden. */
#include "engine/golden.h"

#include "engine/rig.h"
#include "model/config/adapter_config.h"
#include "model/config/token_rows.h"

#include <stdlib.h>
#include <string.h>

static enum status read_ints(struct golden *g, const char *name, int32_t *out)
{
    float *x = malloc((size_t)g->seq_len * sizeof *x);
    enum status st = st_read_f32(g->file, name, 0, g->seq_len, x);
    for (int64_t i = 0; i < g->seq_len && st == OK; i++)
        out[i] = (int32_t)x[i];
    free(x);
    return st;
}

static enum status read_sequence(struct golden *g)
{
    struct sequence *q = &g->sequence;
    sequence_alloc(q, g->seq_len);
    TRY(read_ints(g, "tokens", q->tokens));
    TRY(read_ints(g, "targets", q->targets));
    TRY(read_ints(g, "positions", q->positions));
    TRY(read_ints(g, "lo", q->lo));
    for (int64_t i = 0; i < g->seq_len; i++) {
        q->hi[i] = (int32_t)i;
        q->n_targets += q->targets[i] >= 0;
    }
    return OK;
}

static enum status read_case(struct golden *g)
{
    char path[600];
    json_error_t error;
    snprintf(path, sizeof path, "%s/golden.json", g->path);
    g->info = json_load_file(path, 0, &error);
    if (!g->info)
        return status_fail(ERR_INVALID, "%s: %s", path, error.text);
    g->seq_len = json_integer_value(json_object_get(g->info, "seq_len"));
    for (size_t i = 0; i < GOLDEN_STEPS; i++) {
        g->loss[i] = json_number_value(json_array_get(json_object_get(g->info, "loss5"), i));
        g->norm[i] = json_number_value(json_array_get(json_object_get(g->info, "gnorm5"), i));
    }
    snprintf(path, sizeof path, "%s/golden.safetensors", g->path);
    TRY(st_open(path, &g->file));
    return read_sequence(g);
}

enum status golden_open(const char *name, struct golden *g)
{
    const char *root = getenv("LTRAIN_SOURCE_ROOT"), *folder = getenv("LTRAIN_GOLDEN");
    *g = (struct golden){0};
    snprintf(g->path, sizeof g->path, "%s%s/%s", folder ? folder : root ? root : ".", folder ? "" : "/tests/golden", name);
    enum status st = read_case(g);
    if (st != OK) {
        fprintf(stderr, "golden: %s\n", status_message());
        golden_close(g);
    }
    return st;
}

void golden_close(struct golden *g)
{
    st_close(g->file);
    sequence_free(&g->sequence);
    json_decref(g->info);
}

static int has_adapter(const struct golden *g, char adapter[600])
{
    snprintf(adapter, 600, "%s/adapter", g->path);
    return adapter_config_is_there(adapter);
}

/* Returns the format of frozen maps that a case names; NULL: they are stored as numbers. */
static enum model_base base_of(const char *word)
{
    if (!word)
        return BASE_STORED;
    return strcmp(word, "int8") == 0 ? BASE_INT8 : strcmp(word, "mxfp4") == 0 ? BASE_MXFP4 : BASE_NF4;
}

enum status golden_model(const struct golden *g, struct model **out)
{
    struct model_config config;
    char adapter[600], base[64];
    const char *freeze[8];
    const char *base_kept = json_string_value(json_object_get(g->info, "base"));
    json_t *globs = json_object_get(g->info, "freeze");
    int n = (int)json_array_size(globs);
    for (int i = 0; i < n; i++)
        freeze[i] = json_string_value(json_array_get(globs, (size_t)i));
    TRY(model_config_read(g->path, &config));
    config.positions = g->seq_len;
    config.base = base_of(base_kept);
    if (has_adapter(g, adapter)) {
        TRY(adapter_config_read(adapter, &config.lora, base, sizeof base));
        TRY(adapter_config_fit(&config, &config.lora));
        TRY(token_rows_text(adapter, &config.lora));
        if (strcmp(base, "..") != 0)
            return status_fail(ERR_INVALID, "%s: its base is %s", adapter, base);
    }
    TRY(model_create(&config, freeze, n, out));
    return model_check_adapters(*out);
}

enum status golden_load(const struct golden *g, struct session *s)
{
    char adapter[600];
    return session_load_adapted(s, g->path, has_adapter(g, adapter) ? adapter : NULL, 1);
}
