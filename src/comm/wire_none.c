/* The wire of a build without MPI: every call fails. */
#include "comm/wire.h"

enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    (void)timeout_seconds;
    (void)out;
    return status_fail(
        ERR_INVALID,
        "this ltrain is built without MPI and runs alone, but %s started it as rank %d of %d; build with -Dmpi=enabled",
        launch->source, launch->rank, launch->size);
}

void wire_destroy(struct wire *w, double finalize_seconds)
{
    (void)w;
    (void)finalize_seconds;
}

unsigned wire_calls(void)
{
    return 0;
}

enum status wire_reserve(struct wire *w, enum channel channel, int slots)
{
    (void)w;
    (void)channel;
    (void)slots;
    return status_fail(ERR_INVALID, "this ltrain is built without MPI");
}

const char *wire_starting(void)
{
    return "";
}

enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    (void)slot;
    (void)to;
    (void)data;
    return wire_reserve(w, channel, bytes);
}

enum status wire_recv(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    return wire_send(w, channel, slot, from, data, bytes);
}

int wire_in_use(const struct wire *w, enum channel channel, int slot)
{
    (void)w;
    (void)channel;
    (void)slot;
    return 0;
}

enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    *events = 0;
    *n = 0;
    return wire_reserve(w, channel, 0);
}
