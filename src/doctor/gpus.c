/* NVIDIA GPUs: on the bus, by the driver, by the plugin. */
#include "doctor/checks.h"

#include "base/foreign.h"
#include "base/sys.h"
#include "base/units.h"
#include "device/plugin.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define BUS "/sys/bus/pci/devices"
#define NVIDIA 0x10de
#define DISPLAY 0x03 /* class of display controllers, and of accelerators of 3D */

static long read_number(const char *root, const char *device, const char *name)
{
    char path[512], line[64];
    snprintf(path, sizeof path, BUS "/%s/%s", device, name);
    return strtol(doctor_read_line(root, path, line, sizeof line), NULL, 0);
}

/* Checks the width of a GPU's link; its speed is lower while nothing is sent. */
static void check_link(struct findings *f, const char *root, const char *device)
{
    const long width = read_number(root, device, "current_link_width"), most = read_number(root, device, "max_link_width");
    char path[512], speed[64];
    snprintf(path, sizeof path, BUS "/%s/max_link_speed", device);
    doctor_read_line(root, path, speed, sizeof speed);
    if (width > 0 && width < most)
        findings_add(f, VERDICT_WARNING, "pcie", "look at the slot, the riser and the BIOS: offloading is as fast as this link",
                     "GPU %s has %ld lanes of %ld", device, width, most);
    else if (width > 0)
        findings_add(f, VERDICT_OK, "pcie", "", "GPU %s has %ld lanes of up to %s", device, width,
                     speed[0] ? speed : "unknown speed");
}

/* Checks the links of all NVIDIA GPUs on the bus, and returns their number. */
static int check_bus(struct findings *f, const char *root)
{
    char path[4200];
    int n = 0;
    snprintf(path, sizeof path, "%s" BUS, root);
    DIR *bus = sys_opendir(path);
    for (struct dirent *x; bus && (x = sys_readdir(bus));) {
        if (x->d_name[0] == '.' || read_number(root, x->d_name, "vendor") != NVIDIA ||
            read_number(root, x->d_name, "class") >> 16 != DISPLAY)
            continue;
        check_link(f, root, x->d_name);
        n++;
    }
    if (bus)
        closedir(bus);
    return n;
}

static void describe(struct findings *f, const struct device_plugin *plugin, int i)
{
    struct device_facts facts;
    char memory[32], left[32];
    if (plugin->describe(i, &facts) != OK) {
        findings_add(f, VERDICT_FAILURE, "gpu", "", "GPU %d: %s", i, plugin->sentence());
        return;
    }
    units_format_apart(facts.free, facts.memory, left, memory);
    const int taken = facts.free < facts.memory / 2;
    findings_add(f, taken ? VERDICT_WARNING : VERDICT_OK, "gpu",
                 taken ? "`nvidia-smi` names the programs that have the rest" : "",
                 "GPU %d is a %s, capability %d.%d, %s are free of %s", i, facts.name, facts.capability / 10,
                 facts.capability % 10, left, memory);
}

/* Says where a library of CUDA is found, or what its absence costs. */
static void check_library(struct findings *f, const struct foreign_library *l, enum verdict without, const char *cost)
{
    char path[4096], cure[256];
    snprintf(cure, sizeof cure, "install CUDA 13, or `pip install %s`, or set CUDA_HOME", l->package);
    if (foreign_find(l, FOREIGN_CUDA, path))
        findings_add(f, VERDICT_OK, "libraries", "", "%s is %s", l->name, path);
    else
        findings_add(f, without, "libraries", cure, "there is no %s: %s", l->name, cost);
}

void doctor_gpus(struct findings *f, const char *root)
{
    const struct device_plugin *plugin;
    char driver[256];
    int devices = 0;
    const int on_bus = check_bus(f, root);
    doctor_read_line(root, "/proc/driver/nvidia/version", driver, sizeof driver);
    if (!device_plugin_expected()) {
        if (on_bus == 0)
            findings_add(f, VERDICT_OK, "gpu", "", "no NVIDIA GPU here: programs run on the processor");
        else
            findings_add(
                f, VERDICT_FAILURE, "gpu",
                driver[0] ? "libcuda.so.1 is missing: in a container, start it with the GPU (docker --gpus all, apptainer --nv)"
                          : "install the NVIDIA driver",
                "%d NVIDIA GPU%s on the bus, and no driver that programs can open", on_bus, on_bus == 1 ? "" : "s");
        return;
    }
    if (driver[0])
        findings_add(f, VERDICT_OK, "driver", "", "%s", driver);
    if (device_plugin_load(&plugin) != OK || plugin->count(&devices) != OK) {
        findings_add(f, VERDICT_FAILURE, "gpu", "", "%s", status_message());
        return;
    }
    for (int i = 0; i < devices; i++)
        describe(f, plugin, i);
    doctor_nvml(f);
    check_library(f, &foreign_cublaslt, VERDICT_FAILURE, "programs on GPUs cannot run");
    if (devices > 1)
        check_library(f, &foreign_nccl, VERDICT_WARNING, "messages between GPUs pass through the host's memory");
}
