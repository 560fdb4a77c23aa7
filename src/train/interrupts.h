/* Ctrl-C stops an answer or a line, not the program. Private to src/train. */
#ifndef LTRAIN_TRAIN_INTERRUPTS_H
#define LTRAIN_TRAIN_INTERRUPTS_H

#include <stdatomic.h>
#include <stdio.h>

/* From now on; the calling thread is the one that reads lines. */
void interrupts_catch(void);
/* Not 0 once one came after they were forgotten. */
const atomic_int *interrupts_flag(void);
void interrupts_forget(void);

/* Standard input, where an interrupt ends reading as an error with EINTR, whenever it came after it was forgotten. NULL: out of memory. */
FILE *interrupts_open_input(void);

#endif
