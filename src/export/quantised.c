/* `ltrain export --quantize`: a model's weights in the formats of bitsandbytes. */
#include "export/export.h"

#include "base/progress.h"
#include "base/units.h"
#include "checkpoint/quantise.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status check_model(const struct settings *s, const struct model_config *c, const char *given, const char *word)
{
    if (s->adapter)
        return status_fail(
            ERR_INVALID,
            "--quantize %s: %s holds an adapter, which stays as it is, beside a quantised base or not: merge it first (ltrain "
            "export --model %s --to MERGED) and quantise MERGED, or give its base, %s",
            word, given, given, s->model);
    if (c->quantised)
        return status_fail(
            ERR_INVALID,
            "--quantize %s: the files of %s hold %s already; numbers that were rounded to that are not rounded again: give the "
            "model from before",
            word, s->model, model_base_name(c->base));
    if (c->experts > 0)
        return status_fail(
            ERR_INVALID,
            "--quantize %s: %s has experts, whose stacks transformers reads in no format of bitsandbytes: --base %s beside "
            "--lora quantises them while they are loaded",
            word, s->model, word);
    if (c->wrapped)
        return status_fail(
            ERR_INVALID,
            "--quantize %s: %s is a multimodal model, of which ltrain reads the text model, and transformers would take the "
            "other parts as quantised, too: give the text model alone",
            word, s->model);
    return OK;
}

static enum status open_model(const struct settings *s, const char *given, enum model_base base, struct model **out)
{
    const char *word = model_base_word(base), *all = MODEL_FREEZE_ALL;
    char cause[1024], prefix[32];
    struct model_config c;
    if (model_is_preset(s->model))
        return status_fail(ERR_INVALID,
                           "--quantize %s: %s is a preset, whose random weights lie in no directory: give a model's directory",
                           word, s->model);
    TRY(model_config_read(s->model, &c));
    TRY(check_model(s, &c, given, word));
    c.base = base;
    enum status st = model_create(&c, &all, 1, out);
    if (st != ERR_INVALID)
        return st;
    snprintf(prefix, sizeof prefix, "--base %s: ", word);
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(ERR_INVALID, "--quantize %s: %s", word,
                       strncmp(cause, prefix, strlen(prefix)) == 0 ? cause + strlen(prefix) : cause);
}

static void say(const char *to, enum model_base base, const struct quantise_report *r)
{
    char was[32], is[32];
    printf("quantised: %s has %d matrices in bitsandbytes' %s, and the other %d tensors as they are: %s, where %s were\n", to,
           r->matrices, model_base_name(base), r->others, units_format_bytes(r->is, is), units_format_bytes(r->was, was));
}

enum status export_quantised(const char *model, const char *to, enum model_base base)
{
    struct settings s = {.model = strdup(model)};
    char original[EXPORT_PATH];
    struct quantise_report report;
    struct model *m = NULL;
    enum status st = s.model ? train_resolve_model(&s, "give the directory of a whole model", stdout)
                             : status_fail(ERR_NOMEM, "out of memory");
    if (st == OK)
        st = open_model(&s, model, base, &m);
    if (st == OK)
        st = export_check_place(s.model, to);
    if (st == OK)
        st = checkpoint_quantise(m, s.model, export_original(s.model, original), to, &report);
    if (st == OK)
        say(to, base, &report);
    st = train_blame_pruned(&s, st);
    model_destroy(m);
    free(s.model);
    free(s.adapter);
    free(s.tokenizer);
    free(s.rope);
    return st;
}
