/* Opening model and data, and checking all that needs no plan. */
#include "train/run.h"

#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "engine/source.h"
#include "engine/weights.h"
#include "model/config/adapter_config.h"
#include "offload/drives.h"
#include "train/router_bias.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the model ---- */

/* Refuses a model that is neither a preset nor a directory. */
static enum status refuse_model(const char *name)
{
    struct model_config config;
    const char *slash = strchr(name, '/');
    if (!slash) /* the message lists the presets and the nearest one */
        return model_preset(name, &config);
    if (slash == name || name[0] == '.' || name[0] == '~' || strchr(slash + 1, '/') || !slash[1])
        return status_fail(ERR_INVALID, "--model: no such directory: %s", name);
    return status_fail(ERR_INVALID,
                       "--model: no such directory: %s; models of the hub are not downloaded: give the directory where one is",
                       name);
}

/* Reads config.json. A resumed run needs no original weights: if they are gone, its checkpoint has the configuration. */
static enum status read_config(const struct settings *s, struct model_config *out)
{
    char path[4096];
    struct stat sb;
    snprintf(path, sizeof path, "%s/config.json", s->model);
    if (sys_stat(path, &sb) != 0 && sys_is_absent(errno) && s->resume && checkpoint_newest(s->resume, path, sizeof path) == OK) {
        TRY(model_config_read(path, out));
        const char *slash = strrchr(s->model, '/');
        snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : s->model);
        return OK;
    }
    if (sys_stat(s->model, &sb) != 0 && sys_is_absent(errno))
        return refuse_model(s->model);
    return model_config_read(s->model, out);
}

static const char *base_word(enum frozen_base base)
{
    static const char *const words[] = {"auto", "none", "nf4", "int8", "mxfp4"};
    return words[base];
}

/* Checks the settings against the format of quantised files. */
static enum status check_quantised(const struct settings *s, const struct model_config *c, int trains_all)
{
    const char *name = model_base_name(c->base);
    const enum frozen_base has = c->base == BASE_INT8 ? FROZEN_INT8 : FROZEN_NF4;
    if (trains_all)
        return status_fail(
            ERR_INVALID,
            "--model %s is quantised (%s), which is not trained: give --lora r=16 to train adapters beside it, or another "
            "copy of the model",
            s->model, name);
    if (s->plan.base == FROZEN_AUTO || s->plan.base == has)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--base %s: the files of %s hold %s and nothing else: leave out --base, or give a copy of the model that is not "
        "quantised",
        base_word(s->plan.base), s->model, name);
}

static enum status refuse_whole(const struct settings *s)
{
    return status_fail(
        ERR_INVALID,
        "--base %s is what adapters are trained beside: give --lora r=16, or leave out --base to train the model whole",
        base_word(s->plan.base));
}

/* Settles how experts in MXFP4 are kept: as they are beside adapters and to evaluate, unless --base none asks for numbers; as numbers
 * to train them. */
static enum status settle_mxfp4(const struct settings *s, struct model_config *c, int trains_all)
{
    const enum frozen_base asked = s->plan.base;
    if (asked == FROZEN_NF4 || asked == FROZEN_INT8)
        return status_fail(
            ERR_INVALID,
            "--base %s: the files of %s have experts in MXFP4, which are kept so: leave out --base, or give --base none "
            "for numbers in the run's type",
            base_word(asked), s->model);
    if (asked == FROZEN_MXFP4 && trains_all)
        return refuse_whole(s);
    if (asked == FROZEN_STORED || trains_all) {
        c->base = BASE_STORED;
        c->quantised = 0;
    }
    return OK;
}

/* Settles the format of frozen matrices. */
static enum status settle_base(const struct settings *s, struct model_config *c)
{
    const int trains_all = !s->plan.evaluation && s->plan.lora.rank == 0;
    if (c->mxfp4)
        return settle_mxfp4(s, c, trains_all);
    if (s->plan.base == FROZEN_MXFP4)
        return status_fail(
            ERR_INVALID,
            "--base mxfp4: %s has no experts in MXFP4, as gpt-oss is published, and numbers are not turned into that: leave "
            "out --base, or give --base nf4",
            s->model);
    if (c->quantised)
        return check_quantised(s, c, trains_all);
    if (s->plan.base != FROZEN_NF4 && s->plan.base != FROZEN_INT8)
        return OK;
    c->base = s->plan.base == FROZEN_NF4 ? BASE_NF4 : BASE_INT8;
    return trains_all ? refuse_whole(s) : OK;
}

/* Refuses to train quantised matrices, whose files have no numbers to train. */
static enum status refuse_quantised(const struct settings *s, const struct model *m)
{
    for (int i = 0; i < m->n_params && m->config.quantised; i++)
        if (m->params[i].linear && m->params[i].trained && !m->params[i].adapter && m->config.base != BASE_MXFP4)
            return status_fail(ERR_INVALID, "--lora: modules-to-save=%s: %s is quantised (%s) in %s and cannot be trained whole",
                               s->plan.lora.saved, m->params[i].name, model_base_name(m->config.base), s->model);
    return OK;
}

enum status train_blame_adapter(const struct settings *s, enum status st)
{
    static const char said[] = "--lora: ";
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    if (st != ERR_INVALID || !s->adapter || strncmp(why, said, strlen(said)) != 0)
        return st;
    return status_fail(ERR_INVALID, "%s%s: %s", s->adapter, adapter_config_is_there(s->adapter) ? "/adapter_config.json" : "",
                       why + strlen(said));
}

/* Replaces config.json's auxiliary loss by that of --router-aux. */
static enum status set_router_aux(const struct settings *s, struct model_config *c)
{
    if (s->router_aux < 0)
        return OK;
    if (c->experts == 0 && s->router_aux > 0)
        return status_fail(ERR_INVALID, "--router-aux %g: model %s has no experts whose load could be evened out: leave it out",
                           s->router_aux, c->name);
    c->router_aux = s->router_aux;
    c->router_aux_used = s->router_aux > 0;
    return OK;
}

/* Refuses --router-bias-rate for models without such a bias, and beside adapters, whose files have none of it. */
static enum status check_router_bias(const struct settings *s, const struct model *m)
{
    if (s->router_bias_rate > 0 && !router_bias_exists(m))
        return status_fail(ERR_INVALID, "--router-bias-rate %g: model %s has no bias that chooses experts: leave it out",
                           s->router_bias_rate, m->config.name);
    if (s->router_bias_rate > 0 && m->adapter_params > 0)
        return status_fail(ERR_INVALID,
                           "--router-bias-rate %g: adapters' files have no biases of routers: leave it out, or --lora",
                           s->router_bias_rate);
    return OK;
}

/* Refuses to train an adapter with more rows of tokens than `tokens` of --lora can list. */
static enum status check_tokens(const struct settings *s)
{
    if (s->plan.evaluation || !s->plan.lora.tokens_put)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--adapter: %s has rows of more tokens (trainable_token_indices) than are trained by themselves, %d, or than "
        "%d characters list: ltrain export --model %s --to DIR merges them, and --model DIR --lora ... goes on from there",
        s->adapter, LORA_MOST_TOKENS, LORA_TEXT - 1, s->adapter);
}

/* Checks that a model's adapters and its quantised base can do what the settings ask. */
static enum status check_opened(const struct settings *s, const struct model *m)
{
    char idle[256];
    TRY(train_blame_adapter(s, model_check_adapters(m)));
    TRY(check_router_bias(s, m));
    if (!s->plan.evaluation && !s->adapter && !s->resume)
        TRY(refuse_quantised(s, m));
    return s->adapter ? OK : model_check_patterns(m, idle, sizeof idle); /* PEFT's files may have idle patterns */
}

enum status train_open_model(const struct settings *s, struct model **out)
{
    struct model_config config;
    struct model *m = NULL;
    if (model_is_preset(s->model)) {
        TRY(model_preset(s->model, &config));
    } else {
        TRY(read_config(s, &config));
    }
    if (s->strict_config && config.unknown[0])
        return status_fail(
            ERR_INVALID, "%s/config.json: ltrain does not know %s; without --strict-config it computes as if that were not there",
            s->model, config.unknown);
    TRY(model_config_set_rope(&config, s->rope, s->rope_base));
    TRY(set_router_aux(s, &config));
    if (!s->max_seq && s->plan.seq_len > config.max_positions && model_learns_positions(&config))
        return status_fail(ERR_INVALID, "model %s has learned positions for %lld tokens; --seq-len %lld is longer", config.name,
                           (long long)config.max_positions, (long long)s->plan.seq_len);
    if (s->plan.keep_inputs > config.layers)
        return status_fail(ERR_INVALID, "--keep-inputs %lld: model %s has %d layers", (long long)s->plan.keep_inputs, config.name,
                           (int)config.layers);
    config.positions = s->plan.seq_len;
    if (!s->plan.evaluation && s->plan.freeze.n == 1 && strcmp(s->plan.freeze.item[0], MODEL_FREEZE_ALL) == 0)
        return status_fail(ERR_INVALID, "--freeze: every parameter is frozen; leave some to train");
    TRY(check_tokens(s));
    config.lora = s->plan.lora;
    config.lora.tokens_put = s->plan.evaluation;
    TRY(settle_base(s, &config));
    if (!s->plan.evaluation && config.lora.rank > 0 && s->plan.freeze.n > 0)
        return status_fail(ERR_INVALID,
                           "--freeze: with --lora all that is no adapter is frozen, but for modules-to-save: leave out --freeze");
    TRY(train_blame_adapter(s, model_create(&config, (const char *const *)s->plan.freeze.item, s->plan.freeze.n, &m)));
    enum status st = check_opened(s, m);
    if (st == OK)
        *out = m;
    else
        model_destroy(m);
    return st;
}

/* ---- all inputs ---- */

/* Notes tensors that are in more than one file; other programs take the copy of the last file. */
static void say_left_out(const struct st_file *f, FILE *notes)
{
    const char *first;
    int n = st_left_out(f, &first);
    const char *more = n > 1 ? ", and more tensors," : "";
    if (n > 0 && st_has(f, first))
        fprintf(
            notes,
            "note: %s%s in more than one file: the copy in %s counts, as the index says; transformers 5.24 takes that of the last shard\n",
            first, more, st_path(f, first));
    else if (n > 0)
        fprintf(notes, "note: %s%s in another file than the index says: left out\n", first, more);
}

static enum status say_others(const struct st_file *f, const struct model *m, FILE *notes)
{
    struct weights_others x;
    char bytes[32], first[WRAPPED_NAME];
    TRY(weights_others(f, m, &x));
    if (x.n > 0) {
        snprintf(first, sizeof first, "%s", x.names[0]);
        fprintf(notes, "note: %s: %d other tensors (%s and so on, %s) are exported as they are\n",
                m->config.wrapped ? "only the text model is trained" : "layers that predict further tokens are not trained", x.n,
                first, units_format_bytes(x.bytes, bytes));
    }
    weights_others_free(&x);
    return OK;
}

/* Checks a new run's weights; they are read later, once there is room for them. */
enum status run_check_weights(const struct settings *s, const struct model *m, FILE *notes)
{
    struct st_file *f;
    if (s->resume)
        return OK;
    if (model_is_preset(s->model))
        return s->ignore_tensors.n == 0 ? OK
                                        : status_fail(ERR_INVALID,
                                                      "--ignore-tensors: --model %s is a preset, without files: "
                                                      "leave it out",
                                                      s->model);
    TRY(st_open(s->model, &f));
    enum status st = weights_check(f, m, (const char *const *)s->ignore_tensors.item, s->ignore_tensors.n);
    if (st == OK && notes)
        say_left_out(f, notes);
    if (st == OK && notes && !s->plan.evaluation)
        st = say_others(f, m, notes);
    st_close(f);
    return st;
}

static enum status check_adapter(const struct settings *s, const struct model *m)
{
    struct source src;
    if (s->resume || !s->adapter)
        return OK;
    TRY(source_open(m, NULL, s->adapter, 0, &src));
    enum status st = source_check_adapter(&src);
    source_close(&src);
    return st;
}

static enum status open_inputs(struct run *r)
{
    TRY(train_open_model(r->s, &r->model));
    TRY(run_check_weights(r->s, r->model, tell_stream()));
    TRY(check_adapter(r->s, r->model));
    return drives_check((const char *const *)r->s->nvme_path.item, r->s->nvme_path.n, r->s->out);
}

int run_has_no_corpus(const struct run *r)
{
    return r->hooks && r->hooks->take;
}

enum status run_open(struct run *r)
{
    struct comm *c = r->comm;
    if (r->s->mode == MODE_CHAOS && comm_size(c) > 1)
        return comm_agree(
            c, status_fail(ERR_INVALID,
                           "mode chaos executes a program out of order, which one rank alone can do: leave out --ranks"));
    if (r->s->plan.machine)
        return comm_agree(c,
                          status_fail(ERR_INVALID, "--machine: %s is planned for, not trained on: `ltrain plan` takes --machine",
                                      r->s->plan.machine));
    int asked = train_planned_ranks(r->s);
    if (asked > 1 && comm_size(c) == 1)
        return status_fail(
            ERR_INVALID, "the mesh is of %d ranks, and this is a single process: add --ranks %d, or start it with mpiexec -n %d",
            asked, asked, asked);
    run_begin_reading(r);
    enum status st = comm_agree(c, open_inputs(r));
    if (st == OK && !run_has_no_corpus(r))
        st = run_open_data(r);
    if (st == OK)
        st = comm_agree(c, run_describe_data(r));
    if (st == OK)
        st = run_compare_inputs(r);
    run_end_reading();
    return st;
}
