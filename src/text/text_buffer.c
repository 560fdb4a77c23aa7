/* Growing arrays of bytes. */
#include "text/text_buffer.h"

#include "base/sys.h"
#include "text/unicode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status text_buffer_reserve(struct text_buffer *b, size_t n)
{
    if (b->room - b->n >= n)
        return OK;
    size_t room = b->room ? b->room : 256;
    while (room - b->n < n)
        room *= 2;
    uint8_t *data = sys_realloc(b->data, room);
    if (!data)
        return status_fail(ERR_NOMEM, "out of memory: %zu bytes of text", room);
    b->data = data;
    b->room = room;
    return OK;
}

enum status text_buffer_add(struct text_buffer *b, const void *data, size_t n)
{
    if (n == 0)
        return OK;
    TRY(text_buffer_reserve(b, n));
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return OK;
}

enum status text_buffer_add_char(struct text_buffer *b, uint32_t c)
{
    TRY(text_buffer_reserve(b, 4));
    b->n += utf8_write(c, b->data + b->n);
    return OK;
}

enum status text_buffer_insert(struct text_buffer *b, size_t at, const void *data, size_t n)
{
    TRY(text_buffer_reserve(b, n));
    memmove(b->data + at + n, b->data + at, b->n - at);
    memcpy(b->data + at, data, n);
    b->n += n;
    return OK;
}

enum status text_buffer_print(struct text_buffer *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    enum status st =
        n < 0 ? status_fail(ERR_INVALID, "a text cannot be formatted: %s", format) : text_buffer_reserve(b, (size_t)n + 1);
    if (st == OK)
        b->n += (size_t)vsnprintf((char *)b->data + b->n, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return st;
}

void text_buffer_free(struct text_buffer *b)
{
    free(b->data);
    *b = (struct text_buffer){0};
}
