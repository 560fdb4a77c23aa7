/* The first state of a run, or the one that it goes on from; comparing a checkpoint's data and settings with the present ones. */
#include "train/run.h"

#include "base/sys.h"
#include "base/tell.h"
#include "data/fingerprint.h"
#include "settings/curriculum.h"
#include "settings/keys.h"
#include "settings/read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT 1024

/* ---- the data ---- */

#define ANEW "the order of all sequences changes, and some that were trained come again before others have been trained at all"

/* Describes the consequences of changed data. Sequences are taken by number, in an order that depends on their count. */
static const char *what_follows(const struct run *r, const char *before, const struct fingerprint_difference *d)
{
    struct corpus_layout now, was;
    int alike = !d->reordered && !d->resized && corpus_read_layout(before, &was) &&
                corpus_read_layout(r->inputs.texts.data, &now) && now.seq_len == was.seq_len &&
                now.train_sequences == was.train_sequences && now.trained_below == was.trained_below &&
                strcmp(now.packing, was.packing) == 0;
    return alike ? "sequences keep their order, and those to come are of the data as they are now" : ANEW;
}

static enum status compare_with_checkpoint(const struct run *r, const char *before, const char *key)
{
    struct fingerprint_difference d;
    char what[TEXT];
    int differ = fingerprint_lists_differ(r->inputs.texts.data, before, key, &d);
    /* files given in only one of the two runs: the comparison of settings reports that */
    if (!differ || d.files[0] == 0 || d.files[1] == 0)
        return OK;
    fingerprint_describe(&d, what, sizeof what);
    const char *follows = strcmp(key, "data") == 0 ? what_follows(r, before, &d) : "losses of evaluations are not comparable";
    if (r->s->data_changed == DATA_CHANGED_STOP)
        return status_fail(
            ERR_INVALID,
            "--%s: not what the checkpoint was trained with: %s. --data-changed continue goes on all the same: %s; "
            "or give the former files by --%s",
            key, what, follows, key);
    tell("resume: --%s differs (%s): %s\n", key, what, follows);
    return OK;
}

/* Compares the tokenizer, or the reading of texts as bytes, with the checkpoint's. */
static enum status compare_tokenizers(const struct run *r, const char *before)
{
    struct fingerprint_difference d;
    if (!fingerprint_lists_differ(r->inputs.texts.data, before, "tokenizer", &d))
        return OK;
    const char *
        was =
           d.files[1]
               ? "by another tokenizer (or --text-column, --append-eos, --chat-template, --template-var, --chat-turns, --train-on)"
               : "as bytes",
       *now = d.files[0] ? r->inputs.tokenizer : "bytes";
    if (r->s->data_changed == DATA_CHANGED_STOP)
        return status_fail(ERR_INVALID,
                           "--tokenizer: the checkpoint's run read its data %s, and this one takes %s: give the former "
                           "options, or go on all the same by --data-changed continue",
                           was, now);
    tell("resume: the data were read %s, and are by %s now: " ANEW "\n", was, now);
    return OK;
}

/* Compares the type of ids in files without a header. */
static enum status compare_token_types(const struct run *r, const char *before)
{
    struct corpus_layout now, was;
    if (!corpus_read_layout(before, &was) || !corpus_read_layout(r->inputs.texts.data, &now) ||
        now.bare_bytes == was.bare_bytes || !now.bare_bytes || !was.bare_bytes)
        return OK;
    if (r->s->data_changed == DATA_CHANGED_STOP)
        return status_fail(
            ERR_INVALID,
            "--token-type: the checkpoint's run read ids of %d bytes from files without a header, and this one takes ids of %d, which "
            "are others: give --token-type u%d, or go on all the same by --data-changed continue",
            was.bare_bytes, now.bare_bytes, 8 * was.bare_bytes);
    tell("resume: ids in files without a header have %d bytes and had %d: " ANEW "\n", now.bare_bytes, was.bare_bytes);
    return OK;
}

/* Returns the first held-out token of a corpus without evaluation files; INT64_MAX if nothing is held out. */
static long long held_out_from(const struct corpus_layout *l)
{
    return l->eval_sequences > 0 ? l->trained_below : INT64_MAX;
}

static void say_layout(const struct run *r, const char *before)
{
    struct corpus_layout now, was;
    if (!corpus_read_layout(before, &was) || !corpus_read_layout(r->inputs.texts.data, &now))
        return;
    if (now.seq_len != was.seq_len)
        tell("resume: sequences have %lld tokens and had %lld, so the data are cut anew: " ANEW "\n", now.seq_len, was.seq_len);
    else if (strcmp(now.packing, was.packing) != 0)
        tell("resume: %s; it was %s: " ANEW "\n", now.packing, was.packing);
    if (strstr(before, "\neval-data ") || strstr(r->inputs.texts.data, "\neval-data "))
        return;
    long long first = held_out_from(&now), former = held_out_from(&was);
    if (first == former || (now.seq_len != was.seq_len && llabs(first - former) < now.seq_len + was.seq_len))
        return;
    tell("resume: %lld of %lld sequences are held out for evaluation, %lld of %lld were: %s", now.eval_sequences,
         now.train_sequences + now.eval_sequences, was.eval_sequences, was.train_sequences + was.eval_sequences,
         first < former ? "some that are held out now were trained before" : "some that were held out are trained now");
    tell(now.seq_len == was.seq_len ? "; " ANEW "\n" : "\n");
}

/* ---- settings ---- */

/* Refuses another scale of adapters, or rows of other tokens: a checkpoint holds numbers only, which would make another model. */
static enum status compare_adapters(const struct run *r, const struct settings *before)
{
    const struct lora *now = &r->s->plan.lora, *was = &before->plan.lora;
    const int alike = (now->rank > 0) == (was->rank > 0) && now->alpha == was->alpha &&
                      now->rank_stabilised == was->rank_stabilised && strcmp(now->alphas, was->alphas) == 0 &&
                      lora_same_tokens(now->tokens, was->tokens);
    if (alike)
        return OK;
    if (was->rank == 0)
        return status_fail(
            ERR_INVALID,
            "--lora: the checkpoint is of a run that trains the model whole: leave out --lora; --model %s --lora ... begins "
            "a run with adapters beside what it has trained",
            r->s->resume);
    char *said = lora_text(now), *found = lora_text(was);
    enum status st =
        said && found ? status_fail(ERR_INVALID,
                                    "--lora %s: the checkpoint's adapters are %s: leave out --lora, or change its dropout only",
                                    said, found)
                      : status_fail(ERR_NOMEM, "out of memory");
    free(said);
    free(found);
    return st;
}

static enum status say_settings(const struct run *r, const struct settings *before)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory: what differs in the settings");
    enum status st = settings_write_changes(r->s, before, f);
    if (fclose(f) == 0 && st == OK && size > 0)
        tell("resume: settings differ from the checkpoint's: %s\n", text);
    free(text);
    return st;
}

static void say_schedule(const struct run *r, const struct settings *before)
{
    const struct settings *now = r->s;
    int64_t step = r->progress.at.step;
    if (step == 0 || step >= now->plan.steps || run_learning_rate(now, step) == run_learning_rate(before, step))
        return;
    tell("resume: the learning rate goes from %.3g in step %lld (%s over %lld steps) to %.3g in step %lld (%s over %lld steps)\n",
         run_learning_rate(before, step - 1), (long long)step, settings_schedules[before->schedule],
         (long long)before->plan.steps, run_learning_rate(now, step), (long long)step + 1, settings_schedules[now->schedule],
         (long long)now->plan.steps);
}

/* Compares settings and data with the checkpoint's (rank 0 only; the other ranks have the same). */
static enum status compare(const struct run *r, const char *path)
{
    struct checkpoint_texts was;
    struct settings before;
    int purged;
    TRY(settings_run_is_purged(r->s->resume, &purged));
    if (purged)
        tell("resume: %s/config.yaml is gone or empty: the settings are those of the checkpoint, and of the command line\n",
             r->s->resume);
    TRY(checkpoint_read_texts(path, &was));
    enum status st = compare_tokenizers(r, was.data);
    if (st == OK)
        st = compare_token_types(r, was.data);
    if (st == OK)
        st = compare_with_checkpoint(r, was.data, "data");
    if (st == OK)
        st = compare_with_checkpoint(r, was.data, "eval-data");
    if (st == OK)
        say_layout(r, was.data);
    if (st == OK && was.settings[0]) {
        st = settings_read_text(path, was.settings, &before);
        if (st == OK) {
            st = compare_adapters(r, &before);
            if (st == OK)
                say_schedule(r, &before);
            if (st == OK)
                st = say_settings(r, &before);
            settings_free(&before);
        }
    }
    free(was.settings);
    free(was.data);
    return st;
}

static enum status resume(struct run *r)
{
    const struct settings *s = r->s;
    struct comm *c = r->session->comm;
    char path[4096], note[512], numerics[sizeof r->progress.at.numerics];
    if (r->from)
        TRY(checkpoint_look(c, r->from, &r->progress.at));
    else
        TRY(checkpoint_find(c, s->resume, path, sizeof path, &r->progress.at, note, sizeof note));
    if (r->from)
        snprintf(path, sizeof path, "%s", r->from);
    else if (note[0])
        tell("resume: %s\n", note);
    TRY(run_use_stretch(r, curriculum_at(s, max_i64(0, r->progress.at.step -
                                                           1)))); /* the checkpoint was saved with the length of its last step */
    TRY(run_describe_numerics(r, numerics, sizeof numerics));
    TRY(comm_agree(c, comm_rank(c) == 0 ? compare(r, path) : OK));
    TRY(run_use_stretch(r, curriculum_at(s, r->progress.at.step)));
    TRY(checkpoint_load(r->session, path));
    tell("resume: step %lld from %s\n", (long long)r->progress.at.step, path);
    if (r->progress.at.step >= s->plan.steps)
        tell("resume: all %lld steps are done: --steps N goes on to step N\n", (long long)s->plan.steps);
    run_note_saved(r, r->progress.at.step);
    if (strcmp(numerics, r->progress.at.numerics) != 0)
        tell("resume: the numerics key differs (%s; was %s): equal up to rounding, not bit for bit\n", numerics,
             r->progress.at.numerics);
    if (r->progress.at.seed != s->seed)
        tell("resume: the seed differs (%llu; was %llu): " ANEW "\n", (unsigned long long)s->seed,
             (unsigned long long)r->progress.at.seed);
    return OK;
}

enum status run_compare_data(const struct run *r, const char *of)
{
    static const char *const kinds[] = {"data", "eval-data"};
    struct fingerprint_difference d;
    char path[RUN_PATH], what[TEXT], *was = NULL;
    size_t size = 0;
    FILE *f = run_data_list(of, path) ? sys_read_text(path) : NULL;
    ssize_t n = f ? getdelim(&was, &size, 0, f) : -1;
    int differ = 0;
    for (int k = 0; k < 2 && n >= 0 && !differ; k++)
        differ = fingerprint_lists_differ(r->inputs.texts.data, was, kinds[k], &d);
    if (differ)
        fingerprint_describe(&d, what, sizeof what);
    if (f)
        fclose(f);
    free(was);
    return differ ? status_fail(ERR_INVALID, "the data are not those that %s was trained on: %s: give the former files by --data",
                                of, what)
                  : OK;
}

/* ---- the first state ---- */

static enum status check_there(const char *base)
{
    struct stat at;
    return sys_stat(base, &at) == 0 || !sys_is_absent(errno)
               ? OK
               : status_fail(
                     ERR_INVALID,
                     "--resume: %s is not there, the model that the run's adapters are of: give the model's directory by --model",
                     base);
}

/* Finds the weights of a model with adapters and hashes them. */
static enum status find_base(struct run *r)
{
    const struct settings *s = r->s;
    const char *path = model_is_preset(s->model) ? NULL : s->model;
    if (r->model->adapter_params == 0)
        return OK;
    if (s->resume && path)
        TRY(comm_agree(r->comm, check_there(path)));
    session_set_base(r->session, path, s->seed);
    if (path) {
        run_begin_reading(r);
        enum status st = checkpoint_hash_base(r->comm, path, &r->session->base_xxh3);
        run_end_reading();
        TRY(st);
    }
    return path && s->adapter && !s->resume ? checkpoint_check_base(s->adapter, path, r->session->base_xxh3) : OK;
}

enum status run_load_state(struct run *r)
{
    struct settings *s = r->s;
    TRY(find_base(r));
    if (s->resume) {
        TRY(resume(r));
    } else {
        TRY(session_load_adapted(r->session, model_is_preset(s->model) ? NULL : s->model, s->adapter, s->seed));
    }
    r->progress.at.seed = s->seed;
    return run_describe_numerics(r, r->progress.at.numerics, sizeof r->progress.at.numerics);
}
