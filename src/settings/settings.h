/* Every key a user can set, resolved and typed; the names are those of the command line and the YAML file. */
#ifndef LTRAIN_SETTINGS_SETTINGS_H
#define LTRAIN_SETTINGS_SETTINGS_H

#include "base/num.h"
#include "program/mesh.h"
#include "program/program.h"
#include "base/status.h"
#include "settings/lora.h"

#include <stdint.h>

#define SETTINGS_MAX_LIST 64

/* What counts may be at most: products of them fit 64 bits. */
#define SETTINGS_MOST_TOKENS (1 << 30)    /* of a sequence: token numbers are 32 bits */
#define SETTINGS_MOST_STEPS (1 << 30)     /* and checkpoints */
#define SETTINGS_MOST_SEQUENCES (1 << 20) /* of a step, over all ranks */
#define SETTINGS_MOST_RANKS 65536         /* of a mesh */
#define SETTINGS_MOST_BYTES ((int64_t)1 << 56)

enum offload { OFFLOAD_AUTO, OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };
enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CPU_DISCRETE, DEVICE_CUDA };
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_WSD };
enum update_on { UPDATE_AUTO, UPDATE_DEVICE, UPDATE_HOST };
enum effort { EFFORT_BEST, EFFORT_NORMAL, EFFORT_QUICK }; /* of planning, from the most search to the least; zero is best */
enum carriers { CARRIER_AUTO, CARRIER_NCCL, CARRIER_STAGED };
enum train_on { TRAIN_ON_ASSISTANT, TRAIN_ON_LAST, TRAIN_ON_ALL };
enum turns_of_chats { TURNS_SPLIT, TURNS_WHOLE };
enum token_type { TOKEN_NONE, TOKEN_U16, TOKEN_U32 }; /* of an id in files of tokens without a header */
enum frozen_base { FROZEN_AUTO, FROZEN_STORED, FROZEN_NF4, FROZEN_INT8 }; /* what frozen matrices of layers are kept as */
enum packing_way { PACK_BEST_FIT, PACK_CONCAT };
enum longer { LONGER_SPLIT, LONGER_DROP, LONGER_TRUNCATE, LONGER_REFUSE };
enum sp_kind { SP_AUTO, SP_NONE, SP_ULYSSES, SP_RING };
enum data_changed { DATA_CHANGED_STOP, DATA_CHANGED_CONTINUE };
enum save_failure { SAVE_FAILURE_CONTINUE, SAVE_FAILURE_STOP }; /* what a save that fails means on the way */
enum stop_when { STOP_NOW, STOP_STEP }; /* on a signal: what is unfinished is thrown away, or the step is done first */
enum run_mode { MODE_RUN, MODE_CHAOS }; /* chaos: random legal orders, dead bytes NaN-filled (a test mode) */

struct string_list { char *item[SETTINGS_MAX_LIST]; int n; };

/* A run whose sequences change their length, as 8k@1000,64k@500,420k: stretches of steps, one after the other. */
enum { CURRICULUM_MOST = 16 };
struct stretch {
    int64_t seq_len;
    int64_t steps; /* of the last one: 0, as it goes on to the run's end */
};
struct curriculum {
    struct stretch at[CURRICULUM_MOST];
    int n; /* 0: there is one length, plan.seq_len */
};

#define AUTO (-1)

/* What a plan depends on. */
struct plan_request {
    int64_t seq_len, micro_batch, grad_accum;
    int64_t batch;                       /* sequences of a step over all ranks; AUTO: grad_accum of each data-parallel rank */
    int64_t steps, eval_every;           /* eval_every: steps; 0: never */
    int eval_before;                     /* the loss is evaluated before the first step, too */
    int zero;                            /* 0..3, AUTO */
    enum effort effort;                  /* zero: everything is searched */
    struct mesh mesh;                    /* degrees; AUTO: derived from the number of ranks (plan_mesh) */
    unsigned open_degrees;               /* not a key: a bit for each degree that plan_mesh has derived and planning may choose anew; 0: none */
    int per_host;                        /* not a key: ranks of a host, where some are open */
    int evaluation;                      /* not a key: nothing is trained, the programs evaluate */
    int ranks;                           /* processes to start on this machine; AUTO: none, whoever starts us has */
    enum dtype dtype, optim_dtype;       /* optim_dtype: of AdamW's moments */
    enum dtype grad_dtype;               /* of gradients on their way between ranks */
    enum offload params, grads, optim, acts; /* key: offload=none|cpu|nvme|auto or params=nvme,grads=cpu,... */
    enum offload carry;                /* of the same key: hidden states between layers, at most as far away as activations */
    double alpha;                        /* 0..1, AUTO */
    int alpha_by_kind;                   /* alpha is that of layers without a window, window_alpha that of the others */
    double window_alpha;                 /* 0..1 */
    int64_t keep_inputs;                 /* layer inputs are kept of every keep_inputs-th layer; AUTO */
    double prefetch;                     /* distance in row chunks of compute, AUTO */
    enum update_on update;               /* where AdamW runs */
    int64_t row_chunk;                   /* tiles: rows=N,heads=N,loss=N (numerics key); AUTO */
    int64_t head_tile, loss_tile;        /* AUTO */
    int64_t group;                       /* elements per update group and parameter transfer: tiles group=N; AUTO */
    enum device_kind device;
    int64_t device_mem, host_mem, nvme_max; /* bytes, AUTO: what is free */
    char *machine;                       /* plan for it instead of this one: a data sheet's name or a YAML file, or NULL */
    int nvme_drives;                     /* of each of its nodes, key: nvme=4x7GB/s; 0: none; AUTO: as it is */
    double nvme_gbps;                    /* that one of them reads */
    double link_gbps;                    /* cpu:discrete: throttle of h2d and d2h, 0: none */
    int threads;                         /* AUTO */
    int deterministic;                   /* 0: a GPU's backward attention may add in any order (target_can_be_fast) */
    struct string_list freeze;           /* globs of parameters that are not trained */
    struct lora lora;                    /* adapters, which are trained in place of the model */
    enum frozen_base base;               /* AUTO: as the model's files or the adapter's say, else as they are stored */
    char memory_limit[400];              /* not a key: what limits memory of this machine beside what it has free, "" if nothing */
    char scarce[TIERS][320];             /* not a key: whose budget of a tier is the least, where another rank has more; else "" */
    struct hardware *hardware;           /* not a key: what costs are reckoned with (machine/hardware.h), owned; NULL: assumed */
    int64_t kept_free;                   /* not a key: bytes beside the nvme tier that the run itself writes there */
    struct target *target;               /* not a key: what programs are made for (program/target.h), owned; planning needs it */
};

/* The defaults of the keys above; no strings. Only memory can be missing. */
enum status plan_request_defaults(struct plan_request *r, int64_t seq_len);

struct settings {
    char *model;                         /* HF directory or preset */
    char *adapter;                       /* directory of adapters, as PEFT saves them, on top of the model; NULL: none */
    struct string_list ignore_tensors;   /* globs of tensors in its files that nothing uses */
    char *rope;                          /* rotary positions in place of config.json's, as yarn:4, or NULL */
    double rope_base;                    /* their base; 0: config.json's */
    int strict_config;                   /* keys of config.json that nobody knows are an error */
    struct plan_request plan;            /* its seq_len is the longest */
    struct curriculum curriculum;        /* of the same key: seq-len */
    struct string_list length_tiles;     /* of a curriculum, as its run has chosen them: 8192=1024/4/2048 are rows/heads/loss */
    int gpu;                             /* key: device=cuda:N; AUTO: the local rank's */
    int dtype_is_open;                   /* key: dtype=auto; plan.dtype is fp32 until the device is known */
    int staged;                          /* not a key: what ranks with GPUs send passes through host memory, as is known before NCCL is opened */
    int gpu_sharing;                     /* not a key: ranks that compute on the GPU of this one, itself included; 0: not known */
    char gpu_name[128];                  /* not a key: what its driver calls the GPU of this rank; "" if none is used */
    char unused_gpu[400];                /* not a key: why device=auto takes no GPU though there is a driver; "" if there is nothing to say */
    struct string_list data, eval_data;
    struct string_list tasks, lengths;   /* eval: what is evaluated, on sequences of which lengths */
    int64_t stride;                      /* eval: tokens from one window to the next; AUTO: a window */
    struct string_list depths;           /* eval: where in the text things are hidden, percent, or how many such places */
    char *write_samples;                 /* eval: tasks' samples go there, as rows to train on, or NULL */
    char *tokenizer;                     /* of the data: a directory or file, or "bytes"; NULL: the model's */
    char *text_column;                   /* of .jsonl rows; NULL: text */
    int append_eos;                      /* behind texts */
    enum token_type token_type;          /* of .bin files without a header */
    char *token_cache;                   /* directory; NULL: the user's */
    char *chat_template;                 /* of conversations: a directory, a file or a name; NULL: the tokenizer's directory has it */
    struct string_list template_var;     /* of chat templates: NAME=VALUE */
    enum train_on train_on;              /* what of conversations is trained */
    enum turns_of_chats turns;           /* of conversations whose earlier reasoning the template leaves out */
    enum packing_way packing;             /* of documents into sequences */
    enum longer too_long;                /* what becomes of documents that are longer than a sequence */
    double eval_fraction;
    double epochs; /* passes over the data that decide plan.steps once the batch is known; 0: plan.steps was given */
    enum sp_kind sp;                     /* how ranks share a sequence; all but AUTO are in ulysses and ring already */
    double drive_timeout;                /* seconds that a drive is waited for */
    double device_timeout;               /* seconds that a GPU is waited for */
    enum carriers carrier;               /* of messages between GPUs; key: comm */
    double comm_timeout;                 /* seconds that a rank waits for another one */
    struct string_list nvme_path;        /* default: the run's directory */
    double lr;
    enum schedule_kind schedule;
    int64_t warmup;
    double weight_decay, beta1, beta2, eps, clip;
    uint64_t seed;
    char *out;                           /* run directory */
    int out_is_default;                  /* not a key: nobody has named it, and another name will do as well */
    int64_t save_every, keep;
    enum save_failure on_save_failure;
    int64_t trace;                       /* step whose lanes are traced; AUTO: none */
    enum stop_when stop;
    enum run_mode mode;
    char *resume;                        /* run directory to continue, or NULL */
    enum data_changed data_changed;      /* what to do where its data are not the ones that its checkpoint was trained on */
    struct mesh tiles_mesh;              /* not a key: the mesh that the tiles of the run that is resumed were made for, where no option names them; else degrees of 0 */
    int64_t samples;                     /* data: documents that are shown; eval: answers of a cell */
    char *prompt, *prompt_file;          /* sample: a text, or the file that has it ("-": stdin); both NULL: a chat, or stdin */
    int chat;                            /* sample: the prompt is what a user says */
    char *system;                        /* sample: what a chat's system message says, or NULL */
    int64_t max_new_tokens;              /* sample; AUTO: the command decides */
    double temperature, top_p, min_p, repetition_penalty; /* sample; AUTO: what the model's generation_config.json says */
    int64_t top_k;                       /* of the best tokens; 0: all; AUTO as well */
    struct string_list stop_at;          /* sample: texts that end an answer */
    int json;                            /* plan: as JSON instead of the table */
    int max_seq;                         /* plan: the longest sequence that fits; seq_len is found */
    int explain;                         /* plan: what its decisions are worth */
    char *svg;                           /* plan: a picture of the step goes there, or NULL */
    int profile;                         /* measure this machine before planning */
    int verbose;
    uint64_t typed[2];                   /* not a key: those of the command line, a bit for each place in the table of keys (settings_is_typed) */
};

/* What the command line has for keys that nobody gives; no strings. Only memory can be missing. */
enum status settings_defaults(struct settings *s, int64_t seq_len);

#endif
