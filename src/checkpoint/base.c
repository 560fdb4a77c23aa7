/* The weights that adapters were trained beside: their hash, and whether an adapter's directory names it. */
#include "checkpoint/base.h"

#include "base/num.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "checkpoint/texts.h"
#include "data/safetensors.h"
#include "engine/source.h"
#include "model/adapter_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND = 8192 }; /* segments that a rank hashes between two agreements: 1 GiB */

/* The rank's share of a file's segments. The ranks agree after every round. */
static enum status hash_file(struct comm *c, const char *path, uint64_t *sum)
{
    int64_t bytes = 0, rank = comm_rank(c), size = comm_size(c);
    TRY(comm_agree(c, ckpt_size(path, &bytes)));
    int64_t n = ckpt_segments(bytes), share = ceil_div(n, size), first = min_i64(n, rank * share), end = min_i64(n, first + share);
    for (int64_t at = 0; at < share; at += ROUND) {
        int64_t part = max_i64(0, min_i64(ROUND, end - first - at));
        TRY(comm_agree(c, part > 0 ? ckpt_hash(path, bytes, first + at, part, sum) : OK));
    }
    return OK;
}

static enum status hash_files(struct comm *c, struct st_file *f, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < st_files(f); i++) {
        uint64_t sum = 0;
        TRY(hash_file(c, st_file_path(f, i), &sum));
        double half[2] = {(double)(uint32_t)sum, (double)(uint32_t)(sum >> 32)}; /* sums of doubles are exact */
        TRY(comm_sum(c, half, 2));
        *out = *out * 31 + (uint64_t)half[0] + ((uint64_t)half[1] << 32);
    }
    return OK;
}

enum status checkpoint_hash_base(struct comm *c, const char *path, uint64_t *out)
{
    struct st_file *f = NULL;
    enum status st = comm_agree(c, st_open(path, &f));
    if (st == OK)
        st = hash_files(c, f, out);
    st_close(f);
    return st;
}

enum status base_write(const struct session *s, const char *dir)
{
    char path[CKPT_PATH], hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, s->base_xxh3);
    TRY(adapter_config_write(dir, s->model, s->base[0] ? s->base : s->model->config.name));
    TRY(ckpt_path(path, dir, BASE_FILE, ""));
    json_t *root = json_pack("{s:s, s:s}", "base", s->base[0] ? s->base : s->model->config.name, "xxh3", hash);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    enum status st = text ? ckpt_write_text(path, text) : status_fail(ERR_NOMEM, "out of memory: the text of %s", path);
    free(text);
    json_decref(root);
    return st;
}

enum status checkpoint_copy_adapter(const char *from, const char *to)
{
    static const char *const names[] = {ADAPTER_FILE, BASE_FILE, ADAPTER_CONFIG};
    char source[CKPT_PATH], target[CKPT_PATH];
    int there;
    TRY(texts_copy(from, to));
    for (int i = 0; i < 3; i++) {
        TRY(ckpt_path(source, from, names[i], ""));
        TRY(ckpt_path(target, to, names[i], ""));
        TRY(ckpt_look(source, &there));
        if (there || i != 1)
            TRY(ckpt_copy(source, target));
    }
    return ckpt_sync_dir(to);
}

enum status checkpoint_check_base(const char *adapter, const char *base, uint64_t xxh3)
{
    char path[CKPT_PATH], *text = NULL;
    int there;
    TRY(ckpt_path(path, adapter, BASE_FILE, ""));
    TRY(ckpt_look(path, &there));
    if (!there) /* of PEFT: names and shapes must do */
        return OK;
    TRY(ckpt_read_text(path, CKPT_SMALL_TEXT, &text));
    json_t *root = json_loads(text, 0, NULL);
    const char *was = json_string_value(json_object_get(root, "xxh3")), *name = json_string_value(json_object_get(root, "base"));
    enum status st = was && strtoull(was, NULL, 16) == xxh3
                         ? OK
                         : status_fail(ERR_INVALID, "--adapter: %s was trained beside the weights in %s, not those that are in %s now",
                                       adapter, name ? name : "another model", base);
    json_decref(root);
    free(text);
    return st;
}
