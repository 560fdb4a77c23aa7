/* Health of NVIDIA GPUs by their management library (NVML), opened at run time. */
#include "doctor/checks.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

/* Functions and numbers of the library's public interface; a handle is a pointer to something opaque. */
enum { NVML_SUCCESS = 0 };
enum { NVML_UNCORRECTED = 1, NVML_SINCE_BOOT = 0, NVML_EVER = 1 };
enum { NVML_POWER_CAP = 4, NVML_SLOWDOWN = 8, NVML_WARM = 0x20, NVML_HOT = 0x40, NVML_POWER_BRAKE = 0x80 };
enum { NVML_PEER_READ = 0, NVML_PEER_WRITE = 1, NVML_PEER_OK = 0 };

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned i, void **device);
    int (*ecc_errors)(void *device, int kind, int since, unsigned long long *n);
    int (*remapped)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
    int (*throttled)(void *device, unsigned long long *reasons);
    int (*generation)(void *device, unsigned *g);     /* generation of slot and GPU together */
    int (*gpu_generation)(void *device, unsigned *g); /* generation of the GPU alone */
    int (*peer)(void *device, void *other, int access, int *state);
    const char *(*sentence)(int result);
};

/* Opens the library. Returns 0 if it is absent or lacks one of the functions that all drivers have; newer ones stay NULL. */
static int open_library(struct nvml *n)
{
    const struct {
        const char *name;
        void *at;
        int needed;
    } all[] = {{"nvmlInit_v2", &n->init, 1},
               {"nvmlShutdown", &n->shutdown, 1},
               {"nvmlDeviceGetCount_v2", &n->count, 1},
               {"nvmlDeviceGetHandleByIndex_v2", &n->handle, 1},
               {"nvmlErrorString", &n->sentence, 1},
               {"nvmlDeviceGetTotalEccErrors", &n->ecc_errors, 0},
               {"nvmlDeviceGetRemappedRows", &n->remapped, 0},
               {"nvmlDeviceGetCurrentClocksThrottleReasons", &n->throttled, 0},
               {"nvmlDeviceGetMaxPcieLinkGeneration", &n->generation, 0},
               {"nvmlDeviceGetGpuMaxPcieLinkGeneration", &n->gpu_generation, 0},
               {"nvmlDeviceGetP2PStatus", &n->peer, 0}};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    *n = (struct nvml){0};
    for (size_t i = 0; library && i < sizeof all / sizeof *all; i++) {
        void *symbol = dlsym(library, all[i].name);
        if (!symbol && all[i].needed)
            return 0;
        memcpy(all[i].at, &symbol, sizeof symbol);
    }
    return library != NULL;
}

static void check_errors(struct findings *f, const struct nvml *n, unsigned i, void *device)
{
    unsigned long long now = 0, ever = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    const int known = n->ecc_errors && n->ecc_errors(device, NVML_UNCORRECTED, NVML_SINCE_BOOT, &now) == NVML_SUCCESS &&
                      n->ecc_errors(device, NVML_UNCORRECTED, NVML_EVER, &ever) == NVML_SUCCESS;
    if (n->remapped && n->remapped(device, &corrected, &uncorrected, &pending, &failed) != NVML_SUCCESS)
        pending = failed = 0;
    if (failed)
        findings_add(f, VERDICT_FAILURE, "ecc", "have the GPU exchanged", "GPU %u has damaged memory and no spare rows left", i);
    else if (pending)
        findings_add(f, VERDICT_WARNING, "ecc", "reset the GPU or restart the machine, so that spare rows take their place",
                     "GPU %u has damaged rows of memory that are still in use", i);
    if (!known)
        findings_add(f, VERDICT_UNMEASURED, "ecc", "", "GPU %u does not count errors of its memory (no ECC, or it is off)", i);
    else if (now > 0)
        findings_add(f, VERDICT_FAILURE, "ecc", "reset the GPU or restart the machine; have it exchanged if errors come back",
                     "GPU %u has had %llu uncorrected errors of memory since the driver was loaded", i, now);
    else if (ever > 0)
        findings_add(f, VERDICT_WARNING, "ecc", "watch this number",
                     "GPU %u has had %llu uncorrected errors of memory in its life", i, ever);
    else
        findings_add(f, VERDICT_OK, "ecc", "", "GPU %u has had no uncorrected error of memory", i);
}

static void check_clocks(struct findings *f, const struct nvml *n, unsigned i, void *device)
{
    static const struct {
        unsigned long long reason;
        const char *what, *cure;
    } rows[] = {{NVML_HOT, "it is too hot (by its hardware)", "look at fans and air"},
                {NVML_WARM, "it is too hot (by its driver)", "look at fans and air"},
                {NVML_POWER_BRAKE, "its power supply asks for it", "look at the power supply"},
                {NVML_SLOWDOWN, "of heat or power (by its hardware)", "look at fans, air and the power supply"},
                {NVML_POWER_CAP, "of its power limit", "`nvidia-smi -pl WATTS`, if the limit is not meant"}};
    unsigned long long reasons = 0;
    if (!n->throttled || n->throttled(device, &reasons) != NVML_SUCCESS) {
        findings_add(f, VERDICT_UNMEASURED, "clocks", "", "GPU %u does not say whether its clocks are held back", i);
        return;
    }
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (reasons & rows[k].reason) {
            findings_add(f, VERDICT_WARNING, "clocks", rows[k].cure, "GPU %u holds its clocks back, because %s", i, rows[k].what);
            return;
        }
    findings_add(f, VERDICT_OK, "clocks", "", "GPU %u does not hold its clocks back", i);
}

static void check_generation(struct findings *f, const struct nvml *n, unsigned i, void *device)
{
    unsigned both = 0, own = 0;
    if (!n->generation || n->generation(device, &both) != NVML_SUCCESS) {
        findings_add(f, VERDICT_UNMEASURED, "pcie", "", "GPU %u does not say the generation of its link", i);
        return;
    }
    if (!n->gpu_generation || n->gpu_generation(device, &own) != NVML_SUCCESS)
        own = both;
    if (both < own)
        findings_add(f, VERDICT_WARNING, "pcie", "look at the slot, the riser and the BIOS: offloading is as fast as this link",
                     "GPU %u is of PCIe generation %u, its slot of %u", i, own, both);
    else
        findings_add(f, VERDICT_OK, "pcie", "", "GPU %u has a link of PCIe generation %u", i, both);
}

enum { DEVICES = 16 };

/* Checks that each GPU can read and write each other one's memory. */
static void check_peers(struct findings *f, const struct nvml *n, unsigned devices, void *const device[DEVICES])
{
    int apart = 0, unknown = 0;
    for (unsigned i = 0; i < devices; i++)
        for (unsigned k = i + 1; k < devices; k++) {
            int reads = NVML_PEER_OK, writes = NVML_PEER_OK;
            if (!n->peer || n->peer(device[i], device[k], NVML_PEER_READ, &reads) != NVML_SUCCESS ||
                n->peer(device[i], device[k], NVML_PEER_WRITE, &writes) != NVML_SUCCESS) {
                unknown++;
                continue;
            }
            if (reads == NVML_PEER_OK && writes == NVML_PEER_OK)
                continue;
            apart++;
            findings_add(f, VERDICT_WARNING, "peers", "`nvidia-smi topo -p2p rw`; ACS and IOMMU in the BIOS may forbid it",
                         "GPUs %u and %u cannot reach each other's memory: their messages pass through the host's", i, k);
        }
    if (devices > 1 && unknown > 0)
        findings_add(f, VERDICT_UNMEASURED, "peers", "", "the driver does not say which GPUs reach each other's memory");
    else if (devices > 1 && apart == 0)
        findings_add(f, VERDICT_OK, "peers", "", "all %u GPUs reach each other's memory", devices);
}

void doctor_nvml(struct findings *f)
{
    struct nvml n;
    void *device[DEVICES];
    unsigned devices = 0, known = 0;
    if (!open_library(&n)) {
        findings_add(f, VERDICT_UNMEASURED, "ecc", "install the driver's " LIBRARY,
                     "errors of memory (ECC), throttled clocks and access between GPUs");
        return;
    }
    int result = n.init();
    if (result == NVML_SUCCESS) {
        result = n.count(&devices);
        for (unsigned i = 0; result == NVML_SUCCESS && i < devices && i < DEVICES; i++) {
            result = n.handle(i, &device[i]);
            if (result != NVML_SUCCESS)
                break;
            check_errors(f, &n, i, device[i]);
            check_clocks(f, &n, i, device[i]);
            check_generation(f, &n, i, device[i]);
            known++;
        }
        if (result == NVML_SUCCESS)
            check_peers(f, &n, known, device);
        n.shutdown();
    }
    if (result != NVML_SUCCESS)
        findings_add(f, VERDICT_FAILURE, "ecc", "`nvidia-smi` may say more; a restart of the machine may help",
                     "the driver's " LIBRARY " fails: %s", n.sentence(result));
}
