/* The shape that all users of AMX set its eight tiles to: 16 rows of 64 bytes each. x86-64 only, and only if isa_has_amx(). */
#ifndef LTRAIN_BASE_AMX_H
#define LTRAIN_BASE_AMX_H

#include <stdint.h>

/* Sets up the tiles; every thread calls it before its first product and again after its last. */
static inline void amx_begin(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } whole = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(whole));
}

static inline void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

#endif
