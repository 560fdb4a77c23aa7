/* Marks in rows and messages that say whether they are trained, in the forms that other trainers write. Each is obeyed or
 * refused. */
#include "chat/marks.h"

#include "chat/shapes.h"

#include <ctype.h>
#include <string.h>

/* Names of marks with a known meaning. zero: meaning of the values 0 and false; 1 and true have the opposite meaning. */
static const struct {
    const char *name;
    enum chat_mark zero;
} known[] = {{"weight", CHAT_MARK_UNTRAINED},      {"train", CHAT_MARK_UNTRAINED},      {"training", CHAT_MARK_UNTRAINED},
             {"trainable", CHAT_MARK_UNTRAINED},   {"trained", CHAT_MARK_UNTRAINED},    {"loss", CHAT_MARK_UNTRAINED},
             {"loss_weight", CHAT_MARK_UNTRAINED}, {"loss_mask", CHAT_MARK_UNTRAINED},  {"loss_scale", CHAT_MARK_UNTRAINED},
             {"supervised", CHAT_MARK_UNTRAINED},  {"train_mask", CHAT_MARK_UNTRAINED}, {"masked", CHAT_MARK_TRAINED}};

/* Tells whether the list has a word of the name, which is split at underscores, dashes, dots and capitals. */
static int has_word(const char *name, const char *const *words)
{
    while (*name) {
        char word[24] = "";
        size_t n = 0;
        name += !isalnum((unsigned char)*name);
        while (isalnum((unsigned char)name[n]) &&
               (n == 0 || islower((unsigned char)name[n]) || !islower((unsigned char)name[n - 1])))
            n++;
        for (size_t i = 0; i < n && i < sizeof word - 1; i++)
            word[i] = (char)tolower((unsigned char)name[i]);
        for (size_t i = 0; words[i] && n > 0; i++)
            if (n < sizeof word && strcmp(word, words[i]) == 0)
                return 1;
        name += n;
    }
    return 0;
}

/* Reads a mark that is 0 or 1, false or true; returns 0 for every other value. */
static int read_mark(const json_t *value, enum chat_mark zero, enum chat_mark *out)
{
    const int is_bool = json_is_boolean(value), is_number = json_is_number(value);
    const double x = is_bool ? json_is_true(value) : json_number_value(value);
    if (!(is_bool || is_number) || (x != 0.0 && x != 1.0))
        return 0;
    *out = x == 0.0 ? zero : zero == CHAT_MARK_TRAINED ? CHAT_MARK_UNTRAINED : CHAT_MARK_TRAINED;
    return 1;
}

/* Tells whether a value is false or a text that means false. */
static int says_no(const json_t *value)
{
    static const char *const noes[] = {"false", "False", "FALSE", "no", "0", "0.0"};
    for (size_t i = 0; json_is_string(value) && i < sizeof noes / sizeof *noes; i++)
        if (strcmp(json_string_value(value), noes[i]) == 0)
            return 1;
    return json_is_false(value);
}

/* Tells whether a value is true, a number other than 0, or a text that means true. */
static int says_yes(const json_t *value)
{
    static const char *const yeses[] = {"true", "True", "TRUE", "yes", "1"};
    for (size_t i = 0; json_is_string(value) && i < sizeof yeses / sizeof *yeses; i++)
        if (strcmp(json_string_value(value), yeses[i]) == 0)
            return 1;
    return json_is_true(value) || (json_is_number(value) && json_number_value(value) != 0);
}

static int is_among(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, key) == 0)
            return 1;
    return 0;
}

/* Tells whether a member asks to leave out the row or message that has it: "skip": true and the like. */
static int asks_to_skip(const char *key, const json_t *value)
{
    static const char *const names[] = {"skip",    "skipped", "is_skipped", "exclude", "excluded",  "is_excluded", "omit",
                                        "omitted", "ignore",  "ignored",    "discard", "discarded", NULL};
    return is_among(key, names) && says_yes(value);
}

/* Tells whether a member of an object of notes, such as "metadata", says that something is not trained. Numbers that are not
 * clearly marks may be statistics and do not count. */
static int is_mark_in_notes(const char *key, const json_t *value)
{
    static const char *const zeros[] = {"train",       "training",  "trainable",  "trained",    "is_trained", "weight",
                                        "loss_weight", "loss_mask", "supervised", "train_mask", NULL},
                             *const ones[] = {"mask", "masked", "is_masked", "untrained", NULL};
    const int is_zero = says_no(value) || (json_is_number(value) && json_number_value(value) == 0);
    return asks_to_skip(key, value) || (is_among(key, zeros) && is_zero) || (strcmp(key, "loss") == 0 && says_no(value)) ||
           (is_among(key, ones) && says_yes(value));
}

/* Returns the name of the first mark in an object of notes; NULL: there is none, or `notes` is no object. */
static const char *mark_in_notes(const json_t *notes)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)notes, key, value)
    {
        if (is_mark_in_notes(key, value))
            return key;
    }
    return NULL;
}

/* ---- messages ---- */

/* Reads a member of message i that may be a mark of training; *out stays as it is if the member is no mark. */
static enum status mark_of_member(const struct chat_conversation *c, size_t i, const char *key, const json_t *value,
                                  enum chat_mark *out)
{
    static const char *const words[] = {"train",  "trained", "training", "trainable", "loss",       "mask",   "masks",
                                        "masked", "weight",  "weights",  "supervise", "supervised", "ignore", "ignored",
                                        "learn",  "label",   "labels",   "target",    "targets",    NULL};
    if (json_is_null(value))
        return OK;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        enum chat_mark found;
        if (strcmp(known[k].name, key) != 0)
            continue;
        if (!read_mark(value, known[k].zero, &found))
            return chat_refuse(c, "the \"%s\" of message %zu is neither %s (it is only read) nor %s", key, i + 1,
                               known[k].zero == CHAT_MARK_TRAINED ? "1" : "0", known[k].zero == CHAT_MARK_TRAINED ? "0" : "1");
        if (*out != CHAT_MARK_NONE && *out != found)
            return chat_refuse(c, "message %zu has marks that say opposite things, one of them \"%s\"", i + 1, key);
        *out = found;
        return OK;
    }
    const char *inside = mark_in_notes(value);
    if (inside)
        return chat_refuse(
            c,
            "message %zu has \"%.40s\" with \"%.40s\", which may say that it is not trained, and is not read there: write "
            "\"train\": false beside its content, or leave the member out",
            i + 1, key, inside);
    if (asks_to_skip(key, value))
        return chat_refuse(
            c,
            "message %zu has a \"%.60s\", which may say that it is not trained, and is not known: write \"train\": false, "
            "or leave the member out",
            i + 1, key);
    if (!json_is_string(value) && has_word(key, words))
        return chat_refuse(
            c,
            "message %zu has a \"%.60s\", which may say what is trained and is not known: \"train\": true or false is, of a whole message",
            i + 1, key);
    return OK;
}

static enum status mark_of_object(const struct chat_conversation *c, size_t i, const json_t *object, enum chat_mark *out)
{
    const char *key;
    json_t *value;
    *out = CHAT_MARK_NONE;
    json_object_foreach((json_t *)object, key, value)
    {
        TRY(mark_of_member(c, i, key, value, out));
    }
    return OK;
}

/* Refuses marks of single parts or tool calls of a message, as these are trained with the whole message. */
static enum status check_parts(const struct chat_conversation *c, size_t i, const json_t *parts, const char *what)
{
    size_t at;
    const json_t *part;
    if (!json_is_array(parts))
        return OK;
    json_array_foreach(parts, at, part)
    {
        enum chat_mark mark = CHAT_MARK_NONE;
        TRY(mark_of_object(c, i, part, &mark));
        if (mark == CHAT_MARK_UNTRAINED)
            return chat_refuse(c, "%s %zu of message %zu says that it is not trained, which only a whole message can say", what,
                               at + 1, i + 1);
    }
    return OK;
}

enum status marks_of_message(const struct chat_conversation *c, size_t i, const json_t *m, enum chat_mark *out)
{
    TRY(mark_of_object(c, i, m, out));
    TRY(check_parts(c, i, json_object_get(m, "content"), "part"));
    return check_parts(c, i, json_object_get(m, "tool_calls"), "call");
}

/* ---- rows ---- */

/* Tells whether a row's mark says that the row is trained, as it is here anyway. */
static int is_harmless(const char *key, const json_t *value)
{
    static const char *const users[] = {"user", "User", "human", "Human"};
    enum chat_mark mark;
    if (strcmp(key, "mask") == 0 || strcmp(key, "masked") == 0) { /* in NeMo's rows, mask names the speaker that is not trained */
        for (size_t i = 0; i < sizeof users / sizeof *users; i++)
            if (json_is_string(value) && strcmp(json_string_value(value), users[i]) == 0)
                return 1;
        return read_mark(value, CHAT_MARK_TRAINED, &mark) && mark == CHAT_MARK_TRAINED;
    }
    if (says_no(value))
        return 0;
    return json_is_string(value) || (read_mark(value, CHAT_MARK_UNTRAINED, &mark) && mark == CHAT_MARK_TRAINED);
}

/* Refuses members that ask to leave out the row, or the beginning of its text. */
static enum status refuse_left_out_row(const char *key, const json_t *value, enum chat_row_kind kind, const char *file,
                                       int64_t line)
{
    static const char *const notes[] = {"metadata", "meta",       "meta_data",  "extra",       "extras",
                                        "info",     "extra_info", "attributes", "annotations", NULL},
                             *const places[] = {"prompt_length", "prompt_len",         "promptLength",   "prompt_end",
                                                "prompt_offset", "instruction_length", "response_start", "completion_start",
                                                "loss_start",    "train_start",        "label_start",    NULL};
    const char *inside = is_among(key, notes) ? mark_in_notes(value) : NULL;
    if (inside)
        return status_fail(
            ERR_INVALID,
            "%s:%lld: its \"%s\" has \"%.40s\", which may say that the row is not trained, and is not read: leave the row "
            "out, or the member",
            file, (long long)line, key, inside);
    if (asks_to_skip(key, value))
        return status_fail(
            ERR_INVALID,
            "%s:%lld: its \"%s\" may say that the row is not trained, and is not read: leave the row out, or the member", file,
            (long long)line, key);
    if (kind == CHAT_ROW_TEXT && json_is_integer(value) && is_among(key, places))
        return status_fail(
            ERR_INVALID,
            "%s:%lld: its \"%s\" may say where training begins, and a row of text is trained whole: write the row as "
            "\"prompt\" and \"completion\", or leave the member out",
            file, (long long)line, key);
    return OK;
}

static enum status check_row_member(const char *key, const json_t *value, enum chat_row_kind kind, const char *file, int64_t line)
{
    static const char *const single[] = {"train",       "training",      "trainable",  "trained",        "weight",
                                         "loss_weight", "sample_weight", "row_weight", "example_weight", "instance_weight",
                                         "mask",        "masked",        "supervised", "loss_mask",      "loss_scale"};
    static const char *const words[] = {"train", "trained", "training",  "trainable",  "loss",         "mask",
                                        "masks", "masked",  "supervise", "supervised", "unsupervised", NULL};
    static const char *const of_lists[] = {"weight", "weights", NULL};
    /* "label": 0 is not refused, as it may be the number of a class */
    static const char *const tags[] = {"label", "kto_tag", "kto_label"};
    const int is_list = json_is_array(value) || json_is_object(value);
    /* in rows of ids a list has a value for each id, and is read elsewhere */
    if (json_is_null(value) || (is_list && kind == CHAT_ROW_IDS))
        return OK;
    TRY(refuse_left_out_row(key, value, kind, file, line));
    for (size_t i = 0; i < sizeof tags / sizeof *tags && kind == CHAT_ROW_CHAT; i++)
        if (strcmp(tags[i], key) == 0 && (says_no(value) || (i > 0 && json_is_number(value) && json_number_value(value) == 0)))
            return status_fail(
                ERR_INVALID,
                "%s:%lld: \"%s\": false marks an answer that is not wanted, and every answer is trained to be given: leave such rows out",
                file, (long long)line, key);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (strcmp(single[i], key) == 0 && !is_list)
            return is_harmless(key, value)
                       ? OK
                       : status_fail(
                             ERR_INVALID,
                             "%s:%lld: its \"%s\" says that the row is trained otherwise than others, which is not done: leave the row out, or "
                             "the member; sources have weights (--data a=0.7,b=0.3)",
                             file, (long long)line, key);
    if (strncmp(key, "train_on", 8) == 0 ||
        ((json_is_boolean(value) || is_list) && (has_word(key, words) || (is_list && has_word(key, of_lists)))))
        return status_fail(
            ERR_INVALID,
            "%s:%lld: its \"%.60s\" may say what is trained, and is not known: --train-on says it, and a message's \"train\"",
            file, (long long)line, key);
    return OK;
}

enum status chat_check_row(const json_t *row, enum chat_row_kind kind, const char *file, int64_t line)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        TRY(check_row_member(key, value, kind, file, line));
    }
    return OK;
}
