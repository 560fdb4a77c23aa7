/* A plugin built before the table of ops was changed. */
#include "device/plugin.h"

const struct device_plugin *ltrain_device_plugin(void)
{
    static const struct device_plugin plugin = {.version = DEVICE_PLUGIN_VERSION, .ops = 1};
    return &plugin;
}
