/* Signals that end a run, and those that do not. */
#ifndef LTRAIN_TRAIN_SIGNALS_H
#define LTRAIN_TRAIN_SIGNALS_H

#include "comm/comm.h"
#include "settings/settings.h"

#include <stdatomic.h>

/* Makes this rank end by its signal, and report nothing, if another rank ends by the same signal first; until signals are
 * requests. Called once the ranks have met. */
void signals_join(struct comm *c);
/* Lets signals end the process as usual until there is something to save; `speaks`: after a sentence on stderr. Output without a
 * reader ends nothing from here on. */
void signals_before_first_step(int speaks);
/* Lets signals end an evaluation that has no results yet; `speaks`: after a sentence on stderr. Failed writes are left to the
 * code that writes. */
void signals_before_first_result(int speaks);
/* Ignores the next signal: the run has failed before its first step and is about to say why. mpiexec sends a signal as soon as
 * another rank has ended with the same failure. */
void signals_run_failed(void);
/* Remembers the first signal from now on and says on stdout what follows; a second SIGINT or SIGTERM ends the process at once.
 * Others may repeat: SIGHUP comes twice when a terminal closes, SIGUSR1 from cli/ranks.c. All ranks call it, and it returns once
 * no rank is left that a first signal ends. */
enum status signals_stop_run(struct comm *c, enum stop_when when);
/* Remembers the first signal of an evaluation in the same way. The evaluation then ends with the results so far; says so on stderr
 * if `speaks`. */
enum status signals_stop_evaluation(struct comm *c, int speaks);
/* Notes that only saving and exporting are left: a first signal from here on changes nothing, and the answer says so. */
void signals_training_done(void);
/* Returns the number of the first signal; 0: none has come. */
const atomic_int *signals_first(void);
/* Sets *number, unless set, to a signal that any rank has seen by now: a signal may reach some ranks only, and at different
 * times. All ranks call it. */
enum status signals_agree(struct comm *c, int *number);
double signals_seconds_ago(void); /* 0: none has come */
const char *
signals_name(int number); /* name of the signal sent to the program, even if cli/ranks.c passed it on as another one */

#endif
