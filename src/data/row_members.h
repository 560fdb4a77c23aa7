/* Members of rows that readers look at. Private to this folder. */
#ifndef LTRAIN_DATA_ROW_MEMBERS_H
#define LTRAIN_DATA_ROW_MEMBERS_H

#include "data/lines.h"

/* Tells whether a member may change how a row of that kind is read, or have it refused. column: key of the member that is the text;
 * NULL: "text". */
int row_members_are_read(enum lines_kind kind, const char *column, const char *key);

#endif
