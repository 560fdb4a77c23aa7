/* Ctrl-C stops an answer or a line, not the program. Private to src/eval. */
#ifndef LTRAIN_EVAL_INTERRUPTS_H
#define LTRAIN_EVAL_INTERRUPTS_H

#include <stdatomic.h>
#include <stdio.h>

/* Begins to catch interrupts; the calling thread is the one that reads lines. */
void interrupts_catch(void);
/* Returns a flag that is not 0 once an interrupt came after interrupts_forget. */
const atomic_int *interrupts_flag(void);
void interrupts_forget(void);

/* Opens standard input so that an interrupt since interrupts_forget ends reading as an error with EINTR. NULL: out of memory. */
FILE *interrupts_open_input(void);

#endif
