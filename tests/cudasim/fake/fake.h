/* A CUDA runtime without a GPU: streams that are late, poison what they write and run in a random order that events allow; device
 * memory that only the GPU's thread can touch; calls that fail when told to; and errors for what CUDA lets pass.
 *
 * LTRAIN_FAKE_CUDA, or fake_cuda_configure: words with commas between.
 *   seed=N      of the order; an odd one executes only when somebody blocks or much is queued
 *   lag=N       microseconds that everything takes beside what it takes
 *   memory=N    bytes of each device (K, M, G), 1G
 *   taken=N     of them by other processes, 0
 *   context=N   of them by this one's context, 0; kernel=N: by each kernel from its first launch on, 0
 *   stream=N    bytes of the device that each stream takes when it is first given work, 0
 *   grows=N:B   after the N-th thing that streams execute B more bytes are taken, as by a library that allocates late
 *   name=TEXT   of the devices, twin; capability=N: 10 * major + minor, 0; processors=N: 1; numa=N: their node, -1;
 *               bus=N: the first one's PCI bus, 1
 *   driver=N    1000 * major + 10 * minor of the CUDA that the driver is for, 13000
 *   exclusive=1 another process has the devices alone
 *   algorithms=N  another choice of products' algorithms, 0: it changes no bit, and is in the numerics key (twin)
 *   pin=N       the N-th registration of host memory finds no memory
 *   dry=1       launches of kernels and fills are neither executed nor held to memory that is there
 *   devices=N   how many there are, 1
 *   own=1       a process sees of them the one of Open MPI's local rank, as number 0
 *   instances=1 a device is an instance (MIG): with an identity of its own at the first device's PCI address
 *   fail=N:E    the N-th call of the runtime from now on returns error E; 214, 700 and 719 stay
 *   in=NAME     calls of that function alone count for it
 *   nccl=F:N:E  the N-th call of NCCL's function F returns its result E; nccl=none: there is no NCCL;
 *               nccl=alone: the process joins nobody; nccl=sticks: its aborts do not return
 *   nccl-version=N  10000 * major + 100 * minor + patch
 *   nccl-stalls=N  what the N-th call begins never gets to its stream
 *   nccl-hangs=N, nccl-breaks=N:E  the N-th group of messages never ends; and the communicator has result E from then on
 *   hangs=N     the N-th thing that streams execute never ends
 *   dies=N:E    the N-th thing that streams execute ends with error E, which stays: calls say so later */
#ifndef LTRAIN_TESTS_FAKE_H
#define LTRAIN_TESTS_FAKE_H

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>

/* --- For tests, which find these by dlsym --- */

/* Starts anew: no stream, event, allocation or registration of before may be left. */
void fake_cuda_configure(const char *words);
long fake_cuda_calls(void);    /* calls of the runtime since it was configured */
long fake_cuda_loaded(void);   /* kernels that were launched, where the simulator has them */
long fake_cuda_executed(void); /* things that streams have executed */
/* Returns as text the objects not given back and the first misuse; "" if there is neither. */
const char *fake_cuda_left(void);

/* --- Within the fake --- */

enum { FAKE_LEAST = 0, FAKE_GREATEST = -5 }; /* priorities of streams */
enum { FAKE_DEVICES = 8, FAKE_QUEUE = 1024 /* launches that a stream takes before a real one would spin */ };

struct fake_config {
    uint64_t seed;
    size_t memory, taken, context, kernel, stream, grows;
    int devices, lag, capability, processors, dry, numa, bus, driver, exclusive, algorithms, own, instances;
    char name[128], fail_in[64];
    long fail_call, fail_executed, fail_pin, grows_after, hang_executed;
    int fail_error, executed_error;
};

/* Work for a stream. `start` and `ready` may be NULL; all three run on the GPU's thread and get device addresses that it can
 * touch. */
struct fake_work {
    void (*start)(void *closure); /* poisons what will be written */
    int (*ready)(void *closure);  /* asked again and again after the start, under the lock: whether it may end */
    cudaError_t (*end)(void *closure);
    void *closure; /* freed by the fake */
};

struct CUevent_st {
    int alive, flags, device;
    int64_t recorded, done; /* number of times */
    int64_t done_ns;
    struct CUevent_st *next;
};

extern pthread_mutex_t fake_lock;
extern struct fake_config fake_config;
extern int fake_sticky; /* cudaError_t that every call returns; under the lock */

/* Counts a call of the runtime and says whether it fails by order or because of a sticky error. Under the lock. */
cudaError_t fake_enter_from(const char *function);
#define fake_enter() fake_enter_from(__func__)
/* Notes a misuse for cudaGetErrorString; returns `error`. */
cudaError_t fake_misuse(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the device's number on its host. */
int fake_number_on_host(int device);
/* Returns the device that the thread has chosen; -1 and an error's text: none. Under the lock. */
int fake_current(void);

/* Memory. Under the lock. */
void *fake_alias(const void *device); /* the GPU thread's address of device memory; NULL: it is none */
/* Give and take device memory of the simulator, which all threads can touch, if it runs the kernels; absent otherwise. */
__attribute__((weak)) void *fake_memory_make(size_t bytes);
__attribute__((weak)) void fake_memory_give(void *p, size_t bytes);
/* Tells whether [p, p + bytes) lies in one allocation. */
int fake_on_device(const void *p, size_t bytes);
/* Returns an error unless host memory may be copied asynchronously. */
cudaError_t fake_check_pinned(const void *p, size_t bytes);
/* The calling thread's device has this process's context from now on; it has loaded one more kernel. */
cudaError_t fake_take_context(int device);
cudaError_t fake_take_kernel(void);
/* A stream of the calling thread's device is used for the first time. */
cudaError_t fake_take_stream(void);
/* The kernel is launched: at the first time it is loaded, which nothing may be busy with. */
cudaError_t fake_load(const char *kernel, int busy);
int fake_memory_left(char *text, size_t size);
void fake_memory_reset(void);

/* Streams. */
cudaError_t fake_enqueue(cudaStream_t stream, const struct fake_work *work); /* under the lock */
int fake_priority(cudaStream_t stream);                                      /* the least for the default stream */
int fake_is_busy(void);                                                      /* some stream has work; under the lock */
int fake_is_busy_beside(cudaStream_t stream);                                /* some other one has */
int fake_streams_left(char *text, size_t size);
void fake_streams_reset(void);
void fake_fail_device(cudaError_t error); /* under the lock */
void fake_look_again(void);               /* something may be ready; under the lock */
long fake_executed(void);

/* NCCL. Under the lock. */
int nccl_configure(const char *word); /* 0: no word of NCCL's */
int nccl_left(char *text, size_t size);
void nccl_reset(void);
int nccl_is_absent(void); /* not under the lock */

#endif
