/* Names and sizes of a session's state in a checkpoint. */
#include "checkpoint/state.h"

#include "checkpoint/checkpoint.h"

#include "base/finite.h"

#include <stdio.h>
#include <string.h>

const char *state_prefix(enum state_kind kind)
{
    static const char *const prefixes[] = {[STATE_PARAM] = "", [STATE_MASTER] = "master.", [STATE_M] = "m.", [STATE_V] = "v."};
    return prefixes[kind];
}

void state_tensor_name(char name[STATE_NAME], enum state_kind kind, const char *tensor)
{
    snprintf(name, STATE_NAME, "%s%s", state_prefix(kind), tensor);
}

enum status state_check_finite(enum state_kind kind, const struct model_param *p, int64_t first, int64_t n, const float *data)
{
    static const char *const what[] = {[STATE_PARAM] = "",
                                       [STATE_MASTER] = "the master of ",
                                       [STATE_M] = "the first moment of ",
                                       [STATE_V] = "the second moment of "};
    int64_t i = finite_until(data, n);
    if (i == n)
        return OK;
    return status_fail(ERR_DIVERGED, "%s%s has %s (element %lld)", what[kind], p->name, finite_word(data[i]),
                       (long long)(first + i));
}

/* ENTRY: bytes of a header's entry and a digest's line beside the names; SMALL_FILES: bytes of config.json, manifest.json and the unused ends of disk
 * blocks */
enum { ENTRY = 128, SMALL_FILES = 32 << 10 };

/* Returns the bytes of a file's header. kinds: number of tensors for each parameter; all: 1: the file has every parameter, 0:
 * trained ones only. */
static int64_t header_bytes(const struct model *m, int kinds, int all)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->n_params; i++)
        if (all || m->params[i].trained)
            bytes += kinds * model_param_tensors(&m->params[i]) * (2 * (int64_t)strlen(m->params[i].name) + ENTRY);
    return bytes;
}

int64_t checkpoint_export_bytes(const struct model *m, enum dtype dtype)
{
    int64_t wider = 0;
    if (m->adapter_params > 0) /* fp32; a checkpoint's adapters are no larger */
        return m->trained_params * dtype_size(F32) + header_bytes(m, 1, 0) + SMALL_FILES;
    for (int u = 0; u < m->n_units; u++)
        wider += m->units[u].fp32 ? m->units[u].elements * (dtype_size(F32) - dtype_size(dtype)) : 0;
    return m->total_params * dtype_size(dtype) + wider + header_bytes(m, 1, 1) + SMALL_FILES;
}

int64_t checkpoint_bytes(const struct model *m, enum dtype dtype, enum dtype moments)
{
    int64_t trained = 0, optim = 2 * dtype_size(moments == I8 ? F32 : moments) + (dtype == BF16 ? 4 : 0);
    for (int i = 0; i < m->n_params; i++)
        trained += m->params[i].trained ? model_param_stored(&m->params[i]) : 0;
    return checkpoint_export_bytes(m, dtype) + trained * optim + header_bytes(m, 3, 0);
}

int64_t state_bytes(const struct session *s)
{
    return checkpoint_bytes(s->model->whole, s->plan->strategy.key.dtype, s->plan->strategy.key.moments);
}
