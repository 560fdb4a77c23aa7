/* Runs the CUDA kernels on the fake runtime: launches become work of its streams, which cudasim executes on the GPU's thread.
 * Device memory is the simulator's; functions that both the simulator and the runtime have are renamed simulator_* in the
 * simulator (meson.build). */
#include "sim/sim.h"

extern "C" {
#include "fake.h"
#include "twin.h"
}

#include <set>
#include <stdlib.h>
#include <string.h>

void fiber_reset(unsigned seed);
void report_reset(void);
cudaError_t sim_launch_error(const cudaLaunchConfig_t *config, const void *kernel, size_t shared);
cudaError_t simulator_run(const cudaLaunchConfig_t *config, const void *kernel, void (*call)(void *), void *parameters);
void *simulator_parameter_space(void);
extern "C" cudaError_t simulator_func_set_attribute(const void *function, enum cudaFuncAttribute attr, int value);

enum { PARAMETERS = 4096 };

struct kernel_launch {
    cudaLaunchConfig_t config;
    const void *kernel;
    void (*call)(void *);
    int shared; /* bytes of dynamic shared memory that the kernel was allowed; 0: the default */
    char parameters[PARAMETERS];
};

/* Launch that the calling thread prepares: its allowed shared memory, and its parameters. */
static thread_local struct {
    const void *kernel;
    int shared;
} opted;
static thread_local char own_parameters[PARAMETERS] __attribute__((aligned(64)));

static std::set<const void *> loaded;

void stream_enqueue(cudaStream_t)
{
}

void *sim_parameter_space(void)
{
    return own_parameters;
}

static cudaError_t execute(void *closure)
{
    kernel_launch *l = static_cast<kernel_launch *>(closure);
    sim_device(fake_config.capability, fake_config.processors);
    if (l->shared > 0) {
        cudaError_t error = simulator_func_set_attribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l->shared);
        if (error != cudaSuccess)
            return error;
    }
    memcpy(simulator_parameter_space(), l->parameters, PARAMETERS);
    return simulator_run(&l->config, l->kernel, l->call, simulator_parameter_space());
}

static cudaError_t enqueue(const cudaLaunchConfig_t *config, const void *kernel, void (*call)(void *), const void *parameters)
{
    cudaError_t error = fake_enter();
    const bool first = loaded.insert(kernel).second;
    if (error == cudaSuccess)
        error = sim_launch_error(config, kernel, opted.kernel == kernel ? (size_t)opted.shared : 0);
    if (error == cudaErrorInvalidConfiguration)
        return fake_misuse(error, "a grid of %u x %u x %u blocks of %u x %u x %u threads", config->gridDim.x, config->gridDim.y,
                           config->gridDim.z, config->blockDim.x, config->blockDim.y, config->blockDim.z);
    if (fake_config.dry)
        return error;
    if (error == cudaSuccess && first)
        error = fake_is_busy_beside(config->stream)
                    ? fake_misuse(cudaErrorInvalidValue,
                                  "a kernel is launched for the first time while streams run: it is loaded now")
                    : fake_take_kernel();
    if (error != cudaSuccess)
        return error;
    kernel_launch *l = static_cast<kernel_launch *>(malloc(sizeof *l));
    if (!l)
        abort();
    l->config = *config;
    l->kernel = kernel;
    l->call = call;
    l->shared = opted.kernel == kernel ? opted.shared : 0;
    memcpy(l->parameters, parameters, PARAMETERS);
    fake_work work = {};
    work.end = execute;
    work.closure = l;
    return fake_enqueue(config->stream, &work);
}

cudaError_t sim_run(const cudaLaunchConfig_t *config, const void *kernel, void (*call)(void *), void *parameters)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = enqueue(config, kernel, call, parameters);
    pthread_mutex_unlock(&fake_lock);
    return error;
}

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attr, int value)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = fake_enter();
    if (error == cudaSuccess && attr == cudaFuncAttributeMaxDynamicSharedMemorySize)
        opted = {function, value};
    pthread_mutex_unlock(&fake_lock);
    return error;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = fake_enter();
    pthread_mutex_unlock(&fake_lock);
    if (error != cudaSuccess)
        return error;
    const bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *entry = known ? reinterpret_cast<void *>(tensor_map_encode) : nullptr;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

long fake_cuda_loaded(void)
{
    return (long)loaded.size();
}

/* Called between tests and before the first. Accesses are not checked here: the kernels' own tests do that. */
void twin_reset(void)
{
    memory_reset();
    report_reset();
    fiber_reset((unsigned)fake_config.seed);
    sim_checking = false;
    loaded.clear();
}

void *fake_memory_make(size_t bytes)
{
    return memory_allocate(bytes);
}

void fake_memory_give(void *p, size_t)
{
    memory_free(p);
}
}
