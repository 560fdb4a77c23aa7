/* Checks of a machine; each adds its findings. Private to src/doctor.
 *
 * root: path in front of /proc and /sys (process_system_root). */
#ifndef LTRAIN_DOCTOR_CHECKS_H
#define LTRAIN_DOCTOR_CHECKS_H

#include "doctor/findings.h"

#include <stdint.h>

/* Checks cores and vector instructions; doctor_load: other programs on the cores; doctor_memory: the memory that limits leave free. */
void doctor_cores(struct findings *f);
void doctor_load(struct findings *f, const char *root);
void doctor_memory(struct findings *f, const char *root);
/* Checks the process's limits: locked memory, open files, the size of a file. */
void doctor_limits(struct findings *f);

/* Checks io_uring in a file below `path`. */
void doctor_io(struct findings *f, const char *root, const char *path);
/* Rates of drives, bytes/s; 0: not measured. */
struct drive_rates {
    double written, read;
};
/* Checks a directory for offloading, existing or not. measured: 1: writes and reads a file of 1 GiB or a quarter of the room, and
 * adds its rates to *all. */
void doctor_path(struct findings *f, const char *path, int measured, struct drive_rates *all);

/* Checks NVIDIA GPUs: their links, the driver, what the plugin finds, CUDA's libraries. */
void doctor_gpus(struct findings *f, const char *root);
/* Checks NVIDIA GPUs by NVML: memory errors, clocks, PCIe generation, access to each other. */
void doctor_nvml(struct findings *f);

/* Checks MPI, the launcher that started this process, and shared memory. */
void doctor_launchers(struct findings *f);

/* Reads a file's first line without its end; "" if there is none. Returns line. */
const char *doctor_read_line(const char *root, const char *path, char *line, int size);

#endif
