/* All settings that a user can make, resolved and typed; names are those of the command line and the YAML file. */
#ifndef LTRAIN_SETTINGS_SETTINGS_H
#define LTRAIN_SETTINGS_SETTINGS_H

#include "base/num.h"
#include "program/mesh.h"
#include "program/program.h"
#include "base/status.h"
#include "settings/lora.h"

#include <stdint.h>

#define SETTINGS_MAX_LIST 64

/* Limits of counts, chosen so that products of them fit 64 bits. */
#define SETTINGS_MOST_TOKENS (1 << 30)    /* tokens of a sequence; numbers of tokens have 32 bits */
#define SETTINGS_MOST_STEPS (1 << 30)     /* steps of a run, and checkpoints */
#define SETTINGS_MOST_SEQUENCES (1 << 20) /* sequences of a step, over all ranks */
#define SETTINGS_MOST_RANKS 65536         /* ranks of a mesh */
#define SETTINGS_MOST_BYTES ((int64_t)1 << 56)

enum offload { OFFLOAD_AUTO, OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };
enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CPU_DISCRETE, DEVICE_CUDA };
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_WSD };
enum update_on { UPDATE_AUTO, UPDATE_DEVICE, UPDATE_HOST };
/* Effort of the planner's search, from the most to the least: 0 searches most. */
enum effort { EFFORT_BEST, EFFORT_NORMAL, EFFORT_QUICK };
enum carriers { CARRIER_AUTO, CARRIER_NCCL, CARRIER_STAGED };
enum train_on { TRAIN_ON_ASSISTANT, TRAIN_ON_LAST, TRAIN_ON_ALL };
enum turns_of_chats { TURNS_SPLIT, TURNS_WHOLE };
enum token_type { TOKEN_NONE, TOKEN_U16, TOKEN_U32 }; /* type of an id in files of tokens without a header */
enum frozen_base {
    FROZEN_AUTO,
    FROZEN_STORED,
    FROZEN_NF4,
    FROZEN_INT8,
    FROZEN_MXFP4
}; /* format of the layers' frozen matrices */
enum packing_way { PACK_BEST_FIT, PACK_CONCAT };
enum longer { LONGER_SPLIT, LONGER_DROP, LONGER_TRUNCATE, LONGER_REFUSE };
enum sp_kind { SP_AUTO, SP_NONE, SP_ULYSSES, SP_RING };
enum data_changed { DATA_CHANGED_STOP, DATA_CHANGED_CONTINUE };
enum save_failure { SAVE_FAILURE_CONTINUE, SAVE_FAILURE_STOP }; /* reaction to a failed save in the middle of a run */
enum on_nan { ON_NAN_SKIP, ON_NAN_STOP };                       /* reaction to a gradient norm that is not finite */
enum stop_when { STOP_NOW, STOP_STEP }; /* reaction to a signal: unfinished work is discarded, or the step is finished first */
enum run_mode { MODE_RUN, MODE_CHAOS }; /* chaos: random legal orders, dead bytes NaN-filled (a test mode) */

struct string_list {
    char *item[SETTINGS_MAX_LIST];
    int n;
};

/* A curriculum: a run whose sequences change their length, as 8k@1000,64k@500,420k, in stretches of steps one after the other. */
enum { CURRICULUM_MOST = 16 };
struct stretch {
    int64_t seq_len;
    int64_t steps; /* number of steps; 0: up to the run's end (the last stretch) */
};
struct curriculum {
    struct stretch at[CURRICULUM_MOST];
    int n; /* number of stretches; 0: all sequences have plan.seq_len */
};

#define AUTO (-1)

/* Settings on which a plan depends. Members marked "not a key" cannot be set by users. */
struct plan_request {
    int64_t seq_len, micro_batch, grad_accum; /* micro_batch: sequences computed together; AUTO: chosen by planning (plan_mesh) */
    int64_t batch;             /* sequences of a step over all ranks; AUTO: grad_accum for each data-parallel rank */
    int64_t steps, eval_every; /* eval_every: steps between evaluations; 0: none */
    int eval_before;           /* 1: the loss is evaluated before the first step, too */
    int zero;                  /* ZeRO stage 0 .. 3; AUTO */
    int zero_is_unsaid;    /* not a key: 1: nobody gives a ZeRO stage; planning may choose it with slices and stages of layers */
    enum effort effort;    /* effort of the planner's search */
    struct mesh mesh;      /* degrees; AUTO: derived from the number of ranks (plan_mesh) */
    unsigned open_degrees; /* not a key: a bit for each degree derived by plan_mesh that planning may change; 0: none */
    unsigned open_parts; /* not a key: a bit for each of MESH_TP, MESH_PP and MESH_SLICES that planning may choose (plan_mesh) */
    int stage_ahead;     /* pipelines: 1: messages between stages travel a tick later; AUTO: what is faster */
    struct mesh_stages stage_layers; /* layers of each stage; n = 0: divided evenly or, between islands, by their speeds */
    int packing_is_open;             /* not a key: 1: planning may choose micro_batch */
    int packing_is_recalled;         /* not a key: 1: micro_batch is that of the run resumed; other ranks may need fewer */
    int per_host;                    /* not a key: ranks per host, used if open_degrees is not 0 */
    int evaluation;                  /* not a key: 1: nothing is trained, the programs evaluate */
    int scores;                      /* not a key: 1: a training run evaluates, though its settings hold nothing out */
    int weighted;                    /* not a key: 1: each token's loss has a weight */
    int ranks;                       /* processes to start on this machine; AUTO: none, another program starts the ranks */
    enum dtype dtype, optim_dtype;   /* optim_dtype: type of AdamW's moments */
    enum dtype grad_dtype;           /* type of gradients sent between ranks */
    /* tiers of the four classes; key: offload=none|cpu|nvme|auto or params=nvme,grads=cpu,... */
    enum offload params, grads, optim, acts;
    /* tier of hidden states between layers, set by the same key; not farther away than activations */
    enum offload passing;
    enum offload
        experts;         /* tier of experts' parameters, gradients and optimizer state, set by the same key; AUTO: as of others */
    double alpha;        /* share of row chunks whose recomputable activations are kept, not computed again, 0..1; AUTO */
    int alpha_by_kind;   /* 1: alpha holds for layers without a window only, window_alpha for the others */
    double window_alpha; /* alpha of layers with a window, 0..1 */
    int64_t keep_inputs; /* every keep_inputs-th layer keeps its input, the others' are computed again; AUTO */
    int inputs_from;     /* not a key: the least keep_inputs that planning looks at where that is AUTO; 0: 1 */
    double prefetch;     /* distance by which data are fetched ahead, in row chunks of compute; AUTO: the farthest that fits */
    enum update_on update;        /* device that runs AdamW */
    int64_t row_chunk;            /* tiles: rows=N,heads=N,loss=N (numerics key); AUTO */
    int64_t head_tile, loss_tile; /* query heads of a head tile, logits' rows of a loss tile; AUTO */
    int64_t group;                /* elements per update group and parameter transfer: tiles group=N; AUTO */
    enum device_kind device;
    int64_t device_mem, host_mem, nvme_max; /* budgets of the tiers in bytes; AUTO: by what is free */
    char *machine;                          /* machine to plan for: a data sheet's name or a YAML file; NULL: this one */
    /* drives of each node of that machine, key: nvme=4x7GB/s; 0: none; AUTO: as the machine's description says */
    int nvme_drives;
    double nvme_gbps;          /* read rate of one such drive */
    double link_gbps;          /* device cpu:discrete: rate to which h2d and d2h are throttled; 0: not throttled */
    int threads;               /* AUTO */
    int deterministic;         /* 0: backward attention on a GPU may add in any order (target_can_be_fast) */
    struct string_list freeze; /* globs of parameters that are not trained */
    struct lora lora;          /* adapters, which are trained in place of the model */
    enum frozen_base base;     /* format of frozen matrices; AUTO: as the model's files or the adapter say, else as stored */
    /* not a key: words for what limits this machine's memory, if anything beside free memory does; else "" */
    char memory_limit[400];
    char scarce[TIERS][320];   /* not a key: per tier, the rank with the smallest budget if others have more; else "" */
    struct hardware *hardware; /* not a key: measured figures for costs (machine/hardware.h), owned; NULL: assumed figures */
    int64_t kept_free;         /* not a key: bytes that the run writes to the nvme tier's drive beside that tier */
    struct target *target;     /* not a key: target of programs (program/target.h), owned; needed for planning */
};

/* Returns the mesh that --sp asks for: degree 1 along dimensions that it rules out, AUTO along all others. */
struct mesh settings_sp_mesh(enum sp_kind sp);

struct settings {
    char *model;                       /* Hugging Face directory, or name of a preset */
    char *adapter;                     /* directory of adapters in PEFT's format that are put on top of the model; NULL: none */
    struct string_list ignore_tensors; /* globs of tensors in the model's files that may be there unused */
    char *rope;                        /* change of rotary positions, such as yarn:4, in place of config.json's; NULL: none */
    double rope_base;                  /* base of rotary positions; 0: config.json's */
    int strict_config;                 /* 1: unknown keys of config.json are an error */
    struct plan_request plan;          /* settings of the plan; with a curriculum, plan.seq_len is its longest length */
    struct curriculum curriculum;      /* curriculum of lengths, set by the same key as plan.seq_len: seq-len */
    /* tiles that a run with a curriculum has chosen for each length: 8192=1024/4/2048 stands for rows/heads/loss */
    struct string_list length_tiles;
    int gpu;           /* number of the GPU; key: device=cuda:N; AUTO: the rank's number on its host */
    int dtype_is_open; /* 1: dtype=auto was given; plan.dtype is fp32 until the device is known */
    /* not a key: 1: messages between ranks with GPUs will pass through host memory, as far as known before NCCL is opened */
    int staged;
    int gpu_sharing;      /* not a key: number of ranks that use this rank's GPU, including this one; 0: unknown */
    char gpu_name[128];   /* not a key: name of this rank's GPU, from the driver; "": no GPU is used */
    char unused_gpu[400]; /* not a key: reason why device=auto uses no GPU though there is a driver; "": no reason is given */
    struct string_list data, eval_data;
    struct string_list tasks, lengths; /* eval: names of evaluations, and lengths of their sequences */
    int64_t stride;                    /* eval: tokens from one window's start to the next's; AUTO: the window's length */
    /* eval: depths in the text, in percent, at which tasks hide things; or the number of such depths */
    struct string_list depths;
    char *write_samples;             /* eval: file to which the tasks' samples are written as rows to train on; NULL: none */
    char *tokenizer;                 /* the data's tokenizer: a directory or file, or "bytes"; NULL: the model's */
    char *text_column;               /* key of the member of .jsonl rows that is the text; NULL: "text" */
    struct string_list data_exclude; /* patterns of files that data and eval_data leave out */
    int append_eos;                  /* 1: texts end with the tokenizer's eos, unless they have one already */
    enum token_type token_type;      /* type of ids in .bin files without a header */
    char *token_cache;               /* directory for files of tokens; NULL: the user's cache directory */
    /* chat template: a directory, a file or the name of a built-in one; NULL: the template in the tokenizer's directory */
    char *chat_template;
    struct string_list template_var; /* variables of chat templates: NAME=VALUE */
    enum train_on train_on;          /* part of conversations that is trained */
    /* treatment of chats whose earlier turns the template rewrites: a sample per trained turn, or a single one */
    enum turns_of_chats turns;
    enum packing_way packing; /* packing of documents into sequences */
    enum longer too_long;     /* treatment of documents that are longer than a sequence */
    double eval_fraction;
    double epochs;   /* passes over the data, from which plan.steps follows once the batch is known; 0: plan.steps was given */
    enum sp_kind sp; /* kind of sequence parallelism; all but AUTO have already set the mesh's degrees */
    double drive_timeout;         /* most seconds of waiting for a drive */
    double device_timeout;        /* most seconds of waiting for a GPU */
    enum carriers carrier;        /* means by which messages between GPUs are carried; key: comm */
    double comm_timeout;          /* most seconds of waiting for another rank */
    struct string_list nvme_path; /* directories of the nvme tier; empty: the run's directory */
    double lr;
    enum schedule_kind schedule;
    int64_t warmup;
    double weight_decay, beta1, beta2, eps, clip;
    double
        router_aux; /* coefficient of the auxiliary loss of models with experts; AUTO: config.json's, if it asks for that loss */
    double router_bias_rate; /* amount by which a step moves the biases that choose experts; 0: none */
    uint64_t seed;
    char *out;          /* run directory */
    int out_is_default; /* not a key: 1: `out` is a default name, which may be changed if it is taken */
    int64_t save_every, keep;
    enum save_failure on_save_failure;
    enum on_nan on_nan;
    int64_t verify_every; /* steps from one that is computed twice to the next; 0: none is */
    int scrub;            /* 1: state in host memory has checksums, checked at each use */
    int64_t trace;        /* step whose lanes are written as a Chrome trace; AUTO: none */
    int dashboard;        /* 1: a terminal shows a view of the run */
    int tensorboard;      /* 1: event files are written */
    int64_t log_every;    /* steps from one line of metrics.jsonl to the next */
    char *metrics_file;   /* file for Prometheus, replaced after steps; NULL: none */
    char *walltime;       /* text of --walltime, which train/walltime.h reads; NULL: auto */
    enum stop_when stop;
    enum run_mode mode;
    char *resume;                   /* run directory to continue, or NULL */
    char *replay_steps;             /* replay: steps to do again, "A..B"; NULL: the last ones */
    enum data_changed data_changed; /* reaction if the data differ from those of the checkpoint */
    /* not a key: mesh for which the resumed run's tiles were made, if no option gives tiles; else all degrees are 0 */
    struct mesh tiles_mesh;
    int64_t samples; /* data: number of documents to show; eval: answers per task, length and depth */
    /* sample: the prompt, or the file that has it ("-": standard input); both NULL: a chat, or a prompt on standard input */
    char *prompt, *prompt_file;
    int chat;                                             /* sample: 1: the prompt is a user's message in a chat */
    char *system;                                         /* sample: text of a chat's system message, or NULL */
    int64_t max_new_tokens;                               /* sample: most tokens of an answer; AUTO: the command decides */
    double temperature, top_p, min_p, repetition_penalty; /* sample: AUTO: as the model's generation_config.json says */
    /* sample: number of most probable tokens that may be drawn; 0: all; AUTO: as in generation_config.json */
    int64_t top_k;
    struct string_list stop_at; /* sample: texts that end an answer */
    int json;                   /* plan: 1: JSON instead of the table */
    int max_seq;                /* plan: 1: the longest sequence that fits is sought and becomes seq_len */
    int explain;                /* plan: 1: shows how much each decision of the plan gains */
    char *svg;                  /* plan: file for a picture of the step, or NULL */
    int profile;                /* 1: this machine is measured before planning */
    char *observed;             /* "auto", "no" or a file of a run's observed rates; NULL: no */
    int verbose;
    /* not a key: a bit for each key, by its index in the table, that a flag of the command line gave (settings_is_typed) */
    uint64_t typed[2];
};

/* Sets the values of keys that nobody gives, except strings. Fails only for lack of memory. */
enum status settings_defaults(struct settings *s, int64_t seq_len);

#endif
