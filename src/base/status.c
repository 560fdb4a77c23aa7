/* The failure sentence of each thread. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

/* Replaces control characters but ends of lines, which files may have put into a sentence, so that no terminal obeys them. */
static void make_printable(char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < ' ' && *s != '\n') || *s == 0x7f)
            *s = ' ';
        else if ((unsigned char)s[0] == 0xc2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xa0) /* U+0080 to U+009F */
            s[0] = s[1] = ' ';
}

enum status status_fail(enum status code, const char *format, ...)
{
    char made[sizeof message]; /* copy of the new sentence, as the former one may be among its arguments */
    va_list args;
    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);
    make_printable(made);
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
