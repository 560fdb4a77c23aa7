/* What a model's config.json asks for that ltrain does otherwise, or that the run goes beyond. */
#include "train/train.h"

#include "base/units.h"

void train_print_notes(const struct settings *s, const struct model *m, FILE *f)
{
    const struct model_config *c = &m->config;
    char length[32], limit[32];
    if (model_is_preset(s->model))
        return;
    units_format_count(s->plan.seq_len, length);
    if (c->dropout > 0)
        fprintf(f, "note: config.json asks for dropout (%g); ltrain trains without, and hf/config.json keeps it\n", c->dropout);
    if (s->plan.seq_len > c->max_positions) /* of learned ones it is refused */
        fprintf(
            f,
            "note: --seq-len %s is beyond max_position_embeddings %s of config.json: rotary positions go on, but the model has "
            "not seen them (rope_scaling would stretch them), and hf/config.json keeps that number\n",
            length, units_format_count(c->max_positions, limit));
    if (c->unchunked > 0 && s->plan.seq_len > c->unchunked)
        fprintf(f,
                "note: --seq-len %s is beyond the %s tokens from which on dual_chunk_attention_config makes this model attend in "
                "chunks; ltrain attends everything, as transformers does\n",
                length, units_format_count(c->unchunked, limit));
}
