/* A sign of life while reading files or planning takes long: one line on a terminal, rewritten in place and erased at the end;
 * of reading, now and then a line where output is kept. */
#ifndef LTRAIN_BASE_PROGRESS_H
#define LTRAIN_BASE_PROGRESS_H

#include <stdint.h>

#define PROGRESS_AFTER_NS 2000000000ll  /* what is done sooner needs none */
#define PROGRESS_LINE_NS 30000000000ll /* between lines that stay; the first comes as early as the line on a terminal */
#define PROGRESS_LEAST_BYTES ((int64_t)64 << 20) /* less is read without lines that stay, however slow the machine is */

/* From after_ns nanoseconds on until progress_end, a thread of its own writes the line to fd, twice a second. Nothing happens if
 * fd is no terminal or no thread is to be had. Neither may be called while the other runs, nor twice in a row. */
void progress_begin(int fd, int64_t after_ns);
/* Whoever prints calls it first. Without a progress_begin it does nothing. */
void progress_end(void);

/* A program is built for sequences of `tokens` tokens. From any thread; two counters, whether or not they are shown. */
void progress_program(int64_t tokens);

/* Files of that size in all are about to be read whole; 0: they are. From any thread, like the next one: whether or not it is shown. */
void progress_reading(int64_t total_bytes);
/* What for, from here on: a string that stays. */
#define PROGRESS_FILES "reading files, for their checksums" /* what it is for until somebody says otherwise */
void progress_purpose(const char *text);
void progress_read(int64_t bytes);
/* From here on progress_read itself writes lines to fd: the first after after_ns, further ones every_ns apart. fd < 0: no more of this. */
void progress_lines(int fd, int64_t after_ns, int64_t every_ns);

#endif
