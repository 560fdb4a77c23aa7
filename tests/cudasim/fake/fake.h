/* A CUDA runtime without a GPU: streams that are late, poison their results' memory and run in a random order that events allow;
 * device memory that only the GPU's thread can touch; calls that fail when told to; and errors for misuse that CUDA lets pass.
 *
 * Configured by LTRAIN_FAKE_CUDA or fake_cuda_configure: settings with commas between them, each with its default in brackets.
 *   seed=N      seed of the random order; with an odd seed, streams execute only when a thread waits or much is queued
 *   lag=N       microseconds by which each piece of work is delayed
 *   memory=N    bytes of each device, with K, M or G [1G]
 *   taken=N     bytes of these that other processes use [0]
 *   context=N   bytes that this process's context uses [0]
 *   kernel=N    bytes that each kernel uses from its first launch on [0]
 *   stream=N    bytes of the device that each stream uses once it is given work [0]
 *   grows=N:B   after N pieces of work B more bytes are used, as by a library that allocates late
 *   name=TEXT   name of the devices [twin]
 *   capability=N, processors=N   10 * major + minor [0] and number of multiprocessors [1]
 *   numa=N, bus=N   the devices' NUMA node [-1] and the first device's PCI bus [1]
 *   driver=N    1000 * major + 10 * minor of the CUDA version that the driver supports [13000]
 *   exclusive=1 another process uses the devices exclusively
 *   algorithms=N  stands for another choice of algorithms for products [0]; it changes no bit but the numerics key (twin)
 *   pin=N       the N-th registration of host memory fails for lack of memory
 *   dry=1       kernels and fills are not executed, and their addresses are not checked
 *   devices=N   number of devices [1]
 *   own=1       a process sees one device as number 0: the one of its local rank (of Open MPI)
 *   instances=1 each device is a MIG instance, which has an identity of its own but the PCI address of the first device
 *   fail=N:E    the N-th call of the runtime, counted from now on, returns error E; errors 214, 700 and 719 are sticky
 *   in=NAME     `fail` counts only calls of this function
 *   nccl=F:N:E  the N-th call of NCCL's function F returns result E
 *   nccl=none, nccl=alone, nccl=sticks   there is no NCCL; this process joins no other; aborts do not return
 *   nccl-version=N  10000 * major + 100 * minor + patch
 *   nccl-stalls=N   the work of the N-th NCCL call is never put on its stream
 *   nccl-hangs=N    the N-th group of messages never ends
 *   nccl-breaks=N:E the N-th group never ends, and the communicator reports result E from then on
 *   hangs=N     the N-th piece of work that streams execute never ends
 *   dies=N:E    the N-th piece of work ends with error E, which is sticky: later calls return it */
#ifndef LTRAIN_TESTS_FAKE_H
#define LTRAIN_TESTS_FAKE_H

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>

/* --- For tests, which find these by dlsym --- */

/* Starts anew with this configuration: no stream, event, allocation or registration made before may be left. */
void fake_cuda_configure(const char *words);
long fake_cuda_calls(void);    /* calls of the runtime since it was configured */
long fake_cuda_loaded(void);   /* number of kernels that were launched, if the simulator runs them */
long fake_cuda_executed(void); /* number of things that streams have executed */
/* Returns as text the objects not given back and the first misuse; "" if there is neither. */
const char *fake_cuda_left(void);

/* --- Within the fake --- */

enum { FAKE_LEAST = 0, FAKE_GREATEST = -5 }; /* priorities of streams */
enum { FAKE_DEVICES = 8, FAKE_QUEUE = 1024 /* launches that a stream holds before a real launch would wait */ };

struct fake_config {
    uint64_t seed;
    size_t memory, taken, context, kernel, stream, grows;
    int devices, lag, capability, processors, dry, numa, bus, driver, exclusive, algorithms, own, instances;
    char name[128], fail_in[64];
    long fail_call, fail_executed, fail_pin, grows_after, hang_executed;
    int fail_error, executed_error;
};

/* Work for a stream. `start` and `ready` may be NULL; all three functions run on the GPU's thread and get device addresses that
 * this thread can touch. */
struct fake_work {
    void (*start)(void *closure); /* poisons the results' memory */
    int (*ready)(void *closure);  /* called with the lock held, again and again after the start: whether the work may end */
    cudaError_t (*end)(void *closure);
    void *closure; /* freed by the fake */
};

struct CUevent_st {
    int alive, flags, device;
    int64_t recorded, done; /* number of times */
    int64_t done_ns;
    int waiting; /* threads that wait for the event */
    struct CUevent_st *next;
};

extern pthread_mutex_t fake_lock;
extern struct fake_config fake_config;
extern int fake_sticky; /* cudaError_t that every call returns; protected by the lock */

/* Counts a call of the runtime and returns the error with which it shall fail: one that the configuration asks for or the sticky
 * one. The caller holds the lock. */
cudaError_t fake_enter_from(const char *function);
#define fake_enter() fake_enter_from(__func__)
/* Records a misuse, whose text cudaGetErrorString will return; returns `error`. */
cudaError_t fake_misuse(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the device's number on its host. */
int fake_number_on_host(int device);
/* Returns the device that the thread has chosen, or -1 and records an error's text. The caller holds the lock. */
int fake_current(void);

/* Memory. Callers hold the lock. */
void *fake_alias(const void *device); /* returns the GPU thread's address of device memory; NULL: no device memory is there */
/* Allocate and free device memory of the simulator, which all threads can touch; the functions exist only if the simulator runs
 * the kernels. */
__attribute__((weak)) void *fake_memory_make(size_t bytes);
__attribute__((weak)) void fake_memory_give(void *p, size_t bytes);
/* Tells whether [p, p + bytes) lies in one allocation. */
int fake_on_device(const void *p, size_t bytes);
/* Returns an error unless host memory may be copied asynchronously. */
cudaError_t fake_check_pinned(const void *p, size_t bytes);
/* The first function takes the memory of this process's context on the device, the second that of one more kernel on the calling
 * thread's device. */
cudaError_t fake_take_context(int device);
cudaError_t fake_take_kernel(void);
/* Takes the memory of a stream of the calling thread's device that is used for the first time. */
cudaError_t fake_take_stream(void);
/* Takes the memory of a kernel at its first launch. busy: streams run, which makes a first launch a misuse. */
cudaError_t fake_load(const char *kernel, int busy);
int fake_memory_left(char *text, size_t size);
void fake_memory_reset(void);

/* Streams. */
cudaError_t fake_enqueue(cudaStream_t stream, const struct fake_work *work); /* the caller holds the lock */
int fake_priority(cudaStream_t stream);                                      /* FAKE_LEAST for the default stream */
/* tells whether any stream has work; the caller holds the lock */
int fake_is_busy(void);
int fake_is_busy_beside(cudaStream_t stream); /* tells whether any other stream has work */
int fake_streams_left(char *text, size_t size);
void fake_streams_reset(void);
void fake_fail_device(cudaError_t error); /* the caller holds the lock */
void fake_look_again(void);               /* wakes the GPU's thread, since work may be ready; the caller holds the lock */
long fake_executed(void);

/* NCCL. Callers hold the lock. */
int nccl_configure(const char *word); /* returns 0 if the word does not configure NCCL */
int nccl_left(char *text, size_t size);
void nccl_reset(void);
int nccl_is_absent(void); /* the caller does not hold the lock */

#endif
