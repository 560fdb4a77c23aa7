/* Every key a user can set, resolved and typed; names are those of the command line and the YAML file. */
#ifndef LTRAIN_SETTINGS_SETTINGS_H
#define LTRAIN_SETTINGS_SETTINGS_H

#include "base/num.h"
#include "program/mesh.h"
#include "program/program.h"
#include "base/status.h"
#include "settings/lora.h"

#include <stdint.h>

#define SETTINGS_MAX_LIST 64

/* Limits of counts: products of them fit 64 bits. */
#define SETTINGS_MOST_TOKENS (1 << 30)    /* in a sequence: token numbers are 32 bits */
#define SETTINGS_MOST_STEPS (1 << 30)     /* steps, and checkpoints */
#define SETTINGS_MOST_SEQUENCES (1 << 20) /* in a step, over all ranks */
#define SETTINGS_MOST_RANKS 65536         /* in a mesh */
#define SETTINGS_MOST_BYTES ((int64_t)1 << 56)

enum offload { OFFLOAD_AUTO, OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };
enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CPU_DISCRETE, DEVICE_CUDA };
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_WSD };
enum update_on { UPDATE_AUTO, UPDATE_DEVICE, UPDATE_HOST };
enum effort {
    EFFORT_BEST,
    EFFORT_NORMAL,
    EFFORT_QUICK
}; /* effort of planning, from the most search to the least; zero is best */
enum carriers { CARRIER_AUTO, CARRIER_NCCL, CARRIER_STAGED };
enum train_on { TRAIN_ON_ASSISTANT, TRAIN_ON_LAST, TRAIN_ON_ALL };
enum turns_of_chats { TURNS_SPLIT, TURNS_WHOLE };
enum token_type { TOKEN_NONE, TOKEN_U16, TOKEN_U32 };                     /* type of an id in files of tokens without a header */
enum frozen_base { FROZEN_AUTO, FROZEN_STORED, FROZEN_NF4, FROZEN_INT8 }; /* format of the layers' frozen matrices */
enum packing_way { PACK_BEST_FIT, PACK_CONCAT };
enum longer { LONGER_SPLIT, LONGER_DROP, LONGER_TRUNCATE, LONGER_REFUSE };
enum sp_kind { SP_AUTO, SP_NONE, SP_ULYSSES, SP_RING };
enum data_changed { DATA_CHANGED_STOP, DATA_CHANGED_CONTINUE };
enum save_failure { SAVE_FAILURE_CONTINUE, SAVE_FAILURE_STOP }; /* reaction to a failed save in the middle of a run */
enum stop_when { STOP_NOW, STOP_STEP }; /* reaction to a signal: unfinished work is discarded, or the step is finished first */
enum run_mode { MODE_RUN, MODE_CHAOS }; /* chaos: random legal orders, dead bytes NaN-filled (a test mode) */

struct string_list {
    char *item[SETTINGS_MAX_LIST];
    int n;
};

/* A run whose sequences change their length, as 8k@1000,64k@500,420k: stretches of steps, one after the other. */
enum { CURRICULUM_MOST = 16 };
struct stretch {
    int64_t seq_len;
    int64_t steps; /* 0: to the run's end (the last stretch) */
};
struct curriculum {
    struct stretch at[CURRICULUM_MOST];
    int n; /* 0: one length, plan.seq_len */
};

#define AUTO (-1)

/* Settings that a plan depends on. Members marked "not a key" are no user's option. */
struct plan_request {
    int64_t seq_len, micro_batch, grad_accum;
    int64_t batch;                 /* sequences of a step over all ranks; AUTO: grad_accum for each data-parallel rank */
    int64_t steps, eval_every;     /* eval_every: steps; 0: never */
    int eval_before;               /* 1: the loss is evaluated before the first step, too */
    int zero;                      /* 0..3, AUTO */
    enum effort effort;            /* zero: everything is searched */
    struct mesh mesh;              /* degrees; AUTO: derived from the number of ranks (plan_mesh) */
    unsigned open_degrees;         /* not a key: a bit for each degree derived by plan_mesh that planning may change; 0: none */
    int per_host;                  /* not a key: ranks per host, if degrees are open */
    int evaluation;                /* not a key: 1: nothing is trained, the programs evaluate */
    int ranks;                     /* processes to start on this machine; AUTO: none, another program starts the ranks */
    enum dtype dtype, optim_dtype; /* optim_dtype: AdamW's moments */
    enum dtype grad_dtype;         /* gradients sent between ranks */
    enum offload params, grads, optim, acts; /* key: offload=none|cpu|nvme|auto or params=nvme,grads=cpu,... */
    enum offload passing;                    /* same key: hidden states between layers, at most as far away as activations */
    double alpha;                            /* 0..1, AUTO */
    int alpha_by_kind;                       /* 1: alpha is for layers without a window, window_alpha for the others */
    double window_alpha;                     /* 0..1 */
    int64_t keep_inputs;                     /* every keep_inputs-th layer keeps its input; AUTO */
    double prefetch;                         /* distance in row chunks of compute, AUTO */
    enum update_on update;                   /* device that runs AdamW */
    int64_t row_chunk;                       /* tiles: rows=N,heads=N,loss=N (numerics key); AUTO */
    int64_t head_tile, loss_tile;            /* AUTO */
    int64_t group;                           /* elements per update group and parameter transfer: tiles group=N; AUTO */
    enum device_kind device;
    int64_t device_mem, host_mem, nvme_max; /* bytes; AUTO: all that is free */
    char *machine;                          /* machine to plan for: a data sheet's name or a YAML file; NULL: this one */
    int nvme_drives;           /* drives of each node of that machine, key: nvme=4x7GB/s; 0: none; AUTO: as given there */
    double nvme_gbps;          /* read rate of one drive */
    double link_gbps;          /* cpu:discrete: throttle of h2d and d2h, 0: none */
    int threads;               /* AUTO */
    int deterministic;         /* 0: a GPU's backward attention may add in any order (target_can_be_fast) */
    struct string_list freeze; /* globs of parameters that are not trained */
    struct lora lora;          /* adapters, which are trained in place of the model */
    enum frozen_base base;     /* AUTO: as the model's files or the adapter's say, else as stored */
    char memory_limit[400];    /* not a key: limit of this machine's memory other than what is free, in words; "": none */
    char scarce[TIERS][320];   /* not a key: the rank with the smallest budget of a tier, if another has more; else "" */
    struct hardware *hardware; /* not a key: figures for costs (machine/hardware.h), owned; NULL: assumed ones */
    int64_t kept_free;         /* not a key: bytes that the run itself writes to the drive beside the nvme tier */
    struct target *target;     /* not a key: target of programs (program/target.h), owned; needed for planning */
};

/* Sets the defaults of the keys above, without strings. Fails only for lack of memory. */
enum status plan_request_defaults(struct plan_request *r, int64_t seq_len);

struct settings {
    char *model;                       /* HF directory or preset */
    char *adapter;                     /* directory of adapters on top of the model, as PEFT saves them; NULL: none */
    struct string_list ignore_tensors; /* globs of tensors in its files that nothing uses */
    char *rope;                        /* rotary positions in place of config.json's, as yarn:4; NULL: unchanged */
    double rope_base;                  /* base of rotary positions; 0: config.json's */
    int strict_config;                 /* 1: unknown keys of config.json are an error */
    struct plan_request plan;          /* settings of the plan; its seq_len is the longest */
    struct curriculum curriculum;      /* same key as plan.seq_len: seq-len */
    struct string_list length_tiles;   /* tiles that a run with a curriculum has chosen: 8192=1024/4/2048 are rows/heads/loss */
    int gpu;                           /* key: device=cuda:N; AUTO: the local rank's */
    int dtype_is_open;                 /* key: dtype=auto; plan.dtype is fp32 until the device is known */
    /* not a key: 1: messages between ranks with GPUs pass through host memory, as known before NCCL is opened */
    int staged;
    int gpu_sharing;      /* not a key: ranks that compute on this rank's GPU, itself included; 0: unknown */
    char gpu_name[128];   /* not a key: name of this rank's GPU by its driver; "": none is used */
    char unused_gpu[400]; /* not a key: reason why device=auto takes no GPU though there is a driver; "": none to give */
    struct string_list data, eval_data;
    struct string_list tasks, lengths; /* eval: names of evaluations, and lengths of their sequences */
    int64_t stride;                    /* eval: tokens from one window to the next; AUTO: a window */
    struct string_list depths;         /* eval: depths at which things are hidden in the text, percent, or the number of depths */
    char *write_samples;               /* eval: file for the tasks' samples, as rows to train on, or NULL */
    char *tokenizer;                   /* the data's tokenizer: a directory or file, or "bytes"; NULL: the model's */
    char *text_column;                 /* column of .jsonl rows that is the text; NULL: "text" */
    struct string_list data_exclude;   /* patterns of files that data and eval_data leave out */
    int append_eos;                    /* 1: texts end with the tokenizer's eos, unless they have one already */
    enum token_type token_type;        /* type of ids in .bin files without a header */
    char *token_cache;                 /* directory; NULL: the user's */
    /* template of conversations: a directory, a file or a name; NULL: the one in the tokenizer's directory */
    char *chat_template;
    struct string_list template_var; /* variables of chat templates: NAME=VALUE */
    enum train_on train_on;          /* part of conversations that is trained */
    enum turns_of_chats turns;       /* one sample per trained turn, or one in all, where the template rewrites earlier turns */
    enum packing_way packing;        /* packing of documents into sequences */
    enum longer too_long;            /* treatment of documents that are longer than a sequence */
    double eval_fraction;
    double epochs;         /* passes over the data that decide plan.steps once the batch is known; 0: plan.steps was given */
    enum sp_kind sp;       /* sharing of a sequence among ranks; all but AUTO are already in the mesh's degrees */
    double drive_timeout;  /* seconds of waiting for a drive */
    double device_timeout; /* seconds of waiting for a GPU */
    enum carriers carrier; /* carrier of messages between GPUs; key: comm */
    double comm_timeout;   /* seconds that a rank waits for another one */
    struct string_list nvme_path; /* default: the run's directory */
    double lr;
    enum schedule_kind schedule;
    int64_t warmup;
    double weight_decay, beta1, beta2, eps, clip;
    uint64_t seed;
    char *out;          /* run directory */
    int out_is_default; /* not a key: 1: the name is a default, and another will do as well */
    int64_t save_every, keep;
    enum save_failure on_save_failure;
    int64_t trace; /* step whose lanes are traced; AUTO: none */
    enum stop_when stop;
    enum run_mode mode;
    char *resume;                   /* run directory to continue, or NULL */
    enum data_changed data_changed; /* reaction to data other than the checkpoint was trained on */
    /* not a key: mesh that the resumed run's tiles were made for, if no option gives tiles; else degrees of 0 */
    struct mesh tiles_mesh;
    int64_t samples;            /* data: documents to show; eval: answers per cell */
    char *prompt, *prompt_file; /* sample: a text, or the file that has it ("-": stdin); both NULL: a chat, or stdin */
    int chat;                   /* sample: 1: the prompt is a user's message in a chat */
    char *system;               /* sample: text of a chat's system message, or NULL */
    int64_t max_new_tokens;     /* sample; AUTO: the command decides */
    double temperature, top_p, min_p, repetition_penalty; /* sample; AUTO: as in the model's generation_config.json */
    int64_t top_k;                                        /* number of best tokens; 0: all; AUTO as above */
    struct string_list stop_at;                           /* sample: texts that end an answer */
    int json;                                             /* plan: 1: JSON instead of the table */
    int max_seq; /* plan: 1: the longest sequence that fits is sought and becomes seq_len */
    int explain; /* plan: 1: shows what its decisions are worth */
    char *svg;   /* plan: file for a picture of the step, or NULL */
    int profile; /* 1: this machine is measured before planning */
    int verbose;
    /* not a key: a bit for each key (by its place in the table) that the command line gave (settings_is_typed) */
    uint64_t typed[2];
};

/* Sets the values of keys that nobody gives, without strings. Fails only for lack of memory. */
enum status settings_defaults(struct settings *s, int64_t seq_len);

#endif
