/* --device cuda as people use it, on the fake GPU (tests/cudasim/fake): the files of cpu:discrete, bit for bit, after a resume
 * and after moving between devices; and what is said where there is no GPU or it fails. */
#include "harness.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define ON(device) " --offload nvme --device " device " "
#define FOUR TINY "--steps 4 --save-every 2 "

static const char *twin;

static void use(const char *plugin, const char *words)
{
    plugin ? setenv("LTRAIN_CUDA_PLUGIN", plugin, 1) : unsetenv("LTRAIN_CUDA_PLUGIN");
    words ? setenv("LTRAIN_FAKE_CUDA", words, 1) : unsetenv("LTRAIN_FAKE_CUDA");
}

static void runs_move_between_devices(void **state)
{
    (void)state;
    use(twin, "seed=1");
    e2e_succeeds(NULL, FOUR ON("cpu:discrete") "--out want");
    struct result r = e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --save-every 2 --out here");
    e2e_contains(r.out, "device: GPU 0, twin, 0000:01:00.0");
    use(twin, "seed=2,devices=2");
    r = e2e_succeeds(NULL, "--resume here --steps 4 --device cuda:1");
    e2e_contains(r.out, "device: GPU 1, twin, 0000:02:00.0");
    e2e_same_file("want/hf/model.safetensors", "here/hf/model.safetensors");
    e2e_succeeds(NULL, TINY ON("cuda") "--steps 2 --save-every 2 --out there");
    e2e_succeeds(NULL, "--resume there --steps 4 --device cpu");
    e2e_same_file("want/hf/model.safetensors", "there/hf/model.safetensors");
}

static void check_compares(void **state)
{
    (void)state;
    use(twin, NULL);
    struct result r = e2e_succeeds(NULL, "check " TINY ON("cuda") "--steps 1");
    e2e_contains(r.out, "placement changes no bit");
    e2e_contains(r.out, "check: pass");
}

static void auto_takes_what_is_there(void **state)
{
    (void)state;
    use(twin, NULL);
    struct result r = e2e_succeeds(NULL, TINY "--steps 1 --out found");
    e2e_contains(r.out, "device: GPU 0");
    use(twin, "devices=0");
    r = e2e_succeeds(NULL, TINY "--steps 1 --out none");
    e2e_contains(r.out, "device: cpu");
}

static void refusals(void **state)
{
    (void)state;
    char gives[256];
    use(twin, "devices=2");
    e2e_refuses(2, "--device cuda:2: GPUs that are here: 2", NULL, TINY "--steps 1 --device cuda:2");
    use(twin, "devices=0");
    e2e_refuses(2, "--device cuda: the driver shows no GPU to this process|CUDA_VISIBLE_DEVICES", NULL,
                TINY "--steps 1 --device cuda");
    use(twin, "memory=4M");
    e2e_refuses(1, "the device arena of|free on GPU 0, twin|--device-mem", NULL,
                TINY "--steps 1 --device cuda --offload none --device-mem 80M");
    use("/nonexistent.so", NULL);
    e2e_refuses(2, "LTRAIN_CUDA_PLUGIN cannot be opened|/nonexistent.so", NULL, TINY "--steps 1 --device cuda");
    use("libm.so.6", NULL);
    e2e_refuses(2, "the CUDA plugin is not this ltrain's|build both anew", NULL, TINY "--steps 1 --device cuda");
    use(NULL, NULL);
    if (!dlopen("libcuda.so.1", RTLD_NOW))
        e2e_refuses(2, "--device cuda: there is no NVIDIA driver here|libcuda.so.1|use cpu", NULL,
                    TINY "--steps 1 --device cuda");
    snprintf(gives, sizeof gives, "readelf -d '%s' | grep NEEDED | grep -i -E 'cuda|cublas|nccl' >.needed", getenv("LTRAIN"));
    assert_int_not_equal(system(gives), 0); /* nothing of CUDA is linked */
}

static void a_failing_gpu(void **state)
{
    (void)state;
    use(twin, "dies=500:719");
    e2e_refuses(1, "cudaErrorLaunchFailure", NULL, TINY ON("cuda") "--steps 3 --out dead");
    use(twin, "fail=3000:700");
    e2e_refuses(1, "cudaErrorIllegalAddress|GPU 0, twin, 0000:01:00.0", NULL, TINY ON("cuda") "--steps 3 --out lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_move_between_devices), cmocka_unit_test(check_compares),
                                       cmocka_unit_test(auto_takes_what_is_there), cmocka_unit_test(refusals),
                                       cmocka_unit_test(a_failing_gpu)};
    twin = getenv("LTRAIN_CUDA_TWIN");
    return twin ? cmocka_run_group_tests(tests, e2e_setup, e2e_teardown) : 77;
}
