/* Signals that end a run, and those that do not. Private to src/train. */
#ifndef LTRAIN_TRAIN_SIGNALS_H
#define LTRAIN_TRAIN_SIGNALS_H

#include "comm/comm.h"
#include "settings/settings.h"

#include <stdatomic.h>

/* Until there is something to save: a signal ends the process as it would have; `speaks`: after a sentence on stderr. Output that
 * nobody reads ends nothing from here on. */
void signals_before_first_step(int speaks);
/* The same of an evaluation that has found nothing yet. What nobody reads is for those who write it to notice. */
void signals_before_first_result(int speaks);
/* The run has failed before its first step: it is about to say why, and the first signal from here on ends nothing. mpiexec sends one as
 * soon as another rank has ended with the same failure. */
void signals_run_failed(void);
/* From now on the first one is remembered, and said on stdout with what follows; a second SIGINT or SIGTERM ends the process at
 * once. The others may come as often as they like: SIGHUP comes twice where a terminal closes, SIGUSR1 from cli/ranks.c. */
void signals_stop_run(enum stop_when when);
/* The same of an evaluation, which ends with what is found; said on stderr, if `speaks`. */
void signals_stop_evaluation(int speaks);
/* Nothing but saving and exporting is left: the first one from here on changes nothing, and is answered so. */
void signals_training_done(void);
/* The first one's number; 0: none has come. */
const atomic_int *signals_first(void);
/* A signal may reach some ranks only, and each at another time: *number becomes the one that any rank has seen by now, unless it is
 * one already. All ranks. */
enum status signals_agree(struct comm *c, int *number);
double signals_seconds_ago(void); /* 0: none has come */
const char *signals_name(int number); /* of what was sent to the program, where cli/ranks.c has passed it on as another one */

#endif
