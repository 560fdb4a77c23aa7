/* Warning of Mistral's tokenizers with a faulty regular expression, as transformers does (fix_mistral_regex). Private to parts.h. */
#include "text/parts.h"

#include "text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The expression that transformers 5.24 puts in place of the faulty one with fix_mistral_regex=True. */
#define FIXED                                                                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}" \
    "\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
enum { LEAST_TOKENS = 100000 }; /* most tokens of a vocabulary about which transformers never warns */

static int is_of_mistral(const json_t *model)
{
    static const char *const types[] = {"mistral", "mistral3", "voxtral", "ministral", "pixtral"};
    const char *type = json_word(model, "model_type"), *version = json_word(model, "transformers_version");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return !version[0] || strtol(version, NULL, 10) < 5;
    return 0;
}

/* Returns the regular expression of the pre-tokenizer's first part; "": there is none. */
static const char *expression_of(const json_t *pre_tokenizer)
{
    const json_t *list = json_member(pre_tokenizer, "pretokenizers"),
                 *first = json_is_array(list) ? json_array_get(list, 0) : pre_tokenizer;
    return json_word(json_member(first, "pattern"), "Regex");
}

void remark_mistral(struct tokenizer *t, const json_t *pre_tokenizer, const struct beside *b)
{
    if (t->remark[0] || !pre_tokenizer || vocab_count(t->tokens) <= LEAST_TOKENS || !is_of_mistral(b->model) ||
        strcmp(expression_of(pre_tokenizer), FIXED) == 0)
        return;
    if (json_is_true(json_member(b->config, "fix_mistral_regex")))
        snprintf(
            t->remark, sizeof t->remark,
            "fix_mistral_regex beside %.300s: transformers cuts text by another regular expression than that file has, which is taken here",
            t->path);
    else
        snprintf(
            t->remark, sizeof t->remark,
            "%.300s has a regular expression that transformers warns of: published Mistral models were made with the one that fix_mistral_regex=True puts in; the "
            "file's is taken",
            t->path);
}
