/* The stream on which a run speaks to people: standard output, or the choice of a program that uses the library. */
#ifndef LTRAIN_BASE_TELL_H
#define LTRAIN_BASE_TELL_H

#include <stdio.h>

/* Returns the calling thread's stream. */
FILE *tell_stream(void);
/* Chooses the calling thread's stream; NULL: standard output. Returns the former choice. */
FILE *tell_to(FILE *f);
/* Prints to the calling thread's stream, as printf does. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Tells whether the stream is standard output, and that a terminal. */
int tell_is_terminal(void);

#endif
