/* The launchers' environment variables. */
#include "comm/launch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables of one launcher; of up to two names, the first that is set counts. */
struct launcher {
    const char *name;
    const char *rank[2], *size[2], *local_rank[2], *local_size[2];
    const char *only_with; /* counts only if this variable is set, too */
};

static const struct launcher launchers[] = {
    {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, "WORLD_SIZE"},
    {"PALS", {"PALS_RANKID"}, {"PALS_SIZE", "PMI_SIZE"}, {"PALS_LOCAL_RANKID"}, {"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"}, NULL},
    {"PMIx", {"PMIX_RANK"}, {"PMIX_SIZE"}, {NULL}, {NULL}, NULL}, /* the size is rarely set */
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     NULL},
    {"MVAPICH",
     {"MV2_COMM_WORLD_RANK"},
     {"MV2_COMM_WORLD_SIZE"},
     {"MV2_COMM_WORLD_LOCAL_RANK"},
     {"MV2_COMM_WORLD_LOCAL_SIZE"},
     NULL},
    {"MPICH", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, NULL},
};

/* SLURM_PROCID and SLURM_NTASKS are set in batch scripts too; only srun sets the number of tasks of a step. */
static const struct launcher slurm = {"Slurm",           {"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS"},
                                      {"SLURM_LOCALID"}, {NULL},           "SLURM_STEP_ID"};

static enum status read_number(const char *const names[2], const char **name, int *out)
{
    *out = -1;
    for (int i = 0; i < 2 && names[i]; i++) {
        const char *text = getenv(names[i]);
        if (!text || !text[0])
            continue;
        char *end;
        errno = 0;
        long x = strtol(text, &end, 10);
        if (*end || errno || x < 0 || x > INT_MAX)
            return status_fail(ERR_INVALID, "the environment variable %s is '%s', which is not a rank or a number of ranks",
                               names[i], text);
        *name = names[i];
        *out = (int)x;
        return OK;
    }
    return OK;
}

/* Reads one launcher's variables; rank or size is -1 if they do not tell. */
static enum status ask(const struct launcher *l, struct launch *out)
{
    const char *rank = l->rank[0], *size = l->size[0], *local;
    *out = (struct launch){.rank = -1, .size = -1, .local_rank = -1, .local_size = -1};
    snprintf(out->source, sizeof out->source, "%s", l->name);
    if (l->only_with && !getenv(l->only_with))
        return OK;
    TRY(read_number(l->rank, &rank, &out->rank));
    TRY(read_number(l->size, &size, &out->size));
    if (out->rank >= 0 && out->size >= 0 && out->rank >= out->size)
        return status_fail(ERR_INVALID, "%s is %d, but %s is %d: ranks count from 0", rank, out->rank, size, out->size);
    if (out->rank < 0)
        return OK;
    TRY(read_number(l->local_rank, &local, &out->local_rank));
    return read_number(l->local_size, &local, &out->local_size);
}

static int complete(const struct launch *l)
{
    return l->rank >= 0 && l->size > 0;
}

/* Merges the rank and size that `b` found into `a`, whose launcher was asked first. ERR_INVALID: the two differ. */
static enum status reconcile(struct launch *a, const struct launch *b)
{
    if (b->rank < 0)
        return OK;
    if (a->rank < 0) {
        *a = *b;
        return OK;
    }
    if (a->rank != b->rank || (a->size > 0 && b->size > 0 && a->size != b->size)) {
        char of_a[24] = "", of_b[24] = "";
        if (a->size > 0)
            snprintf(of_a, sizeof of_a, " of %d", a->size);
        if (b->size > 0)
            snprintf(of_b, sizeof of_b, " of %d", b->size);
        return status_fail(ERR_INVALID, "%s says that this is rank %d%s, %s says rank %d%s; unset the variables of the wrong one",
                           a->source, a->rank, of_a, b->source, b->rank, of_b);
    }
    if (a->size <= 0 && b->size > 0) { /* PMIx has the rank, another launcher the size */
        char both[sizeof a->source];
        snprintf(both, sizeof both, "%.30s, %.30s", a->source, b->source);
        memcpy(a->source, both, sizeof both);
        a->size = b->size;
    }
    if (a->local_rank < 0)
        a->local_rank = b->local_rank;
    if (a->local_size < 0)
        a->local_size = b->local_size;
    return OK;
}

void launch_alone(struct launch *out)
{
    *out = (struct launch){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .source = "single process"};
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        snprintf(out->host, sizeof out->host, "localhost");
}

enum status launch_detect(const struct launch_flags *flags, struct launch *out)
{
    struct launch found = {.rank = -1, .size = -1, .local_rank = -1, .local_size = -1}, said, alone;
    launch_alone(&alone);
    if (flags && (flags->rank >= 0 || flags->size >= 0)) {
        const int has_rank = flags->rank >= 0;
        if (!has_rank || flags->size < 1)
            return status_fail(ERR_INVALID, "--%s %d is given without --%s: give both, or leave them to a launcher (--ranks N)",
                               has_rank ? "rank" : "world-size", has_rank ? flags->rank : flags->size,
                               has_rank ? "world-size" : "rank");
        if (flags->rank >= flags->size)
            return status_fail(ERR_INVALID, "--rank %d and --world-size %d: ranks are numbered from 0, up to %d here",
                               flags->rank, flags->size, flags->size - 1);
        found = (struct launch){flags->rank, flags->size, flags->local_rank, -1, "--rank", ""};
    }
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        TRY(ask(&launchers[i], &said));
        TRY(reconcile(&found, &said));
    }
    if (!complete(&found)) {
        TRY(ask(&slurm, &said));
        if (complete(&said))
            TRY(reconcile(&found, &said));
    }
    if (!complete(&found)) {
        if (found.rank > 0)
            return status_fail(ERR_INVALID,
                               "%s says that this is rank %d, but not of how many; start with mpiexec, or give --rank and "
                               "--world-size",
                               found.source, found.rank);
        found = alone;
    }
    if (found.size == 1) {
        found.local_rank = 0;
        found.local_size = 1;
    }
    memcpy(found.host, alone.host, sizeof found.host);
    *out = found;
    return OK;
}
