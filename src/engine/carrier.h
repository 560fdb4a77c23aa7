/* The carrier of messages between ranks on GPUs: the device's library, or the host through bounce buffers. */
#ifndef LTRAIN_ENGINE_CARRIER_H
#define LTRAIN_ENGINE_CARRIER_H

#include "engine/exec_context.h"
#include "settings/settings.h"

struct carrier {
    char library[BACKEND_CARRIER]; /* name and version; "": none */
    char text[320];                /* sentence for the user; "": nothing to say */
};

/* Chooses the carrier, the same on all ranks, and joins the ranks; x->carried tells whether the library carries. All ranks call
 * it, before the device has its arena: the library takes memory of its own.
 *
 * ERR_INVALID: the wanted carrier is not possible. ERR_PEER: a rank is gone or late. */
enum status carrier_open(struct exec_context *x, enum carriers wanted, struct carrier *out);

#endif
