/* Messages between ranks, the only place that knows MPI; private to src/comm. Requests live in tables of slots, one table per
 * channel. */
#ifndef LTRAIN_COMM_WIRE_H
#define LTRAIN_COMM_WIRE_H

#include "comm/launch.h"

#include <stdint.h>

/* Channels: messages match only within one, and between two ranks they stay in order. */
enum channel {
    CHANNEL_CONTROL,
    CHANNEL_HOST,
    CHANNEL_WORLD,
    CHANNEL_ULYSSES,
    CHANNEL_RING,
    CHANNEL_EP,
    CHANNEL_EXPERTS,
    CHANNEL_TP,
    CHANNEL_ZERO,
    CHANNEL_STAGE,
    CHANNEL_PP,
    CHANNEL_SEQUENCE,
    CHANNELS
};

struct wire;

#define WIRE_TOO_LONG (-1)

struct wire_event {
    int slot, bytes; /* bytes: of a received message; WIRE_TOO_LONG: it did not fit */
};

/* Starts MPI. Fails if `launch` differs from MPI's view. Ends the process if MPI does not start within the timeout. */
enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out);
/* Finalizes MPI, which may take that long; 0: leaves MPI as it is. */
void wire_destroy(struct wire *w, double finalize_seconds);
/* Makes a table of `slots` for the channel, none in use. */
enum status wire_reserve(struct wire *w, enum channel channel, int slots);
enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes);
enum status wire_recv(struct wire *w, enum channel channel, int slot, int from /* -1: any rank */, void *data, int bytes);
int wire_in_use(const struct wire *w, enum channel channel, int slot);
/* Lists the slots that have completed since the last call, at most the table's size. Valid until the next call for this channel. */
enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n);

/* Returns the sentence to print if MPI ends the process while it starts; "" after the start. */
const char *wire_starting(void);

/* Returns a number that is odd while the thread that talks is inside a call of MPI; from any thread. */
unsigned wire_calls(void);

#endif
