/* The forward kernel of AMX without AMX. */
#ifdef __x86_64__
#include "amx_emulated.h"

#include "../../src/attention/amx_forward.c"
#endif
