/* Doing recorded steps of a run again, and comparing runs and checkpoints. */
#ifndef LTRAIN_REPLAY_REPLAY_H
#define LTRAIN_REPLAY_REPLAY_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Runs the steps that s->replay_steps names ("A..B"; NULL: those behind the newest checkpoint) of the run s->resume again, from its
 * newest checkpoint before them or from its first state, and compares loss, norm and evaluations with metrics.jsonl. Nothing is
 * written into the run's directory. All ranks call it.
 *
 * ERR_CORRUPT, agreed, names the first step that differs: in bits, or by more than the stated bounds where the numerics key is
 * another one. */
enum status replay_run(struct settings *s, struct comm *comm);

/* Compares two runs, step by step and at their common checkpoints, or two checkpoints, tensor by tensor. Prints what was compared.
 * ERR_CORRUPT names the first difference. */
enum status replay_compare(const char *a, const char *b);

#endif
