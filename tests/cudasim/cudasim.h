/* Settings and queries of the simulated GPU, for tests in C and C++. See README.md. */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets all allocations, launches and failures, and seeds the scheduler. Odd seeds let asynchronous copies land as late as
 * possible, even seeds at random moments. */
void sim_reset(unsigned seed);

/* The checker of plain accesses (races, bounds, uninitialised shared memory): on by default; off is several times faster. */
void sim_checks(int on);

/* Sets whether fp32 additions of several blocks (or threads) to one address must be ordered by flags or barriers, so that the
 * bits are the same every time. Off by default. */
void sim_ordered_sums(int on);

/* Compute capability * 10 and multiprocessors that cudaDeviceGetAttribute reports (default 90, 132). */
void sim_device(int capability, int multiprocessors);

/* The last failed launch in words, with source lines; "" if none since sim_reset. The launch itself returned
 * cudaErrorLaunchFailure, and every later one does too. */
const char *sim_report(void);

/* Failures are printed to stderr as well, unless expected. */
void sim_expect_failure(int expected);

/* Counts since sim_reset, for tests that a check really looked at something. enqueued: launches, and fills and copies that take a
 * stream. */
struct sim_counts {
    unsigned long long launches, blocks, switches, accesses, copies, products, enqueued;
};
struct sim_counts sim_counted(void);
unsigned long long sim_enqueued(cudaStream_t stream); /* enqueued work of one stream */

#ifdef __cplusplus
}
#endif
#endif
