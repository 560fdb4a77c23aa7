/* Notes on requests of a config.json that ltrain handles differently, on limits that the run exceeds, on checks of memory. */
#include "train/train.h"

#include "base/units.h"
#include "engine/scrub.h"
#include "plan/report/describe.h"

#include <math.h>

void train_print_unknown(const struct model *m, FILE *f)
{
    if (m->config.unknown[0])
        fprintf(f,
                "warning: config.json has %s, which ltrain does not know: it computes as if that were not there (--strict-config "
                "refuses it)\n",
                m->config.unknown);
}

int64_t train_made_for(const struct settings *s, const struct model *m)
{
    /* lengths beyond learned positions are refused elsewhere */
    return model_is_preset(s->model) || model_learns_positions(&m->config) ? 0 : m->config.max_positions;
}

static void warn_of_positions(const struct settings *s, const struct model_config *c, FILE *f)
{
    char length[32], limit[32];
    units_format_count(s->plan.seq_len, length);
    units_format_count(c->max_positions, limit);
    if (model_fixes_rope(c))
        fprintf(f,
                "warning: --seq-len %s is beyond the %s positions (n_positions of config.json) that the model was made for, and "
                "transformers computes no others, of an export either: a higher n_positions in its config.json gives it more\n",
                length, limit);
    else if (!model_rotates(c))
        fprintf(
            f,
            "warning: --seq-len %s is beyond the %s tokens that config.json says the model was made for; its attention has no "
            "positions, so nothing needs to be stretched\n",
            length, limit);
    else
        fprintf(f,
                "warning: --seq-len %s is beyond the %s positions (max_position_embeddings of config.json) that the model was "
                "made for: "
                "--rope yarn:%.0f stretches them, a higher --rope-base does so without a scaling\n",
                length, limit, ceil((double)s->plan.seq_len / model_trained_positions(c)));
}

void train_print_notes(const struct settings *s, const struct model *m, FILE *f)
{
    const struct model_config *c = &m->config;
    char length[32], limit[32], rope[400], adapters[1200], idle[256];
    model_describe_adapters(m, adapters, sizeof adapters);
    fputs(adapters, f);
    if (model_check_patterns(m, idle, sizeof idle) == ERR_INVALID)
        fprintf(f, "warning: the adapter's %s is of nothing that this model has: it changes nothing\n", idle);
    if (model_is_preset(s->model))
        return;
    if (c->mxfp4)
        fprintf(f, "base: the files have experts in MXFP4, which %s\n",
                c->base == BASE_MXFP4 ? "are kept so; --base none makes numbers of them while they are loaded"
                                      : "are numbers here, and in what is written");
    if (!model_learns_positions(c)) {
        model_describe_rope(m, s->plan.seq_len, rope, sizeof rope);
        fprintf(f, "rope: %s\n", rope);
    }
    if (c->family == FAMILY_PHI3 && c->rope != ROPE_DEFAULT && c->rope != ROPE_LONGROPE)
        fputs(
            "warning: of models of type phi3 transformers loads none with this scaling, nor what is exported of one: it knows longrope only\n",
            f);
    if (c->family == FAMILY_MINISTRAL3 && c->rope_slope == 0.0)
        fputs(
            "warning: of models of type ministral3 transformers computes none without llama_4_scaling_beta, which belongs to the model's own "
            "scaling: what is exported is for ltrain alone\n",
            f);
    if (c->family == FAMILY_QWEN3_MOE && c->expert_dim > 0)
        fprintf(
            f,
            "warning: of models of type qwen3_moe transformers computes none with moe_latent_size (%lld): what is exported is for "
            "ltrain alone\n",
            (long long)c->expert_dim);
    if (m->adapter_params > 0 && (s->rope || s->rope_base > 0))
        fputs(
            "note: these positions go with the adapter in ltrain_run.json, which ltrain reads and PEFT and vLLM do not: for them they must "
            "be in the base's config.json, or take the merged model of ltrain export\n",
            f);
    train_print_unknown(m, f);
    units_format_count(s->plan.seq_len, length);
    if (c->dropout > 0)
        fprintf(f, "note: config.json asks for dropout (%g); ltrain trains without, and hf/config.json keeps it\n", c->dropout);
    if (train_made_for(s, m) > 0 && s->plan.seq_len > c->max_positions)
        warn_of_positions(s, c, f);
    if (c->unchunked > 0 && s->plan.seq_len > c->unchunked)
        fprintf(f,
                "note: --seq-len %s is beyond the %s tokens from which on dual_chunk_attention_config makes this model attend in "
                "chunks; ltrain attends everything, as transformers does\n",
                length, units_format_count(c->unchunked, limit));
}

void train_print_scrubbed(const struct settings *s, const struct plan *p, FILE *f)
{
    const int64_t bytes = s->scrub ? scrub_plan_bytes(p) : 0;
    char size[32];
    if (bytes > 0)
        fprintf(f, "scrub: %s of state in host memory have checksums, computed at each write and checked at each use\n",
                units_format_bytes(bytes, size));
    else if (s->scrub)
        fprintf(f, "remark: --scrub has nothing to check: this plan keeps no parameters and no optimizer state in host memory "
                   "(--offload cpu does)\n");
}

void train_print_verified(const struct settings *s, const struct plan *p, FILE *f)
{
    char with[32], without[32], every[48] = "every step";
    if (s->verify_every == 0 || !p->programs[PLAN_STEP] || !p->programs[PLAN_FLUSH])
        return;
    double once = p->programs[PLAN_STEP]->seconds;
    if (p->programs[PLAN_MORE])
        once += p->programs[PLAN_MORE]->seconds * (double)(s->plan.grad_accum - 2);
    if (p->programs[PLAN_LAST])
        once += p->programs[PLAN_LAST]->seconds;
    /* its own update, and that of the step before, are programs of their own then, and the step behind has none */
    const int others = s->verify_every > 1;
    const double flush = p->programs[PLAN_FLUSH]->seconds, seconds = (1 + others) * flush + 2 * once,
                 more = seconds - p->seconds + others * (once - p->seconds);
    if (s->verify_every > 1)
        snprintf(every, sizeof every, "one step in %lld", (long long)s->verify_every);
    fprintf(f, "verify: %s is computed twice: %s in place of %s, %.3g%% of a run's time, and reading its gradients twice\n",
            every, report_duration(seconds, with), report_duration(p->seconds, without),
            100 * more / ((double)s->verify_every * p->seconds));
}
