/* The hash xxh3, by vector instructions where the library has them: 36 instead of 9 GB/s on data in the cache. */
#ifndef LTRAIN_BASE_XXH3_H
#define LTRAIN_BASE_XXH3_H

#include "build_config.h"

#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
