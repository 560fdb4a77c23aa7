/* Bytes that grow. */
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
    char text[128];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text_buffer_add(b, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void text_buffer_free(struct text_buffer *b)
{
    free(b->data);
    *b = (struct text_buffer){0};
}
