/* A management library of two GPUs, whose answers are numbers in environment variables: NVML_ECC, NVML_EVER, NVML_PENDING,
 * NVML_CLOCKS, NVML_SLOT, NVML_PEER, NVML_FAILS. */
#include <stdint.h>
#include <stdlib.h>

static unsigned long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 0) : 0;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
const char *nvmlErrorString(int result);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *n);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *g);
int nvmlDeviceGetGpuMaxPcieLinkGeneration(void *device, unsigned *g);
int nvmlDeviceGetP2PStatus(void *device, void *other, int access, int *state);

int nvmlInit_v2(void)
{
    return (int)number("NVML_FAILS");
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    static char devices[2];
    *device = &devices[i];
    return i < 2 ? 0 : 2;
}

const char *nvmlErrorString(int result)
{
    return result == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *n)
{
    (void)device;
    *n = kind == 1 ? number(since == 0 ? "NVML_ECC" : "NVML_EVER") : 1000;
    return getenv("NVML_ECC") ? 0 : 3; /* not supported */
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    (void)device;
    *corrected = *uncorrected = *failed = 0;
    *pending = (unsigned)number("NVML_PENDING");
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    (void)device;
    *reasons = number("NVML_CLOCKS");
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *g)
{
    (void)device;
    *g = (unsigned)number("NVML_SLOT");
    return 0;
}

int nvmlDeviceGetGpuMaxPcieLinkGeneration(void *device, unsigned *g)
{
    (void)device;
    *g = 5;
    return 0;
}

int nvmlDeviceGetP2PStatus(void *device, void *other, int access, int *state)
{
    (void)device;
    (void)other;
    *state = access == 1 ? (int)number("NVML_PEER") : 0;
    return 0;
}
