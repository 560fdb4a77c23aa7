/* For tests of kernels: device arrays, comparisons, seeds. C++ with cmocka. */
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

/* Fails the test with the status's sentence (which holds the simulator's report). */
static inline void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

/* LTRAIN_LONG or, in short runs, fewer seeds. Seeds count from 1, so two seeds are a lazy and an eager one. */
static inline unsigned sim_seeds(unsigned usual, unsigned long_run)
{
    return getenv("LTRAIN_LONG") ? long_run : usual;
}

/* An array in simulated device memory, exactly as long as asked: one element beyond is an error. NaN until written. */
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

/* A test program's main: `test_x [PATTERN]` runs the tests whose names match (cmocka's wildcards). */
#define SIM_TEST_MAIN(tests, argc, argv)                  \
    do {                                                  \
        if ((argc) > 1)                                   \
            cmocka_set_test_filter((argv)[1]);            \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    } while (0)

#endif
