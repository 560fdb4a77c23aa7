/* Plans brought to life: memory, store, executor, and the state (parameters, optimizer) in its homes. */
#ifndef LTRAIN_ENGINE_SESSION_H
#define LTRAIN_ENGINE_SESSION_H

#include "comm/comm.h"
#include "device/cpu_stream.h"
#include "engine/canary.h"
#include "engine/carrier.h"
#include "engine/executor.h"
#include "model/model.h"
#include "offload/arena.h"
#include "plan/plan.h"

/* Where the state came from. What the run does not use of a parameter is not in the session's memory: checkpoints and exports
 * copy it from there. */
enum { ORIGIN_KINDS = 4 }; /* of state (engine/session_state.h): up to STATE_V */
enum origin_kind { ORIGIN_NONE, ORIGIN_SEED, ORIGIN_WEIGHTS, ORIGIN_CHECKPOINT };
struct origin {
    enum origin_kind kind;
    uint64_t seed;   /* of initial values */
    uint64_t stamp;  /* of the weights' files (st_stamp) */
    char path[4096]; /* of weights, as st_open takes it, or of a checkpoint */
    /* What this rank has copied from a checkpoint that was whole, by kind of state: the same comes from each later one. */
    struct {
        int known;
        uint64_t xxh3;
    } copied[ORIGIN_KINDS];
};

/* What one of the session's plans has of its own. */
struct session_plan {
    struct plan *plan;     /* owned */
    struct canary *canary; /* gaps of the arenas under it */
};

struct session {
    const struct model *model; /* borrowed */
    struct plan *plan;         /* the one in use */
    struct canary *canary;     /* its */
    struct session_plan plans[CURRICULUM_MOST]; /* one for each length of sequences */
    int n_plans;
    struct program **programs; /* of all of them */
    int n_programs;
    int64_t arena[TIERS]; /* bytes: the most that any of them has */
    struct backend *backend;
    struct arena *host;
    struct carrier carrier; /* of messages between ranks on GPUs */
    struct bounce *bounce;  /* where that is the host */
    struct store *store; /* NULL if the plan needs no nvme */
    struct exec_context context;
    struct cpu_stream host_stream;
    struct executor *executor;
    struct comm *comm; /* with the plan's mesh; borrowed, or own_comm */
    struct comm *own_comm;
    uint8_t *predicates;   /* of the micro-batch: [0] holds, then for each mask of the model the 2 * ring - 2 of seqpar/seqpar.h */
    int64_t
        overhead_bytes; /* resident beside the arenas once everything is set up: program, libraries, tables, scratch of BLAS */
    /* Bytes free on a device with memory of its own, before the arena was made and once everything was prepared; 0: there is
     * none, or other ranks have it, too. */
    int64_t free_opened, free_prepared;
    int shares_device; /* with other ranks */
    uint64_t chaos;     /* test mode: seed of the next random order; 0: the threaded executor */
    void *staging;      /* two groups in fp32 */
    int64_t staging_bytes; /* of one of them */
    struct origin origin; /* of what is not in use */
    char base[4096];    /* of a model with adapters: where its weights are, as st_open takes it; "": initial values from base_seed */
    uint64_t base_seed, base_xxh3; /* base_xxh3: of the files there; 0: of initial values */
};

/* Host memory, beside the plan's, through which messages of ranks with GPUs pass where no library carries them. */
int64_t session_message_bytes(const struct plan *plan);
/* Host memory, beside the plan's, for two groups: what session_visit and session_fill have in hand. */
int64_t session_staging_bytes(const struct model *m, const struct plan *plan);
/* Verifies every program of the plans, then allocates what the largest needs; the first plan is in use. Takes the plans over (also on
 * failure). They are of one mesh, stage and grain of updates. comm: with that mesh set, must outlive the session; NULL: a rank alone.
 * nvme_paths: existing directories. */
enum status session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s, struct comm *comm,
                           const char *const *nvme_paths, int n_paths, struct session **out);
/* Another one of the plans is in use from here on. Its homes hold no state until that is loaded. Nothing may be running or pending.
 * ERR_CORRUPT: a byte outside the former plan was touched. */
enum status session_use(struct session *s, const struct plan *plan);
void session_destroy(struct session *s); /* NULL is fine */

/* Host memory of an io buffer (plan->io). Owned by the session. */
void *session_io(struct session *s, int buffer);
enum status session_run(struct session *s, enum plan_program which, struct trace_event *trace);
/* Sum of the losses of all ranks' target tokens in the program that ran last, in one order whatever the placement. */
double session_loss(struct session *s);

/* Fills the unit's quantised matrices from where parameters begin. */
struct source;
enum status session_load_packed(struct session *s, struct source *src, int unit);

/* Random initialisation: parameters, masters, zero moments. */
enum status session_initialise(struct session *s, uint64_t seed);
/* Parameters (and masters) from a safetensors file or directory; moments zero. ERR_INVALID: a parameter is missing, has another
 * shape, or values that are not finite. ERR_CORRUPT: a file changed meanwhile. */
enum status session_load(struct session *s, const char *path);
/* The same of a model with adapters. path NULL: initial values from the seed. adapter: a directory with what is trained, as PEFT
 * saves it; NULL: adapters have initial values, and what is trained beside them begins as the model has it. Whatever is loaded later,
 * what is frozen comes from there. */
enum status session_load_adapted(struct session *s, const char *path, const char *adapter, uint64_t seed);
/* Where a model with adapters has its weights, for checkpoints that hold only what is trained; NULL: initial values from the seed. */
void session_set_base(struct session *s, const char *path, uint64_t seed);
/* Zero moments. */
enum status session_zero_moments(struct session *s);
/* ERR_NOMEM if more of the device's memory is taken than there was when free_prepared was `before`: nothing is allocated in steps.
 * OK where it is 0. */
enum status session_check_device_memory(const struct session *s, int64_t before);
/* Guard bytes of the arenas, and that no byte outside the plan was touched. */
enum status session_check_memory(struct session *s);

#endif
