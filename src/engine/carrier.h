/* What carries messages between ranks on GPUs: the device's library,
 * or the host, through bounce buffers. */
#ifndef LTRAIN_ENGINE_CARRIER_H
#define LTRAIN_ENGINE_CARRIER_H

#include "engine/exec_context.h"
#include "settings/settings.h"

struct carrier {
    char library[BACKEND_CARRIER]; /* with its version; "": none */
    char text[320];                /* for people; "": there is nothing to say */
};

/* Chooses, the same on all ranks, which all call it, and joins them; x->carried says whether the library carries. Before the
 * device has its arena: the library takes memory of its own. ERR_INVALID: what is wanted cannot be; ERR_PEER: a rank is gone or
 * late. */
enum status carrier_open(struct exec_context *x, enum carriers wanted, struct carrier *out);

#endif
