/* GPT-2's alphabet: a printable character for each byte. Private to this folder. */
#ifndef LTRAIN_TEXT_BYTE_LEVEL_H
#define LTRAIN_TEXT_BYTE_LEVEL_H

#include <stdint.h>

/* Tells whether a byte maps to the character of the same number: ! to ~, 0xa1 to 0xac and 0xae to 0xff do. The other 68 map in
 * order to U+0100, U+0101, ... */
static inline int byte_is_printable(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

static inline uint32_t byte_to_char(uint8_t b)
{
    if (byte_is_printable(b))
        return b;
    return b <= 0x20 ? 0x100u + b : b == 0xad ? 0x143u : 0x121u + (b - 0x7fu);
}

/* Returns the byte that maps to a character; -1: there is none. */
static inline int byte_of_char(uint32_t c)
{
    if (c < 0x100)
        return byte_is_printable(c) ? (int)c : -1;
    return c <= 0x120 ? (int)c - 0x100 : c <= 0x142 ? (int)c - 0x121 + 0x7f : c == 0x143 ? 0xad : -1;
}

#endif
