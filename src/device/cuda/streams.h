/* Streams, events and copies of a GPU. Private to src/device. */
#ifndef LTRAIN_DEVICE_CUDA_STREAMS_H
#define LTRAIN_DEVICE_CUDA_STREAMS_H

#include "device/backend.h"

#include <cuda_runtime.h>

#ifndef CUDA_PIN_PIECE /* smaller in tests */
#define CUDA_PIN_PIECE ((int64_t)4 << 30)
#endif
#define CUDA_PINS 2 /* registrations of host memory: the host arena, and the buffers of messages */

/* Host memory registered in pieces of CUDA_PIN_PIECE. CUDA refuses copies that cross from one piece to the next. */
struct cuda_pin {
    char *base;
    int64_t bytes;
};

/* Kinds of events: those that a thread may wait for, asleep until an interrupt, and those that only streams wait for. */
enum cuda_event_kind { CUDA_EVENT_LOUD, CUDA_EVENT_QUIET, CUDA_EVENT_KINDS };

struct cuda_device {
    struct backend b;
    char name[192];
    int device;
    cudaStream_t stream[LANES]; /* streams of COMPUTE, H2D, D2H and WORLD */
    cudaStream_t reading;       /* stream of the backend's `read` */
    cudaEvent_t made[CUDA_EVENT_KINDS][LANES][BACKEND_EVENTS + 1];
    cudaEvent_t event[LANES][BACKEND_EVENTS + 1]; /* events of each stream, by number; each stands for its last recording */
    struct cuda_pin pin[CUDA_PINS];
    int n_pins;
    char *arena;  /* the whole allocation: base with a guard on both sides */
    char *bounce; /* pinned */
};

static inline struct cuda_device *cuda_device_of(const struct backend *b)
{
    return (struct cuda_device *)b->state;
}

/* Makes streams and events, and fills in the backend's functions for them. The calling thread has the device. */
enum status cuda_streams_open(struct cuda_device *c);
/* Destroys those streams and events that exist. */
void cuda_streams_close(struct cuda_device *c);

#endif
