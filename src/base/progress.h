/* Progress of long reading or planning: on a terminal one line, rewritten in place and erased at the end; in output that is kept,
 * a line now and then. */
#ifndef LTRAIN_BASE_PROGRESS_H
#define LTRAIN_BASE_PROGRESS_H

#include <stdint.h>

#define PROGRESS_AFTER_NS 2000000000ll /* time after which a long task shows signs of life */
#define PROGRESS_LINE_NS 30000000000ll /* time between lines in kept output */

/* Returns the time after which the first line comes in kept output: PROGRESS_AFTER_NS. Tests that expect no such line, even on
 * slow machines, set the environment variable LTRAIN_PROGRESS_AFTER, in seconds. */
int64_t progress_silence_ns(void);

/* Starts a thread that writes the progress line to fd twice a second, from after_ns nanoseconds on until progress_end. Does
 * nothing if fd is no terminal or no thread can be had. progress_begin and progress_end never run at the same time, nor twice in
 * a row. */
void progress_begin(int fd, int64_t after_ns);
/* Starts the same progress line on a terminal. In other output it writes lines that stay: the first after after_ns, then one
 * every every_ns. */
void progress_begin_kept(int fd, int64_t after_ns, int64_t every_ns);
/* Writes lines that stay about the reading of files, to a terminal, too: a large row or a slow template makes few bytes last. */
void progress_begin_lines(int fd, int64_t after_ns, int64_t every_ns);
/* Ends the progress line; called before anything else is printed. Does nothing if progress_begin was not called. */
void progress_end(void);

/* Counts a program that is built for sequences of `tokens` tokens, whether or not a line is shown. From any thread. */
void progress_program(int64_t tokens);

/* Tells from now on what planning looks for ("tiles"); NULL: nothing, since planning has ended. The text must stay valid. */
void progress_planning(const char *what);
/* Forgets the fastest step that was found. */
void progress_forget(void);
/* Notes that a step of `seconds` fits, if planning looks for something; the fastest one is shown. From any thread. */
void progress_found(double seconds);
/* Notes that sequences of `of_tokens` fit, while the longest one is looked for; 0: none is looked for. */
void progress_fits(int64_t of_tokens);
/* Tells whether anything was found that fits. May be called from signal handlers. */
int progress_has_found(void);

/* Announces that files of total_bytes are about to be read whole (0: they have been), whether or not a line is shown. From any
 * thread. */
void progress_reading(int64_t total_bytes);
/* Sets the purpose of reading, shown from now on until the next call. text must stay valid. */
#define PROGRESS_FILES "reading files, for their checksums" /* the purpose at the start */
void progress_purpose(const char *text);
void progress_read(int64_t bytes);

#endif
