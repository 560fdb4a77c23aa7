/* What a session's state is called in a checkpoint, and how large it is there. */
#include "checkpoint/state.h"

#include <stdio.h>

void state_tensor_name(char name[STATE_NAME], enum state_kind kind, const struct model_param *p)
{
    static const char *const prefixes[] = {[STATE_PARAM] = "", [STATE_MASTER] = "master.", [STATE_M] = "m.", [STATE_V] = "v."};
    snprintf(name, STATE_NAME, "%s%s", prefixes[kind], p->name);
}

int64_t state_bytes(const struct session *s)
{
    int64_t trained = 0, optim = 2 * dtype_size(s->plan->strategy.moments) + (s->plan->strategy.dtype == BF16 ? 4 : 0);
    for (int i = 0; i < s->model->n_params; i++)
        trained += s->model->params[i].trained ? model_param_stored(&s->model->params[i]) : 0;
    return s->model->total_params * dtype_size(s->plan->strategy.dtype) + trained * optim;
}
