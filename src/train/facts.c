#include "train/facts.h"

#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "data/stream.h"
#include "settings/curriculum.h"
#include "settings/keys.h"
#include "settings/read.h"
#include "train/base_card.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- facts at the start ---- */

/* Returns the last part of a path, which may end in slashes. */
static json_t *base_name(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return json_stringn(path + from, end - from);
}

/* Lists the last parts of data paths, with their weights. Directories of another machine are of no use to a reader of the card. */
static json_t *name_items(const struct string_list *items)
{
    json_t *all = json_array();
    for (int i = 0; i < items->n; i++) {
        size_t n;
        double weight;
        char name[256];
        int weighed = settings_weight(items->item[i], &n, &weight);
        const char *from = items->item[i] + n;
        while (from > items->item[i] && from[-1] != '/')
            from--;
        snprintf(name, sizeof name, "%.*s", (int)(items->item[i] + n - from), from);
        json_array_append_new(all, weighed ? json_pack("{s:s, s:f}", "name", name, "weight", weight)
                                           : json_pack("{s:s}", "name", name));
    }
    return all;
}

static json_t *describe_data(const struct run *r)
{
    const struct settings *s = r->s;
    const struct corpus_report *d = corpus_get_report(r->inputs.corpus);
    const char *slash = strrchr(r->inputs.tokenizer, '/'), *tokenizer = slash ? slash + 1 : r->inputs.tokenizer;
    int64_t documents = 0, tokens = 0, kept = 0, targets = 0; /* without those of --eval-data, which the report counts, too */
    for (int i = 0; i < corpus_sources(r->inputs.corpus); i++) {
        const struct corpus_source source = corpus_get_source(r->inputs.corpus, i);
        documents += stream_documents(source.documents);
        tokens += stream_tokens(source.documents);
        kept += source.packed->tokens_kept;
        targets += source.packed->targets;
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:f}", "sources", name_items(&s->data), "documents",
                     (json_int_t)documents, "tokens", (json_int_t)tokens, "kept", (json_int_t)kept, "supervised",
                     (json_int_t)targets, "training_sequences", (json_int_t)d->train_sequences, "held_out_sequences",
                     (json_int_t)d->eval_sequences, "tokenizer", tokenizer[0] ? tokenizer : "bytes", "held_out",
                     name_items(&s->eval_data), "held_out_fraction", s->eval_fraction);
}

static json_t *describe_settings(const struct run *r)
{
    const struct settings *s = r->s;
    char mesh[MESH_TEXT];
    return json_pack("{s:s, s:b, s:I, s:I, s:f, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:I, s:s, s:i}", "base",
                     model_base_word(r->model->config.base), "base_is_quantised", r->model->config.quantised, "steps",
                     (json_int_t)s->plan.steps, "sequences_per_step", (json_int_t)s->plan.batch, "learning_rate", s->lr,
                     "schedule", settings_schedules[s->schedule], "warmup", (json_int_t)s->warmup, "weight_decay",
                     s->weight_decay, "beta1", s->beta1, "beta2", s->beta2, "eps", s->eps, "clip", s->clip, "dtype",
                     dtype_name(s->plan.dtype), "optim_dtype", dtype_name(s->plan.optim_dtype), "seed",
                     (json_int_t)(s->seed & INT64_MAX), "mesh", mesh_format(&s->plan.mesh, mesh), "zero", s->plan.zero);
}

static json_t *describe_lengths(const struct settings *s)
{
    json_t *all = json_array();
    for (int i = 0; i < curriculum_stretches(s); i++)
        json_array_append_new(all, json_integer(curriculum_length(s, i)));
    return all;
}

/* Returns the commands of former starts and of this one. */
static json_t *add_command(const struct run *r, json_t *former)
{
    json_t *all = json_is_array(former) ? json_incref(former) : json_array();
    const char *last = json_string_value(json_array_get(all, json_array_size(all) - 1));
    if (!last || strcmp(last, r->hooks->command) != 0)
        json_array_append_new(all, json_string(r->hooks->command));
    return all;
}

static enum status card_path(const char *run, char path[RUN_PATH])
{
    return snprintf(path, RUN_PATH, "%s/card.json", run) < RUN_PATH
               ? OK
               : status_fail(ERR_INVALID, "%.64s...: the path is too long", run);
}

/* Loads RUN/card.json; NULL: it is absent or damaged. */
static json_t *load_card(const char *run)
{
    char path[RUN_PATH];
    FILE *f = card_path(run, path) == OK ? sys_read_text(path) : NULL;
    json_t *card = f ? json_loadf(f, 0, NULL) : NULL;
    if (f)
        fclose(f);
    if (card && !json_is_object(card)) {
        json_decref(card);
        card = NULL;
    }
    return card;
}

/* ---- other settings of earlier steps ---- */

/* Returns the settings that decide how steps train, from a card (card.json) or from an entry of its "earlier". */
static json_t *decisive(const json_t *card)
{
    static const char *const no_matter[] = {"mesh", "zero", "base_is_quantised"};
    json_t *all = json_copy(json_object_get(card, "settings"));
    const char *schedule = json_string_value(json_object_get(all, "schedule"));
    for (size_t i = 0; i < sizeof no_matter / sizeof *no_matter; i++)
        json_object_del(all, no_matter[i]);
    if (schedule && strcmp(schedule, "constant") == 0)
        json_object_del(all, "steps");
    return json_pack("{s:o, s:O?, s:O?}", "settings", all, "sequence_lengths", json_object_get(card, "sequence_lengths"), "lora",
                     json_object_get(card, "lora"));
}

/* Lists, for a run that goes on from `step`, the settings before each change and the step until which they held. Changes at later
 * steps, which are trained again, do not count. */
static json_t *describe_earlier(const json_t *former, const json_t *card, int64_t step)
{
    json_t *all = json_array();
    const json_t *last = former, *were = json_object_get(former, "earlier");
    for (size_t i = 0; i < json_array_size(were) && last == former; i++) {
        json_t *e = json_array_get(were, i);
        if (json_integer_value(json_object_get(e, "until")) < step)
            json_array_append(all, e);
        else
            last = e;
    }
    json_t *was = step > 0 ? decisive(last) : NULL, *is = decisive(card);
    if (was && !json_equal(was, is)) {
        json_object_set_new(was, "until", json_integer(step));
        json_array_append(all, was);
    }
    json_decref(was);
    json_decref(is);
    return all;
}

static json_t *describe(const struct run *r, const json_t *former)
{
    const struct settings *s = r->s;
    const int preset = model_is_preset(s->model);
    char *lora = s->plan.lora.rank > 0 ? lora_text(&s->plan.lora) : NULL, rope[400] = "";
    json_t *card = json_object();
    if (!model_learns_positions(&r->model->config))
        model_describe_rope(r->model, s->plan.seq_len, rope, sizeof rope);
    json_object_set_new(card, "ltrain", json_string(r->hooks->version));
    json_object_set_new(card, "name", base_name(s->out));
    json_object_set_new(card, "commands", add_command(r, json_object_get(former, "commands")));
    json_object_set_new(card, "preset", json_boolean(preset));
    json_object_set_new(card, "base",
                        preset ? json_pack("{s:s}", "name", s->model) : base_card_read(s->model, r->model->config.name));
    json_object_set_new(card, "lora", lora ? json_string(lora) : json_null());
    json_object_set_new(card, "rope", s->rope ? json_string(s->rope) : json_null());
    json_object_set_new(card, "rope_base", s->rope_base > 0 ? json_real(s->rope_base) : json_null());
    json_object_set_new(card, "positions", json_string(rope));
    json_object_set_new(card, "parameters", json_integer(r->model->total_params));
    json_object_set_new(card, "trained_parameters", json_integer(r->model->trained_params));
    json_object_set_new(card, "sequence_lengths", describe_lengths(s));
    if (r->inputs.corpus)
        json_object_set_new(card, "data", describe_data(r));
    json_object_set_new(card, "settings", describe_settings(r));
    json_object_set_new(card, "earlier", describe_earlier(former, card, r->progress.at.step));
    free(lora);
    return card;
}

enum status facts_begin(const struct run *r)
{
    char path[RUN_PATH], partial[RUN_PATH + 16];
    TRY(card_path(r->s->out, path));
    snprintf(partial, sizeof partial, "%s.partial", path);
    json_t *former = r->s->resume ? load_card(r->s->out) : NULL, *card = describe(r, former);
    FILE *f = sys_write_text(partial);
    int failed = !f || json_dumpf(card, f, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0 || fputc('\n', f) == EOF ||
                 fflush(f) != 0 || sys_fsync(fileno(f)) != 0;
    int reason = errno;
    if (f && fclose(f) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    json_decref(card);
    json_decref(former);
    if (failed || sys_rename(partial, path) != 0)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(failed ? reason : errno));
    return OK;
}

/* ---- facts from metrics.jsonl ---- */

struct progress {
    int64_t tokens, targets, steps;
    double first_loss, last_loss;
    json_t *evaluations; /* first and last evaluation */
};

static double number(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

static void add_line(struct progress *p, const json_t *line)
{
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    const double loss = number(line, "loss"), held_out = number(line, "eval_loss");
    if (step > 0) {
        p->tokens += json_integer_value(json_object_get(line, "tokens"));
        p->targets += json_integer_value(json_object_get(line, "target_tokens"));
        p->steps++;
        p->last_loss = isfinite(loss) ? loss : p->last_loss;
        p->first_loss = isfinite(p->first_loss) ? p->first_loss : p->last_loss;
    }
    if (!isfinite(held_out))
        return;
    if (json_array_size(p->evaluations) > 1)
        json_array_remove(p->evaluations, 1);
    json_array_append_new(p->evaluations, json_pack("{s:I, s:f, s:I}", "step", (json_int_t)step, "loss", held_out, "tokens",
                                                    json_integer_value(json_object_get(line, "eval_tokens"))));
}

/* Reads metrics.jsonl up to `step`. Broken lines and an unreadable file are left out: the card then has less. */
static void read_progress(const char *run, int64_t step, struct progress *out)
{
    char path[RUN_PATH], *line = NULL;
    size_t room = 0;
    FILE *f = snprintf(path, sizeof path, "%s/metrics.jsonl", run) < (int)sizeof path ? sys_read_text(path) : NULL;
    *out = (struct progress){.first_loss = NAN, .last_loss = NAN, .evaluations = json_array()};
    while (f && getline(&line, &room, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        if (json_is_object(o) && json_integer_value(json_object_get(o, "step")) <= step)
            add_line(out, o);
        json_decref(o);
    }
    free(line);
    if (f)
        fclose(f);
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

enum status facts_of_run(const char *run, int64_t step, json_t **out)
{
    struct progress p;
    json_t *facts = load_card(run);
    if (!facts)
        facts = json_object();
    read_progress(run, step, &p);
    json_object_set_new(facts, "step", json_integer(step));
    json_object_set_new(facts, "trained_tokens", json_integer(p.tokens));
    json_object_set_new(facts, "trained_targets", json_integer(p.targets));
    json_object_set_new(facts, "first_loss", real(p.first_loss));
    json_object_set_new(facts, "last_loss", real(p.last_loss));
    if (json_object_set_new(facts, "evaluations", p.evaluations) != 0) {
        json_decref(facts);
        return status_fail(ERR_NOMEM, "out of memory for the model card");
    }
    *out = facts;
    return OK;
}

enum status facts_of_export(const char *dir, json_t **out)
{
    char path[RUN_PATH];
    json_error_t error;
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/" FACTS_FILE, dir) >= (int)sizeof path)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    FILE *f = sys_read_text(path);
    if (!f)
        return sys_is_absent(errno) ? OK : status_fail(ERR_INVALID, "cannot read %s: %s", path, sys_strerror(errno));
    json_t *root = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    if (json_is_object(root)) {
        *out = root;
        return OK;
    }
    json_decref(root);
    return status_fail(ERR_INVALID, "%s: line %d: %s: remove it, and what it says is unknown", path, error.line,
                       root ? "no object" : error.text);
}

int64_t facts_step(const json_t *facts)
{
    const json_t *step = json_object_get(facts, "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

/* ---- texts of an export ---- */

static char *print_card(const json_t *facts, enum card_form form)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f)
        card_print(facts, form, f);
    if (f && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

enum status facts_write(const json_t *facts, enum card_form form, struct facts_texts *out)
{
    *out = (struct facts_texts){.facts = json_dumps(facts, JSON_INDENT(2) | JSON_REAL_PRECISION(15)),
                                .card = print_card(facts, form)};
    if (out->facts && out->card)
        return OK;
    facts_texts_free(out);
    return status_fail(ERR_NOMEM, "out of memory for the model card");
}

void facts_texts_free(struct facts_texts *x)
{
    free(x->facts);
    free(x->card);
    *x = (struct facts_texts){NULL, NULL};
}
