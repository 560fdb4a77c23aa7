/* The AMX backward kernel compiled with emulated AMX instructions. */
#ifdef __x86_64__
#include "amx_emulated.h"

#include "../../src/attention/amx_backward.c"
#endif
