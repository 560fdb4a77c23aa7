/* The machine a plan is for: what its devices, hosts, drives and links hold and how fast they are.
 *
 * From a data sheet (hardware_preset), a YAML file (hardware_read: by hand, or a profile of this machine), or assumed. A flat
 * struct: ranks may send it to each other. Rates are FLOP/s and bytes/s; sizes are usable bytes. */
#ifndef LTRAIN_MACHINE_HARDWARE_H
#define LTRAIN_MACHINE_HARDWARE_H

#include "machine/cost.h"
#include "settings/settings.h"

#include <stdio.h>

#define HARDWARE_LEFT_FREE 5 /* percent of a drive */

struct hardware {
    char name[48], source[128];       /* source of the figures, for people */
    int cpu;                          /* the devices are the host's own processors and memory */
    int capability, processors;       /* of a GPU: 10 * compute capability; streaming multiprocessors */
    int nodes, devices;               /* devices: of one node */
    int drives;                       /* of one node, which read and write together */
    int64_t device_mem;               /* of one device */
    int64_t host_mem, nvme_mem;       /* of one node, all drives together */
    int64_t drives_hold;              /* what plans may take of nvme_mem without --nvme-max; 0: all of it */
    int64_t device_holds;             /* device_mem before --device-mem; 0: the same */
    int host_assumed, drives_assumed; /* nobody has said what a node has of them: neither settings nor a file */

    double peak_flops[COST_TYPES]; /* dense peak of a device by storage type */
    struct rates device;
    struct op_rates host; /* the optimizer's ops on the host's processors, all of a node */
    double overhead;      /* seconds per instruction */

    double h2d, d2h;     /* of one device */
    double late;         /* cpu:discrete: of a copy that poisons its target first */
    double wake_seconds; /* cpu: until a lane's sleeping thread runs beside compute */
    /* cpu:discrete: the processors' time that a throttled copy takes from compute, whatever its size, and the bytes that it
     * copies in each further second of that. */
    double throttled_cores, throttled_bytes;
    double host_memory;                 /* of a node, shared by its devices' copies, drives and host ops */
    double read, write, both;           /* of one node, all drives; both: the sum when it reads and writes at once */
    double read_seconds, write_seconds; /* that an extent takes longer before which its lane had nothing to do */
    /* Of one device and direction to another one of its node, and to one of another node. */
    double inside, inside_seconds, across, across_seconds;
    /* cpu: the share of the processors' time that a lane takes from compute, by lane, running at its full rate. */
    double cores[LANES];
};

/* "h200", "4xa100-40": data sheet figures times the efficiencies that `source` states; 4x: four devices, node by node.
 * ERR_INVALID names the presets and the nearest one. */
enum status hardware_preset(const char *name, struct hardware *out);
int hardware_is_preset(const char *name);
/* The data sheet of a GPU as its driver names it ("NVIDIA H100 80GB HBM3": h100); NULL: there is none. */
const char *hardware_preset_of_gpu(const char *gpu);
/* Those that such a name may be meant to be, "4xa100-40 or 4xa100-80"; "": none is near. 128 bytes are enough. */
void hardware_preset_nearest(const char *name, char *buf, size_t size);

/* A file of the fields that hardware_write writes; those left out are as data sheets of the like have them, or as the preset's
 * named by `like`. `path` begins the sentence of an error, with the line. */
enum status hardware_read(const char *path, FILE *f, struct hardware *out);
enum status hardware_write(const struct hardware *h, FILE *f);

/* What this build takes for granted of a machine that was never measured. */
void hardware_assumed(struct hardware *out);

/* What plans may take of the free bytes of drives where --nvme-max does not say: the rest is left for checkpoints, logs and
 * others' files. */
static inline int64_t hardware_drives_share(int64_t free_bytes)
{
    return free_bytes - free_bytes / 100 * HARDWARE_LEFT_FREE;
}

/* Sets a rate for all shapes; the products' rates fall off at small sizes like those of a device that needs large ones. */
void hardware_set_gemm(struct gemm_rates *r, double flops, double half_size);
void curve_set(struct curve *c, double y);

#define HARDWARE_MOST_DEVICES 65536 /* of a machine that is planned for */

/* `drives` drives in a node, each of which reads `gbps` GB/s and writes as much beside that as a data sheet's does. */
void hardware_set_drives(struct hardware *h, int drives, double gbps);
/* The settings' budgets and drives in place of the machine's own. */
void hardware_override(struct hardware *h, const struct plan_request *s);
/* Bytes of each tier for one rank, `ranks` of them sharing the machine. */
void hardware_limits(const struct hardware *h, int ranks, int64_t limit[TIERS]);
/* From this ratio of bf16's to fp32's products on, bf16 is advised. */
#define HARDWARE_BF16_PAYS 1.5
/* Devices, memory, drives, and what is stored. s: whose machine it is; ranks: that run on it. */
void hardware_print(const struct hardware *h, const struct plan_request *s, int ranks, FILE *f);

#endif
