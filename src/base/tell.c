#include "base/tell.h"

#include <stdarg.h>
#include <unistd.h>

static _Thread_local FILE *chosen; /* NULL: standard output */

FILE *tell_stream(void)
{
    return chosen ? chosen : stdout;
}

FILE *tell_to(FILE *f)
{
    FILE *before = chosen;
    chosen = f;
    return before;
}

void tell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(tell_stream(), format, args);
    va_end(args);
}

int tell_is_terminal(void)
{
    return !chosen && isatty(STDOUT_FILENO);
}
