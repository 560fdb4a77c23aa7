/* The streams of a device, one for each lane, which wait for each other only by events. */
#include "device/cuda/streams.h"

#include "base/num.h"
#include "device/cuda/errors.h"

#include <assert.h>
#include <string.h>

static const enum lane lanes[] = {LANE_COMPUTE, LANE_H2D, LANE_D2H, LANE_WORLD};
#define N_STREAMS (int)(sizeof lanes / sizeof *lanes)

static enum status enter(struct backend *b)
{
    return CUDA_STATUS(cudaSetDevice(cuda_device_of(b)->device));
}

/* Returns how many bytes from `host` on lie in one registration. */
static int64_t within_piece(const struct cuda_device *c, const char *host, int64_t bytes)
{
    for (int i = 0; i < c->n_pins; i++) {
        int64_t at = host - c->pin[i].base;
        if (at >= 0 && at < c->pin[i].bytes)
            return min_i64(bytes, CUDA_PIN_PIECE - at % CUDA_PIN_PIECE);
    }
    return bytes;
}

static enum status copy(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    char *to = (char *)dst;
    const char *from = (const char *)src;
    int up = to >= b->base && to < b->base + b->bytes;
    enum cudaMemcpyKind kind = up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    for (int64_t n; bytes > 0; bytes -= n, to += n, from += n) {
        n = within_piece(c, up ? from : to, bytes);
        TRY(CUDA_STATUS(cudaMemcpyAsync(to, from, (size_t)n, kind, c->stream[lane])));
    }
    return OK;
}

static enum status record_kind(struct backend *b, enum lane lane, int event, enum cuda_event_kind kind)
{
    struct cuda_device *c = cuda_device_of(b);
    assert(event >= 0 && event <= BACKEND_BEGAN);
    c->event[lane][event] = c->made[kind][lane][event];
    return CUDA_STATUS(cudaEventRecord(c->event[lane][event], c->stream[lane]));
}

static enum status record(struct backend *b, enum lane lane, int event)
{
    return record_kind(b, lane, event, CUDA_EVENT_LOUD);
}

static enum status record_quietly(struct backend *b, enum lane lane, int event)
{
    return record_kind(b, lane, event, CUDA_EVENT_QUIET);
}

static enum status query(struct backend *b, enum lane lane, int event, int *done)
{
    cudaError_t error = cudaEventQuery(cuda_device_of(b)->event[lane][event]);
    *done = error == cudaSuccess;
    return error == cudaErrorNotReady ? OK : cuda_status(error, "cudaEventQuery");
}

static enum status wait(struct backend *b, enum lane lane, int event)
{
    return CUDA_STATUS(cudaEventSynchronize(cuda_device_of(b)->event[lane][event]));
}

static enum status await(struct backend *b, enum lane lane, enum lane of, int event)
{
    struct cuda_device *c = cuda_device_of(b);
    return CUDA_STATUS(cudaStreamWaitEvent(c->stream[lane], c->event[of][event], 0));
}

static enum status elapsed(struct backend *b, enum lane lane, int event, double *seconds)
{
    struct cuda_device *c = cuda_device_of(b);
    float ms = 0;
    TRY(CUDA_STATUS(cudaEventElapsedTime(&ms, c->event[LANE_COMPUTE][BACKEND_BEGAN], c->event[lane][event])));
    *seconds = (double)ms * 1e-3;
    return OK;
}

static enum status join(struct backend *b)
{
    struct cuda_device *c = cuda_device_of(b);
    for (int i = 0; i < N_STREAMS; i++)
        TRY(CUDA_STATUS(cudaStreamSynchronize(c->stream[lanes[i]])));
    return OK;
}

static enum status make_events(struct cuda_device *c, enum lane l)
{
    for (int k = 0; k <= BACKEND_BEGAN; k++) {
        TRY(CUDA_STATUS(cudaEventCreateWithFlags(&c->made[CUDA_EVENT_LOUD][l][k], cudaEventBlockingSync)));
        TRY(CUDA_STATUS(cudaEventCreateWithFlags(&c->made[CUDA_EVENT_QUIET][l][k], 0)));
    }
    memcpy(c->event[l], c->made[CUDA_EVENT_LOUD][l], sizeof c->event[l]);
    return OK;
}

enum status cuda_streams_open(struct cuda_device *c)
{
    int least = 0, greatest = 0;
    TRY(CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    for (int i = 0; i < N_STREAMS; i++) {
        const enum lane l = lanes[i];
        /* numerically smaller is more urgent: work that others wait for overtakes compute */
        int priority = l == LANE_COMPUTE ? least : l == LANE_WORLD ? greatest : (least + greatest) / 2;
        TRY(CUDA_STATUS(cudaStreamCreateWithPriority(&c->stream[l], cudaStreamNonBlocking, priority)));
        TRY(make_events(c, l));
        c->b.stream[l] = c->stream[l];
    }
    TRY(CUDA_STATUS(cudaStreamCreateWithPriority(&c->reading, cudaStreamNonBlocking, greatest)));
    c->b.streams = 1;
    c->b.enter = enter;
    c->b.copy = copy;
    c->b.record = record;
    c->b.record_quietly = record_quietly;
    c->b.query = query;
    c->b.wait = wait;
    c->b.await = await;
    c->b.elapsed = elapsed;
    c->b.join = join;
    return OK;
}

void cuda_streams_close(struct cuda_device *c)
{
    for (int i = 0; i < N_STREAMS; i++) {
        const enum lane l = lanes[i];
        for (int k = 0; k < CUDA_EVENT_KINDS * (BACKEND_BEGAN + 1); k++) {
            const cudaEvent_t event = c->made[k % CUDA_EVENT_KINDS][l][k / CUDA_EVENT_KINDS];
            if (event)
                (void)cudaEventDestroy(event);
        }
        if (c->stream[l]) {
            (void)cudaStreamSynchronize(c->stream[l]);
            (void)cudaStreamDestroy(c->stream[l]);
        }
    }
    if (c->reading)
        (void)cudaStreamDestroy(c->reading);
}
