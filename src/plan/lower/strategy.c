#include "plan/lower/strategy.h"

int strategy_share(const struct strategy *s, const struct strategy *like)
{
    return (int)ceil_div(like->kept_chunks * ceil_div(s->rows, s->row_chunk), ceil_div(like->rows, like->row_chunk));
}

void strategy_place(struct strategy *s, const struct strategy *like)
{
    s->params = like->params;
    s->grads = like->grads;
    s->optim = like->optim;
    s->acts = like->acts;
    s->nearer_class = like->nearer_class;
    s->nearer_at = like->nearer_at;
    s->nearer = like->nearer;
    s->passing = like->passing;
    s->device_layers = like->device_layers;
    s->device_chunks = (int)(like->device_chunks * ceil_div(s->rows, s->row_chunk) / ceil_div(like->rows, like->row_chunk));
    s->input_every = like->input_every;
    s->update_on_host = like->update_on_host;
    s->write_depth = like->write_depth;
}

enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers)
{
    const enum residency r = strategy_tier(s, class);
    int64_t n = min_i64(s->nearer, layers);
    if (n == 0 || s->nearer_class != class || layer < 0)
        return r;
    return (layer + 1) * n / layers > layer * n / layers ? s->nearer_at : r;
}
