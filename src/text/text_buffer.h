/* Growing arrays of bytes. Private to this folder. */
#ifndef LTRAIN_TEXT_TEXT_BUFFER_H
#define LTRAIN_TEXT_TEXT_BUFFER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct text_buffer {
    uint8_t *data;
    size_t n, room;
};

/* Makes room for n more bytes. ERR_NOMEM. */
enum status text_buffer_reserve(struct text_buffer *b, size_t n);
enum status text_buffer_add(struct text_buffer *b, const void *data, size_t n);
enum status text_buffer_add_char(struct text_buffer *b, uint32_t c); /* character as UTF-8 */
enum status text_buffer_insert(struct text_buffer *b, size_t at, const void *data, size_t n);
enum status text_buffer_print(struct text_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_buffer_free(struct text_buffer *b);

#endif
