/* Contract between the program and the module that speaks one MPI. Modules are compiled against that MPI's headers, link neither
 * MPI nor ltrain, and are opened once several ranks meet. Private to src/comm. */
#ifndef LTRAIN_COMM_WIRE_MODULE_H
#define LTRAIN_COMM_WIRE_MODULE_H

#include "comm/wire.h"

#include <stddef.h>

enum { WIRE_MODULE_VERSION = 2 };
#define WIRE_MODULE_ENTRY "ltrain_wire_module"

/* Functions of the program that a module calls. */
struct wire_host {
    enum status (*fail)(enum status st, const char *format, ...) __attribute__((format(printf, 2, 3)));
    void *(*allocate)(size_t bytes);
    int (*shm_is_short)(int ranks, char *text, size_t bytes);
};

/* Functions of a module: those of comm/wire.h. */
struct wire_module {
    int version;
    enum status (*create)(const struct launch *launch, double timeout_seconds, struct wire **out);
    void (*destroy)(struct wire *w, double finalize_seconds);
    enum status (*reserve)(struct wire *w, enum channel channel, int slots);
    enum status (*send)(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes);
    enum status (*recv)(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes);
    int (*in_use)(const struct wire *w, enum channel channel, int slot);
    enum status (*test)(struct wire *w, enum channel channel, const struct wire_event **events, int *n);
    const char *(*starting)(void);
    unsigned (*calls)(void);
};

typedef const struct wire_module *wire_module_entry(const struct wire_host *host);

#endif
