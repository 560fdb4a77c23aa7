/* GPT-2's alphabet: a printable character for each byte. Private to this folder. */
#ifndef LTRAIN_TEXT_BYTE_LEVEL_H
#define LTRAIN_TEXT_BYTE_LEVEL_H

#include <stdint.h>

/* Bytes ! to ~, 0xa1 to 0xac and 0xae to 0xff stand for themselves, the other 68 in order for U+0100 on. */
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

/* -1: no byte. */
static inline int byte_of_char(uint32_t c)
{
    if (c < 0x100)
        return byte_is_printable(c) ? (int)c : -1;
    return c <= 0x120 ? (int)c - 0x100 : c <= 0x142 ? (int)c - 0x121 + 0x7f : c == 0x143 ? 0xad : -1;
}

#endif
