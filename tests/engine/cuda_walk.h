/* Declares a test of test_cuda_sim that is in its own file. */
#ifndef LTRAIN_TESTS_ENGINE_CUDA_WALK_H
#define LTRAIN_TESTS_ENGINE_CUDA_WALK_H

void walk_presets(void **state);

#endif
