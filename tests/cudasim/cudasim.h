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

/* Sets whether fp32 additions of several blocks (or threads) to one address must be ordered by flags or barriers, which makes
 * their bits the same every time. Off by default. */
void sim_ordered_sums(int on);

/* Sets compute capability (times 10) and number of multiprocessors that cudaDeviceGetAttribute reports (default 90, 132). */
void sim_device(int capability, int multiprocessors);

/* Returns a description of the last failed launch with source lines; "" if none failed since sim_reset. The failed launch and
 * every later one return cudaErrorLaunchFailure. */
const char *sim_report(void);

/* Sets whether a failure is expected; others are printed to stderr as well. */
void sim_expect_failure(int expected);

/* Counts since sim_reset, with which tests make sure that a check really looked at something. enqueued: launches, fills, and
 * copies that take a stream. */
struct sim_counts {
    unsigned long long launches, blocks, switches, accesses, copies, products, enqueued;
};
struct sim_counts sim_counted(void);
unsigned long long sim_enqueued(cudaStream_t stream); /* number of things enqueued on one stream */

#ifdef __cplusplus
}
#endif
#endif
