/* Sentences for people, in lines that fit a terminal. */
#ifndef LTRAIN_BASE_PROSE_H
#define LTRAIN_BASE_PROSE_H

#include <stdio.h>

enum { PROSE_WIDTH = 80 };

/* Prints a paragraph of at most 2047 bytes, formatted as by printf, and a newline. It is broken at blanks into lines of at most
 * PROSE_WIDTH columns; output does not depend on the terminal.
 *
 * Lines after the first are indented by `indent` blanks. A number stays with its unit, and an option with its value. Two blanks
 * mark a preferred place to break. */
__attribute__((format(printf, 3, 4))) void prose_print(FILE *f, int indent, const char *format, ...);

#endif
