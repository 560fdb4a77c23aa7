/* Writing, reading and checking manifest.json, and hashing the files that it lists. */
#include "checkpoint/manifest.h"

#include "base/num.h"
#include "checkpoint/files.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FORMAT = 3 }; /* version; 1 had hashes of whole files, 2 no settings and data */

const char *const ckpt_file_names[CKPT_FILES] = {"model.safetensors", "optimizer.safetensors", "config.json", "config.yaml",
                                                 "data.txt"};

/* Hashes the canonical text (sorted, compact) without the member "xxh3". */
static enum status self_hash(const json_t *root, char out[17])
{
    char *text = json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: the text of a manifest");
    snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    free(text);
    return OK;
}

/* ---- writing ---- */

/* Describes the model for people; loading compares config.json and the tensors themselves. */
static json_t *model_facts(const struct model *model, enum dtype dtype)
{
    int64_t trained = 0;
    for (int i = 0; i < model->n_params; i++)
        trained += model->params[i].trained ? model_param_stored(&model->params[i]) : 0;
    return json_pack("{s:s, s:s, s:I, s:I}", "name", model->config.name, "dtype", dtype == BF16 ? "bf16" : "fp32", "parameters",
                     (json_int_t)model->total_params, "trained", (json_int_t)trained);
}

static int put_lineage(const struct lineage *l, json_t *manifest)
{
    json_t *list = json_array();
    int ok = json_object_set_new(manifest, "saved_ns", json_integer(l->self.saved_ns)) == 0;
    for (int i = 0; i < l->n && ok; i++)
        ok = json_array_append_new(list, json_pack("{s:I, s:I}", "step", (json_int_t)l->ancestor[i].step, "saved_ns",
                                                   (json_int_t)l->ancestor[i].saved_ns)) == 0;
    return json_object_set_new(manifest, "ancestors", list) == 0 && ok;
}

/* Returns the manifest as JSON. Unsigned 64-bit numbers are text: JSON integers end at 2^63 - 1. */
static json_t *describe(const struct manifest *m, const struct lineage *l, const struct model *model, enum dtype dtype)
{
    char cursor[24], seed[24], hash[17], base[17], digests[17];
    json_t *files = json_object();
    for (int i = 0; i < CKPT_FILES; i++) {
        snprintf(hash, sizeof hash, "%016" PRIx64, m->files[i].xxh3);
        json_object_set_new(files, ckpt_file_names[i],
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)m->files[i].bytes, "xxh3", hash));
    }
    snprintf(cursor, sizeof cursor, "%" PRIu64, m->info.cursor);
    snprintf(seed, sizeof seed, "%" PRIu64, m->info.seed);
    snprintf(base, sizeof base, "%016" PRIx64, m->base);
    snprintf(digests, sizeof digests, "%016" PRIx64, m->digests);
    json_t *root =
        json_pack("{s:i, s:I, s:s, s:I, s:s, s:s, s:s*, s:s, s:o, s:o}", "format", FORMAT, "step", (json_int_t)m->info.step,
                  "cursor", cursor, "updates", (json_int_t)m->info.updates, "seed", seed, "numerics", m->info.numerics, "base",
                  m->base ? base : NULL, "digests", digests, "model", model_facts(model, dtype), "files", files);
    if (root && put_lineage(l, root))
        return root;
    json_decref(root);
    return NULL;
}

enum status manifest_write(const char *dir, const struct manifest *m, const struct lineage *l, const struct model *model,
                           enum dtype dtype)
{
    char path[CKPT_PATH], hash[17], *text = NULL;
    TRY(ckpt_path(path, dir, "manifest.json", ""));
    json_t *root = describe(m, l, model, dtype);
    enum status st =
        root ? self_hash(root, hash) : status_fail(ERR_NOMEM, "out of memory, or the numerics key is no text: %s", path);
    if (st == OK) {
        json_object_set_new(root, "xxh3", json_string(hash));
        text = json_dumps(root, JSON_INDENT(2));
        st = text ? ckpt_write_text(path, text) : status_fail(ERR_NOMEM, "out of memory: the text of %s", path);
    }
    free(text);
    json_decref(root);
    return st;
}

/* ---- reading ---- */

static int get_u64(const json_t *object, const char *key, int base, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, key));
    char *end = NULL;
    if (!text || !text[0])
        return 0;
    *out = strtoull(text, &end, base);
    return *end == 0;
}

static int get_i64(const json_t *object, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(object, key);
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

static int get_id(const json_t *object, struct checkpoint_id *out)
{
    const json_t *step = json_object_get(object, "step"), *saved = json_object_get(object, "saved_ns");
    *out = (struct checkpoint_id){.step = json_integer_value(step), .saved_ns = json_integer_value(saved)};
    return json_is_integer(step) && out->step >= 0 && (!saved || json_is_integer(saved)) && out->saved_ns >= 0;
}

/* Reads the lineage; a manifest without one has no ancestors. Returns 0 if members are malformed. */
static int get_lineage(const json_t *manifest, struct lineage *out)
{
    const json_t *list = json_object_get(manifest, "ancestors"), *one;
    size_t i;
    int ok = get_id(manifest, &out->self) && (!list || json_is_array(list)) && json_array_size(list) <= LINEAGE_MOST;
    out->n = 0;
    if (ok)
        json_array_foreach(list, i, one) ok = get_id(one, &out->ancestor[out->n++]) && ok;
    return ok;
}

/* Reads a manifest's members; returns 1 if all are there. */
static int parse(const json_t *root, struct manifest *m)
{
    const char *numerics = json_string_value(json_object_get(root, "numerics"));
    const json_t *files = json_object_get(root, "files");
    int ok = get_i64(root, "step", &m->info.step) && get_u64(root, "cursor", 10, &m->info.cursor) &&
             get_i64(root, "updates", &m->info.updates) && get_u64(root, "seed", 10, &m->info.seed) && numerics &&
             strlen(numerics) < sizeof m->info.numerics;
    if (ok)
        strcpy(m->info.numerics, numerics);
    if (ok && json_object_get(root, "base"))
        ok = get_u64(root, "base", 16, &m->base);
    if (ok && json_object_get(root, "digests"))
        ok = get_u64(root, "digests", 16, &m->digests);
    for (int i = 0; i < CKPT_FILES && ok; i++) {
        const json_t *f = json_object_get(files, ckpt_file_names[i]);
        ok = get_i64(f, "bytes", &m->files[i].bytes) && get_u64(f, "xxh3", 16, &m->files[i].xxh3);
    }
    return ok;
}

/* Reads a manifest and checks its own hash and format; *out is to be freed. ERR_CORRUPT: missing or damaged; ERR_INVALID: another
 * format. */
static enum status load(const char *dir, char path[CKPT_PATH], json_t **out)
{
    char want[17], have[17] = "", *text;
    json_error_t error;
    TRY(ckpt_path(path, dir, "manifest.json", ""));
    TRY(ckpt_read_text(path, CKPT_SMALL_TEXT, &text));
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return status_fail(ERR_CORRUPT, "%s is damaged: it is not a JSON object", path);
    }
    const char *own = json_string_value(json_object_get(root, "xxh3"));
    snprintf(want, sizeof want, "%s", own ? own : "");
    json_object_del(root, "xxh3");
    int64_t format;
    enum status st = self_hash(root, have);
    if (st == OK && strcmp(want, have) != 0)
        st = status_fail(ERR_CORRUPT, "%s is damaged: its checksum does not fit its text", path);
    else if (st == OK && (!get_i64(root, "format", &format) || format != FORMAT))
        st = status_fail(ERR_INVALID, "%s is of another format than %d; use the ltrain that wrote it", path, FORMAT);
    if (st == OK)
        *out = root;
    else
        json_decref(root);
    return st;
}

static enum status lacks_members(const char *path)
{
    return status_fail(ERR_CORRUPT, "%s is damaged: it lacks what a manifest must hold", path);
}

static enum status manifest_read(const char *dir, struct manifest *out)
{
    char path[CKPT_PATH];
    json_t *root = NULL;
    struct manifest m;
    memset(&m, 0, sizeof m);
    TRY(load(dir, path, &root));
    enum status st = parse(root, &m) ? OK : lacks_members(path);
    json_decref(root);
    if (st == OK)
        *out = m;
    return st;
}

enum status manifest_read_lineage(const char *dir, struct lineage *out)
{
    char path[CKPT_PATH];
    json_t *root = NULL;
    TRY(load(dir, path, &root));
    enum status st = get_lineage(root, out) ? OK : lacks_members(path);
    json_decref(root);
    return st;
}

/* ---- hashes by all ranks ---- */

/* Segments that a rank hashes between two agreements (1 GiB); small, so that the other ranks wait for a short time only. */
enum { ROUND = 8192 };

enum status manifest_hash(struct comm *c, const char *dir, int first_file, struct manifest *m)
{
    char path[CKPT_PATH];
    int64_t rank = comm_rank(c), size = comm_size(c);
    double half[CKPT_FILES][2] = {{0}}; /* halves of 32 bits: sums of doubles are exact, and need no memory */
    for (int i = first_file; i < CKPT_FILES; i++) {
        int64_t n = ckpt_segments(m->files[i].bytes), share = ceil_div(n, size);
        int64_t first = min_i64(n, rank * share), end = min_i64(n, first + share);
        uint64_t sum = 0;
        for (int64_t at = 0; at < share; at += ROUND) {
            int64_t part = max_i64(0, min_i64(ROUND, end - first - at));
            enum status st = ckpt_path(path, dir, ckpt_file_names[i], "");
            if (st == OK && part > 0)
                st = ckpt_hash(&(struct ckpt_part){.path = path, .bytes = m->files[i].bytes}, first + at, part, &sum);
            TRY(comm_agree(c, st));
        }
        half[i][0] = (double)(uint32_t)sum;
        half[i][1] = (double)(uint32_t)(sum >> 32);
    }
    TRY(comm_sum(c, half[0], CKPT_FILES * 2));
    for (int i = first_file; i < CKPT_FILES; i++)
        m->files[i].xxh3 = (uint64_t)half[i][0] + ((uint64_t)half[i][1] << 32);
    return OK;
}

/* Checks the files' sizes, and that this rank sees the manifest that rank 0 has read. */
static enum status check_sizes(struct comm *c, const char *dir, const struct manifest *m)
{
    char path[CKPT_PATH];
    int64_t bytes;
    if (comm_rank(c) != 0) {
        TRY(ckpt_path(path, dir, "manifest.json", ""));
        if (ckpt_size(path, &bytes) == ERR_CORRUPT)
            return status_fail(ERR_INVALID,
                               "%s, which rank 0 has read, cannot be seen from here; it must be on a file system that all ranks "
                               "share",
                               path);
    }
    for (int i = 0; i < CKPT_FILES; i++) {
        TRY(ckpt_path(path, dir, ckpt_file_names[i], ""));
        TRY(ckpt_size(path, &bytes));
        if (bytes != m->files[i].bytes)
            return status_fail(ERR_CORRUPT, "%s has %lld bytes, its manifest says %lld", path, (long long)bytes,
                               (long long)m->files[i].bytes);
    }
    return OK;
}

enum status manifest_look(struct comm *c, const char *dir, struct manifest *out)
{
    struct manifest m;
    memset(&m, 0, sizeof m);
    TRY(comm_agree(c, comm_rank(c) == 0 ? manifest_read(dir, &m) : OK));
    TRY(comm_broadcast(c, 0, &m, sizeof m));
    TRY(comm_agree(c, check_sizes(c, dir, &m)));
    *out = m;
    return OK;
}

enum status manifest_open(struct comm *c, const char *dir, struct manifest *out)
{
    struct manifest m, there;
    char path[CKPT_PATH];
    TRY(manifest_look(c, dir, &m));
    there = m;
    TRY(manifest_hash(c, dir, 0, &there));
    for (int i = 0; i < CKPT_FILES; i++)
        if (there.files[i].xxh3 != m.files[i].xxh3) {
            TRY(ckpt_path(path, dir, ckpt_file_names[i], ""));
            return status_fail(ERR_CORRUPT, "%s is damaged: its bytes do not have the checksum of its manifest", path);
        }
    *out = m;
    return OK;
}
