/* A request to end a long search with what it has. */
#include "base/hurry.h"

#include <stdatomic.h>

static atomic_int asked;

void hurry_ask(void)
{
    atomic_store(&asked, 1);
}

int hurry_asked(void)
{
    return atomic_load(&asked);
}
