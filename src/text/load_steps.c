/* Loading the steps of a tokenizer.json before and after its model. Private to parts.h. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"
#include "text/known.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static enum status copy_text(const char *text, size_t n, uint8_t **out)
{
    *out = sys_malloc(n + 1);
    if (!*out)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    memcpy(*out, text, n);
    (*out)[n] = 0;
    return OK;
}

/* Reads {"String": ...} or {"Regex": ...}, or a bare string. */
static enum status read_pattern(const json_t *object, struct regex **out, const char **text, size_t *n, int *literal)
{
    const json_t *pattern = json_member(object, "pattern");
    *literal = json_is_string(pattern) || json_member(pattern, "String");
    TRY(json_is_string(pattern) ? json_text(object, "pattern", text, n)
                                : json_text(pattern, *literal ? "String" : "Regex", text, n));
    if (*literal && *n == 0)
        return status_fail(ERR_INVALID, "an empty string is looked for");
    return *literal ? regex_compile_literal(*text, *n, out) : regex_compile(*text, *n, out);
}

static enum status read_character(const json_t *object, const char *key, uint32_t *c)
{
    const char *text;
    size_t n, bytes = 0;
    TRY(json_text(object, key, &text, &n));
    if (n)
        *c = utf8_read((const uint8_t *)text, &bytes);
    return n && bytes == n ? OK : status_fail(ERR_INVALID, "%s is not one character", key);
}

/* Calls `load` for the object, or for each object of a Sequence. */
static enum status each(struct tokenizer *t, const json_t *object, const char *members, const char *what, int depth,
                        enum status (*load)(struct tokenizer *t, const json_t *object, const char *type))
{
    const char *type = json_word(object, "type");
    if (!object)
        return OK;
    if (!json_is_object(object) || !type[0])
        return status_fail(ERR_INVALID, "the %s has no type", what);
    if (strcmp(type, "Sequence") != 0)
        return load(t, object, type);
    const json_t *list = json_member(object, members);
    if (!json_is_array(list) || depth > 8)
        return status_fail(ERR_INVALID, "the %s is a Sequence without %s, or of too many levels", what, members);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(each(t, json_array_get(list, i), members, what, depth + 1, load));
    return OK;
}

/* ---- normalizers ---- */

static enum status load_replace(const json_t *object, struct normal_step *s)
{
    const char *text, *content;
    size_t n, content_n;
    int literal;
    TRY(json_text(object, "content", &content, &content_n));
    TRY(copy_text(content, content_n, &s->text));
    s->n = content_n;
    TRY(read_pattern(object, &s->pattern, &text, &n, &literal));
    s->single = literal && n == 1 && (uint8_t)text[0] < 0x80 ? text[0] : -1;
    s->spaces = s->single == ' ' || (!literal && n == 5 && memcmp(text, " {2,}", 5) == 0);
    return OK;
}

static enum status load_normal_step(struct tokenizer *t, const json_t *object, const char *type)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Precompiled", "Strip"};
    const char *text;
    size_t n;
    int kind = 0;
    while (kind < 8 && strcmp(names[kind], type) != 0)
        kind++;
    if (kind == 8)
        return status_fail(ERR_INVALID,
                           "the normalizer %.40s is not known here (NFC, NFD, NFKC, NFKD, Prepend, Replace, Precompiled, "
                           "Strip and Sequence are)",
                           type);
    if (t->normal.n == MOST_NORMAL_STEPS)
        return status_fail(ERR_INVALID, "it has more than %d normalizers", MOST_NORMAL_STEPS);
    struct normal_step *s = &t->normal.step[t->normal.n++];
    *s = (struct normal_step){.kind = (enum normal_kind)kind, .single = -1};
    switch (s->kind) {
    case NORMAL_PREPEND:
        TRY(json_text(object, "prepend", &text, &n));
        s->n = n;
        return copy_text(text, n, &s->text);
    case NORMAL_REPLACE:
        return load_replace(object, s);
    case NORMAL_PRECOMPILED:
        TRY(json_text(object, "precompiled_charsmap", &text, &n));
        return char_map_read(text, n, &s->map);
    case NORMAL_STRIP:
        TRY(json_flag(object, "strip_left", 1, &s->left));
        return json_flag(object, "strip_right", 1, &s->right);
    default:
        return OK;
    }
}

enum status load_normalizer(struct tokenizer *t, const json_t *normalizer)
{
    return each(t, normalizer, "normalizers", "normalizer", 0, load_normal_step);
}

/* ---- pre-tokenizers ---- */

static enum status read_behavior(const json_t *object, enum split_behavior *out)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = json_member(object, "behavior") ? json_word(object, "behavior") : names[0];
    for (int i = 0; i < 5; i++)
        if (strcmp(names[i], name) == 0)
            return *out = (enum split_behavior)i, OK;
    return status_fail(ERR_INVALID, "the behavior %.40s is not known here", name);
}

static enum status load_split(const json_t *object, struct stage *s)
{
    const char *text;
    size_t n;
    int literal;
    TRY(read_behavior(object, &s->behavior));
    TRY(json_flag(object, "invert", 0, &s->invert));
    TRY(read_pattern(object, &s->pattern, &text, &n, &literal));
    s->known = literal ? PATTERN_UNKNOWN : known_find(text, n);
    if (literal && n == 1 && text[0] == ' ')
        s->known = PATTERN_NO_BREAKS;
    return OK;
}

static enum status load_byte_level(const json_t *object, struct stage *s)
{
    int use_regex;
    TRY(json_flag(object, "add_prefix_space", 1, &s->prefix_space));
    TRY(json_flag(object, "use_regex", 1, &use_regex));
    if (!use_regex)
        return OK;
    s->known = PATTERN_GPT2;
    return regex_compile(GPT2_PATTERN, strlen(GPT2_PATTERN), &s->pattern);
}

static enum status load_metaspace(const json_t *object, struct stage *s)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const char *scheme = json_word(object, "prepend_scheme");
    uint32_t mark = 0x2581;
    int prefix;
    if (json_member(object, "replacement"))
        TRY(read_character(object, "replacement", &mark));
    s->mark_n = utf8_write(mark, s->mark);
    TRY(json_flag(object, "split", 1, &s->split));
    TRY(json_flag(object, "add_prefix_space", 1, &prefix));
    s->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (int i = 0; scheme[0] && i < 4; i++) {
        if (i == 3)
            return status_fail(ERR_INVALID, "the prepend_scheme %.40s is not known here", scheme);
        if (strcmp(schemes[i], scheme) != 0)
            continue;
        s->prepend = (enum prepend_scheme)i;
        break;
    }
    return OK;
}

static enum status load_stage(struct tokenizer *t, const json_t *object, const char *type)
{
    if (t->n_stages == MOST_STAGES)
        return status_fail(ERR_INVALID, "it has more than %d pre-tokenizers", MOST_STAGES);
    struct stage *s = &t->stage[t->n_stages++];
    *s = (struct stage){.kind = STAGE_SPLIT};
    if (strcmp(type, "Split") == 0)
        return load_split(object, s);
    if (strcmp(type, "ByteLevel") == 0) {
        s->kind = STAGE_BYTE_LEVEL;
        return load_byte_level(object, s);
    }
    if (strcmp(type, "Metaspace") == 0) {
        s->kind = STAGE_METASPACE;
        return load_metaspace(object, s);
    }
    s->kind = STAGE_CHARS;
    if (strcmp(type, "Digits") == 0) {
        int individual;
        s->takes = unicode_is_numeric;
        TRY(json_flag(object, "individual_digits", 0, &individual));
        s->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        s->takes = unicode_is_punctuation;
        return read_behavior(object, &s->behavior);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        s->takes = unicode_is_space;
        s->behavior = SPLIT_REMOVED;
        return OK;
    }
    return status_fail(ERR_INVALID,
                       "the pre-tokenizer %.40s is not known here (Split, ByteLevel, Metaspace, Digits, Punctuation, "
                       "WhitespaceSplit and Sequence are)",
                       type);
}

enum status load_stages(struct tokenizer *t, const json_t *pre_tokenizer)
{
    TRY(each(t, pre_tokenizer, "pretokenizers", "pre-tokenizer", 0, load_stage));
    for (int i = 0; i < t->n_stages; i++) /* the last stage gives bytes, which a byte-pair model takes */
        t->stage[i].maps = i + 1 < t->n_stages;
    return OK;
}

/* ---- templates ---- */

static enum status add_id(const json_t *id, struct ids *out)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MOST_TOKENS)
        return status_fail(ERR_INVALID, "a special token of the template has no number as its id");
    return ids_add(out, (int32_t)json_integer_value(id));
}

static enum status add_ids(const json_t *list, struct ids *out)
{
    if (!json_is_array(list))
        return status_fail(ERR_INVALID, "a special token of the template has no ids");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_id(json_array_get(list, i), out));
    return OK;
}

static enum status read_template(const json_t *object, struct ids *before, struct ids *behind)
{
    const json_t *single = json_member(object, "single"), *tokens = json_member(object, "special_tokens");
    int texts = 0;
    if (!json_is_array(single))
        return status_fail(ERR_INVALID, "the template for single texts is no list");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i), *special = json_member(part, "SpecialToken"),
                     *sequence = json_member(part, "Sequence");
        if (special)
            TRY(add_ids(json_member(json_member(tokens, json_word(special, "id")), "ids"), texts ? behind : before));
        else if (!sequence || strcmp(json_word(sequence, "id"), "A") != 0)
            return status_fail(ERR_INVALID,
                               "the template for single texts has a part that is neither a SpecialToken nor Sequence A");
        texts += sequence != NULL;
    }
    return texts == 1 ? OK : status_fail(ERR_INVALID, "the template for single texts has the text %d times", texts);
}

static enum status load_processor(struct tokenizer *t, const json_t *object, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) /* changes only the tokens' offsets, which are not used here */
        return OK;
    if (t->before.n > 0 || t->behind.n > 0) /* the `tokenizers` library would apply the second template as for a pair of texts */
        return status_fail(ERR_INVALID, "%.40s follows a post-processor that adds tokens, which is not known here", type);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(object, &t->before, &t->behind);
    if (strcmp(type, "RobertaProcessing") != 0 && strcmp(type, "BertProcessing") != 0)
        return status_fail(ERR_INVALID,
                           "the post-processor %.40s is not known here (TemplateProcessing, ByteLevel, RobertaProcessing, "
                           "BertProcessing and Sequence are)",
                           type);
    TRY(add_id(json_array_get(json_member(object, "cls"), 1), &t->before));
    return add_id(json_array_get(json_member(object, "sep"), 1), &t->behind);
}

enum status load_template(struct tokenizer *t, const json_t *post_processor)
{
    return each(t, post_processor, "processors", "post-processor", 0, load_processor);
}

/* ---- decoders ---- */

static enum status read_strip(const json_t *object, struct decoder *d)
{
    TRY(read_character(object, "content", &d->mark));
    d->start = json_integer_value(json_member(object, "start"));
    d->stop = json_integer_value(json_member(object, "stop"));
    return d->start >= 0 && d->stop >= 0 ? OK : status_fail(ERR_INVALID, "the decoder Strip strips less than nothing");
}

static enum status load_one_decoder(struct tokenizer *t, const json_t *object, const char *type)
{
    static const char *const names[] = {"ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace"};
    const char *text;
    size_t n;
    int literal, kind = 0;
    while (kind < 6 && strcmp(names[kind], type) != 0)
        kind++;
    if (kind == 6)
        return status_fail(ERR_INVALID,
                           "the decoder %.40s is not known here (ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace "
                           "and Sequence are)",
                           type);
    if (t->n_decoders == MOST_DECODERS)
        return status_fail(ERR_INVALID, "it has more than %d decoders", MOST_DECODERS);
    struct decoder *d = &t->decoder[t->n_decoders++];
    *d = (struct decoder){.kind = (enum decoder_kind)kind};
    switch (d->kind) {
    case DECODE_STRIP:
        return read_strip(object, d);
    case DECODE_REPLACE:
        TRY(json_text(object, "content", &text, &d->n));
        TRY(copy_text(text, d->n, &d->text));
        return read_pattern(object, &d->pattern, &text, &n, &literal);
    case DECODE_METASPACE: {
        struct stage s = {.kind = STAGE_METASPACE};
        TRY(load_metaspace(object, &s));
        d->mark = utf8_read(s.mark, &n);
        d->prepends = s.prepend != PREPEND_NEVER;
        return OK;
    }
    default:
        return OK;
    }
}

enum status load_decoder(struct tokenizer *t, const json_t *decoder)
{
    return each(t, decoder, "decoders", "decoder", 0, load_one_decoder);
}
