/* The library itself: its version, and the sentence about a failure. */
#include "base/status.h"
#include "build_config.h"
#include "ltrain.h"

int ltrain_api(void)
{
    return LTRAIN_API;
}

const char *ltrain_version(void)
{
    return "ltrain " LTRAIN_VERSION;
}

const char *ltrain_error(void)
{
    return status_message();
}
