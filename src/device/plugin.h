/* The library that has the backend of GPUs (libltrain-cuda.so), as the program sees it, and opening it. The library has its own
 * copy of base, program and ops; nothing of CUDA is linked to the program or named here. */
#ifndef LTRAIN_DEVICE_PLUGIN_H
#define LTRAIN_DEVICE_PLUGIN_H

#include "device/backend.h"

#define DEVICE_PLUGIN_VERSION 3 /* of the structs here and in backend.h: program and library are built together */
#define DEVICE_PLUGIN_ENTRY "ltrain_device_plugin"

struct device_facts {
    char name[128], pci[32];
    char uuid[40];        /* of the GPU, or of the instance (MIG) of it that this process has: 32 hexadecimal digits */
    int capability;       /* 10 * major + minor; 0: no GPU at all, kernels are the processor's (tests) */
    int processors;       /* streaming multiprocessors */
    int64_t shared_bytes; /* of shared memory, that a block of threads may have */
    int64_t memory, free; /* bytes; free once this process has its context there */
    int numa;             /* the node of the host's memory that is nearest; -1: not known */
};

struct device_plugin {
    int version;
    uint64_t ops; /* op_table_digest() of the library, and its PLUGIN_HEADERS added */
    const char *(*sentence)(void); /* of the calling thread's last failure in the library */
    /* GPUs that this process may use; ERR_INVALID where the driver gives none. */
    enum status (*count)(int *devices);
    /* Makes the process's context on the device. ERR_INVALID: a device that kernels do not run on; ERR_NOMEM: no room. */
    enum status (*describe)(int device, struct device_facts *out);
    /* made_for: of the programs that it will run; ERR_INVALID: the device is another one, or a library is missing. */
    enum status (*open)(int device, const struct target *made_for, struct backend **out);
};

typedef const struct device_plugin *device_plugin_entry(void);

/* Whether device_plugin_load can succeed, without opening the library: there is a driver, or LTRAIN_CUDA_PLUGIN is set. */
int device_plugin_expected(void);
/* Opens the library on the first call: the file that LTRAIN_CUDA_PLUGIN names, else the one beside the program or in libdir once
 * there is a driver. It stays open. ERR_INVALID: no driver, no library, or one of another version or with another table of
 * ops. */
enum status device_plugin_load(const struct device_plugin **out);

#endif
