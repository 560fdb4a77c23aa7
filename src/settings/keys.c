/* The table of keys, and looking up names in it. */
#include "settings/keys.h"

#include "base/names.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct settings, field)
#define LIMITS(lo, hi) .min = lo, .max = hi
#define FP32 LIMITS(0, 1e38)
#define STEPS(lo) LIMITS(lo, SETTINGS_MOST_STEPS), .counts_steps = 1
#define SEQUENCES LIMITS(1, SETTINGS_MOST_SEQUENCES)
#define BYTES(lo) LIMITS(lo, SETTINGS_MOST_BYTES)

/* Sets of commands, for the members `shown` and `required` of keys. */
#define TRAIN SETTINGS_TRAIN
#define PLAN SETTINGS_PLAN
#define DATA SETTINGS_DATA
#define SAMPLE SETTINGS_SAMPLE
#define EVAL SETTINGS_EVAL
#define REPLAY SETTINGS_REPLAY
#define ALL (SETTINGS_ANY & ~(unsigned)SETTINGS_REPLAY)

static const char *const devices[] = {"auto", "cpu", "cpu:discrete", "cuda", NULL};
static const char *const efforts[] = {"best", "normal", "quick", NULL};
static const char *const updates[] = {"auto", "device", "host", NULL};
static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const moment_types[] = {"fp32", "bf16", "int8", NULL};
const char *const settings_schedules[] = {"constant", "linear", "cosine", "wsd", NULL};
static const char *const bases[] = {"auto", "none", "nf4", "int8", "mxfp4", NULL};
static const char *const carriers[] = {"auto", "nccl", "staged", NULL};
static const char *const sharings[] = {"auto", "none", "ulysses", "ring", NULL};
static const char *const turns[] = {"split", "whole", NULL};
static const char *const trained_turns[] = {"assistant", "last", "all", NULL};
static const char *const token_types[] = {"none", "u16", "u32", NULL};
static const char *const packings[] = {"best-fit", "concat", NULL};
static const char *const longer_ones[] = {"split", "drop", "truncate", "refuse", NULL};
static const char *const on_changed_data[] = {"stop", "continue", NULL};
static const char *const save_failures[] = {"continue", "stop", NULL};
static const char *const nan_reactions[] = {"skip", "stop", NULL};
static const char *const stops[] = {"now", "step", NULL};
static const char *const modes[] = {"run", "chaos", NULL};

const char *const settings_tiers[] = {"auto", "none", "cpu", "nvme", NULL};
const char *const settings_classes[] = {"params", "grads", "optim", "acts", "passing", "experts", NULL};
const char *const settings_layer_kinds[] = {"window", "full", NULL};
const char *const settings_tile_names[] = {"rows", "heads", "loss", "group", NULL};

_Static_assert(sizeof(enum device_kind) == sizeof(int) && sizeof(enum offload) == sizeof(int) &&
                   sizeof(enum dtype) == sizeof(int),
               "KEY_CHOICE stores ints");
_Static_assert(F32 == 0 && BF16 == 1 && I8 == 2 && DEVICE_CUDA == 3 && UPDATE_HOST == 2 && SP_RING == 3 && EFFORT_QUICK == 2 &&
                   SCHEDULE_WSD == 3 && STOP_STEP == 1 && MODE_CHAOS == 1 && DATA_CHANGED_CONTINUE == 1 &&
                   SAVE_FAILURE_STOP == 1 && PACK_CONCAT == 1 && FROZEN_NF4 == 2 && FROZEN_INT8 == 3 && FROZEN_MXFP4 == 4 &&
                   TOKEN_U32 == 2 && LONGER_REFUSE == 3 && OFFLOAD_AUTO == 0 && OFFLOAD_NONE == 1 && OFFLOAD_CPU == 2 &&
                   OFFLOAD_NVME == 3,
               "choices are in the order of their enums");

_Static_assert((int64_t)SETTINGS_MOST_STEPS *SETTINGS_MOST_SEQUENCES < INT64_MAX / 2 &&
                   (int64_t)SETTINGS_MOST_SEQUENCES * SETTINGS_MOST_TOKENS < INT64_MAX / 2,
               "sequences of a run and tokens of a step fit 64 bits");

/* clang-format off */
const struct settings_key settings_keys[] = {
    {"model", KEY_STRING, AT(model), .group = "Model and data", .arg = "DIR", .shown = ALL | REPLAY, .required = ALL, .example = "model: tiny",
     .help = "Hugging Face directory, or a preset: tiny, 25m, 125m, 1b, 8b, gpt2-tiny, gpt2-125m, gpt-25b, moe-20m"},
    {"adapter", KEY_STRING, AT(adapter), .arg = "DIR", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY, .flags = KEY_OF_MODEL,
     .help = "adapters, as PEFT saves them, on top of the model (where --model is such a directory: that, and its base)"},
    {"ignore-tensors", KEY_LIST, AT(ignore_tensors), .arg = "GLOB,...", .shown = TRAIN | SAMPLE | EVAL, .flags = KEY_OF_MODEL,
     .help = "tensors of the model's files that nothing uses and that are left out"},
    {"rope", KEY_STRING, AT(rope), .arg = "KIND:FACTOR", .shown = TRAIN | PLAN | SAMPLE | EVAL, .flags = KEY_OF_MODEL,
     .help = "stretch rotary positions for sequences longer than the model was trained for: yarn:4, linear:2, llama3:8, dynamic:4; none: "
             "without config.json's scaling"},
    {"rope-base", KEY_NUMBER, AT(rope_base), "0", LIMITS(0, 1e15), .arg = "X", .shown = TRAIN | PLAN | SAMPLE | EVAL, .flags = KEY_OF_MODEL,
     .help = "base of rotary positions, as 8e6; 0: config.json's"},
    {"strict-config", KEY_SWITCH, AT(strict_config), "false", .shown = TRAIN | PLAN | SAMPLE | EVAL,
     .help = "keys of config.json that ltrain does not know are an error, not a warning"},
    {"data", KEY_LIST, AT(data), .arg = "PATH,...",
     .shown = TRAIN | DATA | EVAL | REPLAY, .flags = KEY_WEIGHED, .required = TRAIN | DATA, .example = "data: texts/*.txt", .scope = SCOPE_TRAINING_DATA,
     .help = "files, directories, globs; with weights: books=0.7,chats=0.3 (shares of the tokens)"},
    {"data-exclude", KEY_LIST, AT(data_exclude), .arg = "GLOB,...", .shown = TRAIN | DATA | EVAL | REPLAY, .scope = SCOPE_ROWS,
     .help = "files that directories and globs of --data and --eval-data leave out: names ('*.log'), or paths below them ('drafts/**')"},
    {"tokenizer", KEY_STRING, AT(tokenizer), .arg = "DIR", .shown = TRAIN | DATA | SAMPLE | EVAL | REPLAY, .flags = KEY_OF_MODEL,
     .help = "whose tokenizer reads the data; bytes: none (default: the model's, else bytes)"},
    {"text-column", KEY_STRING, AT(text_column), .arg = "NAME", .shown = TRAIN | DATA | EVAL, .scope = SCOPE_ROWS,
     .help = "member of rows of .jsonl or .parquet files that is the text (default: text)"},
    {"append-eos", KEY_CHOICE, AT(append_eos), "no", .choices = no_yes, .arg = "WORD", .shown = TRAIN | DATA | EVAL, .scope = SCOPE_TEXTS,
     .help = "yes: text files and rows of text end with the tokenizer's eos token, where neither it nor they put one there"},
    {"token-type", KEY_CHOICE, AT(token_type), "none", .choices = token_types, .arg = "TYPE",
     .shown = TRAIN | DATA | EVAL, .scope = SCOPE_TEXTS,
     .help = "of ids in .bin files that have no header: u16, u32; none: such files are an error"},
    {"token-cache", KEY_STRING, AT(token_cache), .arg = "DIR", .shown = TRAIN | DATA | EVAL | REPLAY, .scope = SCOPE_DATA,
     .help = "where tokens are kept for the next run (default: ~/.cache/ltrain/tokens)"},
    {"chat-template", KEY_STRING, AT(chat_template), .arg = "NAME",
     .shown = TRAIN | DATA | SAMPLE | EVAL, .flags = KEY_OF_MODEL, .scope = SCOPE_CHATS,
     .help = "of conversations in .jsonl or .parquet files: a directory, a .jinja file, a name of the tokenizer's templates, or chatml, llama3, ... (default: the tokenizer's)"},
    {"template-var", KEY_LIST, AT(template_var), .arg = "NAME=VALUE,...",
     .shown = TRAIN | DATA | SAMPLE | EVAL, .flags = KEY_OF_MODEL, .scope = SCOPE_CHATS,
     .help = "variables of the chat template, in every conversation: enable_thinking=false; a row's chat_template_kwargs win"},
    {"train-on", KEY_CHOICE, AT(train_on), "assistant", .choices = trained_turns, .arg = "WORD",
     .shown = TRAIN | DATA | EVAL, .scope = SCOPE_TRAIN_ON,
     .help = "of conversations: assistant (all its turns), last (the last one), all (every token)"},
    {"chat-turns", KEY_CHOICE, AT(turns), "split", .choices = turns, .arg = "WORD", .shown = TRAIN | DATA | EVAL, .scope = SCOPE_TEXTS,
     .help = "conversations whose earlier turns the template writes otherwise (without reasoning): split (a sample for each trained "
             "turn), whole (one, in which they are trained as they stand)"},
    {"packing", KEY_CHOICE, AT(packing), "best-fit", .choices = packings, .arg = "WAY",
     .shown = TRAIN | DATA, .scope = SCOPE_PACKING,
     .help = "of documents into sequences: best-fit cuts none that fits into one and pads; concat cuts wherever one ends, and drops the "
             "tail"},
    {"too-long", KEY_CHOICE, AT(too_long), "split", .choices = longer_ones, .arg = "WORD",
     .shown = TRAIN | DATA, .scope = SCOPE_PACKING, .help = "documents longer than a sequence: split, drop, truncate, refuse"},
    {"eval-data", KEY_LIST, AT(eval_data), .arg = "PATH,...", .shown = TRAIN | DATA | EVAL | REPLAY, .scope = SCOPE_DATA,
     .help = "what the loss is evaluated on"},
    {"eval-fraction", KEY_NUMBER, AT(eval_fraction), "0", LIMITS(0, 1), .arg = "X",
     .shown = TRAIN | DATA, .flags = KEY_BELOW_MAX | KEY_OF_A_RUN, .scope = SCOPE_PACKING,
     .help = "share of data kept for evaluation, without --eval-data"},
    {"eval-every", KEY_COUNT, AT(plan.eval_every), "0", STEPS(0), .arg = "STEPS",
     .shown = TRAIN, .flags = KEY_OF_A_RUN, .scope = SCOPE_EVALUATION, .help = "how often the loss is evaluated; 0: never"},
    {"eval-before", KEY_SWITCH, AT(plan.eval_before), "false", .shown = TRAIN, .flags = KEY_OF_A_RUN, .scope = SCOPE_EVALUATION,
     .help = "the loss is evaluated before the first step, too"},
    {"seq-len", KEY_LENGTHS, AT(plan.seq_len), LIMITS(2, SETTINGS_MOST_TOKENS),
     .arg = "N",
     .shown = ALL, .required = TRAIN | PLAN, .example = "seq-len: 4096",
     .help = "tokens per sequence: 4096, 420k, 1m; 8k@1000,64k@500,420k: 8k for 1000 steps, then 64k for 500, then 420k"},
    {"micro-batch", KEY_COUNT, AT(plan.micro_batch), "auto", "auto", SEQUENCES, .arg = "N", .shown = TRAIN | PLAN | EVAL,
     .help = "sequences computed together, one after another in the rows of a micro-batch; auto: as many as make the step of --batch fastest, else 1"},
    {"grad-accum", KEY_COUNT, AT(plan.grad_accum), "1", SEQUENCES, .arg = "N", .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "micro-batches per step and data-parallel rank, one after the other"},
    {"batch", KEY_COUNT, AT(plan.batch), "auto", "auto", SEQUENCES, .arg = "N", .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "sequences per step over all ranks; auto: --grad-accum x --micro-batch x dp"},

    {"zero", KEY_INT, AT(plan.zero), "3", "auto", LIMITS(0, 3), .group = "Memory", .arg = "0..3", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "what is partitioned over the ranks: 1 optimizer state, 2 also gradients, 3 also parameters; auto: the stage that is fastest, 1 to 3, as without --zero where --mesh has pp"},
    {"offload", KEY_OFFLOAD, .value = "auto", .arg = "TIER", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "where data live: none (on the device), cpu (in host memory), nvme (on drives), auto; or per class: "
             "params=nvme,grads=cpu,optim=nvme,acts=cpu,passing=none (passing: hidden states from layer to layer; no farther away than acts), experts=nvme (all that is trained or frozen of experts)"},
    {"alpha", KEY_ALPHA, .value = "auto", .unset = "auto", LIMITS(0, 1), .arg = "X", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "share of row chunks whose recomputable activations are kept, not computed again: 0 saves memory, 1 time; window=X,full=X where only some layers have a window"},
    {"keep-inputs", KEY_COUNT, AT(plan.keep_inputs), "auto", "auto", LIMITS(1, 65536), .arg = "K", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "layer inputs are kept of every K-th layer, the others computed again from theirs; auto: all, unless memory limits"},
    {"prefetch", KEY_NUMBER, AT(plan.prefetch), "auto", "auto", LIMITS(0, 1e6), .arg = "N", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "how far ahead data are fetched, in row chunks of compute; 0: least memory"},
    {"stage-ahead", KEY_INT, AT(plan.stage_ahead), "auto", "auto", LIMITS(0, 1), .arg = "0|1", .shown = TRAIN | PLAN | REPLAY, .scope = SCOPE_STEPS,
     .help = "1: what passes between stages (--mesh pp) travels a tick later, hidden behind compute, which takes more ticks; 0: at once; auto: what is planned to be faster"},
    {"update", KEY_CHOICE, AT(plan.update), "auto", .choices = updates, .arg = "WHERE", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "where AdamW runs"},
    {"device", KEY_DEVICE, .value = "auto", .choices = devices, .arg = "NAME", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "where the model runs; cuda:N: on GPU N, else on the local rank's; auto: a GPU, if kernels run on one that is here"},
    {"device-mem", KEY_BYTES, AT(plan.device_mem), "auto", "auto", BYTES(1), .arg = "BYTES", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "budget on the device: 256M, 80G; auto: what is free"},
    {"host-mem", KEY_BYTES, AT(plan.host_mem), "auto", "auto", BYTES(1), .arg = "BYTES", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "budget on the host; with --machine: of each node"},
    {"nvme-max", KEY_BYTES, AT(plan.nvme_max), "auto", "auto", BYTES(0), .arg = "BYTES", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "budget on the nvme tier; with --machine: of each node; auto: 95% of what is free there"},
    {"nvme-path", KEY_LIST, AT(nvme_path), .arg = "DIR,...", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "directories, striped (default: the run's directory)"},
    {"drive-timeout", KEY_NUMBER, AT(drive_timeout), "600", LIMITS(0, 1e9), .arg = "SECONDS", .shown = TRAIN | SAMPLE | EVAL | REPLAY, .flags = KEY_ABOVE_MIN,
     .help = "longest wait for an answer of a drive or file system"},
    {"device-timeout", KEY_NUMBER, AT(device_timeout), "600", LIMITS(0, 1e9), .arg = "SECONDS",
     .shown = TRAIN | SAMPLE | EVAL | REPLAY, .flags = KEY_ABOVE_MIN, .help = "longest wait for what a GPU was given to do"},
    {"link-gbps", KEY_NUMBER, AT(plan.link_gbps), "0", LIMITS(0, 1e6), .least = 1e-6, .arg = "X", .shown = TRAIN | PLAN | EVAL | REPLAY,
     .help = "speed of the links of cpu:discrete; 0: unlimited"},

    {"machine", KEY_STRING, AT(plan.machine), .arg = "NAME", .shown = TRAIN | PLAN | EVAL,
     .help = "plan for a machine that is not here: a100-40, a100-80, h100, h100-pcie, h200, gh200, l40s, l4, a40, a10, rtxa6000, "
             "rtx6000ada, rtx3090, rtx4090, rtx4090-laptop, several: 4xa100-40, or a YAML file"},
    {"nvme", KEY_DRIVES, .value = "auto", .unset = "auto", LIMITS(0.001, 1e6), .arg = "NxRATE", .shown = TRAIN | PLAN | EVAL,
     .help = "drives of each of its nodes, and what one of them really reads: 4x7GB/s; none"},

    {"mesh", KEY_MESH, .value = "auto", .unset = "auto", LIMITS(1, SETTINGS_MOST_RANKS), .group = "Ranks", .arg = "SIZES",
     .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS, .help = "dp=N,ulysses=N,ring=N,tp=N,pp=N,slices=N,ep=N, those not named auto: whole sequences, heads, tokens, slices of layers, layers (which take a sequence in slices) and experts shared out"},
    {"stage-layers", KEY_STAGES, AT(plan.stage_layers), "auto", "auto", LIMITS(1, 32767), .arg = "N,N,...", .shown = TRAIN | PLAN | REPLAY, .scope = SCOPE_STEPS,
     .help = "layers of each stage of --mesh pp, as 10,10,6,6 where the first two stages are faster; auto: evenly or, of a machine with islands, by their speeds"},
    {"sp", KEY_CHOICE, AT(sp), "auto", .choices = sharings, .arg = "KIND", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "how ranks share a sequence"},
    {"ranks", KEY_INT, AT(plan.ranks), "auto", "auto", LIMITS(1, SETTINGS_MOST_RANKS), .arg = "N", .shown = TRAIN | PLAN | EVAL | REPLAY,
     .help = "start N processes on this machine, without calling mpiexec"},
    {"grad-dtype", KEY_CHOICE, AT(plan.grad_dtype), "fp32", .choices = dtypes, .arg = "TYPE", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "of gradients between ranks; their sums stay fp32"},
    {"comm", KEY_CHOICE, AT(carrier), "auto", .choices = carriers, .arg = "WAY", .shown = TRAIN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "between GPUs: nccl, or staged through host memory; auto: nccl where each rank has a GPU of its own"},
    {"comm-timeout", KEY_NUMBER, AT(comm_timeout), "600", LIMITS(0, 1e9), .arg = "SECONDS", .shown = TRAIN | EVAL | REPLAY, .flags = KEY_ABOVE_MIN,
     .help = "longest wait for another rank, stopped or slow; a dead one ends the run at once"},
    {"rank", KEY_LAUNCH, LIMITS(0, SETTINGS_MOST_RANKS - 1), .arg = "N", .shown = TRAIN | EVAL | REPLAY, .flags = KEY_FLAG_ONLY,
     .help = "this process's number, where no launcher says it"},
    {"world-size", KEY_LAUNCH, LIMITS(1, SETTINGS_MOST_RANKS), .arg = "N", .shown = TRAIN | EVAL | REPLAY, .flags = KEY_FLAG_ONLY,
     .help = "how many ranks there are, beside --rank"},
    {"local-rank", KEY_LAUNCH, LIMITS(0, SETTINGS_MOST_RANKS - 1), .arg = "N", .shown = TRAIN | EVAL | REPLAY, .flags = KEY_FLAG_ONLY,
     .help = "number among the ranks on this machine"},

    {"dtype", KEY_DTYPE, .value = "auto", .unset = "auto", .choices = dtypes, .group = "Numerics", .arg = "TYPE",
     .shown = TRAIN | PLAN | SAMPLE | EVAL, .help = "storage; master weights and sums stay fp32; auto: bf16 on GPUs, fp32 on processors"},
    {"optim-dtype", KEY_CHOICE, AT(plan.optim_dtype), "fp32", .choices = moment_types, .arg = "TYPE",
     .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "of AdamW's moments; bf16 and int8 (in blocks of 256) are rounded stochastically"},
    {"tiles", KEY_TILES, .value = "auto", .unset = "auto", LIMITS(1, SETTINGS_MOST_TOKENS), .arg = "SIZES",
     .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY,
     .help = "sizes of the parts that a step is computed in: rows=N,heads=N,loss=N,group=N, those not named auto; they change memory, speed and rounding"},
    {"threads", KEY_INT, AT(plan.threads), "auto", "auto", LIMITS(1, 4096), .arg = "N", .shown = ALL | REPLAY, .help = "compute threads"},
    {"deterministic", KEY_CHOICE, AT(plan.deterministic), "yes", .choices = no_yes, .arg = "WORD", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "no: on GPUs other than Hopper, backward attention may be faster, with other bits every time"},
    {"seed", KEY_SEED, AT(seed), "1", .arg = "N", .shown = TRAIN | SAMPLE | EVAL, .help = "of initial values and data order"},

    {"steps", KEY_COUNT, AT(plan.steps), "100", STEPS(1), .group = "Training", .arg = "N", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "optimizer steps"},
    {"epochs", KEY_NUMBER, AT(epochs), "0", LIMITS(0, 1e6), .arg = "X", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "passes over the training sequences, in place of --steps; 0: --steps says when a run ends"},
    {"lr", KEY_NUMBER, AT(lr), "3e-4", FP32, .arg = "X", .shown = TRAIN, .flags = KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "peak learning rate"},
    {"schedule", KEY_CHOICE, AT(schedule), "constant", .choices = settings_schedules, .arg = "NAME",
     .shown = TRAIN, .scope = SCOPE_TRAINING, .help = "of the learning rate after the warmup"},
    {"warmup", KEY_COUNT, AT(warmup), "0", STEPS(0), .arg = "STEPS", .shown = TRAIN, .scope = SCOPE_TRAINING, .help = "linear, from zero"},
    {"weight-decay", KEY_NUMBER, AT(weight_decay), "0.1", FP32, .arg = "X", .shown = TRAIN, .flags = KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "of matrices"},
    {"betas", KEY_BETAS, .value = "0.9,0.95", LIMITS(0, 1), .arg = "X,X",
     .shown = TRAIN, .flags = KEY_BELOW_MAX | KEY_FP32, .scope = SCOPE_TRAINING, .help = "of AdamW"},
    {"eps", KEY_NUMBER, AT(eps), "1e-8", FP32, .arg = "X", .shown = TRAIN, .flags = KEY_ABOVE_MIN | KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "of AdamW"},
    {"clip", KEY_NUMBER, AT(clip), "1", FP32, .arg = "X", .shown = TRAIN, .flags = KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "limit of the gradients' global norm; 0: none"},
    {"router-aux", KEY_NUMBER, AT(router_aux), "auto", "auto", FP32, .arg = "X", .shown = TRAIN | PLAN, .flags = KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "coefficient of the auxiliary loss that evens out the load of experts; 0: none; auto: config.json's router_aux_loss_coef if "
             "its output_router_logits is on, else 0"},
    {"router-bias-rate", KEY_NUMBER, AT(router_bias_rate), "0", FP32, .arg = "X", .shown = TRAIN, .flags = KEY_FP32, .scope = SCOPE_TRAINING,
     .help = "amount by which each step moves the bias that chooses experts, up for those with few tokens, down for those with many; 0: none"},
    {"freeze", KEY_LIST, AT(plan.freeze), .arg = "GLOB,...", .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "names of parameters that are not trained"},
    {"lora", KEY_LORA, AT(plan.lora), "none", "none", .arg = "r=N,...",
     .shown = TRAIN | PLAN | EVAL, .flags = KEY_OF_A_RUN, .scope = SCOPE_ADAPTERS,
     .help = "train adapters of rank r in place of the model: r=16,alpha=32,dropout=0.05,targets=all-linear (with experts; or "
             "names, as q_proj,experts.down_proj,mlp.gate, or a regular expression), exclude-modules=NAMES, layers-to-transform=NUMBERS, rslora=yes, modules-to-save=NAMES"},
    {"base", KEY_CHOICE, AT(plan.base), "auto", .choices = bases, .arg = "TYPE",
     .shown = TRAIN | PLAN | SAMPLE | EVAL, .flags = KEY_OF_MODEL,
     .help = "what frozen matrices of layers are kept as, beside adapters or to evaluate: nf4 (4.13 bits an element, QLoRA), int8 (8 "
             "bits), mxfp4 (experts of gpt-oss, as its files have them), none: the storage type; auto: as the model's or adapter's files "
             "say, else none"},

    {"effort", KEY_CHOICE, AT(plan.effort), "normal", .choices = efforts, .group = "Planning", .arg = "WORD", .shown = TRAIN | PLAN | EVAL | REPLAY, .scope = SCOPE_STEPS,
     .help = "how much is searched: quick (a few placements, in a second), normal (seconds), best (several times as long, steps about 1% "
             "faster)"},
    {"json", KEY_SWITCH, AT(json), "false", .group = "ltrain plan",
     .shown = TRAIN | PLAN | SAMPLE | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_JSON,
     .help = "JSON instead of the table (docs/plan-json.md)"},
    {"max-seq", KEY_SWITCH, AT(max_seq), "false", .shown = TRAIN | PLAN | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_MAX_SEQ,
     .help = "the longest sequence that fits, instead of --seq-len"},
    {"explain", KEY_SWITCH, AT(explain), "false", .shown = TRAIN | PLAN | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_EXPLAIN,
     .help = "each decision, and what another one would cost"},
    {"svg", KEY_STRING, AT(svg), .arg = "FILE", .shown = TRAIN | PLAN | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_SVG,
     .help = "a picture of the step: what its lanes do and what memory holds; of ltrain eval: scores by length and depth"},

    {"tasks", KEY_LIST, AT(tasks), .group = "ltrain eval", .arg = "TASK,...", .shown = EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_EVAL,
     .help = "what is evaluated: ppl (perplexity), position (loss by position) (default: both); generated and answered: needle, "
             "multi-needle, multikey, tracking, counting, aggregation, shuffled"},
    {"lengths", KEY_LIST, AT(lengths), .arg = "N,N..M", .shown = EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_EVAL,
     .help = "of the windows, or of prompts with their answers; N..M: from N on doubled up to M (default: --seq-len)"},
    {"stride", KEY_COUNT, AT(stride), "auto", "auto", LIMITS(1, SETTINGS_MOST_TOKENS),
     .arg = "N",
     .shown = EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_STRIDE,
     .help = "tokens from one window to the next; auto: windows do not overlap"},
    {"depths", KEY_LIST, AT(depths), .arg = "X,...", .shown = EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_EVAL,
     .help = "of tasks: where in the text things are hidden, in percent; a number alone is how many there are from 0 to 100 (default: "
             "0,25,50,75,100)"},
    {"write-samples", KEY_STRING, AT(write_samples), .arg = "FILE", .shown = EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_EVAL,
     .help = "the tasks' samples are written there, as .jsonl to train on, in place of being answered"},

    {"samples", KEY_COUNT, AT(samples), "3", LIMITS(0, 1000000),
     .group = "ltrain data", .arg = "N",
     .shown = TRAIN | DATA | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_SAMPLES,
     .help = "documents shown, spread over the data; of ltrain eval: answers for each length and depth of a task"},

    {"prompt", KEY_STRING, AT(prompt), .group = "ltrain sample", .arg = "TEXT",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_TEXT, .scope = SCOPE_SAMPLE,
     .help = "what is read on (default: a chat on a terminal, else standard input)"},
    {"prompt-file", KEY_STRING, AT(prompt_file), .arg = "FILE", .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_TEXT, .scope = SCOPE_SAMPLE,
     .help = "the prompt is in that file; -: standard input"},
    {"chat", KEY_SWITCH, AT(chat), .shown = SAMPLE | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_ANSWERING,
     .help = "the prompt is what a user says, by the model's chat template; without a prompt: a conversation"},
    {"system", KEY_STRING, AT(system), .arg = "TEXT", .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_TEXT, .scope = SCOPE_SAMPLE,
     .help = "system message of a chat"},
    {"max-new-tokens", KEY_COUNT, AT(max_new_tokens), "auto", "auto", LIMITS(1, SETTINGS_MOST_TOKENS),
     .arg = "N",
     .shown = SAMPLE | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_ANSWERS,
     .help = "tokens of an answer at most; auto: 256, in a conversation as many as there is room for, of a task 16 more than a right "
             "answer has"},
    {"temperature", KEY_NUMBER, AT(temperature), "auto", "auto", LIMITS(0, 1000), .arg = "X",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY, .scope = SCOPE_SAMPLE,
     .help = "0: always the best token; auto, for these five: the model's generation_config.json if it samples, else the best token"},
    {"top-k", KEY_COUNT, AT(top_k), "auto", "auto", LIMITS(0, SETTINGS_MOST_TOKENS), .arg = "N",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY, .scope = SCOPE_SAMPLE, .help = "only the N best tokens; 0: all"},
    {"top-p", KEY_NUMBER, AT(top_p), "auto", "auto", LIMITS(0, 1), .arg = "X",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_ABOVE_MIN, .scope = SCOPE_SAMPLE,
     .help = "only the best tokens that have that probability together"},
    {"min-p", KEY_NUMBER, AT(min_p), "auto", "auto", LIMITS(0, 1), .arg = "X",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY, .scope = SCOPE_SAMPLE,
     .help = "only tokens that have that share of the best one's probability"},
    {"repetition-penalty", KEY_NUMBER, AT(repetition_penalty), "auto", "auto", LIMITS(0, 1000),
     .arg = "X",
     .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_ABOVE_MIN, .scope = SCOPE_SAMPLE,
     .help = "above 1: tokens that were there already are less likely"},
    {"stop-at", KEY_LIST, AT(stop_at), .arg = "TEXT,...", .shown = SAMPLE, .flags = KEY_FLAG_ONLY | KEY_TEXT, .scope = SCOPE_SAMPLE,
     .help = "texts that end an answer, which is left without them"},

    {"config", KEY_CONFIG, .group = "The run", .arg = "FILE", .shown = ALL, .flags = KEY_FLAG_ONLY,
     .help = "YAML file of these keys (default: ltrain.yaml, if there is one)"},
    {"resume", KEY_STRING, AT(resume), .arg = "DIR", .shown = TRAIN | EVAL, .flags = KEY_FLAG_ONLY,
     .help = "continue the run in DIR at its newest checkpoint, with its config.yaml"},
    {"data-changed", KEY_CHOICE, AT(data_changed), "stop", .choices = on_changed_data, .arg = "WORD",
     .shown = TRAIN | EVAL, .flags = KEY_FLAG_ONLY, .scope = SCOPE_RESUMED,
     .help = "where a resumed run finds other data than its checkpoint was trained on: stop, or continue with those, in another order"},
    {"out", KEY_STRING, AT(out), .arg = "DIR", .shown = TRAIN, .scope = SCOPE_OUT, .help = "the run's directory (default: runs/DATE-MODEL)"},
    {"save-every", KEY_COUNT, AT(save_every), "0", STEPS(0), .arg = "STEPS", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "checkpoints; 0: none on the way"},
    {"keep", KEY_COUNT, AT(keep), "2", STEPS(1), .arg = "N", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "checkpoints kept, the newest"},
    {"on-save-failure", KEY_CHOICE, AT(on_save_failure), "continue", .choices = save_failures,
     .arg = "WORD",
     .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "when a checkpoint cannot be written: train on and try again at the next one, or stop"},
    {"on-nan", KEY_CHOICE, AT(on_nan), "skip", .choices = nan_reactions, .arg = "WORD", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "at a step whose gradient norm is not finite: skip it (three in a row end the run), or save and stop"},
    {"stop", KEY_CHOICE, AT(stop), "now", .choices = stops, .arg = "WHEN", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "on SIGTERM and the like: now (an update is finished, an unfinished step thrown away), or after the step"},
    {"walltime", KEY_STRING, AT(walltime), .arg = "TIME", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "the job's limit, counted from the start: 8h, 90m, [days-]hh:mm:ss; the run saves before it and ends with status 75; none (default: Slurm's, if it says one)"},
    {"dashboard", KEY_SWITCH, AT(dashboard), "false", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "a full-screen view of the run on a terminal: loss, memory, lanes, time to go; elsewhere lines as ever"},
    {"tensorboard", KEY_SWITCH, AT(tensorboard), "false", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "the numbers of metrics.jsonl as event files for TensorBoard, too, in RUN/tensorboard"},
    {"log-every", KEY_COUNT, AT(log_every), "1", STEPS(1), .arg = "STEPS", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "steps from one line of metrics.jsonl to the next, so that logs of long runs stay small; what adds up is summed"},
    {"metrics-file", KEY_STRING, AT(metrics_file), .arg = "FILE", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "the last step's numbers as a text file for Prometheus, replaced once a second: /var/lib/node_exporter/ltrain.prom"},
    {"verify-every", KEY_COUNT, AT(verify_every), "0", STEPS(0), .arg = "STEPS", .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "steps that are computed twice, to find silent corruption before it is saved (docs/reliability.md); 0: none"},
    {"scrub", KEY_SWITCH, AT(scrub), "false", .shown = TRAIN | PLAN, .scope = SCOPE_TRAINING,
     .help = "checksums of parameters and optimizer state in host memory, checked at each use (docs/reliability.md)"},
    {"trace", KEY_COUNT, AT(trace), "none", "none", STEPS(1), .arg = "STEP", .shown = TRAIN, .scope = SCOPE_TRAINING,
     .help = "step whose lanes are written as a Chrome trace"},
    {"profile", KEY_SWITCH, AT(profile), .shown = TRAIN | PLAN | EVAL | REPLAY, .flags = KEY_FLAG_ONLY,
     .help = "measure this machine before planning, in under a minute; kept for later plans and runs"},
    {"observed", KEY_STRING, AT(observed), .arg = "WORD", .shown = TRAIN | PLAN | EVAL | REPLAY,
     .help = "plan with what steps of an earlier run took here: auto (the newest run's), or its observed.yaml; no (default)"},
    {"verbose", KEY_SWITCH, AT(verbose), "false", .shown = TRAIN | PLAN | SAMPLE | EVAL | REPLAY, .help = "say more"},
    {"replay-steps", KEY_STRING, AT(replay_steps), .arg = "A..B", .flags = KEY_FLAG_ONLY, .scope = SCOPE_REPLAY, .help = "steps of ltrain replay"},
    {"length-tiles", KEY_LIST, AT(length_tiles), .arg = "LIST", .help = "of a curriculum's lengths, written by the run"},
    {"mode", KEY_CHOICE, AT(mode), "run", .choices = modes, .arg = "NAME", .help = "chaos: random legal orders"},
};
/* clang-format on */

_Static_assert(sizeof settings_keys / sizeof settings_keys[0] <= 8 * sizeof((struct settings *)0)->typed, "a bit for each key");
const int settings_n_keys = sizeof settings_keys / sizeof settings_keys[0];

/* Tells whether `said` is `name`, in which dashes may be written as underscores. */
static int names_equal(const char *said, const char *name)
{
    while (*name && (*name == *said || (*name == '-' && *said == '_'))) {
        name++;
        said++;
    }
    return !*name && !*said;
}

const struct settings_key *settings_key_find(const char *name)
{
    for (int i = 0; i < settings_n_keys; i++)
        if (names_equal(name, settings_keys[i].name))
            return &settings_keys[i];
    return NULL;
}

/* Returns the name of the key that corresponds to an option's name in other programs. */
static const char *name_elsewhere(const char *name)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"learning-rate", "lr"},
                 {"lr-scheduler-type", "schedule"},
                 {"warmup-steps", "warmup"},
                 {"max-grad-norm", "clip"},
                 {"batch-size", "batch"},
                 {"gradient-accumulation-steps", "grad-accum"},
                 {"sequence-length", "seq-len"},
                 {"max-length", "seq-len"},
                 {"max-seq-length", "seq-len"},
                 {"context-length", "seq-len"},
                 {"max-steps", "steps"},
                 {"num-steps", "steps"},
                 {"num-epochs", "epochs"},
                 {"num-train-epochs", "epochs"},
                 {"save-steps", "save-every"},
                 {"output-dir", "out"},
                 {"dataset", "data"},
                 {"precision", "dtype"},
                 {"bf16", "dtype"},
                 {"zero-stage", "zero"},
                 {"gpus", "ranks"},
                 {"num-gpus", "ranks"},
                 {"nproc-per-node", "ranks"},
                 {"drives", "nvme"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names_equal(name, names[i].theirs))
            return names[i].ours;
    return NULL;
}

const char *settings_key_suggest(const char *name)
{
    const char *names[sizeof settings_keys / sizeof settings_keys[0]];
    int n = 0;
    const char *ours = name_elsewhere(name);
    for (int i = 0; i < settings_n_keys; i++)
        if (settings_keys[i].shown)
            names[n++] = settings_keys[i].name;
    return ours ? ours : names_nearest(name, names, n);
}
