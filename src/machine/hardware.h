/* The machine of a plan: sizes and rates of its devices, hosts, drives and links.
 *
 * Figures come from a data sheet (hardware_preset) or a YAML file (hardware_read: made by hand, or a profile of this machine), or
 * are assumed. The struct is flat but for islands, so that ranks may send it to each other. Rates are FLOP/s and bytes/s; sizes are usable bytes. */
#ifndef LTRAIN_MACHINE_HARDWARE_H
#define LTRAIN_MACHINE_HARDWARE_H

#include "machine/cost.h"
#include "settings/settings.h"

#include <stdio.h>

#define HARDWARE_LEFT_FREE 5 /* percent of a drive that plans leave free */

struct islands;

struct hardware {
    char name[48], source[128];       /* source of the figures, for people */
    int cpu;                          /* 1: the devices are the host's own processors and memory */
    int capability, processors;       /* GPUs: 10 * compute capability; streaming multiprocessors */
    int nodes, devices;               /* devices: number in one node */
    int drives;                       /* number in one node; they read and write together */
    int64_t device_mem;               /* bytes of one device */
    int64_t host_mem, nvme_mem;       /* bytes of one node, all drives together */
    int64_t drives_hold;              /* part of nvme_mem that plans may take without --nvme-max; 0: all of it */
    int64_t device_holds;             /* device_mem before --device-mem; 0: the same */
    int host_assumed, drives_assumed; /* 1: a node's memory or drives come neither from settings nor from a file */

    double peak_flops[COST_TYPES]; /* dense peak of a device by storage type */
    struct rates device;
    struct op_rates host; /* the optimizer's ops on the host's processors, all of a node */
    double overhead;      /* seconds per instruction */

    double h2d, d2h;     /* rates of one device */
    double late;         /* cpu:discrete: rate of a copy that poisons its target first */
    double wake_seconds; /* cpu: seconds until a lane's sleeping thread runs beside compute */
    /* cpu:discrete: processors' seconds that a throttled copy takes from compute, whatever its size, and the bytes that it copies
     * in each further such second. */
    double throttled_cores, throttled_bytes;
    double host_memory;                 /* rate of a node, shared by its devices' copies, drives and host ops */
    double read, write, both;           /* rates of one node, all drives; both: the sum when it reads and writes at once */
    double read_seconds, write_seconds; /* further seconds of an extent whose lane was idle before */
    /* Rates and latencies of one device and direction: to another device of its node, and to a device of another node. */
    double inside, inside_seconds, across, across_seconds;
    /* cpu: share of the processors' time that a lane takes from compute, by lane, running at its full rate. */
    double cores[LANES];
    /* only of a file of --machine with unlike parts: these, borrowed; the fields above are the poorest one's. NULL: all nodes are alike */
    const struct islands *islands;
};

/* Sets a machine by name, "h200" or "4xa100-40": data sheet figures times the efficiencies that `source` states; 4x: four
 * devices, node by node. ERR_INVALID names the presets and the nearest one. */
enum status hardware_preset(const char *name, struct hardware *out);
int hardware_is_preset(const char *name);
/* Returns the preset for a GPU as its driver names it ("NVIDIA H100 80GB HBM3": h100); NULL: there is none. */
const char *hardware_preset_of_gpu(const char *gpu);
/* Writes the presets that such a name may mean, "4xa100-40 or 4xa100-80"; "": none is near. 128 bytes are enough. */
void hardware_preset_nearest(const char *name, char *buf, size_t size);

/* Reads a file of the fields that hardware_write writes. Fields that are left out are as in the data sheet or preset that `like`
 * names. `path` begins the sentence of an error, with the line. */
enum status hardware_read(const char *path, FILE *f, struct hardware *out);
enum status hardware_write(const struct hardware *h, FILE *f);

/* Sets figures of a machine that was never measured. */
void hardware_assumed(struct hardware *out);

/* Returns the part of the drives' free bytes that plans may take without --nvme-max: the rest is left for checkpoints, logs and
 * others' files. */
static inline int64_t hardware_drives_share(int64_t free_bytes)
{
    return free_bytes - free_bytes / 100 * HARDWARE_LEFT_FREE;
}

/* Sets a rate for large matrix products of all shapes; a product of smaller m, n or k is slower: half_size is the size at which a
 * device reaches half of its peak. */
void hardware_set_gemm(struct gemm_rates *r, double flops, double half_size);
void curve_set(struct curve *c, double y);

#define HARDWARE_MOST_DEVICES 65536 /* most devices of a machine that is planned for */

/* Sets `drives` drives in a node. Each reads `gbps` GB/s; its write rate beside that is in proportion to a data sheet's. */
void hardware_set_drives(struct hardware *h, int drives, double gbps);
/* Replaces the machine's own budgets and drives by those of the settings. */
void hardware_override(struct hardware *h, const struct plan_request *s);
/* Computes the bytes of each tier for one rank, with `ranks` of them sharing the machine. */
void hardware_limits(const struct hardware *h, int ranks, int64_t limit[TIERS]);
/* Ratio of bf16's to fp32's products from which on bf16 is advised. */
#define HARDWARE_BF16_PAYS 1.5
/* Prints devices, memory and drives behind `what`, a word for the machine or a part of it. s: the request with that machine; ranks:
 * number that run on it. */
void hardware_print(const struct hardware *h, const struct plan_request *s, int ranks, const char *what, FILE *f);
/* Prints the storage type. */
void hardware_print_type(const struct hardware *h, const struct plan_request *s, FILE *f);

#endif
