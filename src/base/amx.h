/* The shape of AMX's eight tiles, 16 rows of 64 bytes each: everyone's who multiplies by them. x86-64 only, and only where
 * isa_has_amx(). */
#ifndef LTRAIN_BASE_AMX_H
#define LTRAIN_BASE_AMX_H

#include <stdint.h>

/* Sets up the tiles; called by every thread before its first product and after its last. */
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
