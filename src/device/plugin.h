/* The library with the backend of GPUs (libltrain-cuda.so), as the program sees it, and opening it. The library has its own copy
 * of base, program and ops; no part of CUDA is linked to the program or named here. */
#ifndef LTRAIN_DEVICE_PLUGIN_H
#define LTRAIN_DEVICE_PLUGIN_H

#include "device/backend.h"

#define DEVICE_PLUGIN_VERSION 3 /* version of the structs here and in backend.h, which must be equal in program and library */
#define DEVICE_PLUGIN_ENTRY "ltrain_device_plugin"

struct device_facts {
    char name[128], pci[32];
    char uuid[40];        /* identity of the GPU, or of the instance (MIG) that this process has: 32 hexadecimal digits */
    int capability;       /* 10 * major + minor; 0: no GPU, kernels are the CPU's (tests) */
    int processors;       /* streaming multiprocessors */
    int64_t shared_bytes; /* bytes of shared memory that a thread block can have */
    int64_t memory, free; /* bytes; free: once this process has its context there */
    int numa;             /* nearest node of the host's memory; -1: not known */
};

struct device_plugin {
    int version;
    uint64_t ops;                  /* op_table_digest() of the library, plus its PLUGIN_HEADERS */
    const char *(*sentence)(void); /* returns the calling thread's last failure in the library */
    /* Counts the GPUs that this process may use; ERR_INVALID if the driver gives none. */
    enum status (*count)(int *devices);
    /* Describes a device, making the process's context on it. ERR_INVALID: kernels do not run on the device; ERR_NOMEM: no room. */
    enum status (*describe)(int device, struct device_facts *out);
    /* Opens a device. made_for: target of the programs to run. ERR_INVALID: the device differs from it, or a library is missing. */
    enum status (*open)(int device, const struct target *made_for, struct backend **out);
};

typedef const struct device_plugin *device_plugin_entry(void);

/* Tells whether device_plugin_load can succeed, without opening the library: there is a driver, or LTRAIN_CUDA_PLUGIN is set. */
int device_plugin_expected(void);
/* Opens the library on the first call; it stays open. The file is the one that LTRAIN_CUDA_PLUGIN names; without that variable,
 * if there is a driver, the one beside the program or in libdir. ERR_INVALID: no driver, no library, or a library of another
 * version or with another table of ops. */
enum status device_plugin_load(const struct device_plugin **out);

#endif
