/* `test_cuda_ops [GROUP ...]`: compares every op's CUDA kernel with its CPU twin. */
#include "ops_harness.h"

static const struct {
    const char *name;
    void (*run)(void);
} GROUPS[] = {{"moves", test_moves},        {"embedding", test_embedding},
              {"elements", test_elements},  {"heads", test_heads},
              {"rope", test_rope},          {"norms", test_norms},
              {"columns", test_columns},    {"loss", test_loss},
              {"update", test_update},      {"routes", test_routes},
              {"pairs", test_pairs},        {"travel", test_travel},
              {"experts", test_experts},    {"convolutions", test_convolutions},
              {"decays", test_decays},      {"scans", test_scans},
              {"summaries", test_summaries}};
enum { GROUP_COUNT = sizeof GROUPS / sizeof *GROUPS };

int main(int argc, char **argv)
{
    for (int g = 0; g < GROUP_COUNT; g++) {
        int wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], GROUPS[g].name) == 0;
        if (!wanted)
            continue;
        int64_t before = cases_run();
        GROUPS[g].run();
        printf("%s: %lld cases agree with the CPU twins\n", GROUPS[g].name, (long long)(cases_run() - before));
        fflush(stdout);
    }
    if (cases_run() == 0) {
        fprintf(stderr, "usage: test_cuda_ops [GROUP ...]: no such group\n");
        return 2;
    }
    return 0;
}
