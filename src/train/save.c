/* Handling saves that fail: on the way they are tried again, at a run's end elsewhere. */
#include "train/facts.h"
#include "train/run.h"

#include "base/directory.h"
#include "base/sys.h"
#include "base/tell.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tells whether a failure may pass: disks fill up, and files go, and come back; a fault of the run itself stays. */
static int may_pass(const struct run *r, enum status st)
{
    return (st == ERR_IO || st == ERR_NOMEM || st == ERR_NOFIT || st == ERR_CORRUPT) && !comm_broken(r->comm);
}

static int64_t next_save(const struct settings *s, int64_t step)
{
    return min_i64((step / s->save_every + 1) * s->save_every, s->plan.steps);
}

/* ---- elsewhere ---- */

/* Finds the i-th directory to save in if the run's own directory fails, the most lasting ones first. Returns 0 if there is none. */
static int place_elsewhere(const struct settings *s, int i, char path[RUN_PATH])
{
    char cwd[RUN_PATH];
    const char *tmp = getenv("TMPDIR"), *place = NULL;
    if (i > s->nvme_path.n + 1)
        return 0;
    if (i == 0)
        place = getcwd(cwd, sizeof cwd);
    else if (i <= s->nvme_path.n)
        place = s->nvme_path.item[i - 1];
    else
        place = tmp && tmp[0] ? tmp : "/tmp";
    char *whole = place ? sys_realpath(place) : NULL;
    snprintf(path, RUN_PATH, "%s", whole ? whole : "");
    free(whole);
    return 1;
}

/* Returns the last name of the run's directory. */
static const char *run_name(const char *out, char name[256])
{
    size_t end = strlen(out);
    while (end > 1 && out[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && out[begin - 1] != '/')
        begin--;
    snprintf(name, 256, "%.*s", (int)(end - begin), out + begin);
    return name;
}

static void remove_elsewhere(const char *path)
{
    static const char *const names[] = {"checkpoints", "config.yaml.partial", "config.yaml"};
    char at[RUN_PATH + 32];
    for (int i = 0; i < 3; i++) {
        snprintf(at, sizeof at, "%s/%s", path, names[i]);
        if (sys_rmdir(at) != 0)
            sys_unlink(at);
    }
    sys_rmdir(path);
}

/* Tells whether a place is the run's directory or inside it. */
static int is_inside(const char *place, const char *out)
{
    char *whole = sys_realpath(out);
    size_t n = whole ? strlen(whole) : 0;
    int inside = !whole ? !sys_is_absent(errno) : strncmp(place, whole, n) == 0 && (place[n] == 0 || place[n] == '/');
    free(whole);
    return inside;
}

/* Makes a new directory that a run can be resumed from; path: "" if there is no i-th place, or on failure. */
static enum status make_elsewhere(struct run *r, int i, char path[RUN_PATH])
{
    char place[RUN_PATH], name[256], wanted[RUN_PATH], made[RUN_PATH];
    path[0] = 0;
    if (!place_elsewhere(r->s, i, place))
        return OK;
    if (!place[0] || snprintf(wanted, sizeof wanted, "%s/%s-saved", place, run_name(r->s->out, name)) >= (int)sizeof wanted)
        return status_fail(ERR_IO, "the directory has no name that will do");
    if (r->place.taken_over && is_inside(place, r->s->out))
        return status_fail(ERR_IO, "%s is another run's", place);
    TRY(run_make_distinct(wanted, made));
    enum status st = run_write_config(r, made);
    if (st == OK)
        strcpy(path, made);
    else
        remove_elsewhere(made);
    return st;
}

/* Copies the files that exports need; exports without them have less. */
static void take_original(const struct run *r, const char *path)
{
    char from[RUN_PATH], to[RUN_PATH + 16];
    snprintf(to, sizeof to, "%s/original", path);
    if (run_original(r->s, from) && checkpoint_keep_texts(from, NULL, to) != OK)
        tell("the model's config.json and tokenizer were not copied to %s: %s\n", to, status_message());
}

enum status run_export(struct run *r, const char *path)
{
    char original[RUN_PATH];
    struct facts_texts own = {NULL, NULL};
    json_t *facts = NULL;
    enum status st = OK;
    if (comm_rank(r->comm) == 0)
        st = facts_of_run(r->s->out, r->progress.at.step, &facts);
    if (st == OK && facts)
        st = facts_write(facts, r->model->adapter_params > 0 ? CARD_ADAPTER : CARD_MODEL, &own);
    st = comm_agree(r->comm, st);
    struct export_texts texts = {.like = run_original(r->s, original), .facts = own.facts, .card = own.card};
    if (st == OK)
        st = checkpoint_export(r->session, path, &texts, EXPORT_FILE_BYTES);
    facts_texts_free(&own);
    json_decref(facts);
    return st;
}

/* Saves the model alone if no checkpoint finds room: a model takes a third of a checkpoint's bytes. cause: the reason for no
 * checkpoint. Never returns OK. */
static enum status save_model_only(struct run *r, enum status st, const char *cause)
{
    char path[RUN_PATH], left[512], model[512] = "";
    int fits = snprintf(path, sizeof path, "%s/hf", r->s->out) < RUN_PATH;
    enum status made = r->place.taken_over || !fits ? ERR_IO : run_check_place(r);
    if (made == OK)
        made = run_export(r, path);
    if (comm_broken(r->comm))
        return ERR_PEER;
    if (made == OK)
        snprintf(model, sizeof model,
                 "; its model alone is in %.200s: --model %.200s begins there, without the optimizer's moments", path, path);
    run_describe_left(r, left, sizeof left);
    return comm_agree(r->comm, status_fail(st,
                                           "%s; nor could step %lld be saved in the working directory, on an nvme path or in "
                                           "$TMPDIR%s; %s",
                                           cause, (long long)r->progress.at.step, model, left));
}

/* Saves a checkpoint elsewhere. cause: the failure in the run's directory. Never returns OK, since the run's own directory lacks
 * the checkpoint. */
static enum status save_elsewhere(struct run *r, enum status st)
{
    char cause[1024], path[RUN_PATH];
    int leads = comm_rank(r->comm) == 0;
    snprintf(cause, sizeof cause, "%s", status_message());
    r->place.told = 1;
    for (int i = 0;; i++) {
        enum status made = comm_agree(r->comm, leads ? make_elsewhere(r, i, path) : OK);
        TRY(comm_broadcast(r->comm, 0, path, sizeof path));
        if (made == OK && !path[0])
            break;
        if (made == OK)
            made = checkpoint_save(r->session, path, &r->progress.at, &r->inputs.texts, 1);
        if (comm_broken(r->comm))
            return made;
        if (made == OK && leads)
            take_original(r, path);
        if (made == OK)
            return comm_agree(r->comm, status_fail(st, "%s; step %lld was saved in %s instead: ltrain --resume %s goes on there",
                                                   cause, (long long)r->progress.at.step, path, path));
        if (leads && path[0])
            remove_elsewhere(path);
    }
    return save_model_only(r, st, cause);
}

/* ---- in the run's directory ---- */

enum status run_save_failed(struct run *r, enum status st, enum save_when when)
{
    char cause[1024], left[512];
    if (!may_pass(r, st))
        return st;
    if (when != SAVE_ON_THE_WAY || r->place.taken_over || r->s->on_save_failure == SAVE_FAILURE_STOP)
        return save_elsewhere(r, st);
    snprintf(cause, sizeof cause, "%s", status_message());
    run_describe_left(r, left, sizeof left);
    tell("step %lld not saved: %s; training goes on, and the next save is that of step %lld; %s\n",
         (long long)r->progress.at.step, cause, (long long)next_save(r->s, r->progress.at.step), left);
    fflush(tell_stream());
    return OK;
}

enum status run_export_failed(struct run *r, enum status st)
{
    char cause[1024];
    if (!may_pass(r, st))
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    if (r->place.saved != r->progress.at.step && !r->place.taken_over) { /* a checkpoint has all that the model has */
        enum status saved = run_check_place(r);
        if (saved == OK)
            saved = checkpoint_save(r->session, r->s->out, &r->progress.at, &r->inputs.texts, (int)max_i64(1, r->s->keep));
        if (saved == OK)
            run_note_saved(r, r->progress.at.step);
    }
    if (comm_broken(r->comm))
        return ERR_PEER;
    if (r->place.saved != r->progress.at.step || r->place.taken_over) {
        status_fail(st, "%s", cause);
        return save_elsewhere(r, st);
    }
    r->place.told = 1;
    return comm_agree(r->comm,
                      status_fail(st, "the model was not exported: %s; its step %lld is saved: ltrain --resume %s exports it",
                                  cause, (long long)r->progress.at.step, r->s->out));
}
