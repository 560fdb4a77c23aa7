/* The failure sentence of each thread. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

enum status status_fail(enum status code, const char *format, ...)
{
    char made[sizeof message]; /* copy of the new sentence, as the former one may be among its arguments */
    va_list args;
    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);
    memcpy(message, made, strlen(made) + 1);
    return code;
}

const char *status_message(void)
{
    return message;
}

enum status status_no_memory(const char *occasion)
{
    return status_fail(ERR_NOMEM, "out of memory %s", occasion);
}
