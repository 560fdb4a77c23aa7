/* Writing a session's state into a checkpoint's tensors: one group of a unit at a time, cut at parameter borders, every rank its
 * own. */
#include "checkpoint/state.h"

#include "base/sys.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shards.h"
#include "checkpoint/unused.h"
#include "data/safetensors.h"
#include "engine/stacks.h"
#include "engine/source.h"
#include "model/part.h"
#include "plan/lower/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- contents of a file ---- */

/* Tensors of a file, kind by kind; within a kind, parameters in the order of the model, which is that of the units' ranges. */
struct contents {
    enum state_kind kind[3];
    int n_kinds, n;
    struct st_decl *decls; /* [n] */
    char (*names)[STATE_NAME];
    int *tensor[3];       /* number of the first declaration, or -1; indexed by kind, then by parameter of the whole model */
    struct shards *files; /* files that the tensors make */
};

static void free_contents(struct contents *f)
{
    shards_free(f->files);
    free(f->decls);
    free(f->names);
    free(f->tensor[0]);
}

/* Finds which of two naming schemes of multimodal models the file of other tensors follows. */
static enum status find_wrapping(const char *others, enum wrapping *out)
{
    struct st_file *f;
    TRY(st_open(others, &f));
    *out = WRAPPING_OLD;
    for (int i = 0; i < st_count(f); i++)
        if (strncmp(st_name(f, i), "model.", strlen("model.")) == 0)
            *out = WRAPPING_NEW;
    st_close(f);
    return OK;
}

/* Returns the type in files of a stored type. Blocks of 8-bit numbers span a unit's parameters, so files have fp32 numbers, which
 * give the same bytes when they are read. */
static enum dtype file_type(enum dtype stored)
{
    return stored == I8 ? F32 : stored;
}

/* Tells whether this is the one file of an adapter's export, as PEFT saves it. */
static int is_adapter_file(const struct session *s, int n_files)
{
    return n_files == 1 && s->model->whole->adapter_params > 0;
}

static const char *file_name(const struct session *s, int file, int n_files)
{
    return is_adapter_file(s, n_files) ? ADAPTER_FILE : ckpt_file_names[file];
}

static void name_tensor(const struct session *s, int n_files, enum state_kind kind, const char *tensor, char name[STATE_NAME])
{
    if (is_adapter_file(s, n_files))
        snprintf(name, STATE_NAME, ADAPTER_PREFIX "%s", tensor);
    else
        state_tensor_name(name, kind, tensor);
}

static size_t count_tensors(const struct model *m)
{
    size_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += (size_t)model_param_tensors(&m->params[i]);
    return n;
}

/* Declares a parameter's tensors of the k-th kind. wrapping: naming scheme of a multimodal model. */
static void list_param(const struct session *s, int n_files, const struct shard_form *form, enum wrapping wrapping,
                       struct contents *f, int k, const struct model_param *p)
{
    const int adapter = is_adapter_file(s, n_files);
    const struct model_param as = adapter ? *p : model_param_kept(p);
    struct param_tensor t;
    for (int64_t i = 0; i < model_param_tensors(p); i++, f->n++) {
        model_param_tensor(&as, i, &t);
        if (form->others && s->model->config.wrapped)
            model_wrapped_name(t.name, wrapping, f->names[f->n]);
        else
            name_tensor(s, n_files, f->kind[k], t.name, f->names[f->n]);
        f->decls[f->n] = (struct st_decl){
            .name = f->names[f->n],
            .dtype = adapter ? F32 : file_type(session_state_type(s, &s->model->whole->units[p->unit], f->kind[k])),
            .n_dims = t.n_dims};
        memcpy(f->decls[f->n].shape, t.shape, sizeof t.shape);
    }
}

/* Lists a file's tensors; with adapters only trained ones. The caller frees *f, even after a failure. */
static enum status list_contents(const struct session *s, int file, int n_files, const struct shard_form *form,
                                 struct contents *f)
{
    const struct model *m = s->model->whole;
    int masters = s->plan->strategy.key.dtype == BF16, adapter = is_adapter_file(s, n_files);
    enum wrapping wrapping = WRAPPING_OLD;
    *f = (struct contents){.kind = {adapter && masters ? STATE_MASTER : STATE_PARAM}, .n_kinds = 1};
    if (file == CKPT_OPTIMIZER) {
        *f = masters ? (struct contents){.kind = {STATE_MASTER, STATE_M, STATE_V}, .n_kinds = 3}
                     : (struct contents){.kind = {STATE_M, STATE_V}, .n_kinds = 2};
    }
    if (form->others && m->config.wrapped)
        TRY(find_wrapping(form->others, &wrapping));
    const size_t room = (size_t)f->n_kinds * count_tensors(m);
    f->decls = sys_malloc(room * sizeof *f->decls);
    f->names = sys_malloc(room * sizeof *f->names);
    f->tensor[0] = sys_malloc(room * sizeof(int));
    if (!f->decls || !f->names || !f->tensor[0])
        return status_fail(ERR_NOMEM, "out of memory: a list of %zu tensors", room);
    for (int k = 0; k < f->n_kinds; k++) {
        f->tensor[k] = f->tensor[0] + k * m->n_params;
        for (int i = 0; i < m->n_params; i++) {
            const struct model_param *p = &m->params[i];
            f->tensor[k][i] = -1;
            if ((f->kind[k] != STATE_PARAM || m->adapter_params > 0) && !p->trained)
                continue;
            f->tensor[k][i] = f->n;
            list_param(s, n_files, form, wrapping, f, k, p);
        }
    }
    return shards_plan(f->decls, f->n, form, &f->files);
}

enum status state_create(struct session *s, const char *dir, int n_files, const struct shard_form *form)
{
    for (int i = 0; i < n_files; i++) {
        struct contents f;
        enum status st = list_contents(s, i, n_files, form, &f);
        if (st == OK)
            st = shards_create(f.files, dir, file_name(s, i, n_files));
        free_contents(&f);
        TRY(st);
    }
    return OK;
}

/* ---- writing ---- */

struct output {
    const struct session *session;
    const struct model *model;
    struct shard_writer *file;
    enum state_kind kind; /* kind that is being written */
    const int *tensor;    /* numbers of that kind's tensors */
    int64_t written;      /* elements written so far */
    int pipelined;        /* 1: the parts are stages, all of which share the model's ends */
};

static enum status write_param(struct output *w, int param, int64_t first, int64_t n, const float *data)
{
    const int tensor = w->tensor[w->model->params[param].whole];
    const struct model_param kept = model_param_kept(&w->model->params[param]);
    int64_t of_param, there, done = 0;
    for (int64_t part; done < n; done += part) {
        part = model_param_piece(&kept, first + done, n - done, &of_param, &there);
        TRY(shards_write_f32(w->file, tensor + (int)of_param, there, part, data + done));
    }
    return OK;
}

static enum status write_pieces(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct output *w = user;
    const struct model_unit *u = &w->model->units[unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &w->model->params[i];
        int64_t a = max_i64(first, p->offset), b = min_i64(first + n, p->offset + p->elements);
        if (a >= b || w->tensor[p->whole] < 0 || !(w->pipelined || model_part_is_first(w->model, i)) ||
            session_repeats(w->session, p->whole, w->kind))
            continue;
        TRY(state_check_finite(w->kind, p, a - p->offset, b - a, data + (a - first)));
        TRY(write_param(w, i, a - p->offset, b - a, data + (a - first)));
        w->written += b - a;
    }
    return OK;
}

/* Returns a number for a unit that all its holders agree on: stages with other numbers of layers number the model's ends otherwise. */
static int number_among_holders(const struct model *m, int unit)
{
    int ends = 0;
    for (int u = 0; u < unit; u++)
        ends += !model_unit_in_layer(m, u);
    return model_unit_in_layer(m, unit) ? unit : ends;
}

/* Writes a kind of state of a pipeline's stages. Of a unit that all ranks of a group hold whole one of them writes, in turn. */
static enum status write_stages(struct session *s, enum state_kind kind, struct output *w)
{
    for (int u = 0; u < s->model->whole->n_units; u++) {
        int writes = u < s->model->n_units;
        const enum state_holding held = writes ? session_holding(s, u, kind) : HELD_IN_SHARDS;
        if (writes && !session_answers_for(s, u))
            writes = 0;
        else if (held == HELD_IN_COPIES)
            writes = comm_member(s->comm, session_copies_lane(s)) == 0;
        else if (held == HELD_BY_ALL) {
            const struct mesh_group g = comm_group_of(s->comm, plan_unit_lane(s->model, &s->plan->strategy, u));
            writes = number_among_holders(s->model, u) % g.members == g.member;
        }
        TRY(comm_agree(s->comm, writes ? session_visit(s, u, kind, STATE_READ, write_pieces, w) : OK));
    }
    return OK;
}

/* Writes a kind of state of the ranks' parts of the model. Of sharded state every rank writes its own elements; of state that all
 * ranks with a part hold whole, they write one unit each, in turn. Of experts that are shared out, and of slices, the first rank with
 * them writes.
 *
 * The ranks agree after every turn, so that none waits long for a slow or failed one. */
static enum status write_kind(struct session *s, enum state_kind kind, struct output *w)
{
    if (w->pipelined)
        return write_stages(s, kind, w);
    const int sharing = s->plan->strategy.ranks,
              turn = session_holding(s, MODEL_EMBEDDING_UNIT, kind) == HELD_BY_ALL ? sharing : 1;
    for (int u = 0; u < s->model->whole->n_units; u += turn) {
        const int mine = turn == 1 ? u : u + comm_place(s->comm) % sharing,
                  writes = mine < s->model->n_units && (turn == 1 || session_holding(s, mine, kind) == HELD_BY_ALL);
        TRY(comm_agree(s->comm, writes ? session_visit(s, mine, kind, STATE_READ, write_pieces, w) : OK));
    }
    for (int u = 0; u < s->model->n_units && turn > 1; u++) {
        const enum state_holding held = session_holding(s, u, kind);
        if (held == HELD_BY_ALL)
            continue;
        const int writes = held == HELD_IN_SHARDS || comm_member(s->comm, session_copies_lane(s)) == 0;
        TRY(comm_agree(s->comm, writes ? session_visit(s, u, kind, STATE_READ, write_pieces, w) : OK));
    }
    return OK;
}

/* Returns the elements of a file that the ranks with this session's part of the model write. */
static int64_t elements_of_part(const struct session *s, const struct contents *f)
{
    const struct model *m = s->model;
    int64_t n = 0;
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < m->n_params; i++)
            n += f->tensor[k][m->params[i].whole] >= 0 && model_part_is_first(m, i) ? model_param_stored(&m->params[i]) : 0;
    return n;
}

/* Makes sure that no element is missing: a fault of ours must not become a checkpoint. */
static enum status check_complete(struct session *s, const char *name, const struct contents *f, int64_t written)
{
    const int is_first = comm_place(s->comm) % (s->plan->strategy.ranks / strategy_stages(&s->plan->strategy)) ==
                         0; /* 1: the first rank with this part */
    double sum[2] = {(double)written, is_first ? (double)elements_of_part(s, f) : 0};
    TRY(comm_sum(s->comm, sum, 2));
    if (sum[0] == sum[1])
        return OK;
    return status_fail(ERR_CORRUPT, "%s: %.0f elements were written of %.0f", name, sum[0], sum[1]);
}

/* Opens the output and looks for the mark again: only an open file is known to be in the directory that rank 0 has made. */
static enum status open_output(struct session *s, const char *dir, uint64_t mark, const char *name, const struct contents *f,
                               struct output *w)
{
    TRY(ckpt_check_mark(dir, mark, comm_hosts(s->comm) > 1 ? 5 : 0));
    TRY(shards_open(f->files, dir, name, &w->file));
    return ckpt_check_mark(dir, mark, 0);
}

static enum status write_file(struct session *s, const char *dir, uint64_t mark, const char *name, const struct contents *f,
                              struct unused *rest)
{
    struct output w = {.session = s, .model = s->model, .pipelined = strategy_stages(&s->plan->strategy) > 1};
    enum status st = comm_agree(s->comm, open_output(s, dir, mark, name, f, &w));
    for (int k = 0; k < f->n_kinds && st == OK; k++) {
        w.kind = f->kind[k];
        w.tensor = f->tensor[k];
        st = write_kind(s, w.kind, &w);
        if (st == OK)
            st = unused_write(rest, w.kind, w.tensor, w.file, &w.written);
    }
    if (st != OK) {
        shards_abort(w.file);
        return st;
    }
    TRY(comm_agree(s->comm, shards_finish(w.file)));
    return check_complete(s, name, f, w.written);
}

/* ---- stacks that lie side by side ---- */

static enum status turn_tensor(const struct model_param *p, struct st_file *from, struct st_writer *to, int k, const char *name)
{
    float *memory = sys_malloc((size_t)p->elements * sizeof *memory), *file = sys_malloc((size_t)p->elements * sizeof *file);
    enum status st = memory && file ? OK : status_no_memory("for an adapter's tensors");
    if (st == OK)
        st = st_read_f32(from, name, 0, p->elements, memory);
    if (st == OK) {
        stack_turn(p, memory, file);
        st = st_write_f32(to, k, 0, p->elements, file);
    }
    free(memory);
    free(file);
    return st;
}

static enum status turn_file(const struct model *m, const char *path, const struct contents *f)
{
    struct st_file *from;
    struct st_writer *to = NULL;
    TRY(st_open(path, &from));
    enum status st = st_write_open(path, f->decls, f->n, &to);
    for (int i = 0; i < m->n_params && st == OK; i++) {
        const int k = f->tensor[0][i];
        if (k >= 0 && m->params[i].form == STACK_BESIDE)
            st = turn_tensor(&m->params[i], from, to, k, f->names[k]);
    }
    st_close(from);
    if (st == OK)
        return st_write_finish(to);
    st_write_abort(to);
    return st;
}

/* Brings stacks of an adapter's file, which the ranks have written in memory's order, into PEFT's (one rank only). */
static enum status turn_stacks(struct session *s, const char *dir, const char *name, const struct contents *f)
{
    const struct model *m = s->model->whole;
    char path[CKPT_PATH];
    if (m->most_stack_rank == 0 || strcmp(name, ADAPTER_FILE) != 0)
        return OK;
    enum status st = OK;
    if (comm_rank(s->comm) == 0) {
        st = ckpt_path(path, dir, name, "");
        if (st == OK)
            st = turn_file(m, path, f);
    }
    return comm_agree(s->comm, st);
}

enum status state_move(struct session *s, const char *from, const char *to, const struct shard_form *form)
{
    struct contents f = {0};
    enum status st = list_contents(s, CKPT_MODEL, 1, form, &f);
    if (st == OK)
        st = shards_move(f.files, from, to, file_name(s, CKPT_MODEL, 1));
    free_contents(&f);
    return st;
}

enum status state_write(struct session *s, const char *dir, uint64_t mark, int n_files, const struct shard_form *form)
{
    struct unused *rest;
    const int optimizer = n_files > CKPT_OPTIMIZER,
              kinds[STATE_V + 1] = {1, optimizer && s->plan->strategy.key.dtype == BF16, optimizer, optimizer};
    TRY(unused_open(s, kinds, &rest));
    enum status st = OK;
    for (int i = 0; i < n_files && st == OK; i++) {
        struct contents f = {0};
        st = comm_agree(s->comm, list_contents(s, i, n_files, form, &f));
        if (st == OK)
            st = write_file(s, dir, mark, file_name(s, i, n_files), &f, rest);
        if (st == OK)
            st = turn_stacks(s, dir, file_name(s, i, n_files), &f);
        free_contents(&f);
    }
    unused_close(rest);
    return st;
}
