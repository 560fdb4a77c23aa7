/* Reading rows of token ids. */
#include "data/id_row.h"

#include "chat/chat.h"

#include <string.h>

/* Finds a list of n entries, one for each id; *out NULL: the row has no list named key. */
static enum status array_of(const struct lines_place *at, const json_t *row, const char *key, size_t n, const json_t **out)
{
    *out = json_object_get(row, key);
    if (!*out || json_is_null(*out)) {
        *out = NULL;
        return OK;
    }
    if (!json_is_array(*out) || json_array_size(*out) != n)
        return status_fail(ERR_INVALID, "%s:%lld: its \"%s\" is no list of %zu numbers, as many as it has input_ids", at->path,
                           (long long)at->line, key, n);
    return OK;
}

static enum status number_at(const struct lines_place *at, const json_t *list, const char *key, size_t i, json_int_t *out)
{
    const json_t *x = json_array_get(list, i);
    if (!json_is_integer(x))
        return status_fail(ERR_INVALID, "%s:%lld: place %zu of its \"%s\" is no whole number", at->path, (long long)at->line,
                           i + 1, key);
    *out = json_integer_value(x);
    return OK;
}

static enum status bit_at(const struct lines_place *at, const json_t *list, const char *key, size_t i, json_int_t *out)
{
    const json_t *x = json_array_get(list, i);
    const double value = json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
    *out = value != 0.0;
    return (json_is_boolean(x) || json_is_number(x)) && (value == 0.0 || value == 1.0)
               ? OK
               : status_fail(ERR_INVALID, "%s:%lld: place %zu of its \"%s\" is neither 0 nor 1", at->path, (long long)at->line,
                             i + 1, key);
}

/* ---- what is trained ---- */

/* Keys of lists with a value for each id. Value of an id that is not trained: -100 in labels, 0 in the other lists; in
 * attention_mask 0 is padding. */
enum { LABELS, ATTENTION_MASK, LISTS = 15 };
/* clang-format off */
static const char *const lists[LISTS] = {"labels",       "attention_mask",   "mask",        "loss_mask",    "assistant_masks", "assistant_mask", "assistant_tokens_mask", "completion_mask",
                                         "response_mask", "completion_masks", "train_mask", "loss_weight", "loss_weights",    "token_weights",  "loss_scale"};
/* clang-format on */

static int is_known(const char *key)
{
    /* list that tells special tokens from others, and nothing about training */
    static const char *const others[] = {"special_tokens_mask"};
    for (int k = 0; k < LISTS; k++)
        if (strcmp(lists[k], key) == 0)
            return 1;
    return strcmp(others[0], key) == 0;
}

static int holds_any(const char *key, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(key, *parts))
            return 1;
    return 0;
}

/* Refuses members, under names that are not read, that seem to say which ids are trained: lists of marks, and numbers of ids
 * before the answer. */
static enum status refuse_unknown(const struct lines_place *at, const json_t *row)
{
    static const char *const of_lists[] = {"mask",   "weight",    "loss",   "label",    "train",
                                           "target", "advantage", "reward", "supervis", NULL},
                             *const before[] = {"prompt", "source", "context", "query", "instruction", NULL},
                             *const lengths[] = {"len", "end", NULL}, *const answers[] = {"answer", "response", "completion",
                                                                                          "loss",   "target",   "label",
                                                                                          NULL},
                             *const places[] = {"start", "begin", "offset", "idx", "index", "len", NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        const int is_place = json_is_integer(value) && ((holds_any(key, before) && holds_any(key, lengths)) ||
                                                        (holds_any(key, answers) && holds_any(key, places)));
        if (is_place || (json_array_size(value) > 0 && !is_known(key) && holds_any(key, of_lists)))
            return status_fail(
                ERR_INVALID,
                "%s:%lld: its \"%.60s\" may say what is trained, and is not known: labels (-100: not trained) and loss_mask (0: not "
                "trained) are",
                at->path, (long long)at->line, key);
    }
    return OK;
}

static enum status check_id(const struct lines_place *at, size_t i, json_int_t id, int64_t ids)
{
    if (id >= 0 && id < ids)
        return OK;
    return status_fail(ERR_INVALID, "%s:%lld: place %zu of its input_ids is %lld, and ids of the vocabulary end at %lld",
                       at->path, (long long)at->line, i + 1, (long long)id, (long long)ids - 1);
}

static enum status add_id(const struct lines_place *at, const json_t *all, const json_t *const list[LISTS], size_t i, int64_t ids,
                          struct ids *out)
{
    enum { IGNORED = -100 };
    json_int_t id = 0, x = 0;
    int trained = 1, padding = 0;
    TRY(number_at(at, all, "input_ids", i, &id));
    for (int k = 0; k < LISTS; k++) {
        if (!list[k])
            continue;
        TRY(k == LABELS ? number_at(at, list[k], lists[k], i, &x) : bit_at(at, list[k], lists[k], i, &x));
        if (k == ATTENTION_MASK)
            padding = x == 0;
        else if (k == LABELS && x != id && x != IGNORED)
            return status_fail(
                ERR_INVALID,
                "%s:%lld: place %zu of its labels is %lld; it has to be the id there, %lld, or %d (labels are shifted "
                "while training)",
                at->path, (long long)at->line, i + 1, (long long)x, (long long)id, IGNORED);
        else
            trained &= k == LABELS ? x != IGNORED : x != 0;
    }
    if (padding)
        return OK;
    TRY(check_id(at, i, id, ids));
    return ids_add(out, (int32_t)(id + (trained ? 0 : ids)));
}

/* ---- several documents ---- */

static enum status refuse_packed(const struct lines_place *at, const char *key)
{
    return status_fail(
        ERR_INVALID,
        "%s:%lld: it holds several documents (%.60s): give each document a row of its own, --packing puts them together",
        at->path, (long long)at->line, key);
}

/* Tells whether a key is a usual name for the positions of the ids. */
static int are_positions(const char *key)
{
    static const char *const names[] = {"position", "positions", "pos", "pos_ids", "position_id", "positions_ids", "pos_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], key) == 0)
            return 1;
    return 0;
}

/* Refuses positions that do not count 0, 1, 2, ..., as another document begins there; positions of padding may be any. */
static enum status check_positions(const struct lines_place *at, const json_t *row, const char *key, size_t n,
                                   const json_t *attention)
{
    const json_t *positions;
    json_int_t position = 0, kept = 1, next = 0;
    TRY(array_of(at, row, key, n, &positions));
    for (size_t i = 0; positions && i < n; i++) {
        TRY(number_at(at, positions, key, i, &position));
        if (attention)
            TRY(bit_at(at, attention, lists[ATTENTION_MASK], i, &kept));
        if (kept != 0 && position != next)
            return refuse_packed(at, key);
        next += kept != 0;
    }
    return OK;
}

/* Tells whether a list has different values, not counting those of padding. */
static int differs(const json_t *list, const json_t *attention)
{
    const json_t *first = NULL, *x;
    size_t i;
    json_array_foreach(list, i, x)
    {
        const json_t *kept = json_array_get(attention, i);
        if (kept && (json_is_false(kept) || (json_is_number(kept) && json_number_value(kept) == 0)))
            continue;
        if (first && !json_equal(first, x))
            return 1;
        first = x;
    }
    return 0;
}

/* Tells whether any number of the list lies inside 1 .. n-1, so that a document would begin or end between the n ids. */
static int cuts(const json_t *list, size_t n)
{
    size_t i;
    const json_t *x;
    json_array_foreach(list, i, x)
    {
        if (json_is_integer(x) && json_integer_value(x) > 0 && json_integer_value(x) < (json_int_t)n)
            return 1;
    }
    return 0;
}

static size_t count_true(const json_t *list)
{
    size_t i, n = 0;
    const json_t *x;
    json_array_foreach(list, i, x)
    {
        n += json_is_true(x) || json_number_value(x) != 0;
    }
    return n;
}

/* Refuses lists that show several documents, under the names of trainers that pack: seq_lens, cu_seqlens, seq_start_id,
 * document_ids, ... */
static enum status check_packed_by(const struct lines_place *at, const char *key, const json_t *list, size_t n,
                                   const json_t *attention)
{
    static const char *const lengths[] = {"seqlen",  "seq_len",      "seq_lengths", "sequence_len", "lens", "lengths",
                                          "doc_len", "document_len", NULL},
                             *const places[] = {"cu_", "start", "bound", "_ends", "splits", NULL},
                             *const units[] = {"seq", "doc", "segment", "sample", "pack", "example", "conversation", NULL},
                             *const numbers[] = {"id", "idx", "index", "indices", NULL};
    const size_t kept = attention ? count_true(attention) : n;
    if (holds_any(key, places))
        return cuts(list, kept) ? refuse_packed(at, key) : OK;
    if (holds_any(key, lengths))
        return count_true(list) > 1 ? refuse_packed(at, key) : OK;
    return json_array_size(list) == n && holds_any(key, units) && holds_any(key, numbers) && differs(list, attention)
               ? refuse_packed(at, key)
               : OK;
}

static enum status check_packed(const struct lines_place *at, const json_t *row, size_t n, const json_t *attention)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        if (strcmp(key, "position_ids") == 0 || strcmp(key, "input_pos") == 0 ||
            (are_positions(key) && json_array_size(value) == n))
            TRY(check_positions(at, row, key, n, attention));
        else if (json_is_array(value) && strcmp(key, "input_ids") != 0)
            TRY(check_packed_by(at, key, value, n, attention));
    }
    return OK;
}

enum status id_row_add(const struct lines_place *at, const json_t *row, int64_t ids, struct ids *out)
{
    const json_t *all = json_object_get(row, "input_ids"), *list[LISTS];
    size_t n = json_array_size(all);
    if (!json_is_array(all))
        return status_fail(ERR_INVALID, "%s:%lld: it has no list \"input_ids\", as the file's first row has", at->path,
                           (long long)at->line);
    TRY(chat_check_row(row, CHAT_ROW_IDS, at->path, at->line));
    for (int k = 0; k < LISTS; k++)
        TRY(array_of(at, row, lists[k], n, &list[k]));
    TRY(check_packed(at, row, n, list[ATTENTION_MASK]));
    TRY(refuse_unknown(at, row));
    for (size_t i = 0; i < n; i++)
        TRY(add_id(at, all, list, i, ids, out));
    return OK;
}
