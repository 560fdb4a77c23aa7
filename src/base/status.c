/* The failure sentence of each thread. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

enum status status_fail(enum status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return code;
}

const char *status_message(void)
{
    return message;
}
