/* Settings of a session as text. Private to src/api. */
#ifndef LTRAIN_API_OPTIONS_H
#define LTRAIN_API_OPTIONS_H

#include "base/status.h"

/* Options as on a command line, in memory of their own. */
struct api_options {
    char **option;
    int n;
};
/* Turns lines "name = value" into "--name=value". Blank lines and comments are left out. ERR_INVALID names a line without "=". */
enum status api_options_read(const char *text, struct api_options *out);
void api_options_free(struct api_options *x);

#endif
