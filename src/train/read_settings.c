/* Settings of all ranks as one. */
#include "train/train.h"

#include "base/tell.h"

#include <stdlib.h>
#include <string.h>

#define SAME_ELSEWHERE "do all hosts see the same options and configuration files?"

/* Gives all ranks the directory that rank 0 has named by its clock, unless options name one. */
static enum status share_out(struct comm *c, int given, struct settings *s)
{
    struct {
        int given;
        char path[4096];
    } *first = calloc(1, sizeof *first);
    if (!first)
        return status_fail(ERR_NOMEM, "out of memory");
    first->given = given;
    snprintf(first->path, sizeof first->path, "%s", s->out);
    enum status st = comm_broadcast(c, 0, first, sizeof *first);
    if (st == OK && (first->given != given || (given && strcmp(first->path, s->out) != 0)))
        st = status_fail(ERR_INVALID, "out is %s here and %s on rank 0: " SAME_ELSEWHERE, given ? s->out : "not given",
                         first->given ? first->path : "not given");
    char *out = st == OK ? strdup(first->path) : NULL;
    if (st == OK && !out)
        st = status_fail(ERR_NOMEM, "out of memory");
    if (out) {
        free(s->out);
        s->out = out;
    }
    free(first);
    return comm_agree(c, st);
}

/* Fails with the first line that differs between two texts of "key: value" lines. */
static enum status name_difference(const char *own, const char *first)
{
    while (*own || *first) {
        int n = (int)strcspn(own, "\n"), m = (int)strcspn(first, "\n");
        if (n != m || strncmp(own, first, (size_t)n) != 0)
            return status_fail(ERR_INVALID, "%.*s here, on rank 0 %.*s: " SAME_ELSEWHERE, n, own, m, first);
        own += n + (own[n] != 0);
        first += m + (first[m] != 0);
    }
    return OK;
}

/* Compares every rank's settings with rank 0's. */
static enum status compare(struct comm *c, const struct settings *s)
{
    char *text = NULL, *first = NULL;
    size_t size = 0;
    int64_t bytes = 0;
    FILE *f = open_memstream(&text, &size);
    enum status st = OK;
    if (f) {
        settings_write_yaml(s, f);
        fclose(f);
        bytes = (int64_t)size + 1;
    }
    TRY_GOTO(comm_agree(c, f ? OK : status_fail(ERR_NOMEM, "out of memory")), out);
    TRY_GOTO(comm_broadcast(c, 0, &bytes, sizeof bytes), out);
    first = calloc(1, (size_t)bytes);
    TRY_GOTO(comm_agree(c, first ? OK : status_fail(ERR_NOMEM, "out of memory")), out);
    if (comm_rank(c) == 0)
        memcpy(first, text, (size_t)bytes);
    TRY_GOTO(comm_broadcast(c, 0, first, bytes), out);
    st = comm_agree(c, name_difference(text, first));
out:
    free(first);
    free(text);
    return st;
}

/* Clears the mesh of a resumed run's file if the number of ranks has changed; it is then chosen anew. */
static void adapt_mesh(const struct comm *c, const struct settings_flags *f, struct settings *s)
{
    int given = settings_given(f, "mesh") || settings_given(f, "sp");
    if (comm_size(c) == 1 && s->plan.ranks > 1)
        return; /* left to the ranks that this process starts */
    char mesh[MESH_TEXT];
    if (!s->resume || given || !mesh_is_decided(&s->plan.mesh) || mesh_ranks(&s->plan.mesh) == comm_size(c))
        return;
    tell("resume: the run had %d ranks (%s), now there are %d: the mesh is chosen anew\n", (int)mesh_ranks(&s->plan.mesh),
         mesh_format(&s->plan.mesh, mesh), comm_size(c));
    s->plan.mesh = settings_sp_mesh(s->sp);
    s->plan.stage_layers.n = 0;
}

enum status train_read_settings(struct comm *c, const struct settings_flags *f, enum settings_use use, struct settings *out)
{
    struct settings s;
    enum status st = settings_read(f, use, &s);
    int read = st == OK;
    if (read && comm_size(c) > 1 && settings_given(f, "ranks") && s.plan.ranks != comm_size(c))
        st = status_fail(ERR_INVALID, "--ranks %d, but %d were started (%s); leave out --ranks", s.plan.ranks, comm_size(c),
                         comm_source(c));
    st = comm_agree(c, st);
    if (st == OK) {
        comm_set_timeout(c, s.comm_timeout);
        st = share_out(c, s.resume || settings_given(f, "out"), &s);
    }
    if (st == OK)
        st = compare(c, &s);
    if (st == OK) {
        adapt_mesh(c, f, &s);
        *out = s;
    } else if (read) {
        settings_free(&s);
    }
    return st;
}
