/* What a session's state is called in a checkpoint, and how large it is there. */
#include "checkpoint/state.h"

#include "base/finite.h"

#include <stdio.h>

void state_tensor_name(char name[STATE_NAME], enum state_kind kind, const struct model_param *p)
{
    static const char *const prefixes[] = {[STATE_PARAM] = "", [STATE_MASTER] = "master.", [STATE_M] = "m.", [STATE_V] = "v."};
    snprintf(name, STATE_NAME, "%s%s", prefixes[kind], p->name);
}

enum status state_check_finite(enum state_kind kind, const struct model_param *p, int64_t first, int64_t n, const float *data)
{
    static const char *const what[] = {
        [STATE_PARAM] = "", [STATE_MASTER] = "the master of ", [STATE_M] = "the first moment of ", [STATE_V] = "the second moment of "};
    int64_t i = finite_until(data, n);
    if (i == n)
        return OK;
    return status_fail(ERR_DIVERGED, "%s%s has %s (element %lld)", what[kind], p->name, finite_word(data[i]), (long long)(first + i));
}

int64_t state_bytes(const struct session *s)
{
    int64_t trained = 0, optim = 2 * dtype_size(s->plan->strategy.moments) + (s->plan->strategy.dtype == BF16 ? 4 : 0);
    for (int i = 0; i < s->model->n_params; i++)
        trained += s->model->params[i].trained ? model_param_stored(&s->model->params[i]) : 0;
    return s->model->total_params * dtype_size(s->plan->strategy.dtype) + trained * optim;
}
