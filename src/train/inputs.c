/* Checking that all ranks read the same: the model's configuration and weights, and the data, file by file. */
#include "train/run.h"

#include "base/mix.h"
#include "base/progress.h"
#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "data/fingerprint.h"
#include "data/safetensors.h"
#include "engine/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sends rank 0's text to every rank; the caller frees *first. */
static enum status share_text(struct comm *c, const char *own, char **first)
{
    int64_t bytes = (int64_t)strlen(own) + 1;
    TRY(comm_broadcast(c, 0, &bytes, sizeof bytes));
    *first = sys_malloc((size_t)bytes);
    TRY(comm_agree(c, *first ? OK : status_fail(ERR_NOMEM, "out of memory: the list of the data's files")));
    if (comm_rank(c) == 0)
        memcpy(*first, own, (size_t)bytes);
    return comm_broadcast(c, 0, *first, bytes);
}

static enum status compare_with_first(const char *own, const char *first, const char *key)
{
    struct fingerprint_difference d;
    if (!fingerprint_lists_differ(own, first, key, &d))
        return OK;
    const struct listed_file *here = &d.first[0], *there = &d.first[1];
    if (!here->there || !there->there)
        return status_fail(ERR_INVALID,
                           "--%s: %lld files are found here and %lld on rank 0, %s only %s: all ranks must read the "
                           "same files",
                           key, (long long)d.files[0], (long long)d.files[1], here->there ? here->path : there->path,
                           here->there ? "here" : "there");
    if (strcmp(key, "tokenizer") == 0)
        return status_fail(
            ERR_INVALID,
            "--tokenizer: %s is another one than on rank 0 (%s): it has %lld ids and the checksum %016llx here, %lld and %016llx "
            "there: all ranks must read the same files",
            here->path, there->path, here->bytes, (unsigned long long)here->xxh3, there->bytes, (unsigned long long)there->xxh3);
    return status_fail(ERR_INVALID,
                       "--%s: %s differs from what rank 0 has (%s): %lld bytes with the checksum %016llx here, %lld with %016llx "
                       "there: all ranks must read the same files",
                       key, here->path, there->path, here->bytes, (unsigned long long)here->xxh3, there->bytes,
                       (unsigned long long)there->xxh3);
}

static enum status compare_config(struct comm *c, const struct model_config *own)
{
    struct model_config first = *own;
    char difference[128];
    TRY(comm_broadcast(c, 0, &first, sizeof first));
    int differs = model_config_differs(&first, own, difference, sizeof difference);
    return comm_agree(c, differs
                             ? status_fail(ERR_INVALID,
                                           "--model: config.json is another one on rank 0: %s (here): all ranks must read the "
                                           "same files",
                                           difference)
                             : OK);
}

/* ---- weights ---- */

/* Computes one stamp of all opened files of weights; ranks that see the same files get equal stamps. */
static enum status stamp_weights(struct st_file *f, uint64_t *stamp, int64_t *bytes)
{
    *stamp = 0;
    *bytes = 0;
    for (int i = 0; i < st_files(f); i++) {
        uint64_t one;
        int64_t n;
        TRY(fingerprint_stamp(st_file_path(f, i), &one, &n));
        *stamp = mix(*stamp, one);
        *bytes += n;
    }
    return OK;
}

static enum status list_weights(struct st_file *w, char **text)
{
    size_t size;
    enum status st = OK;
    FILE *f = open_memstream(text, &size);
    for (int i = 0; f && i < st_files(w) && st == OK; i++) {
        struct fingerprint x;
        st = fingerprint_take(st_file_path(w, i), NULL, NULL, &x);
        if (st == OK)
            fingerprint_print(f, "model", &x, st_file_path(w, i));
    }
    if (!f || fclose(f) != 0)
        return status_fail(ERR_NOMEM, "out of memory: the list of the weights' files");
    return st;
}

/* Finds out whether some rank's stamp differs from rank 0's (*others), and whether this rank is the first with its stamp
 * (*first). */
static enum status find_others(struct comm *c, uint64_t stamp, int *others, int *first)
{
    uint64_t *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    TRY(comm_agree(c, all ? OK : status_fail(ERR_NOMEM, "out of memory")));
    enum status st = comm_gather(c, &stamp, sizeof stamp, all);
    *others = 0;
    *first = 1;
    for (int k = 0; k < comm_size(c) && st == OK; k++) {
        *others |= all[k] != all[0];
        *first &= k >= comm_rank(c) || all[k] != stamp;
    }
    free(all);
    return st;
}

/* Reads and compares the weights. Copies on several hosts have other stamps: one rank for each copy reads all of it. */
static enum status read_and_compare(struct comm *c, struct st_file *w, int64_t bytes, int reads)
{
    char *own = NULL, *first = NULL;
    progress_reading(bytes);
    enum status st = reads ? list_weights(w, &own) : OK;
    progress_reading(0);
    st = comm_agree(c, st);
    if (st == OK)
        st = share_text(c, own ? own : "", &first);
    if (st == OK)
        st = comm_agree(c, reads ? compare_with_first(own, first, "model") : OK);
    free(own);
    free(first);
    return st;
}

static enum status compare_weights(struct comm *c, const char *path)
{
    struct st_file *w = NULL;
    uint64_t stamp = 0;
    int64_t bytes = 0;
    int others, reads;
    enum status st = st_open(path, &w);
    if (st == OK)
        st = stamp_weights(w, &stamp, &bytes);
    st = comm_agree(c, st);
    if (st == OK)
        st = find_others(c, stamp, &others, &reads);
    if (st == OK && others)
        st = read_and_compare(c, w, bytes, reads);
    st_close(w);
    return st;
}

/* ---- reading whole files ---- */

const char *run_known_data(const char *run, char path[RUN_PATH])
{
    return snprintf(path, RUN_PATH, "%s/data-read.txt", run) < RUN_PATH ? path : NULL;
}

void run_remember_data(const struct run *r)
{
    char path[RUN_PATH];
    if (r->inputs.corpus && run_known_data(r->s->out, path) && corpus_remember(r->inputs.corpus, path) != OK)
        tell("data: %s: the next start reads them again\n", status_message());
}

void run_begin_reading(const struct run *r)
{
    fflush(tell_stream());
    train_show_progress(r->s, r->comm);
    if (tell_stream() == stdout && comm_rank(r->comm) == 0 && (comm_size(r->comm) > 1 || !isatty(STDERR_FILENO)))
        progress_begin_lines(STDOUT_FILENO, progress_silence_ns(), PROGRESS_LINE_NS);
}

void run_end_reading(void)
{
    progress_end();
}

static void begin_rereading(void *user, const char *path, int64_t bytes)
{
    const struct run *r = user;
    char size[32];
    tell("%sdata: %s was touched while the run goes on: all of it (%s) is read again, to see whether it is the same\n",
         tell_is_terminal() ? "\n" : "", path, units_format_bytes(bytes, size));
    run_begin_reading(r);
}

static void end_rereading(void *user, const char *path, enum status st)
{
    (void)user;
    run_end_reading();
    if (st == OK)
        tell("data: %s is the same: training goes on\n", path);
    fflush(tell_stream());
}

void run_say_rereading(struct run *r, const atomic_int *stop)
{
    r->inputs.rereading = (struct rereading){.begins = begin_rereading, .ended = end_rereading, .stop = stop, .user = r};
    if (r->inputs.corpus)
        corpus_tell(r->inputs.corpus, &r->inputs.rereading);
}

/* ---- all inputs ---- */

enum status run_compare_inputs(struct run *r)
{
    struct comm *c = r->comm;
    char *first = NULL, adapter[4096];
    if (comm_size(c) == 1)
        return OK;
    TRY(compare_config(c, &r->model->config));
    if (!r->s->resume && !model_is_preset(r->s->model))
        TRY(compare_weights(c, r->s->model));
    if (!r->s->resume && r->s->adapter) {
        TRY(source_adapter_path(r->s->adapter, adapter));
        TRY(compare_weights(c, adapter));
    }
    enum status st = share_text(c, r->inputs.texts.data, &first);
    if (st == OK)
        st = compare_with_first(r->inputs.texts.data, first, "tokenizer");
    if (st == OK)
        st = compare_with_first(r->inputs.texts.data, first, "data");
    if (st == OK)
        st = compare_with_first(r->inputs.texts.data, first, "eval-data");
    free(first);
    return comm_agree(c, st);
}
