/* What a model's config.json asks for that ltrain does otherwise, or that the run goes beyond. */
#include "train/train.h"

#include "base/units.h"
#include "data/chats.h"

/* "3 messages", where there are any. */
static void print_left_out(int64_t n, const char *one, const char *several, int *any, FILE *f)
{
    char a[32];
    if (n > 0)
        fprintf(f, "%s%s %s", (*any)++ ? ", " : "; the template leaves out ", units_format_count(n, a), n == 1 ? one : several);
}

void train_print_chats(const struct chat_counts *n, FILE *f)
{
    char a[32], b[32], c[32];
    int any = 0;
    if (n->conversations == 0)
        return;
    fprintf(f, "chats: %s conversation%s in %s sample%s", units_format_count(n->conversations, a), n->conversations == 1 ? "" : "s",
            units_format_count(n->samples, b), n->samples == 1 ? "" : "s");
    if (n->split)
        fprintf(f, " (%s cut turn by turn, because the template leaves out earlier reasoning)", units_format_count(n->split, c));
    fprintf(f, "; %s turns without their reasoning (reasoning_dropped)", units_format_count(n->reasoning_dropped, a));
    fprintf(f, ", %s without a token that ends them (unended)", units_format_count(n->unended, b));
    print_left_out(n->messages_dropped, "message", "messages", &any, f);
    print_left_out(n->calls_dropped, "message's calls of tools", "messages' calls of tools", &any, f);
    print_left_out(n->tools_dropped, "conversation's tools", "conversations' tools", &any, f);
    fputc('\n', f);
}

void train_print_notes(const struct settings *s, const struct model *m, FILE *f)
{
    const struct model_config *c = &m->config;
    char length[32], limit[32], rope[400], adapters[1200], idle[256];
    model_describe_adapters(m, adapters, sizeof adapters);
    fputs(adapters, f);
    if (model_check_patterns(m, idle, sizeof idle) == ERR_INVALID)
        fprintf(f, "warning: the adapter's %s is no map's that has an adapter: it changes nothing\n", idle);
    if (model_is_preset(s->model))
        return;
    if (!model_learns_positions(c)) {
        model_describe_rope(m, s->plan.seq_len, rope, sizeof rope);
        fprintf(f, "rope: %s\n", rope);
    }
    if (m->adapter_params > 0 && (s->rope || s->rope_base > 0))
        fputs("warning: an adapter's files do not hold --rope and --rope-base: give them again to ltrain eval and ltrain sample, and to "
              "config.json of what ltrain export --merge writes\n", f);
    if (c->unknown[0])
        fprintf(f,
                "warning: config.json has %s, which ltrain does not know: it computes as if that were not there (--strict-config "
                "refuses it)\n",
                c->unknown);
    units_format_count(s->plan.seq_len, length);
    if (c->dropout > 0)
        fprintf(f, "note: config.json asks for dropout (%g); ltrain trains without, and hf/config.json keeps it\n", c->dropout);
    if (s->plan.seq_len > c->max_positions && !model_learns_positions(c)) /* of learned ones it is refused */
        fprintf(f,
                "warning: --seq-len %s is beyond the %s positions (max_position_embeddings of config.json) that the model was "
                "made for: "
                "--rope yarn:%lld stretches them, a higher --rope-base does so without a scaling\n",
                length, units_format_count(c->max_positions, limit), (long long)ceil_div(s->plan.seq_len, c->max_positions));
    if (c->unchunked > 0 && s->plan.seq_len > c->unchunked)
        fprintf(f,
                "note: --seq-len %s is beyond the %s tokens from which on dual_chunk_attention_config makes this model attend in "
                "chunks; ltrain attends everything, as transformers does\n",
                length, units_format_count(c->unchunked, limit));
}
