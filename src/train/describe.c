/* Texts that a checkpoint holds beside the state: how the data are cut into sequences, and the numerics key of all that may
 * change a bit. Also adds to a failure's message the sequence length that failed. */
#include "train/run.h"

#include "base/isa.h"
#include "base/mix.h"
#include "base/sys.h"
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum status run_describe_data(struct run *r)
{
    size_t size;
    FILE *f = open_memstream(&r->inputs.texts.data, &size);
    enum status st = f ? OK : status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    if (st == OK && r->inputs.corpus)
        st = corpus_write_contents(r->inputs.corpus, f);
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    return st;
}

/* Computes a number from the properties of all ranks' devices that decide results. */
static enum status identify_devices(const struct run *r, uint64_t *out)
{
    struct backend *b = r->session->backend;
    uint64_t own = 0, *all = sys_calloc((size_t)comm_size(r->comm), sizeof *all);
    enum status st = all ? OK : status_fail(ERR_NOMEM, "out of memory");
    if (st == OK && b->digest)
        st = backend_status(b, b->digest(b, &own));
    st = comm_agree(r->comm, st);
    if (st == OK)
        st = comm_gather(r->comm, &own, sizeof own, all);
    *out = own;
    for (int k = 1; k < comm_size(r->comm) && st == OK; k++)
        if (all[k] != all[0])
            *out = mix(*out, all[k]);
    free(all);
    return st;
}

enum status run_describe_numerics(const struct run *r, char *key, size_t size)
{
    const struct settings *s = r->s;
    const struct numerics_key *numerics = &r->session->plan->strategy.key;
    const struct target *t = s->plan.target;
    char mesh[MESH_TEXT], stages[MESH_STAGES_TEXT];
    uint64_t devices;
    int n = snprintf(key, size, "rows=%lld,heads=%d,loss=%lld,group=%lld dtype=%s optim-dtype=%s threads=%d simd=%s%s",
                     (long long)numerics->row_chunk, numerics->head_tile, (long long)numerics->loss_tile,
                     (long long)numerics->group, dtype_name(numerics->dtype), dtype_name(numerics->moments), s->plan.threads,
                     isa_name(isa_of_processor()), numerics->dtype == BF16 && isa_has_amx() ? "+amx" : "");
    if (numerics->packed > 1)
        n += snprintf(key + n, size - (size_t)n, " micro-batch=%lld", (long long)numerics->packed);
    if (comm_size(r->comm) > 1)
        n += snprintf(key + n, size - (size_t)n, " %s zero=%d grad-dtype=%s", mesh_format(&numerics->mesh, mesh), numerics->zero,
                      dtype_name(numerics->wire));
    if (numerics->stages.n > 0)
        n += snprintf(key + n, size - (size_t)n, " stage-layers=%s", mesh_stages_format(&numerics->stages, stages));
    /* gradients of the embedding and the tied head meet in another order */
    if (r->session->plan->strategy.ahead && r->model->config.tied)
        n += snprintf(key + n, size - (size_t)n, " stage-ahead");
    if (s->plan.device != DEVICE_CUDA)
        return OK;
    TRY(identify_devices(r, &devices));
    snprintf(key + n, size - (size_t)n, " cuda=%d.%d,%d,%016llx%s", t->capability / 10, t->capability % 10, t->processors,
             (unsigned long long)devices, t->fast ? ",fast" : "");
    return OK;
}

enum status train_say_length(const struct settings *s, int64_t seq_len, enum status st)
{
    char cause[1024], tokens[32];
    if (st == OK || s->curriculum.n == 0)
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(st, "sequences of %s tokens (--seq-len): %s", units_format_count(seq_len, tokens), cause);
}

const char *run_data_list(const char *run, char path[RUN_PATH])
{
    return snprintf(path, RUN_PATH, "%s/data.txt", run) < RUN_PATH ? path : NULL;
}

enum status run_write_data_list(const struct run *r)
{
    char path[RUN_PATH];
    FILE *f = run_data_list(r->s->out, path) ? sys_write_text(path) : NULL;
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(errno));
    int failed = fputs(r->inputs.texts.data, f) == EOF || fflush(f) != 0;
    int reason = errno;
    if (fclose(f) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    return failed ? status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(reason)) : OK;
}
