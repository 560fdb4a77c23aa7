/* The verifier's first part: a program's form, without regard to the contents of its bytes. */
#ifndef LTRAIN_VERIFY_FORM_H
#define LTRAIN_VERIFY_FORM_H

#include "program/program.h"

/* Checks indices, sizes, tickets and waits; lanes and tiers that belong together; the arguments that op_table.h gives each op,
 * read or written as their attributes say, each contiguous in memory; copies preserving tensor, rows and version. ERR_CORRUPT and
 * a sentence. */
enum status verify_form(const struct program *p);

#endif
