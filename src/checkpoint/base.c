/* Hashing the weights that adapters were trained beside, and checking the hash that an adapter's directory names. */
#include "checkpoint/base.h"

#include "base/progress.h"
#include "checkpoint/digests.h"
#include "checkpoint/place.h"
#include "checkpoint/texts.h"
#include "data/safetensors.h"
#include "engine/source.h"
#include "model/config/adapter_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Sums the hashes of all tensors; the sum does not depend on how files share the tensors out. */
static enum status hash_tensors(struct comm *c, const struct st_file *f, uint64_t *out)
{
    uint64_t sum = 0;
    struct ckpt_part part;
    for (int i = 0; i < st_count(f); i++)
        if (digest_find(f, i, &part))
            TRY(digest_share(c, &part, &sum));
    double half[2] = {(double)(uint32_t)sum, (double)(uint32_t)(sum >> 32)}; /* halves of 32 bits: sums of doubles are exact */
    TRY(comm_sum(c, half, 2));
    *out = (uint64_t)half[0] + ((uint64_t)half[1] << 32);
    return OK;
}

static int64_t tensor_bytes(const struct st_file *f)
{
    struct ckpt_part part;
    int64_t bytes = 0;
    for (int i = 0; i < st_count(f); i++)
        bytes += digest_find(f, i, &part) ? part.bytes : 0;
    return bytes;
}

enum status checkpoint_hash_base(struct comm *c, const char *path, uint64_t *out)
{
    struct st_file *f = NULL;
    enum status st = comm_agree(c, st_open(path, &f));
    if (st == OK) {
        progress_purpose("reading the base's weights, for their hash");
        progress_reading(tensor_bytes(f) / comm_size(c));
        st = hash_tensors(c, f, out);
        progress_reading(0);
        progress_purpose(PROGRESS_FILES);
    }
    st_close(f);
    return st;
}

enum status base_write(const struct model *m, const char *base, uint64_t xxh3, const char *dir)
{
    char path[CKPT_PATH], hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, xxh3);
    TRY(adapter_config_write(dir, m, base));
    TRY(ckpt_path(path, dir, BASE_FILE, ""));
    json_t *root = json_pack("{s:s, s:s, s:s}", "base", base, "xxh3", hash, "kept_as",
                             m->config.base == BASE_STORED ? "stored" : model_base_word(m->config.base));
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    enum status st = text ? ckpt_write_text(path, text) : status_fail(ERR_NOMEM, "out of memory: the text of %s", path);
    free(text);
    json_decref(root);
    return st;
}

enum status base_write_texts(const struct export_texts *texts, const char *dir)
{
    char path[CKPT_PATH];
    if (texts && texts->facts) {
        TRY(ckpt_path(path, dir, FACTS_FILE, ""));
        TRY(ckpt_write_text(path, texts->facts));
    }
    if (!texts || !texts->card)
        return OK;
    TRY(ckpt_path(path, dir, CARD_FILE, ""));
    return ckpt_write_text(path, texts->card);
}

enum status base_move_texts(const char *from, const char *to)
{
    static const char *const names[] = {CARD_FILE, FACTS_FILE};
    return ckpt_move_named(from, to, names, 2);
}

static enum status name_in(const char *dir, const char *file, const char *key, const char *base)
{
    char path[CKPT_PATH], *text = NULL;
    int there;
    TRY(ckpt_path(path, dir, file, ""));
    TRY(ckpt_look(path, &there));
    if (!there)
        return OK;
    TRY(ckpt_read_text(path, CKPT_SMALL_TEXT, &text));
    json_t *root = json_loads(text, 0, NULL);
    free(text);
    text =
        json_is_object(root) && json_object_set_new(root, key, json_string(base)) == 0 ? json_dumps(root, JSON_INDENT(2)) : NULL;
    enum status st =
        text ? ckpt_write_text(path, text) : status_fail(ERR_INVALID, "%s: it is no JSON object, or %s is not UTF-8", path, base);
    free(text);
    json_decref(root);
    return st;
}

static enum status copy_files(const char *from, const char *to)
{
    static const char *const names[] = {ADAPTER_FILE, BASE_FILE, FACTS_FILE, CARD_FILE, ADAPTER_CONFIG};
    enum { N = sizeof names / sizeof *names };
    char source[CKPT_PATH], target[CKPT_PATH];
    int there;
    TRY(texts_copy(from, to));
    for (int i = 0; i < N; i++) {
        TRY(ckpt_path(source, from, names[i], ""));
        TRY(ckpt_path(target, to, names[i], ""));
        TRY(ckpt_look(source, &there));
        if (there || i == 0 || i == N - 1)
            TRY(ckpt_copy(source, target));
    }
    return OK;
}

enum status checkpoint_copy_adapter(const char *from, const char *to, const char *base)
{
    struct place place;
    TRY(place_begin(to, &place));
    enum status st = copy_files(from, place.partial);
    if (st == OK && base)
        st = name_in(place.partial, BASE_FILE, "base", base);
    if (st == OK && base)
        st = name_in(place.partial, ADAPTER_CONFIG, "base_model_name_or_path", base);
    return place_end(&place, st);
}

/* Finds the file of an adapter's directory, or of a checkpoint, that has the hash of the base, and its key. *there 0: neither
 * file exists. */
static enum status find_hash(const char *adapter, char path[CKPT_PATH], const char **key, int *there)
{
    *key = "xxh3";
    TRY(ckpt_path(path, adapter, BASE_FILE, ""));
    TRY(ckpt_look(path, there));
    if (*there)
        return OK;
    *key = "base";
    TRY(ckpt_path(path, adapter, "manifest.json", ""));
    return ckpt_look(path, there);
}

enum status checkpoint_check_base(const char *adapter, const char *base, uint64_t xxh3)
{
    char path[CKPT_PATH], *text = NULL, own[17];
    const char *key;
    int there;
    TRY(find_hash(adapter, path, &key, &there));
    if (!there) /* adapters made by PEFT have no hash; only names and shapes can be compared */
        return OK;
    TRY(ckpt_read_text(path, CKPT_SMALL_TEXT, &text));
    snprintf(own, sizeof own, "%016" PRIx64, xxh3);
    json_t *root = json_loads(text, 0, NULL);
    const char *was = json_string_value(json_object_get(root, key)), *name = json_string_value(json_object_get(root, "base"));
    enum status st =
        was && strcmp(was, own) == 0
            ? OK
            : status_fail(ERR_INVALID, "--adapter: %s was trained beside the weights in %s, not those that are in %s now",
                          adapter, name && name != was ? name : "another directory", base);
    json_decref(root);
    free(text);
    return st;
}

enum status checkpoint_adapter_beside(const char *adapter, enum model_base *out)
{
    char path[CKPT_PATH], *text = NULL;
    int there;
    *out = BASE_STORED;
    TRY(ckpt_path(path, adapter, BASE_FILE, ""));
    TRY(ckpt_look(path, &there));
    if (!there) /* adapters made by PEFT do not record the base's format */
        return OK;
    TRY(ckpt_read_text(path, CKPT_SMALL_TEXT, &text));
    json_t *root = json_loads(text, 0, NULL);
    const json_t *said = json_object_get(root, "kept_as");
    const char *kept = said ? json_string_value(said) : "stored";
    for (int base = BASE_NF4; kept && base <= BASE_MXFP4; base++)
        if (base != BASE_NF4_PLAIN && strcmp(kept, model_base_word((enum model_base)base)) == 0)
            *out = (enum model_base)base;
    enum status st = OK;
    if (!json_is_object(root))
        st = status_fail(ERR_INVALID, "%s: it is no JSON object", path);
    else if (*out == BASE_STORED && (!kept || strcmp(kept, "stored") != 0))
        st = status_fail(ERR_INVALID,
                         "%s: kept_as is %.40s; it is \"stored\", \"nf4\", \"int8\" or \"mxfp4\", what the base was kept as",
                         path, kept ? kept : "no string");
    json_decref(root);
    free(text);
    return st;
}

int checkpoint_is_there(const char *path)
{
    char manifest[CKPT_PATH];
    int there;
    return ckpt_path(manifest, path, "manifest.json", "") == OK && ckpt_look(manifest, &there) == OK && there;
}
