/* Makes a small run for tests: settings with tiny tiles, a plan, a session, and steps on arrays given by the test. */
#ifndef LTRAIN_TESTS_ENGINE_RIG_H
#define LTRAIN_TESTS_ENGINE_RIG_H

#include "data/corpus.h"
#include "engine/backend_cpu.h"
#include "engine/batch.h"
#include "engine/session_state.h"

enum { RIG_SEED = 9 }; /* seed of the steps' random numbers */

struct rig {
    struct settings settings;
    struct target target; /* target of the settings */
    struct target gpu; /* target for the device of the settings, if this device has kernels of its own (capability); else zero */
    struct model *model;
    struct session *session;
    struct batch *batch;
    struct comm *comm; /* ranks, borrowed; NULL: a single rank. Set before rig_start, with the mesh of the settings */
    int64_t limit[TIERS];
    char scratch[64]; /* directory of the nvme tier */
    int disk;         /* 1: that directory lies in /tmp, 0: in memory, if there is a file system for it */
    int64_t updates;  /* optimizer steps made so far */
    int pending;
    struct step_record last;
    struct trace_event *trace; /* events of the program that ran last, if the test provides an array */
};

/* Sets the run for a test of many combinations of settings: the learning rate is large enough for steps to differ, and epsilon
 * keeps the rounding noise of zero gradients small. */
void rig_cell_defaults(struct settings *s, int64_t seq_len, enum dtype dtype);
/* Sets defaults: fp32, everything resident on cpu, tiles rows=32,loss=16,group=1000. Settings are changed before rig_start. */
void rig_defaults(struct rig *r, int64_t seq_len);
/* Plans and starts a run, which verifies every program. model: owned by the rig from now on. Writes a message to stderr if it
 * fails. */
enum status rig_start(struct rig *r, struct model *model);
void rig_stop(struct rig *r);
/* Takes one optimizer step over n sequences; the update stays pending. n counts the sequences of all data-parallel ranks together
 * and is at most settings.grad_accum * dp * micro_batch. loss: mean over targets. */
enum status rig_step(struct rig *r, const struct sequence *batch, int n, double *loss, double *norm);
enum status rig_flush(struct rig *r);
/* Computes xxh3 of all parameters and moments after a flush. */
enum status rig_digest(struct rig *r, uint64_t *digest);
/* Reads all of a unit's state as fp32 (model->units[unit].elements floats). */
enum status rig_state(struct rig *r, int unit, enum state_kind kind, float *out);

/* Allocates the arrays of a sequence; sequence_free frees them. */
void sequence_alloc(struct sequence *q, int64_t n);
void sequence_free(struct sequence *q);
/* Draws random tokens in documents of the given lengths (0-terminated; the rest is one document). */
void sequence_random(struct sequence *q, int64_t n, int64_t vocab, uint64_t seed, const int64_t *documents);

#endif
