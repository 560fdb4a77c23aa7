/* Device arrays, comparisons and seeds for tests of kernels in C++ with cmocka. */
#ifndef CUDASIM_TEST_H
#define CUDASIM_TEST_H

#include "cudasim.h"

#include "base/status.h"

#include <cuda_bf16.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>
extern "C" {
#include <cmocka.h>
}

/* Fails the test with the status's message (which contains the simulator's report) unless the status is OK. */
static inline void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

/* Returns the number of seeds: `long_run` if LTRAIN_LONG is set, else `usual`. Seeds count from 1, so already two seeds contain
 * one with late and one with early copies. */
static inline unsigned sim_seeds(unsigned usual, unsigned long_run)
{
    return getenv("LTRAIN_LONG") ? long_run : usual;
}

/* Array in simulated device memory, exactly as long as requested: an access one element beyond it is an error. It holds NaN until
 * it is written. */
template <class T> struct device_array {
    T *p = nullptr;
    size_t n = 0;
    device_array() = default;
    explicit device_array(size_t count) : n(count)
    {
        if (n && cudaMalloc(&p, n * sizeof(T)) != cudaSuccess)
            fail_msg("no simulated memory for %zu elements", n);
    }
    explicit device_array(const std::vector<T> &v) : device_array(v.size())
    {
        cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    ~device_array()
    {
        cudaFree(p);
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

/* Defines the main function of a test program: `test_x [PATTERN]` runs the tests whose names match (with cmocka's wildcards). */
#define SIM_TEST_MAIN(tests, argc, argv)                  \
    do {                                                  \
        if ((argc) > 1)                                   \
            cmocka_set_test_filter((argv)[1]);            \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    } while (0)

#endif
