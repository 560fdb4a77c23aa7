/* A sign of life while planning takes long: one line on a terminal, rewritten in place and erased at the end. */
#ifndef LTRAIN_BASE_PROGRESS_H
#define LTRAIN_BASE_PROGRESS_H

#include <stdint.h>

#define PROGRESS_AFTER_NS 2000000000ll /* what is done sooner needs none */

/* From after_ns nanoseconds on until progress_end, a thread of its own writes the line to fd, twice a second. Nothing happens if
 * fd is no terminal or no thread is to be had. Neither may be called while the other runs, nor twice in a row. */
void progress_begin(int fd, int64_t after_ns);
/* Whoever prints calls it first. Without a progress_begin it does nothing. */
void progress_end(void);

/* A program is built for sequences of `tokens` tokens. From any thread; two counters, whether or not they are shown. */
void progress_program(int64_t tokens);

#endif
