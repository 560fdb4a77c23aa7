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

/* Origin of the state. Parts of parameters that the run does not use are not in memory: checkpoints and exports copy them from
 * the origin. */
enum { ORIGIN_KINDS = 4 }; /* kinds of state (engine/session_state.h), up to STATE_V */
enum origin_kind { ORIGIN_NONE, ORIGIN_SEED, ORIGIN_WEIGHTS, ORIGIN_CHECKPOINT };
struct origin {
    enum origin_kind kind;
    uint64_t seed;   /* seed of initial values */
    uint64_t stamp;  /* stamp of the weights' files (st_stamp) */
    char path[4096]; /* path of weights, as st_open takes it, or of a checkpoint */
    /* Hashes of what this rank copied from a whole checkpoint, by kind of state; each later checkpoint must give the same. */
    struct {
        int known;
        uint64_t xxh3;
    } copied[ORIGIN_KINDS];
};

/* A plan of the session, with what belongs to it alone. */
struct session_plan {
    struct plan *plan;     /* owned */
    struct canary *canary; /* gaps of the arenas under this plan */
};

struct session {
    const struct model *model; /* borrowed */
    struct model *slice;       /* this rank's slice of the model, if the plan's mesh has slices (--mesh tp); else NULL */
    struct plan *plan;         /* plan in use */
    struct canary *canary;     /* canary of the plan in use */
    struct session_plan plans[CURRICULUM_MOST]; /* the plans of the session, one for each length of sequences */
    int n_plans;
    struct program **programs; /* programs of all plans */
    int n_programs;
    int64_t arena[TIERS]; /* bytes: the largest of any plan */
    struct backend *backend;
    struct arena *host;
    struct carrier carrier; /* carrier of messages between ranks on GPUs */
    struct scrub *scrub;    /* checksums of the state in host memory; NULL: there are none */
    struct again *again;    /* an update that is computed twice; NULL: none ever is */
    struct bounce *bounce;  /* bounce buffers, if the host carries messages; else NULL */
    struct store *store;    /* NULL if the plan needs no nvme */
    struct exec_context context;
    struct cpu_stream host_stream;
    struct executor *executor;
    struct comm *comm; /* communicator with the plan's mesh; borrowed, or own_comm */
    struct comm *own_comm;
    uint8_t *
        predicates; /* predicates of the micro-batch: [0] holds, then 2 * ring - 2 for each mask of the model (seqpar/seqpar.h) */
    int64_t overhead_bytes; /* resident bytes beside the arenas after setup: program, libraries, tables, BLAS scratch */
    /* Bytes free on a device with memory of its own, before the arena was made and after everything was prepared. 0: no such
     * device, or other ranks share it. */
    int64_t free_opened, free_prepared;
    int shares_device;     /* 1: other ranks share the device */
    uint64_t chaos;        /* test mode: seed of the next random order; 0: the threaded executor */
    void *staging;         /* room for two groups in fp32 */
    int64_t staging_bytes; /* bytes of one group */
    struct origin origin;  /* origin of parameters that are not in use */
    char
        base[4096]; /* models with adapters: path of the base's weights, as st_open takes it; "": initial values from base_seed */
    uint64_t base_seed, base_xxh3; /* base_xxh3: hash of the files at `base`; 0: initial values */
};

/* Returns the bytes of host memory, beside the plan's, for bounce buffers of ranks with GPUs where no library carries messages. */
int64_t session_message_bytes(const struct plan *plan);
/* Returns the bytes of host memory, beside the plan's, for two groups: staging of session_visit and session_fill. */
int64_t session_staging_bytes(const struct model *m, const struct plan *plan);
/* Verifies every program of the plans and of their other roles (plan/roles.h), then allocates what the largest needs; the first plan
 * is in use. m: this rank's part of the model. Takes the plans over, also on failure. The plans share mesh, ZeRO stage and size of
 * groups. comm: has that mesh and outlives the session; NULL: a rank alone. nvme_paths: existing directories. */
enum status session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s,
                           struct comm *comm, const char *const *nvme_paths, int n_paths, struct session **out);
/* Switches to another of the plans, whose homes hold no state until it is loaded. Nothing may be running or pending. ERR_CORRUPT:
 * a byte outside the former plan was touched. */
enum status session_use(struct session *s, const struct plan *plan);
void session_destroy(struct session *s); /* NULL is fine */

/* Returns the host memory of an io buffer (plan->io), owned by the session. */
void *session_io(struct session *s, int buffer);
enum status session_run(struct session *s, enum plan_program which, struct trace_event *trace);
/* Moves what the plan's programs hold only while they run up by as much as the arenas have room (sign 1; displace.h), or back (-1). The
 * session was created with --verify-every. */
void session_displace(struct session *s, int sign);
/* Runs PLAN_FLUSH and computes one of its updates, the number-th counted round, a second time. ERR_CORRUPT: bits differ. The session
 * was created with --verify-every. */
enum status session_flush_checked(struct session *s, int64_t number);
/* Zeroes the keys and values that slices keep. An early slice's attention loads those of later slices, too, with weights of 0: they have
 * to be finite numbers before the first step, and after one that was not finite. */
enum status session_clear_keys(struct session *s);
/* Operands that change from run to run of a program that is a pipeline's half. copy: index of the copy to use, by kind of copies
 * (program.h); sends, receives: 1: a message is sent, is received. */
struct half_run {
    int copy[COPIES], sends, receives;
};
enum status session_run_half(struct session *s, enum plan_program which, const struct half_run *half, struct trace_event *trace);
/* Returns the sum of the losses of all ranks' target tokens in the program that ran last, added in one order whatever the
 * placement. */
double session_loss(struct session *s);

/* Fills the unit's quantised matrices from the source of parameters. */
struct source;
enum status session_load_packed(struct session *s, struct source *src, int unit);

/* Initialises parameters and masters randomly; moments are zero. */
enum status session_initialise(struct session *s, uint64_t seed);
/* Loads parameters (and masters) from a safetensors file or directory; moments are zero. ERR_INVALID: a parameter is missing, has
 * another shape, or is not finite. ERR_CORRUPT: a file changed meanwhile. */
enum status session_load(struct session *s, const char *path);
/* Loads a model with adapters as session_load does. path NULL: initial values from the seed. adapter: a directory with trained
 * parameters as PEFT saves them; NULL: adapters have initial values, and other trained parameters begin as the model has them.
 * Frozen parameters come from here, whatever is loaded later. */
enum status session_load_adapted(struct session *s, const char *path, const char *adapter, uint64_t seed);
/* Notes where a model with adapters has its weights, for checkpoints that hold trained parameters only; NULL: initial values from
 * the seed. */
void session_set_base(struct session *s, const char *path, uint64_t seed);
enum status session_zero_moments(struct session *s);
/* Checks that no more device memory is taken than when free_prepared was `before`: nothing is allocated in steps. ERR_NOMEM: more
 * is taken. OK where `before` is 0. */
enum status session_check_device_memory(const struct session *s, int64_t before);
/* Checks the arenas' guard bytes, and that no byte outside the plan was touched. */
enum status session_check_memory(struct session *s);

#endif
