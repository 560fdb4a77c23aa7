/* The verifier's first part: a program's form, without regard to the contents of its bytes. */
#ifndef LTRAIN_VERIFY_FORM_H
#define LTRAIN_VERIFY_FORM_H

#include "program/program.h"

/* Checks indices, sizes, tickets and waits; that lanes touch only tiers that they reach; that arguments are those of op_table.h,
 * contiguous in memory and read or written as attributes say; that copies preserve tensor, rows and version. ERR_CORRUPT and a
 * sentence. */
enum status verify_form(const struct program *p);

#endif
