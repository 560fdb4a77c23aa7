/* Tests the simulator itself: correct kernels give exact results under many seeds, and every planted bug is reported with its
 * kind. */
#include "cudasim_test.h"

#include "sim_kernels.h"

#include <math.h>
#include <string.h>

#define SEEDS sim_seeds(bug ? 2 : 6, bug ? 10 : 40) /* few seeds for a bug, since each report runs addr2line */

static std::vector<__nv_bfloat16> random_bf16(size_t n, unsigned seed)
{
    std::vector<__nv_bfloat16> v(n);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        /* small multiples of 1/64, whose products and short sums are exact in fp32 */
        v[i] = __nv_bfloat16((float)((int)(seed >> 24) - 128) / 64.0f);
    }
    return v;
}

static void compare(const std::vector<float> &got, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)(float)a[i * k + l] * (double)(float)b[j * k + l];
            if (got[(size_t)(i * n + j)] != (float)sum)
                fail_msg("row %d, column %d: %g instead of %g", i, j, (double)got[(size_t)(i * n + j)], sum);
        }
}

/* Fails unless the launch with a planted bug failed and its report contains `words`. */
static void expect_report(const char *what, int bug, const char *words, enum status st)
{
    if (st == OK)
        fail_msg("%s bug %d passed", what, bug);
    /* a thread that comes too early races with the write or reads before it, depending on the order of threads */
    if (!strstr(sim_report(), words) && !(strcmp(words, "race") == 0 && strstr(sim_report(), "uninitialised")))
        fail_msg("%s bug %d: the report should say '%s', but is: %s", what, bug, words, sim_report());
    if (!strstr(sim_report(), ".cu:") && !strstr(words, "returns") && !strstr(words, "has ended") &&
        !strstr(words, "told to expect"))
        fail_msg("%s bug %d: no source line in: %s", what, bug, sim_report());
}

static void test_sum(void **)
{
    static const char *words[SUM_BUGS] = {
        "",
        "race",
        "out of the block's",
        "out of bounds",
        "uninitialised",
        "misaligned",
        "no device memory",
        "deadlock",
        "blocks of one launch",
        "divergence",
        "deadlock",
        "blocks of one launch",
    };
    for (int bug = 0; bug < SUM_BUGS; bug++)
        for (unsigned seed = 1; seed <= SEEDS; seed++) {
            sim_reset(seed);
            sim_expect_failure(bug != 0);
            std::vector<float> x(3 * 256);
            for (size_t i = 0; i < x.size(); i++)
                x[i] = (float)(i % 17);
            device_array<float> dx(x), out(3);
            enum status st = start_sum(out.p, bug == SUM_HOST_POINTER ? x.data() : dx.p, 3, bug);
            if (bug) {
                expect_report("sum", bug, words[bug], st);
                continue;
            }
            must(st);
            for (int b = 0; b < 3; b++) {
                float sum = 0;
                for (int i = 0; i < 256; i++)
                    sum += x[(size_t)(b * 256 + i)];
                assert_true(out.get()[(size_t)b] == sum);
            }
            assert_true(sim_counted().blocks == 3 && sim_counted().accesses > 3 * 256);
        }
}

static void test_mma(void **)
{
    static const char *words[MMA_BUGS] = {"", "race", "race", "race", "race", "in flight", "multiple of 16"};
    for (int bug = 0; bug < MMA_BUGS; bug++)
        for (int k = bug ? 160 : 32; k <= 160; k += 64)
            for (unsigned seed = 1; seed <= SEEDS; seed++) {
                sim_reset(seed);
                sim_expect_failure(bug != 0);
                auto a = random_bf16((size_t)(64 * k), seed), b = random_bf16((size_t)(64 * k), seed + 77);
                device_array<__nv_bfloat16> da(a), db(b);
                device_array<float> c(64 * 64);
                enum status st = start_mma(c.p, da.p, db.p, k, bug);
                if (bug) {
                    expect_report("mma", bug, words[bug], st);
                    continue;
                }
                must(st);
                compare(c.get(), a.data(), b.data(), 64, 64, k);
            }
}

static void test_wgmma(void **)
{
    static const char *words[WG_BUGS] = {
        "",
        "fence_mbarrier_init",
        "whose initialisation",
        "race", /* or a deadlock */
        "deadlock",
        "told to expect",
        "has had all",
        "race",
        "race",
        "deadlock",
        "wgmma_fence",
        "", /* no error */
        "in flight",
        "missing proxy fence",
        "TMA store",
        "bulk store",
        "race",
    };
    for (int bug = 0; bug < WG_BUGS; bug++)
        for (unsigned seed = 1; seed <= SEEDS; seed++) {
            const int k = 5 * 64; /* more tiles than stages */
            sim_reset(seed);
            sim_expect_failure(bug != 0);
            auto a = random_bf16(64 * k, seed), b = random_bf16(128 * k, seed + 77);
            device_array<__nv_bfloat16> da(a), db(b);
            device_array<float> c(64 * 128);
            enum status st = start_wgmma(c.p, da.p, db.p, k, bug);
            if (bug == WG_READ_IN_FLIGHT) { /* a GPU reports no error for this either, but the result must be NaN */
                assert_true(st != OK || isnan(c.get()[0]));
                continue;
            }
            if (bug) {
                const bool stuck = bug == WG_WRONG_PARITY && strstr(sim_report(), "deadlock");
                expect_report("wgmma", bug, stuck ? "deadlock" : words[bug], st);
                continue;
            }
            must(st);
            compare(c.get(), a.data(), b.data(), 64, 128, k);
            assert_true(sim_counted().products == 20);
        }
}

static void test_wgmma_forms(void **)
{
    static const int ns[] = {32, 64, 96, 128, 192, 256}, spans[] = {0, 32, 64, 128};
    for (int n : ns)
        for (int span : spans)
            for (int form = 0; form < 6; form++) { /* in forms 4 and 5, A comes from registers */
                sim_reset((unsigned)(n + span + form));
                int ta = form < 4 && form & 1, tb = form < 4 ? form >> 1 & 1 : form & 1;
                auto a = random_bf16(64 * 16, 5), b = random_bf16((size_t)n * 16, 6);
                device_array<__nv_bfloat16> da(a), db(b);
                device_array<float> d((size_t)n * 64);
                must(start_wgmma_form(d.p, da.p, db.p, n, ta, tb, span, form >= 4));
                compare(d.get(), a.data(), b.data(), 64, n, 16);
            }
}

static void test_tma_boxes(void **)
{
    static const int spans[] = {0, 32, 64, 128};
    const int rows = 21, cols = 36;
    for (int span : spans)
        for (int c0 = -40; c0 <= 40; c0 += 5)
            for (int c1 = -9; c1 <= 23; c1 += 4) {
                sim_reset((unsigned)(c0 * c0 + c1 + 40));
                int box = (span ? span : 64) / 4;
                std::vector<float> x(rows * cols);
                for (size_t i = 0; i < x.size(); i++)
                    x[i] = (float)i + 1;
                device_array<float> dx(x), y(std::vector<float>(x.size(), -1.0f)), sum(std::vector<float>(x.size(), 0.5f));
                must(start_tma_copy(y.p, sum.p, dx.p, rows, cols, c0, c1, span));
                auto gy = y.get(), gs = sum.get();
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < cols; c++) {
                        bool in = c >= c0 && c < c0 + box && r >= c1 && r < c1 + 8;
                        size_t i = (size_t)(r * cols + c);
                        assert_true(gy[i] == (in ? x[i] : -1.0f));
                        assert_true(gs[i] == (in ? x[i] + 0.5f : 0.5f));
                    }
            }
}

static void test_collectives(void **)
{
    const int bug = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        sim_reset(seed);
        device_array<int> out(64 * 8);
        must(start_collectives(out.p));
        auto v = out.get();
        for (int t = 0; t < 64; t++) {
            int lane = t % 32;
            const int *o = &v[(size_t)t * 8];
            assert_int_equal(o[0], 100 + 22);
            assert_int_equal(o[1], 31 * 16);
            assert_int_equal(o[2], lane + 3 < 32 ? lane + 3 : lane);
            assert_int_equal(o[3], lane % 16 >= 3 ? lane - 3 : lane);
            assert_int_equal(o[4], lane < 16 ? lane ^ 8 : -1);
            assert_int_equal(o[5], (int)0xaaaaaaaau);
            assert_int_equal(o[6], t < 32 ? 31 : 63);
            assert_int_equal(o[7], t < 32 ? 7 : 39);
        }
    }
}

/* Checks that launches which a driver refuses are refused with CUDA's error in the message, and that the launches of a stream are
 * counted. */
static void test_runtime(void **)
{
    sim_reset(1);
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    {
        device_array<int> out(40);
        must(start_numbers(out.p, 40, 64, 0, stream));
        must(start_numbers(out.p, 40, 64, 0, nullptr));
        must(start_numbers(out.p, 40, 32, 99 * 1024, stream));
        assert_int_equal(out.get()[39], 39);
        assert_true(sim_enqueued(stream) == 4 && sim_enqueued(nullptr) == 2 && sim_counted().enqueued == 6);

        assert_int_equal(start_numbers(out.p, 40, 65, 0, stream), ERR_IO);
        assert_non_null(strstr(status_message(), "cudaErrorLaunchOutOfResources"));
        assert_int_equal(start_numbers(out.p, 41, 64, 0, stream), ERR_IO);
        assert_non_null(strstr(status_message(), "cudaErrorInvalidValue"));
        sim_device(86, 84);
        must(start_numbers(out.p, 40, 64, 99 * 1024, stream));
        assert_int_equal(start_numbers(out.p, 40, 64, 99 * 1024 + 16, stream), ERR_IO);
        sim_device(90, 132);
        must(start_numbers(out.p, 40, 64, 227 * 1024, stream));

        int host[41] = {};
        assert_int_equal(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
        assert_int_equal(cudaMemset(out.p + 39, 0, 5), cudaErrorInvalidValue);
        assert_int_equal(cudaMemcpy(out.p, host, sizeof host, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        assert_int_equal(cudaMemcpy(host, out.p + 1, 160, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
        assert_int_equal(cudaMemcpy(host, out.p, 160, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        assert_int_equal(cudaMemcpy(host, out.p, 160, cudaMemcpyDeviceToHost), cudaSuccess);
    }
    sim_reset(1);
    assert_true(sim_enqueued(stream) == 0 && sim_counted().enqueued == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),         cmocka_unit_test(test_mma),       cmocka_unit_test(test_wgmma),
        cmocka_unit_test(test_wgmma_forms), cmocka_unit_test(test_tma_boxes), cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_runtime),
    };
    SIM_TEST_MAIN(tests, argc, argv);
}
