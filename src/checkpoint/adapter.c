/* Writing an adapter's directory, as PEFT reads it, from a checkpoint of a model with adapters. */
#include "checkpoint/base.h"
#include "checkpoint/files.h"
#include "checkpoint/place.h"
#include "checkpoint/texts.h"

#include "base/sys.h"
#include "engine/stacks.h"
#include "engine/source.h"

#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 20, NAME = 160 }; /* PART: elements copied at a time; NAME: bytes of a tensor's name */

struct tensors {
    struct st_decl *decls;
    char (*names)[NAME];
    int *param;
    int n;
};

static void free_tensors(struct tensors *t)
{
    free(t->decls);
    free(t->names);
    free(t->param);
}

static enum status list_tensors(const struct model *m, struct tensors *t)
{
    const size_t n = (size_t)m->n_params;
    struct param_tensor tensor;
    *t = (struct tensors){sys_calloc(n, sizeof *t->decls), sys_calloc(n, sizeof *t->names), sys_calloc(n, sizeof *t->param), 0};
    if (!t->decls || !t->names || !t->param)
        return status_fail(ERR_NOMEM, "out of memory for an adapter's tensors");
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        if (!p->from_adapter)
            continue;
        snprintf(t->names[t->n], NAME, ADAPTER_PREFIX "%s", p->name);
        t->decls[t->n] = (struct st_decl){.name = t->names[t->n], .dtype = F32};
        model_param_tensor(p, 0, &tensor);
        t->decls[t->n].n_dims = tensor.n_dims;
        memcpy(t->decls[t->n].shape, tensor.shape, sizeof tensor.shape);
        t->param[t->n++] = i;
    }
    return OK;
}

/* Writes a stack whose matrices lie side by side in the file. */
static enum status write_beside(struct source *from, int param, struct st_writer *w, int k)
{
    const struct model_param *p = &from->model->params[param];
    float *memory = sys_malloc((size_t)p->elements * sizeof *memory), *file = sys_malloc((size_t)p->elements * sizeof *file);
    enum status st = memory && file ? OK : status_no_memory("for an adapter's tensors");
    if (st == OK)
        st = source_read(from, param, 0, p->elements, F32, memory);
    if (st == OK) {
        stack_turn(p, memory, file);
        st = st_write_f32(w, k, 0, p->elements, file);
    }
    free(memory);
    free(file);
    return st;
}

static enum status write_values(struct source *from, const struct tensors *t, struct st_writer *w)
{
    float *data = sys_malloc(PART * sizeof *data);
    enum status st = data ? OK : status_fail(ERR_NOMEM, "out of memory for an adapter's tensors");
    for (int k = 0; k < t->n && st == OK; k++) {
        const struct model_param *p = &from->model->params[t->param[k]];
        int64_t tensor, there, n;
        if (p->form == STACK_BESIDE) {
            st = write_beside(from, t->param[k], w, k);
            continue;
        }
        for (int64_t at = 0; at < p->elements && st == OK; at += n) {
            n = model_param_piece(p, at, min_i64(PART, p->elements - at), &tensor, &there);
            st = source_read(from, t->param[k], at, n, F32, data);
            if (st == OK)
                st = st_write_f32(w, k, there, n, data);
        }
    }
    free(data);
    return st;
}

static enum status write_tensors(struct source *from, const char *dir)
{
    char path[CKPT_PATH];
    struct tensors t;
    struct st_writer *w = NULL;
    TRY(ckpt_path(path, dir, ADAPTER_FILE, ""));
    enum status st = list_tensors(from->model, &t);
    if (st == OK)
        st = st_create(path, t.decls, t.n);
    if (st == OK)
        st = st_write_open(path, t.decls, t.n, &w);
    if (st == OK)
        st = write_values(from, &t, w);
    if (st == OK)
        st = st_write_finish(w);
    else
        st_write_abort(w);
    free_tensors(&t);
    return st;
}

enum status checkpoint_write_adapter(const struct model *m, const char *base, uint64_t base_xxh3, const char *checkpoint,
                                     const char *to, const struct export_texts *texts)
{
    struct place place;
    struct source from;
    TRY(source_open(m, NULL, checkpoint, 0, &from));
    enum status st = source_check_adapter(&from);
    if (st == OK)
        st = place_begin(to, &place);
    if (st != OK) {
        source_close(&from);
        return st;
    }
    st = write_tensors(&from, place.partial);
    if (st == OK)
        st = base_write(m, base, base_xxh3, place.partial);
    if (st == OK)
        st = base_write_texts(texts, place.partial);
    if (st == OK)
        st = texts_copy(texts && texts->like ? texts->like : base, place.partial);
    source_close(&from);
    return place_end(&place, st);
}
