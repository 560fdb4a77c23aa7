/* ltrain.h: training and scoring very long sequences from a program, as the command `ltrain train` does.
 *
 *     ltrain *s;
 *     if (ltrain_open("model = tiny\ndata = book.txt\nseq-len = 4096\nsteps = 100", 0, &s) != LTRAIN_OK ||
 *         ltrain_train(s, 100, NULL, NULL, NULL) != LTRAIN_OK || ltrain_finish(s) != LTRAIN_OK)
 *         puts(ltrain_error());
 *     ltrain_close(s);
 *
 * Three functions suffice for an objective of one's own: ltrain_open, ltrain_logprobs and ltrain_train, whose batches have a
 * weight for each token.
 *
 * Calls return LTRAIN_OK or a negative status; ltrain_error then has one sentence. No call ends the process, prints (unless
 * LTRAIN_PRINT asks for it) or handles signals. A session is used by one thread at a time. Several may be open at once, but with
 * several ranks one at a time.
 *
 * Several ranks: start the program with the launcher of MPI (`mpiexec -n 4 ./program`). All ranks make the same calls with the same
 * arguments. MPI is started by the first ltrain_open and ended when the process exits; a program must not start MPI itself. Where
 * MPI cannot start at all, MPI ends the process. */
#ifndef LTRAIN_H
#define LTRAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. It grows by one when something is added; what is here keeps its meaning. */
#define LTRAIN_API 1

#if defined(__GNUC__)
#define LTRAIN_EXPORT __attribute__((visibility("default")))
#else
#define LTRAIN_EXPORT
#endif

enum ltrain_status {
    LTRAIN_OK = 0,
    LTRAIN_INVALID = -1,  /* wrong settings, arguments or input */
    LTRAIN_NOFIT = -2,    /* the plan does not fit a budget of memory */
    LTRAIN_IO = -3,       /* a system call failed */
    LTRAIN_CORRUPT = -4,  /* bytes that are not what was written */
    LTRAIN_NOMEM = -5,    /* out of memory */
    LTRAIN_DIVERGED = -7, /* training gives no finite numbers any more */
    LTRAIN_PEER = -8,     /* another rank failed, died or stalled */
    LTRAIN_STOPPED = -9   /* a callback asked for the end; the session goes on from the last whole step */
};

/* Returns LTRAIN_API of the library in use. */
LTRAIN_EXPORT int ltrain_api(void);
/* Returns the library's version, as "ltrain 0.1.0". */
LTRAIN_EXPORT const char *ltrain_version(void);
/* Returns the sentence about the calling thread's last failure: what, which value, which limit, what to do. Valid until its next
 * call. */
LTRAIN_EXPORT const char *ltrain_error(void);

/* ---- sessions ---- */

typedef struct ltrain ltrain;

enum ltrain_flags {
    LTRAIN_BATCHES = 1,  /* sequences come from a callback of ltrain_train; the settings name no data */
    LTRAIN_WEIGHTS = 2,  /* each token's loss has a weight, which that callback may set */
    LTRAIN_LOGPROBS = 4, /* a session that trains has ltrain_logprobs, too */
    LTRAIN_FROZEN = 8,   /* nothing is trained: ltrain_logprobs and ltrain_read only; needs less memory; writes no directory */
    LTRAIN_PRINT = 16    /* standard output gets what the command prints */
};

/* Opens a session: reads model and data, plans, takes memory, loads parameters; with `resume = RUN` goes on with a run. A session
 * that trains makes the run's directory, as the command does.
 *
 * settings: options of `ltrain train`, one a line as "name = value", without dashes; # begins a comment. The second function takes
 * them as on the command line: {"--model", "tiny", "--seq-len", "4096"}. *out is set on success only. */
LTRAIN_EXPORT int ltrain_open(const char *settings, unsigned flags, ltrain **out);
LTRAIN_EXPORT int ltrain_open_options(int n, const char *const *options, unsigned flags, ltrain **out);
/* Closes a session and frees its memory; NULL is fine. Steps behind the last save are lost. */
LTRAIN_EXPORT int ltrain_close(ltrain *s);

enum ltrain_number {
    LTRAIN_STEP = 1,       /* steps done */
    LTRAIN_STEPS = 2,      /* steps of the whole run */
    LTRAIN_SEQ_LEN = 3,    /* most tokens of a sequence */
    LTRAIN_SEQUENCES = 4,  /* sequences of a step, over all ranks */
    LTRAIN_VOCABULARY = 5, /* token ids are below it */
    LTRAIN_RANK = 6,
    LTRAIN_RANKS = 7,
    LTRAIN_PARAMETERS = 8 /* tensors of parameters */
};
/* Returns one of the session's numbers; -1: there is no such number. */
LTRAIN_EXPORT int64_t ltrain_get(const ltrain *s, int number);
/* Returns the run's directory; "" for a frozen session. */
LTRAIN_EXPORT const char *ltrain_directory(const ltrain *s);

/* ---- training ---- */

/* A sequence to be filled in. Arrays have `room` entries. */
struct ltrain_sequence {
    int64_t step;       /* number of the step, from 1 */
    int64_t number;     /* number of the sequence in its step, from 0 */
    int64_t room;       /* the session's sequence length */
    int64_t used;       /* out: tokens filled in; 0 before the call */
    int32_t *tokens;    /* out */
    int32_t *targets;   /* out: token to be predicted at each place, mostly the next one; -1, as before the call: none */
    int32_t *positions; /* in, out: number of each token in its document: 0, 1, 2, ... before the call. A token that has 0 begins a
                         * document, which sees nothing of the one before it. */
    float *weights;     /* in, out: factor of each token's loss, 1 before the call; NULL without LTRAIN_WEIGHTS */
};

/* Fills in a sequence. Ranks that share a sequence are each asked for all of it, and give the same. Returns 0; another number ends
 * the call that asked with LTRAIN_STOPPED, before anything of the step is computed. */
typedef int ltrain_batch(void *user, struct ltrain_sequence *sequence);

/* A step that is done. */
struct ltrain_metrics {
    int64_t step, steps;
    int64_t tokens, targets; /* of the step's sequences, over all ranks */
    double loss;             /* sum of weight * loss over all targets, divided by their number; NaN: there were none */
    double grad_norm, lr, seconds;
    int skipped; /* 1: no update, as the gradient norm was not finite or there was no target */
};

/* Hears of a step, on every rank. Returns 0; another number ends ltrain_train with LTRAIN_STOPPED. */
typedef int ltrain_watch(void *user, const struct ltrain_metrics *metrics);

/* Trains `steps` steps, fewer if the run's last is among them. batch: with LTRAIN_BATCHES, gives the sequences, else NULL.
 * metrics: NULL is fine.
 *
 * The objective is the sum of weight * -log p(target) over all ranks' targets, divided by the number of targets. A gradient d of any
 * objective with respect to a token's log-probability is taken by the weight -d * (number of targets). */
LTRAIN_EXPORT int ltrain_train(ltrain *s, int64_t steps, ltrain_batch *batch, ltrain_watch *metrics, void *user);
/* Saves a checkpoint, from which `resume` goes on; nothing if this step is saved already. */
LTRAIN_EXPORT int ltrain_save(ltrain *s);
/* Writes the model as a Hugging Face directory, which may not exist yet. */
LTRAIN_EXPORT int ltrain_export(ltrain *s, const char *directory);
/* Ends a run as the command does: a last checkpoint (unless save-every is 0) and the model in DIRECTORY/hf. Parameters may still be
 * read, and log-probabilities computed; no step follows. */
LTRAIN_EXPORT int ltrain_finish(ltrain *s);

/* ---- scores ---- */

/* Computes log p(tokens[k][i] given tokens[k][0 .. i-1]) for n sequences of length[k] tokens each, at most the session's sequence
 * length: out[k][i]; out[k][0] is 0. Ranks give the same sequences, share them, and each gets all results. The session's parameters
 * count, as they are after the last step. */
LTRAIN_EXPORT int ltrain_logprobs(ltrain *s, int64_t n, const int64_t *length, const int32_t *const *tokens, float *const *out);

/* ---- parameters ---- */

/* A tensor of parameters, named as in the model's files. Stacks of experts are one tensor each. */
struct ltrain_parameter {
    const char *name; /* valid until the session is closed */
    int64_t rows, columns;
    int64_t elements; /* rows * columns */
    int trained;      /* 1: steps change it */
};

/* Describes a tensor; index: 0 up to LTRAIN_PARAMETERS - 1. */
LTRAIN_EXPORT int ltrain_parameter(const ltrain *s, int64_t index, struct ltrain_parameter *out);
/* Reads elements [first, first + n) of a tensor, row by row, as the optimizer has them (fp32 also in bf16 runs). All ranks get
 * them. */
LTRAIN_EXPORT int ltrain_read(ltrain *s, const char *name, int64_t first, int64_t n, float *out);
/* Writes such elements; the optimizer's moments stay. Takes the memory of one layer in fp32. */
LTRAIN_EXPORT int ltrain_write(ltrain *s, const char *name, int64_t first, int64_t n, const float *values);

#ifdef __cplusplus
}
#endif
#endif
